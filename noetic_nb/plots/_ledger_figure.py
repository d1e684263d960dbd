"""The decisions of steering, turn by turn."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from noetic_nb.errors import NoeticConfigError
from noetic_nb.plots._figure_style import Theme, as_figure, axes_for, filled, named, put_legend, put_title, say_empty
from noetic_nb.runs._decision_faults import is_faulty
from noetic_nb.runs._events.selected import decisions
from noetic_nb.runs._palette import ACTION_COLOURS, OTHER_LOOK
from noetic_nb.runs._plain_text import count
from noetic_nb.runs._run_source import run_of

# What kept a call from being made stands at the bottom, where heights compare best.
ORDER: Final = ("deny", "ask", "guide", "allow")
HATCHES: Final = {"deny": "xxx", "ask": "ooo", "guide": "///"}
# More turns than so many share bars: a bar is two points wide in a column of a paper.
MOST_BARS: Final = 80


@as_figure
def ledger(run: Any, *, thread_id: str | None = None, ax: Axes | None = None, theme: Theme | None = None) -> Axes:
    """Draw how many calls and responses were denied, asked about, guided and allowed in each turn.

    Parameters
    ----------
    run : Run or object with a ``run``
        What to draw.
    thread_id : str, optional
        Which thread; that of the last decision by default.
    ax : matplotlib Axes, optional
        Where to draw; on a figure of their own by default.
    theme : {"light", "dark"}, optional
        By default inks follow the ground of the figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes. A cross above a bar: a rule could not be evaluated. Beyond 80 turns several share a bar, which the label says.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``, ``INVALID_AXES``, ``INVALID_THEME``, or ``UNKNOWN_THREAD`` where that thread decided nothing.

    Examples
    --------
    >>> import noetic_nb as nn
    >>> rules = nn.RuleBook()
    >>> _ = rules.at_most(3, "get_reservation_details")
    >>> axes = ledger(nn.lab.replay(nn.lab.datasets.airline_run(26), rules=rules))
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['deny 3', 'allow 54']
    """
    recorded = run_of(run)
    events = [event for _, event in decisions(recorded)]
    of_thread = thread_id if thread_id is not None or not events else events[-1].where.thread_id
    decided = [event for event in events if event.where.thread_id == of_thread]
    if thread_id is not None and not decided and len(recorded.events):
        raise NoeticConfigError(
            "UNKNOWN_THREAD", "Nothing was decided in such a thread.", given=thread_id, hint="Look at `run.threads`."
        )
    axes, look = axes_for(ax, theme, "turn", "decisions")
    if not decided:
        say_empty(axes, look, "No decision yet:\nno rule was asked about a call or a response")
        return axes
    first, last = min(event.where.turn for event in decided), max(event.where.turn for event in decided)
    span = -(-(last - first + 1) // MOST_BARS)
    bars: dict[int, Counter[str]] = {}
    faults: set[int] = set()
    for event in decided:
        bar = (event.where.turn - first) // span
        bars.setdefault(bar, Counter())[event.action] += 1
        if is_faulty(event):
            faults.add(bar)
    actions = [*ORDER, *sorted({event.action for event in decided} - set(ORDER))]
    handles: list[Any] = []
    names: list[str] = []
    foot = dict.fromkeys(bars, 0)
    for action in actions:
        looks = filled(look, ACTION_COLOURS.get(action, OTHER_LOOK[0]), HATCHES.get(action))
        xs = [bar for bar in bars if bars[bar][action]]
        if not xs:
            continue
        heights = [bars[bar][action] for bar in xs]
        centres = [first + span * bar + (span - 1) / 2 for bar in xs]
        axes.bar(centres, heights, width=0.8 * span, bottom=[foot[bar] for bar in xs], **looks)
        for bar, height in zip(xs, heights, strict=True):
            foot[bar] += height
        handles.append(Patch(**looks))
        names.append(f"{named(action)} {count(sum(heights))}")
    if faults:
        at = sorted(faults)
        top = max(foot.values())
        (mark,) = axes.plot(
            [first + span * bar + (span - 1) / 2 for bar in at], [foot[bar] + 0.06 * top for bar in at], "X", color=look.ink,
            ms=look.line(9), mec=look.ground, mew=look.line(0.8),
        )  # fmt: skip
        handles.append(mark)
        names.append("a rule failed")
    axes.set_ylim(0, 1.15 * max(foot.values()))
    axes.set_xlim(first - 0.6, max(last, first + span * max(bars) + span - 1) + 0.6)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    axes.yaxis.set_major_formatter(lambda value, _: count(value))
    if span > 1:
        axes.set_xlabel(f"turn ({span} a bar)")
    put_title(axes, look, f"Decisions, thread {named(of_thread, max(8, look.letters(look.text) - 20))}")
    put_legend(axes, look, handles, names)
    return axes
