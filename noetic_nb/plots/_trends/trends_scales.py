"""The scales of the trends: turns in columns, the end of an axis, the numbers that a threshold can be dragged to.

Turns are at equal distances, so that all panels of a thread share one axis. Beyond as many as fit side by side, neighbouring
turns share a column, which shows the least and the greatest of its values.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from math import ceil, floor, log10
from typing import Final

from noetic_nb.runs._plain_text import count

# An SVG stays quick up to about a thousand marks; each turn draws three.
COLUMNS_MOST: Final = 300
# Room above the highest value or threshold, for a number on top.
HEADROOM: Final = 1.05
_NICE: Final = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
# A threshold is dragged in at most so many steps, which is finer than a panel has pixels.
STEPS: Final = 100


def column_size(turns: int) -> int:
    """Return how many turns share a column: one, or the least power of two with which all columns fit.

    Examples
    --------
    >>> column_size(300), column_size(301), column_size(10_000)
    (1, 2, 64)
    """
    size = 1
    while turns > COLUMNS_MOST * size:
        size *= 2
    return size


def spread(values: Iterable[float | None]) -> list[float] | None:
    """Return the least, the greatest and the last of the known values; None where none is known.

    Examples
    --------
    >>> spread([0.5, None, 0.9, 0.7]), spread([0.4]), spread([None])
    ([0.5, 0.9, 0.7], [0.4], None)
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    if len(known) == 1:
        return [_short(known[0])]
    return [_short(min(known)), _short(max(known)), _short(known[-1])]


def _short(value: float) -> float:
    # Six digits are more than a pixel shows; whole numbers stay exact.
    return value if isinstance(value, int) else float(f"{value:.6g}")


def nice_top(highest: float) -> float:
    """Return the round number where an axis ends on which so much is drawn.

    Examples
    --------
    >>> nice_top(0), nice_top(7), nice_top(2000), nice_top(0.031)
    (1, 8, 2500, 0.04)
    """
    if not 0 < highest < 1e300:
        return 1
    ten = 10.0 ** floor(log10(highest))
    top = next((step * ten for step in _NICE if step * ten >= HEADROOM * highest), 12 * ten)
    return ceil(top) if highest >= 1 else round(top, 9)


def steps_of(low: float, high: float, value: float, *, is_whole: bool) -> list[float]:
    """Return the numbers that a threshold can be dragged to, `value`, the recorded one, among them.

    Examples
    --------
    >>> steps_of(2, 6, 5, is_whole=True), len(steps_of(0, 1, 0.5, is_whole=False))
    ([2, 3, 4, 5, 6], 101)
    >>> steps_of(0, 2500, 2010, is_whole=True)[-23:-19]
    [1975, 2000, 2010, 2025]
    """
    step = (high - low) / STEPS
    if is_whole:
        step = max(1, ceil(step))
    count = floor((high - low) / step + 1e-9) if step > 0 else 0
    found: list[float] = [
        low + place * step if is_whole else float(f"{low + place * step:.6g}") for place in range(count + 1)
    ]
    for end in (high, value):
        if end not in found:
            insort(found, end)
    return found


def _share(value: float) -> str:
    return f"{value:.2f}"


def _money(value: float) -> str:
    return f"${value:,.2f}" if value >= 0.1 or value == 0 else f"${value:.3g}"


def _time(value: float) -> str:
    seconds = value / 1000
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


FORMATS: Final[dict[str, Callable[[float], str]]] = {"share": _share, "whole": count, "usd": _money, "ms": _time}
"""How values are written, by their unit."""
