"""What a child execution is given by its parent's layers, and what it gives back.

A child's state is a copy of the layer's making; merging it back is the layer's decision, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noetic_nb.items import Item
from noetic_nb.memory.execution_context import ExecutionContext
from noetic_nb.memory.hook_results import UNSET, field_of
from noetic_nb.memory.hook_runner import HookRunner
from noetic_nb.memory.params import ReturnParams, SpawnParams

__all__ = ["Handed", "hand_back", "hand_over"]

Handed = tuple[str, Any, tuple[Item, ...]]
"""Layer id, the child's state, and items for the child's log."""


async def hand_over(
    runner: HookRunner, parent_ctx: ExecutionContext, child_ctx: ExecutionContext, *, durable: bool
) -> tuple[Handed, ...]:
    """Call every ``on_spawn`` in slot order; a layer that fails or says nothing gives the child no state."""
    passed: list[Handed] = []
    for layer in runner.having("on_spawn"):
        if not runner.runs(layer, parent_ctx.execution_id):
            runner.skipped(layer, "on_spawn", parent_ctx)
            continue
        registry = runner.registry(layer)

        def read(value: Any, registry: Any = registry) -> tuple[Any, tuple[Item, ...]]:
            items = field_of(value, "items", hook="on_spawn") or ()
            return field_of(value, "child_state", hook="on_spawn"), tuple([registry.parse(item) for item in items])

        params = SpawnParams(runner.state.get(parent_ctx.execution_id, layer.id), child_ctx)
        outcome = await runner.run(layer, "on_spawn", params, parent_ctx, read=read, count=lambda value: len(value[1]))
        if outcome.error is not None:
            continue
        child_state, items = outcome.value
        if child_state is UNSET or child_state is None:
            continue
        runner.state.set(child_ctx.execution_id, layer.id, child_state, hook="on_spawn")
        if durable:
            runner.state.share_durable(parent_ctx.execution_id, child_ctx.execution_id, layer.id)
        passed.append((layer.id, child_state, items))
    return tuple(passed)


async def hand_back(
    runner: HookRunner,
    parent_ctx: ExecutionContext,
    child_ctx: ExecutionContext,
    *,
    child_log: Sequence[Item],
    result: Any,
) -> Any:
    """Call every ``on_return`` in slot order, each with the result of the one before; returns the last result."""
    for layer in runner.having("on_return"):
        child_state = runner.state.get(child_ctx.execution_id, layer.id)
        if child_state is None:
            continue
        parent_state = runner.state.get(parent_ctx.execution_id, layer.id)
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
        if new_state is not UNSET and new_state is not None:
            runner.state.set(parent_ctx.execution_id, layer.id, new_state, hook="on_return")
        if new_result is not UNSET and new_result is not None:
            result = new_result
    await runner.state.flush(parent_ctx.execution_id)
    await runner.state.flush(child_ctx.execution_id)
    return result
