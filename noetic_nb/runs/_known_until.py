"""How far a replayed run is known to be what would have happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from noetic_nb.events import RunEvent

__all__ = ["KnownUntil", "known_events", "known_until_of", "said_of"]

_MOST = 3


class KnownUntil(NamedTuple):
    """The first point of a thread that is not known any more."""

    turn: int
    """Number of the turn in its thread."""
    seq: int
    """Place in the replayed run of the first event that would have been another; all before it in the thread is known."""


def known_until_of(meta: Mapping[str, Any]) -> dict[str, KnownUntil]:
    """Return the notes of a replay in the meta data of its run.

    Examples
    --------
    >>> known_until_of({"replay": {"known_until": {"t1": {"turn": 2, "seq": 31}}}})
    {'t1': KnownUntil(turn=2, seq=31)}
    >>> known_until_of({"replay": None})
    {}
    """
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
    """Return one sentence about how far a replay is known.

    Examples
    --------
    >>> said_of({"t1": KnownUntil(2, 31)})
    "Known up to turn 2 of 't1' (event 31): there the agent goes another way, and later counts are those of the old way."
    >>> said_of({})
    'Known to its end.'
    """
    if not points:
        return "Known to its end."
    places = [f"turn {point.turn} of {thread_id!r} (event {point.seq})" for thread_id, point in points.items()]
    shown = ", ".join(places[:_MOST]) + (f" and {len(places) - _MOST} more" if len(places) > _MOST else "")
    return f"Known up to {shown}: there the agent goes another way, and later counts are those of the old way."
