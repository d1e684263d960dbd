"""Run a function in a thread of its own, so that waiting for it can be abandoned.

Python cannot stop a thread: one that hangs is left behind, and keeps whatever it holds. It is a daemon, so it does not keep
the kernel from ending.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

__all__ = ["in_thread"]

T = TypeVar("T")

_numbers: Final = itertools.count(1)


async def in_thread(function: Callable[..., T], *args: Any, name: str = "rule") -> T:
    """Call a function in a daemon thread and wait for it.

    Unlike `asyncio.to_thread` it takes no place in the loop's pool: functions that hang there would, one by one, keep
    everything else that needs the pool from running, and the program from ending.

    Raises
    ------
    Exception
        What the function raises.

    Examples
    --------
    >>> asyncio.run(in_thread(pow, 2, 5))
    32
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    # Context variables do not follow into a thread by themselves.
    context = contextvars.copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        if done.done():  # cancelled meanwhile
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def work() -> None:
        result, failure = None, None
        try:
            result = context.run(function, *args)
        except BaseException as exc:
            # SystemExit and the like would end the thread in silence, and the caller would wait for ever.
            failure = exc if isinstance(exc, Exception) else RuntimeError(f"{type(exc).__name__} in a thread: {exc}")
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            return  # the loop has ended: nobody waits any more

    threading.Thread(target=work, name=f"noetic_nb {name} {next(_numbers)}", daemon=True).start()
    return await done
