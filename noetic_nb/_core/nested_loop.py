"""Run a coroutine to its end while a loop is running in the same thread: for a browser, which has no other thread.

The running loop waits meanwhile, as it does for any call that takes its time. So what is run here may wait for time and for
its own tasks, but not for the network, the page or a task of the loop outside.
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
    """Stands where other loops ask the system for events: none come here, only time passes."""

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise NoeticConfigError(
                "NO_THREADS",
                "Deadlock: the call waits for the outer event loop, and that loop waits for the call.",
                hint="Write `await ...` instead of run_sync(...).",
            )
        # Not `time.sleep`: in a browser that may hand over to the page, and so to the loop that is waiting.
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            pass
        return []

    def close(self) -> None:
        """Nothing is open."""


class _NestedLoop(asyncio.BaseEventLoop):
    """A loop of timers and tasks: the methods that `BaseEventLoop` requires of a subclass."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Clock()

    def _process_events(self, events: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody has to be woken: the caller is in this thread."""


def run_nested(coroutine: Coroutine[Any, Any, T], context: contextvars.Context | None = None) -> T:
    """Run a coroutine on a loop of its own in this thread; raises ``NO_THREADS`` where it waits for the loop outside."""
    outer = running_loop()
    task = None if outer is None else asyncio.current_task(outer)
    # A task cannot be run inside another one, nor a loop inside another: both step aside.
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
