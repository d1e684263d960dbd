"""The style of figures: sizes, text colours and backgrounds in one place, and axes that a notebook shows without pyplot.

Colours of layers, series and decisions come from `noetic_nb.runs._palette`. Sizes depend on the width of the axes, from
one column of a paper to a slide; text colours depend on the background.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from hashlib import sha256
from html import escape
from io import BytesIO
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox, offset_copy

from noetic_nb.errors import NoeticConfigError
from noetic_nb.runs._palette import LAYER_COLOURS, MEAN_COLOUR, OTHER_LOOK, QUALITY_COLOUR, TOKENS_COLOUR, ink_on
from noetic_nb.runs._plain_text import clip, plain_line

Theme: TypeAlias = Literal["light", "dark"]

# Page and screen; a transparent picture would lose its black text on a dark theme.
GROUNDS: Final[Mapping[str, str]] = MappingProxyType({"light": "#FFFFFF", "dark": "#121212"})
# Legible from the back of a room when the figure fills a slide (16:9, 10 inches wide).
SIZE: Final = (10.0, 5.6)
SCREEN_DPI: Final = 100
# Text size in points at an axes width in inches: journals require at least 7 pt, in a column of 85 mm.
LEAST_TEXT: Final = (3.35, 7.0)
MOST_TEXT: Final = (SIZE[0], 13.0)
# The fraction of a figure's width that single axes occupy, with matplotlib's default margins.
USUAL_SHARE: Final = 0.775
# Average width of a letter, and height of a legend line, relative to the text size.
LETTER: Final = 0.54
LEGEND_LINE: Final = 1.55
# Height of a title line, relative to the text size, and its distance from the axes, in points.
TITLE_LINE: Final = 1.25
TITLE_PAD: Final = 8.0
# A swatch with its gaps, in letters.
SWATCH: Final = 5
MOST_COLUMNS: Final = 6
# Height of tick labels and axis label between axes and legend, relative to the text size.
BELOW_AXIS: Final = 3.3
# Largest fraction of the height of the axes that a legend may take.
LEGEND_SHARE: Final = 0.5
# Length of names beside marks and in legends, in letters.
NAME_LETTERS: Final = 34

DECISION_MARKERS: Final[Mapping[str, str]] = MappingProxyType(
    {"circuit_break": "s", "scope_drift_warn": "^", "procedural_warning": "o", "low_confidence_spans": "D"}
)


# Embed whole fonts, for editing and searching; publishers reject matplotlib's default, Type 3.
VECTOR_FONTS: Final[Any] = MappingProxyType({"pdf.fonttype": 42, "ps.fonttype": 42})
# The page determines the theme: Jupyter and its exports, VS Code; otherwise the reader's preference. If neither is
# understood, or the style sheet was removed, the light picture is shown; it is also used for printing.
NIGHT: Final = """
.noetic-nb-figure img { max-width: 100%; }
@media screen and (prefers-color-scheme: dark) {
  body:not([data-jp-theme-light="true"], .vscode-light) .noetic-nb-figure img { content: var(--nn-night); } }
