"""Which lines of a ledger tell of rules that failed, or that guard nothing."""

from __future__ import annotations

from typing import Final

from noetic_nb.events import SteeringDecided, WarningRaised

UNKNOWN_TARGET: Final = "unknown_rule_target"
"""Code of the warning about a rule that names a tool or an argument that no tool has."""

FAULTY_OUTCOMES: Final = frozenset(
    {"error", "unparseable", "timeout", "cancelled", "uninitialised", "disabled", "late_fault"}
)
"""Outcomes that are a hole in the rules, whatever was decided because of it."""


def is_faulty(event: SteeringDecided) -> bool:
    """Tell whether a rule, a judge or a whole layer failed."""
    return bool(event.faults) or event.outcome in FAULTY_OUTCOMES


def ledger_line(event: SteeringDecided | WarningRaised) -> SteeringDecided | None:
    """Return an event as a ledger shows it: decisions, and warnings about rules that may guard nothing; None for others."""
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
