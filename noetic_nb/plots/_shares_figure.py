"""Shares by name, with intervals if the table has them: one row of dots per layer, or per kind of fact."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from noetic_nb.plots._figure_style import (
    Theme,
    as_figure,
    axes_for,
    named,
    needs_columns,
    put_legend,
    say_empty,
    series,
)

# Distance of the dots of one name, and their space in a new figure, in inches.
APART = 0.2
HEIGHT, HEIGHT_A_NAME = 1.8, 0.45


@as_figure
def layer_shares(frame: Any, *, ax: Axes | None = None, theme: Theme | None = None) -> Axes:
    """Draw each layer's gain in recall: alone, as the last one, and on average over all orders.

    Parameters
    ----------
    frame : pandas.DataFrame
        A table from `noetic_nb.lab.layer_shares`.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.
    theme : {"light", "dark"}, optional
        By default the text colours follow the figure's background.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, with a line at 0: a layer that displaces better ones is left of it.

    Raises
    ------
    NoeticConfigError
        ``INVALID_FRAME``, ``UNKNOWN_COLUMN``, ``INVALID_AXES`` or ``INVALID_THEME``.

    Examples
    --------
    >>> import pandas
    >>> rows = {"layer": ["recall", "window"], "alone": [0.6, 0.1], "left_out": [0.5, 0.0], "shapley": [0.55, 0.05]}
    >>> [text.get_text() for text in layer_shares(pandas.DataFrame(rows)).get_yticklabels()]
    ['recall', 'window']
    """
    columns = {"alone": "alone", "left_out": "as the last one", "shapley": "over all orders (Shapley)"}
    axes = _dots(frame, "layer", columns, {}, "added to the recall of the evidence", ax, theme)
    axes.axvline(0.0, color=axes.xaxis.label.get_color(), lw=0.8, zorder=0)
    return axes


@as_figure
def write_fidelity(frame: Any, *, ax: Axes | None = None, theme: Theme | None = None) -> Axes:
    """Draw recall and precision of writing: stated facts that each set of layers kept, and kept facts that were stated.

    Parameters
    ----------
    frame : pandas.DataFrame
        A table from `noetic_nb.lab.write_fidelity`.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.
    theme : {"light", "dark"}, optional
        By default the text colours follow the figure's background.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, with the 95 % intervals.

    Raises
    ------
    NoeticConfigError
        ``INVALID_FRAME``, ``UNKNOWN_COLUMN``, ``INVALID_AXES`` or ``INVALID_THEME``.

    Examples
    --------
    >>> import pandas
    >>> ends = {f"{of}_{end}": [0.5, 0.5] for of in ("precision", "recall") for end in ("low", "high")}
    >>> rows = {"layers": ["notes", "events"], "precision": [0.5, 0.5], "recall": [0.5, 0.5], **ends}
    >>> write_fidelity(pandas.DataFrame(rows)).get_xlabel()
    'share of facts'
    """
    columns = {"recall": "recall: said facts that were kept", "precision": "precision: kept facts that were said"}
    ends = {column: (f"{column}_low", f"{column}_high") for column in columns}
    return _dots(frame, "layers", columns, ends, "share of facts", ax, theme, most=1.0)


@as_figure
def survival(frame: Any, *, ax: Axes | None = None, theme: Theme | None = None) -> Axes:
    """Draw how many facts that compactions removed from the context were still known afterwards, by kind.

    Parameters
    ----------
    frame : pandas.DataFrame
        A table from `noetic_nb.lab.survival`.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.
    theme : {"light", "dark"}, optional
        By default the text colours follow the figure's background.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, with the 95 % intervals.

    Raises
    ------
    NoeticConfigError
        ``INVALID_FRAME``, ``UNKNOWN_COLUMN``, ``INVALID_AXES`` or ``INVALID_THEME``.

    Examples
    --------
    >>> import pandas
    >>> survival(pandas.DataFrame({"kind": ["id"], "rate": [0.5], "low": [0.2], "high": [0.8]})).get_xlabel()
    'facts that survived'
    """
    return _dots(
        frame,
        "kind",
        {"rate": "told after every compaction"},
        {"rate": ("low", "high")},
        "facts that survived",
        ax,
        theme,
        most=1.0,
    )


def _dots(
    frame: Any,
    names: str,
    columns: dict[str, str],
    ends: dict[str, tuple[str, str]],
    label: str,
    ax: Axes | None,
    theme: Theme | None,
    most: float | None = None,
) -> Axes:
    """Draw one row per name, with a dot for each column; the columns are given with their legend names."""
    needs_columns(frame, names, *columns, *[end for pair in ends.values() for end in pair])
    axes, look = axes_for(ax, theme, label, height=HEIGHT + HEIGHT_A_NAME * len(frame))
    if not frame[[*columns]].notna().any(axis=None):
        say_empty(axes, look, "Nothing is known about it" if len(frame) else "The table has no rows")
        return axes
    handles = []
    for place, column in enumerate(columns):
        colour, marker, _ = series(place)
        low, high = (frame[end] for end in ends.get(column, (column, column)))
        handles.append(
            axes.errorbar(
                frame[column],
                [row + APART * (place - (len(columns) - 1) / 2) for row in range(len(frame))],
                xerr=[(frame[column] - low).clip(lower=0), (high - frame[column]).clip(lower=0)],
                color=colour,
                marker=marker,
                linestyle="none",
                ms=look.line(7),
                elinewidth=look.line(1.3),
                capsize=look.line(4) if ends else 0,
            )
        )
    axes.set_yticks(range(len(frame)), list(map(named, frame[names])), parse_math=False)
    axes.set_ylim(len(frame) - 0.5, -0.5)
    if most is not None:
        axes.set_xlim(-0.04, 1.04 * most)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    put_legend(axes, look, handles, list(columns.values()))
    return axes
