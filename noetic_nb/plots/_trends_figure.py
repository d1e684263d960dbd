"""Quality and spending turn by turn, against the thresholds of the regulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from matplotlib.axes import Axes

from noetic_nb.errors import NoeticConfigError
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
from noetic_nb.plots._scene.axes import draw
from noetic_nb.plots._scene.scene import Panel, Scene
from noetic_nb.plots._trends.trends_chart import ThreadChart
from noetic_nb.plots._trends.trends_panels import DECISIONS
from noetic_nb.runs._regulation.regulator_signals import Signals
from noetic_nb.runs._regulation.thread_signals import ThreadSignals
from noetic_nb.runs._run_source import run_of

# The height of a lane, in units of quality.
LANE: Final = 0.12
# Quality above, tokens below: left, bottom, width and height as shares of the axes that hold both.
UPPER: Final = (0.0, 0.42, 1.0, 0.58)
LOWER: Final = (0.0, 0.0, 1.0, 0.36)


@as_figure
def trends(run: Any, *, thread_id: str | None = None, ax: Any = None, theme: Theme | None = None) -> Axes:
    """Draw quality and output tokens per turn against the regulator's thresholds, as far as the run has recorded them.

    The marks are those of `RegulatorTrends`. Turns without a grade are gaps; tokens that nobody measured are not drawn.

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
        hint = "Look at `run.threads`."
        raise NoeticConfigError("UNKNOWN_THREAD", "The run has no such thread.", given=thread_id, hint=hint)
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
        raise NoeticConfigError("INVALID_AXES", "Quality and tokens need one axes or two.", given=ax, hint=hint)
    upper, look = axes_for(given[0], theme)
    lower, _ = axes_for(given[1], theme)
    return upper, upper, lower, look


def _draw_quality(axes: Axes, look: Look, scene: Scene, panels: Mapping[str, Panel]) -> None:
    draw(scene, panels["quality"], axes, look)
    lanes = panels.get(DECISIONS)
    # Above quality a lane for each predicate that decided.
    used = [] if lanes is None else [lane for lane in lanes.lanes if any(lane in mark.points for mark in scene.marks)]
    foot, top = axes.get_ylim()
    if lanes is not None and used:
        lanes.lanes = used
        draw(scene, lanes, axes, look, base=top, step=LANE)
        names = [(tick, text) for tick, text in panels["quality"].ticks]
        names += [(top + LANE * (len(used) - 0.5 - at), lane) for at, lane in enumerate(used)]
        axes.set_yticks([place for place, _ in names], [text for _, text in names], parse_math=False)
    axes.set_ylim(foot, top + LANE * len(used))
    if not any(mark.series in ("quality-dot", "quality-range") for mark in scene.marks):
        axes.text(
            0.5, 0.4, "No turn was graded", transform=axes.transAxes, ha="center", size=look.text, color=look.ink
        )  # fmt: skip


# Its name in version 0.1.
quality_and_cost = trends
