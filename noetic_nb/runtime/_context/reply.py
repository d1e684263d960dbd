"""The reply of a turn, with the warnings."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from noetic_nb._core.cards import Card, with_card
from noetic_nb._core.names import FinishReason
from noetic_nb.errors import NoeticError
from noetic_nb.items import Item
from noetic_nb.markup import dollars, plain_line
from noetic_nb.models._client import Usage
from noetic_nb.redact import redact_text
from noetic_nb.runtime._context.step_errors import error_text

WARNING_CODES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "answer_cut": "The answer ended before the model had finished.",
        "over_budget": "A request was larger than the token budget and was sent all the same.",
        "text_redacted": "A text that was read holds a placeholder where a secret had been removed.",
        "layer_failed": "A hook of a layer raised, ran out of time, or returned an unreadable value; it changed nothing.",
        "layer_result": "A hook or function of a layer returned something under a name that is not read.",
        "layer_idle": "A layer took no part in the turn, as its `init` returned no state.",
        "recall_failed": "The memory of a layer could not be recalled and was not sent.",
        "recall_cut": "A layer recalled more than its budget; the rest was left out.",
        "tokens_miscounted": "A layer reported another number of tokens than it used; the real one counts.",
        "unknown_rule_target": "A rule names a tool or an argument that no tool of the agent has: it may guard nothing.",
        "rule_failed": "A rule could not be evaluated; the policy for failing rules decided instead.",
        "tool_failed": "A tool raised, or returned a value that cannot be sent; the model reads the error.",
        "conversation_not_kept": "The harness has a storage and keeps no checkpoints: a new process knows nothing of the thread.",
        "state_not_saved": "The state of a layer could not be written to storage.",
        "not_saved": "The turn is not in the storage of checkpoints.",
        "call_unfinished": "A tool call had begun when the process ended. It may have run, and counts in rules.",
        "state_conflict": "The state of a layer replaced one that another execution had written meanwhile.",
        "state_large": "State that is copied or written again and again has grown beyond 10 MiB.",
        "summary_failed": "Old messages were left out without the summary that should stand for them.",
        "approval_failed": "The function that approves calls raised, so the call was denied.",
        "started_step_failed": "A step that was started and never awaited failed.",
        "events_lost": "A subscriber of the harness raised and gets no more events, or an `emit` filter raised.",
    }
)
"""Every code of a `ReplyWarning`, with its meaning."""

MAX_WARNINGS: Final = 100
"""The most warnings in one reply; the run has all of them as events."""
# Longest text in a repr, in characters; the full text is in `reply.text` and in `print(reply)`.
_MOST_TEXT: Final = 200


class ReplyWarning(NamedTuple):
    """A problem in a turn that did not end it.

    `code` is stable, one of `WARNING_CODES`; `text` is a sentence without secrets; `layer_id` is None if no layer is
    involved.
    """

    code: str
    text: str
    layer_id: str | None
    turn: int


_BY_HOOK: Final = {
    "recall": "recall_failed",
    "before_tool_call": "rule_failed",
    "after_model_call": "rule_failed",
    "persist": "state_not_saved",
    "emit": "events_lost",
}


def problem_code(hook: str, error: BaseException) -> str:
    code = getattr(type(error), "warning_code", None)
    if code is not None:
        return str(code)
    if isinstance(error, NoeticError) and error.kind == "state_conflict":
        return "state_conflict"
    return _BY_HOOK.get(hook, "layer_failed")


def problem_text(source: str, hook: str, error: BaseException) -> str:
    """Return the warning text for the arguments of a diagnostic."""
    if hook == "after_model_call" and not isinstance(error, Warning):
        # The message may quote an answer that was rejected and must never be shown.
        return f"{source!r}, `{hook}`: {type(error).__name__}"
    text = redact_text(error_text(error))
    # Warnings are full sentences; an exception from user code needs its source and its type.
    return text if isinstance(error, Warning) else f"{source!r}, `{hook}`: {type(error).__name__}: {text}"


@with_card(shown="as HTML")
class AgentReply(NamedTuple):
    """The reply of one turn.

    `text` is the last assistant message of the turn, or the suggestion if the turn was stopped; `stopped` is the
    decision that stopped it, as plain data with a ``kind``, else None. `usage` and `cost` (US dollars) cover the turn
    with its judges, layers and children. `output` is the value that the agent's step returned, parsed if it has a
    schema. `finish_reason` says why the model's last answer ended: ``"stop"``, ``"tool_calls"``, ``"length"``,
    ``"content_filter"``; None if that is unknown, if no model was called, or if the turn was stopped. `saved` says
    whether the turn, its items and its layer states are in the storage of checkpoints; None for a harness without
    checkpoints. `warnings` are records ``(code, text, layer_id, turn)`` of problems that did not end the turn; see
    `ReplyWarning` and docs/behaviour/runtime.md, "Warnings". The repr shows text, spending and warnings; read the
    fields for the rest.
    """

    text: str
    items: tuple[Item, ...]
    usage: Usage
    cost: float
    stopped: Mapping[str, Any] | None
    turn_id: str
    thread_id: str = "default"
    output: Any = None  # any value, as every step output
    finish_reason: FinishReason | None = None
    warnings: tuple[ReplyWarning, ...] = ()
    saved: bool | None = None

    def __str__(self) -> str:
        return self.text

    def __getattr__(self, name: str) -> Any:
        known = ", ".join(self._fields)
        raise AttributeError(f"A reply has no {name!r}. Its fields are {known}.", name=name, obj=self)

    def _card(self) -> Card:
        facts: list[tuple[str, Any]] = [("text", self.text)]
        if self.output is not None and self.output != self.text:
            facts.append(("output", self.output))
        if self.stopped is not None:
            facts.append(("stopped", self.stopped.get("kind")))
        facts += [
            ("finish reason", self.finish_reason),
            ("items", len(self.items)),
            ("tokens", self.usage.total_tokens),
        ]
        facts += [("cost", dollars(self.cost))] if self.cost else []
        facts += [] if self.saved is None else [("saved", "yes" if self.saved else "NOT SAVED")]
        notes = [f"{warning.code}: {warning.text}" for warning in self.warnings]
        return Card("AgentReply", f"thread {self.thread_id}", facts, notes=notes)

    def __repr__(self) -> str:
        facts = [repr(plain_line(self.text, _MOST_TEXT)), f"thread_id={plain_line(self.thread_id)!r}"]
        if self.stopped is not None:
            facts.append(f"stopped={self.stopped.get('kind')!r}")
        facts += [f"finish_reason={self.finish_reason!r}", f"{self.usage.total_tokens} tokens"]
        # A model with an unknown price is not free, so a cost of 0 is not shown.
        facts += [dollars(self.cost)] if self.cost else []
        if self.saved is not None:
            facts.append("saved" if self.saved else "NOT SAVED")
        shown = f"AgentReply({', '.join(facts)}"
        if not self.warnings:
            return f"{shown})"
        lines = [f"  {warning.code}: {plain_line(warning.text, _MOST_TEXT)}" for warning in self.warnings]
        return "\n".join([f"{shown}, {len(lines)} warning{'s' if len(lines) > 1 else ''}:", *lines]) + ")"
