"""Store hooks of layers after a response: every hook begins with the same state, and their speed shows in nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from noetic_nb.items import Item
from noetic_nb.memory._execution_context import ExecutionContext, as_response
from noetic_nb.memory._hooks.hook_results import UNSET, field_of
from noetic_nb.memory._hooks.hook_runner import HookRunner
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.memory._state.state_copy import StateNotCopied, deep_copy
from noetic_nb.memory.params import StoreParams
from noetic_nb.sync import Begun

A = TypeVar("A")
T = TypeVar("T")


async def side_by_side(call: Callable[[A], Coroutine[Any, Any, T]], given: Sequence[A]) -> list[T]:
    """Call a function with each value and return the results in order; each call has a context of its own, as tasks have.

    The calls are begun one after the other. The first that waits goes on in the task of the caller, where it has begun, since
    what it may have noted of its task (a time limit, a task group) is right only there; those behind it become tasks.
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
    """Call every ``store`` with a response and the conversation, all at once, each with a copy of its layer's state."""
    states, execution_id = runner.state, ctx.execution_id
    # Judged before any of them runs: stores do not decide on each other.
    layers = list(runner.order.active("store", ctx))
    if not layers:
        return
    answer = as_response(response)

    async def one(layer: MemoryLayer) -> Any:
        state = states.get(execution_id, layer.id)
        try:
            state = deep_copy(state)
        except Exception as exc:  # this layer's fault, not that of the turn
            error = StateNotCopied(layer.id, "store", state, exc)
            states.report(execution_id, layer.id, "store", error)
            return UNSET
        params = StoreParams(answer.items, view, answer, ctx, state)
        outcome = await runner.run(layer, "store", params, ctx, read=partial(field_of, name="state", hook="store"))
        return outcome.value if outcome.error is None else UNSET

    # Written when all have ended, in the order of the layers: who was quicker must not show in what is stored.
    for layer, state in zip(layers, await side_by_side(one, layers), strict=True):
        if state is not UNSET:
            runner.put(ctx, layer, "store", state)
    if not states.is_idle:
        await runner.flush(ctx)
