"""Which lines of a ledger tell of rules that failed, or that guard nothing."""

from __future__ import annotations

from typing import Final

from noetic_nb.events import SteeringDecided, WarningRaised

__all__ = ["FAULTY_OUTCOMES", "UNKNOWN_TARGET", "is_faulty", "ledger_line"]

UNKNOWN_TARGET: Final = "unknown_rule_target"
"""Code of the warning about a rule that names a tool or an argument that no tool has."""

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


def ledger_line(event: SteeringDecided | WarningRaised) -> SteeringDecided | None:
    """Return an event as a ledger shows it: decisions, and warnings about rules that may guard nothing; None for others.

    Examples
    --------
    >>> from noetic_nb.events import Where
    >>> warning = WarningRaised(Where("t", "e", 1), 0.0, UNKNOWN_TARGET, "Rule 'r': There is no tool 'serach'.", "steering")
    >>> line = ledger_line(warning)
    >>> line.action, line.outcome
    ('warn', 'unknown_rule_target')
    """
    if isinstance(event, SteeringDecided):
        return event
    if event.code != UNKNOWN_TARGET:
        return None
    return SteeringDecided(
        event.where,
        event.t_ms,
        event.layer_id or "",
        "init",
        None,
        None,
        "warn",  # type: ignore[arg-type]  # no decision, and none of its actions
        event.text,
        (),
        0.0,
        event.code,
    )
