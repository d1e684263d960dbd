"""Figures of studies: sweeps, Pareto fronts, ROC curves, savings from stopping, recall and cost of memory layers."""

from __future__ import annotations

from math import inf
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter
from pandas.api.types import is_numeric_dtype

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._sweeping.sweeps import pareto as rows_not_beaten
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
    put_title,
    say_empty,
    series,
)
from noetic_nb.runs._palette import OTHER_LOOK, QUALITY_COLOUR
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
    """Draw the recall of each set of layers against its cost; rings mark rows that no other row beats.

    Parameters
    ----------
    frame : pandas.DataFrame
        A table from `noetic_nb.lab.memory_bench`: a line for each of its ``layers``, a mark for each budget.
    cost : {"tokens", "cost_fresh", "cost_cached", "ms", "budget"}
        The cost to draw.
    rung : {"verbatim", "value", "owned", "answerable"}
        The rung of the evidence; a table without rungs is drawn as it is.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.
    theme : {"light", "dark"}, optional
        By default the text colours follow the figure's background.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, with the 95 % intervals of recall.

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
    """Draw recall by age, place or length: a line for each set of layers, and for each budget if there are several.

    Parameters
    ----------
    frame : pandas.DataFrame
        A table from `noetic_nb.lab.recall_curve`.
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


