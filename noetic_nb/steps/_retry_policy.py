"""How often a run step is tried, and how long it waits in between."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from pydantic import Field, FiniteFloat

from noetic_nb.steps._base import Frozen

__all__ = ["RetryPolicy"]

# Milliseconds; docs/behaviour/steps.md, "Constants".
MAX_DELAY_MS: Final = 30_000.0


class RetryPolicy(Frozen):
    """Tries and waits.

    Raises
    ------
    NoeticConfigError
        ``INVALID_RETRY`` for fewer than one attempt.

    References
    ----------
    .. [1] docs/behaviour/steps.md, "Retries".

    Examples
    --------
    >>> retry = RetryPolicy(max_attempts=4, backoff="exponential", initial_delay_ms=20, max_delay_ms=50)
    >>> [retry.delay_ms(failed) for failed in range(3)]
    [20.0, 40.0, 50.0]
    """

    error_code: ClassVar[str] = "INVALID_RETRY"

    max_attempts: int = Field(ge=1)
    """All tries, the first included."""
    backoff: Literal["fixed", "linear", "exponential"] = "fixed"
    initial_delay_ms: FiniteFloat = Field(default=0.0, ge=0, alias="initialDelay")
    max_delay_ms: FiniteFloat | None = Field(default=None, ge=0, alias="maxDelay")
    """No wait is longer; 30 000 when absent."""

    def delay_ms(self, failed: int) -> float:
        """Return how long to wait after the failure of attempt `failed`, counted from 0; milliseconds."""
        base = self.initial_delay_ms
        match self.backoff:
            case "fixed":
                wait = base
            case "linear":
                wait = base * (failed + 1)
            case "exponential":
                wait = base * 2.0 ** min(failed, 1_000)  # beyond that the limit below has long won
        return min(wait, MAX_DELAY_MS if self.max_delay_ms is None else self.max_delay_ms)
