"""Memory changes as a scene: a row for each layer, a column for each turn, and how often the layer changed in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from noetic_nb.plots._scene.scene import LANE_PX, Mark, Panel, Scene, Series
from noetic_nb.runs._layer_states import Track, Write
from noetic_nb.runs._palette import QUALITY_COLOUR
from noetic_nb.runs._plain_text import clip, plain, plain_line

TITLE: Final = "Memory"
CHANGES: Final = "changes by layer and turn"
SERIES: Final = {
    "lane": Series("step", CHANGES, opacity=0.16, width=1),
    "written": Series("bar", CHANGES, "#B9C0CA", hatch="...."),
    # From a third of the maximum number of changes in a bar up to the maximum.
    **{
        f"changed-{level}": Series("bar", CHANGES, colour)
        for level, colour in enumerate(("#A6CEE6", "#4C9BCB", QUALITY_COLOUR), 1)
    },
}
# More columns would be too thin to click, next to the names of the rows.
COLUMNS: Final = 120
TICKS: Final = 8
NAME_LETTERS: Final = 14
# Free space on both sides of a bar, in columns.
GAP: Final = 0.06


def memory_scene(tracks: Sequence[Track], title: str = TITLE) -> Scene:
    """Return the layers of a thread; the key of a bar is the index of its layer and the turn of its last change.

    Examples
    --------
    >>> memory_scene([Track(0, "notes", "t1")]).panels[0].ticks
    [('0', 'notes')]
    """
    turns = [write.event.where.turn for track in tracks for write in track.writes]
    first, last = min(turns, default=1), max(turns, default=1)
    size = -(-(last - first + 1) // COLUMNS)
    columns = (last - first) // size + 1
    lanes = [f"{track.at}" for track in tracks]
    marks = [Mark("lane", [0, lane, columns]) for lane in lanes]
    bars: dict[tuple[Track, int], list[Write]] = {}
    for track in tracks:
        for write in track.writes:
            bars.setdefault((track, (write.event.where.turn - first) // size), []).append(write)
    most = max((sum(write.changed for write in writes) for writes in bars.values()), default=0)
    levels = Counter[int]()
    for (track, at), writes in bars.items():
        changed = [write for write in writes if write.changed]
        begin, number = first + at * size, len(changed)
        when = f"turn {begin}" if size == 1 else f"turns {begin} to {min(begin + size - 1, last)}"
        tip = f"{plain_line(track.layer_id)}, {when}: {_times(number, 'change')} in {_times(len(writes), 'write')}"
        level = -(-3 * number // most) if most else 0
        levels[level] += 1
        points = [at + GAP, f"{track.at}", at + 1 - GAP]
        key = f"{track.at} {(changed or writes)[-1].event.where.turn}"
        series = f"changed-{level}" if changed else "written"
        marks.append(Mark(series, points, tip, f"{number:,}" if changed else "", key=key))
    panel = Panel(CHANGES, LANE_PX * max(1, len(lanes)), lanes=lanes)
    panel.ticks = [(lane, clip(plain(track.layer_id), NAME_LETTERS)) for lane, track in zip(lanes, tracks, strict=True)]
    step = -(-columns // TICKS)
    legend = [(f"changed-{level}", _between(most * (level - 1) // 3 + 1, most * level // 3))
              for level in range(1, 4) if levels[level]]  # fmt: skip
    legend += [("written", "written as it was")] * bool(levels[0])
    ticks = [(at + 0.5, f"{first + at * size}") for at in range(0, columns, step)]
    return Scene([panel], marks, 0, columns, SERIES, ticks, "turn", (), title, legend)


def _times(number: int, name: str) -> str:
    return f"{number:,} {name}{'s' * (number != 1)}"


def _between(low: int, high: int) -> str:
    return _times(high, "change") if low == high else f"{low:,}–{high:,} changes"
