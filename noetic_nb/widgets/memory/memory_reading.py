"""Read the states of layers out of a run: counts for the page, everything else when the page asks for it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RunEvent
from noetic_nb.runs.plain_text import plain
from noetic_nb.widgets.base.feed import Place, Reading
from noetic_nb.widgets.base.moment import EVERYTHING, Moment
from noetic_nb.widgets.memory.memory_picture import EMPTY, MemoryPicture
from noetic_nb.widgets.memory.state_index import StateIndex, Track, Write
from noetic_nb.widgets.memory.state_texts import (
    FIRST_OF_CHILD,
    MOST_ROWS,
    UNKNOWN_BEFORE,
    by_words,
    change_rows,
    difference,
    flow_row,
    is_secret_change,
    state_text,
    write_row,
)

__all__ = ["MemoryReading"]

# Rows of a list at a time.
PAGE: Final = 20

Begin = Callable[[dict[str, Any]], None]
"""Begins to edit, to save or to rewind, as a page asked."""


class MemoryReading(Reading):
    """The states of layers in a run: how many there are as a snapshot, everything else by `answer`.

    Parameters
    ----------
    moment : Moment, optional
        Which part of the run is shown.
    layer_id : str, optional
        The layer that is shown first; the first that has a state by default.
    begin_edit : callable, optional
        What to do when someone edits; None where nothing can be edited.
    """

    reads = StateIndex.reads
    nothing = "No layer is named in {part}."

    def __init__(
        self, moment: Moment = EVERYTHING, *, layer_id: str | None = None, begin_edit: Begin | None = None
    ) -> None:
        self.moment = moment
        self.index = StateIndex(moment.shows)
        self.layer_id = layer_id
        self.position = -1
        self._begin_edit = begin_edit
        self._threads: dict[str, int] = {}
        self._is_followed = False
        self.snapshot = {
            "page": PAGE,
            "empty": EMPTY,
            "threads": [],
            "layers": [],
            "first": -1,
            "editable": begin_edit is not None,
        }

    @property
    def has_any(self) -> bool:
        """Whether there is something to show."""
        return bool(self.index.tracks)

    def take(self, event: RunEvent, place: Place) -> dict[str, Any] | None:
        """Read one event; returns the message about the layers that are new or have changed."""
        known = len(self.snapshot["layers"])
        track = self.index.take(event)
        if track is None:
            return None
        if not self._is_followed:
            self.snapshot["first"] = self._first()
            return None  # `begin` makes each row once
        rows = {
            at: self._row(self.index.tracks[at]) for at in sorted({track.at, *range(known, len(self.index.tracks))})
        }
        layers = self.snapshot["layers"]
        for at, row in rows.items():
            if at < len(layers):
                layers[at] = row
            else:
                layers.append(row)
        first = self._first()
        self.snapshot["first"] = first
        return {
            "type": "layers",
            "at": known,
            "rows": [[at, row] for at, row in rows.items()],
            "threads": self.snapshot["threads"][-1:],
            "count": len(self.snapshot["threads"]),
            "first": first,
        }

    def begin(self) -> None:
        """Make the rows of all layers: from now on pages follow."""
        self._is_followed = True
        self.snapshot["layers"] = list(map(self._row, self.index.tracks))

    def _row(self, track: Track) -> list[Any]:
        thread = self._threads.get(track.thread_id)
        if thread is None:
            thread = self._threads[track.thread_id] = len(self._threads)
            shown = plain(track.thread_id)
            self.snapshot["threads"].append([shown, track.thread_id if shown == track.thread_id else None])
        last = track.changes[-1].event.where.turn if track.changes else None
        return [plain(track.layer_id), thread, len(track.writes), len(track.changes), last, len(track.flows)]

    def _first(self) -> int:
        """Return the place of the track that is shown where none was chosen: it stays the same."""
        at: int = self.snapshot["first"]
        if at >= 0 and self._is_wanted(self.index.tracks[at]) and self.index.tracks[at].writes:
            return at
        wanted = [track for track in self.index.tracks if self._is_wanted(track)] or self.index.tracks
        return next((track.at for track in wanted if track.writes), wanted[0].at)

    def _is_wanted(self, track: Track) -> bool:
        return self.layer_id is None or track.layer_id == self.layer_id

    @property
    def shown(self) -> Track | None:
        """The track that is shown, None where there is none."""
        at = self.position if 0 <= self.position < len(self.index.tracks) else self.snapshot["first"]
        return self.index.tracks[at] if at >= 0 else None

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer ``writes``, ``change``, ``flows``, and the requests that edit: ``edit``, ``save``, ``rewind``.

        Raises `NoeticConfigError` ``UNKNOWN_REQUEST``, or ``NOT_EDITABLE`` where no harness is known.
        """
        match request:
            case {"what": "writes", "layer": int(at)} if self._has(at):
                return self._page(self.index.tracks[at], request)
            case {"what": "change", "layer": int(at), "at": int(place)} if self._has(at):
                track = self.index.tracks[at]
                found = next((write for write in _near(track.writes, place) if write.at == place), None)
                if found is not None:
                    return self._change(track, found, request.get("against"))
            case {"what": "flows", "layer": int(at)} if self._has(at):
                return _newest(self.index.tracks[at].flows, request.get("start"), flow_row)
            case {"what": "edit" | "save" | "rewind", "layer": int(at)} if self._has(at):
                if self._begin_edit is None:
                    raise NoeticConfigError(
                        "NOT_EDITABLE",
                        "A recording cannot be edited.",
                        given=plain(self.index.tracks[at].layer_id),
                        hint="Pass the harness: MemoryView(harness), or MemoryView(run, harness=harness).",
                    )
                track = self.index.tracks[at]
                self._begin_edit({**request, "layer_id": track.layer_id, "thread_id": track.thread_id})
                return True
        return super().answer(request)

    def _has(self, at: int) -> bool:
        return 0 <= at < len(self.index.tracks)

    def _page(self, track: Track, request: dict[str, Any]) -> dict[str, Any]:
        rows: Sequence[Write] = track.writes if request.get("all") is True else track.changes
        turn, start, picked = request.get("turn"), request.get("start"), None
        if type(turn) is int:
            # The state as that turn left it: the last change up to its end.
            upto = bisect_right(rows, turn, key=lambda write: write.event.where.turn)
            if upto:
                picked, start = rows[upto - 1].at, (len(rows) - upto) // PAGE * PAGE
        return {**_newest(rows, start, write_row), "picked": picked}

    def _change(self, track: Track, write: Write, against: Any) -> dict[str, Any]:
        event = write.event
        before, name, missing = base_of(track, write, against)
        detail: dict[str, Any] = {
            "at": write.at,
            "title": f"After turn {event.where.turn}, {by_words(event.hook)}"
            + (f", in child {plain(event.where.execution_id, 40)}" if write.is_child else ""),
            "against": name,
            "turn": event.where.turn,
            "rows": [],
            "more": 0,
            "note": "",
        }
        if before is None:
            detail["note"] = missing
        else:
            changes, is_cut = difference(before.event.state, event.state)
            detail["rows"] = change_rows(changes)
            detail["more"] = max(0, len(changes) - MOST_ROWS)
            if is_cut:
                detail["note"] = "The state is large: its beginning is compared."
            elif not changes:
                is_secret = is_secret_change(before.event.state, event.state)
                detail["note"] = "What differs is a secret, which is not shown." if is_secret else "Nothing differs."
        detail["state"], detail["cut"] = state_text(event.state)
        return detail

    def selected(self, fields: dict[str, Any]) -> dict[str, Any] | None:
        """Handle a selection; the page asks for the data that belongs to it."""
        return None

    def to_html(self) -> str:
        """Return the layers, and the newest changes of the one that is shown, as HTML without scripts."""
        return MemoryPicture(self.index, self.shown, self.snapshot["empty"]).to_html()

    def to_text(self) -> str:
        """Return the layers, and the newest changes of the one that is shown, as plain text."""
        return MemoryPicture(self.index, self.shown, self.snapshot["empty"]).to_text()


