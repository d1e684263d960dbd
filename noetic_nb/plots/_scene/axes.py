"""Draws a scene on matplotlib axes: the same marks, in axes units, with the sizes of a figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from math import nan
from textwrap import fill
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch

from noetic_nb.plots._figure_style import (
    DECISION_MARKERS,
    GROUNDS,
    LETTER,
    USUAL_SHARE,
    Look,
    Theme,
    filled,
    look_of,
    named,
    style,
)
from noetic_nb.plots._scene.scene import PAD_PX, Mark, Panel, Scene, Series, anchor_at

DPI: Final = 96
# Twice the pixels of the page, so that the picture is sharp on slides.
SHARP: Final = 2
CAPTION_PX: Final = 22
EDGES_PX: Final = 110
LEGEND_PX: Final = 50
# The space below the picture fits this many rows of a legend.
LEGEND_ROWS: Final = 2
LETTER_PX: Final = 8.0
# Title size in points; ticks and captions are two points smaller, as on a page.
TEXT: Final = 10.5
# Relative to a lane, the height of a bar; relative to the width, that of a moment, and of a bar with room for a sign.
BAR: Final = 0.78
LEAST_WIDE: Final = 0.004
SIGN_WIDE: Final = 0.02


def draw(scene: Scene, panel: Panel, axes: Axes, look: Look, *, base: float | None = None, step: float = 1.0) -> None:
    """Draw the marks of a panel on axes and set their scales; with `base`, lanes are above that part of the axes."""
    if base is None:
        edge = (panel.high - panel.low) * PAD_PX / (panel.height - 2 * PAD_PX)
        foot, top = (0.0, float(len(panel.lanes))) if panel.lanes else (panel.low - edge, panel.high + edge)
        axes.set_xlim(scene.first, scene.last)
        axes.set_ylim(foot, top)
        ticks = {(_lane(panel, value) if panel.lanes else value): words for value, words in panel.ticks}
        axes.set_yticks(list(ticks), list(ticks.values()), parse_math=False)
    names = dict(scene.legend)
    for order, (name, series, marks) in enumerate(scene.drawn(panel)):
        about: dict[str, Any] = {
            "color": {"ink": look.ink, "paper": look.ground}.get(series.colour)
            or series.paint("dark" if look.ground == GROUNDS["dark"] else "light"),
            "alpha": series.opacity, "label": names.get(name, f"_{name}"), "zorder": 2 + order / 100, "clip_on": False,
        }  # fmt: skip
        _draw(panel, axes, look, series, marks, about, 0.0 if base is None else base, step)


def _lane(panel: Panel, lane: Any, base: float = 0.0, step: float = 1.0) -> float:
    return base + step * (len(panel.lanes) - 0.5 - panel.lanes.index(lane))


def _draw(
    panel: Panel,
    axes: Axes,
    look: Look,
    series: Series,
    marks: list[Mark],
    about: dict[str, Any],
    base: float,
    step: float,
) -> None:
    def y(value: Any) -> float:
        return _lane(panel, value, base, step) if panel.lanes else value

    width = look.line(series.width * 72 / DPI)
    points = [mark.points for mark in marks]
    match series.kind:
        case "box":
            foot, top = axes.get_ylim()
            half = 0.45 * step
            spans = [
                (y(low) - half, y(low) + half)
                if panel.lanes and low is not None
                else (foot if low is None else low, top if high is None else high)
                for _, low, _, high in points
            ]
            corners = [
                [(left, low), (left, high), (right, high), (right, low)]
                for (left, _, right, _), (low, high) in zip(points, spans, strict=True)
            ]
            kinds = ("edgecolor", "facecolor") if width else ("facecolor", "edgecolor")
            face = dict(zip(kinds, (about.pop("color"), "none"), strict=True))
            dash = (0, [float(each) for each in series.dash.split()]) if series.dash else "solid"
            axes.add_collection(PolyCollection(corners, lw=width, ls=dash, **face, **about), autolim=False)
        case "line":
            xs, ys = [nan], [nan]
            for each in points:
                xs += [*each[::2]] or [nan]
                ys += [*map(y, each[1::2])] or [nan]
            axes.plot(xs[1:], ys[1:], lw=width, solid_capstyle="round", **about)
        case "step":
            axes.hlines(
                [y(at) for _, at, _ in points],
                [left for left, *_ in points],
                [right for *_, right in points],
                lw=width,
                **about,
            )
        case "area":
            xs, lows, highs = map(list, zip(*points, strict=True))
            axes.fill_between(xs, lows, highs, lw=look.line(72 / DPI), **about)
        case "text":
            for mark in marks:
                words: dict[str, Any] = {"ha": "center", "size": look.small, "color": look.ink, "parse_math": False}
                if panel.lanes:
                    first, last = axes.get_xlim()
                    anchor = anchor_at((mark.points[0] - first) / (last - first))
                    words |= {"ha": {"start": "left", "end": "right"}.get(anchor, "center"), "va": "center"}
                    words["bbox"] = {"facecolor": look.ground, "edgecolor": "none", "pad": 0.5}
                axes.text(mark.points[0], y(mark.points[1]), mark.text, **words)
        case "bar":
            for mark in marks:
                low, *high = map(y, mark.points[1::2])
                middle, tall = ((low + high[0]) / 2, high[0] - low) if high else (low, BAR * step)
                _bar(axes, look, series, mark, middle, about | {"height": tall})
                about["label"] = f"_{mark.series}"
        case kind:
            looks: dict[str, Any] = {"marker": "o", "ms": width, "mec": look.ground, "mew": 0.3}
            if kind == "shape":
                looks = {
                    "marker": DECISION_MARKERS.get(marks[0].series, "D"),
                    "ms": look.line(9),
                    "mec": look.ink,
                    "mew": look.line(0.6),
                }
            axes.plot([x for x, _ in points], [y(at) for _, at in points], linestyle="none", **looks, **about)


def _bar(axes: Axes, look: Look, series: Series, mark: Mark, y: float, about: Mapping[str, Any]) -> None:
    """Draw a bar, with its words and sign if they fit; a moment at the very end is drawn before the end."""
    first, last = axes.get_xlim()
    wide = max(LEAST_WIDE, (mark.points[2] - mark.points[0]) / (last - first))
    left = min(mark.points[0], last - wide * (last - first))
    right = left + wide * (last - first)
    about = {**about, **filled(look, series.colour, series.hatch or None)}
    del about["color"]
    axes.barh(y, right - left, left=left, **about)
    words: dict[str, Any] = {"va": "center", "parse_math": False, "clip_on": True, "size": look.small}
    name = named(mark.words) if mark.words else ""
    if name and (len(name) + 3) * LETTER * look.small < 72 * look.width * USUAL_SHARE * wide:
        plate = {"facecolor": series.colour, "edgecolor": "none", "pad": 0.5} if series.hatch else None
        axes.text(left + 0.004 * (last - first), y, name, color=series.ink, bbox=plate, **words)
    if mark.sign:
        # A sign wider than its bar gets a background of its own.
        is_inside = wide > SIGN_WIDE
        plate = None if is_inside else {"facecolor": look.ground, "edgecolor": "none", "pad": 0.5}
        words |= {"color": series.ink if is_inside else look.ink, "bbox": plate, "weight": "bold", "ha": "right"}
        axes.text(right - 0.002 * (last - first), y, mark.sign, **words)


def handle_of(look: Look, series: Series) -> Patch | None:
    """Return the legend entry for bars, which are listed even if none is visible, and for signs."""
    if series.kind == "bar":
        return Patch(**filled(look, series.colour, series.hatch or None))
    return Patch(fill=False, linewidth=0) if series.kind == "text" else None


def to_png(scene: Scene, width: int = 960, theme: Theme = "light") -> bytes:
    """Return the whole scene as a PNG, `width` pixels wide on a page, with twice the resolution."""
    captions = sum(CAPTION_PX for panel in scene.panels if panel.caption)
    height = sum(panel.height for panel in scene.panels) + captions + EDGES_PX
    engine = ConstrainedLayoutEngine(h_pad=0.03, w_pad=0.06, hspace=0)
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, layout=engine, facecolor=GROUNDS[theme])
    heights = [panel.height + (CAPTION_PX if panel.caption else 0) for panel in scene.panels] or [1]
    every = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    look = replace(look_of(every[0], GROUNDS[theme]), text=TEXT)
    for panel, axes in zip(scene.panels, every, strict=False):
        style(axes, look)
        axes.tick_params(labelbottom=False, length=0)
        axes.spines[:].set_visible(False)
        draw(scene, panel, axes, look)
        axes.set_title(panel.caption, loc="left", size=look.small, color=look.ink, parse_math=False, pad=3)
        axes.set_xticks([])
    every[-1].set_xticks([x for x, _ in scene.ticks], [words for _, words in scene.ticks])
    every[-1].tick_params(labelbottom=True)
    every[-1].set_xlabel(scene.axis, size=look.small)
    found = {name: handle for axes in every for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    named_handles = [(handle_of(look, scene.series[key]) or found.get(name), name) for key, name in scene.legend]
    shown = [(handle, name) for handle, name in named_handles if handle is not None]
    room = max(1, int(width / (LEGEND_PX + 6 * max((len(name) for _, name in shown), default=1))))
    more = -(-len(shown) // room) - LEGEND_ROWS
    figure.set_figheight((height + LEGEND_PX / 2 * max(0, more)) / DPI)
    figure.legend(
        [handle for handle, _ in shown], [name for _, name in shown], loc="outside lower left", ncols=room, frameon=False,
        fontsize=look.small, labelcolor=look.ink,
    )  # fmt: skip
    title = fill(scene.title, int(width / LETTER_PX))
    figure.suptitle(title, x=0.01, ha="left", size=look.text, color=look.ink, parse_math=False)
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=SHARP * DPI, metadata={"Software": None})
    return picture.getvalue()
