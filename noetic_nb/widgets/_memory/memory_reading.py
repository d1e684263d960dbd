"""Reads the states of layers from a run: counts for the page, everything else on request."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.markup import escape, heading
from noetic_nb.plots._memory_scene import SERIES, TITLE, memory_scene
from noetic_nb.plots._scene.scene import Scene, series_data
from noetic_nb.plots._scene.svg import legend_html, to_html
from noetic_nb.runs._layer_states import Flow, StateIndex, Track, Write
from noetic_nb.runs._plain_text import plain, plain_line, sendable
from noetic_nb.widgets._memory.state_texts import (
    FIRST_OF_CHILD,
    KINDS,
    MOST_ROWS,
    UNKNOWN_BEFORE,
    by_words,
    change_rows,
    count_words,
    difference,
    flow_texts,
    is_secret_change,
    state_line,
    state_text,
    writer_words,
)
from noetic_nb.widgets.base._feed import Reading
from noetic_nb.widgets.base._selection import EVERYTHING, Moment
from noetic_nb.widgets.base._table import keyed, named_row, table
from noetic_nb.widgets.base._text_diff import parts_html, parts_text

EMPTY: Final = "No layer has kept anything yet. Layers belong to the agent: AgentConfig(memory=[...])."
NO_STATE: Final = "no state recorded"

# As much as a reader without a kernel scrolls through; `to_frame()` has everything.
LAYERS_SHOWN: Final = 40
CHANGES_SHOWN: Final = 5
ROWS_SHOWN: Final = 12
FLOWS_SHOWN: Final = 5
WRITES: Final = {"Turn": "nn-turn", "Written by": "nn-by", "Changed": "nn-did", "State": "nn-state"}
FLOWS: Final = dict.fromkeys(("Turn", "Child", "Was given", "Its own", "Came back"), "nn-text")
"""Column names of writes and children, with the classes of their cells."""
_table: Final = partial(table, "nn-memory")


def _facts(track: Track) -> list[str]:
    if track.newest is None:
        return [str(len(track.changes)), str(len(track.writes)), "", NO_STATE]
    event = track.newest.event
    last = f"turn {event.where.turn}, {by_words(event.hook)}"
    return [f"{len(track.changes):,}", f"{len(track.writes):,}", last, state_line(event.state)]


def _head(write: Write) -> str:
    return f"Turn {write.event.where.turn}, {writer_words(write)}: {count_words(write)}"


def _rows(write: Write) -> list[Any]:
    if write.last is None:
        return []
    changes, _ = difference(write.last.event.state, write.event.state)
    return change_rows(changes[:ROWS_SHOWN])


def _differences(rows: list[Any]) -> str:
    html = [
        f'<tr><th scope="row" class="nn-path">{escape(path)}</th>'
        f'<td class="nn-kind" data-kind="{kind}">{KINDS[kind]} {kind}</td>'
        f'<td class="nn-text nn-value">{parts_html(value)}</td></tr>'
        for path, kind, value in rows
    ]
    return _table(("Path", "Change", "Value"), html, caption="Differences")


def _flows_html(track: Track) -> str:
    if not track.flows:
        return ""
    rows = [_flow_row(flow)["html"] for flow in track.flows[: -FLOWS_SHOWN - 1 : -1]]
    return f'<p class="nn-label">Children</p>{_table(FLOWS, rows)}'


def _write_row(write: Write) -> dict[str, Any]:
    turn = write.event.where.turn
    texts = (turn, writer_words(write), count_words(write), state_line(write.event.state))
    return keyed(write.at, named_row(WRITES, map(escape, texts)), turn=turn)


def _flow_row(flow: Flow) -> dict[str, Any]:
    return keyed(sendable(flow.started.where.execution_id), named_row(FLOWS, map(escape, flow_texts(flow))))


def _cells(cells: list[str]) -> list[str]:
    return [escape(cell) for cell in cells]


# Rows per page of a list.
PAGE: Final = 20

Begin = Callable[[dict[str, Any]], None]
"""Starts an edit, a save or a rewind requested by a page."""


class MemoryReading(Reading):
    """The states of layers in a run: counts in the snapshot, everything else through `answer`.

    `layer_id` is the layer to show first, by default the one with the most changes; without `begin_edit`, editing is disabled.

    Examples
    --------
    >>> MemoryReading().to_text()
    'Memory. No layer has kept anything yet. Layers belong to the agent: AgentConfig(memory=[...]).'
    """

    counted = "layer_state_changed", "writes of states"
    reads = StateIndex.reads
    nothing = "No layer is named in {part}. Layers belong to the agent: AgentConfig(memory=[...])."

    def __init__(
        self, moment: Moment = EVERYTHING, *, layer_id: str | None = None, begin_edit: Begin | None = None
    ) -> None:
        self.moment = moment
        self.asks = self.index = StateIndex(moment.shows)
        self.layer_id = layer_id
        self.position = -1
        self._begin_edit = begin_edit
        self._threads: dict[str, int] = {}
        self.snapshot = {
            "page": PAGE,
            "writes": list(WRITES),
            "flows": list(FLOWS),
            "empty": EMPTY,
            "threads": [],
            "layers": [],
            "first": -1,
            "editable": begin_edit is not None,
            "series": series_data(SERIES),
        }

    @property
    def has_any(self) -> bool:
        return bool(self.index.tracks)

    def changed(self, track: Track) -> dict[str, Any] | None:
        """Handle the track of an event; returns the message about new or changed layers."""
        if not self.is_followed:
            return None  # `begin` creates each row once
        known = len(self.snapshot["layers"])
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
        super().begin()
        self.snapshot["layers"] = list(map(self._row, self.index.tracks))
        self.snapshot["first"] = self._first() if self.index.tracks else -1

    def _row(self, track: Track) -> list[Any]:
        thread = self._threads.get(track.thread_id)
        if thread is None:
            thread = self._threads[track.thread_id] = len(self._threads)
            shown = plain(track.thread_id)
            self.snapshot["threads"].append([shown, track.thread_id if shown == track.thread_id else None])
        last = track.changes[-1].event.where.turn if track.changes else None
        return [plain(track.layer_id), thread, len(track.writes), len(track.changes), last, len(track.flows)]

    def _first(self) -> int:
        """Return the index of the default track.

        It is the track with the most changes, and stays fixed after the first turn in which it changed.
        """
        at: int = self.snapshot["first"]
        shown = self.index.tracks[at] if at >= 0 else None
        if shown is not None and self._is_wanted(shown):
            # The first state of a layer is its initial state.
            first = next((write for write in shown.changes if write.last is not None), None)
            if first is not None and first.event.where.turn != self.index.turn:
                return at
        wanted = [track for track in self.index.tracks if self._is_wanted(track)] or self.index.tracks
        return max(wanted, key=lambda track: (len(track.changes), len(track.writes), -track.at)).at

    def _is_wanted(self, track: Track) -> bool:
        return self.layer_id is None or track.layer_id == self.layer_id

    @property
    def shown(self) -> Track | None:
        at = self.position if 0 <= self.position < len(self.index.tracks) else self.snapshot["first"]
        return self.index.tracks[at] if at >= 0 else None

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer ``writes``, ``change``, ``picture``, ``flows``, and the edit requests ``edit``, ``save``, ``rewind``.

        Raises `NoeticConfigError` ``UNKNOWN_REQUEST``, or ``NOT_EDITABLE`` without a harness.
        """
        match request:
            case {"what": "writes", "layer": int(at)} if self._has(at):
                return self._page(self.index.tracks[at], request)
            case {"what": "change", "layer": int(at), "at": int(place)} if self._has(at):
                track = self.index.tracks[at]
                found = next((write for write in _near(track.writes, place) if write.at == place), None)
                if found is not None:
                    return self._change(track, found, request.get("against"))
            case {"what": "picture", "layer": int(at)} if self._has(at):
                return self._scene(self.index.tracks[at]).data()
            case {"what": "flows", "layer": int(at)} if self._has(at):
                return _newest(self.index.tracks[at].flows, request.get("start"), _flow_row)
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
            # The state at the end of that turn: the last change up to it.
            upto = bisect_right(rows, turn, key=lambda write: write.event.where.turn)
            if upto:
                picked, start = rows[upto - 1].at, (len(rows) - upto) // PAGE * PAGE
        return {**_newest(rows, start, _write_row), "picked": picked}

    def _change(self, track: Track, write: Write, against: Any) -> dict[str, Any]:
        event = write.event
        before, name, missing = base_of(track, write, against)
        old = event.state if before is None else before.event.state
        changes, is_cut = difference(old, event.state)
        note = missing if before is None else "The state is large: its beginning is compared." if is_cut else ""
        if not note and not changes:
            is_secret = is_secret_change(old, event.state)
            note = "The difference is a secret, which is not shown." if is_secret else "Nothing differs."
        parts = {}
        if note:
            parts["note"] = f'<p class="nn-note">{escape(note)}</p>'
        if changes:
            parts["changes"] = _differences(change_rows(changes))
        if len(changes) > MOST_ROWS:
            parts["more"] = f'<p class="nn-note">and {len(changes) - MOST_ROWS:,} more</p>'
        text, is_short = state_text(event.state)
        whole = escape(text) + ("\n… (its end is left out)" if is_short else "")
        inside = f'<summary>The whole state</summary><pre class="nn-quote" tabindex="0">{whole}</pre>'
        parts["state"] = f"<details>{inside}</details>"
        return {
            "title": f"After turn {event.where.turn}, {writer_words(write)}",
            "against": name,
            "turn": event.where.turn,
            "rows": [keyed(key, html) for key, html in parts.items()],
        }

    def selected(self, fields: dict[str, Any]) -> dict[str, Any] | None:
        return None

    @property
    def _has_threads(self) -> bool:
        return len({track.thread_id for track in self.index.tracks}) > 1

    @property
    def _is_empty(self) -> bool:
        # If a thread or turn does not exist, say that, not that its layers are empty.
        is_said = self.snapshot["empty"] != EMPTY
        return not self.index.tracks or (is_said and not any(track.writes for track in self.index.tracks))

    def _name(self, track: Track) -> str:
        return plain(track.layer_id) + (f" of thread {plain(track.thread_id)}" if self._has_threads else "")

    def to_html(self) -> str:
        head, shown = heading("Memory"), self.shown
        if self._is_empty or shown is None:
            return f'{head}<p class="nn-empty">{escape(self.snapshot["empty"])}</p>'
        tracks = self.index.tracks
        scene = self.scene()
        picture = f"{legend_html(scene)}{to_html(scene)}" if scene.legend else ""
        rows = [_cells([self._name(track), *_facts(track)]) for track in tracks[:LAYERS_SHOWN]]
        left = len(tracks) - len(rows)
        more = f'<p class="nn-note">and {left:,} more row{"s" * (left > 1)}</p>' if left else ""
        layers = _table(("Layer", "Changes", "Writes", "Last", "State now"), rows)
        return f"{head}{picture}{layers}{more}{self._changes_html(shown)}{_flows_html(shown)}"

    def scene(self) -> Scene:
        """Return the picture of the shown thread."""
        return self._scene(self.shown)

    def _scene(self, shown: Track | None) -> Scene:
        if shown is None:
            return Scene(title=TITLE)
        tracks = [track for track in self.index.tracks if track.thread_id == shown.thread_id]
        title = f"{TITLE}, thread {plain_line(shown.thread_id)}" if self._has_threads else TITLE
        return memory_scene(tracks[:LAYERS_SHOWN], title)

    def _changes_html(self, track: Track) -> str:
        parts = []
        for write in track.changes[: -CHANGES_SHOWN - 1 : -1]:
            head = f'<p class="nn-change-head">{escape(_head(write))}</p>'
            rows = _rows(write)
            whole = f'<p class="nn-quote">{escape(state_line(write.event.state))}</p>' if write.last is None else ""
            parts.append(head + (_differences(rows) if rows else whole))
        if not parts:
            return ""
        earlier = len(track.changes) - len(parts)
        note = (
            f'<p class="nn-note">Earlier changes, {earlier:,}, are in <code>to_frame()</code>.</p>' if earlier else ""
        )
        return f'<p class="nn-label">Changes of {escape(self._name(track))}, newest first</p>{"".join(parts)}{note}'

    def to_text(self) -> str:
        tracks, shown = self.index.tracks, self.shown
        if self._is_empty or shown is None:
            return f"Memory. {self.snapshot['empty']}"
        lines = [f"Memory. {len(tracks):,} layer{'' if len(tracks) == 1 else 's'}"]
        for track in tracks[:LAYERS_SHOWN]:
            changes, writes, last, state = _facts(track)
            said = (
                f"{changes} changed of {writes} write{'s' * (writes != '1')}, {last}: {state}"
                if track.writes
                else state
            )
            lines.append(f"  {self._name(track)}: {said}")
        for write in shown.changes[: -CHANGES_SHOWN - 1 : -1]:
            lines.append(f"{self._name(shown)}, {_head(write)}")
            lines += [f"  {KINDS[kind]} {path}: {parts_text(value)}" for path, kind, value in _rows(write)]
        for flow in shown.flows[: -FLOWS_SHOWN - 1 : -1]:
            turn, child, given, left, back = flow_texts(flow)
            lines.append(f"child {child}, turn {turn}: given {given}; {left}; {back}")
        return "\n".join(lines)


