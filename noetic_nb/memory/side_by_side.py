"""Run coroutines at the same time, at the price of a task only where one of them waits.

Most hooks that may run at the same time wait for nothing, and a task costs several times what they do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from typing import Any, TypeVar

from noetic_nb.sync import Begun

__all__ = ["side_by_side"]

T = TypeVar("T")


async def side_by_side(calls: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:
    """Return what several coroutines give, in their order; each has a context of its own, as tasks have.

    They are begun one after the other. The first that waits goes on in the task of the caller, where it has begun, since
    what it may have noted of its task (a time limit, a task group) is right only there; those behind it become tasks.

    Examples
    --------
    >>> async def double(n):
    ...     await asyncio.sleep(0)
    ...     return 2 * n
    >>> asyncio.run(side_by_side([lambda: double(1), lambda: double(2)]))
    [2, 4]
    """
    outer = copy_context()
    results: list[T] = []
    for place, call in enumerate(calls, start=1):
        context, steps = outer.copy(), call()
        try:
            waiting = context.run(steps.send, None)
        except StopIteration as done:
            results.append(done.value)
            continue
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(later(), context=outer.copy()) for later in calls[place:]]
            results.append(await Begun(steps, waiting, context))
        return [*results, *[task.result() for task in tasks]]
    return results
