"""Figures of runs for talks, papers and exports: matplotlib, no global state, the same readings as the live views.

Each function draws on axes it is given or on a figure of its own, which it returns without registering it anywhere: nothing
has to be closed, nothing is drawn twice in a notebook, and a cell that ends in the figure shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab.sweeping.pareto_front import pareto as pareto_rows
from noetic_nb.runs.model_calls import NO_PLANS, Calls, CallShare, Part
from noetic_nb.runs.palette import (
    CATEGORY,
    DECISION_LOOKS,
    MEAN_COLOUR,
    OTHER_LOOK,
    QUALITY_COLOUR,
    TOKENS_COLOUR,
    ink_on,
    layer_colour,
)  # fmt: skip
from noetic_nb.runs.plain_text import clip, count
from noetic_nb.runs.regulator_signals import Signals, ThreadSignals
from noetic_nb.runs.run_source import run_of

__all__ = ["allocation", "pareto", "quality_and_cost", "sweep"]

# A white page of its own: a picture with a transparent ground loses its black text on a dark theme.
GROUND: Final = "#FFFFFF"
INK: Final = "#1A1A1A"
# Legible from the back of a room when the figure fills a slide (16:9, 10 inches wide).
SIZE: Final = (10.0, 5.6)
TEXT_PT: Final = 13.0
MARKERS: Final = {
    "circuit_break": "s",
    "scope_drift_warn": "^",
    "procedural_warning": "o",
    "low_confidence_spans": "D",
}
# Room for words beside a mark, in letters, before they are left to the legend.
LABEL_LENGTH: Final = 34
SCREEN_DPI: Final = 100
# Beyond these, dots run together and words beside marks cover each other.
CROWDED_TURNS: Final = 80
CROWDED_MARKS: Final = 6


class _NotebookFigure(Figure):
    """A figure that a notebook shows although pyplot does not know it."""

    def _repr_png_(self) -> bytes:
        picture = BytesIO()
        self.savefig(picture, format="png", dpi=SCREEN_DPI)
        return picture.getvalue()


def quality_and_cost(run: Any, *, thread_id: str | None = None, ax: Sequence[Axes] | None = None) -> Figure:
    """Draw quality and output tokens per turn against the regulator's thresholds, as far as the run has recorded them.

    Parameters
    ----------
    run : Run or object with a ``run``
        What to draw.
    thread_id : str, optional
        Which thread; the one that moved last by default.
    ax : sequence of two matplotlib Axes, optional
        Where to draw quality and tokens; a figure of their own by default.

    Returns
    -------
    matplotlib.figure.Figure
        The figure of the axes.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``, ``UNKNOWN_THREAD``, or ``INVALID_AXES`` where `ax` is not two axes.

    References
    ----------
    .. [1] docs/behaviour/runs.md, "Readings" (rolling mean, what counts as poor, output tokens against the cap).

    Examples
    --------
    >>> from noetic_nb.runs import Run
    >>> figure = quality_and_cost(Run())
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['quality', 'output tokens']
    """
    signals = Signals(thread_id=thread_id)
    latest: ThreadSignals | None = None
    for event in run_of(run).events:
        changed = signals.take(event)
        latest = latest if changed is None else changed[0]
    if thread_id is not None and latest is None and len(run_of(run).events):
        raise NoeticConfigError(
            "UNKNOWN_THREAD", "The run has no such thread.", given=thread_id, hint="Look at `run.threads`."
        )
    upper, lower = _two_axes(ax)
    _style(upper, lower)
    upper.set_ylabel("quality")
    lower.set_ylabel("output tokens")
    lower.set_xlabel("turn")
    if latest is None or not latest.turns:
        _write_empty(upper, "No turn yet")
        _write_empty(lower, "")
        return _figure(upper)
    turns = latest.turns
    xs = [turn.turn for turn in turns]
    _draw_quality(upper, latest)
    _draw_tokens(lower, latest)
    lower.set_xlim(min(xs) - 0.6, max(xs) + 0.6)
    lower.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12, min_n_ticks=1))
    upper.set_title(f"Quality and cost, thread {clip(latest.thread, 40)}", loc="left", size=TEXT_PT + 2, weight="bold")
    return _figure(upper)


def allocation(run: Any, turn: int | None = None, *, thread_id: str | None = None, ax: Axes | None = None) -> Figure:
    """Draw where the tokens of the last model call of a turn went.

    Parameters
    ----------
    run : Run or object with a ``run``
        What to draw.
    turn : int, optional
        Which turn, 1 for the first; the last one by default.
    thread_id : str, optional
        Which thread; the one that called a model last by default.
    ax : matplotlib Axes, optional
        Where to draw; a figure of its own by default.

    Returns
    -------
    matplotlib.figure.Figure
        The figure of the axes.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``, or ``UNKNOWN_TURN`` where that turn called no model.

    Examples
    --------
    >>> from noetic_nb.runs import Run
    >>> allocation(Run()).axes[0].get_xlabel()
    'tokens'
    """
    calls = Calls(turn=turn, thread_id=thread_id)
    for event in run_of(run).events:
        calls.take(event)
    if ax is None:
        # Each layer is a name below the picture: many of them need room.
        height = 3.6 + 0.06 * len(calls.order)
        axes = _NotebookFigure(figsize=(SIZE[0], height), facecolor=GROUND, layout="constrained").subplots()
    else:
        axes = ax
    _style(axes)
    axes.set_xlabel("tokens")
    if not calls.all:
        if calls.lacks_plans:
            # In two lines, as a picture does not break them.
            _write_empty(axes, NO_PLANS.replace(": ", ":\n"))
            return _figure(axes)
        if turn is not None or thread_id is not None:
            raise NoeticConfigError(
                "UNKNOWN_TURN", "No model was called there.", given=(turn, thread_id), hint="Look at `run.turns`."
            )
        _write_empty(axes, "No model call yet")
        return _figure(axes)
    _draw_bars(axes, calls.all[-1], calls.order)
    return _figure(axes)


def sweep(frame: Any, x: str, y: str, ax: Axes | None = None) -> Figure:
    """Draw a metric of a sweep over one of the values that were tried, with its intervals.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `noetic_nb.lab.sweep`. Each combination of the other values is a line of its own.
    x, y : str
        A column of values, and a metric.
    ax : matplotlib Axes, optional
        Where to draw; a figure of its own by default.

    Returns
    -------
    matplotlib.figure.Figure
        The figure of the axes.

    Raises
    ------
    NoeticConfigError
        ``UNKNOWN_COLUMN``.

    Examples
    --------
    >>> import pandas
    >>> frame = pandas.DataFrame({"cap": [1, 2], "stopped": [0.5, 0.2], "low": [0.4, 0.1], "high": [0.6, 0.3]})
    >>> sweep(frame, "cap", "stopped").axes[0].get_ylabel()
    'stopped'
    """
    axes = _of_columns(frame, x, y, ax)
    others = [name for name in frame.attrs.get("space", ()) if name != x and name in frame.columns]
    keys = [tuple(map(str, row)) for row in frame[others].itertuples(index=False)] if others else [()] * len(frame)
    low, high = (f"{y}_low", f"{y}_high") if f"{y}_low" in frame.columns else ("low", "high")
    for place, key in enumerate(dict.fromkeys(keys)):
        rows = frame[[one == key for one in keys]].sort_values(x)
        spread = (
            [(rows[y] - rows[low]).clip(lower=0), (rows[high] - rows[y]).clip(lower=0)]
            if low in frame.columns
            else None
        )
        name = ", ".join(f"{other} {value}" for other, value in zip(others, key, strict=True))
        colour, marker = layer_colour(place), "osD^v"[place % 5]
        axes.errorbar(
            rows[x],
            rows[y],
            spread,
            color=colour,
            marker=marker,
            ms=7,
            lw=1.8,
            capsize=4,
            label=clip(name, LABEL_LENGTH),
        )
    if others:
        _put_legend(axes, *axes.get_legend_handles_labels())
    return _figure(axes)


def pareto(frame: Any, x: str, y: str, ax: Axes | None = None, *, label: str | None = None) -> Figure:
    """Draw the rows of a table, and of them those that none beats: less of `x` is better, and more of `y`.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `noetic_nb.lab.sweep`, or any other with two columns of numbers.
    x, y : str
        What it costs, and what it gives.
    ax : matplotlib Axes, optional
        Where to draw; a figure of its own by default.
    label : str, optional
        A column whose text names the rows that are not beaten, numbered, in the legend; such as the ``layers`` of
        `noetic_nb.lab.memory_bench`.

    Returns
    -------
    matplotlib.figure.Figure
        The figure of the axes.

    Raises
    ------
    NoeticConfigError
        ``UNKNOWN_COLUMN`` or ``INVALID_OBJECTIVES``.

    Examples
    --------
    >>> import pandas
    >>> pareto(pandas.DataFrame({"blocked": [0.1, 0.3], "caught": [0.5, 0.9]}), "blocked", "caught").axes[0].get_xlabel()
    'blocked'
    """
    axes = _of_columns(frame, x, y, ax)
    if label is not None and label not in frame.columns:
        known = ", ".join(map(str, frame.columns))
        raise NoeticConfigError(
            "UNKNOWN_COLUMN", "The table has no such column.", given=label, hint=f"There are {known}."
        )
    front = pareto_rows(frame, minimise=x, maximise=y).sort_values([x, y])
    axes.plot(frame[x], frame[y], "o", color=OTHER_LOOK[0], ms=7, label="configurations")
    axes.plot(
        front[x], front[y], color=QUALITY_COLOUR, drawstyle="steps-post", lw=1.8, marker="s", ms=9, label="not beaten"
    )
    if label is not None:
        _name_rows(axes, front, x, y, label)
    _put_legend(axes, *axes.get_legend_handles_labels())
    return _figure(axes)


def _name_rows(axes: Axes, front: Any, x: str, y: str, label: str) -> None:
    """Write numbers beside rows and their names in the legend: names beside marks would cover each other."""
    places: dict[tuple[float, float], list[str]] = {}
    for name, at, height in zip(front[label], front[x], front[y], strict=True):
        places.setdefault((at, height), []).append(str(name))
    for number, (place, names) in enumerate(places.items(), 1):
        # Above and to the left of a step there is nothing that is as good.
        axes.annotate(str(number), place, (-6, 5), textcoords="offset points", ha="right", size=TEXT_PT - 2, color=INK)
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        axes.plot([], [], " ", label=f"{number} {clip(names[0], LABEL_LENGTH)}{more}")


def _of_columns(frame: Any, x: str, y: str, ax: Axes | None) -> Axes:
    for name in (x, y):
        if name not in frame.columns:
            known = ", ".join(map(str, frame.columns))
            raise NoeticConfigError(
                "UNKNOWN_COLUMN", "The table has no such column.", given=name, hint=f"There are {known}."
            )
    axes = _NotebookFigure(figsize=SIZE, facecolor=GROUND, layout="constrained").subplots() if ax is None else ax
    _style(axes)
    axes.set_xlabel(x, parse_math=False)
    axes.set_ylabel(y, parse_math=False)
    return axes


def _two_axes(ax: Sequence[Axes] | None) -> tuple[Axes, Axes]:
    if ax is None:
        figure = _NotebookFigure(figsize=SIZE, facecolor=GROUND, layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        return upper, lower
    given: list[Any] = list(ax) if hasattr(ax, "__len__") else [ax]
    if len(given) != 2:
        raise NoeticConfigError(
            "INVALID_AXES", "Quality and tokens need two axes.", given=ax, hint="Pass figure.subplots(2, 1)."
        )
    return given[0], given[1]


def _figure(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    if not isinstance(figure, Figure):
        raise NoeticConfigError("INVALID_AXES", "The axes belong to no figure.", given=axes, hint="Take fresh axes.")
    return figure


def _style(*all_axes: Axes) -> None:
    for axes in all_axes:
        axes.set_facecolor(GROUND)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(INK)
        axes.tick_params(colors=INK, labelsize=TEXT_PT - 2)
        axes.xaxis.label.set(size=TEXT_PT, color=INK)
        axes.yaxis.label.set(size=TEXT_PT, color=INK)


def _write_empty(axes: Axes, text: str) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", size=TEXT_PT, color=INK)


def _put_legend(axes: Axes, handles: Sequence[Any], names: Sequence[str]) -> None:
    # About 118 letters of this size go side by side; a swatch and its gaps take seven.
    columns = max(1, min(6, len(names), 118 // (max(map(len, names), default=1) + 7)))
    shown = [name.replace("$", r"\$") for name in names]  # a name is text, not a formula
    look: dict[str, Any] = {"frameon": False, "fontsize": TEXT_PT - 2, "labelcolor": INK, "handlelength": 1.3}
    figure = axes.get_figure(root=True)
    if isinstance(figure, _NotebookFigure):
        figure.legend(handles, shown, loc="outside lower center", ncols=columns, **look)
    else:
        axes.legend(handles, shown, loc="best", ncols=min(columns, 2), **look)


def _draw_quality(axes: Axes, thread: ThreadSignals) -> None:
    graded = [turn for turn in thread.turns if turn.qualities]
    axes.set_ylim(-0.04, 1.28)
    ticks = {0.0: "0", 1.0: "1"}
    if thread.poor is not None:
        ticks[thread.poor] = f"poor {thread.poor:.3g}"
        axes.axhspan(0, thread.poor, color=MEAN_COLOUR, alpha=0.10, lw=0)
        axes.axhline(thread.poor, color=INK, lw=1.2)
    axes.set_yticks(list(ticks), list(ticks.values()))
    thin, thick, dot = (0.8, 1.8, 3) if len(thread.turns) > CROWDED_TURNS else (1.5, 3.5, 7)
    axes.plot([turn.turn for turn in graded], [turn.qualities[-1] for turn in graded], color=QUALITY_COLOUR, lw=thin)
    points = [(turn.turn, quality) for turn in graded for quality in turn.qualities]
    axes.plot(*_columns(points), "o", color=QUALITY_COLOUR, ms=dot, label="quality of a turn")
    means = [(turn.turn, turn.mean) for turn in graded if turn.mean is not None]
    if thread.window is not None:
        axes.plot(*_columns(means), color=MEAN_COLOUR, lw=thick, label=f"mean of the last {thread.window}")
    if not graded:
        axes.text(0.5, 0.4, "No turn was graded", transform=axes.transAxes, ha="center", size=TEXT_PT, color=INK)
    _draw_marks(axes, thread)
    _put_legend(axes, *axes.get_legend_handles_labels())


def _columns(points: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _draw_marks(axes: Axes, thread: ThreadSignals) -> None:
    first, last = thread.turns[0].turn, thread.turns[-1].turn
    marked = [(turn.turn, mark) for turn in thread.turns for mark in turn.marks]
    is_crowded = len(marked) > CROWDED_MARKS
    for at, (x, mark) in enumerate(marked):
        y = 1.1 + 0.09 * (at % 2)
        colour = DECISION_LOOKS.get(mark.kind, OTHER_LOOK)[0]
        axes.axvline(x, color=INK, lw=0.8, alpha=0.3, zorder=0)
        axes.plot([x], [y], MARKERS.get(mark.kind, "D"), color=colour, ms=11, mec=INK, mew=0.6, clip_on=False)
        if not is_crowded:
            is_right = x > (first + last) / 2
            axes.annotate(
                clip(mark.label, LABEL_LENGTH),
                (x, y),
                xytext=(-10 if is_right else 10, 0),
                textcoords="offset points",
                ha="right" if is_right else "left",
                va="center",
                size=TEXT_PT - 1.5,
                color=INK,
                parse_math=False,
            )
    if is_crowded:
        for kind, name in list(dict.fromkeys((mark.kind, mark.label) for _, mark in marked))[:CROWDED_MARKS]:
            axes.plot(
                [],
                [],
                MARKERS.get(kind, "D"),
                color=DECISION_LOOKS.get(kind, OTHER_LOOK)[0],
                ms=9,
                mec=INK,
                mew=0.6,
                label=clip(name, LABEL_LENGTH),
            )


def _draw_tokens(axes: Axes, thread: ThreadSignals) -> None:
    turns = thread.turns
    over = [thread.cap is not None and turn.spent >= thread.cap for turn in turns]
    colours = [MEAN_COLOUR if is_over else TOKENS_COLOUR for is_over in over]
    axes.bar([turn.turn for turn in turns], [turn.spent for turn in turns], width=0.64, color=colours)
    top = max(1.0, thread.cap or 0.0, *(turn.spent for turn in turns))
    axes.set_ylim(0, 1.22 * top)
    axes.yaxis.set_major_formatter(lambda value, _: count(value))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    last = turns[-1]
    text = "not measured" if last.total is None else count(last.total)
    axes.annotate(
        text, (last.turn, last.spent), xytext=(0, 3), textcoords="offset points", ha="center",
        va="bottom", size=TEXT_PT - 2, color=INK,
    )  # fmt: skip
    if thread.cap is not None:
        axes.axhline(thread.cap, color=INK, lw=1.6)
        axes.annotate(
            f"cap {count(thread.cap)}", (0, thread.cap), xycoords=("axes fraction", "data"), xytext=(6, 3),
            textcoords="offset points", va="bottom", size=TEXT_PT - 2, color=INK,
        )  # fmt: skip


def _draw_bars(axes: Axes, call: CallShare, order: dict[str, int]) -> None:
    scale = call.scale(order)
    for y, height, parts in ((1.0, 0.62, call.sent_parts(order)), (0.25, 0.34, call.planned_parts(order))):
        left = 0.0
        for part in parts:
            axes.barh(y, part.tokens, left=left, height=height, **_look(part))
            if height > 0.5:
                _label(axes, part, left, y, scale)
            left += part.tokens
    axes.set_yticks([1.0, 0.25], ["sent", "planned"], size=TEXT_PT)
    axes.set_ylim(-0.05, 1.45)
    axes.set_xlim(0, scale)
    axes.xaxis.set_major_formatter(lambda value, _: count(value))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    if call.total is not None and call.total < scale:
        axes.axvline(call.total, color=INK, lw=2)
    title = f"{clip(call.title, 60)}\n{call.headline}"
    axes.set_title(title, loc="left", size=TEXT_PT, color=INK, parse_math=False)
    _legend(axes, call, order)


def _look(part: Part) -> dict[str, Any]:
    edge = {"edgecolor": GROUND, "linewidth": 1.0}
    match part.kind:
        case "free":
            return {"facecolor": "none", "edgecolor": "#767676", "linewidth": 1.0, "linestyle": (0, (3, 3))}
        case "reserve":
            return {"facecolor": "#E2E2E2", "edgecolor": "#767676", "linewidth": 1.0}
        case "yielded":
            colour = layer_colour(part.layer or 0)
            return {"facecolor": f"{colour}38", "edgecolor": colour, "linewidth": 1.0, "hatch": "///"}
        case "layer":
            return {"facecolor": layer_colour(part.layer or 0), **edge}
        case _:
            return {"facecolor": CATEGORY[part.kind], **edge}


def _label(axes: Axes, part: Part, left: float, y: float, scale: float) -> None:
    # A letter takes about 0.95 % of a bar that is as wide as the figure.
    if len(part.label) * 0.0105 + 0.01 > part.tokens / scale:
        return
    fill = layer_colour(part.layer) if part.layer is not None else CATEGORY.get(part.kind)
    axes.text(
        left + part.tokens / 2, y, part.label, ha="center", va="center", size=TEXT_PT - 2, weight="bold",
        color=INK if fill is None else ink_on(fill), parse_math=False,
    )  # fmt: skip


def _legend(axes: Axes, call: CallShare, order: dict[str, int]) -> None:
    entries: list[tuple[Any, str]] = []
    for part in call.sent_parts(order):
        handle = axes.barh(0, 0, **_look(part))
        given = next((layer for layer in call.layers if part.kind == "layer" and layer.name == part.label), None)
        of = "" if given is None or given.allocated is None else f" of {count(given.allocated)}"
        entries.append((handle, f"{clip(part.label, 22)} {count(part.tokens)}{of}"))
    if any(part.kind == "yielded" for part in call.planned_parts(order)):
        entries.append((axes.barh(0, 0, facecolor="#FFFFFF", edgecolor="#767676", hatch="///"), "yielded to history"))
    _put_legend(axes, [handle for handle, _ in entries], [name for _, name in entries])
