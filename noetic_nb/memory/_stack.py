"""The layers of one agent and their lifecycle: every hook, in the right order, under its limit, with its error policy."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from noetic_nb.clock import SYSTEM_CLOCK, Clock
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import EventSink
from noetic_nb.ids import SYSTEM_IDS, Ids
from noetic_nb.items import Item, ItemLog, ItemRegistry, parse_item
from noetic_nb.items._registry import DEFAULT_REGISTRY
from noetic_nb.memory._enforcement import OnSteeringError, decide
from noetic_nb.memory._execution_context import ExecutionContext, as_response
from noetic_nb.memory._hooks import lifecycle
from noetic_nb.memory._hooks.hook_results import RerenderRequest
from noetic_nb.memory._hooks.hook_runner import NO_SOURCES, HookRunner
from noetic_nb.memory._hooks.item_hooks import AppendResult, append_items, project_items, rerender
from noetic_nb.memory._hooks.recall import RECALL_MODES, RecallEntry, Recaller, RecallMode
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.memory._state.state_store import LayerStateStore
from noetic_nb.memory._steering_decision import SteeringDecision, Stop
from noetic_nb.memory.params import (
    AfterModelCallParams,
    BeforeToolCallParams,
    ExecutionOutcome,
    ModelOutcome,
    PastCall,
    ToolOutcome,
)
from noetic_nb.models._client import TokenLogprob, Usage
from noetic_nb.storage import InMemoryStorage, StorageAdapter

if TYPE_CHECKING:
    from noetic_nb.items._origin_index import Provenance


def _view(log: ItemLog | Iterable[Mapping[str, Any]]) -> Sequence[Item]:
    if isinstance(log, ItemLog):
        return log.items
    if isinstance(log, Sequence):
        return log
    return tuple([parse_item(item) for item in log])


class LayerStack:
    """Layers with their state and storage.

    Parameters
    ----------
    layers : iterable of MemoryLayer
        Layers with distinct ids.
    storage : StorageAdapter, optional
        Storage for state that outlives the execution; in memory by default.
    state : LayerStateStore, optional
        Store of live state; its `diagnostic` is called with errors that do not fail the run.
    force_atomic_recall : bool, default False
        Treat eventual layers as atomic.
    on_steering_error : {"deny", "allow", "raise"}
        How a failing enforcement hook counts if its layer does not define that.
    sink : EventSink, optional
        Receives a `MemoryTraceSpan` for every hook.
    clock, ids : optional
        Sources of time and of unique ids.
    registry : ItemRegistry, optional
        The items that are allowed in addition to those that layers declare.

    Examples
    --------
    >>> import asyncio
    >>> from noetic_nb.memory import ExecutionContext, MemoryHooks, MemoryLayer
    >>> hello = MemoryLayer(id="hello", slot=100, scope="thread", hooks=MemoryHooks(recall=lambda p: "be kind"))
    >>> stack, ctx = LayerStack([hello]), ExecutionContext(execution_id="e1", thread_id="t1")
    >>> asyncio.run(stack.init(ctx))
    >>> [(entry.layer_id, entry.token_count) for entry in asyncio.run(stack.recall(ctx, budgets={"hello": 100}))]
    [('hello', 2)]
    """

    def __init__(
        self,
        layers: Iterable[MemoryLayer],
        *,
        storage: StorageAdapter | None = None,
        state: LayerStateStore | None = None,
        force_atomic_recall: bool = False,
        on_steering_error: OnSteeringError = "deny",
        sink: EventSink | None = None,
        clock: Clock = SYSTEM_CLOCK,
        ids: Ids = SYSTEM_IDS,
        registry: ItemRegistry = DEFAULT_REGISTRY,
    ) -> None:
        self.storage: StorageAdapter = InMemoryStorage() if storage is None else storage
        self.state = LayerStateStore() if state is None else state
        self._runner = HookRunner(layers, state=self.state, sink=sink, clock=clock, registry=registry)
        self.layers: Final = self._runner.order.layers
        """The layers in the given order."""
        # The hooks that at least one layer has: most agents have few, and calling the others would waste time.
        self.hooks: Final = self._runner.order.hooks
        self._recaller = Recaller(self._runner, ids=ids, force_atomic=force_atomic_recall)
        self._eventual = self._recaller.eventual
        self._on_steering_error: OnSteeringError = on_steering_error

    @property
    def registry(self) -> ItemRegistry:
        """The items that the log of these layers may contain."""
        return self._runner.order.shared_registry()

    @property
    def sink(self) -> EventSink | None:
        return self._runner.traces.sink

    @sink.setter
    def sink(self, sink: EventSink | None) -> None:
        self._runner.traces.sink = sink

    @property
    def writes_durably(self) -> bool:
        """Whether the state of any layer outlives its execution."""
        return any(layer.scope != "execution" for layer in self.layers)

    def reviews_responses(self) -> bool:
        """Tell whether a layer may currently reject the next response."""
        found = self._runner.order.layers_with("after_model_call")
        return any(layer.reviews_responses is None or layer.reviews_responses() for layer in found)

    def runs(self, layer: MemoryLayer, execution_id: str, layer_id: str | None = None) -> bool:
        """Tell whether a layer takes part in an execution: initialised if necessary, and not disabled."""
        return self._runner.order.idle_reason(layer, execution_id, layer_id) is None

    def init(self, ctx: ExecutionContext) -> Coroutine[Any, Any, None]:
        """Begin an execution: load every layer's state, then mirror later writes.

        Raises
        ------
        Exception
            An error of an ``init``, unless its layer is configured to be disabled; `HookTimeout` if it ran out of time.
        """
        # Before `init`, whose writes refresh the offers of eventual layers.
        if self._eventual.layers:
            self._eventual.begin(ctx)
        return lifecycle.init_layers(self._runner, self.storage, ctx)

    def recall(
        self,
        ctx: ExecutionContext,
        *,
        query: str = "",
        log: ItemLog | Sequence[Item] = (),
        budgets: Mapping[str, float],
        mode: RecallMode = "all",
        with_empty: bool = False,
    ) -> Coroutine[Any, Any, tuple[RecallEntry, ...]]:
        """Call the recall hooks: the offers of the layers for the next prompt.

        Parameters
        ----------
        query : str
            Text of the latest user message.
        log : ItemLog or sequence of Item
            The conversation so far.
        budgets : mapping of str to float
            Tokens by layer id; layers not listed are unlimited.
        mode : {"all", "cached", "atomic", "eventual"}
            ``"all"`` runs every hook now. ``"cached"`` runs atomic layers, while eventual ones serve their last value;
            ``"atomic"`` and ``"eventual"`` are the two halves of that.
        with_empty : bool
            Whether to include offers whose budget has no room for any of their text.

        Returns
        -------
        tuple of RecallEntry
            ``(layer_id, items, token_count)`` in slot order; each within its budget by our own count.
        """
        if mode not in RECALL_MODES:
            hint = f"Use one of {', '.join(RECALL_MODES)}."
            raise NoeticConfigError("INVALID_OPTION", "There is no such mode.", given=mode, hint=hint)
        return self._recaller.recall(
            ctx, query=query, log=_view(log), budgets=budgets, mode=mode, with_empty=with_empty
        )

    def store(
        self, ctx: ExecutionContext, *, response: Any, log: ItemLog | Sequence[Item]
    ) -> Coroutine[Any, Any, None]:
        """Let every layer store its part of a response; concurrently, each with a copy of its state."""
        return lifecycle.store_response(self._runner, ctx, response, _view(log))

    def before_tool_call(
        self,
        ctx: ExecutionContext,
        *,
        tool_name: str,
        tool_args: Mapping[str, Any],
        call_id: str = "",
        history: Sequence[PastCall] = (),
        raw_args: Any = None,
        provenance: Callable[[], Provenance] | None = None,
        tool_values: Mapping[str, Any] | None = None,
    ) -> Coroutine[Any, Any, SteeringDecision]:
        """Decide whether a tool may be called; see `noetic_nb.memory._enforcement`."""

        def params(state: Any, calls: Sequence[PastCall], so_far: SteeringDecision) -> BeforeToolCallParams:
            known = call_id, calls, ctx.depth, so_far, raw_args, provenance, tool_values
            return BeforeToolCallParams(tool_name, tool_args, ctx, state, *known)

        return decide(self._runner, "before_tool_call", ctx, params, history, self._on_steering_error)

    def after_model_call(
        self, ctx: ExecutionContext, *, response: Any, history: Sequence[PastCall] = ()
    ) -> Coroutine[Any, Any, SteeringDecision]:
        """Decide whether a response is accepted; see `noetic_nb.memory._enforcement`."""
        read = as_response(response)

        def params(state: Any, calls: Sequence[PastCall], so_far: SteeringDecision) -> AfterModelCallParams:
            return AfterModelCallParams(read, ctx, state, calls, so_far)

        return decide(self._runner, "after_model_call", ctx, params, history, self._on_steering_error)

    async def tool_outcome(
        self,
        ctx: ExecutionContext,
        *,
        name: str,
        call_id: str,
        success: bool,
        duration_ms: float,
        error: str | None,
        output: str | None = None,
        error_type: str | None = None,
    ) -> None:
        """Call ``on_tool_outcome`` with the end of a tool call."""
        await lifecycle.notify_outcome(
            self._runner,
            "on_tool_outcome",
            ctx,
            lambda state: ToolOutcome(name, call_id, success, duration_ms, error, ctx, state, output, error_type),
        )

    async def model_outcome(
        self,
        ctx: ExecutionContext,
        *,
        model: str,
        usage: Usage,
        cost: float | None,
        duration_ms: float,
        logprobs: Sequence[TokenLogprob] = (),
        error: str | None = None,
    ) -> None:
        """Call ``on_model_outcome`` with the end of a model call of the agent."""
        await lifecycle.notify_outcome(
            self._runner,
            "on_model_outcome",
            ctx,
            lambda state: ModelOutcome(model, usage, cost, duration_ms, logprobs, error, ctx, state),
        )

    async def feedback(
        self, ctx: ExecutionContext, *, kind: Literal["quality", "correction", "reset_task"], value: Any, source: str
    ) -> None:
        """Call ``on_feedback`` with feedback about the thread, outside any execution."""
        await lifecycle.run_feedback_hooks(self._runner, self.storage, ctx, kind=kind, value=value, source=source)

    def take_stop(self, ctx: ExecutionContext) -> Stop | None:
        """Return the stop that a hook of this execution returned, once."""
        return self._runner.take_stop(ctx.execution_id)

    async def spawn(
        self,
        parent_ctx: ExecutionContext,
        child_ctx: ExecutionContext,
        *,
        durable: bool = True,
        sources: Mapping[str, str] = NO_SOURCES,
    ) -> tuple[lifecycle.ChildState, ...]:
        """Give a child execution its state, layer by layer in slot order.

        Parameters
        ----------
        durable : bool, default True
            Whether the child's writes are mirrored. For fork paths they are not: only state merged into the parent is kept.
        sources : mapping of str to str
            Maps ids of layers here to their ids in the parent, where they differ.

        Returns
        -------
        tuple of (layer_id, child_state, items)
            For the layers that passed on state.
        """
        return await lifecycle.spawn_state(self._runner, parent_ctx, child_ctx, durable=durable, sources=sources)

    async def return_(
        self,
        parent_ctx: ExecutionContext,
        child_ctx: ExecutionContext,
        *,
        child_log: ItemLog | Sequence[Item],
        result: Any,
        sources: Mapping[str, str] = NO_SOURCES,
    ) -> Any:
        """Merge a child's knowledge into its parent, and pass its result through the layers in slot order."""
        return await lifecycle.merge_state(
            self._runner, parent_ctx, child_ctx, child_log=_view(child_log), result=result, sources=sources
        )

    async def project_history(self, ctx: ExecutionContext, items: Sequence[Item]) -> Sequence[Item]:
        """Let the layers select from the history to send, in slot order; the log itself never changes."""
        return await project_items(self._runner, ctx, items)

    async def append(
        self, ctx: ExecutionContext, items: Iterable[Mapping[str, Any]], *, log: ItemLog | Sequence[Item]
    ) -> AppendResult:
        """Pass new items through the layers before they are logged, in slot order."""
        return await append_items(self._runner, ctx, items, _view(log))

    async def rerender(
        self,
        ctx: ExecutionContext,
        requests: Iterable[RerenderRequest | Mapping[str, Any]],
        *,
        current: Iterable[Any],
        query: str,
        log: ItemLog | Sequence[Item],
        budgets: Mapping[str, float],
        depth: int = 0,
    ) -> tuple[RecallEntry, ...]:
        """Recall again for the requests; results replace those of the same layer."""
        return await rerender(
            self._runner,
            self._recaller,
            ctx,
            requests,
            current=current,
            query=query,
            log=_view(log),
            budgets=budgets,
            depth=depth,
        )

    async def complete(
        self, ctx: ExecutionContext, *, log: ItemLog | Sequence[Item], outcome: ExecutionOutcome
    ) -> None:
        """End an execution: every layer may store a final state. Errors are diagnostics."""
        await lifecycle.complete_layers(self._runner, ctx, _view(log), outcome)

    async def dispose(self, ctx: ExecutionContext) -> dict[str, Exception]:
        """Let every layer release its resources, last one first; then write out and drop the execution's state.

        Returns
        -------
        dict of str to Exception
            The layers whose last state could not be written to storage, and why.
        """
        return await lifecycle.dispose_layers(self._runner, self._eventual, ctx)

    def delivered(self, ctx: ExecutionContext, sent_item_ids: Iterable[str]) -> None:
        """Call ``delivered`` with the ids of the items that were sent to the model."""
        layers = self._runner.order.layers_with("delivered")
        if not layers:
            return
        sent = frozenset(sent_item_ids)
        for layer in layers:
            if layer.hooks.delivered is not None and self.runs(layer, ctx.execution_id):
                layer.hooks.delivered(ctx, sent)

    def forget_recalled(self, layer_id: str, scope_key: str) -> None:
        """Make an eventual layer recall again, because its state was edited by hand."""
        self._eventual.drop(layer_id, scope_key)

    async def settle(self) -> None:
        """Wait for background refreshes of eventual layers."""
        await self._eventual.settle()
