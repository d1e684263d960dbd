"""The numbers of the events of a run that has dropped turns: each event keeps the one it had when it was added.

What follows a run names decisions and calls by number. Places change when turns are dropped, numbers do not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import TypeAlias

from noetic_nb.events import ModelCalled, RunEvent

Numbers: TypeAlias = tuple[Sequence[int], Sequence[int]]
"""Of some events: their numbers, and how many calls came before each."""


class Numbering:
    """For each event of a run, in order: its number, and how many of the agent's model calls were added before it."""

    def __init__(self, events: Iterable[RunEvent] = ()) -> None:
        self.seqs: list[int] = []
        self.calls: list[int] = []
        self._next = self._calls = 0
        for event in events:
            self.add(event)

    def add(self, event: RunEvent) -> None:
        """Give the next event its number."""
        self.seqs.append(self._next)
        self.calls.append(self._calls)
        self._next += 1
        self._calls += _is_of_agent(event)

    def keep(self, stays: Sequence[bool]) -> None:
        """Forget those that do not stay; new lists, as with the events."""
        self.seqs = [*compress(self.seqs, stays)]
        self.calls = [*compress(self.calls, stays)]

    def place_of(self, seq: int) -> int | None:
        """Return the place of an event by its number, None where it was dropped or has not been added."""
        place = bisect_left(self.seqs, seq)
        return place if place < len(self.seqs) and self.seqs[place] == seq else None


def numbered(run: object) -> tuple[list[RunEvent], Numbers | None]:
    """Return the events of a run and their sequence numbers; None for numbers that are indices."""
    of_run = getattr(run, "_numbered", None)
    return (list(run.events), None) if of_run is None else of_run()  # type: ignore[attr-defined]  # of whatever holds a run


def place_of(run: object, seq: int, event: RunEvent) -> int | None:
    """Return the index of an event in the run, by its sequence number; None where the run has let it go."""
    events = run.events  # type: ignore[attr-defined]  # of whatever holds a run
    numbers: Numbering | None = getattr(run, "_numbers", None)
    place = seq if numbers is None else numbers.place_of(seq)
    return place if place is not None and 0 <= place < len(events) and events[place] is event else None


def number_at(run: object, place: int) -> int:
    """Return the sequence number of the event at an index of the run."""
    numbers: Numbering | None = getattr(run, "_numbers", None)
    return place if numbers is None else numbers.seqs[place]


def call_at(run: object, place: int) -> int | None:
    """Return the number of the agent's model call that an event is about: the last of its execution up to it."""
    events = run.events  # type: ignore[attr-defined]  # of whatever holds a run
    numbers: Numbering | None = getattr(run, "_numbers", None)
    about = events[place].where
    for at in range(place, -1, -1):
        where = events[at].where
        same = (where.execution_id, where.thread_id) == (about.execution_id, about.thread_id)
        if same and _is_of_agent(events[at]):
            return sum(map(_is_of_agent, events[:at])) if numbers is None else numbers.calls[at]
    return None


def _is_of_agent(event: RunEvent) -> bool:
    return isinstance(event, ModelCalled) and event.purpose == "agent"
