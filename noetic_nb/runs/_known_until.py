"""The horizon of a replayed run: the point up to which it is known to be true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from noetic_nb.events import RunEvent

_MOST = 3


class KnownUntil(NamedTuple):
    """The first point of a thread that is not known any more."""

    turn: int
    """Number of the turn in its thread."""
    seq: int
    """Place in the replayed run of the first event that would have been another; all before it in the thread is known."""


def known_until_of(meta: Mapping[str, Any]) -> dict[str, KnownUntil]:
    """Return the notes of a replay in the meta data of its run."""
    match meta.get("replay"):
        case {"known_until": Mapping() as found}:
            return {thread_id: KnownUntil(point["turn"], point["seq"]) for thread_id, point in found.items()}
    return {}


def known_events(events: Sequence[RunEvent], points: Mapping[str, KnownUntil]) -> Sequence[RunEvent]:
    """Return the events in front of the points of their threads."""
    if not points:
        return events
    first = {thread_id: point.seq for thread_id, point in points.items()}
    begin, end = min(first.values()), len(events)
    later = [event for seq, event in enumerate(events[begin:], begin) if seq < first.get(event.where.thread_id, end)]
    return [*events[:begin], *later]


def said_of(points: Mapping[str, KnownUntil]) -> str:
    """Return one sentence about how far a replay is known."""
    if not points:
        return "Known to its end."
    places = [f"turn {point.turn} of {thread_id!r} (event {point.seq})" for thread_id, point in points.items()]
    shown = ", ".join(places[:_MOST]) + (f" and {len(places) - _MOST} more" if len(places) > _MOST else "")
    return f"Known up to {shown}: there the agent goes another way, and later counts are those of the old way."
