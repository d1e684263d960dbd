"""Evaluate rules on recorded calls, without a tool and, by default, without a model."""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any, Final, Literal, Protocol, TypeAlias

from noetic_nb._core.long_work import Work
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.lab._checks import check_one_of
from noetic_nb.lab._recorded_calls import RecordedCall, tools_of
from noetic_nb.memory._execution_context import HookModelRequest
from noetic_nb.models._client import ModelClient, ModelRequest
from noetic_nb.runs import Run
from noetic_nb.steering import RuleBook, SteeringDecision, SteeringRule, allow, deny
from noetic_nb.steering._evaluation.evaluate import Evaluation, Policy, RuleSnapshot, evaluate
from noetic_nb.steering._evaluation.judging import call_judge
from noetic_nb.steering._evaluation.rule_reading import unknown_targets
from noetic_nb.steering._layer import TIMEOUTS_MS
from noetic_nb.steering._rules.rule import LLMEval, as_rule
from noetic_nb.sync import run_sync

OnUnknown: TypeAlias = Literal["error", "warn"]
"""How to treat a rule that names a tool or an argument that no run has."""

# The limits of the layer's hooks: a rule that is too slow live is too slow here.
LIMITS_S: Final = {point: milliseconds / 1_000 for point, milliseconds in TIMEOUTS_MS.items()}


@dataclass(slots=True)
class TrialResult:
    """The decision of rules on one recorded call."""

    decision: SteeringDecision
    error: str | None = None
    skipped: tuple[str, ...] = ()
    """Rules whose judge was not called."""


class Written(Protocol):
    """A ledger that grows with each decision, as rules read it in ``call.state``."""

    def given(self, call: RecordedCall) -> RecordedCall: ...

    def took(self, call: RecordedCall, decision: SteeringDecision) -> None: ...


def as_snapshot(rules: Any) -> RuleSnapshot:
    """Return the current rules of a book, or those in a list."""
    if isinstance(rules, RuleSnapshot):
        return rules
    if isinstance(rules, RuleBook):
        rules.mark_used()
        return rules.snapshot
    if isinstance(rules, SteeringRule | Mapping):
        rules = [rules]
    if not isinstance(rules, Iterable) or isinstance(rules, str):
        raise NoeticConfigError(
            "INVALID_RULE", "Rules must be a rule book, or a list of rules.", given=rules, hint="Pass the RuleBook."
        )
    return RuleBook(rules).snapshot


def check_targets(rules: Iterable[SteeringRule], runs: Iterable[Run], on_unknown: OnUnknown) -> None:
    """Refuse rules about a tool or an argument that no run has, or warn of them: their figures would be meaningless."""
    check_one_of(("error", "warn"), "INVALID_OPTION", on_unknown=on_unknown)
    known = tools_of(runs)
    for target in unknown_targets(rules, known) if known else ():
        if on_unknown == "error":
            what = f"Rule {target.rule_id!r} names a tool or an argument that none of the runs has. {target.why}"
            hint = f"{target.fix} To evaluate the rules all the same, pass on_unknown='warn'."
            raise NoeticConfigError(target.code.upper(), what, given=target.name, hint=hint, rule_id=target.rule_id)
        warnings.warn(target, stacklevel=3)


def _is_slip(name: str, meant: str) -> bool:
    """Tell whether a name is another one with a letter too many, too few or wrong, or with letters in another order."""
    return sorted(name) == sorted(meant) or SequenceMatcher(None, name, meant).ratio() > 0.9


def warn_of_misspelt_targets(rules: Iterable[SteeringRule], run: Run) -> None:
    """Warn of rules about a tool or an argument that one run does not have."""
    known = tools_of(run)
    is_complete = bool(tools_of(run, called=False))
    for target in unknown_targets(rules, known) if known else ():
        # Without recorded definitions the agent may have had tools that this run did not call, also with a similar name.
        if is_complete or _is_slip(target.name, target.near or ""):
            warnings.warn(target, stacklevel=4)


def check_order(function: str, rules: Any, runs: Any) -> None:
    """Refuse swapped arguments for rules and runs; raises `NoeticConfigError` ``SWAPPED_ARGUMENTS``."""
    first = next(iter(rules), None) if isinstance(rules, list | tuple) else rules
    if isinstance(first, Run) or isinstance(runs, RuleBook | RuleSnapshot | SteeringRule):
        raise NoeticConfigError(
            "SWAPPED_ARGUMENTS",
            f"{function} takes the rules first, then the runs.",
            given=f"{type(rules).__name__}, {type(runs).__name__}",
            hint=f"Write lab.{function}(rules, runs).",
        )


def candidate_snapshot(rules: RuleSnapshot, candidate: Any) -> RuleSnapshot:
    """Return the rules with a candidate replacing the one with its id, or added last; a book or a list replaces all."""
    if callable(candidate) and not isinstance(candidate, SteeringRule):
        name = getattr(candidate, "__name__", repr(candidate))
        old = next((rule for rule in rules if rule.id == name), None)
        if old is None:
            what = "A function can be tried in place of the rule with its name, and there is none."
            hint = f"Pass SteeringRule(id=..., applies_to=..., predicate=...); there are {[rule.id for rule in rules]}."
            raise NoeticConfigError("UNKNOWN_RULE", what, given=name, hint=hint)
        candidate = old.model_copy(update={"predicate": candidate, "when": None, "sequence": None, "source": None})
    if not isinstance(candidate, SteeringRule | Mapping):
        return as_snapshot(candidate)
    new = as_rule(candidate)
    # In its old position, because the first deny in order decides.
    known = any(rule.id == new.id for rule in rules)
    return RuleBook([*(new if rule.id == new.id else rule for rule in rules), *([] if known else [new])]).snapshot


