"""What a loop knows of itself after an iteration, and what its predicate says about it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from noetic_nb.items import Item
from noetic_nb.models.base import NO_USAGE, Usage

__all__ = ["LoopSnapshot", "StepMeta", "Verdict", "output_text"]


class Verdict(NamedTuple):
    """Whether to stop, why, and what to tell the next iteration."""

    stop: bool
    reason: str | None = None
    feedback: str | None = None


class StepMeta(NamedTuple):
    """The last llm step: the tools its last model call asked for, what the step cost, what was answered."""

    tool_calls: tuple[Item, ...] = ()
    usage: Usage = NO_USAGE
    cost: float = 0.0
    response_items: tuple[Item, ...] = ()


class LoopSnapshot(NamedTuple):
    """A loop after an iteration. Tokens, cost and `elapsed_ms` count from the beginning of the loop."""

    step_count: int
    tokens: Usage = NO_USAGE
    cost: float = 0.0
    elapsed_ms: float = 0.0
    last_output: Any = None
    last_text: str = ""
    history: Sequence[Any] = ()
    depth: int = 0
    last_step_meta: StepMeta | Mapping[str, Any] | None = None

    @property
    def asked_for_tools(self) -> bool:
        """Whether the last model call asked for a tool."""
        meta = self.last_step_meta
        if type(meta) is StepMeta:
            return bool(meta.tool_calls)
        if isinstance(meta, Mapping):
            return bool(meta.get("tool_calls") or meta.get("toolCalls"))
        return meta is not None and bool(meta.tool_calls)


def output_text(output: Any) -> str:
    """Return what a predicate sees of an output as text: text as it is, a ``text`` field, else compact JSON.

    Examples
    --------
    >>> output_text("done"), output_text({"text": "hi", "n": 1}), output_text([1, "two"]), output_text(None)
    ('done', 'hi', '[1,"two"]', '')
    """
    if output is None:
        return ""
    if isinstance(output, str):
        return output
    text = output.get("text") if isinstance(output, Mapping) else getattr(output, "text", None)
    if isinstance(text, str):
        return text
    try:
        return json.dumps(output, ensure_ascii=False, separators=(",", ":"), default=str)
    except (TypeError, ValueError):
        return str(output)
