"""The threads that a workbench offers to choose from: a page says which by its place, since it cannot be sent every name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from noetic_nb.events import RunEvent
from noetic_nb.runs.plain_text import plain

__all__ = ["NAMES_SENT", "ThreadNames"]

# A longer list is no help to who chooses; any thread can be set by its name in a cell.
NAMES_SENT: Final = 200


class ThreadNames:
    """The names of the threads of a run, in the order in which they were first seen.

    Examples
    --------
    >>> from noetic_nb.events import QualityGiven, Where
    >>> names = ThreadNames()
    >>> [names.take(QualityGiven(Where(thread, "e1", 1), 0.0, 0.5, "user")) for thread in ("ann", "bob", "ann")]
    [0, 1, None]
    >>> names.offered("ann")
    [[0, 'ann'], [1, 'bob']]
    """

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self._names)

    def take(self, event: RunEvent) -> int | None:
        """Read one event; returns the place of its thread where that is new."""
        name = event.where.thread_id
        if not name or name in self._at:
            return None
        self._at[name] = at = len(self._names)
        self._names.append(name)
        return at

    def read(self, events: Iterable[RunEvent]) -> None:
        """Read many events."""
        known = self._at
        for event in events:
            if event.where.thread_id not in known:  # nearly none
                self.take(event)

    def name(self, at: int) -> str | None:
        """Return the name at a place; None, which means all threads, where there is none."""
        return self._names[at] if 0 <= at < len(self._names) else None

    def place(self, name: str | None) -> int | None:
        """Return the place of a name."""
        return None if name is None else self._at.get(name)

    def row(self, at: int) -> list[object]:
        """Return the row of a thread for a page: its place, and its name as text."""
        return [at, plain(self._names[at])]

    def offered(self, chosen: str | None) -> list[list[object]]:
        """Return the newest threads, and the chosen one, as pages offer them."""
        first = max(0, len(self._names) - NAMES_SENT)
        at = self.place(chosen)
        older = [] if at is None or at >= first else [self.row(at)]
        return older + [self.row(each) for each in range(first, len(self._names))]
