"""Work outside the event loop, in threads if there are any. A browser has none, and does it in place."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Python's WebAssembly builds: starting a thread raises there.
_WITHOUT: Final = frozenset({"emscripten", "wasi"})


thread_time: Final[Callable[[], float]] = getattr(time, "thread_time", time.process_time)
"""Processor time of this thread in seconds; of the process if Python's build has no threads, and so no thread clock."""


def has_threads() -> bool:
    """Tell whether threads are supported; if a system has merely run out of them, work must not move into the loop."""
    return sys.platform not in _WITHOUT


def leaves_loop() -> bool:
    """Tell whether blocking functions get a thread: not on a loop of virtual time, which would run ahead of them."""
    return has_threads() and not getattr(asyncio.get_running_loop(), "runs_inline", False)


async def let_loop_run() -> None:
    """Let the loop run twice after work that may have blocked it: once for the stop signal, once for the cell."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.call_soon(loop.call_soon, _settle, done, None)  # wakes the caller once, not after each run
    await done


async def beside_loop(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that may block: in a thread, or in place without threads."""
    if has_threads():
        return await asyncio.to_thread(function, *args, **kwargs)
    return function(*args, **kwargs)


class OnTheSpot:
    """Calls functions in the thread of the loop, which waits meanwhile; has the methods of `Worker`."""

    async def acquire(self) -> None:
        """Do nothing: there is nothing to wait for."""

    def release(self) -> None:
        """Do nothing: there is nothing to release."""

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        return function(*args)

    def post(self, function: Callable[..., object], *args: Any) -> None:
        function(*args)


ON_THE_SPOT: Final = OnTheSpot()

_Jobs: TypeAlias = "SimpleQueue[Callable[[], object] | None]"


class Worker(OnTheSpot):
    """A daemon thread for blocking functions, for one caller at a time; a function whose caller gives up keeps it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = asyncio.Lock()
        self._jobs: _Jobs | None = None
        self.is_busy = False

    async def acquire(self) -> None:
        """Wait until no other caller has it."""
        await self._lock.acquire()

    def release(self) -> None:
        if self.is_busy:
            self.end()
        self._lock.release()

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function in the thread and wait for it; raises its error, or ``RuntimeError`` if no thread can be started."""
        done: asyncio.Future[tuple[Any, BaseException | None]] = asyncio.get_running_loop().create_future()
        job = partial(_report, done, function, args)
        if self._jobs is None:
            jobs: _Jobs = SimpleQueue()
            jobs.put(job)  # before it starts, so that the thread need not wait for it
            thread: Any = threading.Thread(target=_work, args=(jobs,), name=self._name, daemon=True)
            # As on anyio's threads: guarded tools find their session through it.
            thread.loop = asyncio.get_running_loop()
            thread.start()
            self._jobs = jobs
        else:
            self._jobs.put(job)
        self.is_busy = True
        found, error = await done
        self.is_busy = False
        if error is None:
            result: T = found
            return result
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Queue a function in the thread for its effect; Python prints any error that it raises."""
        if self._jobs is not None:
            self._jobs.put(partial(function, *args))

    def end(self) -> None:
        """End the thread after its queued work."""
        jobs, self._jobs, self.is_busy = self._jobs, None, False
        if jobs is not None:
            jobs.put(None)

    __del__ = end


class _Here(threading.local):
    is_worker = False


_here: Final = _Here()


def in_worker() -> bool:
    """Tell whether the caller runs in the thread of a `Worker`."""
    return _here.is_worker


def _work(jobs: _Jobs) -> None:
    _here.is_worker = True
    while (job := jobs.get()) is not None:
        job()
        del job  # release its objects before the next job


def _report(done: asyncio.Future[Any], function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    found: Any = None
    error: BaseException | None = None
    try:
        found = function(*args)
    except StopIteration as exc:
        error = RuntimeError("The function raised StopIteration.")
        error.__cause__ = exc
    except BaseException as exc:
        error = exc
    try:
        done.get_loop().call_soon_threadsafe(_settle, done, (found, error))
    except RuntimeError:
        return  # the loop has ended, so no caller is waiting
    finally:
        del error


def _settle(done: asyncio.Future[Any], outcome: tuple[Any, BaseException | None] | None) -> None:
    if not done.done():  # otherwise its caller was cancelled
        done.set_result(outcome)
