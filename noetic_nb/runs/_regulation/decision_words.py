"""Describes a regulator's decisions without secrets; to recognise the secrets, it reads the earlier texts first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, Final

from noetic_nb.events import RegulatorSaw, RunEvent, TurnCompleted, TurnStarted
from noetic_nb.redact import Redaction
from noetic_nb.runs._plain_text import TEXT_LENGTH, count, plain

KIND_NAMES: Final = {
    "circuit_break": "circuit break",
    "scope_drift_warn": "scope drift",
    "procedural_warning": "corrected before",
    "low_confidence_spans": "low confidence",
    "cost_cap_reached": "cost cap",
    "quality_decline_no_recovery": "quality decline",
    "repeated_tool_call_loop": "tool loop",
    "repeated_failure_pattern": "repeated failures",
    "call_budget_exceeded": "call budget",
}
"""Names of decisions and their reasons in pictures."""


def reason_of(decision: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the reason of a circuit break; empty for other or malformed decisions."""
    reason = decision.get("reason")
    return reason if isinstance(reason, Mapping) else {}


def decision_label(decision: Mapping[str, Any]) -> str:
    name, reason = _shown(str(decision.get("kind"))), reason_of(decision)
    return f"{name}: {_shown(str(reason['kind']))}" if "kind" in reason else name


@lru_cache(maxsize=256)  # the same few kinds repeat
def _shown(name: str) -> str:
    return plain(KIND_NAMES.get(name, name))


def decision_detail(decision: Mapping[str, Any], suggestion: str | None) -> str:
    # Decisions of loaded runs come from files: skip a field of an unexpected type.
    match decision:
        case {"kind": "scope_drift_warn", "drift_tokens": list() | tuple() as words, "drift_score": float() as score}:
            text = f"{', '.join(map(str, words))} not in the task, drift {score:.2f}"
        case {"kind": "procedural_warning", "patterns": [{"pattern_name": name, "learned_from_turns": turns}, *_]}:
            text = f"{name}, learned from {turns} turn{'s' * (turns != 1)}"
        case _:
            text = f"{_numbers(reason_of(decision))}{suggestion or decision.get('suggestion') or ''}"
    return plain(text, TEXT_LENGTH)


_UNITS: Final = {"usd": "USD", "wallclock_ms": "ms", "tokens_in": "input tokens"}


def _numbers(reason: Mapping[str, Any]) -> str:
    match reason:
        case {
            "kind": "cost_cap_reached",
            "tokens_spent": int() | float() as spent,
            "tokens_cap": int() | float() as cap,
        }:
            unit = _UNITS.get(str(reason.get("currency")), "output tokens")
            amounts = (f"{spent:.4g}", f"{cap:.4g}") if unit == "USD" else (count(spent), count(cap))
            return f"{amounts[0]} of {amounts[1]} {unit}. "
        case {"kind": "repeated_tool_call_loop", "tool_name": tool, "consecutive_count": times}:
            return f"{tool} called {times} times. "
        case {"kind": "call_budget_exceeded", "call_count": int() as made, "call_budget": int() as most, **about}:
            tool = about.get("tool_name")
            return f"{count(made)} calls{'' if tool is None else f' of {tool}'}, {count(most)} allowed. "
        case {"kind": "quality_decline_no_recovery", "mean_delta": float() as fall}:
            return f"Fell by {fall:.2f}. "
        case _:
            return ""


REMEMBERED: Final = 100_000  # how many lines of a long run are remembered as free of secrets; see `Redaction`
# How many texts of a growing run wait until a decision is shown: checking them in bulk is faster.
MOST_UNREAD: Final = 1_000
# Beyond that limit, check this many per new event, so that no event of a growing run takes long.
AT_ONCE: Final = 100
_TEXTS: Final[Mapping[type[Any], Callable[[Any], Any]]] = {
    RegulatorSaw: lambda event: event.event,
    TurnStarted: lambda event: event.query,
    TurnCompleted: lambda event: event.text,
}


class DecisionRedaction:
    """Reads the texts that a regulator sees, and replaces secrets in its decisions about them."""

    reads: ClassVar = frozenset(_TEXTS)  # the event types that it reads

    def __init__(self, *, grows: bool = True) -> None:
        """Pass `grows` False to read a complete recording: all its texts wait until a decision is shown."""
        self.grows = grows
        self._rule = Redaction(remembered=REMEMBERED)
        self._unread: deque[RunEvent] = deque()

    def take(self, event: RunEvent) -> None:
        if type(event) not in _TEXTS:
            return
        self._unread.append(event)
        if self.grows and len(self._unread) > MOST_UNREAD:
            self._learn(AT_ONCE)

    def extend(self, events: Iterable[RunEvent]) -> None:
        """Store events of the types in `reads` until a decision is shown."""
        self._unread.extend(events)

    @property
    def rule(self) -> Redaction:
        """The redaction of the secrets in all texts read so far."""
        while self._unread:
            self._learn(MOST_UNREAD)
        return self._rule

    def decision(self, decision: Any) -> Any:
        return self.rule.data(decision)

    def _learn(self, count: int) -> None:
        oldest = [self._unread.popleft() for _ in range(min(count, len(self._unread)))]
        # Most texts have no sign of a secret, which is quick to check.
        if not self._rule.are_plain(_texts(oldest)):
            for event in oldest:
                self._rule.data(_TEXTS[type(event)](event))


def _texts(events: Iterable[RunEvent]) -> set[str]:
    found: set[Any] = set()
    for event in events:
        seen = _TEXTS[type(event)](event)
        if isinstance(seen, str):
            found.add(seen)
        else:
            try:
                found.update(seen.values())
            except TypeError:  # some values are not texts and not hashable
                found.update([text for text in seen.values() if isinstance(text, str)])
    return {text for text in found if isinstance(text, str)}
