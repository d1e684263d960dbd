"""Rows that follow each other as others did before: a turn of an agent has the hooks and steps of the one before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any, Final

from noetic_nb.late_events import ROW_LENGTHS

__all__ = ["RowStretch", "stretches_between"]

# Fewer are as quickly looked at one by one; and more kinds of stretches than these are those of no single agent.
_FEWEST: Final = 4
_MOST_STRETCHES: Final = 4


class RowStretch:
    """Some kinds of rows in their order, to be found again in a list of parts.

    Parameters
    ----------
    kinds : sequence of str
        At least two.
    sizes : mapping of str to int
        Bytes of a row by its kind; rows of other kinds are in `unknown`.

    Attributes
    ----------
    length, count, size : int
        Parts and rows that it has, and bytes of those whose size is known.
    unknown : list of tuple
        Where each of the others begins and ends.

    Examples
    --------
    >>> stretch = RowStretch(["step_started", "items_appended"], {"step_started": 300})
    >>> stretch.length, stretch.size, stretch.unknown
    (12, 300, [(6, 12)])
    >>> parts = ["step_started", *"abcde", "items_appended", *"abcde"]
    >>> stretch.stands_at([None, *parts], 1), stretch.stands_at(parts, 1)
    (True, False)
    """

    __slots__ = ("_kinds", "_places", "count", "length", "size", "unknown")

    def __init__(self, kinds: Sequence[str], sizes: Mapping[str, int]) -> None:
        ends = [*accumulate([ROW_LENGTHS[kind] for kind in kinds])]
        places = [0, *ends[:-1]]
        self.length, self.count = ends[-1], len(kinds)
        self.size = sum([sizes.get(kind, 0) for kind in kinds])
        rows = zip(kinds, places, ends, strict=True)
        self.unknown = [(place, end) for kind, place, end in rows if kind not in sizes]
        self._kinds, self._places = tuple(kinds), places

    def stands_at(self, parts: Sequence[Any], at: int) -> bool:
        """Tell whether such rows stand from a place on, at which a row or another event begins."""
        if at + self.length > len(parts) or parts[at + self._places[-1]] != self._kinds[-1]:
            return False
        # Where the kinds of all rows before are the same, the next one begins at the same place.
        heads: tuple[Any, ...] = itemgetter(*[at + place for place in self._places])(parts)
        return heads == self._kinds


def stretches_between(parts: Sequence[Any], marks: Sequence[int], sizes: Mapping[str, int]) -> list[RowStretch]:
    """Return the different stretches of rows that stand between events which are no rows, whose places are given.

    Examples
    --------
    >>> parts = [None, *(["step_started", *"abcde"] * 5), None, "step_started", *"abcde", None]
    >>> [stretch.count for stretch in stretches_between(parts, [0, 31, 38], {})]
    [5]
    """
    found: dict[tuple[str, ...], None] = {}
    for mark, end in pairwise(marks):
        kinds, at = [], mark + 1
        while at < end:
            kinds.append(parts[at])
            at += ROW_LENGTHS[parts[at]]
        if len(kinds) >= _FEWEST:
            found[tuple(kinds)] = None
    return [RowStretch(kinds, sizes) for kinds in [*found][-_MOST_STRETCHES:]]
