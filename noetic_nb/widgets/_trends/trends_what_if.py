"""Compares decisions with other thresholds to the recorded ones: for a page, and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar, Final

from noetic_nb.events import RegulatorDecided, RunEvent
from noetic_nb.redact import redact_text
from noetic_nb.regulator import Regulator, decisions
from noetic_nb.runs._plain_text import count
from noetic_nb.runs._regulation.decision_words import DecisionRedaction, decision_label
from noetic_nb.runs._regulation.recorded_decisions import DecisionTape, Judged, Redecided, tape_of
from noetic_nb.widgets.base._feed import Feed, Place
from noetic_nb.widgets.base._selection import Moment

Thresholds = Mapping[str, Mapping[str, float | None]]

COLUMNS: Final = {
    "run_id": "object", "thread_id": "object", "execution_id": "object", "turn": "int64", "seq": "Int64", "t_ms": "float64",
    "layer_id": "object", "at": "object", "decision": "object", "reason": "object", "suggestion": "object",
    "confidence": "float64", "tokens_out": "int64", "stops": "bool", "detail": "object", "was": "object",
    "was_reason": "object", "was_stops": "bool",
}  # fmt: skip


# How many plain forms of decisions to cache: those of about ten thousand turns.
DETAILS_KEPT: Final = 50_000


class _Reached:
    """The events within a moment, with their places."""

    reads: ClassVar[frozenset[type[Any]] | None] = None

    def __init__(self) -> None:
        self.placed: list[tuple[int, RunEvent]] = []
        self.tape: DecisionTape | None = None

    def take(self, event: RunEvent, place: Place) -> None:
        if self.tape is None:
            self.placed.append((place.seq, event))
        else:
            self.tape.append(event, place.seq)


class WhatIf:
    """The decision tape of a run, created on demand, and extended as the run grows.

    Parameters
    ----------
    run : Run
        The run.
    moment : Moment
        The part of it to show.
    """

    def __init__(self, run: Any, moment: Moment) -> None:
        self.run = run
        self.moment = moment
        self._words = DecisionRedaction()
        self._learned = 0
        self._details: dict[int, tuple[decisions.Decision, Any]] = {}
        self._recorded: dict[str, tuple[Any, Outcome]] = {}
        self._tapes: dict[int | None, tuple[Regulator | None, DecisionTape, Feed, int, RunEvent | None]] = {}

    def decide(self, thresholds: Thresholds, regulator: Regulator | None = None) -> list[Redecided]:
        """Return the shown decisions as they would have been; raises `NoeticConfigError`."""
        found = self.tape(regulator).decide(thresholds)
        if self.moment.turn is None and self.moment.thread_id is None:
            return found
        return [each for each in found if self.moment.turn in (None, each.turn)]

    def recorded(self, found: Iterable[Redecided], thread_id: str) -> Outcome:
        """Return the outcome of a thread's decisions as recorded, recomputed if the run has grown."""
        known, key = self._recorded.get(thread_id), (len(self.run.events), next(iter(self.run.events), None))
        if known is None or known[0] != key:
            known = self._recorded[thread_id] = key, outcome_of(found, thread_id, recorded=True)
        return known[1]

    def judged(self, thresholds: Thresholds, regulator: Regulator | None = None) -> list[Judged]:
        """Return every predicate in every shown turn, as it would have been; raises `NoeticConfigError`."""
        found = self.tape(regulator).judged(thresholds)
        return [each for each in found if self.moment.turn in (None, each.turn)]

    def tape(self, regulator: Regulator | None = None) -> DecisionTape:
        """Return the tape with the recorded settings, or with those of a regulator."""
        key = None if regulator is None else id(regulator)
        known = self._tapes.get(key)
        events = self.run.events
        first = next(iter(events), None)
        if known is not None and known[4] is first and known[3] <= len(events):
            _, tape, feed, seen, _ = known
            if seen == len(events):
                return tape
            reached = feed.reading
            if isinstance(reached, _Reached) and reached.tape is not None:
                total = len(events)
                feed.take_all(islice(events, seen, total))
                self._tapes[key] = regulator, tape, feed, total, first
                return tape
        reached = _Reached()
        feed = Feed(reached, self.moment)
        total = len(events)
        feed.take_all(islice(events, total))
        tape = tape_of(self.run, regulator, reached.placed)
        if any(isinstance(event, RegulatorDecided) for _, event in reached.placed):
            reached.tape = tape  # a run without a regulator is fed again instead, because its events change
        reached.placed = []
        self._tapes[key] = regulator, tape, feed, total, first
        return tape

    def frame(self, thresholds: Thresholds, regulator: Regulator | None = None) -> Any:
        """Return the decisions as a pandas data frame."""
        import pandas

        found = self.decide(thresholds, regulator)
        self._learn_secrets()
        run_id = str(getattr(self.run, "run_id", ""))
        rows = [self._row(run_id, each) for each in found]
        columns = zip(*rows, strict=True) if rows else ((),) * len(COLUMNS)
        return pandas.DataFrame(
            {
                name: pandas.Series(column, dtype=dtype)
                for (name, dtype), column in zip(COLUMNS.items(), columns, strict=True)
            }
        )

    def _learn_secrets(self) -> None:
        events = self.run.events
        if self._learned > len(events):
            self._learned = 0
        for event in islice(events, self._learned, None):
            self._words.take(event)
        if self._learned != len(events):
            self._learned = len(events)
            self._details.clear()

    def _detail(self, decision: decisions.Decision) -> Any:
        # The tape returns the same objects repeatedly, except for the predicate that was changed.
        known = self._details.get(id(decision))
        if known is None:
            if len(self._details) > DETAILS_KEPT:
                self._details.clear()
            known = self._details[id(decision)] = decision, self._words.decision(decisions.to_dict(decision))
        return known[1]

    def _row(self, run_id: str, each: Redecided) -> tuple[Any, ...]:
        recorded, decision = each.recorded, each.decision
        was = recorded.decision if each.seq is not None else {}
        where = recorded.where
        detail = self._detail(decision)
        return (
            run_id, redact_text(where.thread_id), redact_text(where.execution_id), each.turn, each.seq, recorded.t_ms,
            recorded.layer_id, recorded.at,
            decision.kind, _reason(detail), detail.get("suggestion"), each.confidence, each.tokens_out, each.stops, detail,
            was.get("kind"), _reason(was), each.seq is not None and recorded.stops,
        )  # fmt: skip


