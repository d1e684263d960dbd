"""Shared helpers for layer tests: a stack that records problems, and hooks that misbehave in known ways."""

from __future__ import annotations

import asyncio
from typing import Any

from noetic_nb.events import MemoryTraceSpan
from noetic_nb.memory import ExecutionContext, LayerStack, LayerStateStore, MemoryHooks, MemoryLayer
from noetic_nb.testing import FakeClock

CTX = ExecutionContext(execution_id="e1", thread_id="t1", resource_id="r1")


def context(execution_id: str = "e1", thread_id: str = "t1", **more: Any) -> ExecutionContext:
    """Return an execution as hooks see it."""
    return ExecutionContext(execution_id=execution_id, thread_id=thread_id, **more)


def layer(id: str = "a", slot: float = 100, scope: Any = "thread", **options: Any) -> MemoryLayer:
    """Return a layer; hooks are given by name."""
    names = MemoryHooks.__slots__
    hooks = {name: options.pop(name) for name in list(options) if name in names}
    return MemoryLayer(id=id, slot=slot, scope=scope, hooks=MemoryHooks(**hooks), **options)


class Watched(LayerStack):
    """A stack that records its diagnostics and events."""

    def __init__(self, *layers: MemoryLayer, **options: Any) -> None:
        self.notes: list[tuple[str, str, BaseException]] = []
        self.events: list[Any] = []
        state = LayerStateStore(lambda layer_id, hook, error: self.notes.append((layer_id, hook, error)))
        super().__init__(layers, state=state, sink=self, clock=FakeClock(step_ms=1), **options)

    def emit(self, event: Any) -> None:
        """Receive an event."""
        self.events.append(event)

    @property
    def told(self) -> list[tuple[str, str]]:
        """The reported layers, with the hook of each report."""
        return [(layer_id, hook) for layer_id, hook, _ in self.notes]

    @property
    def spans(self) -> list[tuple[str, str, str]]:
        """Layer, hook and status of every trace."""
        return [(e.layer_id, e.hook, e.status) for e in self.events if isinstance(e, MemoryTraceSpan)]


class Seen:
    """A sink that keeps events."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def emit(self, event: Any) -> None:
        """Receive an event."""
        self.events.append(event)


def boom(params: Any) -> Any:
    """Raise, like a hook with a bug."""
    raise RuntimeError("boom")


async def hang(params: Any) -> Any:
    """Never finish."""
    await asyncio.Event().wait()


def returning(value: Any) -> Any:
    """Return a hook that always returns the same value."""
    return lambda params: value


RESPONSE = {"items": [{"type": "message", "role": "assistant", "content": []}], "usage": {}}
