"""Selects events of one kind from a run, each with its index among all events."""

from __future__ import annotations

from typing import Any, TypeAlias

from noetic_nb import events as ev
from noetic_nb.runs._events.run_log import placed

CallName: TypeAlias = int | ev.ModelCalled
"""A model call of the agent: its index (negative from the end), or its event."""
DecisionOrCall: TypeAlias = ev.SteeringDecided | ev.ToolCalled | int | None
"""A decision or a tool call: the event, or the index among the tool calls, as `place_asked` reads it."""


def model_calls(run: Any) -> list[tuple[int, ev.ModelCalled]]:
    """Return all model calls, including those of judges and layers."""
    return placed(run, ev.ModelCalled)


def tool_calls(run: Any) -> list[tuple[int, ev.ToolCalled]]:
    """Return the settled tool calls."""
    return placed(run, ev.ToolCalled)


def ended(run: Any) -> list[tuple[int, ev.ModelCalled | ev.ToolCalled | ev.TurnCompleted]]:
    """Return the ends of calls and turns."""
    return placed(run, ev.ModelCalled, ev.ToolCalled, ev.TurnCompleted)


def decisions(run: Any) -> list[tuple[int, ev.SteeringDecided]]:
    return placed(run, ev.SteeringDecided)


def appended(run: Any) -> list[tuple[int, ev.ItemsAppended]]:
    """Return the events that logged items."""
    return placed(run, ev.ItemsAppended)


def compacted(run: Any) -> list[tuple[int, ev.ContextCompacted]]:
    """Return the compactions as they are recorded."""
    return placed(run, ev.ContextCompacted)


def layer_states(run: Any) -> list[tuple[int, ev.LayerStateChanged]]:
    """Return the state writes of layers."""
    return placed(run, ev.LayerStateChanged)


def was_called(run: Any) -> bool:
    return bool(placed(run, ev.ModelCalled, ev.ViewAssembled))
