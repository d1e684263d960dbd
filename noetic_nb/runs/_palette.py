"""Colours and shapes for pictures of runs, distinguishable for colour-blind readers and on light and dark themes."""

from __future__ import annotations

from typing import Final

# Okabe and Ito, "Color Universal Design" (2008), without black; sky blue is reserved for history.
_BASE: Final = ("#E69F00", "#009E73", "#CC79A7", "#0072B2", "#D55E00", "#F0E442")
# Beyond six layers, hues repeat but colours do not: darker shades, then lighter ones. Light blue is reserved for history.
_DARKER: Final = (0.58, 0.0)
_LIGHTER: Final = (0.5, 0.5)

CATEGORY: Final = {
    "system": "#5B6470",
    "tools": "#8A94A3",
    "framing": "#B9C0CA",
    "history": "#56B4E9",
    "unexplained": "#8B2E5D",
}
"""Fill of the parts that every call has, by kind."""

QUALITY_COLOUR: Final = "#0072B2"
MEAN_COLOUR: Final = "#D55E00"
TOKENS_COLOUR: Final = "#009E73"

SPAN_COLOURS: Final = {
    "turn": "#5B6470", "step": "#B9C0CA", "child": "#CC79A7", "model": "#0072B2", "tool": "#E69F00", "hook": "#009E73",
    "decision": "#56B4E9", "wait": "#F0E442", "compaction": "#332288",
    "regulator": "#8A94A3", "error": "#D55E00", "warning": "#F5CE7F",
}  # fmt: skip
"""Fill of a span, by its kind."""

DECISION_LOOKS: Final = {
    "circuit_break": ("#D55E00", "M-6,-6h12v12h-12z"),
    "scope_drift_warn": ("#E69F00", "M0,-7L7,6H-7z"),
    "procedural_warning": ("#CC79A7", "M-6,0a6,6 0 1,0 12,0a6,6 0 1,0 -12,0z"),
    "low_confidence_spans": ("#56B4E9", "M0,-7L7,0L0,7L-7,0z"),
}
"""Colour and shape of a decision, by its kind; the SVG path is centred on (0, 0), in pixels."""
ACTION_COLOURS: Final = {"allow": "#009E73", "guide": "#E69F00", "ask": "#56B4E9", "deny": "#D55E00"}
"""Fill of a steering decision, by its action."""
OTHER_LOOK: Final = ("#8A94A3", "M0,-7L7,0L0,7L-7,0z")


def _shade(colour: str, keep: float, white: float) -> str:
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(channel * keep + 255 * white):02X}" for channel in channels)


LAYER_COLOURS: Final = (
    *_BASE,
    *(_shade(colour, *_DARKER) for colour in _BASE),
    *(_shade(colour, *_LIGHTER) for colour in _BASE if colour != "#0072B2"),
)
"""Fills of layers, in the order of their first appearance in a run."""


def layer_colour(position: int) -> str:
    """Return the fill of the layer at a position, 0 for the first."""
    return LAYER_COLOURS[position % len(LAYER_COLOURS)]


def _luminance(colour: str) -> float:
    linear = []
    for i in (1, 3, 5):
        value = int(colour[i : i + 2], 16) / 255
        linear.append(value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4)
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def ink_on(fill: str) -> str:
    """Return black or white, whichever has more contrast on a fill ``#RRGGBB``: at least 4.5 to 1 for every fill."""
    light = _luminance(fill)
    return "#000000" if (light + 0.05) / 0.05 >= 1.05 / (light + 0.05) else "#FFFFFF"
