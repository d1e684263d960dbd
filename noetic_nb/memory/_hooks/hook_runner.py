"""Run one hook of one layer: its time limit, the handling of its result, and the meaning of a failure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

from noetic_nb.clock import SYSTEM_CLOCK, Clock
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import EventSink
from noetic_nb.items import ItemRegistry
from noetic_nb.items._registry import DEFAULT_REGISTRY
from noetic_nb.memory._execution_context import ExecutionContext
from noetic_nb.memory._hook_timeout import HookTimeout, Unfinished, begun, call_apart
from noetic_nb.memory._hooks.hook_results import UNSET, misnamed
from noetic_nb.memory._hooks.hook_traces import HookTraces
from noetic_nb.memory._hooks.layer_order import ENFORCING, LayerOrder
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.memory._state.state_copy import StateNotCopied
from noetic_nb.memory._state.state_store import LayerStateStore
from noetic_nb.memory._steering_decision import Stop
from noetic_nb.memory._trace import CURRENT_NOTES, HookNotes

__all__ = ["HookRunner", "Outcome"]

_CLOSING: Final = frozenset({"on_complete", "dispose"})


@dataclass(slots=True)
class Outcome:
    """How a hook ended."""

    value: Any = None
    error: BaseException | None = None
    status: Literal["ok", "error", "timeout"] = "ok"
    duration_ms: float = 0.0


@contextmanager
def _noting(notes: HookNotes | None) -> Iterator[None]:
    """Let what a hook notes go into `notes`: in the end what runs later in this task must not write into them."""
    token = None if notes is None else CURRENT_NOTES.set(notes)
    try:
        yield
    finally:
        if token is not None:
            CURRENT_NOTES.reset(token)


class HookRunner:
    """The one way to call a hook of the layers of an agent.

    References
    ----------
    .. [1] docs/behaviour/memory.md, "Hooks".
    """

    def __init__(
        self,
        layers: Iterable[MemoryLayer],
        *,
        state: LayerStateStore,
        sink: EventSink | None = None,
        clock: Clock = SYSTEM_CLOCK,
        registry: ItemRegistry = DEFAULT_REGISTRY,
    ) -> None:
        self.state = state
        self.clock = clock
        self.traces: Final = HookTraces(sink, clock)
        self.order: Final = LayerOrder(layers, state, self.traces, registry)
        self._stops: dict[str, Stop] = {}
        self.has_stops = False
        """Whether a hook of any execution wants its turn to stop: asked several times in each, and nearly never so."""

    def write(
        self, ctx: ExecutionContext, layer: MemoryLayer, hook: str, state: Any, layer_id: str | None = None
    ) -> bool:
        """Write the state of a hook's result, where there is one: absent and None both mean "as it was".

        False where it cannot be copied: that was reported, and nothing of the result is to count.
        """
        return state is UNSET or state is None or self.put(ctx, layer, hook, state, layer_id) is None

    def put(
        self, ctx: ExecutionContext, layer: MemoryLayer, hook: str, state: Any, layer_id: str | None = None
    ) -> StateNotCopied | None:
        """Write a state, be it None; returns the error of one that cannot be copied, which was reported."""
        try:
            self.state.set(ctx.execution_id, layer_id or layer.id, state, hook=hook)
        except StateNotCopied as exc:
            self.state.report(ctx.execution_id, layer.id, hook, exc)
            return exc
        return None

    def collect_stop(self, value: Any, ctx: ExecutionContext) -> None:
        """Keep the first stop that a hook returns; the harness ends the turn at its next look."""
        stop = value.get("stop") if isinstance(value, Mapping) else getattr(value, "stop", None)
        if isinstance(stop, Stop):
            # The first stop is the reason; a later one is often only its consequence.
            self._stops.setdefault(ctx.execution_id, stop)
            self.has_stops = True

    def check_names(self, result: Any, layer: MemoryLayer, hook: str, ctx: ExecutionContext) -> None:
        """Report the keys of a hook's result that are not read."""
        warning = misnamed(result, hook, f"`{hook}` of layer {layer.id!r}")
        if warning is not None:
            self.state.report(ctx.execution_id, layer.id, hook, warning)

    def take_stop(self, execution_id: str) -> Stop | None:
        """Return the stop that a hook of an execution returned, once."""
        stop = self._stops.pop(execution_id, None)
        self.has_stops = bool(self._stops)
        return stop

    def forget(self, execution_id: str) -> None:
        """Drop the data that only an ended execution used."""
        if self.has_stops:
            self.take_stop(execution_id)

    async def flush(self, ctx: ExecutionContext) -> None:
        """Wait until everything written so far for an execution is in storage, or was reported."""
        if self.state.is_idle:
            return
        start = self.storage_began()
        try:
            await self.state.flush(ctx.execution_id)
        finally:
            self.storage_ended(ctx, start)

    def storage_began(self) -> float | None:
        """Note that a turn begins to wait for storage; None where nobody follows the run, and no clock is read."""
        return None if self.traces.sink is None else self.clock.monotonic_ms()

    def storage_ended(self, ctx: ExecutionContext, start: float | None) -> None:
        """Count the time since `storage_began`."""
        if start is not None:
            self.state.storage_time.add((ctx.thread_id, ctx.turn), self.clock.monotonic_ms() - start)

    async def run(
        self,
        layer: MemoryLayer,
        hook: Any,
        params: Any,
        ctx: ExecutionContext,
        *,
        read: Callable[[Any], Any] | None = None,
        measure: Callable[[Any], Mapping[str, Any]] | None = None,
    ) -> Outcome:
        """Call a hook, and wait for it.

        Raises nothing, except for what ends the program or the task. `read` turns what the hook returned into what the
        caller wants; what it raises counts as an error of the hook. `measure` gives what its trace says of that value.
        """
        outcome = Outcome()
        notes: HookNotes | None = None if self.traces.sink is None else []
        start = None if notes is None and hook not in ENFORCING else self.clock.monotonic_ms()

        def take(value: Any) -> None:
            # Where its errors are caught: a result that cannot be read is an error of the hook that returned it.
            outcome.value = value if read is None else read(value)
            if value is not None:
                self.collect_stop(value, ctx)
            self.check_names(value, layer, hook, ctx)

        try:
            with _noting(notes):
                value, waiting = self._begun(layer, hook, params)
                if waiting is None:
                    take(value)
            if waiting is not None:
                with _noting(notes):
                    take(await waiting)
        except Exception as exc:
            self._fail(outcome, exc, layer, hook, ctx)
        if start is not None and (notes is not None or outcome.error is not None):
            outcome.duration_ms = self.clock.monotonic_ms() - start
        if notes is not None and outcome.error is None:
            facts = {} if measure is None else measure(outcome.value)
            self.traces.called(notes, layer, hook, ctx, outcome.duration_ms, **facts)
        elif notes is not None and outcome.error is not None:
            self.traces.failed(notes, layer, hook, ctx, outcome.duration_ms, outcome.error)
        return outcome

    def _begun(self, layer: MemoryLayer, hook: Any, params: Any) -> tuple[Any, Awaitable[Any] | None]:
        """Call a hook as far as it goes without waiting: what it returned, or what is to be awaited for that."""
        limit = layer.timeout_ms(hook)
        try:
            value = getattr(layer.hooks, hook)(params)
            if hook not in _CLOSING:
                value = begun(value, limit)
        except GeneratorExit as exc:  # of its own: nobody is closing it
            raise RuntimeError(f"GeneratorExit from a hook: {exc}") from exc
        if isinstance(value, Unfinished):
            return None, value.finish(layer.id, hook, limit)
        if hook in _CLOSING and hasattr(value, "__await__"):
            return None, call_apart(value, layer.id, hook, limit)
        return value, None

    def _fail(self, outcome: Outcome, error: Exception, layer: MemoryLayer, hook: str, ctx: ExecutionContext) -> None:
        outcome.error = error
        outcome.status = "timeout" if isinstance(error, HookTimeout) else "error"
        # A wrong set-up surfaces by itself at the enforcement points; everywhere else it would be lost.
        if hook not in ENFORCING or not isinstance(error, NoeticConfigError):
            self.state.report(ctx.execution_id, layer.id, hook, error)
