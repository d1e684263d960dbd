"""Run a function in a thread of its own, so that the caller can stop waiting for it.

Python cannot stop a thread: a hanging one is left behind, with everything it holds. It is a daemon thread, so it does
not keep the kernel from ending. A browser has no threads: the function is called directly, and only closing the page
ends a hanging one.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from noetic_nb._core.nested_loop import running_loop
from noetic_nb._core.worker_threads import Worker, has_threads
from noetic_nb.sync import LOOP_NEEDED

T = TypeVar("T")

MAX_THREADS: Final = 16

_numbers: Final = itertools.count(1)


class TooManyThreads(RuntimeError):
    """Hanging rules occupy all available threads."""

    def __init__(self) -> None:
        super().__init__(
            f"{MAX_THREADS} threads are held by rules that hang, and no further one is begun. Python cannot stop a thread: "
            "end the program, or what the rules wait for."
        )


class _Places:
    """The limit on threads: places are taken, lost to hanging threads, or given back. Several loops may share them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free = MAX_THREADS
        self._left_behind = 0
        self._queue: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    async def take(self) -> None:
        """Take a place, or wait for one that will be given back; raises `TooManyThreads` if none will be."""
        with self._lock:
            self._check()
            if self._free:
                self._free -= 1
                return
            loop = asyncio.get_running_loop()
            turn: asyncio.Future[None] = loop.create_future()
            self._queue.append((loop, turn))
        try:
            await turn
        except asyncio.CancelledError:
            # A place may have been handed over at the same moment.
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give_back(left_behind=False)
            raise

    def _check(self) -> None:
        if self._left_behind >= MAX_THREADS:
            raise TooManyThreads

    def leave(self) -> None:
        """Record a thread that is no longer awaited."""
        with self._lock:
            self._left_behind += 1
            waiting = tuple(self._queue) if self._left_behind >= MAX_THREADS else ()
            if waiting:
                self._queue.clear()
        for loop, turn in waiting:
            _settle(loop, turn, TooManyThreads())

    def give_back(self, *, left_behind: bool) -> None:
        """Give a place back, to the next waiting call."""
        with self._lock:
            self._left_behind -= left_behind
            while self._queue:
                loop, turn = self._queue.popleft()
                if not turn.done() and _settle(loop, turn, None):
                    return
            self._free += 1


def _settle(loop: asyncio.AbstractEventLoop, turn: asyncio.Future[None], error: Exception | None) -> bool:
    def settle() -> None:
        if turn.done():
            if error is None:
                _places.give_back(left_behind=False)  # cancelled meanwhile
        elif error is None:
            turn.set_result(None)
        else:
            turn.set_exception(error)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        return False  # that loop has ended
    return True


_places = _Places()


async def in_thread(function: Callable[..., T], *args: Any, name: str = "rule") -> T:
    """Call a function in a daemon thread and wait for it; directly if there are no threads.

    Unlike `asyncio.to_thread`, it does not use the loop's thread pool: hanging functions would gradually block all
    other users of the pool, and the end of the program. Raises `TooManyThreads` immediately if the maximum number of
    threads was left behind.
    """
    context = contextvars.copy_context()  # a thread does not inherit the context by itself
    lock, is_over, is_left = threading.Lock(), False, False

    def work() -> T:
        nonlocal is_over
        try:
            return context.run(function, *args)
        except Exception:
            raise
        except BaseException as exc:  # such as SystemExit: an error of the rule that must not end anything else
            raise RuntimeError(f"{type(exc).__name__} in a thread: {exc}") from exc
        finally:
            with lock:
                is_over = True
            if worker is not None:
                _places.give_back(left_behind=is_left)

    worker = Worker(f"noetic_nb {name} {next(_numbers)}") if has_threads() else None
    if worker is None:
        return work()
    if running_loop() is None:  # the caller continues by hand, as far as possible
        await LOOP_NEEDED
    await _places.take()
    try:
        return await worker.call(work)
    except BaseException:
        with lock:
            if not is_over and worker.is_busy:
                is_left = True
                _places.leave()
        if not worker.is_busy and not is_over:  # the system cannot start another thread
            _places.give_back(left_behind=False)
        raise
    finally:
        worker.end()
