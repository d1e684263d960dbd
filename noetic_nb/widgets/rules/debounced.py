"""Try something while someone types: after a pause, in a thread, given up when it is no longer wanted or takes too long.

What is tried is code that is half written. It may loop for ever, so the thread is ended from outside.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, cast

__all__ = ["LiveTrial", "TooLong", "in_time"]

T = TypeVar("T")

# A pause in typing; shorter ones try every letter.
PAUSE_S: Final = 0.3
# Longer than this is not live any more.
LIMIT_S: Final = 2.0


class TooLong(Exception):
    """It was given up because it took too long."""


class _Ended(SystemExit):
    """Raised inside a thread that is no longer wanted: as the end of the program it passes through rules."""


class _Attempt:
    """One run of the work."""

    def __init__(self) -> None:
        self.is_wanted = True
        self.thread: threading.Thread | None = None
        self.limit: asyncio.TimerHandle | None = None

    def end(self) -> None:
        self.is_wanted = False
        if self.limit is not None:
            self.limit.cancel()
        thread = self.thread
        if thread is not None and thread.is_alive() and thread.ident is not None:
            # The only way to end a thread that never waits; it takes effect at its next bytecode.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Ended))


class LiveTrial(Generic[T]):
    """Runs the newest of the works it is given, and reports what became of it.

    ``report(result, error)`` is called in the thread of the loop, but not for work that was given up for newer work. The loop
    is that of the caller, or the one in which this was made: what pages send is handled in a thread without one.
    Typing must rest for `pause_s` seconds; the work may take `limit_s`.

    Examples
    --------
    >>> trial = LiveTrial(lambda result, error: print(result, error))
    >>> trial.later(lambda stop: 6 * 7)
    42 None
    """

    def __init__(
        self,
        report: Callable[[T | None, Exception | None], None],
        *,
        pause_s: float = PAUSE_S,
        limit_s: float = LIMIT_S,
    ) -> None:
        self._report = report
        self._pause_s = pause_s
        self._limit_s = limit_s
        self._timer: asyncio.TimerHandle | None = None
        self._attempt: _Attempt | None = None
        self._home = _running_loop()

    def later(self, work: Callable[[Callable[[], bool]], T]) -> None:
        """Do ``work(stop)`` after a pause, unless newer work comes; at once where no loop is running.

        `stop` returns whether it is no longer wanted.
        """
        loop = _running_loop()
        if loop is None and self._home is not None and self._home.is_running():
            self._home.call_soon_threadsafe(self.later, work)
            return
        self.cancel()
        if loop is None:
            self._report(*_done(lambda stop: in_time(lambda: work(stop), limit_s=self._limit_s), lambda: False))
            return
        self._timer = loop.call_later(self._pause_s, self._start, loop, work)

    def cancel(self) -> None:
        """Give up what is waiting or running."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.end()

    def _start(self, loop: asyncio.AbstractEventLoop, work: Callable[[Callable[[], bool]], T]) -> None:
        self._timer = None
        attempt = self._attempt = _Attempt()

        def run() -> None:
            try:
                result, error = _done(work, lambda: not attempt.is_wanted)
                loop.call_soon_threadsafe(self._attempt_done, attempt, result, error)
            except (_Ended, RuntimeError):
                return  # no longer wanted, or the loop has ended

        attempt.thread = threading.Thread(target=run, name="noetic_nb trial", daemon=True)
        attempt.limit = loop.call_later(self._limit_s, self._give_up, attempt)
        attempt.thread.start()

    def _give_up(self, attempt: _Attempt) -> None:
        if attempt is self._attempt:
            self._attempt = None
            attempt.end()
            self._report(None, TooLong(f"It took more than {self._limit_s:g} seconds and was stopped."))

    def _attempt_done(self, attempt: _Attempt, result: T | None, error: Exception | None) -> None:
        # An answer that was on its way when newer work began is dropped.
        if attempt is self._attempt:
            self._attempt = None
            if attempt.limit is not None:
                attempt.limit.cancel()
            self._report(result, error)


def in_time(work: Callable[[], T], *, limit_s: float = LIMIT_S) -> T:
    """Do work that someone waits for, and give it up after as long as a trial may take.

    Raises
    ------
    TooLong
        It was stopped, or left behind where it could not be.
    Exception
        What the work raises.

    Examples
    --------
    >>> in_time(lambda: 6 * 7)
    42
    """
    attempt, found = _Attempt(), list[tuple[Any, Exception | None]]()

    def run() -> None:
        try:
            found.append((work(), None))
        except _Ended:
            return
        except Exception as exc:
            found.append((None, exc))
        except BaseException as exc:  # a text that ends the program ends no more than its own trial
            found.append((None, RuntimeError(f"{type(exc).__name__}: {exc}")))

    attempt.thread = threading.Thread(target=run, name="noetic_nb trial", daemon=True)
    attempt.thread.start()
    attempt.thread.join(limit_s)
    if not found:
        attempt.end()
        raise TooLong(f"It took more than {limit_s:g} seconds and was stopped.")
    result, error = found[0]
    if error is not None:
        raise error
    return cast(T, result)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _done(work: Callable[[Callable[[], bool]], T], stop: Callable[[], bool]) -> tuple[Any, Exception | None]:
    try:
        return work(stop), None
    except Exception as exc:
        return None, exc
