"""A metric over one of the values that were tried, and over the budgets that memory was given."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from pandas.api.types import is_numeric_dtype

from noetic_nb.plots._figure_style import (
    Look,
    Theme,
    as_figure,
    axes_for,
    axis_name,
    named,
    needs_columns,
    put_legend,
    say_empty,
    series,
)


@as_figure
def sweep(frame: Any, x: str, y: str, ax: Axes | None = None, *, theme: Theme | None = None) -> Axes:
    """Draw a metric of a sweep over one of the values that were tried, with its intervals.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `noetic_nb.lab.sweep`. Each combination of the other values is a line of its own.
    x, y : str
        A column of values, and a metric.
    ax : matplotlib Axes, optional
        Where to draw; on a figure of their own by default.
    theme : {"light", "dark"}, optional
        By default inks follow the ground of the figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes. A value without the metric is a gap.

    Raises
    ------
    NoeticConfigError
        ``INVALID_FRAME``, ``UNKNOWN_COLUMN``, ``INVALID_AXES`` or ``INVALID_THEME``.

    Examples
    --------
    >>> import pandas
    >>> frame = pandas.DataFrame({"cap": [1, 2], "stopped": [0.5, 0.2], "low": [0.4, 0.1], "high": [0.6, 0.3]})
    >>> sweep(frame, "cap", "stopped").get_ylabel()
    'stopped'
    """
    needs_columns(frame, x, y)
    others = [name for name in frame.attrs.get("space", ()) if name != x and name in frame.columns]
    low, high = (f"{y}_low", f"{y}_high") if f"{y}_low" in frame.columns else ("low", "high")
    ends = (low, high) if low in frame.columns and high in frame.columns else None
    axes, look = axes_for(ax, theme, axis_name(frame, x), axis_name(frame, y))
    drawn = lines(axes, look, frame, x, y, others, ends)
    if others:
        put_legend(axes, look, list(drawn.values()), list(drawn))
    return axes


def lines(
    axes: Axes, look: Look, frame: Any, x: str, y: str, by: list[str], ends: tuple[str, str] | None
) -> dict[str, Any]:
    """Draw a line for each combination of the columns `by`, with error bars between the columns `ends`; returns them by name."""
    if not frame[y].notna().any():
        say_empty(axes, look, f"Nothing is known of {named(y)}" if len(frame) else "The table has no rows")
        return {}
    drawn: dict[str, Any] = {}
    keys = [tuple(map(named, row)) for row in frame[by].itertuples(index=False)] if by else [()] * len(frame)
    is_number = is_numeric_dtype(frame[x])
    # Values that are no numbers stand side by side, in the order of the table.
    labels = [] if is_number else list(dict.fromkeys(map(named, frame[x])))
    for place, key in enumerate(dict.fromkeys(keys)):
        rows = frame[[one == key for one in keys]]
        rows = rows.sort_values(x, kind="stable") if is_number else rows
        spread = None
        if ends is not None:
            spread = [(rows[y] - rows[ends[0]]).clip(lower=0), (rows[ends[1]] - rows[y]).clip(lower=0)]
        name = ", ".join(key if by == ["layers"] else map(" ".join, zip(map(named, by), key, strict=True)))
        colour, marker, dash = series(place)
        drawn[name] = axes.errorbar(
            rows[x] if is_number else [labels.index(named(value)) for value in rows[x]], rows[y], spread,
            color=colour, marker=marker, linestyle=dash, ms=look.line(7), lw=look.line(2), elinewidth=look.line(1.3),
            capsize=look.line(4), mec=look.ground, mew=look.line(0.5),
        )  # fmt: skip
    if labels:
        axes.set_xticks(range(len(labels)), labels, parse_math=False)
    axes.margins(0.06)
    return drawn
