"""Runs a trial while the user types: after a pause, in a thread, and cancelled if it is outdated or takes too long.

The trial executes half-written code. It may loop forever, so the thread is stopped from outside.
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

# A pause in typing; a shorter one would try every keystroke.
PAUSE_S: Final = 0.3
# A longer trial would not feel live.
LIMIT_S: Final = 2.0


class TooLong(Exception):
    """The work was stopped because it took too long."""


class _Ended(SystemExit):
    """Stops a thread whose work is outdated; as a SystemExit it passes through rules."""


class _Attempt:
    """One execution of the work."""

    def __init__(self) -> None:
        self.unwanted = threading.Event()
        self.thread: threading.Thread | None = None

    def end(self) -> None:
        self.unwanted.set()
        thread = self.thread
        if thread is not None and thread.is_alive() and thread.ident is not None:
            # The only way to stop a thread that never waits; it takes effect at the next bytecode.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Ended))


class LiveTrial(Generic[T]):
    """Runs the newest job in a thread, and reports the outcome.

    ``report(result, error)`` is called in that thread, but not for a job replaced by a newer one. A cell that keeps the
    kernel busy delays nothing. Typing must pause for `pause_s` seconds; the job may take `limit_s`.

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
        # Without an event loop (a script, a test) nobody types, and the caller waits.
        self._waits = running_loop() is None

    def later(
        self, work: Callable[[Callable[[], bool]], T], *, first: Callable[[], float | None] = lambda: None
    ) -> None:
        """Run ``work(stop)`` after a pause, unless newer work arrives; immediately in a program without an event loop.

        `stop` returns whether the work is outdated. `first` runs before it without a limit; it returns the seconds that
        the work may take beyond the limit.
        """
        attempt = _Attempt()
        with self._lock:
            old, self._attempt = self._attempt, attempt
        if old is not None:
            old.end()
        if self._waits and running_loop() is None:
            self._try(attempt, work, first)
            return
        # The caller's context identifies the page message that caused the call.
        run = partial(contextvars.copy_context().run, self._after_pause, attempt, work, first)
        try:
            threading.Thread(target=run, name="noetic_nb trial", daemon=True).start()
        except RuntimeError:  # no thread support
            self._try(attempt, work, first)

    def cancel(self) -> None:
        """Cancel the waiting or running job."""
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
            # Drop the result if newer work has begun.
            if attempt is not self._attempt:
                return
            self._attempt = None
        self._report(result, error)


def in_time(work: Callable[[], T], *, limit_s: float = LIMIT_S, attempt: _Attempt | None = None) -> T:
    """Run work that the caller waits for, and stop it after the time limit of a trial.

    Raises `TooLong` if the work was stopped, or abandoned if it could not be stopped; and the work's own errors.

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
        except BaseException as exc:  # a rule that raises SystemExit only ends its own trial
            found.append((None, RuntimeError(f"{type(exc).__name__}: {exc}")))

    attempt.thread = threading.Thread(target=run, name="noetic_nb trial", daemon=True)
    try:
        attempt.thread.start()
    except RuntimeError:  # no thread support, so it could not be stopped
        return work()
    attempt.thread.join(limit_s)
    if not found:
        attempt.end()
        raise TooLong(f"It took more than {limit_s:g} seconds and was stopped.")
    result, error = found[0]
    if error is not None:
        raise error
    return cast(T, result)