def _reason(decision: Mapping[str, Any]) -> Any:
    reason = decision.get("reason")
    return reason.get("kind") if isinstance(reason, Mapping) else None


@dataclass(slots=True)
class Outcome:
    """The outcome of a thread's decisions: its breaks, how long each holds, and the turns with warnings."""

    breaks: list[tuple[int, str]] = field(default_factory=list)
    """The turn in which each break began, and its name."""
    bands: list[tuple[int, int | None]] = field(default_factory=list)
    """First and last turn of each broken stretch; None as last means the end."""
    warned: dict[str, list[int]] = field(default_factory=dict)
    """Turns with a decision that does not stop, by the decision's name."""


def outcome_of(found: Iterable[Redecided], thread_id: str, *, recorded: bool = False) -> Outcome:
    """Return the outcome of one thread's decisions, with other thresholds or as recorded."""
    outcome = Outcome()
    names: dict[tuple[str, str | None], str] = {}
    for each in found:
        if each.recorded.where.thread_id != thread_id:
            continue
        holds = bool(outcome.bands) and outcome.bands[-1][1] is None
        if each.begins_task and holds:
            outcome.bands[-1] = (outcome.bands[-1][0], each.turn - 1)
            holds = False
        decided: Any = each.recorded.decision if recorded else each.decision
        kind = str(decided.get("kind")) if recorded else decided.kind
        if kind == "continue":
            continue
        key = kind, _reason(decided) if recorded else getattr(getattr(decided, "reason", None), "kind", None)
        if key not in names:
            names[key] = decision_label({"kind": key[0], **({} if key[1] is None else {"reason": {"kind": key[1]}})})
        if key[0] == "circuit_break":
            if not holds:
                outcome.breaks.append((each.turn, names[key].removeprefix("circuit break: ")))
                outcome.bands.append((each.turn, None))
        else:
            turns = outcome.warned.setdefault(names[key], [])
            if turns[-1:] != [each.turn]:
                turns.append(each.turn)
    return outcome


def sentence(now: Outcome, was: Outcome | None) -> str:
    """Describe what would have happened, compared with what happened; `was` is None without recorded decisions.

    Examples
    --------
    >>> sentence(Outcome([(4, "quality decline")]), Outcome([(6, "cost cap")]))
    'Would break at turn 4 (quality decline) instead of turn 6 (cost cap).'
    >>> sentence(Outcome(warned={"scope drift": [2, 3]}), Outcome([(6, "cost cap")]))
    'Would not break; it broke at turn 6 (cost cap). Scope drift in 2 turns instead of 0.'
    """
    parts = [_breaks(now, was)]
    for name in dict.fromkeys([*now.warned, *(was.warned if was is not None else ())]):
        turns = len(now.warned.get(name, ()))
        before = 0 if was is None else len(was.warned.get(name, ()))
        if turns != before:
            more = "" if was is None else f" instead of {count(before)}"
            parts.append(f"{name[:1].upper()}{name[1:]} in {count(turns)} turn{'' if turns == 1 else 's'}{more}.")
    return " ".join(parts)


def _breaks(now: Outcome, was: Outcome | None) -> str:
    would = " and ".join(f"turn {turn} ({name})" for turn, name in now.breaks[:3])
    if was is None:
        return f"Would break at {would}." if would else "Would not break."
    did = " and ".join(f"turn {turn} ({name})" for turn, name in was.breaks[:3])
    if not would:
        return f"Would not break; it broke at {did}." if did else "Would not break, as it did not."
    if would == did:
        return f"Would break at {would}, as it did."
    return f"Would break at {would} instead of {did}." if did else f"Would break at {would}; it did not break."
