"""The spans that calls of hooks leave in a run, as rows where that is enough."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, cast

from noetic_nb.clock import Clock
from noetic_nb.events import EventSink, MemoryTraceSpan
from noetic_nb.late_events import Note, event_of, noting
from noetic_nb.memory.execution_context import ExecutionContext
from noetic_nb.memory.hook_timeout import HookTimeout
from noetic_nb.memory.layer import MemoryLayer
from noetic_nb.memory.trace import HookNotes, error_facts, noted

__all__ = ["HookTraces"]

_CALLED: Final = MemoryTraceSpan.kind


class HookTraces:
    """What a sink is told of the hooks of an agent; nothing without one."""

    def __init__(self, sink: EventSink | None, clock: Clock) -> None:
        self.note: Note | None = None
        """What takes the rows of traces; None without a sink."""
        self.clock = clock
        self.sink = sink

    @property
    def sink(self) -> EventSink | None:
        """Where traces go."""
        return self._sink

    @sink.setter
    def sink(self, sink: EventSink | None) -> None:
        self._sink = sink
        self.note = None if sink is None else noting(sink)

    def skipped(self, layer: MemoryLayer, hook: Any, ctx: ExecutionContext) -> None:
        """Record that a layer was passed over."""
        if self.sink is not None:
            now = self.clock.now_ms()
            self.sink.emit(MemoryTraceSpan(ctx.where, now, layer.id, hook, 0.0, "skipped"))

    def called(
        self,
        notes: HookNotes,
        layer: MemoryLayer,
        hook: Any,
        ctx: ExecutionContext,
        duration_ms: float,
        items: int | None = None,
        budget: float | None = None,
        used: int = 0,
    ) -> None:
        """Record a call of a hook that ended well; of a recall with the tokens it was given and used."""
        if self.note is None:
            return
        now = self.clock.now_ms()
        row = (_CALLED, ctx.event_place, now, layer.id, hook, duration_ms, items, budget, used)
        if not notes:  # nearly always
            self.note(row)
        elif self.sink is not None:
            attributes, events = noted(notes)
            called = cast(MemoryTraceSpan, event_of(row))
            self.sink.emit(replace(called, attributes=attributes, notes=events))

    def failed(
        self,
        notes: HookNotes,
        layer: MemoryLayer,
        hook: Any,
        ctx: ExecutionContext,
        duration_ms: float,
        error: BaseException,
    ) -> None:
        """Record a call of a hook that failed."""
        if self.sink is None:
            return
        kind, message, stack = error_facts(error)
        attributes, events = noted(notes)
        self.sink.emit(
            MemoryTraceSpan(
                ctx.where,
                self.clock.now_ms(),
                layer.id,
                hook,
                duration_ms,
                "timeout" if isinstance(error, HookTimeout) else "error",
                error=message,
                attributes=attributes,
                notes=events,
                error_type=kind,
                error_stack=stack,
            )
        )
