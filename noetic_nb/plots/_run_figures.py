"""Figures of one run: the tokens of a model call, sent above planned, and steering decisions by turn."""

from __future__ import annotations

from collections import Counter
from textwrap import fill
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

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
from noetic_nb.runs._events.selected import decisions
from noetic_nb.runs._palette import ACTION_COLOURS, CATEGORY, OTHER_LOOK, ink_on, layer_colour
from noetic_nb.runs._plain_text import clip, count
from noetic_nb.runs._requests.model_calls import NO_PLANS, Calls, CallShare, Part
from noetic_nb.runs._run_source import run_of
from noetic_nb.runs._tables import is_faulty

# Decisions that prevented a call are at the bottom, where heights are easiest to compare.
ORDER: Final = ("deny", "ask", "guide", "allow")
HATCHES: Final = {"deny": "xxx", "ask": "ooo", "guide": "///"}
# Beyond this many turns, several share a bar: a bar is two points wide in a column of a paper.
MOST_BARS: Final = 80


@as_figure
def ledger(run: Any, *, thread_id: str | None = None, ax: Axes | None = None, theme: Theme | None = None) -> Axes:
    """Draw how many calls and responses were denied, asked about, guided and allowed in each turn.

    Parameters
    ----------
    run : Run or object with a ``run``
        The run to draw.
    thread_id : str, optional
        The thread to draw; that of the last decision by default.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.
    theme : {"light", "dark"}, optional
        By default the text colours follow the figure's background.

    Returns
    -------
    matplotlib.axes.Axes
        The axes. A cross above a bar marks a rule that failed. Beyond 80 turns several share a bar, as the label says.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``, ``INVALID_AXES``, ``INVALID_THEME``, or ``UNKNOWN_THREAD`` if the thread has no decisions.

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
            "UNKNOWN_THREAD", "The run has no decision in this thread.", given=thread_id, hint="Look at `run.threads`."
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


# Two bars with their title, and the space for each name below the picture, in inches.
HEIGHT: Final = 3.8
HEIGHT_A_LAYER: Final = 0.14
# A list of more turns would not be read.
MOST_NAMES: Final = 6


@as_figure
def allocation(
    run: Any,
    turn: int | None = None,
    *,
    thread_id: str | None = None,
    ax: Axes | None = None,
    theme: Theme | None = None,
) -> Axes:
    """Draw how the last model call of a turn spent its tokens.

    Parameters
    ----------
    run : Run or object with a ``run``
        The run to draw.
    turn : int, optional
        The turn, from 1; the last one by default.
    thread_id : str, optional
        The thread; by default the one with the last model call.
    ax : matplotlib Axes, optional
        The axes to draw on; by default those of a new figure.
    theme : {"light", "dark"}, optional
        By default the text colours follow the figure's background.

    Returns
    -------
    matplotlib.axes.Axes
        The axes. A part too narrow for its name is numbered, with its name in the legend.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``, ``INVALID_AXES``, ``INVALID_THEME``, or ``UNKNOWN_TURN`` if that turn has no model call.

    Examples
    --------
    >>> from noetic_nb.runs import Run
    >>> allocation(Run()).get_xlabel()
    'tokens'
    """
    events = run_of(run).events
    calls = Calls.of(events, turn=turn, thread_id=thread_id)
    if not calls.all and not calls.lacks_plans and (turn is not None or thread_id is not None):
        known = sorted({(view.where.thread_id, view.where.turn) for view in Calls.of(events).all.views})
        names = ", ".join([f"turn {number} of thread {name!r}" for name, number in known[:MOST_NAMES]])
        raise NoeticConfigError(
            "UNKNOWN_TURN",
            "The run has no model call there.",
            given={"turn": turn, "thread_id": thread_id},
            hint=f"There are {names}{' and more, see `run.turns`' if len(known) > MOST_NAMES else ''}."
            if known
            else "This run has no model requests. Imported runs have none; read their conversation from `run.turns`.",
        )
    axes, look = axes_for(ax, theme, "tokens", height=HEIGHT + HEIGHT_A_LAYER * len(calls.order))
    if calls.all:
        _draw(axes, look, calls.all[-1], calls.order)
    elif calls.lacks_plans:
        say_empty(axes, look, fill(NO_PLANS, look.letters(look.text)))
    else:
        say_empty(axes, look, "No model call yet")
    return axes


def _draw(axes: Axes, look: Look, call: CallShare, order: dict[str, int]) -> None:
    sent, planned = call.sent_parts(order), call.planned_parts(order)
    scale = call.scale_of(sent, planned)
    unplanned = scale - sum([part.tokens for part in planned])
    if unplanned >= 1:  # history may not plan with all remaining tokens: draw the rest in its place
        at = len(planned) - any(part.kind == "reserve" for part in planned)
        planned = (*planned[:at], Part("free", "Not planned", unplanned), *planned[at:])
    for y, height, parts in ((1.0, 0.62, sent), (0.25, 0.34, planned)):
        left = 0.0
        for number, part in enumerate(parts, 1):
            axes.barh(y, part.tokens, left=left, height=height, **_fill(look, part))
            if parts is sent or part.kind == "free":
                _label(axes, look, part, number if parts is sent else None, left, y, scale)
            left += part.tokens
    axes.set_yticks([1.0, 0.25], ["sent", "planned"])
    axes.set_ylim(-0.05, 1.45)
    axes.set_xlim(0, scale)
    axes.xaxis.set_major_formatter(lambda value, _: count(value))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8 if look.width > 5 else 4))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    if call.total is not None and call.total < scale:
        axes.axvline(call.total, color=look.ink, lw=look.line(2))
    room = look.letters(look.text)
    put_title(axes, look, f"{clip(call.title, room)}\n{fill(call.headline, room)}")
    handles, names, weights = [], [], []
    for number, part in enumerate(sent, 1):
        given = next((layer for layer in call.layers if part.kind == "layer" and layer.name == part.label), None)
        allocated = None if given is None else given.allocated
        of = "" if allocated is None else f"/{count(allocated)}"
        weights.append(max(part.tokens, allocated or 0.0))
        handles.append(Patch(**_fill(look, part)))
        names.append(f"{number} {named(part.label, 22 if look.width > 5 else 16)} {count(part.tokens)}{of}")
    for part in planned:  # layers that were given tokens but sent nothing
        if part.kind == "yielded" and part.label not in {each.label for each in sent if each.kind == "layer"}:
            weights.append(part.tokens)
            handles.append(Patch(**_fill(look, part)))
            names.append(f"{named(part.label, 22 if look.width > 5 else 16)} 0/{count(part.tokens)}")
    if any(part.kind == "yielded" for part in planned):
        weights.append(scale)
        handles.append(Patch(facecolor=look.ground, edgecolor=look.muted, hatch="///"))
        names.append("yielded to history")
    put_legend(axes, look, handles, names, weights=weights)


def _fill(look: Look, part: Part) -> dict[str, Any]:
    edge = {"edgecolor": look.ground, "linewidth": look.line(1.0)}
    match part.kind:
        case "free":
            return {"facecolor": "none", "edgecolor": look.muted, "linewidth": look.line(1.0), "linestyle": (0, (3, 3))}
        case "reserve":
            return {"facecolor": look.faint, "edgecolor": look.muted, "linewidth": look.line(1.0)}
        case "yielded":
            colour = layer_colour(part.layer or 0)
            # Draw the hatch as dark as the outline.
            return {
                "facecolor": to_rgba(colour, 0.22),
                "edgecolor": colour,
                "linewidth": look.line(1.0),
                "hatch": "///",
            }
        case "layer":
            return {"facecolor": layer_colour(part.layer or 0), **edge}
        case _:
            return {"facecolor": CATEGORY[part.kind], **edge}


def _label(axes: Axes, look: Look, part: Part, number: int | None, left: float, y: float, scale: float) -> None:
    room = 72 * look.width * USUAL_SHARE * part.tokens / scale
    label = next(
        (text for text in (part.label, str(number or "")) if (len(text) + 1) * LETTER * look.small < room), None
    )
    if label is None:
        return
    fill_colour = layer_colour(part.layer) if part.layer is not None else CATEGORY.get(part.kind)
    axes.text(
        left + part.tokens / 2, y, label, ha="center", va="center", size=look.small, weight="bold",
        color=look.ink if fill_colour is None else ink_on(fill_colour), parse_math=False, clip_on=True,
    )  # fmt: skip
