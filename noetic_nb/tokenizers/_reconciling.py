"""The planned tokens of a request beside the billed ones: the difference, and the impossible numbers."""

from __future__ import annotations

from typing import Final, NamedTuple

DISAGREEMENT: Final = 0.5
"""A planned count that is further from the reported one than this part of it is said to disagree."""


class Reconciled(NamedTuple):
    """One request: planned and reported input tokens.

    `problem` is None, or what is wrong: ``missing`` (no usage was reported), ``negative``, ``backwards`` (less than for the
    request before, of which this one has all), ``disagrees`` (planned is off by more than half of what was reported).
    """

    planned: int
    reported: int | None
    problem: str | None

    @property
    def unexplained(self) -> int | None:
        """Reported tokens that no part of the plan accounts for, negative where less was billed; None if nobody knows."""
        return None if self.reported is None else self.reported - self.planned

    @property
    def error(self) -> float | None:
        """How far planned is off, relative to reported: -0.1 is a tenth too low; None if nobody knows."""
        return None if not self.reported else self.planned / self.reported - 1


def reconciled(planned: int, reported: int, *, before: int | None = None) -> Reconciled:
    """Compare planned with reported input tokens, 0 for none; `before` is reported for a request that this one contains."""
    if reported <= 0:
        return Reconciled(planned, None, "negative" if reported < 0 else "missing")
    if before is not None and reported < before:
        return Reconciled(planned, reported, "backwards")
    off = abs(planned - reported) > DISAGREEMENT * reported
    return Reconciled(planned, reported, "disagrees" if off else None)


def percent(error: float | None) -> str:
    """Return an error in words."""
    return "error not measured" if error is None else f"known error {as_percent(error)}"


def as_percent(share: float) -> str:
    """Return a share in two digits, or in as many as it has before the point."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:,.0f} %"
