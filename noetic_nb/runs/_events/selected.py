"""Asked of a run: the events of one kind with their places among all; readers need not look at the others."""

from __future__ import annotations

from typing import Any, TypeAlias

from noetic_nb.events import (
    ItemsAppended,
    LayerStateChanged,
    ModelCalled,
    SteeringDecided,
    ToolCalled,
    TurnCompleted,
    ViewAssembled,
)
from noetic_nb.runs._events.run_log import placed

CallName: TypeAlias = int | ModelCalled
"""A model call of the agent: its place among them, from the end where it is negative, or its event."""
DecisionOrCall: TypeAlias = SteeringDecided | ToolCalled | int | None
"""A decision, or a call of a tool: the event, or the place among the tool calls, as `place_asked` reads it."""


def model_calls(run: Any) -> list[tuple[int, ModelCalled]]:
    """Return all model calls, those of judges and layers too."""
    return placed(run, ModelCalled)


def tool_calls(run: Any) -> list[tuple[int, ToolCalled]]:
    """Return the settled tool calls."""
    return placed(run, ToolCalled)


def ended(run: Any) -> list[tuple[int, ModelCalled | ToolCalled | TurnCompleted]]:
    """Return what has an end of its own: calls and turns."""
    return placed(run, ModelCalled, ToolCalled, TurnCompleted)


def decisions(run: Any) -> list[tuple[int, SteeringDecided]]:
    """Return the decisions of steering."""
    return placed(run, SteeringDecided)


def appended(run: Any) -> list[tuple[int, ItemsAppended]]:
    """Return the items that were logged."""
    return placed(run, ItemsAppended)


def layer_states(run: Any) -> list[tuple[int, LayerStateChanged]]:
    """Return the states that layers came to."""
    return placed(run, LayerStateChanged)


def was_called(run: Any) -> bool:
    """Tell whether a model was called, or a request made."""
    return bool(placed(run, ModelCalled, ViewAssembled))
