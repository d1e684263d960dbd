"""Work beside the event loop where there are threads. In a browser there are none, and it is done on the spot."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

__all__ = ["beside_loop", "has_threads", "thread_time"]

P = ParamSpec("P")
T = TypeVar("T")

# Python's builds for WebAssembly: starting a thread raises there.
_WITHOUT: Final = frozenset({"emscripten", "wasi"})


thread_time: Final[Callable[[], float]] = getattr(time, "thread_time", time.process_time)
"""Processor time of this thread, seconds; of the process where Python's build has no threads, and so no clock of one."""


def has_threads() -> bool:
    """Tell whether this Python can start threads.

    Asked before, not found out: on a system that has run out of threads, work that may hang must not move into the loop.
    """
    return sys.platform not in _WITHOUT


async def beside_loop(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that may block: in a thread, or on the spot where there are none.

    Raises
    ------
    Exception
        What the function raises.

    Examples
    --------
    >>> asyncio.run(beside_loop(pow, 2, 5))
    32
    """
    if has_threads():
        return await asyncio.to_thread(function, *args, **kwargs)
    return function(*args, **kwargs)