@as_figure
def sweep(frame: Any, x: str, y: str, ax: Axes | None = None, *, theme: Theme | None = None) -> Axes:
    """Draw a metric of a sweep over one of the swept values, with its intervals.

    Parameters
    ----------
    frame : pandas.DataFrame
        A table from `noetic_nb.lab.sweep`. Each combination of the other values is a separate line.
    x, y : str
        A column of values, and a metric.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.
    theme : {"light", "dark"}, optional
        By default the text colours follow the figure's background.

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
        say_empty(axes, look, f"Nothing is known about {named(y)}" if len(frame) else "The table has no rows")
        return {}
    drawn: dict[str, Any] = {}
    keys = [tuple(map(named, row)) for row in frame[by].itertuples(index=False)] if by else [()] * len(frame)
    is_number = is_numeric_dtype(frame[x])
    # Values that are not numbers are placed side by side, in table order.
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


# Relative to the height of a number: closer numbers would read as one.
NEAR: Final = 2.0
# A number further from its mark would not look connected.
MOST_OUT: Final = 3


@as_figure
def pareto(
    frame: Any, x: str, y: str, ax: Axes | None = None, *, label: str | None = None, theme: Theme | None = None
) -> Axes:
    """Draw the rows of a table, and the Pareto front among them: less of `x` is better, and more of `y`.

    Parameters
    ----------
    frame : pandas.DataFrame
        A table from `noetic_nb.lab.sweep`, or any other with two numeric columns; ``attrs["units"]`` has their units.
    x, y : str
        The columns of the cost and of the gain.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.
    label : str, optional
        A column whose text names the rows on the front, numbered, in the legend.
    theme : {"light", "dark"}, optional
        By default the text colours follow the figure's background.

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
    """Draw a number for each row, and return the names for the legend, because names on the plot would overlap."""
    shown = []
    places: dict[tuple[float, float], list[str]] = {}
    for name, at, height in zip(front[label], front[x], front[y], strict=True):
        places.setdefault((at, height), []).append(str(name))
    axes.autoscale_view()
    near = NEAR * look.small * figure_of(axes).dpi / 72
    run, before = 0, (-inf, -inf)  # how many of the previous rows are near
    for number, (place, names) in enumerate(places.items(), 1):
        across, up = axes.transData.transform(place)
        run = run + 1 if abs(across - before[0]) < near and abs(up - before[1]) < near else 0
        before = across, up
        # Above and to the left of a step there is no row as good. Numbers that would touch alternate sides, and each
        # further pair moves outwards.
        side, out = (1 if run % 2 else -1), look.line(6) + NEAR * look.small * (run // 2 % MOST_OUT)
        axes.annotate(
            str(number), place, (side * out, -side * look.line(5)), textcoords="offset points", size=look.small,
            ha="left" if side > 0 else "right", va="top" if side > 0 else "baseline", color=look.ink,
        )  # fmt: skip
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        shown.append(f"{number} {named(names[0])}{more}")
    return shown


# Higher than other figures, because both axes are shares.
ROC_HEIGHT: Final = 7.0


@as_figure
def roc(calibration: Any, *, ax: Axes | None = None, theme: Theme | None = None) -> Axes:
    """Draw the ROC curves on held-out tasks: detectors as strong lines, baselines as thin ones, chance dotted.

    Parameters
    ----------
    calibration : Calibration
        The result of `noetic_nb.lab.calibrate`.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.
    theme : {"light", "dark"}, optional
        By default the text colours follow the figure's background.

    Returns
    -------
    matplotlib.axes.Axes
        The axes; a ring marks the chosen threshold.

    Raises
    ------
    NoeticConfigError
        ``INVALID_CALIBRATION``, ``INVALID_AXES`` or ``INVALID_THEME``.

    Examples
    --------
    >>> from noetic_nb.lab import calibrate, datasets
    >>> from noetic_nb.regulator import CallBudget
    >>> roc(calibrate(CallBudget(), datasets.airline(), samples=20)).get_xlabel()
    'good runs stopped'
    """
    from noetic_nb.lab import Calibration

    if not isinstance(calibration, Calibration):
        raise NoeticConfigError(
            "INVALID_CALIBRATION",
            "That is no calibration.",
            given=calibration,
            hint="Pass the result of lab.calibrate.",
        )
    axes, look = axes_for(ax, theme, "good runs stopped", "failed runs stopped", height=ROC_HEIGHT)
    table = calibration.table
    baselines = set(table[table["baseline"]]["detector"])
    handles = axes.plot([0.0, 1.0], [0.0, 1.0], color=look.muted, lw=look.line(1.2), linestyle=":", label="chance")
    names = ["chance"]
    # Draw detectors on top, whatever their place in the table.
    for place, name in enumerate(sorted(calibration.curves, key=lambda name: name in baselines)):
        curve, (colour, marker, dash) = calibration.curves[name], series(place)
        is_baseline = name in baselines
        xs, ys = ([0.0, *curve[share], 1.0] for share in ("stopped_good", "stopped_failed"))
        names.append(named(name))
        handles += axes.plot(
            xs, ys, color=colour, linestyle=dash, lw=look.line(1.2 if is_baseline else 2.8), marker=marker,
            ms=look.line(4.5 if is_baseline else 6), markevery=0.12, zorder=2 if is_baseline else 3, label=named(name),
        )  # fmt: skip
    judged = table[
        (table["detector"] == calibration.detector) & (table["split"] == "held out") & (table["domain"] == "all")
    ]
    if calibration.threshold is not None and len(judged):
        row = judged.iloc[0]
        names.append(f"threshold {calibration.threshold:g}")
        handles += axes.plot(
            [row["stopped_good"]], [row["stopped_failed"]], "o", ms=look.line(14), mfc="none", mec=look.ink, mew=look.line(2),
            zorder=4, label=names[-1],
        )  # fmt: skip
    for axis, limits in ((axes.xaxis, axes.set_xlim), (axes.yaxis, axes.set_ylim)):
        limits(-0.02, 1.02)
        axis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    put_title(axes, look, "Held-out tasks" if calibration.detector else "Held-out tasks: off")
    put_legend(axes, look, handles, names)
    return axes


SAVED: Final = {
    "tokens_saved": "tokens saved\nin failed runs",
    "cost_saved": "US dollars saved\nin failed runs",
    "time_saved_s": "seconds saved\nin failed runs",
}


@as_figure
def economics(
    frame: Any,
    *,
    saved: str = "tokens_saved",
    domain: str = "all",
    ax: Axes | None = None,
    theme: Theme | None = None,
) -> Axes:
    r"""Draw the savings and losses of each threshold of a detector, compared with a plain cap on steps.

    Parameters
    ----------
    frame : pandas.DataFrame
        A table from `noetic_nb.lab.economics`.
    saved : {"tokens_saved", "cost_saved", "time_saved_s"}
        The kind of savings.
    domain : str
        A domain in the frame; by default all of them together.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.
    theme : {"light", "dark"}, optional
        By default the text colours follow the figure's background.

    Returns
    -------
    matplotlib.axes.Axes
        The axes; bands are the 95 % intervals of the savings. A threshold with unknown savings is a gap.

    Raises
    ------
    NoeticConfigError
        ``INVALID_FRAME``, ``UNKNOWN_COLUMN``, ``UNKNOWN_DOMAIN``, ``INVALID_AXES`` or ``INVALID_THEME``.

    Examples
    --------
    >>> import pandas
    >>> table = {"policy": "detector", "domain": "all", "threshold": [1.0], "good_lost": [0.1], "tokens_saved": [900.0]}
    >>> economics(pandas.DataFrame(table)).get_ylabel()
    'tokens saved\nin failed runs'
    """
    needs_columns(frame, "policy", "domain", "threshold", "good_lost", saved)
    known = list(dict.fromkeys(frame["domain"]))
    if len(frame) and domain not in known:
        raise NoeticConfigError(
            "UNKNOWN_DOMAIN",
            "The table has no domain of this name.",
            given=domain,
            hint=f"There are {', '.join(map(str, known))}.",
        )
    axes, look = axes_for(ax, theme, "good runs lost", SAVED.get(saved, named(saved)))
    # From the threshold that stops the fewest runs: losses and savings grow together.
    rows = frame[frame["domain"] == domain].sort_values(["policy", "threshold"], ascending=False)
    if not rows[saved].notna().any():
        say_empty(axes, look, "No threshold was tried" if not len(rows) else "The cost of the failed runs is unknown")
        return axes
    # The detector first, in the strongest colour.
    policies = sorted(dict.fromkeys(rows["policy"]), key=lambda name: (name != "detector", str(name)))
    drawn: dict[str, Any] = {}
    for place, policy in enumerate(policies):
        own, (colour, marker, dash) = rows[rows["policy"] == policy], series(place)
        name = frame.attrs.get("detector", policy) if policy == "detector" else policy
        low, high = f"{saved}_low", f"{saved}_high"
        if low in own.columns and high in own.columns:
            axes.fill_between(own["good_lost"], own[low], own[high], color=colour, alpha=0.18, lw=0)
        (drawn[named(name)],) = axes.plot(
            own["good_lost"], own[saved], color=colour, marker=marker, linestyle=dash, lw=look.line(2.2), ms=look.line(5),
            mec=look.ground, mew=look.line(0.5),
        )  # fmt: skip
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    axes.set_xlim(left=min(0.0, float(rows["good_lost"].min())))
    axes.set_ylim(bottom=min(0.0, float(rows[saved].min())))
    if float(rows[saved].max()) >= 10:
        axes.yaxis.set_major_formatter(lambda value, _: count(value))
    put_legend(axes, look, list(drawn.values()), list(drawn))
    return axes
