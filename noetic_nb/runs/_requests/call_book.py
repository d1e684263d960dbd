"""The agent's model calls of a run, each with its request and its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, TypeAlias

from msgspec import structs

from noetic_nb.events import (
    ContextCompacted,
    ErrorRaised,
    ModelCalled,
    RegulatorDecided,
    RunEvent,
    SteeringDecided,
    ToolCalled,
    ViewAssembled,
    WarningRaised,
    Where,
)
from noetic_nb.runs._regulation.decision_words import DecisionRedaction

Outcome: TypeAlias = SteeringDecided | RegulatorDecided | ToolCalled | ErrorRaised | WarningRaised | ContextCompacted
_OUTCOMES: Final = (SteeringDecided, RegulatorDecided, ToolCalled, ErrorRaised, WarningRaised)


@dataclass(slots=True, eq=False)
class CallRecord:
    """One model call of the agent."""

    number: int
    """Its place among the agent's model calls of the run, 0 for the first."""
    seq: int
    """The place of `event` among the events of the run."""
    in_turn: int
    """Which call of its turn it is, 1 for the first."""
    event: ModelCalled
    view: ViewAssembled | None
    """What was sent; None where the run does not have it."""
    before: list[tuple[int, Outcome]]
    """What was decided before it, since the call before it or the beginning of the execution, each with its ``seq``; also
    the compactions of its context since the call before it in the thread."""
    after: list[tuple[int, Outcome]] = field(default_factory=list)
    """What came of it until the next call of the execution: its tool calls, and what was decided."""

    @property
    def where(self) -> Where:
        """Thread, execution and turn."""
        return self.event.where


class CallBook:
    """The calls so far, gathered as events come.

    What follows a call in its execution belongs to it, until the next request is made. A child execution has calls of
    its own.
    """

    reads: ClassVar = frozenset({ViewAssembled, ModelCalled, ContextCompacted, *_OUTCOMES}) | DecisionRedaction.reads
    """The types of the events that it has a use for."""

    def __init__(self) -> None:
        self.calls: list[CallRecord] = []
        self._views: dict[tuple[str, str], ViewAssembled] = {}
        self._newest: dict[tuple[str, str], int] = {}
        self._before: dict[tuple[str, str], list[tuple[int, Outcome]]] = {}
        self._compacted: dict[tuple[str, str], list[tuple[int, ContextCompacted]]] = {}
        self._last: dict[tuple[str, str], int] = {}
        self._in_turn: dict[tuple[str, int], int] = {}
        self._of_decision: dict[int, int] = {}
        self.words = DecisionRedaction(grows=False)
        """Of the texts around decisions; says itself that the run grows once pages follow."""

    def take(self, event: RunEvent, seq: int, number: int | None = None) -> int | None:
        """Read one event; returns the place in `calls` of the call that is new or has changed, None where none is.

        `number` is the place among the agent's calls of the run, for a call of the agent.
        """
        kind = type(event)
        if kind is ViewAssembled:
            assert isinstance(event, ViewAssembled)
            self._views[event.where.thread_id, event.where.execution_id] = event
        elif kind is ModelCalled:
            assert isinstance(event, ModelCalled)
            return None if number is None else self._call(event, seq, number)
        elif isinstance(event, ContextCompacted):
            return self._compaction(event, seq)
        elif isinstance(event, _OUTCOMES):
            return self._outcome(event, seq)
        else:
            self.words.take(event)
        return None

    def shown(self, at: int) -> CallRecord:
        """Return a call with the decisions around it as they are shown: without secrets of any text that was read."""
        record = self.calls[at]
        return replace(record, before=list(map(self._shown, record.before)), after=list(map(self._shown, record.after)))

    def _shown(self, outcome: tuple[int, Outcome]) -> tuple[int, Outcome]:
        seq, event = outcome
        if isinstance(event, RegulatorDecided) and event.decision.get("kind") != "continue":
            return seq, structs.replace(event, decision=self.words.decision(event.decision))
        return outcome

    def of_decision(self, seq: int) -> int | None:
        """Return the place in `calls` of the call that a decision belongs to, None where there is none."""
        return self._of_decision.get(seq)

    def _call(self, event: ModelCalled, seq: int, number: int) -> int:
        where = event.where
        key, turn = (where.thread_id, where.execution_id), (where.thread_id, where.turn)
        self._in_turn[turn] = self._in_turn.get(turn, 0) + 1
        at = len(self.calls)
        context = _context(where)
        compacted = self._compacted.pop(context, [])
        if compacted and (last := self._last.get(context)) is not None:
            self.calls[last].after = [each for each in self.calls[last].after if each not in compacted]
        self._last[context] = at
        before = sorted([*compacted, *self._before.pop(key, [])], key=lambda each: each[0])
        for decided, _ in before:
            self._of_decision[decided] = at
        self.calls.append(CallRecord(number, seq, self._in_turn[turn], event, self._views.pop(key, None), before))
        self._newest[key] = at
        return at

    def _compaction(self, event: ContextCompacted, seq: int) -> int | None:
        """Keep a compaction for the next call of its context; until there is one, it stands behind the last call."""
        context = _context(event.where)
        self._compacted.setdefault(context, []).append((seq, event))
        at = self._last.get(context)
        if at is not None:
            self.calls[at].after.append((seq, event))
        return at

    def _outcome(self, event: Outcome, seq: int) -> int | None:
        key = event.where.thread_id, event.where.execution_id
        at = self._newest.get(key)
        # Once the next request is made, what is decided is about that one.
        if at is None or key in self._views:
            self._before.setdefault(key, []).append((seq, event))
            return None
        self.calls[at].after.append((seq, event))
        self._of_decision[seq] = at
        return at


def _context(where: Where) -> tuple[str, str]:
    """Return the context of an execution: all turns of a thread have one, a child has its own."""
    return where.thread_id, where.execution_id if where.depth else ""
