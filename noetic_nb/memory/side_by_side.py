"""Run coroutines at the same time, at the price of a task only where one of them waits.

Most hooks that may run at the same time wait for nothing, and a task costs several times what they do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from types import CoroutineType
from typing import Any, TypeVar

from noetic_nb.sync import Begun

__all__ = ["side_by_side"]

A = TypeVar("A")
T = TypeVar("T")


async def side_by_side(call: Callable[[A], T | Coroutine[Any, Any, T]], given: Sequence[A]) -> list[T]:
    """Return what a function gives for each of some values, in their order; each call has a context of its own, as tasks have.

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
