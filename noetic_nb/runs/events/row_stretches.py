"""Rows that follow each other as others did before: a turn of an agent has the hooks and steps of the one before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final

from noetic_nb.late_events import ROW_LENGTHS, Place

__all__ = ["RowStretch", "RowStretches"]

# Fewer are as quickly looked at one by one; and more kinds of stretches than these are those of no single agent.
_FEWEST: Final = 4
_MOST_STRETCHES: Final = 8


class RowStretch:
    """Some kinds of rows in their order, to be found again in a list of parts.

    Parameters
    ----------
    kinds : sequence of str
        At least two.
    sizes : mapping of str to int
        Bytes of a row by its kind, of the kinds that are of a fixed size.
    alike : set of str
        Kinds of rows that are of about the same size whenever this stretch comes.

    Attributes
    ----------
    length, count, size : int
        Parts and rows that it has, and bytes of those of a fixed size.
    alike, others : list of tuple
        Where each row of those kinds begins and ends, and each row of a kind that is neither.
    like, to_come : int
        For who measures it: what the rows of `alike` took, and how often that stands for what comes.

    Examples
    --------
    >>> stretch = RowStretch(["step_started", "items_appended"], {"step_started": 300}, set())
    >>> stretch.length, stretch.size, stretch.others
    (12, 300, [(6, 12)])
    >>> place = ("t1", "e1", 1, 0)
    >>> parts = ["step_started", place, *"abcd", "items_appended", place, *"abcd"]
    >>> stretch.stands_at([None, *parts], 1, place), stretch.stands_at(parts, 0, ("t2", "e1", 1, 0))
    (True, False)
    """

    def __init__(self, kinds: Sequence[str], sizes: Mapping[str, int], alike: Set[str]) -> None:
        ends = [*accumulate([ROW_LENGTHS[kind] for kind in kinds])]
        starts = [0, *ends[:-1]]
        self.length, self.count = ends[-1], len(kinds)
        self.size = sum([sizes.get(kind, 0) for kind in kinds])
        rows = [row for row in zip(kinds, starts, ends, strict=True) if row[0] not in sizes]
        self.alike = [(start, end) for kind, start, end in rows if kind in alike]
        self.others = [(start, end) for kind, start, end in rows if kind not in alike]
        self.like = self.to_come = 0
        self._kinds, self._last = tuple(kinds), starts[-1]
        self._kinds_of = itemgetter(*starts)
        self._places_of = itemgetter(*[start + 1 for start in starts])

    def stands_at(self, parts: Sequence[Any], at: int, place: Place) -> bool:
        """Tell whether such rows of one turn stand from where a row begins on, and happened at this place."""
        if at + self.length > len(parts) or parts[at + self._last] != self._kinds[-1]:
            return False
        found = parts[at : at + self.length]
        # Where the kinds of all rows before are the same, the next one begins at the same place.
        if self._kinds_of(found) != self._kinds:
            return False
        places: tuple[Place, ...] = self._places_of(found)
        return places.count(place) == self.count


class RowStretches:
    """The last stretches that came more than once.

    Examples
    --------
    >>> stretches, place = RowStretches({}, set()), ("t1", "e1", 1, 0)
    >>> parts = ["step_started", place, *"abcd"] * 5
    >>> stretches.learn(["step_started"] * 5)
    >>> stretches.find(parts, 0, place) is None
    True
    >>> stretches.learn(["step_started"] * 5)
    >>> stretches.find(parts, 0, place).count
    5
    """

    __slots__ = ("_known", "_make", "_once")

    def __init__(self, sizes: Mapping[str, int], alike: Set[str]) -> None:
        self._make = partial(RowStretch, sizes=sizes, alike=alike)
        self._known: list[RowStretch] = []
        self._once: list[tuple[str, ...]] = []

    def find(self, parts: Sequence[Any], at: int, place: Place) -> RowStretch | None:
        """Return one that stands where a row begins, and happened at this place."""
        for stretch in self._known:
            if stretch.stands_at(parts, at, place):
                return stretch
        return None

    def learn(self, kinds: Sequence[str]) -> None:
        """Take note of rows that stood between two events which are none, and were not found."""
        if len(kinds) < _FEWEST:
            return
        stretch = tuple(kinds)
        if stretch in self._once:
            self._once.remove(stretch)
            self._known = [self._make(stretch), *self._known[: _MOST_STRETCHES - 1]]
        else:
            self._once = [stretch, *self._once[: _MOST_STRETCHES - 1]]
