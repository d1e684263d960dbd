"""Where things lie: turns in columns across the width, values in pixels of the height.

Turns are at equal distances, in percent of the width, so that all pictures of a thread share one axis. Beyond as many as fit
side by side, neighbouring turns share a column, which shows the least and the greatest of its values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from noetic_nb.runs._plain_text import count

# An SVG stays quick up to about a thousand marks; each turn draws three.
COLUMNS_MOST: Final = 300
# Values at the edges of a picture keep their dots whole.
PAD_PX: Final = 6
# Room above the highest value or threshold, for a number on top.
HEADROOM: Final = 1.18


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


def centre(column: float, columns: int) -> float:
    """Return the middle of a column in percent of the width.

    Examples
    --------
    >>> centre(0, 4), centre(3, 4)
    (12.5, 87.5)
    """
    return 100 * (column + 0.5) / columns


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
    """Return where an axis ends on which so much is drawn.

    Examples
    --------
    >>> nice_top(0), nice_top(2000)
    (1.0, 2360.0)
    """
    return round(HEADROOM * highest, 6) or 1.0


@dataclass(frozen=True, slots=True)
class Scale:
    """Values of one picture, from `low` at its foot to `high` at its head.

    Examples
    --------
    >>> scale = Scale(0, 1, 112)
    >>> scale.y(1), scale.y(0), scale.y(7)
    (6.0, 106.0, 6.0)
    """

    low: float
    high: float
    height: int

    def y(self, value: float) -> float:
        """Return how far a value lies below the top, in pixels; a value beyond an end lies at it."""
        share = (value - self.low) / (self.high - self.low)
        return round(PAD_PX + (1 - min(max(share, 0.0), 1.0)) * (self.height - 2 * PAD_PX), 2)


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


def runs_of(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """Return the stretches of columns that are set, as first and last.

    Examples
    --------
    >>> runs_of([False, True, True, False, True])
    [(1, 2), (4, 4)]
    """
    found: list[tuple[int, int]] = []
    for place, is_set in enumerate(flags):
        if not is_set:
            continue
        if found and found[-1][1] == place - 1:
            found[-1] = (found[-1][0], place)
        else:
            found.append((place, place))
    return found
