"""Tell the layers what happened: how a tool call or a model call ended, what someone said of the thread.

A notice asks for nothing, so a layer that fails on one is a diagnostic and the next layer is told all the same.
"""

from __future__ import annotations

from typing import Any, Literal

from noetic_nb.memory.execution_context import ExecutionContext
from noetic_nb.memory.hook_results import UNSET, field_of
from noetic_nb.memory.hook_runner import HookRunner
from noetic_nb.memory.params import Feedback
from noetic_nb.memory.scope import resolve_scope_key
from noetic_nb.storage import ScopedStorage, StorageAdapter

__all__ = ["notify", "pass_on_feedback"]


async def notify(
    runner: HookRunner, hook: Literal["on_tool_outcome", "on_model_outcome"], ctx: ExecutionContext, make: Any
) -> None:
    """Call a hook of every layer that takes part, with ``make(state)``; a state it returns is written."""
    for layer in runner.having(hook):
        if not runner.runs(layer, ctx.execution_id):
            runner.skipped(layer, hook, ctx)
            continue
        params = make(runner.state.get(ctx.execution_id, layer.id))
        outcome = await runner.run(layer, hook, params, ctx, read=lambda value: field_of(value, "state", hook=hook))
        if outcome.error is None and outcome.value is not UNSET and outcome.value is not None:
            runner.state.set(ctx.execution_id, layer.id, outcome.value, hook=hook)


async def pass_on_feedback(
    runner: HookRunner,
    storage: StorageAdapter,
    ctx: ExecutionContext,
    *,
    kind: Literal["quality", "correction", "reset_task"],
    value: Any,
    source: str,
) -> None:
    """Call every ``on_feedback``. It works on storage itself, since no execution needs to be live."""
    for layer in runner.having("on_feedback"):
        scope_key = resolve_scope_key(layer.scope, ctx)
        scoped = ScopedStorage(storage, layer.id, scope_key)
        await runner.run(layer, "on_feedback", Feedback(kind, value, scoped, ctx, source), ctx)
        # What the hook wrote is no rival of an execution that happens to be live.
        await runner.state.look_again(layer.id, scope_key)
