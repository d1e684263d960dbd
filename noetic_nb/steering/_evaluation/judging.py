"""Judges at work: waited for, asked beside the call, or answering after the time there was."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Final, Literal

from noetic_nb.events import SteeringDecided
from noetic_nb.memory._enforcement.decision_records import fault_text
from noetic_nb.memory._enforcement.enforcement import FAILED_GUIDANCE
from noetic_nb.memory._hook_timeout import is_cancelled
from noetic_nb.memory._steering_decision import ALLOW, SteeringAction, SteeringDecision
from noetic_nb.memory.params import BeforeToolCallParams
from noetic_nb.steering._evaluation.async_verdicts import LateVerdicts, QueuedVerdict
from noetic_nb.steering._evaluation.evaluate import UNREADABLE_GUIDANCE, Evaluation, Policy
from noetic_nb.steering._ledger import LedgerEntry, mark_late_fault
from noetic_nb.steering._predicates.bindings import Params
from noetic_nb.steering._predicates.guidance_template import capped
from noetic_nb.steering._predicates.judge import call_judge, request_verdict
from noetic_nb.steering._rules.rule import LLMEval, Point, SteeringRule
from noetic_nb.sync import begun_anew

LAYER_ID: Final = "steering"


@dataclass(slots=True)
class Row(Evaluation):
    """An evaluation, its future ledger entry, and the verdicts of its judges before or after that."""

    entry: LedgerEntry | None = None
    late_faults: tuple[tuple[str, str], ...] = ()

    def fill(self, entry: LedgerEntry) -> LedgerEntry:
        """Fill in the entry that is about to be written, with earlier failures."""
        self.entry = entry
        for rule_id, reason in self.late_faults:
            mark_late_fault(entry, rule_id, reason)
        return entry

    def failed(self, rule_id: str, reason: str) -> None:
        """Note a judge that failed after the fact."""
        if self.entry is None:
            self.late_faults += ((rule_id, reason),)
        else:
            mark_late_fault(self.entry, rule_id, reason)


class UnreadableVerdict(UserWarning):
    """A judge answered something that is no verdict."""

    def __init__(self, rule_id: str, meaning: str) -> None:
        super().__init__(
            f"The answer of the judge of rule {rule_id!r} could not be read as ALLOW, DENY or GUIDE, and was taken for "
            f"{meaning!r}. Set on_unparseable='deny', or ask a model that keeps to the form."
        )


class Judging:
    """The judges of one steering layer, and their verdicts that come after the fact."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.late = LateVerdicts()
        self.unreadable: Counter[str] = Counter()
        """How often the answer of each rule's judge could not be read."""

    async def now(self, rule: SteeringRule, judge: LLMEval, p: Params, row: Row) -> SteeringDecision | None:
        """Wait for a judge's verdict."""
        # A task of its own, shielded: the time limit of the hook ends the waiting, not the judge.
        verdict = asyncio.ensure_future(self._verdict(judge, p))
        try:
            return await asyncio.shield(verdict)
        except asyncio.CancelledError:
            # Too late for this call, but not lost: a deny that arrives now is recorded and queued for the next prompt.
            if not verdict.done():
                self.late.queue_later(p.ctx, self._late_verdict(row, rule, p, verdict, late=True))
            raise

    def not_read(self, rule_id: str, p: Params, point: Point) -> None:
        """Report an answer that could not be read: in the warnings of the turn, and for `check`."""
        self.unreadable[rule_id] += 1
        p.ctx.warn(LAYER_ID, point, UnreadableVerdict(rule_id, self.policy.on_unparseable))

    def later(self, rule: SteeringRule, judge: LLMEval, p: Params, row: Row) -> None:
        """Begin to ask a judge whose verdict nobody waits for."""
        # The model is called at once, so that a missing client is an error here and not in the background.
        verdict = asyncio.ensure_future(self._verdict(judge, p, request_verdict(judge, p)))
        self.late.queue_later(p.ctx, self._late_verdict(row, rule, p, verdict))

    async def _verdict(self, judge: LLMEval, p: Params, first: Any = None) -> SteeringDecision | None:
        asked = call_judge(judge, p, max_retries=self.policy.max_retries, first=first)
        decision: SteeringDecision | None = (await begun_anew(asked))[0]
        return decision

    async def _late_verdict(
        self,
        row: Row,
        rule: SteeringRule,
        p: Params,
        verdict: Awaitable[SteeringDecision | None],
        *,
        late: bool = False,
    ) -> QueuedVerdict | None:
        point: Point = "before_tool_call" if isinstance(p, BeforeToolCallParams) else "after_model_call"
        decision, reason, guidance, why = None, None, UNREADABLE_GUIDANCE, ""
        try:
            decision = await begun_anew(verdict)
            if decision is None:
                reason = why = "unparseable"
                self.not_read(rule.id, p, point)
        except (Exception, asyncio.CancelledError) as exc:
            if is_cancelled():  # this task itself is to end, with the loop
                raise
            p.ctx.diagnostic(LAYER_ID, point, exc)
            reason, guidance, why = "error", FAILED_GUIDANCE, fault_text(exc, point)
        if reason is not None:
            # The call was let through, or denied, long ago: the row keeps its action and says that a judge failed.
            row.failed(rule.id, reason)
            if self.policy.on_unparseable == "deny":
                decision = SteeringDecision(SteeringAction.DENY, guidance)
        # Recorded even if it allows: the hook had denied for want of this verdict.
        if (late or reason is not None) and p.ctx.sink is not None:
            outcome: Literal["late", "late_fault"] = "late" if reason is None else "late_fault"
            p.ctx.sink.emit(_late_event(rule, p, point, ALLOW if decision is None else decision, outcome, why))
        if decision is None or decision.action is SteeringAction.ALLOW:
            return None
        return {"ruleId": rule.id, "guidance": capped(decision.guidance or f"Rule {rule.id}: {decision.action}")}


def _late_event(
    rule: SteeringRule,
    p: Params,
    point: Point,
    decision: SteeringDecision,
    outcome: Literal["late", "late_fault"],
    why: str,
) -> SteeringDecided:
    call = p if isinstance(p, BeforeToolCallParams) else None
    return SteeringDecided(
        p.ctx.where,
        p.ctx.clock.now_ms(),
        LAYER_ID,
        point,
        None if call is None else call.tool_name,
        None if call is None else call.tool_args,
        decision.action.value,
        decision.guidance,
        (rule.id,),
        0.0,
        outcome,
        faults=((rule.id, why),) if why else (),
    )
