"""The spending of a task, and the one number that wears a session down.

Counters saturate where the original's do, so that a snapshot of either side reads alike.
"""

from __future__ import annotations

from typing import Final

from noetic_nb.regulator.events import U32_MAX, U64_MAX, Cost

TYPICAL_TURN_TOKENS_OUT: Final = 1000
TYPICAL_TURN_WALLCLOCK_MS: Final = 10_000
TOKEN_COST_WEIGHT: Final = 0.7
"""A costly turn of the original, and how much its tokens weigh."""


def normalize_cost(tokens_out: int, wallclock_ms: int) -> float:
    """Return the cost of one turn as a share, in [0, 1], of a typical costly one: 0.7 of it for tokens, the rest for time.

    docs/behaviour/regulator.md, "Cost", also fixes the order of evaluation.
    """
    tokens = min(tokens_out / TYPICAL_TURN_TOKENS_OUT, 1.0)
    time = min(wallclock_ms / TYPICAL_TURN_WALLCLOCK_MS, 1.0)
    return TOKEN_COST_WEIGHT * tokens + (1.0 - TOKEN_COST_WEIGHT) * time


class CostTotals:
    """Counters of one task, each in its own currency."""

    __slots__ = ("tokens_in", "tokens_out", "unpriced", "usd", "wallclock_ms")

    def __init__(self) -> None:
        self.tokens_in = self.tokens_out = self.wallclock_ms = 0
        self.unpriced = 0
        """How many events had no price."""
        self.usd = 0.0

    def add(self, cost: Cost) -> None:
        """Count one event, plain by now (`events.plain`); one without a price adds nothing to `usd`."""
        self.tokens_in = min(self.tokens_in + cost.tokens_in, U32_MAX)
        self.tokens_out = min(self.tokens_out + cost.tokens_out, U32_MAX)
        self.wallclock_ms = min(self.wallclock_ms + cost.wallclock_ms, U64_MAX)  # type: ignore[assignment]  # whole by now
        if cost.usd is None:
            self.unpriced += 1
        else:
            self.usd += cost.usd
