"""The static forms of the view of memory: every layer with its state now, and the newest changes of one."""

from __future__ import annotations

from typing import Any, Final

from noetic_nb.markup import escape
from noetic_nb.runs.plain_text import plain
from noetic_nb.widgets.base.text_diff import parts_html, parts_text
from noetic_nb.widgets.memory.state_index import StateIndex, Track, Write
from noetic_nb.widgets.memory.state_texts import (
    KINDS,
    by_words,
    change_rows,
    count_words,
    difference,
    flow_row,
    state_line,
    write_row,
)

__all__ = ["EMPTY", "MemoryPicture"]

EMPTY: Final = "No layer has kept anything yet. Layers belong to the agent: AgentConfig(memory=[...])."
NO_STATE: Final = "no state recorded"

# As much as a reader without a kernel scrolls through; `to_frame()` has everything.
LAYERS_SHOWN: Final = 40
CHANGES_SHOWN: Final = 5
ROWS_SHOWN: Final = 12
FLOWS_SHOWN: Final = 5


class MemoryPicture:
    """The layers of a run as HTML and as text.

    Examples
    --------
    >>> MemoryPicture(StateIndex(), None).to_text()
    'Memory. No layer has kept anything yet. Layers belong to the agent: AgentConfig(memory=[...]).'
    """

    def __init__(self, index: StateIndex, shown: Track | None, empty: str = EMPTY) -> None:
        self.tracks = index.tracks[:LAYERS_SHOWN]
        self.more = len(index.tracks) - len(self.tracks)
        self.has_threads = len({track.thread_id for track in index.tracks}) > 1
        self.shown = shown
        self.empty = empty
        # Where a thread or a turn is not there, that is said, and not that its layers know nothing.
        self.is_empty = not self.tracks or shown is None
        self.is_empty |= empty != EMPTY and not any(track.writes for track in index.tracks)

    def _name(self, track: Track) -> str:
        return plain(track.layer_id) + (f" of thread {plain(track.thread_id)}" if self.has_threads else "")

    def to_html(self) -> str:
        """Return HTML without scripts."""
        head = '<p class="nn-title">Memory</p>'
        if self.is_empty or self.shown is None:
            return f'{head}<p class="nn-empty">{escape(self.empty)}</p>'
        rows = "".join([_row([self._name(track), *_facts(track)]) for track in self.tracks])
        more = f'<p class="nn-note">and {self.more:,} more layers and threads</p>' if self.more else ""
        table = _table(("Layer", "Changes", "Writes", "Last", "State now"), rows)
        return f"{head}{table}{more}{self._changes_html(self.shown)}{self._flows_html(self.shown)}"

    def _changes_html(self, track: Track) -> str:
        parts = []
        for write in track.changes[: -CHANGES_SHOWN - 1 : -1]:
            head = f'<p class="nn-change-head">{escape(_head(write))}</p>'
            rows = "".join(
                [
                    f'<tr><th scope="row" class="nn-path">{escape(path)}</th>'
                    f'<td class="nn-kind" data-kind="{kind}">{KINDS[kind]} {kind}</td>'
                    f'<td class="nn-text nn-value">{parts_html(value)}</td></tr>'
                    for path, kind, value in _rows(write)
                ]
            )
            whole = f'<p class="nn-quote">{escape(state_line(write.event.state))}</p>' if write.last is None else ""
            parts.append(head + (_table(("Where", "What", "Value"), rows) if rows else whole))
        if not parts:
            return ""
        earlier = len(track.changes) - len(parts)
        note = (
            f'<p class="nn-note">Earlier changes, {earlier:,}, are in <code>to_frame()</code>.</p>' if earlier else ""
        )
        return f'<p class="nn-label">Changes of {escape(self._name(track))}, newest first</p>{"".join(parts)}{note}'

    def _flows_html(self, track: Track) -> str:
        if not track.flows:
            return ""
        rows = [flow_row(flow) for flow in track.flows[: -FLOWS_SHOWN - 1 : -1]]
        body = "".join([_row([str(row["turn"]), row["child"], row["given"], row["left"], row["back"]]) for row in rows])
        return f'<p class="nn-label">Children</p>{_table(("Turn", "Child", "Was given", "Its own", "Came back"), body)}'

    def to_text(self) -> str:
        """Return plain text."""
        if self.is_empty or self.shown is None:
            return f"Memory. {self.empty}"
        lines = [f"Memory. {len(self.tracks) + self.more:,} layer{'' if len(self.tracks) == 1 else 's'}"]
        for track in self.tracks:
            changes, writes, last, state = _facts(track)
            said = f"{changes} changed of {writes} writes, {last}: {state}" if track.writes else state
            lines.append(f"  {self._name(track)}: {said}")
        for write in self.shown.changes[: -CHANGES_SHOWN - 1 : -1]:
            lines.append(f"{self._name(self.shown)}, {_head(write)}")
            lines += [f"  {KINDS[kind]} {path}: {parts_text(value)}" for path, kind, value in _rows(write)]
        for flow in self.shown.flows[: -FLOWS_SHOWN - 1 : -1]:
            row = flow_row(flow)
            lines.append(
                f"child {row['child']}, turn {row['turn']}: given {row['given']}; {row['left']}; {row['back']}"
            )
        return "\n".join(lines)


def _facts(track: Track) -> list[str]:
    if track.newest is None:
        return [str(len(track.changes)), str(len(track.writes)), "", NO_STATE]
    event = track.newest.event
    last = f"turn {event.where.turn}, {by_words(event.hook)}"
    return [f"{len(track.changes):,}", f"{len(track.writes):,}", last, state_line(event.state)]


def _head(write: Write) -> str:
    row = write_row(write)
    child = f", in child {row['child']}" if row["child"] else ""
    return f"Turn {row['turn']}, {row['by']}{child}: {count_words(write)}"


def _rows(write: Write) -> list[Any]:
    if write.last is None:
        return []
    changes, _ = difference(write.last.event.state, write.event.state)
    return change_rows(changes[:ROWS_SHOWN])


def _row(cells: list[str]) -> str:
    head, *rest = cells
    return f'<tr><th scope="row">{escape(head)}</th>{"".join([f"<td>{escape(cell)}</td>" for cell in rest])}</tr>'


def _table(names: tuple[str, ...], body: str) -> str:
    heads = "".join([f'<th scope="col">{name}</th>' for name in names])
    return (
        f'<div class="nn-scroll"><table class="nn-table nn-memory"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