class Trial:
    """One set of rules, and its evaluable parts."""

    def __init__(self, rules: RuleSnapshot, policy: Policy, judge: ModelClient | None = None) -> None:
        self.judge = judge
        self.policy = policy
        self.rules = rules
        self.without_judge: frozenset[str] = frozenset()
        # A cassette may lack some verdicts, which is found call by call.
        if judge is None:
            self.without_judge = frozenset(rule.id for rule in rules if rule.enabled and rule.llm_eval is not None)
            self.rules = RuleSnapshot(rules.version, tuple([_without_judge(rule) for rule in rules]))
        self.needs_loop = any(rule.enabled and _needs_loop(rule, judge) for rule in rules)

    def skipped(self, call: RecordedCall) -> tuple[str, ...]:
        if not self.without_judge:
            return ()
        rules = self.rules.applicable(call.point, call.tool_name)
        return tuple([rule.id for rule in rules if rule.id in self.without_judge])

    def at_once(self, call: RecordedCall) -> TrialResult | None:
        """Return the result of rules without an event loop; None if a rule has to await."""
        if self.needs_loop:
            return None
        coroutine = self.evaluate(call)
        try:
            coroutine.send(None)
        except StopIteration as done:
            found: TrialResult = done.value
            return found
        coroutine.close()
        return None

    async def evaluate(self, call: RecordedCall) -> TrialResult:
        missing: list[str] = []

        async def judge_now(rule: SteeringRule, judge: LLMEval, params: Any, _: Any) -> SteeringDecision | None:
            try:
                decision, _ = await call_judge(judge, params, max_retries=self.policy.max_retries)
            except NoeticError as exc:
                # The cassette lacks this request: the verdict is unknown, which is not a fault of the rule.
                if exc.kind != "tape_missing":
                    raise
                missing.append(rule.id)
                return allow()
            return decision

        params = call.params
        if self.judge is not None:
            params = params._replace(ctx=replace(params.ctx, call_model=self._call_model))
        result = await evaluate(
            self.rules, call.point, params, self.policy, judge_now=judge_now, judge_later=_never_decides
        )
        return TrialResult(result.decision, _error_text(result), (*self.skipped(call), *missing))

    async def _call_model(self, request: HookModelRequest) -> Any:
        assert self.judge is not None
        return await self.judge.complete(
            ModelRequest(request.model, request.items, request.instructions, purpose=request.purpose)
        )

    async def evaluate_in_time(self, call: RecordedCall) -> TrialResult:
        seconds = LIMITS_S[call.point]
        try:
            async with asyncio.timeout(seconds):
                return await self.evaluate(call)
        except TimeoutError:
            return TrialResult(deny(), f"TimeoutError: no answer in {seconds:g} s")


def _without_judge(rule: SteeringRule) -> SteeringRule:
    if rule.llm_eval is None:
        return rule
    # Without a verdict, the rule keeps its position but does not decide.
    return rule.model_copy(update={"llm_eval": None, "when": None})


def _needs_loop(rule: SteeringRule, judge: ModelClient | None) -> bool:
    judged = judge is not None and rule.llm_eval is not None
    return judged or rule.isolate is not None or inspect.iscoroutinefunction(rule.predicate)


def _never_decides(rule: SteeringRule, judge: LLMEval, params: Any, result: Any) -> None:
    """Skip an asynchronous judge, because it never changes a decision."""


def _error_text(result: Evaluation) -> str | None:
    if not result.faults:
        return None
    fault = result.faults[0]
    what = "unreadable verdict" if fault.error is None else f"{type(fault.error).__name__}: {fault.error}"
    return f"{fault.rule_id}: {what}"[:500]


def try_rules(
    rules: RuleSnapshot,
    calls: Sequence[RecordedCall],
    *,
    policy: Policy,
    judge: ModelClient | None = None,
    stop: Callable[[], bool] | None = None,
    ledger: Callable[[], Written] | None = None,
    work: Work | None = None,
) -> list[TrialResult]:
    """Return the decisions of rules on each recorded call.

    Without a `judge`, such as a cassette, rules that need one are skipped. `stop` is called between calls; if it
    returns True, the work ends with `asyncio.CancelledError`. `ledger` makes the value of ``call.state`` for rules.
    `work` counts the calls; if it is interrupted, the results cover the first calls.
    """
    trial = Trial(rules, policy, judge)
    results: list[TrialResult] = []
    work = Work("try_rules", "calls", False, keeps=False) if work is None else work
    with work:
        if not trial.needs_loop:
            written = None if ledger is None else ledger()
            for call in work.each(_in_turn(calls, stop, written)):
                # Several times faster than with an event loop.
                result = trial.at_once(call)
                if result is None:
                    break
                results.append(result)
                if written is not None:
                    written.took(call, result.decision)
            else:
                return results
            results.clear()
            work.done = 0
        written = None if ledger is None else ledger()
        run_sync(_try_in_loop(trial, work.each(_in_turn(calls, stop, written)), written, results))
    return results


async def _try_in_loop(
    trial: Trial, calls: Iterable[RecordedCall], written: Written | None, results: list[TrialResult]
) -> None:
    for call in calls:
        results.append(await trial.evaluate_in_time(call))
        if written is not None:
            written.took(call, results[-1].decision)


def _in_turn(
    calls: Sequence[RecordedCall], stop: Callable[[], bool] | None, written: Written | None
) -> Iterator[RecordedCall]:
    """Yield each call with the ledger that rules have written so far, until `stop` returns True."""
    for call in calls:
        if stop is not None and stop():
            raise asyncio.CancelledError
        yield call if written is None else written.given(call)
