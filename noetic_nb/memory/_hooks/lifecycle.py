"""Hooks at the boundaries of an execution: its beginning, its children, later reports, store hooks, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, ClassVar, Final, Literal, TypeAlias, TypeVar

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import ErrorRaised
from noetic_nb.items import Item
from noetic_nb.memory._execution_context import ExecutionContext, as_response
from noetic_nb.memory._hook_timeout import call_hook
from noetic_nb.memory._hooks.hook_results import UNSET, field_of
from noetic_nb.memory._hooks.hook_runner import NO_SOURCES, HookRunner
from noetic_nb.memory._hooks.recall import EventualRecalls
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.memory._state.state_copy import StateNotCopied
from noetic_nb.memory._state.write_behind import Target
from noetic_nb.memory.params import (
    CompleteParams,
    DisposeParams,
    ExecutionOutcome,
    Feedback,
    InitParams,
    ReturnParams,
    SpawnParams,
    StoreParams,
)
from noetic_nb.memory.scope import resolve_scope_key
from noetic_nb.storage import ScopedStorage, StorageAdapter
from noetic_nb.sync import Begun

ChildState: TypeAlias = tuple[str, Any, tuple[Item, ...]]
"""Layer id, the child's state, and items for the child's log."""

REFUSES_CHILD: Final = frozenset({"REGULATOR_OF_ANOTHER"})
"""Codes of ``on_spawn`` errors that prevent the child from running."""
_READ_INIT: Final = partial(field_of, name="state", hook="init")
_READ_STORE: Final = partial(field_of, name="state", hook="store")
_READ_COMPLETE: Final = partial(field_of, name="state", hook="on_complete")


class LayerIdle(Warning):
    """A layer takes no part in an execution, because its ``init`` returned no state."""

    warning_code: ClassVar[str] = "layer_idle"


async def init_layers(runner: HookRunner, storage: StorageAdapter, ctx: ExecutionContext) -> None:
    """Initialise every layer in order, then register the storage targets of later writes.

    A layer begins with the state returned by its ``init``; without an ``init``, or if it returns none, with the stored
    state. An error of ``init`` or the storage is raised, unless the layer is configured to be disabled.
    """
    targets: dict[str, Target] = {}
    for layer in runner.order.layers:
        if layer.scope != "execution":
            # Versions are read before any `init`, so that a write of another execution in between is detected as a conflict.
            target = targets[layer.id] = _target(runner, storage, layer, ctx)
            if layer.hooks.init is not None:  # otherwise its state is loaded below, with the version
                await runner.in_storage(ctx, _look(runner, layer, target, ctx))
    states = runner.state
    for layer in runner.order.layers:
        error, state = None, UNSET
        has_init = layer.hooks.init is not None
        if has_init:
            scope_key = resolve_scope_key(layer.scope, ctx)
            params = InitParams(ScopedStorage(storage, layer.id, scope_key), scope_key, ctx)
            outcome = await runner.run(layer, "init", params, ctx, read=_READ_INIT)
            error, state = outcome.error, outcome.value
        source = targets.get(layer.id)
        if source is not None and error is None and state is UNSET:
            error, state = await runner.in_storage(ctx, _read_stored(runner, layer, source, ctx))
        if error is None and state is not UNSET:
            try:
                states.set(ctx.execution_id, layer.id, state, hook="init")
            except StateNotCopied as exc:
                states.report(ctx.execution_id, layer.id, "init", exc)
                error = exc
        if error is None:
            if has_init and not states.has(ctx.execution_id, layer.id):
                hint = 'return {"state": ...} from it, or leave it out'
                idle = LayerIdle(f"Layer {layer.id!r} is inactive: its `init` returned no state; {hint}.")
                states.note(ctx.execution_id, layer.id, "init", idle)
        elif layer.on_init_error == "disable":
            states.disable(ctx.execution_id, layer.id)
        else:
            raise error
    # Only here, so that a state that was just loaded is not written back.
    if targets:
        states.register_targets(ctx.execution_id, targets)


async def _read_stored(
    runner: HookRunner, layer: MemoryLayer, target: Target, ctx: ExecutionContext
) -> tuple[Exception | None, Any]:
    """Return the error of the storage, if any, and the stored state."""
    try:
        # Under the time limit of the `init` that it replaces: a store that hangs must not block the execution.
        limit = layer.timeout_ms("init")
        found = await call_hook(lambda _: target.load(), None, layer_id=layer.id, name="init", timeout_ms=limit)
    except Exception as exc:
        # Continuing without the stored state would overwrite it with the first write.
        runner.state.report(ctx.execution_id, layer.id, "init", exc)
        return exc, UNSET
    return None, UNSET if found is None else found


def _target(runner: HookRunner, storage: StorageAdapter, layer: MemoryLayer, ctx: ExecutionContext) -> Target:

    def on_problem(error: Exception) -> None:
        runner.state.note(ctx.execution_id, layer.id, "persist", error)
        if runner.traces.sink is not None:
            kind = error.kind if isinstance(error, NoeticError) else type(error).__name__
            runner.traces.sink.emit(ErrorRaised(ctx.where, ctx.clock.now_ms(), kind, str(error), layer.id))

    return Target(ScopedStorage(storage, layer.id, resolve_scope_key(layer.scope, ctx)), on_problem)


async def _look(runner: HookRunner, layer: MemoryLayer, target: Target, ctx: ExecutionContext) -> None:
    """Note the current version in storage, for a layer that reads its state itself."""
    try:
        await target.look()
    except Exception as exc:  # the layer's own init uses the same store and handles the failure
        runner.state.report(ctx.execution_id, layer.id, "persist", exc)


async def spawn_state(
    runner: HookRunner,
    parent_ctx: ExecutionContext,
    child_ctx: ExecutionContext,
    *,
    durable: bool,
    sources: Mapping[str, str] = NO_SOURCES,
) -> tuple[ChildState, ...]:
    """Call every ``on_spawn`` in slot order; a layer that fails or returns None gives the child no state.

    An error of ``REFUSES_CHILD`` is raised; other errors of the configuration are diagnostics.

    `sources` maps ids of layers in the child to their ids in the parent, where they differ.
    """
    spawned: list[ChildState] = []
    for layer in runner.order.active("on_spawn", parent_ctx, sources):
        registry = runner.order.registry(layer)

        def read(value: Any, registry: Any = registry) -> tuple[Any, tuple[Item, ...]]:
            items = field_of(value, "items", hook="on_spawn") or ()
            return field_of(value, "child_state", hook="on_spawn"), tuple([registry.parse(item) for item in items])

        source = sources.get(layer.id, layer.id)
        params = SpawnParams(runner.state.get(parent_ctx.execution_id, source), child_ctx)
        outcome = await runner.run(
            layer, "on_spawn", params, parent_ctx, read=read, measure=lambda value: {"items": len(value[1])}
        )
        if isinstance(outcome.error, NoeticConfigError) and outcome.error.code in REFUSES_CHILD:
            raise outcome.error
        if outcome.error is not None:
            continue
        child_state, items = outcome.value
        # No entry at all: a child layer with its own `init` must not look initialised.
        if child_state is UNSET or child_state is None:
            continue
        if runner.put(child_ctx, layer, "on_spawn", child_state) is not None:
            continue
        # A child's own layer must not write to the storage of the inherited layer whose id it has taken.
        if durable and layer.id not in sources.values():
            runner.state.share_durable(parent_ctx.execution_id, child_ctx.execution_id, layer.id, source)
        spawned.append((layer.id, child_state, items))
    return tuple(spawned)


async def merge_state(
    runner: HookRunner,
    parent_ctx: ExecutionContext,
    child_ctx: ExecutionContext,
    *,
    child_log: Sequence[Item],
    result: Any,
    sources: Mapping[str, str] = NO_SOURCES,
) -> Any:
    """Call every ``on_return`` in slot order, each with the previous one's result; returns the last result."""
    for layer in runner.order.layers_with("on_return"):
        child_state = runner.state.get(child_ctx.execution_id, layer.id)
        if child_state is None:
            continue
        source = sources.get(layer.id, layer.id)
        parent_state = runner.state.get(parent_ctx.execution_id, source)
        params = ReturnParams(child_state, child_log, parent_state, result, child_ctx)
        outcome = await runner.run(
            layer,
            "on_return",
            params,
            parent_ctx,
            read=lambda value: (
                field_of(value, "parent_state", hook="on_return"),
                field_of(value, "result", hook="on_return"),
            ),
        )
        if outcome.error is not None:
            continue
        new_state, new_result = outcome.value
        if not runner.write(parent_ctx, layer, "on_return", new_state, source):
            continue
        if new_result is not UNSET and new_result is not None:
            result = new_result
    # A child's result is complete once the parent has it, so no write may still be pending.
    await runner.flush(parent_ctx)
    await runner.flush(child_ctx)
    return result


