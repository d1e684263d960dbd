"""What a run holds of events that nobody has read yet: the fields of their rows, one after the other, in one flat list.

A row of its own for each event is one more thing that the collector of reference cycles looks through, again and again, as
long as the run is there; and to skim rows, each would have to be fetched from memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from noetic_nb.events import RunEvent
from noetic_nb.late_events import ROW_LENGTHS, event_of

__all__ = ["LEAST_PARTS", "UnreadEvents"]

LEAST_PARTS: Final = min(ROW_LENGTHS.values())
"""So many parts has every row; nearly all events are rows."""


class UnreadEvents:
    """Events, and the parts of rows, in order.

    `parts` may be extended by a row from any thread at any time; all else is for who holds the lock of the run.

    Examples
    --------
    >>> unread = UnreadEvents()
    >>> unread.parts.extend(("step_started", ("t1", "e1", 1, 0), 5.0, "ask", "llm", "/ask#1"))
    >>> unread.count(), [event.kind for event in unread.take()], unread.count()
    (1, ['step_started'], 0)
    """

    __slots__ = ("_counted", "_first", "_kept", "_marked", "parts")

    def __init__(self) -> None:
        # Always the same list. A text in it that stands where an event could stand is the kind of a row.
        self.parts: list[Any] = []
        # What stands before was taken already.
        self._first = 0
        # How far events were counted, how far when that was noted, and how far when some were dropped: a place in the list, and
        # how many are before it.
        self._counted = self._marked = self._kept = (0, 0)

    def __bool__(self) -> bool:
        return len(self.parts) > self._first

    @property
    def counted(self) -> tuple[int, int]:
        """A place in the list, and how many events stand before it: where the newest one stood when they were counted."""
        return self._counted

    def add(self, event: RunEvent) -> int:
        """Add an event; returns how many stand before it."""
        parts = self.parts
        parts.append(event)
        place, count = self._counted
        # Rows of other threads may come meanwhile.
        while (head := parts[place]) is not event:
            place += ROW_LENGTHS[head] if type(head) is str else 1
            count += 1
        self._counted = place + 1, count + 1
        return count

    def count(self) -> int:
        """Return how many there are."""
        self._counted = self._from(self._counted, None)
        return self._counted[1]

    def note(self, place: int, count: int) -> None:
        """Take note of how many events stand before a place: what is asked for next is there or behind it."""
        self._counted = self._marked = place, count

    def place_of(self, number: int) -> int:
        """Return where an event stands in the list, by how many stand before it."""
        marks = (self._counted, self._marked, self._kept)
        known = max((each for each in marks if each[1] <= number), default=(self._first, 0))
        return self._from(known, number)[0]

    def _from(self, known: tuple[int, int], number: int | None) -> tuple[int, int]:
        """Return the place of an event and its number, from a known one on; None for the end, and how many there are."""
        parts, (place, count) = self.parts, known
        end = len(parts)
        while place < end and count != number:
            head = parts[place]
            place += ROW_LENGTHS[head] if type(head) is str else 1
            count += 1
        return place, count

    def take(self, most: int | None = None) -> list[RunEvent]:
        """Take the oldest events off, made, so many at most."""
        made: list[RunEvent] = []
        parts, place = self.parts, self._first
        end = len(parts)
        while place < end and len(made) != most:
            head = parts[place]
            if type(head) is str:
                after = place + ROW_LENGTHS[head]
                made.append(event_of(tuple(parts[place:after])))
                place = after
            else:
                made.append(head)
                place += 1
        # The list is moved up when that takes no longer than what was taken did.
        gone = place if 2 * place >= end else 0
        self._first = place - gone
        for name in ("_counted", "_marked", "_kept"):
            known, count = getattr(self, name)
            setattr(self, name, (known - gone, count - len(made)) if count >= len(made) else (self._first, 0))
        del parts[:gone]
        return made

    def keep(self, stays: Sequence[bool]) -> None:
        """Keep those of the oldest that stay; what has come since is kept."""
        parts, kept, place = self.parts, list[Any](), self._first
        end, count = self._marked if self._marked[1] == len(stays) else self._from((place, 0), len(stays))
        # Stretches that stay are kept in one go; behind the last one that goes, nothing has to be looked at.
        stretch = place
        for stay in stays[: bytes(stays).rfind(False) + 1]:
            head = parts[place]
            after = place + (ROW_LENGTHS[head] if type(head) is str else 1)
            if not stay:
                kept += parts[stretch:place]
                stretch = after
                count -= 1
            place = after
        parts[:stretch] = kept
        self._first = 0
        self._counted = self._marked = self._kept = end - stretch + len(kept), count
