"""The record of a decision in a run, without secrets: a row of its ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetic_nb.events import SteeringDecided
from noetic_nb.memory._execution_context import ExecutionContext
from noetic_nb.memory._hooks.hook_decisions import NO_TIMES, Faults, RuleTimes
from noetic_nb.memory._hooks.hook_runner import HookRunner
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.memory._steering_decision import SteeringAction, SteeringDecision
from noetic_nb.memory.params import AfterModelCallParams, BeforeToolCallParams
from noetic_nb.redact import REDACTED, redact_head, redact_text

__all__ = ["fault_text", "record_decision", "shown_matches"]

# An error may quote a whole argument.
MAX_FAULT: Final = 300


def shown_matches(matched: Sequence[str], text: str) -> tuple[str, ...]:
    """Return the parts of a response as they are recorded: one that is or holds a secret there is hidden.

    Examples
    --------
    >>> shown_matches(["refund", "hunter22"], "No refund. password: hunter22")
    ('refund', '[redacted]')
    """
    clean = redact_text(text)
    # By itself a password is a word like any other.
    return tuple([part if part in clean else REDACTED if part in text else redact_text(part) for part in matched])


def fault_text(error: BaseException, point: str) -> str:
    """Return why a rule could not be evaluated, for readers of the ledger.

    Examples
    --------
    >>> fault_text(KeyError("amount"), "before_tool_call"), fault_text(ValueError("it said 'x'"), "after_model_call")
    ("KeyError: 'amount'", 'ValueError')
    """
    name = type(error).__name__
    if point == "after_model_call":
        return name  # its message may quote an answer that is rejected because of it
    try:
        text = redact_head(str(error), MAX_FAULT)[:MAX_FAULT]
    except Exception:  # of a class of the user's own
        return name
    return f"{name}: {text}" if text.strip() else name


def record_decision(
    runner: HookRunner,
    layer: MemoryLayer,
    point: str,
    params: BeforeToolCallParams | AfterModelCallParams,
    ctx: ExecutionContext,
    decision: SteeringDecision,
    duration_ms: float,
    outcome: str | None,
    faults: Faults = (),
    times: RuleTimes = NO_TIMES,
) -> None:
    """Put a decision into the run's ledger: all of a layer that enforces, of others only more than an allow."""
    if runner.traces.sink is None or not (layer.enforces or decision.action is not SteeringAction.ALLOW):
        return
    name, args = params[:2] if isinstance(params, BeforeToolCallParams) else (None, None)
    matched = decision.matched and shown_matches(decision.matched, getattr(params, "text", ""))
    runner.traces.sink.emit(
        SteeringDecided(
            ctx.where,
            runner.clock.now_ms(),
            layer.recorded_id,
            point,
            name,
            args,
            decision.action.value,
            decision.guidance,
            decision.rule_ids,
            duration_ms,
            outcome,
            True,
            tuple(faults),
            tuple(matched),
            tuple(zip(*times, strict=False)),
        )
    )
