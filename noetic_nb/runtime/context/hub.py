"""Where the events of one harness go: to everyone who listens."""

from __future__ import annotations

from collections.abc import Callable

from noetic_nb.events import EventSink, RunEvent
from noetic_nb.memory.execution_context import Diagnostic

__all__ = ["EventHub"]


class EventHub:
    """Hands events on to everyone who listens. A listener that raises is taken off and reported."""

    __slots__ = ("_diagnostic", "_sinks", "changed")

    def __init__(self, diagnostic: Diagnostic) -> None:
        self._sinks: tuple[EventSink, ...] = ()
        self._diagnostic = diagnostic
        self.changed: Callable[[], None] = lambda: None
        """Called when a listener came or went."""

    def __bool__(self) -> bool:
        return bool(self._sinks)

    def emit(self, event: RunEvent) -> None:
        """Hand one event on."""
        for sink in self._sinks:
            try:
                sink.emit(event)
            except Exception as exc:
                self.remove(sink)
                self._diagnostic(type(sink).__name__, "emit", exc)

    def add(self, sink: EventSink) -> None:
        """Begin to hand events to a sink."""
        if not any(other is sink for other in self._sinks):
            self._sinks = (*self._sinks, sink)
            self.changed()

    def remove(self, sink: EventSink) -> None:
        """Hand it no more."""
        self._sinks = tuple(other for other in self._sinks if other is not sink)
        self.changed()
