"""Stacked bars as SVG without scripts: lengths in percent of the page, so that text keeps its size at every width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetic_nb.markup import escape
from noetic_nb.runs.model_calls import Part
from noetic_nb.runs.palette import CATEGORY, ink_on, layer_colour
from noetic_nb.runs.plain_text import count

__all__ = ["bar", "fill_of", "swatch", "widths"]

# A part that exists is seen, however small: about two pixels on a narrow page.
LEAST_WIDTH: Final = 0.45
# A label is drawn where it fits a narrow page, or else a roomy one only; seven pixels are a wide letter of this size.
NARROW_PX: Final = 340
ROOMY_PX: Final = 700
LETTER_PX: Final = 7.0


def widths(tokens: Sequence[float], scale: float) -> list[float]:
    """Return the lengths of the segments of a bar.

    Parameters
    ----------
    tokens : sequence of float, shape (n,), tokens
        What each segment stands for, > 0.
    scale : float, tokens
        What the whole length stands for.

    Returns
    -------
    list of float, shape (n,), percent
        Each at least `LEAST_WIDTH`; what small segments gain is taken from large ones, in proportion.

    Examples
    --------
    >>> widths([50, 25], 100)
    [50.0, 25.0]
    >>> [round(width, 2) for width in widths([1, 999_999], 1_000_000)]
    [0.45, 99.55]
    """
    exact = [100 * number / scale for number in tokens]
    wide = [max(width, LEAST_WIDTH) for width in exact]
    excess = sum(wide) - sum(exact)
    slack = sum(wide) - LEAST_WIDTH * len(wide)
    if excess <= 0 or slack <= excess:
        return wide
    return [width - excess * (width - LEAST_WIDTH) / slack for width in wide]


def fill_of(part: Part) -> str | None:
    """Return the colour of a segment, None for the parts that are drawn as an outline."""
    if part.layer is not None:
        return layer_colour(part.layer)
    return CATEGORY.get(part.kind)


def _look(part: Part) -> str:
    fill = fill_of(part)
    if fill is None:  # the reserve is a light field, what is free is an empty frame
        opacity = "0.16" if part.kind == "reserve" else "0"
        return f'fill="currentColor" fill-opacity="{opacity}" stroke="currentColor" stroke-opacity="0.55"' + (
            "" if part.kind == "reserve" else ' stroke-dasharray="3 3"'
        )
    if part.kind == "yielded":
        return f'fill="{fill}" fill-opacity="0.22" stroke="{fill}" stroke-dasharray="3 2"'
    return f'fill="{fill}"'


def _label(part: Part, width: float, height_px: int) -> str:
    needed = len(part.label) * LETTER_PX + 12
    if part.kind == "yielded" or needed > width / 100 * ROOMY_PX:
        return ""
    roomy = ' class="nn-roomy"' if needed > width / 100 * NARROW_PX else ""
    fill = fill_of(part)
    ink = "currentColor" if fill is None else ink_on(fill)
    return f'<text{roomy} x="6" y="{height_px / 2 + 4.5}" font-size="12" fill="{ink}">{escape(part.label)}</text>'


def bar(parts: Sequence[Part], scale: float, *, label: str, height_px: int, limit: float | None = None) -> str:
    """Return a stacked bar.

    Parameters
    ----------
    parts : sequence of Part
        The segments, from the left.
    scale : float, tokens
        What the whole length stands for.
    label : str
        What the bar says, for people who do not see it.
    height_px : int, pixels
        Height.
    limit : float, optional, tokens
        Where the budget ends, when the bar goes beyond it.

    Returns
    -------
    str
        An ``svg`` element, escaped.
    """
    drawn = [
        f'<svg class="nn-bar" role="img" aria-label="{escape(label)}" width="100%" height="{height_px}" '
        'xmlns="http://www.w3.org/2000/svg">'
    ]
    left = 0.0
    for part, width in zip(parts, widths([part.tokens for part in parts], scale), strict=True):
        what = f"{part.label}{' (yielded)' if part.kind == 'yielded' else ''}: {count(part.tokens)} tokens"
        drawn.append(
            f'<svg x="{left:.3f}%" width="{width:.3f}%" height="{height_px}"><title>{escape(what)}</title>'
            f'<rect class="nn-mark" data-kind="{part.kind}" width="100%" height="{height_px}" {_look(part)}/>'
        )
        if height_px >= 20:
            drawn.append(_label(part, width, height_px))
        drawn.append("</svg>")
        left += width
    if limit is not None and limit < scale:
        at = 100 * limit / scale
        drawn.append(
            f'<rect class="nn-limit" x="{at:.3f}%" width="3" height="{height_px}"><title>Budget</title></rect>'
        )
    drawn.append("</svg>")
    return "".join(drawn)


def swatch(part: Part) -> str:
    """Return a small square in the look of a segment."""
    return (
        '<svg class="nn-swatch" width="12" height="12" aria-hidden="true" xmlns="http://www.w3.org/2000/svg">'
        f'<rect x="0.5" y="0.5" width="11" height="11" {_look(part)}/></svg>'
    )
