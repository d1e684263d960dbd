"""The event hub of one harness: it serves every subscriber, restricted for an llm step by its `emit` field.

Only events about work can be hidden: the beginning and end of steps, model calls, tool calls. Events from which a
conversation is rebuilt (items, budgets, views, decisions, states, errors) are always recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import MappingProxyType
from typing import Final, TypeAlias

from msgspec.structs import asdict

from noetic_nb.events import EventSink, ModelCalled, RunEvent, StepEnded, StepStarted, ToolCalled, ToolProgress
from noetic_nb.steps import LLMStep

HIDEABLE_EVENTS: Final = frozenset(
    event.kind for event in (StepStarted, StepEnded, ModelCalled, ToolCalled, ToolProgress)
)
"""Kinds of event that a step may hide."""

Report: TypeAlias = Callable[[str, str, str, BaseException], None]
"""Called with an error that does not fail the run: ``report(execution_id, source, hook, error)``."""


class EventHub:
    """Sends events to every subscriber and calls `on_change` when these change. One that raises is removed and reported."""

    def __init__(self, report: Report, on_change: Callable[[], None]) -> None:
        self._sinks: tuple[EventSink, ...] = ()
        self._report = report
        self._on_change = on_change

    def __bool__(self) -> bool:
        return bool(self._sinks)

    def emit(self, event: RunEvent) -> None:
        for sink in self._sinks:
            try:
                sink.emit(event)
            except Exception as exc:
                self.remove(sink)
                self._report(event.where.execution_id, type(sink).__name__, "emit", exc)

    @property
    def sinks(self) -> tuple[EventSink, ...]:
        """The subscribers; a new tuple after every change."""
        return self._sinks

    def add(self, sink: EventSink) -> None:
        if not any(other is sink for other in self._sinks):
            # A new tuple rather than a growing list: `emit` may be iterating over the old one.
            self._changed((*self._sinks, sink))

    def remove(self, sink: EventSink) -> None:
        self._changed(tuple(other for other in self._sinks if other is not sink))

    def _changed(self, sinks: tuple[EventSink, ...]) -> None:
        self._sinks = sinks
        self._on_change()


def is_shown(step: LLMStep, event: RunEvent, report: Report) -> bool:
    """Tell whether a step's `emit` lets an event through. A failing filter is reported and hides nothing."""
    if event.kind not in HIDEABLE_EVENTS:
        return True
    if isinstance(step.emit, bool):
        return step.emit
    data = MappingProxyType(asdict(event))
    try:
        answer = step.emit(event.kind, data)
        if hasattr(answer, "__await__"):
            if isinstance(answer, Coroutine):
                answer.close()
            raise TypeError("An `emit` filter must be synchronous; this one is async.")
        return bool(answer)
    except Exception as exc:
        report(event.where.execution_id, step.id, "emit", exc)
        return True


class StepEvents:
    """A sink that forwards the events a step shows to the hub, including to subscribers added during the step."""

    def __init__(self, hub: EventHub, step: LLMStep, report: Report) -> None:
        self._hub = hub
        self._step = step
        self._report = report

    def emit(self, event: RunEvent) -> None:
        """Forward an event if the step shows it and there is a subscriber."""
        if self._hub and is_shown(self._step, event, self._report):
            self._hub.emit(event)