async def notify_outcome(
    runner: HookRunner, hook: Literal["on_tool_outcome", "on_model_outcome"], ctx: ExecutionContext, make: Any
) -> None:
    """Call a hook of every participating layer with ``make(state)`` and write its state; a failure is a diagnostic."""
    for layer in runner.order.active(hook, ctx):
        params = make(runner.state.get(ctx.execution_id, layer.id))
        outcome = await runner.run(layer, hook, params, ctx, read=lambda value: field_of(value, "state", hook=hook))
        if outcome.error is None:
            runner.write(ctx, layer, hook, outcome.value)


async def run_feedback_hooks(
    runner: HookRunner,
    storage: StorageAdapter,
    ctx: ExecutionContext,
    *,
    kind: Literal["quality", "correction", "reset_task"],
    value: Any,
    source: str,
) -> None:
    """Call every ``on_feedback``. It writes to storage itself, because no execution needs to be live."""
    for layer in runner.order.layers_with("on_feedback"):
        scope_key = resolve_scope_key(layer.scope, ctx)
        scoped = ScopedStorage(storage, layer.id, scope_key)
        await runner.run(layer, "on_feedback", Feedback(kind, value, scoped, ctx, source), ctx)
        # The hook's writes do not conflict with an execution that happens to be live.
        await runner.state.look_again(layer.id, scope_key)


