"""The only source of time. Code that needs the time is given a `Clock`; nothing else calls `time`."""

from __future__ import annotations

from time import perf_counter, time
from typing import Final, Protocol

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock"]


class Clock(Protocol):
    """Two readings, both in milliseconds."""

    def now_ms(self) -> float:
        """Milliseconds since the Unix epoch; may jump when the machine's time is set."""

    def monotonic_ms(self) -> float:
        """Milliseconds since an arbitrary start; never goes back. For durations."""


class SystemClock:
    """The machine's clock.

    Examples
    --------
    >>> clock = SystemClock()
    >>> first = clock.monotonic_ms()
    >>> clock.monotonic_ms() >= first
    True
    """

    __slots__ = ()

    def now_ms(self) -> float:
        """Milliseconds since the Unix epoch."""
        return time() * 1e3

    def monotonic_ms(self) -> float:
        """Milliseconds since an arbitrary start."""
        return perf_counter() * 1e3  # not time.monotonic(), whose resolution is 16 ms on some systems


SYSTEM_CLOCK: Final = SystemClock()
