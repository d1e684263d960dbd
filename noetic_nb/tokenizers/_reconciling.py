"""Compares planned and billed tokens of a request: the difference, and impossible numbers."""

from __future__ import annotations

from typing import Final, NamedTuple

DISAGREEMENT: Final = 0.5
"""Planned and reported counts disagree if they differ by more than this share of the reported count."""


class Reconciled(NamedTuple):
    """One request: planned and reported input tokens.

    `problem` is None, or one of: ``missing`` (no usage was reported), ``negative``, ``backwards`` (less than for the
    previous request, which this one contains), ``disagrees`` (planned differs from reported by more than half of it).
    """

    planned: int
    reported: int | None
    problem: str | None

    @property
    def unexplained(self) -> int | None:
        """Reported tokens that no part of the plan explains, negative if less was billed; None if unknown."""
        return None if self.reported is None else self.reported - self.planned

    @property
    def error(self) -> float | None:
        """The error of planned relative to reported: -0.1 is a tenth too low; None if unknown."""
        return None if not self.reported else self.planned / self.reported - 1


def reconciled(planned: int, reported: int, *, before: int | None = None) -> Reconciled:
    """Compare planned with reported input tokens (0: none); `before` was reported for a request that this one contains."""
    if reported <= 0:
        return Reconciled(planned, None, "negative" if reported < 0 else "missing")
    if before is not None and reported < before:
        return Reconciled(planned, reported, "backwards")
    off = abs(planned - reported) > DISAGREEMENT * reported
    return Reconciled(planned, reported, "disagrees" if off else None)


def percent(error: float | None) -> str:
    """Format a relative error."""
    return "error not measured" if error is None else f"known error {as_percent(error)}"


def as_percent(share: float) -> str:
    """Format a share as a percentage with two digits, or more if it has more before the point."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:,.0f} %"
