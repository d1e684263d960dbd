"""What a regulator saw and decided, turn by turn, read from a run: qualities, spending, decisions.

A grade is recorded twice, as given by someone and as seen by the regulator; here it counts once. A grade or decision
outside any turn belongs to the thread's last turn, because that is the reply it is about. What counts as poor is read off the
thresholds that travel with decisions: where a recording has none there is none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from noetic_nb.events import (
    ModelCalled,
    QualityGiven,
    RegulatorDecided,
    RegulatorSaw,
    RunEvent,
    TurnCompleted,
    TurnStarted,
    Where,
)
from noetic_nb.redact import Redaction
from noetic_nb.runs.plain_text import TEXT_LENGTH, count, plain

__all__ = ["KIND_NAMES", "Mark", "Signals", "ThreadSignals", "TurnSignals", "decision_words", "rolling_mean"]

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
"""What decisions and their reasons are called on a picture."""


def rolling_mean(qualities: list[float], window: int | None) -> float | None:
    """Return the mean of the last `window` qualities, oldest first.

    None while fewer are known, when the regulator does not call quality poor either, and where nobody knows its window.

    References
    ----------
    .. [1] docs/behaviour/runs.md, "Readings".

    Examples
    --------
    >>> rolling_mean([0.9, 0.5, 0.4, 0.3], 3), rolling_mean([0.1], 3), rolling_mean([0.1], None)
    (0.4, None, None)
    """
    if window is None or len(qualities) < window:
        return None
    # Rounded, so that the picture and the threshold agree where sums of tenths do not.
    return round(math.fsum(qualities[-window:]) / window, 12)


@dataclass(slots=True)
class Mark:
    """A decision other than "continue"; `times` counts how often it was made in the turn."""

    kind: str
    label: str
    detail: str
    stops: bool
    times: int = 1


@dataclass(slots=True)
class TurnSignals:
    """One turn: its grades, the mean after the last one, and the output tokens of the task so far."""

    turn: int
    qualities: list[float] = field(default_factory=list)
    mean: float | None = None
    spent: int = 0
    marks: list[Mark] = field(default_factory=list)


@dataclass(slots=True)
class ThreadSignals:
    """One thread, oldest turn first; `cap` in output tokens, None where nothing caps them.

    The regulator calls a mean of the last `window` grades poor below `poor`; both are None where the run does not say.
    """

    thread: str
    turns: list[TurnSignals] = field(default_factory=list)
    qualities: list[float] = field(default_factory=list)
    cap: float | None = None
    poor: float | None = None
    window: int | None = None
    spent: int = 0
    regulator: str | None = None
    counted: dict[tuple[str, int], int] = field(default_factory=dict)

    def turn(self, where: Where) -> TurnSignals:
        """Return the turn that an event belongs to."""
        if self.turns and (where.turn <= 0 or where.turn == self.turns[-1].turn):
            return self.turns[-1]
        # A late grade or decision names an earlier turn.
        for known in reversed(self.turns):
            if known.turn == where.turn:
                return known
        mean = rolling_mean(self.qualities, self.window)
        self.turns.append(TurnSignals(where.turn, mean=mean, spent=self.spent))
        return self.turns[-1]


class Signals:
    """The threads of a run so far, or only the one given.

    Examples
    --------
    >>> signals = Signals()
    >>> for quality in (0.6, 0.5, 0.1):
    ...     changed = signals.take(QualityGiven(Where("t1", "e1", 1), 0.0, quality, "user"))
    >>> changed[1].qualities, changed[1].mean
    ([0.6, 0.5, 0.1], None)
    >>> rule = {"quality_decline": {"window": 3, "min_delta": 0.15, "poor_mean": 0.5}}
    >>> decided = RegulatorDecided(Where("t1", "e1", 1), 0.0, "regulation", "quality", {"kind": "continue"}, thresholds=rule)
    >>> changed = signals.take(decided)
    >>> changed[0].poor, changed[1].mean
    (0.5, 0.4)
    """

    def __init__(self, *, thread_id: str | None = None) -> None:
        self.thread_id = thread_id
        self.threads: dict[str, ThreadSignals] = {}
        # A decision holds words of texts, which are known as those of a secret only once the texts went by.
        self._rule = Redaction()

    def take(self, event: RunEvent) -> tuple[ThreadSignals, TurnSignals] | None:
        """Read one event; returns the thread and the turn it changed, None where nothing changed."""
        if not isinstance(
            event, TurnStarted | ModelCalled | QualityGiven | RegulatorSaw | RegulatorDecided | TurnCompleted
        ):
            return None
        match event:
            case TurnStarted(query=text) | TurnCompleted(text=text):
                self._rule.text(text)
            case RegulatorSaw():
                self._rule.data(event.event)
            case RegulatorDecided():
                event = replace(event, decision=self._rule.data(event.decision))
        where = event.where
        if self.thread_id is not None and where.thread_id != self.thread_id:
            return None
        thread = self.threads.get(where.thread_id)
        if thread is None:
            thread = self.threads[where.thread_id] = ThreadSignals(plain(where.thread_id))
        turns = len(thread.turns)
        turn = thread.turn(where)
        changed = _change(thread, turn, event)
        return (thread, turn) if changed or len(thread.turns) > turns else None


def _change(thread: ThreadSignals, turn: TurnSignals, event: RunEvent) -> bool:
    match event:
        case QualityGiven():
            return _grade(thread, turn, "given", event.quality)
        case RegulatorSaw(event={"kind": "quality_feedback", "quality": quality}):
            return _grade(thread, turn, f"seen by {event.layer_id}", quality)
        case RegulatorSaw(event={"kind": "cost", "tokens_out": int(tokens)}):
            return _is_first_regulator(thread, event.layer_id) and _spend(thread, turn, thread.spent + tokens)
        case ModelCalled() if thread.regulator is None:
            return _spend(thread, turn, thread.spent + event.output_tokens)
        case RegulatorDecided():
            known = event.cost_cap is not None and _is_first_regulator(thread, event.layer_id)
            capped = known and thread.cap != event.cost_cap
            if known:
                thread.cap = event.cost_cap
            spent = known and _spend(thread, turn, event.tokens_out)
            ruled = thread.regulator in (None, event.layer_id) and _rule(thread, turn, event.thresholds)
            return _decide(turn, event) or spent or capped or ruled
        case _:
            return False


def _grade(thread: ThreadSignals, turn: TurnSignals, source: str, quality: Any) -> bool:
    if not isinstance(quality, int | float) or not math.isfinite(quality):
        return False  # the regulator drops these too
    place = (source, turn.turn)
    nth = thread.counted[place] = thread.counted.get(place, 0) + 1
    if nth <= len(turn.qualities):
        return False  # the same grade, recorded by the other source
    turn.qualities.append(float(quality))
    thread.qualities.append(float(quality))
    turn.mean = rolling_mean(thread.qualities, thread.window)
    return True


def _rule(thread: ThreadSignals, turn: TurnSignals, thresholds: Mapping[str, Any]) -> bool:
    """Take over what counts as poor; a decision without thresholds, as in an older run, changes nothing."""
    # The predicate about quality first; a cost cap has such a pair too, and may be the only one.
    for _, numbers in sorted(thresholds.items(), key=lambda entry: not entry[0].startswith("quality_decline")):
        match numbers:
            case {"poor_mean": int() | float() as poor, "window": int() as window} if 0 <= poor <= 1 <= window:
                if (thread.poor, thread.window) == (poor, window):
                    return False
                thread.poor, thread.window = poor, window
                turn.mean = rolling_mean(thread.qualities, window)
                return True
    return False


def _is_first_regulator(thread: ThreadSignals, layer_id: str) -> bool:
    """Spending is one regulator's count; a second one would count the same tokens again."""
    if thread.regulator is None:
        thread.regulator = layer_id
        if thread.turns:  # what the model calls seemed to spend gives way to what the regulator counted
            thread.spent = thread.turns[-2].spent if len(thread.turns) > 1 else 0
    return thread.regulator == layer_id