def base_of(track: Track, write: Write, against: Any) -> tuple[Write | None, str, str]:
    """Return the state to compare a write with, its name, and a text to show if there is none.

    `against` is ``"turn"`` for the end of the previous turn, a number for the end of that turn, otherwise the previous write.
    """
    if against == "turn" or type(against) is int:
        turn = write.event.where.turn - 1 if against == "turn" else against
        return track.at_end_of(turn), f"the end of turn {turn}", "No state is recorded up to then."
    last = write.last
    if last is None:
        return None, "the write before", FIRST_OF_CHILD if write.is_child else UNKNOWN_BEFORE
    return last, f"the write before, {by_words(last.event.hook)} in turn {last.event.where.turn}", ""


def _near(writes: Sequence[Write], place: int) -> Sequence[Write]:
    """Return the writes that may have an index: they are sorted, and some may be missing before the moment."""
    at = bisect_right(writes, place, key=lambda write: write.at)
    return writes[max(0, at - 1) : at]


def _newest(rows: Sequence[Any], start: Any, row: Callable[[Any], Any]) -> dict[str, Any]:
    first = start if type(start) is int and start > 0 else 0
    first = max(0, min(first, len(rows) - 1))
    stop = len(rows) - first
    return {"start": first, "count": len(rows), "rows": [row(each) for each in rows[max(0, stop - PAGE) : stop][::-1]]}
