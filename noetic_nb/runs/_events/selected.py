"""Asked of a run: the events of one kind with their places among all; readers need not look at the others."""

from __future__ import annotations

from typing import Any, TypeAlias

from noetic_nb import events as ev
from noetic_nb.runs._events.run_log import placed

CallName: TypeAlias = int | ev.ModelCalled
"""A model call of the agent: its place among them, from the end where it is negative, or its event."""
DecisionOrCall: TypeAlias = ev.SteeringDecided | ev.ToolCalled | int | None
"""A decision, or a call of a tool: the event, or the place among the tool calls, as `place_asked` reads it."""


def model_calls(run: Any) -> list[tuple[int, ev.ModelCalled]]:
    """Return all model calls, those of judges and layers too."""
    return placed(run, ev.ModelCalled)


def tool_calls(run: Any) -> list[tuple[int, ev.ToolCalled]]:
    """Return the settled tool calls."""
    return placed(run, ev.ToolCalled)


def ended(run: Any) -> list[tuple[int, ev.ModelCalled | ev.ToolCalled | ev.TurnCompleted]]:
    """Return the calls and turns, which have an end of their own."""
    return placed(run, ev.ModelCalled, ev.ToolCalled, ev.TurnCompleted)


def decisions(run: Any) -> list[tuple[int, ev.SteeringDecided]]:
    """Return the decisions of steering."""
    return placed(run, ev.SteeringDecided)


def appended(run: Any) -> list[tuple[int, ev.ItemsAppended]]:
    """Return the items that were logged."""
    return placed(run, ev.ItemsAppended)


def layer_states(run: Any) -> list[tuple[int, ev.LayerStateChanged]]:
    """Return the states that layers came to."""
    return placed(run, ev.LayerStateChanged)


def was_called(run: Any) -> bool:
    """Tell whether a model was called, or a request made."""
    return bool(placed(run, ev.ModelCalled, ev.ViewAssembled))
