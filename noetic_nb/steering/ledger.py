"""The ledger: what was decided, by which rule, and what failed on the way. An entry is plain data in the wire's keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from noetic_nb.items import freeze, thaw
from noetic_nb.memory.params import BeforeToolCallParams
from noetic_nb.memory.steering_decision import SteeringDecision
from noetic_nb.steering.evaluation.evaluate import Evaluation
from noetic_nb.steering.evaluation.late_verdicts import Entry
from noetic_nb.steering.predicates.bindings import Params
from noetic_nb.steering.rulebook.rulebook import RuleChange

__all__ = ["change_entry", "checked_state", "decision_entry"]

LedgerEntry: TypeAlias = dict[str, Any]

# A synchronous predicate blocks the loop and cannot be timed out; longer than this is said.
SLOW_MS: Final = 50.0


def decision_entry(
    params: Params, decision: SteeringDecision, duration_ms: float, result: Evaluation | None
) -> LedgerEntry:
    """Return the entry of one evaluation.

    References
    ----------
    .. [1] Runtime specification, section 8.4 (ledger).
    """
    now, action = params.ctx.clock.now_ms(), decision.action.value
    entry: LedgerEntry
    if isinstance(params, BeforeToolCallParams):
        entry = {
            "timestamp": now,
            "kind": "tool_call",
            "toolName": params.tool_name,
            "toolArgs": _copied(params.tool_args),
            "action": action,
        }
    else:
        usage = params.response.usage
        spent = {"input": usage.input_tokens, "output": usage.output_tokens}
        entry = {"timestamp": now, "kind": "model_turn", "tokenUsage": spent, "action": action}
    if decision.guidance is not None:
        entry["guidance"] = decision.guidance
    if decision.rule_ids:
        entry["ruleId"] = decision.rule_ids[0]
        entry["ruleIds"] = list(decision.rule_ids)
    entry["durationMs"] = duration_ms
    if result is not None:
        if result.faults:
            entry["faults"] = [{"ruleId": fault.rule_id, "reason": fault.reason} for fault in result.faults]
        if duration_ms > SLOW_MS and not result.waited:
            entry["slow"] = True  # nothing else could run meanwhile, and no limit could have stopped it
    return entry


def _copied(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that later changes do not reach; what is no JSON data is kept as text."""
    try:
        found: dict[str, Any] = thaw(freeze(args))
    except ValueError:
        return {str(key): repr(value)[:200] for key, value in args.items()}
    return found


def change_entry(change: RuleChange, now_ms: float) -> LedgerEntry:
    """Return the entry of an edit that took effect during an execution."""
    facts = {"ruleChange": change.change, "ruleId": change.rule_id, "version": change.version}
    return {"kind": "custom", "timestamp": now_ms, "custom": facts}


def checked_state(stored: Any) -> tuple[list[LedgerEntry], list[Entry]]:
    """Return ledger and queue of a stored state.

    Raises
    ------
    TypeError
        If it is not the state of a steering layer.
    """
    ledger = stored.get("ledger") if isinstance(stored, Mapping) else None
    waiting = stored.get("pendingAsync", []) if isinstance(stored, Mapping) else None
    calls = [] if not isinstance(stored, Mapping) else [stored.get("calls", []), stored.get("made", [])]
    fine = _all_hold(ledger, ()) and _all_hold(waiting, ("ruleId", "guidance"))
    if not fine or not all(_all_hold(each, ("name", "status")) for each in calls):
        raise TypeError(f"The stored state of the steering layer is damaged: {stored!r:.200}.")
    assert ledger is not None
    assert waiting is not None
    return ledger, waiting


def _all_hold(values: Any, keys: Iterable[str]) -> bool:
    wanted = set(keys)
    return isinstance(values, list) and all(isinstance(value, dict) and wanted <= set(value) for value in values)
