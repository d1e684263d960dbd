"""Rules and a regulator on calls that were already made: their decisions are marked as not enforced."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any

from msgspec import structs

from noetic_nb import events as ev
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import freeze
from noetic_nb.memory._enforcement import FAILED_GUIDANCE, shown_matches
from noetic_nb.memory._steering_decision import SteeringAction, SteeringDecision
from noetic_nb.memory.params import BeforeToolCallParams, PastCall
from noetic_nb.redact import redact_text
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Run
from noetic_nb.runs._recorded_origins import CallParams, RecordedOrigins
from noetic_nb.runs._regulation.recorded_regulator import RegulatorFeed
from noetic_nb.steering._evaluation.evaluate import Evaluation, Policy, RuleFault, RuleSnapshot, evaluate
from noetic_nb.steering._evaluation.judging import LAYER_ID
from noetic_nb.steering._predicates.bindings import Params
from noetic_nb.steering._rulebook.rulebook import RuleBook
from noetic_nb.steering._rules.rule import Point, SteeringRule


class Judging:
    """Appends events, rule decisions and regulator decisions; raises ``INVALID_RULE``, ``INVALID_REGULATION``."""

    def __init__(self, run: Run, rules: Any = None, regulator: Any = None) -> None:
        if regulator is not None and not isinstance(regulator, Regulator):
            hint = "Use nn.Regulator.for_user(...)."
            raise NoeticConfigError("INVALID_REGULATION", "There is no such regulator.", given=regulator, hint=hint)
        if isinstance(rules, SteeringRule):
            rules = [rules]
        self._run = run
        self._book = rules if isinstance(rules, RuleBook) or rules is None else RuleBook(rules)
        self._known: tuple[RuleSnapshot, RuleSnapshot] | None = None
        self._skipped: set[str] = set()
        self._feed = None if regulator is None else RegulatorFeed(regulator, None, _Unenforced(run), "regulation")
        self._origins = RecordedOrigins(run.events, run.meta)
        self._params = CallParams(is_priced=True)
        self._parents: dict[str, str] = {}
        self._past: dict[tuple[str, str], list[PastCall]] = {}

    def extend(self, events: Iterable[ev.RunEvent]) -> None:
        """Append events; a call comes after the decisions about it, a response before them."""
        for event in events:
            self._add(event)

    def _add(self, event: ev.RunEvent) -> None:
        if self._book is not None:
            if isinstance(event, ev.ToolCalled):
                self._tool_called(event)
            elif isinstance(event, ev.ChildStarted):
                self._parents[event.where.execution_id] = event.parent_id
        if self._feed is None:
            self._run.append(event)
        else:
            self._feed.read([event])
        if self._book is None:
            return
        if isinstance(event, ev.ModelCalled):
            self._model_called(event)
        elif isinstance(event, ev.TurnCompleted | ev.ChildEnded):  # its calls are not evaluated again
            key = event.where.thread_id, event.where.execution_id
            self._past.pop(key, None)
            self._params.forget(event.where)
            self._parents.pop(key[1], None)

    def _past_of(self, where: ev.Where) -> list[PastCall]:
        root = where.execution_id
        while (parent := self._parents.get(root)) is not None:
            root = parent
        return self._past.setdefault((where.thread_id, root), [])

    def _tool_called(self, event: ev.ToolCalled) -> None:
        where, past = event.where, self._past_of(event.where)
        provenance = partial(self._origins.at, where, len(self._run.events), event.name)
        frozen = structs.replace(event, args=freeze(event.args))
        params = self._params.of_tool(frozen, tuple(past), provenance)
        self._judge("before_tool_call", params, event)
        made = (event.name, params.tool_args, event.call_id, event.status, event.output, where.execution_id)
        past.append(PastCall(*made))

    def _model_called(self, event: ev.ModelCalled) -> None:
        self._params.count(event)
        if event.status == "ok":
            params = self._params.of_response(event, tuple(self._past_of(event.where)))
            self._judge("after_model_call", params, event)

    def _judge(self, point: Point, params: Params, event: ev.ToolCalled | ev.ModelCalled) -> None:
        """Evaluate the rules on one call and record their decisions; a failing rule denies, as in a harness."""
        began = time.perf_counter()
        try:
            result = self._evaluated(point, params)
        # A rule must not end the observed agent.
        except (Exception, asyncio.CancelledError, SystemExit) as error:
            message = redact_text(f"{type(error).__name__}: {error}")[:2_000]
            self._run.append(ev.ErrorRaised(event.where, event.t_ms, "rule_failed", message))
            return
        took_ms = (time.perf_counter() - began) * 1_000
        name, args = params[:2] if isinstance(params, BeforeToolCallParams) else (None, None)
        decision = result.decision
        self._run.append(
            ev.SteeringDecided(
                event.where,
                event.t_ms,
                LAYER_ID,
                point,
                name,
                args,
                decision.action.value,
                decision.guidance,
                decision.rule_ids,
                took_ms,
                result.faults[0].reason if result.faults else None,
                enforced=False,
                faults=tuple([fault.words(point) for fault in result.faults]),
                matched=decision.matched and shown_matches(decision.matched, getattr(params, "text", "")),
            )
        )

    def _evaluated(self, point: Point, params: Params) -> Evaluation:
        while True:
            result = Evaluation()
            rules = self._rules()
            judges: Any = {"judge_now": _no_judge, "judge_later": lambda *_: None}
            deciding = evaluate(rules, point, params, Policy(), **judges, result=result)
            if _finished(deciding):
                return result
            # This runs in the agent's own event loop, so nothing may be awaited.
            if result.waiting_for is None or result.waiting_for in self._skipped:
                return result
            if any(rule.id == result.waiting_for and rule.form in ("cel", "sequence") for rule in rules):
                # This call is too large to be judged at once; a later one may not be.
                fault = TimeoutError("The arguments are too large to be checked without waiting.")
                result.faults += (RuleFault(result.waiting_for, fault, "error"),)
                result.decision = SteeringDecision(SteeringAction.DENY, FAILED_GUIDANCE, (result.waiting_for,))
                return result
            self._skip(result.waiting_for)

    def _rules(self) -> RuleSnapshot:
        """Return the current rules, without those that need a model or have to wait."""
        assert self._book is not None
        snapshot = self._book.snapshot
        if self._known is None or self._known[0] is not snapshot:
            for rule in snapshot:
                if rule.enabled and (
                    rule.llm_eval is not None or rule.isolate or inspect.iscoroutinefunction(rule.predicate)
                ):
                    self._skip(rule.id)
            kept = tuple([rule for rule in snapshot if rule.id not in self._skipped])
            self._known = snapshot, RuleSnapshot(snapshot.version, kept)
        return self._known[1]

    def _skip(self, rule_id: str) -> None:
        self._known = None
        if rule_id not in self._skipped:
            self._skipped.add(rule_id)
            self._run.meta["rules_skipped"] = sorted(self._skipped)


class _Unenforced:
    """A run whose decisions come too late to be enforced."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def append(self, event: ev.RunEvent) -> int:
        return self._run.append(
            structs.replace(event, enforced=False) if isinstance(event, ev.RegulatorDecided) else event
        )


def _finished(deciding: Coroutine[Any, Any, Any]) -> bool:
    """Run an evaluation that does not wait; return False if it does."""
    try:
        deciding.send(None)
    except StopIteration:
        return True
    deciding.close()
    return False


async def _no_judge(*_: Any) -> None:
    """Do nothing: rules with a judge are left out."""