def _spend(thread: ThreadSignals, turn: TurnSignals, spent: int) -> bool:
    changed = turn.spent != spent
    thread.spent = turn.spent = spent
    return changed


def _decide(turn: TurnSignals, event: RegulatorDecided) -> bool:
    decision = event.decision
    kind = str(decision.get("kind"))
    if kind == "continue":
        return False
    mark = Mark(plain(kind), _label(decision), _detail(decision, event.suggestion), event.stops)
    for known in turn.marks:
        if (known.label, known.detail) == (mark.label, mark.detail):
            known.times += 1
            known.stops = known.stops or mark.stops
            return True
    turn.marks.append(mark)
    return True


def _reason(decision: Mapping[str, Any]) -> Mapping[str, Any]:
    reason = decision.get("reason")
    return reason if isinstance(reason, Mapping) else {}


def _label(decision: Mapping[str, Any]) -> str:
    names = [str(decision.get("kind")), *([str(_reason(decision)["kind"])] if "kind" in _reason(decision) else [])]
    return ": ".join(plain(KIND_NAMES.get(name, name)) for name in names)


def _detail(decision: Mapping[str, Any], suggestion: str | None) -> str:
    # Decisions of loaded runs come from files: a field of another type than expected is left out, not fatal.
    match decision:
        case {"kind": "scope_drift_warn", "drift_tokens": list() | tuple() as words, "drift_score": float() as score}:
            text = f"{', '.join(map(str, words))} not in the task, drift {score:.2f}"
        case {"kind": "procedural_warning", "patterns": [{"pattern_name": name, "learned_from_turns": turns}, *_]}:
            text = f"{name}, learned from {turns} turns"
        case _:
            text = f"{_numbers(_reason(decision))}{suggestion or decision.get('suggestion') or ''}"
    return plain(text, TEXT_LENGTH)


def decision_words(event: RegulatorDecided) -> tuple[str, str]:
    """Return what a decision is called, and what it rests on.

    Examples
    --------
    >>> from noetic_nb.events import Where
    >>> decision_words(RegulatorDecided(Where("t1", "e1", 1), 0.0, "regulation", "cost", {"kind": "continue"}))
    ('continue', '')
    """
    return _label(event.decision), _detail(event.decision, event.suggestion)


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
