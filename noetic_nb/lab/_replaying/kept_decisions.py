"""The parts that a replay leaves as they were recorded, each with its reason."""

from __future__ import annotations

from typing import Any

from noetic_nb.events import RequestPrepared
from noetic_nb.runs import Run

__all__ = ["Kept", "note_counts"]


class Kept:
    """Counts by part and reason, with the first places in the run.

    Examples
    --------
    >>> kept = Kept()
    >>> kept.add("rules", "judges without a model: polite", 7)
    >>> kept.rows()
    [{'what': 'rules', 'why': 'judges without a model: polite', 'count': 1, 'first': 7}]
    """

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], list[int | None]] = {}

    def add(self, what: str, why: str, seq: int | None = None) -> None:
        """Take note of something that stays."""
        self._places.setdefault((what, why), []).append(seq)

    def places(self, *whats: str) -> list[int | None]:
        """Return the places of what stays of some parts; None for what stays everywhere."""
        return [place for (what, _), places in self._places.items() if what in whats for place in places]

    def copy(self) -> Kept:
        """Return another one that begins with these."""
        other = Kept()
        other._places = {key: list(places) for key, places in self._places.items()}
        return other

    def rows(self) -> list[dict[str, Any]]:
        """Return one row for each reason, as JSON data."""
        return [
            {"what": what, "why": why, "count": len(places), "first": places[0]}
            for (what, why), places in self._places.items()
        ]


def note_counts(run: Run, again: Run, kept: Kept) -> None:
    """Take note of requests that were counted by something else than those of a run that was really run again."""
    before, after = ({event.tokenizer for event in each.select(RequestPrepared)} for each in (run, again))
    for name in sorted(before - after) if after else ():
        kept.add("tokens", f"counted with {name!r} in the recorded run, and not here: pass tokenizer=")
