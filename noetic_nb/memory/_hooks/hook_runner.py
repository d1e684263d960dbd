"""Run the hooks of layers: participation, order, time limits, results, failures and traces."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar

from noetic_nb.clock import SYSTEM_CLOCK, Clock
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ContextCompacted, EventSink, LayerTokens, MemoryTraceSpan
from noetic_nb.items import ItemRegistry, input_message
from noetic_nb.items._frozen import MAPPINGS
from noetic_nb.items._registry import DEFAULT_REGISTRY
from noetic_nb.memory._declared import check_layers
from noetic_nb.memory._execution_context import (
    CURRENT_NOTES,
    Compacted,
    ExecutionContext,
    HookNotes,
    error_facts,
    noted,
)
from noetic_nb.memory._hook_timeout import HookTimeout, Unfinished, begun
from noetic_nb.memory._hooks.hook_results import UNSET, misnamed
from noetic_nb.memory._layer import MemoryHooks, MemoryLayer
from noetic_nb.memory._state.state_copy import StateNotCopied
from noetic_nb.memory._state.state_store import LayerStateStore
from noetic_nb.memory._steering_decision import Stop

T = TypeVar("T")


class HookTraces:
    """Reports hook calls to a sink; does nothing without one."""

    def __init__(self, sink: EventSink | None, clock: Clock) -> None:
        self.clock = clock
        self.sink = sink

    def skipped(self, layer: MemoryLayer, hook: Any, ctx: ExecutionContext) -> None:
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
        """Record a successful hook call; for a recall, with its budgeted and used tokens."""
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
        for note in notes:
            if isinstance(note, Compacted):
                made = (input_message(note.text, "developer", ids=ctx.ids),) if note.text else ()
                counts = (note.items_removed, made, note.tokens_before, note.tokens_after)
                self.sink.emit(ContextCompacted(ctx.where, now, layer.id, *counts, replaced=note.replaced))

    def failed(
        self,
        notes: HookNotes,
        layer: MemoryLayer,
        hook: Any,
        ctx: ExecutionContext,
        duration_ms: float,
        error: BaseException,
    ) -> None:
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


NO_SOURCES: Final[Mapping[str, str]] = MappingProxyType({})
"""Every layer has the same id in an execution and in its child."""

ENFORCING: Final = frozenset({"before_tool_call", "after_model_call"})  # the hooks that decide

# All hooks but those that are called for a single layer.
_HOOKS: Final = frozenset([one.name for one in fields(MemoryHooks)]) - {"on_hook_failure", "on_edit", "on_record"}
_IN_ARRAY_ORDER: Final = frozenset({"init", "store", "on_complete", "dispose"})


class LayerOrder:
    """The layers of one agent, in the orders that their hooks need: by slot or by position, enforcing ones first."""

    def __init__(
        self, layers: Iterable[MemoryLayer], state: LayerStateStore, traces: HookTraces, registry: ItemRegistry
    ) -> None:
        self.layers = check_layers(layers)
        self._state = state
        self._traces = traces
        self.by_slot = tuple(sorted(self.layers, key=lambda layer: layer.slot))
        # Sorting is stable: within both groups, the layers stay in slot order.
        enforcing = tuple(sorted(self.by_slot, key=lambda layer: not layer.enforces))
        self._with: dict[str, tuple[MemoryLayer, ...]] = {}
        self._registry = self._shared = registry
        self._registries: dict[str, ItemRegistry] = {}
        for layer in self.layers:
            if layer.item_schemas:
                self._registries[layer.id] = registry.extend(layer.item_schemas)
                # All layers read the log, so it accepts the items of any of them.
                self._shared = self._shared.extend(layer.item_schemas)
        for hook in _HOOKS:
            order = self.layers if hook in _IN_ARRAY_ORDER else enforcing if hook in ENFORCING else self.by_slot
            found = tuple(layer for layer in order if getattr(layer.hooks, hook) is not None)
            # Layers are disposed in reverse order.
            self._with[hook] = found[::-1] if hook == "dispose" else found
        self.hooks: Final = frozenset(hook for hook, found in self._with.items() if found)
        """The hooks that at least one layer has."""

    def layers_with(self, hook: str) -> tuple[MemoryLayer, ...]:
        """Return the layers that have a hook, in the order in which it runs."""
        return self._with[hook]

    def active(
        self, hook: str, ctx: ExecutionContext, sources: Mapping[str, str] = NO_SOURCES
    ) -> Iterator[MemoryLayer]:
        """Yield the layers whose hook should run, each checked at its turn; record the others as skipped."""
        for layer in self._with[hook]:
            if self.idle_reason(layer, ctx.execution_id, sources.get(layer.id) if sources else None) is None:
                yield layer
            else:
                self._traces.skipped(layer, hook, ctx)

    def idle_reason(
        self, layer: MemoryLayer, execution_id: str, layer_id: str | None = None
    ) -> Literal["disabled", "uninitialised"] | None:
        """Return why a layer, known by `layer_id` in this execution, does not take part, or None if it does.

        A layer with an ``init`` takes part once it has a state, which may be None.
        """
        state, layer_id = self._state, layer_id or layer.id
        if state.is_disabled(execution_id, layer_id):
            return "disabled"
        if layer.hooks.init is not None and not state.has(execution_id, layer_id):
            return "uninitialised"
        return None

    def registry(self, layer: MemoryLayer) -> ItemRegistry:
        """Return the items that a layer may add: known types, the agent's extensions and its own."""
        return self._registries.get(layer.id, self._registry)

    def shared_registry(self) -> ItemRegistry:
        """Return the items that the log of these layers may contain: the agent's extensions and those of all layers."""
        return self._shared