@media screen { body:is([data-jp-theme-light="false"], .vscode-dark) .noetic-nb-figure img { content: var(--nn-night); } }
"""

Drawing = TypeVar("Drawing", bound=Callable[..., Axes])


class ShownAxes(Axes):
    """Axes of a figure that pyplot does not know; a notebook shows the figure."""

    in_dark: Callable[[], Axes] | None = None
    """Draws the same for a dark page; None if the user chose a theme."""
    about: str = ""
    """A description of the figure for screen readers."""

    def _repr_png_(self) -> bytes:
        picture = BytesIO()
        figure_of(self).savefig(picture, format="png", dpi=SCREEN_DPI, metadata={"Software": None})
        return picture.getvalue()

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        alt = ". ".join([text for text in (self.about, *self.get_title(loc="left").splitlines()) if text])
        about = {"image/png": {"alt": alt}}
        if self.in_dark is None:
            return {}, about
        night: Any = self.in_dark()
        by_day, by_night = (f"data:image/png;base64,{b64encode(axes._repr_png_()).decode()}" for axes in (self, night))
        name = f"nn-{sha256(by_night.encode()).hexdigest()[:16]}"
        sheet = f'{NIGHT}.{name} {{ --nn-night: url("{by_night}"); }}'
        image = f'<img alt="{escape(alt)}" src="{by_day}">'
        html = f'<div class="jp-RenderedImage noetic-nb-figure {name}"><style>{sheet}</style>{image}</div>'
        return {"text/html": html}, about


def as_figure(draw: Drawing) -> Drawing:
    """Decorate a function that draws on axes: its figure follows the theme of the page, and is saved with whole fonts."""
    about = (draw.__doc__ or "").split("\n")[0].removeprefix("Draw ").rstrip(".")

    @wraps(draw)
    def drawn(*args: Any, **kwargs: Any) -> Axes:
        axes = draw(*args, **kwargs)
        whole: Any = figure_of(axes)
        if "savefig" not in vars(whole):
            whole.savefig = partial(_save, type(whole).savefig, whole)
        if isinstance(axes, ShownAxes):
            axes.about = about[:1].upper() + about[1:]
            if kwargs.get("theme") is None and _ground(whole) == GROUNDS["light"]:
                axes.in_dark = partial(drawn, *args, **{**kwargs, "theme": "dark"})
        return axes

    return drawn  # type: ignore[return-value]


def _save(save: Callable[..., None], whole: Figure, *args: Any, **kwargs: Any) -> None:
    fonts: Any = VECTOR_FONTS
    with rc_context(fonts):
        save(whole, *args, **kwargs)


class Series(NamedTuple):
    """The style of one of several lines, distinguishable by shape and dash without colours."""

    colour: str
    marker: str
    dash: Any


# From dark to light in greyscale; without yellow, which is hard to see as a line on white.
_LINES: Final = (QUALITY_COLOUR, MEAN_COLOUR, TOKENS_COLOUR, LAYER_COLOURS[2], LAYER_COLOURS[0], OTHER_LOOK[0])
_MARKERS: Final = ("o", "s", "D", "^", "v", "P", "X")
_DASHES: Final[tuple[Any, ...]] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)), (0, (3, 1, 1, 1, 1, 1)))


def series(place: int) -> Series:
    """Return the style of the line with an index; the first sixty differ."""
    return Series(_LINES[place % len(_LINES)], _MARKERS[place % len(_MARKERS)], _DASHES[place % len(_DASHES)])


@dataclass(frozen=True, slots=True)
class Look:
    """Colours and sizes of one figure: `text` is in points, `width` (of the axes with their labels) in inches."""

    ground: str
    ink: str
    muted: str
    faint: str
    text: float
    width: float

    @property
    def small(self) -> float:
        """Size of tick labels and legends, in points."""
        return max(6.0, self.text - 2.0)

    @property
    def scale(self) -> float:
        """The scale of lines and marks relative to a slide."""
        return self.text / MOST_TEXT[1]

    def letters(self, size: float) -> int:
        """Return how many letters of a size fit side by side in the axes."""
        return max(1, int(72 * self.width * USUAL_SHARE / (LETTER * size)))

    def line(self, points: float) -> float:
        """Return a line width or mark size, given as on a slide."""
        return points * (0.4 + 0.6 * self.scale)


def axes_for(ax: Any, theme: Theme | None, x: str = "", y: str = "", *, height: float = SIZE[1]) -> tuple[Axes, Look]:
    """Return axes to draw on (the given ones, or those of a new figure with a height in inches), and their style.

    `x` and `y` label the axes; by default the text colours follow the figure's background. Raises `NoeticConfigError`
    ``INVALID_AXES`` or ``INVALID_THEME``.
    """
    if theme is not None and theme not in list(GROUNDS):
        raise NoeticConfigError("INVALID_THEME", "There is no such theme.", given=theme, hint='Use "light" or "dark".')
    if ax is None:
        figure = Figure(figsize=(SIZE[0], height), layout="constrained")
        ground = _ground(figure) if theme is None else GROUNDS[theme]
        figure.set_facecolor(ground)
        axes: Axes = figure.add_subplot(axes_class=ShownAxes)
    elif isinstance(ax, Axes):
        axes = ax
        ground = _ground(axes.get_figure()) if theme is None else GROUNDS[theme]
    else:
        hint = "Pass ax=figure.subplots()."
        raise NoeticConfigError("INVALID_AXES", "This is not one matplotlib Axes.", given=ax, hint=hint)
    look = look_of(axes, ground)
    style(axes, look)
    if x:
        axes.set_xlabel(x)
    if y:
        axes.set_ylabel(y)
    return axes, look


def put_title(axes: Axes, look: Look, text: str) -> None:
    """Write a title above the left end of axes, as text, not as a formula."""
    axes.set_title(text, loc="left", size=look.text, color=look.ink, parse_math=False)


def style(axes: Axes, look: Look) -> None:
    """Set background, spines and text sizes of axes."""
    axes.set_facecolor(look.ground)
    axes.grid(visible=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(look.ink)
    axes.spines[["left", "bottom"]].set_linewidth(look.line(1.0))
    axes.tick_params(
        colors=look.ink, labelsize=look.small, width=look.line(1.0), length=look.line(4.0), pad=look.line(4.0)
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set(size=look.text, color=look.ink, parse_math=False)
        axis.offsetText.set(size=look.small, color=look.ink)


def figure_of(axes: Axes) -> Figure:
    """Return the outermost figure of axes; raises `NoeticConfigError` ``INVALID_AXES`` if there is none."""
    figure = axes.get_figure(root=True)
    if not isinstance(figure, Figure):
        raise NoeticConfigError("INVALID_AXES", "The axes have no figure.", given=axes, hint="Take fresh axes.")
    return figure


def _ground(figure: Figure | SubFigure | None) -> str:
    """Return the visible background: subfigures are transparent, and the outermost figure may be as well."""
    around = figure
    while around is not None:
        red, green, blue, opacity = to_rgba(around.get_facecolor())
        if opacity >= 0.5:
            return to_hex((red, green, blue)).upper()
        around = getattr(around, "_parent", None) if isinstance(around, SubFigure) else None
    return GROUNDS["light"]


def _mixed(one: str, other: str, share: float) -> str:
    first, second = to_rgba(one), to_rgba(other)
    red, green, blue = (share * a + (1 - share) * b for a, b in zip(first[:3], second[:3], strict=True))
    return to_hex((red, green, blue)).upper()


def look_of(axes: Axes, ground: str) -> Look:
    """Return the style for axes of this width."""
    # Include the margins; with several axes, each has its share of the figure.
    width = axes.bbox.width / figure_of(axes).dpi / USUAL_SHARE
    (narrow, least), (wide, most) = LEAST_TEXT, MOST_TEXT
    text = min(most, max(least, least + (width - narrow) * (most - least) / (wide - narrow)))
    ink = ink_on(ground)
    return Look(ground, ink, _mixed(ink, ground, 0.54), _mixed(ink, ground, 0.13), text, width)


def named(value: object, length: int = NAME_LETTERS) -> str:
    """Return a name from any source as one short line."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return plain_line(text, length) or "(blank)"


