"""Time and identity under a test's control."""

from __future__ import annotations

from collections import defaultdict


class FakeClock:
    """A clock that moves only by `advance`, or by a fixed step at every reading.

    Parameters
    ----------
    start_ms : float
        First reading, milliseconds since the epoch.
    step_ms : float
        How far each reading moves it, milliseconds.

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
        """Move on by so many milliseconds; a clock never goes back."""
        if ms < 0:
            raise ValueError(f"A clock cannot go back by {-ms} ms.")
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
    """Ids that are the same in every run: the kind, the seed and a count.

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