class Outcome:
    """How a hook call ended."""

    value: Any = None
    error: BaseException | None = None
    duration_ms: float = 0.0


class HookRunner:
    """The only way to call a hook of an agent's layers."""

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

    def write(
        self, ctx: ExecutionContext, layer: MemoryLayer, hook: str, state: Any, layer_id: str | None = None
    ) -> bool:
        """Write the state of a hook's result, if any; False if it cannot be copied, in which case the result is ignored."""
        return state is UNSET or state is None or self.put(ctx, layer, hook, state, layer_id) is None

    def put(
        self, ctx: ExecutionContext, layer: MemoryLayer, hook: str, state: Any, layer_id: str | None = None
    ) -> StateNotCopied | None:
        """Write a state, which may be None; returns the reported error if the state cannot be copied."""
        try:
            self.state.set(ctx.execution_id, layer_id or layer.id, state, hook=hook)
        except StateNotCopied as exc:
            self.state.report(ctx.execution_id, layer.id, hook, exc)
            return exc
        return None

    def take_stop(self, execution_id: str) -> Stop | None:
        """Return the stop that a hook of an execution returned, once."""
        return self._stops.pop(execution_id, None)

    async def flush(self, ctx: ExecutionContext) -> None:
        """Wait until all writes of an execution so far are in storage, or were reported."""
        if not self.state.is_idle:
            await self.in_storage(ctx, self.state.flush(ctx.execution_id))

    async def in_storage(self, ctx: ExecutionContext, waiting: Awaitable[T]) -> T:
        """Wait for storage; if the run has a subscriber, count the time."""
        if self.traces.sink is None:
            return await waiting
        start = self.clock.monotonic_ms()
        try:
            return await waiting
        finally:
            self.state.storage_ms[ctx.thread_id, ctx.turn] += self.clock.monotonic_ms() - start

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
        """Call a hook and wait for it.

        Raises nothing, except for exceptions that end the program or the task. `read` converts the hook's result for the
        caller; its exceptions count as errors of the hook. `measure` returns facts about the converted value for the trace.
        """
        outcome = Outcome()
        notes: HookNotes | None = None if self.traces.sink is None else []
        start = None if notes is None and hook not in ENFORCING else self.clock.monotonic_ms()

        token = None if notes is None else CURRENT_NOTES.set(notes)
        try:
            limit = layer.timeout_ms(hook)
            try:
                value = begun(getattr(layer.hooks, hook)(params), limit)
            except GeneratorExit as exc:  # raised by the hook: its coroutine is not being closed
                raise RuntimeError(f"GeneratorExit from a hook: {exc}") from exc
            if type(value) is Unfinished:
                value = await value.finish(layer.id, hook, limit)
            # Inside the `try`: an unreadable result is an error of the hook that returned it.
            outcome.value = value if read is None else read(value)
            if value is not None and type(value) is not str:
                stop = value.get("stop") if isinstance(value, MAPPINGS) else getattr(value, "stop", None)
                if isinstance(stop, Stop):
                    # The first stop is the reason; a later one is often only its consequence.
                    self._stops.setdefault(ctx.execution_id, stop)
                warning = misnamed(value, hook, f"`{hook}` of layer {layer.id!r}")
                if warning is not None:
                    self.state.report(ctx.execution_id, layer.id, hook, warning)
        except Exception as exc:
            outcome.error = exc
            # The enforcement points raise a wrong set-up themselves; elsewhere it would be lost.
            if hook not in ENFORCING or not isinstance(exc, NoeticConfigError):
                self.state.report(ctx.execution_id, layer.id, hook, exc)
        finally:
            if token is not None:
                # Always, so that later code in this task cannot write into the notes of this hook.
                CURRENT_NOTES.reset(token)
        if start is not None and (notes is not None or outcome.error is not None):
            outcome.duration_ms = self.clock.monotonic_ms() - start
        if notes is not None and outcome.error is None:
            facts = {} if measure is None else measure(outcome.value)
            self.traces.called(notes, layer, hook, ctx, outcome.duration_ms, **facts)
        elif notes is not None and outcome.error is not None:
            self.traces.failed(notes, layer, hook, ctx, outcome.duration_ms, outcome.error)
        return outcome
