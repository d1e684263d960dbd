"""A timeline: turns, steps, calls and hooks, nested and side by side."""

from __future__ import annotations

from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from noetic_nb.errors import NoeticConfigError
from noetic_nb.plots._figure_style import (
    LETTER,
    USUAL_SHARE,
    Look,
    Theme,
    as_figure,
    axes_for,
    filled,
    named,
    put_legend,
    put_title,
    say_empty,
)
from noetic_nb.runs._palette import SPAN_COLOURS, ink_on
from noetic_nb.runs._plain_text import count
from noetic_nb.runs._run_source import run_of
from noetic_nb.runs._timeline.run_spans import Timeline, has_clock
from noetic_nb.runs._timeline.span import KINDS, SIGNS
from noetic_nb.runs._timeline.span_window import Lane, Windows

# More rows are thinner than a line in a column of a paper.
MOST_LANES: Final = 40
# A bar of several spans is as wide as a thin line in a column of a paper, which is some 190 points wide.
BINS: Final = 240
HEIGHT: Final = 2.4
HEIGHT_A_LANE: Final = 0.3
# Gaps between lanes, and what a moment or a very short span is wide, as shares.
LANE_HEIGHT: Final = 0.78
LEAST_WIDTH: Final = 0.004
# What `SIGNS` stand for.
PROBLEMS: Final = ("", "held back", "out of time", "failed")
# Told apart without colours: kinds whose fills are of one brightness have a pattern.
HATCHES: Final = {"hook": "////", "child": "\\\\\\\\", "wait": "xxxx", "regulator": "...."}


@as_figure
def timeline(run: Any, *, thread_id: str | None = None, ax: Axes | None = None, theme: Theme | None = None) -> Axes:
    """Draw a timeline; parallel spans are side by side.

    Parameters
    ----------
    run : Run or object with a ``run``
        What to draw.
    thread_id : str, optional
        Only this thread; all of them by default.
    ax : matplotlib Axes, optional
        Where to draw; on a figure of their own by default.
    theme : {"light", "dark"}, optional
        By default inks follow the ground of the figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes. Long pauses are shortened, with a dotted line and their length; a run without clock times is drawn in the order
        of its events. Of more than 40 rows the first ones are drawn, which the title says; `noetic_nb.widgets.RunTimeline` has
        all.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``, ``INVALID_AXES``, ``INVALID_THEME``, or ``UNKNOWN_THREAD`` where nothing ran in such a thread.

    References
    ----------
    .. [1] docs/behaviour/views.md, "Timeline" (rows, nesting, pauses).

    Examples
    --------
    >>> from noetic_nb.events import ToolCalled, Where
    >>> from noetic_nb.runs import Run
    >>> axes = timeline(Run(events=[ToolCalled(Where("t1", "e1", 1), 40.0, "pay", "c1", {}, "", 40.0, "error")]))
    >>> [text.get_text() for text in axes.get_legend().get_texts()], [text.get_text() for text in axes.texts]
    (['tool 1', '✕ failed'], ['pay', '✕'])
    """
    recorded = run_of(run)
    spans = Timeline(is_timed=has_clock(recorded))
    for seq, event in enumerate(recorded.events):
        if thread_id is None or event.where.thread_id == thread_id:
            spans.take(event, seq)
    if thread_id is not None and not spans.spans and len(recorded.events):
        raise NoeticConfigError(
            "UNKNOWN_THREAD", "Nothing ran in such a thread.", given=thread_id, hint="Look at `run.threads`."
        )
    window = Windows(spans).window(bins=BINS, lanes=MOST_LANES)
    name = "time" if spans.is_timed else "order of events"
    axes, look = axes_for(ax, theme, name, height=HEIGHT + HEIGHT_A_LANE * len(window.lanes))
    if not spans.spans:
        say_empty(axes, look, "Nothing has run yet")
        return axes
    severities = set()
    for row, lane in enumerate(window.lanes):
        severities |= _draw(axes, look, lane, row)
    for place, text in window.pauses:
        axes.axvline(place, color=look.muted, lw=look.line(1.2), linestyle=":")
        axes.text(
            place, -0.5, named(text), ha="center", va="bottom", size=look.small, color=look.ink, parse_math=False
        )  # fmt: skip
    axes.set_xlim(0, 1)
    # A few rows do not fill the picture.
    axes.set_ylim(max(4, len(window.lanes)) - 0.4, -0.6)
    places, labels = zip(*window.ticks, strict=True) if window.ticks else ((), ())
    axes.set_xticks(places, labels, parse_math=False)
    threads = {row: named(lane.thread, 18) for row, lane in enumerate(window.lanes) if lane.thread}
    axes.set_yticks(list(threads), list(threads.values()), parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    rest = window.total - len(window.lanes)
    if rest:
        put_title(axes, look, f"{count(rest)} more rows")
    numbers = {kind: sum(span.kind == kind for span in spans.spans) for kind in KINDS}
    kinds = [kind for kind in KINDS if numbers[kind]]
    worst = sorted(severities - {0})
    put_legend(
        axes,
        look,
        [*(Patch(**_fill(look, kind)) for kind in kinds), *(Patch(fill=False, linewidth=0) for _ in worst)],
        [*(f"{kind} {count(numbers[kind])}" for kind in kinds), *(f"{SIGNS[one]} {PROBLEMS[one]}" for one in worst)],
    )
    return axes


def _fill(look: Look, kind: str) -> dict[str, Any]:
    return filled(look, SPAN_COLOURS[kind], HATCHES.get(kind))


def _draw(axes: Axes, look: Look, lane: Lane, row: int) -> set[int]:
    """Draw a row; returns which signs it has."""
    room = 72 * look.width * USUAL_SHARE
    for bar in lane.bars:
        width = max(LEAST_WIDTH, bar.stop - bar.start)
        # A moment at the very end is drawn before it.
        left = min(bar.start, 1.0 - width)
        # A bar is never thinner than can be seen, and the next one would cover a short model call.
        order = 2.0 if bar.kind == "model" else 1.0
        axes.barh(row, width, left=left, height=LANE_HEIGHT, zorder=order, **_fill(look, bar.kind))
        words: dict[str, Any] = {"va": "center", "parse_math": False, "clip_on": True}
        name = named(bar.span.name) if bar.size == 1 else count(bar.size)
        if (len(name) + 3) * LETTER * look.small < room * width:
            fill = SPAN_COLOURS[bar.kind]
            plate = {"facecolor": fill, "edgecolor": "none", "pad": 0.5} if bar.kind in HATCHES else None
            axes.text(left + 0.004, row, name, size=look.small, color=ink_on(fill), bbox=plate, **words)
        if bar.severity:
            axes.text(
                left + width - 0.002, row, SIGNS[bar.severity], ha="right", size=look.small, weight="bold",
                color=ink_on(SPAN_COLOURS[bar.kind]) if width > 0.02 else look.ink, **words,
            )  # fmt: skip
    return {bar.severity for bar in lane.bars}
