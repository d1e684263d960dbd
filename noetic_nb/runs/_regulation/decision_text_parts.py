"""Decisions of a regulator in words, for pictures and tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from noetic_nb.runs._plain_text import TEXT_LENGTH, count, plain

__all__ = ["KIND_NAMES", "decision_detail", "decision_label", "reason_of"]

KIND_NAMES: Final = {
    "circuit_break": "circuit break",
    "scope_drift_warn": "scope drift",
    "procedural_warning": "corrected before",
    "low_confidence_spans": "low confidence",
    "cost_cap_reached": "cost cap",
    "quality_decline_no_recovery": "quality decline",
    "repeated_tool_call_loop": "tool loop",
    "repeated_failure_pattern": "repeated failures",
    "call_budget_exceeded": "call budget",
}
"""What decisions and their reasons are called on a picture."""


def reason_of(decision: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the reason of a circuit break, empty for all other decisions and for one that is malformed."""
    reason = decision.get("reason")
    return reason if isinstance(reason, Mapping) else {}


def decision_label(decision: Mapping[str, Any]) -> str:
    """Return the label of a decision on a picture.

    Examples
    --------
    >>> decision_label({"kind": "circuit_break", "reason": {"kind": "cost_cap_reached"}})
    'circuit break: cost cap'
    """
    name, reason = _shown(str(decision.get("kind"))), reason_of(decision)
    return f"{name}: {_shown(str(reason['kind']))}" if "kind" in reason else name


@lru_cache(maxsize=256)  # a few kinds again and again
def _shown(name: str) -> str:
    return plain(KIND_NAMES.get(name, name))


def decision_detail(decision: Mapping[str, Any], suggestion: str | None) -> str:
    """Return the cause of a decision, and its suggestion."""
    # Decisions of loaded runs come from files: a field of another type than expected is left out, not fatal.
    match decision:
        case {"kind": "scope_drift_warn", "drift_tokens": list() | tuple() as words, "drift_score": float() as score}:
            text = f"{', '.join(map(str, words))} not in the task, drift {score:.2f}"
        case {"kind": "procedural_warning", "patterns": [{"pattern_name": name, "learned_from_turns": turns}, *_]}:
            text = f"{name}, learned from {turns} turns"
        case _:
            text = f"{_numbers(reason_of(decision))}{suggestion or decision.get('suggestion') or ''}"
    return plain(text, TEXT_LENGTH)


_UNITS: Final = {"usd": "USD", "wallclock_ms": "ms", "tokens_in": "input tokens"}


def _numbers(reason: Mapping[str, Any]) -> str:
    match reason:
        case {
            "kind": "cost_cap_reached",
            "tokens_spent": int() | float() as spent,
            "tokens_cap": int() | float() as cap,
        }:
            unit = _UNITS.get(str(reason.get("currency")), "output tokens")
            amounts = (f"{spent:.4g}", f"{cap:.4g}") if unit == "USD" else (count(spent), count(cap))
            return f"{amounts[0]} of {amounts[1]} {unit}. "
        case {"kind": "repeated_tool_call_loop", "tool_name": tool, "consecutive_count": times}:
            return f"{tool} called {times} times. "
        case {"kind": "call_budget_exceeded", "call_count": int() as made, "call_budget": int() as most, **about}:
            tool = about.get("tool_name")
            return f"{count(made)} calls{'' if tool is None else f' of {tool}'}, {count(most)} allowed. "
        case {"kind": "quality_decline_no_recovery", "mean_delta": float() as fall}:
            return f"Fell by {fall:.2f}. "
        case _:
            return ""
