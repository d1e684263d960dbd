"""Store hooks of layers after a response: every hook begins with the same state, and their speed shows in nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from types import CoroutineType
from typing import Any, TypeVar

from noetic_nb.items import Item
from noetic_nb.memory._execution_context import ExecutionContext, as_response
from noetic_nb.memory._hooks.hook_results import UNSET
from noetic_nb.memory._hooks.hook_runner import HookRunner, Outcome
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.memory._state.state_copy import StateNotCopied, flat_copy, nested_copy
from noetic_nb.memory.params import StoreParams
from noetic_nb.sync import Begun

__all__ = ["side_by_side", "store_response"]

A = TypeVar("A")
T = TypeVar("T")


async def side_by_side(call: Callable[[A], T | Coroutine[Any, Any, T]], given: Sequence[A]) -> list[T]:
    """Call a function with each value and return the results in order; each call has a context of its own, as tasks have.

    The calls are begun one after the other. The first that waits goes on in the task of the caller, where it has begun, since
    what it may have noted of its task (a time limit, a task group) is right only there; those behind it become tasks.

    Parameters
    ----------
    call : callable
        Returns the result, or a coroutine where it has to be waited for.

    Examples
    --------
    >>> async def double(n):
    ...     await asyncio.sleep(0)
    ...     return 2 * n
    >>> asyncio.run(side_by_side(lambda n: n if n > 2 else double(n), [1, 2, 3]))
    [2, 4, 3]
    """
    outer = copy_context()
    results: list[T] = []
    for value in given:
        context = outer.copy()
        found: Any = context.run(call, value)
        if type(found) is not CoroutineType:
            results.append(found)
            continue
        try:
            waiting = context.run(found.send, None)
        except StopIteration as done:
            results.append(done.value)
            continue
        async with asyncio.TaskGroup() as group:
            behind = given[len(results) + 1 :]
            tasks = [group.create_task(_as_coroutine(call, later), context=outer.copy()) for later in behind]
            results.append(await Begun(found, waiting, context))
        return [*results, *[task.result() for task in tasks]]
    return results


async def _as_coroutine(call: Callable[[A], Any], value: A) -> Any:
    found = call(value)
    return await found if isinstance(found, CoroutineType) else found


async def store_response(runner: HookRunner, ctx: ExecutionContext, response: Any, view: Sequence[Item]) -> None:
    """Call every ``store`` with a response and the conversation, all at once, each with a copy of its layer's state."""
    states, execution_id = runner.state, ctx.execution_id
    # Judged before any of them runs: stores do not decide on each other.
    layers = runner.order.active_now("store", ctx)
    if not layers:
        return
    answer = as_response(response)
    items, live = answer.items, states.of(execution_id)

    def one(layer: MemoryLayer) -> Outcome | tuple[Any] | Coroutine[Any, Any, Outcome]:
        state = live.get(layer.id)
        try:
            flat = flat_copy(state) if type(state) is dict else None  # as most are
            state = nested_copy(state) if flat is None else flat
        except Exception as exc:  # this layer's fault, not that of the turn
            error = StateNotCopied(layer.id, "store", state, exc)
            states.report(execution_id, layer.id, "store", error)
            return Outcome.failed(error)
        # A record of all its fields, in half the time of a call of its class.
        params = tuple.__new__(StoreParams, (items, view, answer, ctx, state))
        return runner.begin_store(layer, params, ctx)

    outcomes: list[Outcome | tuple[Any]] = await side_by_side(one, layers)
    # Written when all have ended, in the order of the layers: who was quicker must not show in what is stored.
    for layer, outcome in zip(layers, outcomes, strict=True):
        if isinstance(outcome, tuple):
            state = outcome[0]
        else:
            state = outcome.value if outcome.error is None else UNSET
        if state is not UNSET:
            try:
                states.set(execution_id, layer.id, state, hook="store")
            except StateNotCopied as exc:
                states.report(execution_id, layer.id, "store", exc)
    if not states.is_idle:
        await runner.flush(ctx)