async def complete_layers(
    runner: HookRunner, ctx: ExecutionContext, view: Sequence[Item], outcome: ExecutionOutcome
) -> None:
    """Call every ``on_complete`` in the order of the layers. Errors are diagnostics."""
    states = runner.state
    for layer in runner.order.active("on_complete", ctx):
        params = CompleteParams(view, ctx, states.get(ctx.execution_id, layer.id), outcome)
        ended = await runner.run(layer, "on_complete", params, ctx, read=_READ_COMPLETE)
        # If the result contains a state, it is written, even None: here, as for `store`, None clears it.
        if ended.error is None and ended.value is not UNSET:
            runner.put(ctx, layer, "on_complete", ended.value)
    await runner.flush(ctx)


async def dispose_layers(
    runner: HookRunner, eventual: EventualRecalls[Any], ctx: ExecutionContext
) -> dict[str, Exception]:
    """Call every ``dispose``, last layer first, then write out and drop the execution; returns failed writes by layer."""
    states = runner.state
    for layer in runner.order.active("dispose", ctx):
        params = DisposeParams(states.get(ctx.execution_id, layer.id), ctx)
        await runner.run(layer, "dispose", params, ctx)
    await eventual.settle()
    # dispose may still write state, so the mirror is flushed after it and the state dropped last.
    await runner.flush(ctx)
    failed = states.unsaved(ctx.execution_id)
    states.cleanup(ctx.execution_id)
    eventual.forget(ctx.execution_id)
    runner.take_stop(ctx.execution_id)
    return failed


A = TypeVar("A")
T = TypeVar("T")


async def side_by_side(call: Callable[[A], Coroutine[Any, Any, T]], given: Sequence[A]) -> list[T]:
    """Call a function with each value and return the results in order; each call has its own context, as tasks do.

    The calls start one after the other. The first that waits continues in the caller's task, where it started, because things
    it may have stored about its task (a time limit, a task group) are only valid there; the calls after it become tasks.
    """
    outer = copy_context()
    results: list[T] = []
    for value in given:
        context = outer.copy()
        found = call(value)
        try:
            waiting = context.run(found.send, None)
        except StopIteration as done:
            results.append(done.value)
            continue
        async with asyncio.TaskGroup() as group:
            behind = given[len(results) + 1 :]
            tasks = [group.create_task(call(later), context=outer.copy()) for later in behind]
            results.append(await Begun(found, waiting, context))
        return [*results, *[task.result() for task in tasks]]
    return results


async def store_response(runner: HookRunner, ctx: ExecutionContext, response: Any, view: Sequence[Item]) -> None:
    """Call every ``store`` with a response and the conversation, concurrently, each with a copy of its layer's state."""
    states, execution_id = runner.state, ctx.execution_id
    # Determined before any of them runs: stores do not affect one another's participation.
    layers = list(runner.order.active("store", ctx))
    if not layers:
        return
    answer = as_response(response)

    async def one(layer: MemoryLayer) -> Any:
        try:
            state = states.copy_of(execution_id, layer.id, "store")
        except StateNotCopied as error:  # the layer's fault, not the turn's
            states.report(execution_id, layer.id, "store", error)
            return UNSET
        params = StoreParams(answer.items, view, answer, ctx, state)
        outcome = await runner.run(layer, "store", params, ctx, read=_READ_STORE)
        return outcome.value if outcome.error is None else UNSET

    # Written after all have ended, in layer order: their speed must not affect the stored data.
    for layer, state in zip(layers, await side_by_side(one, layers), strict=True):
        if state is not UNSET:
            runner.put(ctx, layer, "store", state)
    await runner.flush(ctx)