def base_of(track: Track, write: Write, against: Any) -> tuple[Write | None, str, str]:
    """Return the state that a write is compared with, its name, and the text shown where there is none.

    `against` is ``"turn"`` for the end of the turn before, the number of a turn for the end of that, and the write before else.
    """
    if against == "turn" or type(against) is int:
        turn = write.event.where.turn - 1 if against == "turn" else against
        return track.at_end_of(turn), f"the end of turn {turn}", "No state is recorded up to then."
    last = write.last
    if last is None:
        return None, "the write before", FIRST_OF_CHILD if write.is_child else UNKNOWN_BEFORE
    return last, f"the write before, {by_words(last.event.hook)} in turn {last.event.where.turn}", ""


def _near(writes: Sequence[Write], place: int) -> Sequence[Write]:
    """Return the writes that may have a place: they are in order, and places may be missing before the moment."""
    at = bisect_right(writes, place, key=lambda write: write.at)
    return writes[max(0, at - 1) : at]


def _newest(rows: Sequence[Any], start: Any, row: Callable[[Any], Any]) -> dict[str, Any]:
    """Return one page of rows, counted from the newest."""
    first = start if type(start) is int and start > 0 else 0
    first = max(0, min(first, len(rows) - 1))
    stop = len(rows) - first
    return {"start": first, "count": len(rows), "rows": [row(each) for each in rows[max(0, stop - PAGE) : stop][::-1]]}
