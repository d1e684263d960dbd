"""What an llm step lets those hear who follow the run: its `emit` field.

Only events about the work can be hidden: that a step began and ended, that a model or a tool was called. What a
conversation is rebuilt from - items, budgets, views, decisions, states, errors - is recorded always.
"""

from __future__ import annotations

import copy
from collections.abc import Coroutine
from dataclasses import fields
from types import MappingProxyType
from typing import Final

from noetic_nb.events import ModelCalled, RunEvent, StepEnded, StepStarted, ToolCalled
from noetic_nb.runtime.context.engine import Engine
from noetic_nb.runtime.context.hub import EventHub
from noetic_nb.steps import LLMStep

__all__ = ["FRAMEWORK_EVENTS", "filtered", "shows"]

FRAMEWORK_EVENTS: Final = frozenset({StepStarted.kind, StepEnded.kind, ModelCalled.kind, ToolCalled.kind})
"""Kinds of event that a step may hide; runtime specification, section 10."""


def shows(engine: Engine, step: LLMStep, event: RunEvent) -> bool:
    """Tell whether a step lets an event be heard. A filter that fails is reported, and hides nothing."""
    if event.kind not in FRAMEWORK_EVENTS:
        return True
    if isinstance(step.emit, bool):
        return step.emit
    data = MappingProxyType({field.name: getattr(event, field.name) for field in fields(event)})
    try:
        answer = step.emit(event.kind, data)
        if hasattr(answer, "__await__"):
            if isinstance(answer, Coroutine):
                answer.close()
            raise TypeError("An `emit` filter answers at once; this one is async.")
        return bool(answer)
    except Exception as exc:
        engine.stack.state.diagnostic(step.id, "emit", exc)
        return True


class _Filtered(EventHub):
    """Hands on what a step shows."""

    __slots__ = ("_engine", "_step")

    def __init__(self, engine: Engine, step: LLMStep) -> None:
        super().__init__(engine.stack.state.diagnostic)
        self._engine = engine
        self._step = step

    def emit(self, event: RunEvent) -> None:
        """Hand one event on, if it is shown and anyone listens."""
        hub = self._engine.hub
        if hub and shows(self._engine, self._step, event):
            hub.emit(event)


def filtered(engine: Engine, step: LLMStep) -> Engine:
    """Return an engine that shares everything with another one, and says no more than the step's `emit` lets it."""
    twin = copy.copy(engine)
    # Events are made even while nobody listens: whoever begins to during the step is behind this hub.
    twin.hub = twin.sink = _Filtered(engine, step)
    return twin
