"""Which decisions of steering came about although a rule, a judge or a layer failed."""

from __future__ import annotations

from typing import Final

from noetic_nb.events import SteeringDecided

__all__ = ["FAULTY_OUTCOMES", "is_faulty"]

FAULTY_OUTCOMES: Final = frozenset(
    {"error", "unparseable", "timeout", "cancelled", "uninitialised", "disabled", "late_fault"}
)
"""Outcomes that are a hole in the rules, whatever was decided because of it."""


def is_faulty(event: SteeringDecided) -> bool:
    """Tell whether a rule, a judge or a whole layer failed.

    Examples
    --------
    >>> from noetic_nb.events import Where
    >>> is_faulty(SteeringDecided(Where("t", "e", 1), 0.0, "s", "before_tool_call", "pay", {}, "deny", None, (), 1.0, "timeout"))
    True
    """
    return bool(event.faults) or event.outcome in FAULTY_OUTCOMES
