"""Scenes for comparisons: context, cost and differences of each pair of turns; and mean differences of two lists of runs."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any, Final, NamedTuple

from noetic_nb.plots._scene.scene import LANE_PX, Mark, Panel, Scene, Series
from noetic_nb.plots._trends.trends_marks import FORMATS, nice_top
from noetic_nb.runs._palette import CATEGORY, MEAN_COLOUR, OTHER_LOOK, QUALITY_COLOUR
from noetic_nb.runs._plain_text import clip, plain_line

TITLE: Final = "Compare"
DIFFERENCES: Final = "mean differences"
PANELS: Final = {
    "context": ("context: tokens of the largest request of a turn", "whole"),
    "cost": ("cost of a turn", "usd"),
}
ROWS: Final = "differences"
SERIES: Final = {
    f"rows-{ROWS}": Series("bar", ROWS, CATEGORY["tools"]),
    **{
        f"{side}-{panel}": Series("box", panel, colour, night, left=left, right=right)
        for panel in PANELS
        for side, colour, night, left, right in (
            ("a", QUALITY_COLOUR, "#56B4E9", 0.1, 0.49),
            ("b", MEAN_COLOUR, "", 0.51, 0.9),
        )
    },
}
INTERVALS: Final = {
    "zero": Series("box", DIFFERENCES, opacity=0.5, width=1, dash="2 3"),
    "interval": Series("step", DIFFERENCES, width=2.5),
    "open": Series("bar", DIFFERENCES, OTHER_LOOK[0]),
    "clear": Series("bar", DIFFERENCES, QUALITY_COLOUR),
}
# More columns would be too thin to tell apart.
COLUMNS: Final = 100
PANEL_PX: Final = 64
TICKS: Final = 8
NAME_LENGTH: Final = 40
NAME_LETTERS: Final = 14
# Half the width of the mark for the mean, relative to the distance from zero to the end of the interval.
MEAN: Final = 0.016


class PairNumbers(NamedTuple):
    """The turns of a pair in words, and for both sides the context in tokens and the cost in US dollars, or None if unknown.

    `differences` is the number of differing rows, None for a pair that was not compared.
    """

    turns: str
    context: tuple[float | None, float | None]
    cost: tuple[float | None, float | None]
    differences: int | None = None


def pairs_scene(pairs: Sequence[PairNumbers], names: Sequence[str]) -> Scene:
    """Return contexts, costs and differences, one column per pair of turns; if pairs share a column, the maximum.

    The key of a bar is the index of the first pair in its column.

    Examples
    --------
    >>> scene = pairs_scene([PairNumbers("1", (120, 80), (None, None))], ("a: x", "b: y"))
    >>> [mark.points for mark in scene.marks], [panel.key for panel in scene.panels]
    ([[0.1, 0, 0.49, 120], [0.51, 0, 0.9, 80]], ['context'])
    """
    size = max(1, -(-len(pairs) // COLUMNS))
    shared = [pairs[at : at + size] for at in range(0, len(pairs), size)]
    panels, marks, tips = [], [], [[_name(some)] for some in shared]
    for key, (caption, unit) in PANELS.items():
        top, write = 0.0, FORMATS[unit]
        for at, some in enumerate(shared):
            values = [max((v for v in side if v is not None), default=None)
                      for side in zip(*(getattr(pair, key) for pair in some), strict=True)]  # fmt: skip
            for side, value in zip("ab", values, strict=True):
                if value is not None:
                    look = SERIES[f"{side}-{key}"]
                    marks.append(Mark(f"{side}-{key}", [at + look.left, 0, at + look.right, value]))
                    top = max(top, value)
            if any(value is not None for value in values):
                said = [write(value) if value is not None else "not known" for value in values]
                tips[at].append(f"{key} {' | '.join(said)}")
        if top > 0:
            most = nice_top(top)
            panel = Panel(key, PANEL_PX, high=most, caption=caption)
            panel.add_ticks([(0, "0"), (most, write(most))])
            panels.append(panel)
    step = max(1, -(-len(shared) // TICKS))
    keyed = panels[0].key if panels else ""
    if len(pairs) > 1:
        _differences(shared, size, panels, marks, tips)
    legend = [(f"{side}-{keyed}", plain_line(name, NAME_LENGTH)) for side, name in zip("ab", names, strict=True)
              ] if keyed else []  # fmt: skip
    return Scene(
        panels, [mark for mark in marks if mark.key or mark.points[3]], 0, max(1, len(shared)), SERIES,
        [(at + 0.5, shared[at][0].turns) for at in range(0, len(shared), step)], "turn",
        [(at, at + 1, " · ".join(tip)) for at, tip in enumerate(tips)], TITLE, legend,
    )  # fmt: skip


def _differences(
    shared: Sequence[Sequence[PairNumbers]], size: int, panels: list[Panel], marks: list[Mark], tips: list[list[str]]
) -> None:
    """Add bars for the compared pairs, with their own scale."""
    counts = [[pair.differences for pair in some if pair.differences is not None] for some in shared]
    top = max((max(some) for some in counts if some), default=None)
    if top is None:
        return
    for at, some in enumerate(counts):
        if not some:
            continue
        differ = sum(count > 0 for count in some)
        if size == 1:
            said = f"{some[0]:,} difference{'s' * (some[0] != 1)}"
        else:
            said = f"{differ:,} of {len(some):,} pairs differ, at most in {max(some):,} row{'s' * (max(some) != 1)}"
        tips[at].append(said)
        points = [at + 0.1, 0, at + 0.9, max(some)]
        marks.append(Mark(f"rows-{ROWS}", points, f"{_name(shared[at])}: {said}", key=f"{at * size}"))
    looked, of = sum(map(len, counts)), sum(map(len, shared))
    part = f", of the first {looked:,} of {of:,} pairs" if looked < of else ""
    most = nice_top(max(1, top))
    panel = Panel(ROWS, PANEL_PX, high=most, caption=f"differences: rows of a pair that are not the same{part}")
    panel.add_ticks([(0, "0"), (most, f"{most:g}")])
    panels.append(panel)


def _name(pairs: Sequence[PairNumbers]) -> str:
    return f"turn {pairs[0].turns}" if len(pairs) == 1 else f"turns {pairs[0].turns} to {pairs[-1].turns}"


def differences_scene(rows: Sequence[Any], said: Sequence[str], title: str) -> Scene:
    """Return one row per metric, each with its own scale: the mean difference and its interval; zero is in the middle."""
    lanes = [f"{at}" for at in range(len(rows))]
    marks = [Mark("zero", [0, None, 0, None])]
    for lane, row, words in zip(lanes, rows, said, strict=True):
        if not row.n or not isfinite(row.difference):
            continue
        ends = (row.low, row.high) if isfinite(row.low) and isfinite(row.high) else ()
        most = max(map(abs, (row.difference, *ends))) or 1.0
        mean = round(row.difference / most, 4)
        is_clear = row.low > 0 or row.high < 0
        if ends:
            low, high = (round(end / most, 4) for end in ends)
            marks.append(Mark("interval", [low, lane, high]))
        marks.append(
            Mark(
                "clear" if is_clear else "open",
                [mean - MEAN, lane, mean + MEAN],
                f"{plain_line(row.metric)}: {words}",
                key=lane,
            )
        )
    ticks = [(lane, clip(plain_line(row.metric), NAME_LETTERS)) for lane, row in zip(lanes, rows, strict=True)]
    panel = Panel(DIFFERENCES, LANE_PX * max(1, len(lanes)), lanes=lanes, ticks=ticks)
    used = {mark.series for mark in marks}
    legend = [(key, words) for key, words in (("clear", "differs"), ("open", "may be none")) if key in used]
    # Leave room so that the ends are not clipped.
    edge = 1 + 2 * MEAN
    return Scene([panel], marks, -edge, edge, INTERVALS, [(0, "0")], "b − a", (), title, legend)