def axis_name(frame: Any, column: str) -> str:
    """Return the name of a column with its unit, if the table has one in ``attrs["units"]``."""
    unit = (frame.attrs.get("units") or {}).get(column)
    return named(column) if unit is None else f"{named(column)} ({named(unit)})"


def needs_columns(frame: Any, *names: str) -> None:
    """Reject an object that is not a table (``INVALID_FRAME``), or lacks a column (``UNKNOWN_COLUMN``)."""
    if not hasattr(frame, "columns") or not hasattr(frame, "attrs"):
        raise NoeticConfigError("INVALID_FRAME", "That is not a table.", given=frame, hint="Pass a pandas.DataFrame.")
    for name in names:
        if name not in frame.columns:
            known = ", ".join(map(str, frame.columns))
            hint = f"There are {known}."
            raise NoeticConfigError("UNKNOWN_COLUMN", "The table has no column of this name.", given=name, hint=hint)


def filled(look: Look, colour: str, hatch: str | None) -> dict[str, Any]:
    """Return the drawing options for bars with a thin gap between them."""
    return {"facecolor": colour, "edgecolor": look.ground, "linewidth": look.line(0.5), "hatch": hatch}


def say_empty(axes: Axes, look: Look, text: str) -> None:
    """Write what is missing instead of a picture."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(
        0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", size=look.text, color=look.ink, parse_math=False
    )  # fmt: skip


def put_legend(
    axes: Axes, look: Look, handles: Sequence[Any], names: Sequence[str], *, weights: Sequence[float] | None = None
) -> None:
    """Put a legend below the axes, where it covers nothing.

    A layout engine makes room for it. Without one, the axes become lower, so that the picture is complete without
    ``bbox_inches="tight"``. If there is no room for all entries, those with the lowest weight (by default the last
    ones) are left out, and counted.
    """
    if not handles:
        return
    figure = figure_of(axes)
    room = look.letters(look.small)
    longest = max(8, min(max(map(len, names)), room - SWATCH))
    columns = max(1, min(MOST_COLUMNS, len(names), (room + 2) // (longest + SWATCH)))
    height = 72 * axes.bbox.height / figure.dpi
    most = columns * max(2, int(LEGEND_SHARE * height / (LEGEND_LINE * look.small)))
    drop = BELOW_AXIS * look.text + look.line(4.0)
    shown = list(zip(handles, names, strict=True))
    if len(shown) > most:
        heaviest = range(len(shown)) if weights is None else sorted(range(len(shown)), key=lambda at: -weights[at])
        kept = sorted(heaviest[: most - 1])
        shown = [*(shown[at] for at in kept), (Line2D([], [], linestyle="none"), f"and {len(shown) - len(kept)} more")]
    legend = axes.legend(
        [handle for handle, _ in shown],
        ["entry"] * len(shown),
        loc="upper left",
        bbox_to_anchor=(0.0, 0.0),
        bbox_transform=offset_copy(axes.transAxes, figure, y=-drop, units="points"),
        borderaxespad=0.0,
        borderpad=0.0,
        ncols=columns,
        frameon=False,
        fontsize=look.small,
        labelcolor=look.ink,
        handlelength=1.9,
        handletextpad=0.6,
        columnspacing=1.4,
    )
    # Set names here: matplotlib leaves out labels that begin with an underscore, and would parse formulas.
    for text, (_, name) in zip(legend.get_texts(), shown, strict=True):
        text.set(text=clip(name, longest), parse_math=False)
    if figure.get_layout_engine() is None:
        place = axes.get_position()
        title = axes.get_title(loc="left")
        if title:  # the axes also make room for a title
            lines = (title.count("\n") + 1) * TITLE_LINE * look.text + TITLE_PAD
            missing = lines / height * place.height - (1 - place.y1)
            if missing > 0:
                place = Bbox.from_extents(place.x0, place.y0, place.x1, place.y1 - missing)
                height *= 1 - missing / (place.height + missing)
        # The bottom margin already has the axis with its label, or part of them.
        margin = place.y0 * height / place.height
        taken = -(-len(shown) // columns) * LEGEND_LINE * look.small + max(0.0, drop - margin + look.small)
        share = taken / height * place.height
        axes.set_position((place.x0, place.y0 + share, place.width, place.height - share))
