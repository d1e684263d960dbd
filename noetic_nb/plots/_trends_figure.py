"""Quality and spending turn by turn, against the thresholds of the regulator."""

from __future__ import annotations

from math import nan
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from noetic_nb.errors import NoeticConfigError
from noetic_nb.plots._figure_style import (
    DECISION_MARKERS,
    Look,
    Theme,
    as_figure,
    axes_for,
    named,
    put_legend,
    put_title,
    say_empty,
    style,
)
from noetic_nb.runs._palette import DECISION_LOOKS, MEAN_COLOUR, OTHER_LOOK, QUALITY_COLOUR, TOKENS_COLOUR
from noetic_nb.runs._plain_text import count
from noetic_nb.runs._regulation.regulator_signals import Signals
from noetic_nb.runs._regulation.thread_signals import Mark, ThreadSignals
from noetic_nb.runs._run_source import run_of

# Beyond these, dots run together and words beside marks cover each other.
CROWDED_TURNS: Final = 80
CROWDED_MARKS: Final = 6
# Words fit beside a mark from this width of axes on, in inches.
LEAST_WIDTH: Final = 5.0
# Quality above, tokens below: left, bottom, width and height as shares of the axes that hold both.
UPPER: Final = (0.0, 0.42, 1.0, 0.58)
LOWER: Final = (0.0, 0.0, 1.0, 0.36)


@as_figure
def trends(run: Any, *, thread_id: str | None = None, ax: Any = None, theme: Theme | None = None) -> Axes:
    """Draw quality and output tokens per turn against the regulator's thresholds, as far as the run has recorded them.

    Turns without a grade are gaps; a turn whose output tokens nobody measured has a question mark in place of a bar.

    Parameters
    ----------
    run : Run or object with a ``run``
        What to draw.
    thread_id : str, optional
        Which thread; the one that moved last by default.
    ax : matplotlib Axes, or sequence of two, optional
        Where to draw: quality and tokens one above the other within the axes, or each on axes of its own. On a figure of their
        own by default.
    theme : {"light", "dark"}, optional
        By default inks follow the ground of the figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes; those of quality and tokens are its ``child_axes``. Of two, the first.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``, ``UNKNOWN_THREAD``, ``INVALID_THEME``, or ``INVALID_AXES`` where `ax` is neither one axes nor two.

    References
    ----------
    .. [1] docs/behaviour/runs.md, "Readings" (rolling mean, what counts as poor, output tokens against the cap).

    Examples
    --------
    >>> from noetic_nb.runs import Run
    >>> [panel.get_ylabel() for panel in trends(Run()).child_axes]
    ['quality', 'output tokens']
    """
    thread = _latest(run, thread_id)
    host, upper, lower, look = _panels(ax, theme)
    upper.set_ylabel("quality")
    lower.set_ylabel("output tokens")
    lower.set_xlabel("turn")
    if thread is None or not thread.turns:
        say_empty(upper, look, "No turn yet")
        say_empty(lower, look, "")
        return host
    xs = [turn.turn for turn in thread.turns]
    _draw_quality(upper, look, thread)
    _draw_tokens(lower, look, thread)
    lower.set_xlim(min(xs) - 0.6, max(xs) + 0.6)
    upper.set_xlim(lower.get_xlim())
    for panel in (upper, lower):
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12, min_n_ticks=1))
    # A panel that holds others has no axis of its own to draw a title above.
    put_title(upper, look, f"Quality and cost, thread {named(thread.thread, max(8, look.letters(look.text) - 26))}")
    put_legend(lower if host is upper else host, look, *upper.get_legend_handles_labels())
    return host


def _latest(run: Any, thread_id: str | None) -> ThreadSignals | None:
    signals = Signals(thread_id=thread_id)
    latest: ThreadSignals | None = None
    events = run_of(run).events
    for event in events:
        changed = signals.take(event)
        latest = latest if changed is None else changed[0]
    if thread_id is not None and latest is None and len(events):
        raise NoeticConfigError(
            "UNKNOWN_THREAD", "The run has no such thread.", given=thread_id, hint="Look at `run.threads`."
        )
    return latest


def _panels(ax: Any, theme: Theme | None) -> tuple[Axes, Axes, Axes, Look]:
    if ax is None or isinstance(ax, Axes):
        host, look = axes_for(ax, theme)
        host.set_axis_off()
        upper = host.inset_axes(UPPER)
        lower = host.inset_axes(LOWER)
        for panel in (upper, lower):
            style(panel, look)
        upper.tick_params(labelbottom=False)
        return host, upper, lower, look
    given: list[Any] = list(ax) if hasattr(ax, "__len__") else [ax]
    if len(given) != 2:
        raise NoeticConfigError(
            "INVALID_AXES", "Quality and tokens need one axes or two.", given=ax, hint="Pass figure.subplots(2, 1)."
        )
    upper, look = axes_for(given[0], theme)
    lower, _ = axes_for(given[1], theme)
    return upper, upper, lower, look


