"""The hub of the events of one harness: to every subscriber, limited for one llm step by its `emit` field.

Only events about the work can be hidden: that a step began and ended, that a model or a tool was called. What a
conversation is rebuilt from - items, budgets, views, decisions, states, errors - is recorded always.
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
"""Is called with an error that does not fail the run: ``report(execution_id, source, hook, error)``."""


class EventHub:
    """Hands events on to every subscriber, with `on_change` as they come and go. One that raises is taken off and reported."""

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
        """The subscribers; another tuple once one has come or gone."""
        return self._sinks

    def add(self, sink: EventSink) -> None:
        if not any(other is sink for other in self._sinks):
            # A new tuple, not a list that grows: `emit` may be in the middle of the old one.
            self._changed((*self._sinks, sink))

    def remove(self, sink: EventSink) -> None:
        """Hand it no more."""
        self._changed(tuple(other for other in self._sinks if other is not sink))

    def _changed(self, sinks: tuple[EventSink, ...]) -> None:
        self._sinks = sinks
        self._on_change()


def is_shown(step: LLMStep, event: RunEvent, report: Report) -> bool:
    """Tell whether a step's `emit` lets an event through. A filter that fails is reported, and hides nothing."""
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
    """A sink that hands on to a hub the events that one step shows, also for subscribers that come during the step."""

    def __init__(self, hub: EventHub, step: LLMStep, report: Report) -> None:
        self._hub = hub
        self._step = step
        self._report = report

    def emit(self, event: RunEvent) -> None:
        """Hand one event on, if it is shown and anyone subscribes."""
        if self._hub and is_shown(self._step, event, self._report):
            self._hub.emit(event)
