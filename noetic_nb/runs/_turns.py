"""Groups the events of a run by turn as they arrive, including events of children and later grades."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from noetic_nb import events as ev
from noetic_nb._core.cards import Card, Table, with_card
from noetic_nb.markup import dollars
from noetic_nb.runs._plain_text import plain, plain_line

# Keeps table cells readable.
_MOST_TEXT: Final = 120
_LARGE: Final = 10**15
_OF_END: Final = (
    *("turn_id", "text", "outcome", "stopped", "input_tokens", "output_tokens", "cost", "duration_ms", "finish_reason"),
)
_HEADINGS: Final = ("thread", "turn", "user", "reply", "outcome", "tokens in", "tokens out", "tools", "quality")


@with_card
@dataclass(frozen=True, slots=True)
class TurnSummary:
    """Summary of one turn.

    Parameters
    ----------
    where : Where
        Thread, execution and number.
    turn_id : str
        Its id; empty if the start was not recorded and the turn has not ended.
    query : str
        Text of the user's messages.
    seq : int
        Position of its start in the run; of its first event if the start was not recorded.
    t_ms : float
        Start time, in milliseconds of the run's clock.
    text : str
        The final reply; empty while the turn runs.
    outcome : {"success", "failure", "aborted"} or None
        How it ended; None while it runs.
    stopped : mapping or None
        The decision that stopped it, as plain data.
    input_tokens, output_tokens : int or None, tokens
        The turn's tokens, judges and layers included; None if unknown.
    cost : float or None
        US dollars, as far as prices are known; None if it called models but no price is known.
    duration_ms : float or None
        None while the turn runs, or if unknown.
    resource_id : str or None
        The resource that it ran for.
    views : tuple of ViewAssembled
        The views sent to the model, one per model call.
    model_calls, tool_calls, decisions, steering, errors : tuple of events
        The turn's events of each type, in order.
    qualities : tuple of float
        The grades it got, 0 to 1.
    finish_reason : str or None
        Why the last answer ended: ``"stop"``, ``"tool_calls"``, ``"length"``, ``"content_filter"``; None if unknown.
    warnings : tuple of WarningRaised
        Problems that did not end the turn, in order.
    """

    where: ev.Where
    turn_id: str
    query: str
    seq: int
    t_ms: float
    text: str = ""
    outcome: Literal["success", "failure", "aborted"] | None = None
    stopped: Mapping[str, Any] | None = None
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    cost: float | None = 0.0
    duration_ms: float | None = None
    resource_id: str | None = None
    views: tuple[ev.ViewAssembled, ...] = ()
    model_calls: tuple[ev.ModelCalled, ...] = ()
    tool_calls: tuple[ev.ToolCalled, ...] = ()
    decisions: tuple[ev.RegulatorDecided, ...] = ()
    steering: tuple[ev.SteeringDecided, ...] = ()
    errors: tuple[ev.ErrorRaised, ...] = ()
    qualities: tuple[float, ...] = ()
    finish_reason: str | None = None
    warnings: tuple[ev.WarningRaised, ...] = ()

    def _card(self) -> Card:
        facts: list[tuple[str, Any]] = [("user", self.query), ("reply", self.text), ("outcome", _outcome(self))]
        facts += [("tokens in", self.input_tokens), ("tokens out", self.output_tokens)]
        facts += [("cost", "not known" if self.cost is None else dollars(self.cost))]
        facts += [("ms", self.duration_ms), ("quality", self.qualities)]
        kinds = ("model_calls", "tool_calls", "steering", "decisions", "errors", "warnings")
        facts += [(name.replace("_", " "), len(getattr(self, name))) for name in kinds]
        known = [(name, value) for name, value in facts if value is not None and value != () and value != 0]
        return Card("TurnSummary", f"{self.where.thread_id}, turn {self.where.turn}", known)


_FIELDS: Final = tuple([each.name for each in fields(TurnSummary)])


class _Draft:
    """A turn being collected; its fields are lists, because appending to tuples makes long turns quadratic."""

    __slots__ = ("open", "summary", "unseen")

    def __init__(self, where: ev.Where, seq: int, t_ms: float) -> None:
        self.summary: TurnSummary | None = TurnSummary(where, "", "", seq, t_ms)
        self.open: dict[str, Any] = {}
        self.unseen: list[float] = []

    def fields(self) -> dict[str, Any]:
        """Return the fields to change; the summary is rebuilt on demand."""
        if self.summary is not None:
            found = [(name, getattr(self.summary, name)) for name in _FIELDS]
            self.open = {name: [*value] if type(value) is tuple else value for name, value in found}
            self.summary = None
        return self.open

    def finished(self) -> TurnSummary:
        if self.summary is None:
            values: list[Any] = [tuple(value) if type(value) is list else value for value in self.open.values()]
            self.summary, self.open = TurnSummary(*values), {}
        return self.summary

    def add_grade(self, quality: float, *, seen: bool) -> None:
        """Add a grade once, even if it is both given and then seen by a regulator."""
        if seen and quality in self.unseen:
            self.unseen.remove(quality)
            return
        self.fields()["qualities"].append(quality)
        if not seen:
            self.unseen.append(quality)


class TurnBook:
    """The turns of a growing run; each read processes only new events."""

    __slots__ = ("_by_place", "_drafts", "_last", "_read")

    def __init__(self) -> None:
        self._drafts: list[_Draft] = []
        self._by_place: dict[tuple[str, int], _Draft] = {}
        self._last: dict[str, _Draft] = {}
        self._read = 0

    def read(self, events: Sequence[ev.RunEvent]) -> tuple[TurnSummary, ...]:
        """Process new events and return every turn, in starting order."""
        for seq in range(self._read, len(events)):
            event = events[seq]
            draft = self._turn_of(seq, event)
            if draft is not None and (change := _CHANGES.get(type(event))) is not None:
                change(draft, event)
            self._read = seq + 1
        return tuple([draft.finished() for draft in self._drafts])

    def _turn_of(self, seq: int, event: ev.RunEvent) -> _Draft | None:
        where = event.where
        draft = self._by_place.get((where.thread_id, where.turn))
        if type(event) is ev.TurnStarted:
            # A second start with the same number is a separate turn, as when two harnesses record to one run.
            if draft is None or draft.fields()["turn_id"]:
                draft = self._open(seq, event)
            draft.fields()["seq"] = seq
        elif draft is None and where.turn < 1:
            return self._last.get(where.thread_id) if isinstance(event, ev.QualityGiven | ev.RegulatorSaw) else None
        elif draft is None:  # recording began in the middle of this turn
            draft = self._open(seq, event)
        return draft

    def _open(self, seq: int, event: ev.RunEvent) -> _Draft:
        where = event.where
        draft = self._by_place[where.thread_id, where.turn] = self._last[where.thread_id] = _Draft(
            where, seq, event.t_ms
        )
        self._drafts.append(draft)
        return draft


def _began(draft: _Draft, event: ev.TurnStarted) -> None:
    """Handle the start of a turn whose first items may already be logged."""
    draft.fields().update({name: getattr(event, name) for name in ("where", "turn_id", "query", "t_ms", "resource_id")})


def _called(draft: _Draft, event: ev.ModelCalled) -> None:
    turn = draft.fields()
    turn["model_calls"].append(event)
    # The end of the turn brings the final sums; later calls do not change them.
    if turn["outcome"] is None:
        if event.cost is not None:
            turn["cost"] = (turn["cost"] or 0.0) + event.cost
        elif event.status == "ok" and not turn["cost"]:
            turn["cost"] = None  # a call that failed without an answer has no known cost
        for name in ("input_tokens", "output_tokens"):
            turn[name] = (turn[name] or 0) + getattr(event, name)


def _saw(draft: _Draft, event: ev.RegulatorSaw) -> None:
    quality = event.event.get("quality") if event.event.get("kind") == "quality_feedback" else None
    if isinstance(quality, int | float) and -_LARGE < quality < _LARGE:  # a loaded file may contain any number
        draft.add_grade(quality, seen=True)


def _listed(name: str) -> Callable[[_Draft, Any], None]:
    return lambda draft, event: draft.fields()[name].append(event)


# Looked up by type, because most events of a long run change nothing here.
_CHANGES: Final[dict[type[Any], Callable[[_Draft, Any], None]]] = {
    ev.TurnStarted: _began,
    ev.ModelCalled: _called,
    ev.RegulatorSaw: _saw,
    ev.QualityGiven: lambda draft, event: draft.add_grade(event.quality, seen=False),
    ev.TurnCompleted: lambda draft, event: draft.fields().update({name: getattr(event, name) for name in _OF_END}),
    ev.ViewAssembled: _listed("views"),
    ev.ToolCalled: _listed("tool_calls"),
    ev.RegulatorDecided: _listed("decisions"),
    ev.SteeringDecided: _listed("steering"),
    ev.ErrorRaised: _listed("errors"),
    ev.WarningRaised: _listed("warnings"),
}


def _outcome(turn: TurnSummary) -> str:
    outcome: str = turn.outcome or "running"
    if turn.stopped is not None:
        reason = turn.stopped.get("reason")
        kind = reason.get("kind") if isinstance(reason, dict) else None
        outcome = f"stopped: {kind or turn.stopped.get('kind', 'unknown')}"
    if turn.warnings:
        outcome += f"; {', '.join(dict.fromkeys(warning.code for warning in turn.warnings))}"
    return outcome


def _cells(turn: TurnSummary) -> tuple[str | float | None, ...]:
    quality = f"{turn.qualities[-1]:.2f}" if turn.qualities else None
    texts = (plain_line(turn.query, _MOST_TEXT), plain_line(turn.text, _MOST_TEXT), _outcome(turn))
    counts = (turn.input_tokens, turn.output_tokens, len(turn.tool_calls))
    return (turn.where.thread_id, turn.where.turn, *texts, *counts, quality)


def turns_card(run_id: str, turns: Sequence[TurnSummary], *, problem: str | None = None) -> Card:
    count = "no turns yet" if not turns else "1 turn" if len(turns) == 1 else f"{len(turns)} turns"
    said = count if problem is None else f"{count} (NOT SAVED: {plain(problem)})"
    return Card("Run", run_id, [("", said)], table=Table(_HEADINGS, map(_cells, turns), empty=""))
