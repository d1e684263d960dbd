"""Run one hook of one layer: its time limit, the handling of its result, and the meaning of a failure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from math import inf
from types import CoroutineType
from typing import Any, Final, Literal

from noetic_nb.clock import SYSTEM_CLOCK, Clock
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import EventSink
from noetic_nb.items import ItemRegistry
from noetic_nb.items._registry import DEFAULT_REGISTRY
from noetic_nb.memory._execution_context import ExecutionContext
from noetic_nb.memory._hook_timeout import HookTimeout, Unfinished, begun, call_apart
from noetic_nb.memory._hooks.hook_results import UNSET, misnamed, state_of
from noetic_nb.memory._hooks.hook_traces import HookTraces
from noetic_nb.memory._hooks.layer_order import ENFORCING, LayerOrder
from noetic_nb.memory._layer import DEFAULT_TIMEOUTS_MS, MemoryLayer
from noetic_nb.memory._state.state_copy import StateNotCopied
from noetic_nb.memory._state.state_store import LayerStateStore
from noetic_nb.memory._steering_decision import Stop
from noetic_nb.memory._trace import CURRENT_NOTES, HookNotes

__all__ = ["HookRunner", "Outcome"]

_CLOSING: Final = frozenset({"on_complete", "dispose"})
_STATE_STORED: Final = partial(state_of, hook="store")
_STORE_LIMIT: Final = DEFAULT_TIMEOUTS_MS["store"]


class Outcome:
    """How a hook ended."""

    # On the class, as one is made for each call: most ended well, and nobody wants to know when.
    value: Any = None
    error: BaseException | None = None
    status: Literal["ok", "error", "timeout"] = "ok"
    duration_ms: float = 0.0

    @classmethod
    def failed(cls, error: BaseException) -> Outcome:
        """Return the outcome of a hook that was not called, as this stood in the way."""
        outcome = cls()
        outcome.error, outcome.status = error, "error"
        return outcome


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
        plain = type(value) is dict or isinstance(value, Mapping)
        stop = value.get("stop") if plain else getattr(value, "stop", None)
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

    def begin(
        self,
        layer: MemoryLayer,
        hook: Any,
        params: Any,
        ctx: ExecutionContext,
        *,
        read: Callable[[Any], Any] | None = None,
        count: Callable[[Any], int] | None = None,
        call: Callable[[Any], Any] | None = None,
        start: float | None = None,
    ) -> Outcome | Coroutine[Any, Any, Outcome]:
        """Call a hook as far as it goes without waiting; returns its outcome, or an awaitable for it.

        Raises nothing, except for what ends the program or the task. `read` turns what the hook returned into what the
        caller wants; what it raises counts as an error of the hook. `count` gives the number of items in the trace, from
        that value. `call` stands in the place of the hook, where that was called already, at `start`.
        """
        outcome = Outcome()
        notes: HookNotes | None = None
        token = None
        if self.traces.sink is not None:
            notes = []
            token = CURRENT_NOTES.set(notes)
            start = self.clock.monotonic_ms()
        try:
            value = (getattr(layer.hooks, hook) if call is None else call)(params)
            if value is not None and type(value) is not dict:  # most results: nothing to wait for
                waiting: Awaitable[Any] | None = None
                if hook not in _CLOSING:
                    limit = DEFAULT_TIMEOUTS_MS[hook]
                    if layer.timeouts:
                        limit = layer.timeouts.get(hook, limit)
                    if type(value) is CoroutineType and 0 < limit < inf:  # what `begun` does with nearly every hook
                        try:
                            value = Unfinished(value, value, value.send(None))
                        except StopIteration as done:
                            value = done.value
                    else:
                        value = begun(value, limit)
                    if type(value) is Unfinished:
                        waiting = value.finish(layer.id, hook, limit)
                elif hasattr(value, "__await__"):
                    waiting = call_apart(value, layer.id, hook, layer.timeout_ms(hook))
                if waiting is not None:
                    return self._rest(outcome, start, waiting, notes, layer, hook, ctx, read, count)
            # Where its errors are caught: a result that cannot be read is an error of the hook that returned it.
            outcome.value = value if read is None else read(value)
            if value is not None and type(value) is not str and (type(value) is not dict or "stop" in value):
                self.collect_stop(value, ctx)
            self.check_names(value, layer, hook, ctx)
        except Exception as exc:
            self._fail(outcome, exc, layer, hook, ctx)
        finally:
            if token is not None:
                # In any case: what runs later in this task must not write into the notes of this hook.
                CURRENT_NOTES.reset(token)
        if start is not None and (notes is not None or outcome.error is not None):
            outcome.duration_ms = self.clock.monotonic_ms() - start
        if notes is not None:
            self._leave_trace(outcome, notes, layer, hook, ctx, count)
        return outcome

    def begin_store(
        self, layer: MemoryLayer, params: Any, ctx: ExecutionContext
    ) -> Outcome | tuple[Any] | Coroutine[Any, Any, Outcome]:
        """Do the same as `begin` with ``store``; one that ended well at once gives its state by itself, as the one of a tuple.

        With no more around the hook than it needs: it runs at every step, and nearly none waits here, or returns anything else.
        """
        if layer.timeouts:
            return self.begin(layer, "store", params, ctx, read=_STATE_STORED)
        hook: Any = layer.hooks.store
        notes: HookNotes | None = None
        token, start = None, 0.0
        if self.traces.sink is not None:
            notes = []
            token = CURRENT_NOTES.set(notes)
            start = self.clock.monotonic_ms()
        try:
            value = hook(params)
            if type(value) is CoroutineType:
                try:
                    value = Unfinished(value, value, value.send(None))
                except StopIteration as done:
                    value = done.value
            elif value is not None and type(value) is not dict:
                value = begun(value, _STORE_LIMIT)
            if type(value) is dict and "stop" not in value:
                state = value.get("state", UNSET)
                self.check_names(value, layer, "store", ctx)
            elif type(value) is Unfinished:
                waiting = value.finish(layer.id, "store", _STORE_LIMIT)
                begun_at = None if notes is None else start
                return self._rest(Outcome(), begun_at, waiting, notes, layer, "store", ctx, _STATE_STORED, None)
            else:
                state = _STATE_STORED(value)
                if value is not None:
                    self.collect_stop(value, ctx)
                self.check_names(value, layer, "store", ctx)
        except Exception as exc:
            outcome = Outcome()
            self._fail(outcome, exc, layer, "store", ctx)
            if notes is not None:
                outcome.duration_ms = self.clock.monotonic_ms() - start
                self.traces.failed(notes, layer, "store", ctx, outcome.duration_ms, exc)
            return outcome
        finally:
            if token is not None:
                CURRENT_NOTES.reset(token)
        if notes is not None:
            self.traces.called(notes, layer, "store", ctx, self.clock.monotonic_ms() - start)
        return (state,)

    async def run(self, layer: MemoryLayer, hook: Any, params: Any, ctx: ExecutionContext, **how: Any) -> Outcome:
        """Do the same as `begin`, and wait for it."""
        found = self.begin(layer, hook, params, ctx, **how)
        return found if isinstance(found, Outcome) else await found

    async def _rest(
        self,
        outcome: Outcome,
        start: float | None,
        waiting: Awaitable[Any],
        notes: HookNotes | None,
        layer: MemoryLayer,
        hook: Any,
        ctx: ExecutionContext,
        read: Callable[[Any], Any] | None,
        count: Callable[[Any], int] | None,
    ) -> Outcome:
        token = None if notes is None else CURRENT_NOTES.set(notes)
        try:
            value = await waiting
            outcome.value = value if read is None else read(value)
            if value is not None:
                self.collect_stop(value, ctx)
            self.check_names(value, layer, hook, ctx)
        except Exception as exc:
            self._fail(outcome, exc, layer, hook, ctx)
        finally:
            if token is not None:
                CURRENT_NOTES.reset(token)
        if start is not None:
            outcome.duration_ms = self.clock.monotonic_ms() - start
        if notes is not None:
            self._leave_trace(outcome, notes, layer, hook, ctx, count)
        return outcome

    def _leave_trace(
        self,
        outcome: Outcome,
        notes: HookNotes,
        layer: MemoryLayer,
        hook: Any,
        ctx: ExecutionContext,
        count: Callable[[Any], int] | None,
    ) -> None:
        if outcome.error is None:
            items = None if count is None else count(outcome.value)
            self.traces.called(notes, layer, hook, ctx, outcome.duration_ms, items)
        else:
            self.traces.failed(notes, layer, hook, ctx, outcome.duration_ms, outcome.error)

    def _fail(self, outcome: Outcome, error: Exception, layer: MemoryLayer, hook: str, ctx: ExecutionContext) -> None:
        outcome.error = error
        outcome.status = "timeout" if isinstance(error, HookTimeout) else "error"
        # A wrong set-up surfaces by itself at the enforcement points; everywhere else it would be lost.
        if hook not in ENFORCING or not isinstance(error, NoeticConfigError):
            self.state.report(ctx.execution_id, layer.id, hook, error)
