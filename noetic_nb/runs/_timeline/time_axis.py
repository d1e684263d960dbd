"""Time as it is drawn: long pauses in which nothing runs are shortened, or days between turns would leave no room for them."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

# Shorter pauses are part of the picture.
LEAST_PAUSE_MS: Final = 1_000.0
# What stays of a pause, of the longest stretch without one so far: only of what was, so that a picture that grows keeps its form.
PAUSE_SHARE: Final = 0.1


class DrawnTime:
    """Times of the run's clock as milliseconds that are drawn, from 0, and back."""

    def __init__(self) -> None:
        self.origin: float | None = None
        self.until: float = 0.0
        self.pauses: list[tuple[float, float, float]] = []
        """Of every pause that is shortened: where it is drawn, from and to, and its length in ms."""
        self._begin = 0.0
        self._longest = 0.0
        self._times: list[float] = []
        self._places: list[float] = []

    def runs(self, start: float) -> None:
        """Take the start of something before which nothing ran."""
        if self.origin is None:
            self.origin = self.until = self._begin = start
            return
        pause = start - self.until
        kept = max(self._longest * PAUSE_SHARE, LEAST_PAUSE_MS / 10)
        if self._longest <= 0 or pause <= max(LEAST_PAUSE_MS, 2 * kept):
            return
        begin = self.drawn(self.until)
        self.pauses.append((begin, begin + kept, pause))
        self._times += [self.until, start]
        self._places += [begin, begin + kept]
        self._begin = self.until = start

    def began(self, start: float) -> None:
        """Note the start of a span, which may be before all others: its end is the recorded time."""
        if self.origin is not None and start < self.origin and not self.pauses:
            self.origin = self._begin = start

    def ran(self, end: float) -> None:
        """Take a moment until which something ran."""
        if self.origin is None:
            self.origin = self._begin = end
        if end > self.until:
            self.until = end
            self._longest = max(self._longest, end - self._begin)

    @property
    def end(self) -> float:
        """Where the newest moment is drawn."""
        return 0.0 if self.origin is None else self.drawn(self.until)

    def drawn(self, time: float) -> float:
        """Return where a time is drawn."""
        at = bisect_right(self._times, time)
        if not at:
            return max(0.0, time - (self.origin or 0.0))
        before, place = self._times[at - 1], self._places[at - 1]
        if at % 2:  # inside of a pause
            after, end = self._times[at], self._places[at]
            return place + (time - before) / (after - before) * (end - place)
        return place + time - before

    def clock(self, place: float) -> float:
        """Return the time that is drawn at a place."""
        at = bisect_right(self._places, place)
        if not at:
            return place + (self.origin or 0.0)
        before, time = self._places[at - 1], self._times[at - 1]
        if at % 2:
            after, end = self._places[at], self._times[at]
            return time + (place - before) / (after - before) * (end - time)
        return time + place - before


def duration_text(ms: float | None) -> str:
    """Return a duration for people; one that nobody knows is empty."""
    if ms is None:
        return ""
    if ms < 999.5:
        return f"{ms:.2f}".rstrip("0").rstrip(".") + " ms" if ms < 1 else f"{ms:.2g} ms" if ms < 10 else f"{ms:.0f} ms"
    seconds = ms / 1_000
    if seconds < 59.995:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d} h" if hours < 24 else f"{hours // 24} d {hours % 24} h"
