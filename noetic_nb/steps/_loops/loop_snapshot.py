"""The state of a loop after an iteration, as its predicate sees it, and the predicate's verdict."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from noetic_nb.items import Item
from noetic_nb.items._json_text import compact_json
from noetic_nb.models._client import NO_USAGE, FinishReason, Usage


class Verdict(NamedTuple):
    """Whether to stop, why, and the feedback for the next iteration."""

    stop: bool
    reason: str | None = None
    feedback: str | None = None


class StepMeta(NamedTuple):
    """The last llm step: the tools its last model call asked for, its cost, its answer, and the finish reason.

    Calls in an answer that was cut off are none: nothing was run.
    """

    tool_calls: tuple[Item, ...] = ()
    usage: Usage = NO_USAGE
    cost: float = 0.0
    response_items: tuple[Item, ...] = ()
    finish_reason: FinishReason | None = None


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
        # Nearly always; mappings are for predicates that are tried on snapshots made by hand.
        if type(meta) is StepMeta:
            return bool(meta.tool_calls)
        if isinstance(meta, Mapping):
            return bool(meta.get("tool_calls") or meta.get("toolCalls"))
        return meta is not None and bool(meta.tool_calls)


def json_text(value: Any) -> str:
    """Return a value as JSON text; a value that JSON has no form for, as its own text."""
    try:
        return compact_json(to_jsonable_python(value, fallback=str))
    except (TypeError, ValueError):  # such as a number that is not finite, or a list that contains itself
        return _dumped(value)


def flowing_text(value: Any) -> str:
    """Return the value that flows from one step of a sequence to the next: text as it is, nothing as '', all else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json_text(value)


def output_text(output: Any) -> str:
    """Return an output as the text a predicate sees: text as it is, a ``text`` field, else compact JSON."""
    if output is None:
        return ""
    if isinstance(output, str):
        return output
    text = output.get("text") if isinstance(output, Mapping) else getattr(output, "text", None)
    if isinstance(text, str):
        return text
    return _dumped(output)


def _dumped(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except (TypeError, ValueError):
        return str(value)
