"""Two runs turn by turn, compared as far as a reader looks: the turns that belong together, and the differences in a pair."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from noetic_nb.events import (
    RunEvent,
    TurnCompleted,
    TurnStarted,
    ViewAssembled,
    Where,
)
from noetic_nb.lab.replaying.comparison import turn_pairs, turn_rows
from noetic_nb.runs.requests.recorded_requests import RequestIndex
from noetic_nb.runs.requests.sent_request import RecordedRequest
from noetic_nb.runs.turns import TurnBook, TurnSummary

__all__ = ["ComparedTurns", "Pair", "Row", "Side", "TurnPart"]

Row: TypeAlias = tuple[str, Any, Any]
"""What is compared, and both sides."""

# Turns and items of requests that are looked at in one go, which takes about a tenth of a second.
GO_TURNS: Final = 100
GO_ITEMS: Final = 20_000


@dataclass(slots=True, eq=False)
class TurnPart:
    """One turn of one run: its events, read when someone looks."""

    where: Where
    query: str = ""
    begun: bool = False
    events: list[RunEvent] = field(default_factory=list)
    last: int = -1
    """The number of its last event in the run."""

    def summary(self) -> TurnSummary:
        """Return the turn in short."""
        return TurnBook().read(self.events)[0]


Pair: TypeAlias = tuple[TurnPart | None, TurnPart | None]


class Side:
    """The turns of one run so far, and their totals."""

    def __init__(self) -> None:
        self.turns: list[TurnPart] = []
        self.totals: dict[str, float | None] = dict.fromkeys(TOTALS, 0)
        self._by: dict[tuple[str, int], TurnPart] = {}
        self._index = RequestIndex()
        # Requests are put together when a pair is looked at, of what they are made of: opening a long run is quick.
        self._unread: deque[tuple[RunEvent, int, int | None]] = deque()
        self._requests: dict[int, RecordedRequest] = {}

    def take(self, event: RunEvent, seq: int, call: int | None, *, shows: bool) -> bool:
        """Read one event; returns whether a turn began or ended with it."""
        kind = type(event)
        if kind in RequestIndex.reads:
            self._unread.append((event, seq, call))
        where = event.where
        if not shows or where.turn < 1:
            return False
        key = where.thread_id, where.turn
        part = self._by.get(key)
        # A second start under one number is a turn of its own, as in `Run.turns`.
        if part is None or (kind is TurnStarted and part.begun):
            part = self._by[key] = TurnPart(where)
            self.turns.append(part)
            self._add("turns", 1)
        part.events.append(event)
        part.last = seq
        if isinstance(event, TurnStarted):
            part.where, part.query, part.begun = where, event.query, True
            return True
        if isinstance(event, TurnCompleted):
            for name, number in zip(TOTALS[1:], _numbers(event), strict=True):
                self._add(name, number)
            return True
        return False

    def requests_of(self, part: TurnPart | None) -> dict[int, RecordedRequest]:
        """Return the requests up to those of a turn, by the ``id`` of their view."""
        last = -1 if part is None else part.last
        while self._unread and self._unread[0][1] <= last:
            event, seq, call = self._unread.popleft()
            at = self._index.take(event, seq=seq, call=call)
            if at is not None and isinstance(event, ViewAssembled):
                self._requests[id(event)] = self._index.requests[at]
        return self._requests

    def _add(self, name: str, number: float | None) -> None:
        before = self.totals[name]
        # Where one turn is not known, neither is the sum.
        self.totals[name] = None if before is None or number is None else before + number


TOTALS: Final = ("turns", "turns that failed", "model calls", "tool calls", "tokens in", "tokens out", "cost")


def _numbers(event: TurnCompleted) -> tuple[float | None, ...]:
    failed = event.outcome != "success"
    return failed, event.model_calls, event.tool_calls, event.input_tokens, event.output_tokens, event.cost


class ComparedTurns:
    """The pairs of two sides, compared one by one.

    Examples
    --------
    >>> sides = Side(), Side()
    >>> for side, query in zip(sides, ("Hi", "Hello"), strict=True):
    ...     _ = side.take(TurnStarted(Where("t1", "e1", 1), 0.0, "u1", 0, 1, query), 0, None, shows=True)
    >>> turns = ComparedTurns(*sides)
    >>> turns.rows(0)[0]
    ('prompt', 'Hi', 'Hello')
    """

    def __init__(self, a: Side, b: Side) -> None:
        self.sides = a, b
        self._pairs: list[Pair] | None = None
        self._known: dict[tuple[int, int], tuple[int, int, list[Row]]] = {}

    def grown(self) -> None:
        """Take notice that a turn began or ended."""
        self._pairs = None

    @property
    def pairs(self) -> list[Pair]:
        """The pairs, in their order."""
        if self._pairs is None:
            self._pairs = list(turn_pairs(*[side.turns for side in self.sides]))
        return self._pairs

    def rows(self, at: int) -> list[Row]:
        """Return everything that is compared of a pair."""
        pair = self.pairs[at]
        sizes = [0 if part is None else len(part.events) for part in pair]
        key = id(pair[0]), id(pair[1])
        known = self._known.get(key)
        if known is None or known[:2] != (sizes[0], sizes[1]):
            one, other = [None if part is None else part.summary() for part in pair]
            requests = self.sides[0].requests_of(pair[0]), self.sides[1].requests_of(pair[1])
            rows = list(turn_rows((one, other), requests))
            known = self._known[key] = (sizes[0], sizes[1], rows)
        return known[2]

    def differing(self, at: int) -> list[Row]:
        """Return the differences in a pair."""
        return [row for row in self.rows(at) if row[1] != row[2]]

    def stop_after(self, start: int) -> int:
        """Return how far a look that begins at a pair goes in one go."""
        items = 0
        for at in range(start, min(start + GO_TURNS, len(self.pairs))):
            events = [event for part in self.pairs[at] if part is not None for event in part.events]
            items += sum([event.history_items for event in events if isinstance(event, ViewAssembled)])
            if items > GO_ITEMS:
                return at + 1
        return min(start + GO_TURNS, len(self.pairs))

    def place_of(self, thread_id: str | None, turn: int) -> int | None:
        """Return the place of the pair that has a turn of the first run."""
        for at, (one, _) in enumerate(self.pairs):
            if one is not None and one.where.turn == turn and thread_id in (None, one.where.thread_id):
                return at
        return None
