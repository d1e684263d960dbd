"""A history projected by layers, as stretches of the log and new items, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from noetic_nb.events import LogStretch
from noetic_nb.items import Item
from noetic_nb.items._log import ItemView


def log_stretches(items: Sequence[Item], log: ItemView) -> tuple[LogStretch, ...]:
    """Return how items are made of a log: which of them are its own, by identity, and which are not."""
    parts: list[LogStretch] = []
    start = stop = -1
    written: list[Item] = []

    def end() -> None:
        nonlocal start, stop
        if start >= 0:
            parts.append(LogStretch(start, stop))
        elif written:
            parts.append(LogStretch(0, 0, tuple(written)))
            written.clear()
        start = stop = -1

    for item in items:
        places = log.places_of((item,))
        if not places:
            if start >= 0:
                end()
            written.append(item)
            continue
        # The same object may be logged twice: the place that goes on with the stretch is meant.
        place = stop if stop in places else places[0]
        if place != stop or start < 0:
            end()
            start = place
        stop = place + 1
    end()
    return tuple(parts)


def of_stretches(parts: Iterable[LogStretch], log: Sequence[Item]) -> tuple[Item, ...]:
    """Return the items that stretches stand for."""
    return tuple([item for part in parts for item in (part.written or log[part.start : part.stop])])