def _draw_quality(axes: Axes, look: Look, thread: ThreadSignals) -> None:
    turns = thread.turns
    axes.set_ylim(-0.04, 1.28)
    ticks = {0.0: "0", 1.0: "1"}
    if thread.poor is not None:
        ticks[thread.poor] = f"poor {thread.poor:.3g}"
        axes.axhspan(0, thread.poor, color=MEAN_COLOUR, alpha=0.14, lw=0)
        axes.axhline(thread.poor, color=look.ink, lw=look.line(1.2))
    axes.set_yticks(list(ticks), list(ticks.values()))
    thin, thick, dot = (0.0, 2.2, 3) if len(turns) > CROWDED_TURNS else (1.5, 3.5, 7)
    last = [(turn.turn, turn.qualities[-1] if turn.qualities else nan) for turn in turns]
    axes.plot(*_columns(last), color=QUALITY_COLOUR, lw=look.line(thin))
    points = [(turn.turn, quality) for turn in turns for quality in turn.qualities]
    axes.plot(
        *_columns(points), "o", color=QUALITY_COLOUR, ms=look.line(dot), mec=look.ground, mew=look.line(0.5 if thin else 0.0),
        label="quality of a turn",
    )  # fmt: skip
    if thread.window is not None:
        means = [(turn.turn, nan if turn.mean is None else turn.mean) for turn in turns]
        known = [place for place, turn in enumerate(turns) if turn.mean is not None] or [0]
        axes.plot(
            *_columns(means[known[0] : known[-1] + 1]), color=MEAN_COLOUR, lw=look.line(thick), dashes=(3, 0.8) if thin else (),
            label=f"mean of the last {thread.window}",
        )  # fmt: skip
    if not points:
        axes.text(
            0.5, 0.4, "No turn was graded", transform=axes.transAxes, ha="center", size=look.text, color=look.ink
        )  # fmt: skip
    _draw_marks(axes, look, thread)


def _columns(points: list[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _mark(look: Look, mark: Mark, size: float) -> dict[str, Any]:
    return {
        "marker": DECISION_MARKERS.get(mark.kind, "D"),
        "color": DECISION_LOOKS.get(mark.kind, OTHER_LOOK)[0],
        "linestyle": "none",
        "ms": look.line(size),
        "mec": look.ink,
        "mew": look.line(0.6),
    }


def _draw_marks(axes: Axes, look: Look, thread: ThreadSignals) -> None:
    first, last = thread.turns[0].turn, thread.turns[-1].turn
    marked = [(turn.turn, mark) for turn in thread.turns for mark in turn.marks]
    is_crowded = len(marked) > CROWDED_MARKS or look.width < LEAST_WIDTH
    for at, (x, mark) in enumerate(marked):
        y = 1.1 + 0.09 * (at % 2)
        axes.axvline(x, color=look.ink, lw=look.line(0.8), alpha=0.3, zorder=0)
        axes.plot([x], [y], clip_on=False, **_mark(look, mark, 11))
        if not is_crowded:
            is_right = x > (first + last) / 2
            axes.annotate(
                named(mark.label), (x, y), xytext=(-10 if is_right else 10, 0), textcoords="offset points",
                ha="right" if is_right else "left", va="center", size=look.small, color=look.ink, parse_math=False,
            )  # fmt: skip
    if is_crowded:
        kinds = {(mark.kind, mark.label): mark for _, mark in marked}
        for mark in list(kinds.values())[:CROWDED_MARKS]:
            axes.plot([], [], label=named(mark.label), **_mark(look, mark, 9))


def _draw_tokens(axes: Axes, look: Look, thread: ThreadSignals) -> None:
    turns = [turn for turn in thread.turns if turn.total is not None]
    width, over = (1.0, None) if len(turns) > CROWDED_TURNS else (0.64, "///")
    for turn in turns:
        is_over = thread.cap is not None and turn.spent >= thread.cap
        axes.bar(
            turn.turn, turn.spent, width=width, color=MEAN_COLOUR if is_over else TOKENS_COLOUR, edgecolor=look.ground,
            linewidth=0, hatch=over if is_over else None,
        )  # fmt: skip
    top = max([1.0, thread.cap or 0.0, *(float(turn.spent) for turn in turns)])
    axes.set_ylim(0, 1.28 * top)
    axes.yaxis.set_major_formatter(lambda value, _: count(value))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=3, integer=True))
    words: dict[str, Any] = {
        "textcoords": "offset points", "va": "bottom", "size": look.small, "color": look.ink, "parse_math": False
    }  # fmt: skip
    if len(thread.turns) <= CROWDED_TURNS:
        for turn in thread.turns[:-1]:
            if turn.unmeasured:
                axes.annotate("?", (turn.turn, turn.total or 0), xytext=(0, 2), ha="center", **words)
    last = thread.turns[-1]
    text = "not measured" if last.total is None else count(last.total)
    axes.annotate(text, (last.turn, last.spent), xytext=(0, 2), ha="right" if last.total is None else "center", **words)
    if thread.cap is not None:
        axes.axhline(thread.cap, color=look.ink, lw=look.line(1.6))
        axes.annotate(
            f"cap {count(thread.cap)}", (0, thread.cap), xycoords=("axes fraction", "data"), xytext=(4, 2), **words
        )


# Its name in version 0.1.
quality_and_cost = trends
