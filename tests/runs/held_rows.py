"""What a run holds, event by event: rows as they came where nobody has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noetic_nb.late_events import ROW_LENGTHS
from noetic_nb.runs import Run

__all__ = ["held", "whole"]


def whole(parts: Sequence[Any], place: int) -> list[Any]:
    """Return the events and rows from a place on, of their parts."""
    found: list[Any] = []
    while place < len(parts):
        head = parts[place]
        after = place + (ROW_LENGTHS[head] if type(head) is str else 1)
        found.append(tuple(parts[place:after]) if type(head) is str else head)
        place = after
    return found


def held(run: Run) -> list[Any]:
    """Return what a run has."""
    return [each for parts, place in run.parts(0) for each in whole(parts, place)]
