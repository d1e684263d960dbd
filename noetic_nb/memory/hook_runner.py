"""Run one hook of one layer: who runs at all, under which limit, what a failure means, and the trace it leaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from types import CoroutineType, MappingProxyType
from typing import Any, Final, Literal, cast

from noetic_nb.clock import SYSTEM_CLOCK, Clock
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import EventSink, MemoryTraceSpan
from noetic_nb.items import ItemRegistry
from noetic_nb.items.registry import DEFAULT_REGISTRY
from noetic_nb.late_events import Note, event_of, noting
from noetic_nb.memory.declared import check_layers
from noetic_nb.memory.execution_context import ExecutionContext
from noetic_nb.memory.hook_results import UNSET, state_of
from noetic_nb.memory.hook_timeout import HookTimeout, Unfinished, begun, call_apart
from noetic_nb.memory.idle_hook import IdleHook, IsIdle, PassingHook
from noetic_nb.memory.layer import DEFAULT_TIMEOUTS_MS, MemoryLayer
from noetic_nb.memory.state_copy import StateNotCopied
from noetic_nb.memory.state_store import LayerStateStore
from noetic_nb.memory.steering_decision import Stop
from noetic_nb.memory.trace import CURRENT_NOTES, HookNotes, error_facts, noted

__all__ = ["NO_SOURCES", "HookRunner", "Outcome"]

NO_SOURCES: Final[Mapping[str, str]] = MappingProxyType({})
"""Every layer is known by the same id in an execution and in its child."""

_HOOKS: Final = (
    "init",
    "recall",
    "store",
    "on_spawn",
    "on_return",
    "on_complete",
    "dispose",
    "before_tool_call",
    "after_model_call",
    "on_item_append",
    "project_history",
    "on_tool_outcome",
    "on_model_outcome",
    "on_feedback",
    "delivered",
)
_IN_ARRAY_ORDER: Final = frozenset({"init", "store", "on_complete", "dispose"})
_CLOSING: Final = frozenset({"on_complete", "dispose"})
_CALLED: Final = MemoryTraceSpan.kind
# Of these a run says nothing by itself.
_UNTRACED: Final = frozenset({"delivered"})
_ENFORCING: Final = frozenset({"before_tool_call", "after_model_call"})


_STATE_STORED: Final = partial(state_of, hook="store")
_STORE_LIMIT: Final = DEFAULT_TIMEOUTS_MS["store"]


class Outcome:
    """How a hook ended."""

    # On the class, as one is made for each call: most ended well, and nobody wants to know when.
    value: Any = None
    error: BaseException | None = None
    status: Literal["ok", "error", "timeout"] = "ok"
    duration_ms: float = 0.0

    def __init__(self, *, error: BaseException | None = None) -> None:
        if error is not None:
            self.error, self.status = error, "error"


class HookRunner:
    """The layers of one agent, in the orders their hooks need, and the one way to call a hook.

    Orders: ascending slot, ties by position; ``init``, ``store`` and ``on_complete`` by
    position, ``dispose`` in reverse; layers that enforce come first at the two enforcement points.

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
        self.layers = check_layers(layers)
        self.state = state
        self.note: Note | None = None
        """What takes the rows of traces; None without a sink."""
        self.sink = sink
        self.clock = clock
        self.by_slot = tuple(sorted(self.layers, key=lambda layer: layer.slot))
        # Sorting is stable: within each of the two groups the slots keep their order.
        enforcing = tuple(sorted(self.by_slot, key=lambda layer: not layer.enforces))
        self._with: dict[str, tuple[MemoryLayer, ...]] = {}
        self._stops: dict[str, Stop] = {}
        self.has_stops = False
        """Whether a hook of any execution wants its turn to stop: asked several times in each, and nearly never so."""
        self._registry = self._shared = registry
        self._registries: dict[str, ItemRegistry] = {}
        for layer in self.layers:
            if layer.item_schemas:
                self._registries[layer.id] = registry.extend(layer.item_schemas)
                # The log is read by all layers, so it takes what any of them may write.
                self._shared = self._shared.extend(layer.item_schemas)
        for hook in _HOOKS:
            order = self.layers if hook in _IN_ARRAY_ORDER else enforcing if hook in _ENFORCING else self.by_slot
            found = tuple(layer for layer in order if getattr(layer.hooks, hook) is not None)
            # What was opened last is closed first.
            self._with[hook] = found[::-1] if hook == "dispose" else found
        # Hooks whose layers have no `init`, and so take part unless they are disabled.
        self._always = {hook for hook, found in self._with.items() if all(layer.hooks.init is None for layer in found)}
        self.hooks: Final = frozenset(hook for hook, found in self._with.items() if found)
        """The hooks that at least one layer has."""
        # Of the hooks that all their layers can tell it of beforehand.
        self._is_idle: dict[str, tuple[IsIdle, ...]] = {}
        for hook in self.hooks:
            calls = [getattr(layer.hooks, hook) for layer in self._with[hook]]
            if all(isinstance(call, IdleHook) for call in calls):
                self._is_idle[hook] = tuple([call.is_idle for call in calls])

        judges = [(layer, layer.hooks.after_model_call) for layer in self._with["after_model_call"]]
        passing = [(layer, call.lets_pass) for layer, call in judges if isinstance(call, PassingHook)]
        self.passing: Final = tuple(passing) if len(passing) == len(judges) else ()
        """The layers that judge responses, with what tells whether they let one pass; none where one has to be asked."""

    @property
    def sink(self) -> EventSink | None:
        """Where traces go."""
        return self._sink

    @sink.setter
    def sink(self, sink: EventSink | None) -> None:
        self._sink = sink
        self.note = None if sink is None else noting(sink)

    def layers_with(self, hook: str) -> tuple[MemoryLayer, ...]:
        """Return the layers that have a hook, in the order in which it runs."""
        return self._with[hook]

    def active(
        self, hook: str, ctx: ExecutionContext, sources: Mapping[str, str] = NO_SOURCES
    ) -> Iterator[MemoryLayer]:
        """Yield the layers whose hook is to run now, in order; one that does not take part is recorded as skipped.

        Each layer is looked at when its turn comes: a hook before it may have changed whether it takes part. `sources` holds
        the ids, in this execution, of layers that are known by another id in its child.
        """
        for layer in self._with[hook]:
            if self.runs(layer, ctx.execution_id, sources.get(layer.id) if sources else None):
                yield layer
            else:
                self.skipped(layer, hook, ctx)

    def active_now(self, hook: str, ctx: ExecutionContext) -> Sequence[MemoryLayer]:
        """Return the same layers, all judged before the first of their hooks runs."""
        if hook in self._always and not self.state.has_disabled:
            return self._with[hook]
        return list(self.active(hook, ctx))

    def runs(self, layer: MemoryLayer, execution_id: str, layer_id: str | None = None) -> bool:
        """Tell whether a layer takes part: not disabled, and initialised if it has an ``init``.

        A state that was cleared on purpose is an entry that holds None, and keeps the layer running.
        """
        state = self.state
        if not state.has_disabled:  # nearly always
            return layer.hooks.init is None or state.has(execution_id, layer_id or layer.id)
        return self.idle_reason(layer, execution_id, layer_id) is None

    def is_idle(self, hook: str, execution_id: str) -> bool:
        """Tell whether a hook would do nothing in any layer, so that it need not be called: nor would it be in a run."""
        if self.note is not None and hook not in _UNTRACED:
            return False
        tests = self._is_idle.get(hook)
        if tests is None:
            return False
        state_of = self.state.peek
        if len(tests) == 1:
            return tests[0](execution_id, state_of)
        return all(test(execution_id, state_of) for test in tests)

    def idle_reason(
        self, layer: MemoryLayer, execution_id: str, layer_id: str | None = None
    ) -> Literal["disabled", "uninitialised"] | None:
        """Return why a layer, known by `layer_id` in this execution, does not take part, None where it does."""
        state, layer_id = self.state, layer_id or layer.id
        if state.has_disabled and state.is_disabled(execution_id, layer_id):
            return "disabled"
        if layer.hooks.init is not None and not state.has(execution_id, layer_id):
            return "uninitialised"
        return None

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

    def take_stop(self, execution_id: str) -> Stop | None:
        """Return the stop that a hook of an execution returned, once."""
        stop = self._stops.pop(execution_id, None)
        self.has_stops = bool(self._stops)
        return stop

    def forget(self, execution_id: str) -> None:
        """Drop what is only of use to an execution that has ended."""
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
        return None if self.note is None else self.clock.monotonic_ms()

    def storage_ended(self, ctx: ExecutionContext, start: float | None) -> None:
        """Count the time since `storage_began`."""
        if start is not None:
            self.state.storage_time.add((ctx.thread_id, ctx.turn), self.clock.monotonic_ms() - start)

    def registry(self, layer: MemoryLayer) -> ItemRegistry:
        """Return which items a layer may bring in: the known types, the agent's extensions and its own."""
        return self._registries.get(layer.id, self._registry)

    def shared_registry(self) -> ItemRegistry:
        """Return which items a log may hold that these layers write to: the agent's extensions and those of them all."""
        return self._shared

    def skipped(self, layer: MemoryLayer, hook: Any, ctx: ExecutionContext) -> None:
        """Record that a layer was passed over."""
        if self.sink is not None:
            now = self.clock.now_ms()
            self.sink.emit(MemoryTraceSpan(ctx.where, now, layer.id, hook, 0.0, "skipped"))

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
        """Call a hook as far as it goes without waiting; returns its outcome, or what has to be awaited for it.

        Raises nothing, except for what ends the program or the task. `read` turns what the hook returned into what the
        caller wants; what it raises counts as an error of the hook. `count` gives the number of items in the trace, from
        that value. `call` stands in the place of the hook, where that was called already, at `start`.
        """
        outcome = Outcome()
        notes: HookNotes | None = None
        token = None
        if self.note is not None:
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
        """Do what `begin` does with ``store``; one that ended well at once gives its state by itself, as the one of a tuple.

        With no more around the hook than it needs: it runs at every step, and nearly none waits here, or returns anything else.
        """
        if layer.timeouts:
            return self.begin(layer, "store", params, ctx, read=_STATE_STORED)
        hook: Any = layer.hooks.store
        notes: HookNotes | None = None
        token, start = None, 0.0
        if self.note is not None:
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
            elif type(value) is Unfinished:
                waiting = value.finish(layer.id, "store", _STORE_LIMIT)
                begun_at = None if notes is None else start
                return self._rest(Outcome(), begun_at, waiting, notes, layer, "store", ctx, _STATE_STORED, None)
            else:
                state = _STATE_STORED(value)
                if value is not None:
                    self.collect_stop(value, ctx)
        except Exception as exc:
            outcome = Outcome()
            self._fail(outcome, exc, layer, "store", ctx)
            if notes is not None:
                outcome.duration_ms = self.clock.monotonic_ms() - start
                self.trace_failed(notes, layer, "store", ctx, outcome.duration_ms, exc)
            return outcome
        finally:
            if token is not None:
                CURRENT_NOTES.reset(token)
        if notes is not None:
            self.trace(notes, layer, "store", ctx, self.clock.monotonic_ms() - start)
        return (state,)

    async def run(self, layer: MemoryLayer, hook: Any, params: Any, ctx: ExecutionContext, **how: Any) -> Outcome:
        """Do what `begin` does, and wait for it."""
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
            self.trace(notes, layer, hook, ctx, outcome.duration_ms, items)
        else:
            self.trace_failed(notes, layer, hook, ctx, outcome.duration_ms, outcome.error)

    def _fail(self, outcome: Outcome, error: Exception, layer: MemoryLayer, hook: str, ctx: ExecutionContext) -> None:
        outcome.error = error
        outcome.status = "timeout" if isinstance(error, HookTimeout) else "error"
        # A wrong set-up surfaces by itself at the enforcement points; everywhere else it would be lost.
        if hook not in _ENFORCING or not isinstance(error, NoeticConfigError):
            self.state.report(ctx.execution_id, layer.id, hook, error)

    def trace(
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

    def trace_failed(
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
