"""Try something while someone types: after a pause, in a thread, given up when it is no longer wanted or takes too long.

What is tried is code that is half written. It may loop for ever, so the thread is ended from outside.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from noetic_nb._core.nested_loop import running_loop

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
        self.unwanted = threading.Event()
        self.thread: threading.Thread | None = None

    def end(self) -> None:
        self.unwanted.set()
        thread = self.thread
        if thread is not None and thread.is_alive() and thread.ident is not None:
            # The only way to end a thread that never waits; it takes effect at its next bytecode.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Ended))


class LiveTrial(Generic[T]):
    """Runs the newest of the jobs it is given in a thread, and reports the outcome.

    ``report(result, error)`` is called in that thread, but not for work that was given up for newer work. A cell that keeps
    the kernel busy delays nothing. Typing must rest for `pause_s` seconds; the work may take `limit_s`.

    Examples
    --------
    >>> trial = LiveTrial(lambda result, error: print(result, error))
    >>> trial.later(lambda stop: 6 * 7)
    42 None
    """

    def __init__(
        self,
        report: Callable[[T | None, Exception | None], object],
        *,
        pause_s: float = PAUSE_S,
        limit_s: float = LIMIT_S,
    ) -> None:
        self._report = report
        self._pause_s = pause_s
        self._limit_s = limit_s
        self._attempt: _Attempt | None = None
        self._lock = threading.Lock()
        # Where no loop was running (a script, a test) nobody types, and who asks waits.
        self._waits = running_loop() is None

    def later(
        self, work: Callable[[Callable[[], bool]], T], *, first: Callable[[], float | None] = lambda: None
    ) -> None:
        """Do ``work(stop)`` after a pause, unless newer work comes; at once in a program without a loop.

        `stop` returns whether it is no longer wanted. `first` is done before it, however long that takes; what it returns are
        seconds that the work may take beyond the limit.
        """
        attempt = _Attempt()
        with self._lock:
            old, self._attempt = self._attempt, attempt
        if old is not None:
            old.end()
        if self._waits and running_loop() is None:
            self._try(attempt, work, first)
            return
        # The context of the caller says which message of the page it belongs to.
        run = partial(contextvars.copy_context().run, self._after_pause, attempt, work, first)
        try:
            threading.Thread(target=run, name="noetic_nb trial", daemon=True).start()
        except RuntimeError:  # no threads here
            self._try(attempt, work, first)

    def cancel(self) -> None:
        """Cancel the job that is waiting or running."""
        with self._lock:
            attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.end()

    def _after_pause(self, attempt: _Attempt, work: Any, first: Any) -> None:
        if not attempt.unwanted.wait(self._pause_s):
            self._try(attempt, work, first)

    def _try(self, attempt: _Attempt, work: Any, first: Any) -> None:
        result, error = None, None
        try:
            limit_s = self._limit_s + (first() or 0.0)
            if not attempt.unwanted.is_set():
                result = in_time(lambda: work(attempt.unwanted.is_set), limit_s=limit_s, attempt=attempt)
        except (Exception, asyncio.CancelledError) as exc:
            error = exc if isinstance(exc, Exception) else None
        with self._lock:
            # An answer that was on its way when newer work began is dropped.
            if attempt is not self._attempt:
                return
            self._attempt = None
        self._report(result, error)


def in_time(work: Callable[[], T], *, limit_s: float = LIMIT_S, attempt: _Attempt | None = None) -> T:
    """Do work that someone waits for, and give it up after as long as a trial may take.

    Raises `TooLong` where it was stopped, or left behind where it could not be; and its own errors.

    Examples
    --------
    >>> in_time(lambda: 6 * 7)
    42
    """
    attempt, found = attempt or _Attempt(), list[tuple[Any, Exception | None]]()

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
    try:
        attempt.thread.start()
    except RuntimeError:  # no threads here: nothing could end it
        return work()
    attempt.thread.join(limit_s)
    if not found:
        attempt.end()
        raise TooLong(f"It took more than {limit_s:g} seconds and was stopped.")
    result, error = found[0]
    if error is not None:
        raise error
    return cast(T, result)
