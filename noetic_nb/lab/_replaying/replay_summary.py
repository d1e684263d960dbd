"""The result of a replay beside the recording: decisions, calls, tokens, drops, cost; also up to where it is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from noetic_nb.events import ModelCalled, RegulatorDecided, RunEvent, SteeringDecided, ToolCalled, ViewAssembled
from noetic_nb.runs import Run
from noetic_nb.runs._known_until import KnownUntil, known_events, said_of
from noetic_nb.runs._turns import TurnSummary

__all__ = ["actions_of", "costs_of", "drops_of", "kinds_of", "note_known", "sent_tokens", "summary", "tokens_of"]

_RAN = frozenset({"ok", "error", "invalid_result"})


def sent_tokens(view: ViewAssembled) -> int:
    """Return the tokens of a request."""
    return view.system + view.tools + view.framing + sum([layer.used for layer in view.layers]) + view.history


def tokens_of(turn: TurnSummary) -> int | None:
    """Return the tokens that a turn took, in and out; None where nobody counted them."""
    if turn.input_tokens is None or turn.output_tokens is None:
        return None
    return turn.input_tokens + turn.output_tokens


def drops_of(view: ViewAssembled) -> int:
    """Return how many items of a request were left out; the latest user message is always sent."""
    stretches = sum([stop - start for start, stop, _ in view.hidden])
    # What is below the window has no fates of its own.
    left = view.window[0] - len([at for at in view.kept if at < view.window[0]])
    named = [fate for fate in view.fates if fate.reason != "forced"]
    below = sum([1 for fate in named if fate.origin == "history" and fate.position < view.window[0]])
    return len(named) + stretches + max(0, left - below)


def costs_of(events: Iterable[RunEvent]) -> float | None:
    """Return the cost of the model calls, US dollars; None where the price of one is not known."""
    costs = [event.cost for event in events if isinstance(event, ModelCalled) and event.status == "ok"]
    return None if any(cost is None for cost in costs) else sum([cost or 0.0 for cost in costs])


def summary(before: Run, after: Run, *, views_changed: bool) -> dict[str, Any]:
    """Return the difference as JSON data; ``None`` where a number is not known.

    In an open replay the answers are the recorded ones, so that nobody knows what other requests would have cost.
    """
    old, new = tuple(before.events), tuple(after.events)
    return {
        name: {"before": count(old), "after": None if name == "cost" and views_changed else count(new)}
        for name, count in _COUNTED.items()
    }


def note_known(run: Run, points: Mapping[str, KnownUntil]) -> None:
    """Note in a replayed run how far it is known, and in its summary, as ``after_known``, what is counted up to there."""
    about = run.meta["replay"]
    about["known_until"] = {thread_id: point._asdict() for thread_id, point in points.items()}
    about["known"] = said_of(points)
    known = known_events(tuple(run.events), points) if points else ()
    for name, count in _COUNTED.items():
        if name in about:
            about[name]["after_known"] = count(known) if points else about[name]["after"]


def actions_of(events: Iterable[RunEvent]) -> dict[str, int]:
    """Return how often rules decided what, by action."""
    return dict(sorted(Counter(event.action for event in events if isinstance(event, SteeringDecided)).items()))


def kinds_of(events: Iterable[RunEvent]) -> dict[str, int]:
    """Return how often a regulator decided what, by kind, and how many of them stopped a turn."""
    decided = [event for event in events if isinstance(event, RegulatorDecided)]
    kinds = Counter(str(event.decision.get("kind")) for event in decided)
    return {**dict(sorted(kinds.items())), "stops": sum([event.stops for event in decided])}


def _calls(events: Iterable[RunEvent]) -> dict[str, int]:
    model = tool = 0
    for event in events:
        model += isinstance(event, ModelCalled)
        tool += isinstance(event, ToolCalled) and event.status in _RAN
    return {"model": model, "tool": tool}


def _sum(events: Iterable[RunEvent], number: Any) -> int | None:
    views = [event for event in events if isinstance(event, ViewAssembled)]
    return sum([number(view) for view in views]) if views else None


_COUNTED: Final[Mapping[str, Callable[[Sequence[RunEvent]], Any]]] = {
    "decisions": actions_of,
    "regulator": kinds_of,
    "calls": _calls,
    "tokens": lambda events: _sum(events, sent_tokens),
    "drops": lambda events: _sum(events, drops_of),
    "cost": costs_of,
}
