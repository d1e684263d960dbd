"""Figures that draw the scene of a view: the context by call, the timeline, and the trends of a thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from matplotlib.axes import Axes

from noetic_nb.errors import NoeticConfigError
from noetic_nb.plots._context_scene import context_scene
from noetic_nb.plots._figure_style import (
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
from noetic_nb.plots._scene.axes import draw, handle_of
from noetic_nb.plots._scene.scene import Panel, Scene
from noetic_nb.plots._timeline_scene import timeline_scene
from noetic_nb.plots._trends.trends_chart import ThreadChart
from noetic_nb.plots._trends.trends_panels import DECISIONS
from noetic_nb.runs._plain_text import count
from noetic_nb.runs._regulation.regulator_signals import Signals
from noetic_nb.runs._regulation.thread_signals import ThreadSignals
from noetic_nb.runs._requests.context_parts import ContextParts
from noetic_nb.runs._requests.item_lives import compactions_of
from noetic_nb.runs._requests.model_calls import Calls
from noetic_nb.runs._requests.recorded_requests import requests_of
from noetic_nb.runs._run_source import run_of
from noetic_nb.runs._timeline.run_spans import Timeline
from noetic_nb.runs._timeline.span_window import QUIET, Windows

# The height of a lane, in units of quality.
TRENDS_LANE: Final = 0.12
# Quality above, tokens below: left, bottom, width and height as fractions of the axes that contain both.
UPPER: Final = (0.0, 0.42, 1.0, 0.58)
LOWER: Final = (0.0, 0.0, 1.0, 0.36)


@as_figure
def trends(run: Any, *, thread_id: str | None = None, ax: Any = None, theme: Theme | None = None) -> Axes:
    """Draw quality and output tokens per turn against the regulator's recorded thresholds.

    The marks are those of `RegulatorTrends`. Turns without a grade are gaps; unmeasured tokens are not drawn.

    Parameters
    ----------
    run : Run or object with a ``run``
        The run to draw.
    thread_id : str, optional
        The thread to draw; by default the most recently active one.
    ax : matplotlib Axes, or sequence of two, optional
        Draws quality above tokens within the axes, or on two separate axes. By default a new figure.
    theme : {"light", "dark"}, optional
        By default the text colours follow the figure's background.

    Returns
    -------
    matplotlib.axes.Axes
        The axes; quality and tokens are its ``child_axes``. If two axes were given, the first.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``, ``UNKNOWN_THREAD``, ``INVALID_THEME``, or ``INVALID_AXES`` if `ax` is neither one axes nor two.

    References
    ----------
    .. [1] docs/behaviour/runs.md, "Readings" (rolling mean, poor quality, output tokens against the cap).

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
    chart = ThreadChart(thread)
    for turn in thread.turns:
        chart.take(turn)
    scene = chart.scene()
    panels = {panel.key: panel for panel in scene.panels}
    _draw_quality(upper, look, scene, panels)
    spent = panels.get("spent", panels.get("tokens"))
    if spent is None:
        say_empty(lower, look, "not measured")
        lower.set_xlim(upper.get_xlim())
    else:
        draw(scene, spent, lower, look)
    for panel in (upper, lower):
        panel.set_xticks([x for x, _ in scene.ticks], [words for _, words in scene.ticks])
    # The containing axes have no visible axis, so the title goes above the upper panel.
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
        hint = "Look at `run.threads`."
        raise NoeticConfigError("UNKNOWN_THREAD", "The run has no thread of this name.", given=thread_id, hint=hint)
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
        hint = "Pass figure.subplots(2, 1)."
        raise NoeticConfigError("INVALID_AXES", "Pass one axes or two, for quality and tokens.", given=ax, hint=hint)
    upper, look = axes_for(given[0], theme)
    lower, _ = axes_for(given[1], theme)
    return upper, upper, lower, look


def _draw_quality(axes: Axes, look: Look, scene: Scene, panels: Mapping[str, Panel]) -> None:
    draw(scene, panels["quality"], axes, look)
    lanes = panels.get(DECISIONS)
    if lanes is not None:  # a lane above quality for each predicate that decided
        lanes.lanes = [lane for lane in lanes.lanes if any(lane in mark.points for mark in scene.marks)]
        _draw_above(axes, look, scene, panels["quality"], lanes, TRENDS_LANE)
    if not any(mark.series in ("quality-dot", "quality-range") for mark in scene.marks):
        axes.text(
            0.5, 0.4, "No turn was graded", transform=axes.transAxes, ha="center", size=look.text, color=look.ink
        )  # fmt: skip


def _draw_above(axes: Axes, look: Look, scene: Scene, panel: Panel, lanes: Panel, step: float) -> None:
    """Draw lanes, each `step` high, above a panel in its axes."""
    foot, top = axes.get_ylim()
    draw(scene, lanes, axes, look, base=top, step=step)
    number = len(lanes.lanes)
    names = [*panel.ticks, *[(top + step * (number - 0.5 - at), lane) for at, lane in enumerate(lanes.lanes)]]
    axes.set_yticks([place for place, _ in names], [text for _, text in names], parse_math=False)
    axes.set_ylim(foot, top + step * number)


# The name in version 0.1.
quality_and_cost = trends


