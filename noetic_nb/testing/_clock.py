"""Controlled time and identity: a clock, ids, and an event loop whose time only passes when nothing else is left to do.

Timers of the loop fire in order immediately, so a test of a ten-second timeout takes no time and never depends on the
machine. Threads are the exception: while one works, virtual time may run ahead of it.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import defaultdict
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar


class FakeClock:
    """A clock that moves only by `advance`, or by a fixed step at every reading.

    Parameters
    ----------
    start_ms : float
        First reading, milliseconds since the epoch.
    step_ms : float
        The step by which each reading moves it, milliseconds.

    Examples
    --------
    >>> clock = FakeClock(1_000)
    >>> clock.advance(250)
    >>> clock.now_ms(), clock.monotonic_ms()
    (1250.0, 250.0)
    """

    def __init__(self, start_ms: float = 1_700_000_000_000.0, *, step_ms: float = 0.0) -> None:
        self._start = float(start_ms)
        self._elapsed = 0.0
        self._step = float(step_ms)

    def advance(self, ms: float) -> None:
        """Move forward by some milliseconds; a clock never goes back."""
        if ms < 0:
            raise ValueError(f"A clock cannot be set back by {-ms} ms.")
        self._elapsed += ms

    def now_ms(self) -> float:
        """Milliseconds since the epoch."""
        return self._start + self.monotonic_ms()

    def monotonic_ms(self) -> float:
        """Milliseconds since this clock was made."""
        reading = self._elapsed
        self._elapsed += self._step
        return reading


class SeededIds:
    """Ids that are the same in every run, made of kind, seed and count.

    Examples
    --------
    >>> ids = SeededIds(7)
    >>> ids.new("item"), ids.new("item"), ids.new("turn")
    ('item_7_1', 'item_7_2', 'turn_7_1')
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._counts: defaultdict[str, int] = defaultdict(int)

    def new(self, kind: str) -> str:
        """Return the next id of this kind."""
        self._counts[kind] += 1
        return f"{kind}_{self.seed}_{self._counts[kind]}"


T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Polls for real events; if there are none, moves the loop's clock instead of waiting."""

    loop: VirtualTimeLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        # Real events first: a finished thread must not lose to a timer that is merely due.
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            return super().select(None)  # only a thread or a socket can wake the loop
        self.loop.pass_time(timeout)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop with its own clock. Agents' tools run on it, including those that otherwise run in a thread."""

    runs_inline = True
    """Read by `noetic_nb._core.worker_threads.leaves_loop`."""

    def __init__(self) -> None:
        selector = _JumpingSelector()
        selector.loop = self
        self._now = 0.0
        super().__init__(selector)

    def time(self) -> float:
        """Seconds of virtual time."""
        return self._now

    def pass_time(self, seconds: float) -> None:
        """Move the clock on."""
        self._now += max(0.0, seconds)


class _Cancelling:
    """Awaits a coroutine and raises CancelledError into it at its k-th suspension."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], at: int) -> None:
        self.coroutine = coroutine
        self.at = at
        self.suspensions = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self.coroutine
        try:
            waiting = steps.send(None)
            while True:
                self.suspensions += 1
                try:
                    if self.suspensions == self.at:
                        raise asyncio.CancelledError(f"cancelled at suspension {self.at}")
                    sent = yield waiting
                except BaseException as exc:
                    waiting = steps.throw(exc)
                else:
                    waiting = steps.send(sent)
        except StopIteration as done:
            return done.value


def drive_loop(coroutine: Coroutine[Any, Any, T], *, cancel_at: int | None = None) -> T:
    """Run a coroutine to its end in virtual time.

    Parameters
    ----------
    coroutine : coroutine
        The coroutine to run.
    cancel_at : int, optional
        Raise `asyncio.CancelledError` into it at this suspension, counted from 1; a coroutine with fewer suspensions
        runs to its end.

    Returns
    -------
    object
        The result of the coroutine. Tasks that it left behind are cancelled.

    Raises
    ------
    BaseException
        The exception of the coroutine.

    Examples
    --------
    >>> async def nap():
    ...     await asyncio.sleep(3600)
    ...     return "rested"
    >>> drive_loop(nap())
    'rested'
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        if cancel_at is None:
            return runner.run(coroutine)

        async def cancelled() -> T:
            result: T = await _Cancelling(coroutine, cancel_at)
            return result

        return runner.run(cancelled())
