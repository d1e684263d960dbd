"""The kinds of a run's events, one byte each: finds the events of a few kinds without checking all others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from itertools import compress
from typing import Any, Final

from noetic_nb.events import RunEvent
from noetic_nb.runs._events.event_json import EVENT_TYPES


class _Numbers(dict[type[Any], int]):
    def __missing__(self, cls: type[Any]) -> int:
        return next((self[base] for base in cls.__mro__[1:-1] if base in self), len(EVENT_TYPES))


_NUMBERS: Final = _Numbers({cls: number for number, cls in enumerate(EVENT_TYPES)})


def kinds_of(events: Iterable[RunEvent]) -> bytes:
    return bytes(map(_NUMBERS.__getitem__, map(type, events)))


@lru_cache(maxsize=256)  # the number of different views and tables
def _is_wanted(wanted: frozenset[type[Any]]) -> bytes:
    numbers = {_NUMBERS[cls] for cls in wanted}
    return bytes([number in numbers for number in range(256)])


def places_of(kinds: bytes | bytearray, wanted: Collection[type[Any]]) -> Iterator[int]:
    return compress(range(len(kinds)), kinds.translate(_is_wanted(frozenset(wanted))))
