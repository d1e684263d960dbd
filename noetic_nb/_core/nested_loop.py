"""Run a coroutine to its end while a loop is running in the same thread: for a browser, which has no other thread.

The outer loop waits meanwhile, as for any blocking call. So the coroutine may wait for time and for its own tasks, but
not for the network, the page or a task of the outer loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from noetic_nb.errors import NoeticConfigError

T = TypeVar("T")


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop that is running in this thread, or None if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class _Clock:
    """Replaces the selector of other loops: no events arrive, only time passes."""

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise NoeticConfigError(
                "NO_THREADS",
                "Deadlock: the call waits for the outer event loop, and that loop waits for the call.",
                hint="Write `await ...` instead of run_sync(...).",
            )
        # Not `time.sleep`: in a browser that may yield to the page, and so to the waiting loop.
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            pass
        return []

    def close(self) -> None:
        """Do nothing, because nothing is open."""


class _NestedLoop(asyncio.BaseEventLoop):
    """A loop with timers and tasks, and the methods that `BaseEventLoop` requires of a subclass."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Clock()

    def _process_events(self, events: list[Any]) -> None:
        """Do nothing, because there are no events."""

    def _write_to_self(self) -> None:
        """Do nothing: the caller is in this thread, so the loop need not be woken."""


def run_nested(coroutine: Coroutine[Any, Any, T], context: contextvars.Context | None = None) -> T:
    """Run a coroutine on its own loop in this thread; raises ``NO_THREADS`` if it waits for the outer loop."""
    outer = running_loop()
    task = None if outer is None else asyncio.current_task(outer)
    # Neither tasks nor loops can be nested: both are suspended meanwhile.
    if outer is not None and task is not None:
        asyncio._leave_task(outer, task)
    asyncio._set_running_loop(None)
    loop = _NestedLoop()
    try:
        try:
            return loop.run_until_complete(loop.create_task(coroutine, context=context))
        finally:
            _end(loop)
    finally:
        asyncio._set_running_loop(outer)
        if outer is not None and task is not None:
            asyncio._enter_task(outer, task)


def _end(loop: _NestedLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(_all(left))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


async def _all(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
