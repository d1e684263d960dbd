"""Ask the rules of one snapshot about one call or response.

Rules are asked in order; the first deny ends it. A rule that raises, hangs or answers nonsense counts as the policy says,
and is named in the result either way, so that nothing passes unrecorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.memory.decision import ALLOW, SteeringAction, SteeringDecision, as_decision, most_restrictive
from noetic_nb.memory.enforcement import FAILED_GUIDANCE
from noetic_nb.memory.params import AfterModelCallParams, BeforeToolCallParams
from noetic_nb.steering.rule import Point, SteeringRule
from noetic_nb.steering.rulebook import RuleSnapshot

__all__ = ["Evaluation", "OnError", "OnUnparseable", "RuleFault", "evaluate"]

OnError: TypeAlias = Literal["deny", "allow", "raise"]
OnUnparseable: TypeAlias = Literal["allow", "deny"]
Params: TypeAlias = BeforeToolCallParams | AfterModelCallParams
AskNow: TypeAlias = Callable[[SteeringRule, Params], Awaitable[SteeringDecision | None]]
AskLater: TypeAlias = Callable[[SteeringRule, Params], None]

UNREADABLE_GUIDANCE: Final = "A judge gave no readable verdict, so this is not allowed."


@dataclass(frozen=True, slots=True)
class RuleFault:
    """A rule that could not be asked, and what went wrong."""

    rule_id: str
    error: BaseException | None
    reason: Literal["error", "unparseable"]


@dataclass(slots=True)
class Evaluation:
    """What the rules answered together, and which of them failed."""

    decision: SteeringDecision = ALLOW
    faults: list[RuleFault] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Policy:
    """What failures mean, and how often a judge is asked again."""

    on_error: OnError = "deny"
    on_unparseable: OnUnparseable = "allow"
    max_retries: int = 1


async def evaluate(
    snapshot: RuleSnapshot,
    point: Point,
    params: Params,
    policy: Policy,
    *,
    ask_now: AskNow,
    ask_later: AskLater,
) -> Evaluation:
    """Ask every rule that applies, in order.

    Parameters
    ----------
    snapshot : RuleSnapshot
        The rules as they were when the evaluation began.
    point : {"before_tool_call", "after_model_call"}
        Where we are.
    params : BeforeToolCallParams or AfterModelCallParams
        What is judged.
    policy : Policy
        What failures mean.
    ask_now : callable
        Waits for the judge of a rule; answers None where no verdict could be read.
    ask_later : callable
        Starts the judge of an asynchronous rule in the background.

    Raises
    ------
    NoeticConfigError
        ``MISSING_CALL_MODEL`` where a judge is to be asked and there is no model, whatever the policy.
    Exception
        What a rule raised, under the policy ``"raise"``.
    """
    result = Evaluation()
    decisions: list[SteeringDecision] = []
    tool = params.tool_name if isinstance(params, BeforeToolCallParams) else None
    for rule in snapshot.applicable(point, tool):
        try:
            decision = await _ask(rule, params, policy, result, ask_now, ask_later)
        except NoeticConfigError as exc:
            if exc.code == "MISSING_CALL_MODEL" or policy.on_error == "raise":
                raise
            decision = _failed(rule, exc, policy, result)
        except Exception as exc:
            if policy.on_error == "raise":
                raise
            decision = _failed(rule, exc, policy, result)
        if decision is None:
            continue
        decisions.append(decision)
        if decision.action is SteeringAction.DENY:
            break
    if decisions:
        result.decision = most_restrictive(decisions)
    return result


def _failed(rule: SteeringRule, error: Exception, policy: Policy, result: Evaluation) -> SteeringDecision | None:
    result.faults.append(RuleFault(rule.id, error, "error"))
    if policy.on_error == "allow":
        return None
    return SteeringDecision(SteeringAction.DENY, FAILED_GUIDANCE, (rule.id,))


async def _ask(
    rule: SteeringRule,
    params: Params,
    policy: Policy,
    result: Evaluation,
    ask_now: AskNow,
    ask_later: AskLater,
) -> SteeringDecision | None:
    if rule.predicate is not None:
        answer = await asyncio.to_thread(rule.predicate, params) if rule.isolate else rule.predicate(params)
        if hasattr(answer, "__await__"):
            answer = await answer
        if answer is not None:
            return _named(answer, rule.id)
    judge = rule.llm_eval
    if judge is None:
        return None
    if params.ctx.call_model is None:
        raise NoeticConfigError(
            "MISSING_CALL_MODEL",
            f"Rule {rule.id!r} asks a judge, and there is no model to ask",
            given=judge.model,
            hint="Give the harness a model that answers this name, or make the rule a predicate.",
            rule_id=rule.id,
        )
    if judge.mode == "async":
        ask_later(rule, params)
        return None
    decision = await ask_now(rule, params)
    if decision is None:
        result.faults.append(RuleFault(rule.id, None, "unparseable"))
        if policy.on_unparseable == "allow":
            return ALLOW
        return SteeringDecision(SteeringAction.DENY, UNREADABLE_GUIDANCE, (rule.id,))
    return _named(decision, rule.id)


def _named(answer: Any, rule_id: str) -> SteeringDecision:
    """Return a rule's answer with the rule's name on it, unless it only lets pass."""
    if not isinstance(answer, SteeringDecision | Mapping):
        raise NoeticError(
            "step_failed",
            f"Rule {rule_id!r} answered a {type(answer).__name__}",
            given=answer,
            hint="A rule answers deny(...), guide(...), allow() or None for no opinion.",
            step_id=rule_id,
        )
    decision = as_decision(answer)
    if decision.action is SteeringAction.ALLOW:
        return decision
    return SteeringDecision(decision.action, decision.guidance, (rule_id,), decision.stop)
