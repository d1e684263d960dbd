"""Rows of a table, and of them those that no other beats."""

from __future__ import annotations

from math import inf
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from noetic_nb.lab._sweeping.pareto_front import pareto as rows_not_beaten
from noetic_nb.plots._figure_style import (
    Look,
    Theme,
    as_figure,
    axes_for,
    axis_name,
    figure_of,
    named,
    needs_columns,
    put_legend,
    say_empty,
)
from noetic_nb.runs._palette import OTHER_LOOK, QUALITY_COLOUR

# Of the height of a number: closer ones are read as one.
NEAR: Final = 2.0
# Further from its mark a number belongs to nothing.
MOST_OUT: Final = 3


@as_figure
def pareto(
    frame: Any, x: str, y: str, ax: Axes | None = None, *, label: str | None = None, theme: Theme | None = None
) -> Axes:
    """Draw the rows of a table, and of them those that none beats: less of `x` is better, and more of `y`.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `noetic_nb.lab.sweep`, or any other with two columns of numbers; ``attrs["units"]`` names their units.
    x, y : str
        What it costs, and what it gives.
    ax : matplotlib Axes, optional
        Where to draw; on a figure of their own by default.
    label : str, optional
        A column whose text names the rows that are not beaten, numbered, in the legend.
    theme : {"light", "dark"}, optional
        By default inks follow the ground of the figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes. Rows without one of the two numbers are not drawn.

    Raises
    ------
    NoeticConfigError
        ``INVALID_FRAME``, ``UNKNOWN_COLUMN``, ``INVALID_OBJECTIVES``, ``INVALID_AXES`` or ``INVALID_THEME``.

    Examples
    --------
    >>> import pandas
    >>> pareto(pandas.DataFrame({"blocked": [0.1, 0.3], "caught": [0.5, 0.9]}), "blocked", "caught").get_xlabel()
    'blocked'
    """
    needs_columns(frame, x, y, *([] if label is None else [label]))
    front = rows_not_beaten(frame, minimise=x, maximise=y).sort_values([x, y])
    axes, look = axes_for(ax, theme, axis_name(frame, x), axis_name(frame, y))
    if not len(front):
        say_empty(axes, look, "No row has both numbers" if len(frame) else "The table has no rows")
        return axes
    handles = axes.plot(frame[x], frame[y], "o", color=OTHER_LOOK[0], ms=look.line(7), label="configurations")
    handles += axes.plot(
        front[x], front[y], color=QUALITY_COLOUR, drawstyle="steps-post", lw=look.line(2), marker="s", ms=look.line(9),
        mec=look.ground, mew=look.line(0.8), label="not beaten",
    )  # fmt: skip
    numbered = [] if label is None else _name_rows(axes, look, front, x, y, label)
    handles += [Line2D([], [], linestyle="none") for _ in numbered]
    axes.margins(0.08)
    put_legend(axes, look, handles, ["configurations", "not beaten", *numbered])
    return axes


def _name_rows(axes: Axes, look: Look, front: Any, x: str, y: str, label: str) -> list[str]:
    """Write numbers beside rows and return their names for the legend: names beside marks would cover each other."""
    shown = []
    places: dict[tuple[float, float], list[str]] = {}
    for name, at, height in zip(front[label], front[x], front[y], strict=True):
        places.setdefault((at, height), []).append(str(name))
    axes.autoscale_view()
    near = NEAR * look.small * figure_of(axes).dpi / 72
    run, before = 0, (-inf, -inf)  # how many of those before it are near
    for number, (place, names) in enumerate(places.items(), 1):
        across, up = axes.transData.transform(place)
        run = run + 1 if abs(across - before[0]) < near and abs(up - before[1]) < near else 0
        before = across, up
        # Above and to the left of a step there is nothing that is as good; of those that would touch, every other one stands on
        # the other side, and a pair further out than the pair before.
        side, out = (1 if run % 2 else -1), look.line(6) + NEAR * look.small * (run // 2 % MOST_OUT)
        axes.annotate(
            str(number), place, (side * out, -side * look.line(5)), textcoords="offset points", size=look.small,
            ha="left" if side > 0 else "right", va="top" if side > 0 else "baseline", color=look.ink,
        )  # fmt: skip
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        shown.append(f"{number} {named(names[0])}{more}")
    return shown
