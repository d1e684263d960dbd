"""How much one execution may spend, all its children included. Going beyond raises; it never just stops quietly."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, FiniteFloat

from noetic_nb.errors import NoeticError
from noetic_nb.steps._base import Frozen


class Limits(Frozen):
    """Limits of a turn, or of an execution held open; None means no limit.

    Examples
    --------
    >>> Limits(max_cost=0.5, max_steps=20).max_steps
    20
    """

    error_code: ClassVar[str] = "INVALID_LIMITS"

    max_cost: FiniteFloat | None = Field(default=None, ge=0)
    """US dollars, judges and layers included."""
    max_tokens: int | None = Field(default=None, ge=0)
    """Input and output tokens together."""
    max_steps: int | None = Field(default=None, ge=1)
    """Steps dispatched, those of children included."""
    max_duration_ms: FiniteFloat | None = Field(default=None, gt=0, alias="maxDuration")
    """Milliseconds; a model call or a tool that is under way then is cut short."""

    def check(self, cost: float, tokens: int, steps: int, elapsed_ms: float) -> None:
        """Raise where more was spent than may be.

        Raises
        ------
        NoeticError
            ``budget_exceeded``, of the first limit in this order.
        """
        if self.max_cost is not None and cost > self.max_cost:
            raise exceeded("cost", self.max_cost, cost)
        if self.max_tokens is not None and tokens > self.max_tokens:
            raise exceeded("tokens", self.max_tokens, tokens)
        if self.max_steps is not None and steps > self.max_steps:
            raise exceeded("steps", self.max_steps, steps)
        if self.max_duration_ms is not None and elapsed_ms > self.max_duration_ms:
            raise exceeded("duration", self.max_duration_ms, elapsed_ms)


def exceeded(field: Literal["cost", "tokens", "steps", "duration"], limit: float, actual: float) -> NoeticError:
    """Return the error for spending more than a limit."""
    return NoeticError(
        "budget_exceeded",
        f"The execution went beyond its limit of {field}: {actual:g} of {limit:g}",
        hint="Raise the limit, or look at what the agent keeps doing.",
        field=field,
        limit=limit,
        actual=actual,
    )
