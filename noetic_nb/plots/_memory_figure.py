"""The recall and cost of sets of memory layers."""

from __future__ import annotations

from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._sweeping.pareto_front import pareto as rows_not_beaten
from noetic_nb.plots._figure_style import Theme, as_figure, axes_for, needs_columns, put_legend
from noetic_nb.plots._study_figures import lines
from noetic_nb.runs._plain_text import count

COSTS: Final = {
    "tokens": "tokens of a request",
    "cost_fresh": "input of a dialogue, nothing cached (US dollars)",
    "cost_cached": "input of a dialogue, prefixes cached (US dollars)",
    "ms": "recall and plan of a request (ms)",
    "budget": "budget of a request (tokens)",
}

RUNGS: Final = {
    "verbatim": "evidence sent word for word",
    "value": "evidence recalled",
    "owned": "values sent with their owner",
    "answerable": "questions that can be answered",
}


@as_figure
def memory_bench(
    frame: Any, *, cost: str = "tokens", rung: str = "value", ax: Axes | None = None, theme: Theme | None = None
) -> Axes:
    """Draw the recall of each set of layers against its cost; rings mark the rows that no other row beats.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `noetic_nb.lab.memory_bench`: a line for each of its ``layers``, a mark for each budget.
    cost : {"tokens", "cost_fresh", "cost_cached", "ms", "budget"}
        What it costs.
    rung : {"verbatim", "value", "owned", "answerable"}
        Of the evidence; a table without rungs is drawn as it is.
    ax : matplotlib Axes, optional
        Where to draw; on a figure of their own by default.
    theme : {"light", "dark"}, optional
        By default inks follow the ground of the figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, with the 95 % intervals of what is recalled.

    Raises
    ------
    NoeticConfigError
        ``INVALID_FRAME``, ``UNKNOWN_COLUMN``, ``INVALID_COST``, ``INVALID_RUNG``, ``INVALID_AXES`` or ``INVALID_THEME``.

    Examples
    --------
    >>> import pandas
    >>> table = {"layers": ["plain", "notes"], "recall": [0.2, 0.6], "low": [0.1, 0.5], "high": [0.3, 0.7], "tokens": [90, 80]}
    >>> [text.get_text() for text in memory_bench(pandas.DataFrame(table)).get_legend().get_texts()]
    ['plain', 'notes', 'not beaten']
    """
    if cost not in COSTS:
        raise NoeticConfigError("INVALID_COST", "There is no such cost.", given=cost, hint=f"Use {', '.join(COSTS)}.")
    if rung not in RUNGS:
        raise NoeticConfigError("INVALID_RUNG", "There is no such rung.", given=rung, hint=f"Use {', '.join(RUNGS)}.")
    needs_columns(frame, "layers", "recall", "low", "high", cost)
    axes, look = axes_for(ax, theme, COSTS[cost], RUNGS[rung])
    known = frame[frame[cost].notna() & frame.recall.notna()]
    known = (known[known.rung == rung] if "rung" in known else known).reset_index(drop=True)
    drawn = lines(axes, look, known, cost, "recall", ["layers"], ("low", "high"))
    if drawn:
        front = rows_not_beaten(known, minimise=cost, maximise="recall")
        (ring,) = axes.plot(
            front[cost], front["recall"], "o", mfc="none", mec=look.ink, mew=look.line(1.6), ms=look.line(16), zorder=5,
            label="not beaten",
        )  # fmt: skip
        axes.set_ylim(-0.04, 1.06)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        if cost in ("tokens", "budget"):
            axes.xaxis.set_major_formatter(lambda value, _: count(value))
        put_legend(axes, look, [*drawn.values(), ring], [*drawn, "not beaten"])
    return axes


AXES: Final = {
    "age": "age of the evidence (turns)",
    "age_tokens": "age of the evidence (tokens)",
    "position": "place of the evidence in the dialogue",
    "length": "length of the dialogue (tokens)",
}


@as_figure
def recall_curve(frame: Any, *, ax: Axes | None = None, theme: Theme | None = None) -> Axes:
    """Draw recall by age, place or length: a line for each set of layers, and for each budget where there are several.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `noetic_nb.lab.recall_curve`.
    ax : matplotlib Axes, optional
        Where to draw; on a figure of their own by default.
    theme : {"light", "dark"}, optional
        By default inks follow the ground of the figure.

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
    >>> rows = {"layers": "plain", "budget": 300, "age": [1.0, 9.0], "recall": [1.0, 0.2], "low": [0.8, 0.1], "high": [1.0, 0.4]}
    >>> recall_curve(pandas.DataFrame(rows)).get_xlabel()
    'age of the evidence (turns)'
    """
    needs_columns(frame, "layers", "budget", "recall", "low", "high")
    by = next((name for name in AXES if name in frame), "age")
    needs_columns(frame, by)
    axes, look = axes_for(ax, theme, AXES[by], "evidence recalled")
    several = ["layers", "budget"] if frame.budget.nunique() > 1 else ["layers"]
    drawn = lines(axes, look, frame, by, "recall", several, ("low", "high"))
    if drawn:
        axes.set_ylim(-0.04, 1.06)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        put_legend(axes, look, list(drawn.values()), list(drawn))
    return axes
