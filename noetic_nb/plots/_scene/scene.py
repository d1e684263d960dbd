"""A picture as data: stacked panels with scales, and marks in the units of these scales.

Everything that determines the look is computed here, once: the static form, the live page and matplotlib draw the same marks.
All panels share the horizontal scale, so that a page can zoom without asking the kernel; vertical scales are separate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from noetic_nb.runs._palette import ink_on

# Padding, so that marks at the edges of a panel are not clipped.
PAD_PX: Final = 6
LANE_PX: Final = 18
# The width of the axes beside the panels.
AXIS_PX: Final = 96
# Closer ticks would overlap.
TICK_PX: Final = 12
ALL: Final = "*"
"""The panel name of series drawn in every panel with a numeric axis."""

SINGLE: Final = frozenset({"bar", "shape", "text"})
"""Kinds whose marks are single elements; for the others, all marks of a series form one path."""


class Series(NamedTuple):
    """Marks of one kind in one panel: their style, and the horizontal position of marks of a part.

    Filled if `width` is 0, otherwise drawn as a line of that many pixels (dots: their size). Marks of a part begin at
    `left` and end at `right`, both relative to its index.
    """

    kind: str
    panel: str
    colour: str = "ink"
    night: str = ""
    """The colour on a dark background, if different."""
    opacity: float = 1.0
    width: float = 0.0
    dash: str = ""
    path: str = ""
    """The outline of a shape around (0, 0), in pixels."""
    left: float = 0.0
    right: float = 1.0
    hatch: str = ""
    """The matplotlib pattern that distinguishes it without colours."""

    @property
    def swatch(self) -> str:
        """The outline of its legend sample, around (0, 0)."""
        return self.path or ("M0,0h0" if self.kind == "dot" else "M-6,0H6" if self.width else "M-6,-6H6V6H-6Z")

    @property
    def ink(self) -> str:
        """The colour of words inside it."""
        return ink_on(self.colour) if self.colour.startswith("#") else "currentColor"

    @property
    def box(self) -> str:
        """The look of a bar as CSS of a page; a pale one has an edge."""
        paint = self.paint()
        if self.opacity == 1:
            return f"background-color:{paint};color:{'var(--nn-paper)' if self.colour == 'ink' else self.ink}"
        pale = f"color-mix(in srgb, {paint} {100 * self.opacity:g}%, transparent)"
        return f"background-color:{pale};box-shadow:none;border:1px {'dashed' if self.dash else 'solid'} {paint}"

    def paint(self, theme: str | None = None) -> str:
        """Return the colour as CSS, for a page or for one theme."""
        if self.colour in PLAIN:
            return PLAIN[self.colour] if theme is None else GROUNDS[theme][self.colour == "ink"]
        if theme is None:  # the style sheet of scenes knows the dark colour
            return f"var(--nn-{self.colour[1:]}, {self.colour})" if self.night else self.colour
        return self.night if self.night and theme == "dark" else self.colour

    def style(self, theme: str | None = None) -> str:
        """Return the style as a CSS declaration, for a page with its own theme or for one theme."""
        paint, opacity = self.paint(theme), "" if self.opacity == 1 else f"opacity:{self.opacity:g};"
        if opacity and self.kind == "bar":  # pale, with an edge
            return f"fill:{paint};fill-{opacity}stroke:{paint};stroke-dasharray:{self.dash or 'none'}"
        if self.kind == "area":  # the stroke is not pale: it shows a single point, and values that are all alike
            return f"fill:{paint};{opacity and 'fill-' + opacity}stroke:{paint};stroke-opacity:0.6"
        if not self.width:
            return f"{opacity}fill:{paint}"
        dash = f";stroke-dasharray:{self.dash}" if self.dash else ""
        return f"{opacity}fill:none;stroke:{paint};stroke-width:{self.width:g}{dash}"


GROUNDS: Final = {"light": ("#FFFFFF", "#1F2328"), "dark": ("#121212", "#E8E8E8")}
"""Background and text colour of a separate picture, by theme."""
PLAIN: Final = {"ink": "currentColor", "paper": "var(--nn-paper)"}
"""The colours inherited from the page."""


class Mark(NamedTuple):
    """One drawn element.

    `points` are: left, low, right, high of a box (None: to the edge; with a lane as low: that lane); alternating x and
    y of a line (joined with the previous mark of its series; without points the line ends); left, y, right of a
    separate step; left, lane, right or left, low, right, high of a clickable bar; x, low, high of an area; x and y of a
    dot, a shape or a text.
    """

    series: str
    points: Sequence[Any]
    text: str = ""
    """The tooltip of a mark, or the words of a text."""
    words: str = ""
    """The label inside a bar, if it fits."""
    sign: str = ""
    """The sign at a bar, however narrow it is."""
    tone: str = ""
    """For a bar: ``many`` things in one, or ``bad``."""
    key: str = ""
    """The name of a bar, by which a page recognises it."""


Row = list[list[Any]]
"""The marks of a part for a page: index of the series, vertical values, and optionally a text."""


def placed(series: Mapping[str, Series], names: Sequence[str], at: float, row: Row) -> list[Mark]:
    """Return the marks of a part at an index.

    Examples
    --------
    >>> bars = {"spent": Series("box", "tokens", left=0.25, right=0.75)}
    >>> placed(bars, ["spent"], 3, [[0, 0, 120]])[0].points
    [3.25, 0, 3.75, 120]
    """
    found = []
    for place, *given in row:
        look = series[names[place]]
        left, right = at + look.left, at + look.right
        match look.kind:
            case "box":
                found.append(Mark(names[place], [left, given[0], right, given[1]]))
            case "step":
                found.append(Mark(names[place], [left, given[0], right]))
            case "shape":
                found.append(Mark(names[place], [left, given[0]], given[1]))
            case _:
                found.append(Mark(names[place], [left, *given] if given else []))
    return found


@dataclass(slots=True)
class Panel:
    """A plot with an axis beside it, from `low` at the bottom to `high` at the top; `lanes` are stacked.

    Examples
    --------
    >>> panel = Panel("quality", 112, high=1)
    >>> panel.y(1), panel.y(0), panel.y(7)
    (6.0, 106.0, 6.0)
    >>> Panel("calls", 36, lanes=("model", "tool")).y("tool")
    27.0
    """

    key: str
    height: int
    low: float = 0.0
    high: float = 1.0
    lanes: Sequence[str] = ()
    ticks: Sequence[tuple[Any, str]] = ()
    caption: str = ""

    def y(self, value: Any) -> float:
        """Return the distance of a value or lane centre from the top, in pixels; values out of range are clamped."""
        if self.lanes:
            return float((self.lanes.index(value) + 0.5) * self.height / len(self.lanes))
        share = float((value - self.low) / (self.high - self.low))
        return round(PAD_PX + (1 - min(max(share, 0.0), 1.0)) * (self.height - 2 * PAD_PX), 2)

    def span(self, low: Any, high: Any = None) -> tuple[float, float]:
        """Return top and bottom of a box or a bar."""
        if self.lanes:
            half = self.height / len(self.lanes) / 2 - 1
            return (1, self.height - 1) if low is None else (self.y(low) - half, self.y(low) + half)
        return 0 if high is None else self.y(high), self.height if low is None else self.y(low)

    def add_ticks(self, ticks: Iterable[tuple[Any, str]]) -> None:
        """Add those ticks whose labels fit."""
        for value, text in ticks:
            if all(abs(self.y(value) - self.y(other)) >= TICK_PX for other, _ in self.ticks):
                self.ticks = [*self.ticks, (value, text)]

    def data(self) -> dict[str, Any]:
        """Return the panel for a page, without its caption."""
        lanes = {"lanes": list(self.lanes)} if self.lanes else {"low": self.low, "high": self.high}
        return {"key": self.key, "height": self.height, **lanes, "ticks": [list(tick) for tick in self.ticks]}


@dataclass(slots=True)
class Scene:
    """A picture: its panels from top to bottom, its marks, and the horizontal scale of all panels.

    `stops` are selectable positions along the scale, each with its ends and its text; `ticks` are below the last panel.
    """

    panels: Sequence[Panel] = ()
    marks: Sequence[Mark] = ()
    first: float = 0.0
    last: float = 1.0
    series: Mapping[str, Series] = field(default_factory=dict)
    """By name; marks of later series are in front."""
    ticks: Sequence[tuple[float, str]] = ()
    axis: str = ""
    stops: Sequence[tuple[float, float, str]] = ()
    title: str = ""
    legend: Sequence[tuple[str, str]] = ()
    """Names of series and their labels."""
    axis_px: int = AXIS_PX
    """The width of the axes beside the panels; 0 if their lanes need no names."""

    def drawn(self, panel: Panel) -> list[tuple[str, Series, list[Mark]]]:
        """Return the marks of a panel by series, front ones last."""
        found: dict[str, list[Mark]] = {}
        for mark in self.marks:
            found.setdefault(mark.series, []).append(mark)
        wanted = {panel.key, ALL} if panel.ticks and not panel.lanes else {panel.key}
        return [
            (name, look, found[name]) for name, look in self.series.items() if name in found and look.panel in wanted
        ]

    def data(self) -> dict[str, Any]:
        """Return the scene for a page: the marks by series, each without empty fields at its end.

        Words and tooltips are sent once, because many are equal.
        """
        texts: dict[str, int] = {"": 0}
        marks: dict[str, list[list[Any]]] = {}
        for name, points, *words, tone, key in self.marks:
            fields = [list(points), *[texts.setdefault(word, len(texts)) for word in words], tone, key]
            while len(fields) > 1 and not fields[-1]:
                fields.pop()
            marks.setdefault(name, []).append(fields)
        return {
            "panels": [panel.data() for panel in self.panels],
            "marks": marks,
            "texts": list(texts),
            "captions": {panel.key: panel.caption for panel in self.panels},
            "stops": [list(stop) for stop in self.stops],
            "first": self.first,
            "last": self.last,
            "ticks": [list(tick) for tick in self.ticks],
            "legend": [list(entry) for entry in self.legend],
        }

    def share(self, x: float) -> float:
        """Return the relative position along the scale, 0 to 1."""
        return (x - self.first) / (self.last - self.first)


def anchor_at(share: float) -> str:
    """Return the SVG anchor of a text at a relative position, so that it fits at both edges."""
    return "start" if share < 0.12 else "end" if share > 0.88 else "middle"


def series_data(series: Mapping[str, Series]) -> list[dict[str, Any]]:
    """Return series for a page, front ones last."""
    return [
        {"name": name, "kind": look.kind, "panel": look.panel, "style": look.style(), "path": look.path, "swatch": look.swatch,
         "box": look.box if look.kind == "bar" else "", "left": look.left, "right": look.right}
        for name, look in series.items()
    ]  # fmt: skip
