"""Which method of a task takes which event. Subclasses are unknown unless their maker is trusted to have checked them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from noetic_nb.regulator.events import (
    Cost,
    QualityFeedback,
    Token,
    ToolCall,
    ToolResult,
    TurnComplete,
    TurnStart,
    UserCorrection,
)
from noetic_nb.regulator.task import Task

__all__ = ["HANDLERS", "TOKENS", "TRUSTED", "trust"]

Handler: TypeAlias = Callable[[Task, Any], None]
HANDLERS: Final[dict[type[Any], Handler]] = {
    TurnStart: Task.turn_start,
    TurnComplete: Task.turn_complete,
    Cost: Task.cost,
    QualityFeedback: Task.quality,
    UserCorrection: Task.correction,
    ToolCall: Task.tool_call,
    ToolResult: Task.tool_result,
}
TOKENS: Final[set[type[Any]]] = {Token}
TRUSTED: Final[dict[type[Any], Handler]] = {}


def trust(cls: type[Any], event_type: type[Any]) -> None:
    """Accept a subclass of an event whose maker has checked every field; for compatibility layers."""
    if not issubclass(cls, event_type):
        raise TypeError(f"{cls.__name__} must be a subclass of {event_type.__name__}.")
    if event_type is Token:
        TOKENS.add(cls)
    else:
        TRUSTED[cls] = HANDLERS[event_type]
