"""The beginning of an execution: every layer's state is loaded, and from then on mirrored.

Versions are read before the values: what somebody else writes in between is then reported as a conflict rather than missed.
"""

from __future__ import annotations

from noetic_nb.errors import NoeticError
from noetic_nb.events import ErrorRaised
from noetic_nb.memory.execution_context import ExecutionContext
from noetic_nb.memory.hook_results import UNSET, field_of
from noetic_nb.memory.hook_runner import HookRunner
from noetic_nb.memory.layer import MemoryLayer
from noetic_nb.memory.params import InitParams
from noetic_nb.memory.scope import resolve_scope_key
from noetic_nb.memory.write_behind import Target
from noetic_nb.storage import ScopedStorage, StorageAdapter

__all__ = ["open_execution"]


async def open_execution(runner: HookRunner, storage: StorageAdapter, ctx: ExecutionContext) -> None:
    """Call every ``init`` in the order of the layers, then register the mirrors.

    Raises
    ------
    Exception
        What an ``init`` raised, unless its layer is to be disabled then.
    """
    targets = [await _target(runner, storage, layer, ctx) for layer in runner.layers if layer.scope != "execution"]
    for layer in runner.having("init"):
        scope_key = resolve_scope_key(layer.scope, ctx)
        params = InitParams(ScopedStorage(storage, layer.id, scope_key), scope_key, ctx)
        outcome = await runner.run(layer, "init", params, ctx, read=lambda value: field_of(value, "state", hook="init"))
        if outcome.error is None:
            if outcome.value is not UNSET:
                runner.state.set(ctx.execution_id, layer.id, outcome.value, hook="init")
        elif layer.on_init_error == "disable":
            runner.state.disable(ctx.execution_id, layer.id)
        else:
            raise outcome.error
    for target in targets:
        runner.state.register_durable(ctx.execution_id, target.storage.layer_id, target)


async def _target(runner: HookRunner, storage: StorageAdapter, layer: MemoryLayer, ctx: ExecutionContext) -> Target:
    """Return where a layer's state is mirrored to, with what is there now as known."""

    def on_problem(error: Exception) -> None:
        if runner.sink is not None:
            kind = error.kind if isinstance(error, NoeticError) else type(error).__name__
            runner.sink.emit(ErrorRaised(ctx.where, ctx.clock.now_ms(), kind, str(error), layer.id))

    target = Target(ScopedStorage(storage, layer.id, resolve_scope_key(layer.scope, ctx)), on_problem)
    try:
        await target.look()
    except Exception as exc:  # the layer's own init meets the same store and decides what that means
        runner.state.diagnostic(layer.id, "persist", exc)
    return target
