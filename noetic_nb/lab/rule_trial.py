"""Ask rules about recorded moments, without a tool and, unless one is given, without a model."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.lab.recorded_calls import Moment
from noetic_nb.memory.execution_context import HookModelRequest
from noetic_nb.models.client import ModelClient, ModelRequest
from noetic_nb.steering import RuleBook, RuleSnapshot, SteeringDecision, SteeringRule
from noetic_nb.steering.evaluation.evaluate import Evaluation, Policy, evaluate
from noetic_nb.steering.predicates.judge import ask_judge
from noetic_nb.steering.rules.rule import as_rule
from noetic_nb.sync import run_sync

__all__ = ["Verdict", "as_snapshot", "candidate_snapshot", "try_rules"]

# As for the hooks of the layer; runtime specification, section 8.
LIMITS_S: Final[Mapping[str, float]] = {"before_tool_call": 5.0, "after_model_call": 10.0}


@dataclass(slots=True)
class Verdict:
    """What rules said about one moment."""

    decision: SteeringDecision
    error: str | None = None
    skipped: tuple[str, ...] = field(default=())
    """Judges that were not asked."""


def as_snapshot(rules: Any) -> RuleSnapshot:
    """Return the rules of a book as they are now, or those that are listed.

    Raises
    ------
    NoeticConfigError
        ``INVALID_RULE``, ``RULE_DOES_NOT_COMPILE``, ``DUPLICATE_RULE_ID``.
    """
    if isinstance(rules, RuleSnapshot):
        return rules
    if isinstance(rules, RuleBook):
        return rules.snapshot
    if isinstance(rules, SteeringRule | Mapping):
        rules = [rules]
    if not isinstance(rules, Iterable) or isinstance(rules, str):
        raise NoeticConfigError(
            "INVALID_RULE", "Rules are a rule book, or a list of rules.", given=rules, hint="Pass the RuleBook."
        )
    return RuleBook(rules).snapshot


def candidate_snapshot(rules: RuleSnapshot, candidate: Any) -> RuleSnapshot:
    """Return the rules with a candidate among them, or instead of them.

    Parameters
    ----------
    rules : RuleSnapshot
        As they are.
    candidate : SteeringRule, mapping, function, RuleBook or iterable of rules
        One rule takes the place of the one with its id, or comes last; a function takes the place of the predicate of the
        rule with its name; a book or a list stands instead of all.
    """
    if callable(candidate) and not isinstance(candidate, SteeringRule):
        name = getattr(candidate, "__name__", repr(candidate))
        old = next((rule for rule in rules if rule.id == name), None)
        if old is None:
            raise NoeticConfigError(
                "UNKNOWN_RULE",
                "A function can be tried in place of the rule with its name, and there is none.",
                given=name,
                hint=f"Pass SteeringRule(id=..., applies_to=..., predicate=...); there are {[rule.id for rule in rules]}.",
            )
        candidate = old.model_copy(update={"predicate": candidate, "when": None, "sequence": None, "source": None})
    if not isinstance(candidate, SteeringRule | Mapping):
        return as_snapshot(candidate)
    new = as_rule(candidate)
    known = any(rule.id == new.id for rule in rules)
    return RuleBook([*(new if rule.id == new.id else rule for rule in rules), *([] if known else [new])]).snapshot


class _Trial:
    """One set of rules: which of them can be asked, and asking them."""

    def __init__(self, rules: RuleSnapshot, policy: Policy, judge: ModelClient | None) -> None:
        self.judge = judge
        self.policy = policy
        self.rules = rules
        self.unasked: frozenset[str] = frozenset()
        if judge is None:
            self.unasked = frozenset(rule.id for rule in rules if rule.enabled and rule.llm_eval is not None)
            self.rules = RuleSnapshot(rules.version, tuple([_without_judge(rule) for rule in rules]))
        self.waits = any(rule.enabled and _waits(rule, judge) for rule in rules)

    def skipped(self, moment: Moment) -> tuple[str, ...]:
        if not self.unasked:
            return ()
        tool = getattr(moment.params, "tool_name", None)
        return tuple([rule.id for rule in self.rules.applicable(moment.point, tool) if rule.id in self.unasked])

    async def ask(self, moment: Moment) -> Verdict:
        missing: list[str] = []

        async def ask_now(rule: SteeringRule, params: Any) -> SteeringDecision | None:
            assert rule.llm_eval is not None
            try:
                decision, _ = await ask_judge(rule.llm_eval, params, max_retries=self.policy.max_retries)
            except NoeticError as exc:
                if exc.kind != "tape_missing":
                    raise
                missing.append(rule.id)
                return SteeringDecision("allow")  # type: ignore[arg-type]
            return decision

        params = moment.params
        if self.judge is not None:
            params = params._replace(ctx=replace(params.ctx, call_model=self._call_model))
        result = await evaluate(self.rules, moment.point, params, self.policy, ask_now=ask_now, ask_later=_never_blocks)
        return _verdict(result, (*self.skipped(moment), *missing))

    async def _call_model(self, request: HookModelRequest) -> Any:
        assert self.judge is not None
        return await self.judge.complete(
            ModelRequest(request.model, request.items, request.instructions, purpose=request.purpose)
        )

    async def ask_in_time(self, moment: Moment) -> Verdict:
        try:
            async with asyncio.timeout(LIMITS_S[moment.point]):
                return await self.ask(moment)
        except TimeoutError:
            seconds = LIMITS_S[moment.point]
            return Verdict(SteeringDecision("deny"), f"TimeoutError: no answer in {seconds:g} s")  # type: ignore[arg-type]


def _without_judge(rule: SteeringRule) -> SteeringRule:
    if rule.llm_eval is None:
        return rule
    # What the judge would have said is not known: the rule stays in its place and has no opinion.
    return rule.model_copy(update={"llm_eval": None, "when": None})


def _waits(rule: SteeringRule, judge: ModelClient | None) -> bool:
    asks = judge is not None and rule.llm_eval is not None
    return asks or rule.isolate is not None or inspect.iscoroutinefunction(rule.predicate)


def _never_blocks(rule: SteeringRule, params: Any) -> None:
    """Ask nobody: an asynchronous judge never changes a verdict."""


def _verdict(result: Evaluation, skipped: tuple[str, ...]) -> Verdict:
    error = None
    if result.faults:
        fault = result.faults[0]
        what = "unreadable verdict" if fault.error is None else f"{type(fault.error).__name__}: {fault.error}"
        error = f"{fault.rule_id}: {what}"[:500]
    return Verdict(result.decision, error, skipped)


def try_rules(
    rules: RuleSnapshot,
    found: Sequence[Moment],
    *,
    policy: Policy,
    judge: ModelClient | None = None,
    stop: Callable[[], bool] | None = None,
) -> list[Verdict]:
    """Return what rules say about each moment.

    Parameters
    ----------
    rules : RuleSnapshot
        As they are.
    found : sequence of Moment
        What they are asked about.
    policy : Policy
        What failures mean.
    judge : ModelClient, optional
        Answers for judges, such as a cassette; without it they are skipped.
    stop : callable, optional
        Asked between moments; True ends the work with `asyncio.CancelledError`.

    Returns
    -------
    list of Verdict
        One for each moment.
    """
    trial = _Trial(rules, policy, judge)
    if trial.waits:
        return run_sync(_all(trial, found, stop))
    verdicts: list[Verdict] = []
    for moment in found:
        if stop is not None and stop():
            raise asyncio.CancelledError
        steps = trial.ask(moment)
        try:
            steps.send(None)
        except StopIteration as done:
            verdicts.append(done.value)
        else:
            # A plain function answered something to await: only a loop can tell what.
            steps.close()
            return run_sync(_all(trial, found, stop))
    return verdicts


async def _all(trial: _Trial, found: Sequence[Moment], stop: Callable[[], bool] | None) -> list[Verdict]:
    verdicts: list[Verdict] = []
    for moment in found:
        if stop is not None and stop():
            raise asyncio.CancelledError
        verdicts.append(await trial.ask_in_time(moment))
    return verdicts
