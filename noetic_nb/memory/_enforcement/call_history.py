"""The tool calls of an execution tree, in the order in which they were decided on.

A call has its place from the moment its decision begins, before the first rule awaits anything: of two calls that are decided
on at the same time, the later one sees the earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final

from noetic_nb.memory.params import PastCall

PENDING: Final = "pending"
"""The status of a call that is being decided on, or runs."""

_number: Final = attrgetter("number")


class Place:
    """One call and where it stands; its number grows with every call of the tree."""

    __slots__ = ("behind", "call", "number", "resumes", "started")

    def __init__(self, number: int, call: PastCall, *, started: bool = False, behind: tuple[int, ...] = ()) -> None:
        self.number = number
        self.call = call
        self.started = started
        """Whether it was let through."""
        self.behind = behind
        """The numbers of the calls before it that had not ended when its decision began."""
        self.resumes: Place | None = None
        """The call of a process that has ended which this one makes once more: for a rule it is the same call."""


class CallsSoFar(tuple[PastCall, ...]):
    """The calls before one, as they stood at one moment; `now` returns them as they stand."""

    _history: CallHistory
    _own: Place | None
    _version: int

    def now(self) -> CallsSoFar:
        """Return the same calls with later outcomes, and those that were let through meanwhile."""
        return self if self._version == self._history.version else self._history.so_far(self._own)


class CallHistory:
    """The calls of one execution tree."""

    __slots__ = ("_open", "_places", "version")

    def __init__(self) -> None:
        self._places: list[Place] = []
        # A dict, as it keeps the order in which they came.
        self._open: dict[int, Place] = {}
        self.version = 0
        """Grows with every change."""

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places)

    def reserve(self, call: PastCall) -> Place:
        """Give a call the next place."""
        number = self._places[-1].number + 1 if self._places else 0
        place = Place(number, call, behind=tuple(self._open))
        self._places.append(place)
        self._open[number] = place
        self.version += 1
        return place

    def start(self, place: Place) -> None:
        """Note that a call was let through; the one that it makes once more stays as this one."""
        place.started = True
        if place.resumes is not None:
            self.give_back(place.resumes)
            place.resumes = None
        self.version += 1

    def settle(self, place: Place, status: str, output: str | None) -> None:
        """Note how a call ended, be it that it was refused."""
        place.call = place.call._replace(status=status, output=output)
        self._open.pop(place.number, None)
        self.version += 1

    def give_back(self, place: Place) -> None:
        """Take a call out that was never decided on to the end, nor made."""
        self._places.remove(place)
        self._open.pop(place.number, None)
        self.version += 1

    def so_far(self, own: Place | None = None) -> CallsSoFar:
        """Return the calls before one, and later ones that were let through while it is still being decided on."""
        places = self._places
        if own is not None:
            number, hidden = own.number, (own, own.resumes)
            places = [one for one in places if (one.number < number or one.started) and one not in hidden]
        found = CallsSoFar([one.call for one in places])
        found._history, found._own, found._version = self, own, self.version
        return found

    def restore(self, calls: Iterable[tuple[int | None, PastCall]]) -> list[Place]:
        """Put calls of a process that has ended back where they were; a number that is there already is the same call."""
        known = {place.number: place for place in self._places}
        found = []
        for number, call in calls:
            if number is None:
                number = max(known, default=-1) + 1
            if number not in known:
                known[number] = Place(number, call, started=True)
            found.append(known[number])
        self._places = [known[number] for number in sorted(known)]
        self.version += 1
        return found
