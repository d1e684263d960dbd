"""The spans that calls of hooks leave in a run."""

from __future__ import annotations

from typing import Any

from noetic_nb.clock import Clock
from noetic_nb.events import EventSink, LayerTokens, MemoryTraceSpan
from noetic_nb.memory._execution_context import ExecutionContext
from noetic_nb.memory._hook_timeout import HookTimeout
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.memory._trace import HookNotes, error_facts, noted

__all__ = ["HookTraces"]


class HookTraces:
    """The reports of hooks to a sink; nothing without one."""

    def __init__(self, sink: EventSink | None, clock: Clock) -> None:
        self.clock = clock
        self.sink = sink
        """Where traces go."""

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
        if self.sink is None:
            return
        tokens = None
        if budget is not None:
            tokens = LayerTokens(layer.id, budget, used, max(0.0, budget - used), items or 0)
        attributes, events = noted(notes) if notes else (None, ())
        now = self.clock.now_ms()
        self.sink.emit(
            MemoryTraceSpan(ctx.where, now, layer.id, hook, duration_ms, "ok", tokens, items, None, attributes, events)
        )

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
