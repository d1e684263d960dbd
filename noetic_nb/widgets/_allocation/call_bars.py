"""The bars of a model call and their axis, as SVG without scripts.

Lengths are percentages of the page width, so that text keeps its size at every width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from noetic_nb.markup import escape
from noetic_nb.runs._palette import CATEGORY, ink_on, layer_colour
from noetic_nb.runs._plain_text import count, plain
from noetic_nb.runs._requests.model_calls import Calls, Part
from noetic_nb.runs._requests.prefix_reuse import PrefixReuse

BROKE = "broke the prefix here"


@dataclass(frozen=True, slots=True)
class CallCaching:
    """A sentence about a call, the key of the part that broke its prefix, and the shared tokens by key."""

    line: str = ""
    broke: str | int | None = None
    shared: dict[str | int, int] = field(default_factory=dict)


NO_CACHING = CallCaching()
"""For a call that is not compared, such as one that was planned again."""


def caching_of(reuse: PrefixReuse | None, calls: Calls) -> CallCaching:
    """Return the caching to show for a call; items appended after the history count as history."""
    if reuse is None:
        return CallCaching("Caching: the run does not have all of this request.")
    shared: dict[str | int, int] = {}
    for part in reuse.parts:
        key = _key(part.origin, calls)
        shared[key] = shared.get(key, 0) + part.shared
    broke = None if reuse.broken_by is None else _key(reuse.broken_by, calls)
    line = f"{_shared(reuse)} {_cached(reuse)}"
    return CallCaching(line, broke, shared)


def _key(origin: str, calls: Calls) -> str | int:
    if origin.startswith("layer:"):
        number = calls.number(origin.removeprefix("layer:"))
        return "history" if number is None else number  # a summary that replaces history
    return "history" if origin == "appended" else origin


def _shared(reuse: PrefixReuse) -> str:
    if reuse.is_first:
        return "Caching: no call of this model before it in the thread."
    share = f" ({100 * reuse.shared / reuse.tokens:.0f}%)" if reuse.tokens else ""
    begins = f"Caching: begins like the call before for {count(reuse.shared)} of {count(reuse.tokens)} tokens{share}"
    if reuse.broken_by is None:
        return f"{begins}, and goes on."
    kind, _, name = reuse.broken_by.partition(":")
    words = {"layer": f"layer {plain(name)}", "system": "the instructions", "tools": "the tools"}
    return f"{begins}: {words.get(kind, 'the history')} {BROKE}."


def _cached(reuse: PrefixReuse) -> str:
    if reuse.rules is None or reuse.cached is None:
        model = plain(reuse.model) if reuse.model else "not recorded"
        return f"No prediction: how the model ({model}) is cached is not known."
    least = "" if reuse.cached else f" (the least is {count(reuse.rules.minimum)})"
    return f"Predicted to be cached, by the rules of {plain(reuse.rules.provider)}: {count(reuse.cached)}{least}."


# Smallest width of a part in percent, about two pixels on a narrow page, so that every part is visible.
LEAST_WIDTH: Final = 0.45
# Page widths for fitting labels: a narrow page, or a wide one only; a wide letter has seven pixels.
NARROW_PX: Final = 340
ROOMY_PX: Final = 700
LETTER_PX: Final = 7.0
# A wedge and a line at the left edge of the part that broke the prefix.
BROKE_PATH: Final = "M0 0h13L7.8 9V60H5.2V9z"

LOOKS: Final[dict[str, dict[str, str]]] = {
    **{kind: {"fill": "$"} for kind in ("system", "tools", "layer", "framing", "history", "unexplained")},
    "yielded": {"fill": "$", "fill-opacity": "0.22", "stroke": "$", "stroke-dasharray": "3 2"},
    # Free space is an empty frame, the reserve is filled lightly.
    "free": {
        "fill": "currentColor",
        "fill-opacity": "0",
        "stroke": "currentColor",
        "stroke-opacity": "0.55",
        "stroke-dasharray": "3 3",
    },
    "reserve": {"fill": "currentColor", "fill-opacity": "0.16", "stroke": "currentColor", "stroke-opacity": "0.55"},
}
"""SVG attributes of a segment, by its kind; ``$`` is the colour of the layer or kind."""


def widths(tokens: Sequence[float], scale: float) -> list[float]:
    """Return the lengths of a bar's segments, in percent of a scale.

    Each is at least `LEAST_WIDTH`; the width that small segments gain is taken proportionally from large ones. All tokens
    must be positive.

    Examples
    --------
    >>> widths([50, 25], 100)
    [50.0, 25.0]
    >>> [round(width, 2) for width in widths([1, 999_999], 1_000_000)]
    [0.45, 99.55]
    """
    exact = [100 * number / scale for number in tokens]
    wide = [max(width, LEAST_WIDTH) for width in exact]
    # Enlarging small segments makes the bar too long; only the excess of the others over the minimum can shrink.
    excess = sum(wide) - sum(exact)
    slack = sum(wide) - LEAST_WIDTH * len(wide)
    if excess <= 0 or slack <= excess:
        return wide
    return [width - excess * (width - LEAST_WIDTH) / slack for width in wide]


def ticks(scale: float) -> list[list[Any]]:
    """Return the ticks of a token axis: positions in percent, and labels.

    Examples
    --------
    >>> ticks(8_000)
    [[0.0, '0'], [25.0, '2,000'], [50.0, '4,000'], [75.0, '6,000'], [100.0, '8,000']]
    >>> ticks(37)
    [[0.0, '0'], [27.027, '10'], [54.054, '20'], [81.081, '30']]
    """
    unit = 10.0 ** math.floor(math.log10(scale / 4))
    # The coarsest usual step that leaves at least three ticks besides 0.
    step = next((unit * part for part in (10, 5, 2, 1) if unit * part >= 1 and scale / (unit * part) >= 3), 1.0)
    return [[round(100 * at * step / scale, 3), count(at * step)] for at in range(int(scale / step) + 1)]


def key_of(part: Part) -> str | int:
    """Return the key of a part in messages; for a layer a number, because a call may have many layers."""
    if part.layer is None:
        return part.kind
    return -1 - part.layer if part.kind == "yielded" else part.layer


def _fill_of(part: Part) -> str | None:
    """Return the colour of a segment, None for parts drawn as an outline."""
    if part.layer is not None:
        return layer_colour(part.layer)
    return CATEGORY.get(part.kind)


def fixed_parts() -> dict[str, list[str]]:
    """Return label, fill and text colour of the parts that every call has; layers have the same three."""
    filled = {kind: [kind.capitalize(), fill, ink_on(fill)] for kind, fill in CATEGORY.items()}
    return {**filled, "free": ["Free", "", "currentColor"], "reserve": ["Reserve", "", "currentColor"]}


def _look(part: Part) -> str:
    fill = _fill_of(part) or ""
    return " ".join(f'{name}="{value.replace("$", fill)}"' for name, value in LOOKS[part.kind].items())


def _tip(part: Part) -> str:
    return f"{part.label}{' (yielded)' if part.kind == 'yielded' else ''}: {count(part.tokens)} tokens"


def _label(part: Part, width: float, height_px: int) -> str:
    needed = len(part.label) * LETTER_PX + 12
    # Static pages cannot measure text: estimate its width; container queries hide labels that do not fit.
    if part.kind == "yielded" or needed > width / 100 * ROOMY_PX:
        return ""
    roomy = ' class="nn-roomy"' if needed > width / 100 * NARROW_PX else ""
    fill = _fill_of(part)
    ink = "currentColor" if fill is None else ink_on(fill)
    return f'<text{roomy} x="6" y="{height_px / 2 + 4.5}" font-size="12" fill="{ink}">{escape(part.label)}</text>'


def bar(
    parts: Sequence[Part],
    scale: float,
    *,
    label: str,
    height_px: int,
    limit: float | None = None,
    broke: str | int | None = None,
) -> str:
    """Return a stacked bar as an escaped ``svg`` element.

    Segments start at the left, `scale` tokens are the whole length, and `label` is for screen readers. `limit` is the
    end of the budget in tokens, if the bar exceeds it; `broke` is the key of the part that broke the prefix.
    """
    drawn = [
        f'<svg class="nn-bar" role="img" aria-label="{escape(label)}" width="100%" height="{height_px}" '
        'xmlns="http://www.w3.org/2000/svg">'
    ]
    left = 0.0
    for part, width in zip(parts, widths([part.tokens for part in parts], scale), strict=True):
        drawn.append(
            f'<svg x="{left:.3f}%" width="{width:.3f}%" height="{height_px}"><title>{escape(_tip(part))}</title>'
            f'<rect class="nn-mark" data-kind="{part.kind}" width="100%" height="{height_px}" {_look(part)}/>'
        )
        if height_px >= 20:
            drawn.append(_label(part, width, height_px))
        if broke is not None and broke == key_of(part):
            drawn.append(f'<path class="nn-broke" d="{BROKE_PATH}"><title>{escape(part.label)} {BROKE}</title></path>')
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
    """Return a small square in the style of a segment."""
    return (
        '<svg class="nn-swatch" width="12" height="12" aria-hidden="true" xmlns="http://www.w3.org/2000/svg">'
        f'<rect x="0.5" y="0.5" width="11" height="11" {_look(part)}/></svg>'
    )


def axis(scale: float) -> str:
    """Return the token axis below the bars."""
    marks = ticks(scale)
    words = "".join(
        f'<text x="{place:.3f}%" y="18" font-size="11" text-anchor="{_anchor(place)}"{_roomy(at, len(marks))}>{number}</text>'
        f'<line x1="{place:.3f}%" x2="{place:.3f}%" y1="0" y2="5" stroke="currentColor"/>'
        for at, (place, number) in enumerate(marks)
    )
    return (
        '<svg class="nn-axis" aria-hidden="true" width="100%" height="22" fill="currentColor" '
        f'xmlns="http://www.w3.org/2000/svg">{words}</svg>'
    )


def _anchor(place: float) -> str:
    return "start" if place < 4 else "end" if place > 96 else "middle"


def _roomy(at: int, marks: int) -> str:
    # Hide every other label on a narrow page, where seven would overlap.
    return ' class="nn-roomy"' if marks > 4 and at % 2 else ""