# Height of a lane for items that left, relative to the panel below it.
LANE: Final = 0.1


@as_figure
def context(run: Any, *, thread_id: str | None = None, ax: Axes | None = None, theme: Theme | None = None) -> Axes:
    """Draw the tokens of each model call by part, and above them the items that left the context.

    The marks are those of `TokenAllocation`. Parts of imported runs are estimated from their texts, and scaled to the
    tokens of each call.

    Parameters
    ----------
    run : Run or object with a ``run``
        The run to draw.
    thread_id : str, optional
        Only this thread; all of them by default.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.
    theme : {"light", "dark"}, optional
        By default the text colours follow the figure's background.

    Returns
    -------
    matplotlib.axes.Axes
        The axes. Beyond 400 calls several share a column, which draws the largest.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``, ``INVALID_AXES``, ``INVALID_THEME``, or ``UNKNOWN_THREAD`` if the thread has no model call.

    References
    ----------
    .. [1] docs/behaviour/views.md, "Token allocation".

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> axes = context(datasets.airline_run(26))
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['system', 'user', 'assistant', 'tool results']
    """
    recorded = run_of(run)
    requests = [each for each in requests_of(recorded).requests if thread_id in (None, each.where.thread_id)]
    if thread_id is not None and not requests and len(recorded.events):
        hint = "Look at `run.threads`."
        raise NoeticConfigError("UNKNOWN_THREAD", "This thread has no model call.", given=thread_id, hint=hint)
    parts = ContextParts(getattr(recorded, "meta", None))
    points = getattr(recorded, "known_until", None)
    layers = Calls.of(recorded.events).numbers()
    scene = context_scene(parts, requests, compactions_of(recorded), layers, points=points)
    axes, look = axes_for(ax, theme, "call", "tokens")
    if not scene.panels:
        say_empty(axes, look, "No model call yet")
        return axes
    panel, *lanes = scene.panels
    draw(scene, panel, axes, look)
    for each in lanes:
        foot, top = axes.get_ylim()
        _draw_above(axes, look, scene, panel, each, LANE * (top - foot))
    axes.set_xticks([x for x, _ in scene.ticks], [words for _, words in scene.ticks])
    put_title(axes, look, panel.caption)
    put_legend(axes, look, *axes.get_legend_handles_labels())
    return axes


# More rows would be thinner than a line in a column of a paper.
MOST_LANES: Final = 40
LEAST_LANES: Final = 4
# A shared bar is as wide as a thin line in a column of a paper, which is about 190 points wide.
BINS: Final = 240
HEIGHT: Final = 2.4
HEIGHT_A_LANE: Final = 0.3


@as_figure
def timeline(run: Any, *, thread_id: str | None = None, ax: Axes | None = None, theme: Theme | None = None) -> Axes:
    """Draw a timeline, with parallel spans in separate rows.

    Parameters
    ----------
    run : Run or object with a ``run``
        The run to draw.
    thread_id : str, optional
        Only this thread; all of them by default.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.
    theme : {"light", "dark"}, optional
        By default the text colours follow the figure's background.

    Returns
    -------
    matplotlib.axes.Axes
        The axes. Long pauses are shortened, with a dotted line and their length; a run without clock times is drawn in
        the order of its events. Successful hooks without a decision are left out. Beyond 40 rows only the first are
        drawn, as the title says; `noetic_nb.widgets.RunTimeline` has all.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``, ``INVALID_AXES``, ``INVALID_THEME``, or ``UNKNOWN_THREAD`` if nothing ran in the thread.

    References
    ----------
    .. [1] docs/behaviour/views.md, "Timeline" (rows, nesting, pauses).

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> axes = timeline(datasets.airline_run(26))
    >>> [text.get_text() for text in axes.get_legend().get_texts()], axes.texts[0].get_text()
    (['turns 4', 'model calls 30', 'tool calls 27', '⊘ held back 1'], 'thread airline-26')
    """
    recorded = run_of(run)
    spans = Timeline.of(recorded, thread_id)
    if thread_id is not None and not spans.spans and len(recorded.events):
        hint = "Look at `run.threads`."
        raise NoeticConfigError("UNKNOWN_THREAD", "The run has no span in this thread.", given=thread_id, hint=hint)
    window = Windows(spans).window(bins=BINS, lanes=MOST_LANES, wanted=QUIET)
    scene = timeline_scene(spans, window)
    axes, look = axes_for(ax, theme, scene.axis, height=HEIGHT + HEIGHT_A_LANE * len(scene.panels[0].lanes))
    if not spans.spans:
        say_empty(axes, look, "Nothing has run yet")
        return axes
    draw(scene, scene.panels[0], axes, look)
    # Do not stretch a few rows over the whole picture.
    axes.set_ylim(min(0, len(scene.panels[0].lanes) - LEAST_LANES), None)
    axes.set_xticks([x for x, _ in scene.ticks], [words for _, words in scene.ticks], parse_math=False)
    axes.spines["left"].set_visible(False)
    rest = window.total - len(window.lanes)
    if rest:
        put_title(axes, look, f"{count(rest)} more row{'s' * (rest > 1)}")
    handles = [handle_of(look, scene.series[name]) for name, _ in scene.legend]
    put_legend(axes, look, handles, [words for _, words in scene.legend])
    return axes
