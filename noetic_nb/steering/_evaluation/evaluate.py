"""Evaluate the rules of one snapshot on one call or response.

Rules are evaluated in order, up to the first deny. The policy decides about a rule that raises, hangs or returns an
invalid value; the result names it in any case, so that nothing passes unrecorded. Bindings shared by several conditions
are made once per evaluation, and only if one of these is reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias, assert_never

from noetic_nb._core.names import skeleton
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.memory._enforcement import FAILED_GUIDANCE, fault_text
from noetic_nb.memory._hook_timeout import cancellations, is_cancelled
from noetic_nb.memory._steering_decision import ALLOW, SteeringAction, SteeringDecision, as_decision, most_restrictive
from noetic_nb.memory.params import BeforeToolCallParams, PastCall
from noetic_nb.steering._predicates.bindings import Bindings, Params
from noetic_nb.steering._predicates.conditions import compiled
from noetic_nb.steering._predicates.guidance_template import capped
from noetic_nb.steering._predicates.in_thread import in_thread
from noetic_nb.steering._predicates.sequence_rules import check_sequence
from noetic_nb.steering._rules.rule import CelCondition, LLMEval, Point, PythonPredicate, SequenceRule, SteeringRule
from noetic_nb.sync import awaited, begun_anew

_Key: TypeAlias = tuple[Point, str | None]

MAX_PREPARED: Final = 1024  # tool names come from models: invented names must not fill the memory


@dataclass(frozen=True, slots=True)
class PreparedRule:
    """A rule and its evaluation functions."""

    rule: SteeringRule
    evaluate: Callable[[Params, Bindings], Any] | None = None
    """Returns an answer, or an awaitable; None if only a judge decides."""
    decide: Callable[[Params], SteeringDecision] | None = None
    """Makes the decision of a true condition; None if the rule returns decisions itself."""


class PreparedRules(NamedTuple):
    """The rules for a point and a tool."""

    rules: tuple[PreparedRule, ...]
    needs: frozenset[str]  # names that their conditions need bound


def prepare(rules: Iterable[SteeringRule]) -> PreparedRules:
    """Return rules ready for evaluation; raises `NoeticConfigError` ``RULE_DOES_NOT_COMPILE`` or ``MISSING_PACKAGE``."""
    prepared: list[PreparedRule] = []
    needs: set[str] = set()
    for rule in rules:
        match rule.decider:
            case PythonPredicate(function) if rule.isolate == "thread":
                prepared.append(PreparedRule(rule, evaluate=_in_thread(rule, function)))
            case PythonPredicate(function):
                prepared.append(PreparedRule(rule, evaluate=_plain(function)))
            case CelCondition():
                condition = compiled(rule)
                needs |= condition.needs
                prepared.append(PreparedRule(rule, evaluate=condition.evaluate, decide=condition.decide))
            case SequenceRule() as sequence:
                prepared.append(PreparedRule(rule, evaluate=partial(_sequence, rule, sequence)))
            case LLMEval() | None:
                prepared.append(PreparedRule(rule))
            case other:
                assert_never(other)
    return PreparedRules(tuple(prepared), frozenset(needs))


def _plain(predicate: Callable[[Any], Any]) -> Callable[[Params, Bindings], Any]:
    return lambda params, _: predicate(params)


def _sequence(
    rule: SteeringRule, sequence: SequenceRule, params: Params, bindings: Bindings
) -> SteeringDecision | Awaitable[SteeringDecision | None] | None:
    return check_sequence(rule, sequence, params)


def _in_thread(rule: SteeringRule, predicate: Callable[[Any], Any]) -> Callable[[Params, Bindings], Any]:
    return lambda params, _: in_thread(predicate, params, name=rule.id)


@dataclass(frozen=True)
class RuleSnapshot:
    version: int
    rules: tuple[SteeringRule, ...]
    # Filled as tools are called; if two threads prepare the same entry, it is merely made twice.
    _prepared: dict[_Key, PreparedRules] = field(default_factory=dict, init=False, repr=False, compare=False)

    def applicable(self, point: Point, tool_name: str | None) -> tuple[SteeringRule, ...]:
        """Return the enabled rules for a point and a tool; tools whose names look the same share their rules."""
        return tuple([prepared.rule for prepared in self.prepared(point, tool_name)[0]])

    def prepared(self, point: Point, tool_name: str | None) -> PreparedRules:
        """Return the same rules ready for evaluation, and the names that their conditions need bound."""
        key = (point, tool_name)
        found = self._prepared.get(key)
        if found is None:
            # Compared by appearance: a look-alike name in other letters must not slip past a rule.
            seen = None if tool_name is None else skeleton(tool_name)
            found = prepare(
                [
                    rule
                    for rule in self.rules
                    if rule.enabled
                    and point in rule.applies_to
                    and (rule.tools is None or seen is None or any(skeleton(tool) == seen for tool in rule.tools))
                ]
            )
            # Beyond the limit it still works, but prepares at each call.
            if len(self._prepared) < MAX_PREPARED:
                self._prepared[key] = found
        return found

    def isolated(self, rule_id: str) -> str | None:
        """Return where a rule runs, or None if it runs inline or no longer exists."""
        return next((rule.isolate for rule in self.rules if rule.id == rule_id), None)

    def __iter__(self) -> Iterator[SteeringRule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)


OnError: TypeAlias = Literal["deny", "allow", "raise"]
OnUnparseable: TypeAlias = Literal["allow", "deny"]
# The last argument is the evaluation itself, as given by the caller.
JudgeNow: TypeAlias = Callable[[SteeringRule, LLMEval, Params, Any], Awaitable[SteeringDecision | None]]
JudgeLater: TypeAlias = Callable[[SteeringRule, LLMEval, Params, Any], None]


UNREADABLE_GUIDANCE: Final = "A judge gave no readable verdict, so this is not allowed."


@dataclass(frozen=True, slots=True)
class RuleFault:
    """A rule that could not be evaluated, and its error."""

    rule_id: str
    error: BaseException | None
    reason: Literal["error", "unparseable"]

    def words(self, point: Point) -> tuple[str, str]:
        """Return the rule and its error in the form of `SteeringDecided`."""
        return self.rule_id, self.reason if self.error is None else fault_text(self.error, point)


@dataclass(slots=True)
class Evaluation:
    """The joint decision of the rules, and the rules that failed."""

    decision: SteeringDecision = ALLOW
    faults: tuple[RuleFault, ...] = ()
    waited: bool = False
    """Whether a rule awaited something; otherwise the event loop was blocked all the time."""
    waiting_for: str | None = None
    """The rule that is being awaited."""
    rules_ms: list[tuple[str, float]] = field(default_factory=list)
    """Evaluated rules with their durations; only measured if the run has a subscriber."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The treatment of failures, and the number of retries for judges."""

    on_error: OnError = "deny"
    on_unparseable: OnUnparseable = "allow"
    max_retries: int = 1
    late_verdicts: bool = True  # whether asynchronous judges may answer after the decision


async def evaluate(
    snapshot: RuleSnapshot,
    point: Point,
    params: Params,
    policy: Policy,
    *,
    judge_now: JudgeNow,
    judge_later: JudgeLater,
    result: Evaluation | None = None,
    history: Callable[[], Sequence[PastCall]] | None = None,
) -> Evaluation:
    """Evaluate the rules of a snapshot that apply at a point, in order.

    ``judge_now(rule, judge, params, result)`` waits for a synchronous judge, and returns None without a readable
    verdict; ``judge_later`` starts an asynchronous one in the background. `result` is filled in step by step, so that a
    caller that cancels the evaluation can see its progress. `history` returns the current calls, which rules read after
    one of them has awaited something. Raises `NoeticConfigError` ``MISSING_CALL_MODEL`` if a judge is needed and there
    is no model, whatever the policy, and with the policy ``"raise"`` a rule's error.
    """
    result = Evaluation() if result is None else result
    decisions: list[SteeringDecision] = []
    tool = params.tool_name if isinstance(params, BeforeToolCallParams) else None
    rules, needs = snapshot.prepared(point, tool)
    bindings = Bindings(params, needs)
    is_stale = False
    # The clock is read once per rule: the time until the next rule is the duration of the first.
    clock = None if params.ctx.sink is None else params.ctx.clock
    last, since = None, 0.0
    for prepared in rules:
        if clock is not None:
            now = clock.monotonic_ms()
            if last is not None:
                result.rules_ms.append((last, now - since))
            last, since = prepared.rule.id, now
        if is_stale and history is not None:
            is_stale = False
            params = params._replace(history=history())
            bindings = Bindings(params, needs)
        rule = prepared.rule
        try:
            answer: Any = None
            if prepared.evaluate is not None:
                answer = prepared.evaluate(params, bindings)
            if hasattr(answer, "__await__"):
                is_stale, result.waited, result.waiting_for = True, True, rule.id
                answer = await _waited(answer)
            if prepared.decide is not None:
                if not answer:
                    continue  # the condition is false, so its judge is not called
                answer = None if rule.llm_eval is not None else prepared.decide(params)
            if answer is not None:
                decision: SteeringDecision | None = _named(answer, prepared)
            elif rule.llm_eval is None:
                continue
            else:
                is_stale = True
                decision = await _judged(rule, rule.llm_eval, params, policy, result, judge_now, judge_later)
        except Exception as exc:
            decision = _failed(rule, exc, policy, result)
        except BaseException as exc:
            decision = _failed(rule, _as_error(rule, exc, result), policy, result)
        if decision is None:
            continue
        decisions.append(decision)
        if decision.action is SteeringAction.DENY:
            break
    if clock is not None and last is not None:
        result.rules_ms.append((last, clock.monotonic_ms() - since))
    result.waiting_for = None
    if decisions:
        result.decision = most_restrictive(decisions)
    if result.faults and result.decision.action is SteeringAction.ALLOW:
        # A call that is allowed although rules failed is recorded under the names of these rules.
        failed = tuple(dict.fromkeys([fault.rule_id for fault in result.faults]))
        result.decision = SteeringDecision(SteeringAction.ALLOW, None, failed, result.decision.stop)
    return result


async def _waited(answer: Awaitable[Any]) -> Any:
    """Wait for a rule. If a rule swallows its cancellation, neither it nor later rules continue."""
    before = cancellations()
    try:
        return await awaited(begun_anew(answer))
    finally:
        if cancellations() > before:
            raise asyncio.CancelledError


def _as_error(rule: SteeringRule, error: BaseException, result: Evaluation) -> Exception:
    """Return a rule's exception as an error of the rule, or raise one that should end the program or the task."""
    # A `GeneratorExit` raised by the rule itself has already been converted.
    is_closing = isinstance(error, GeneratorExit) and result.waiting_for == rule.id
    # Decided by the task, because a rule may raise `CancelledError` itself without a cancellation.
    is_end = isinstance(error, asyncio.CancelledError) and is_cancelled()
    if is_closing or is_end or isinstance(error, KeyboardInterrupt | SystemExit):
        # Named in the row for this; the end of the task is not caused by a rule that was not awaited.
        result.waiting_for = result.waiting_for if is_end else rule.id
        raise error
    found = RuntimeError(f"{type(error).__name__} from a rule: {error}")
    found.__cause__ = error
    return found


def _failed(rule: SteeringRule, error: Exception, policy: Policy, result: Evaluation) -> SteeringDecision | None:
    """Return the decision on a failed rule under the policy; called while its error is being handled."""
    # A missing model is a configuration error: no policy may turn it into a decision.
    missing = isinstance(error, NoeticConfigError) and error.code == "MISSING_CALL_MODEL"
    if missing or policy.on_error == "raise":
        result.waiting_for = rule.id  # named in the row for this
        raise error
    result.faults += (RuleFault(rule.id, error, "error"),)
    if policy.on_error == "allow":
        return None
    # Fixed text, because the error may quote arguments or paths that the model must not read.
    return SteeringDecision(SteeringAction.DENY, FAILED_GUIDANCE, (rule.id,))


async def _judged(
    rule: SteeringRule,
    judge: LLMEval,
    params: Params,
    policy: Policy,
    result: Evaluation,
    judge_now: JudgeNow,
    judge_later: JudgeLater,
) -> SteeringDecision | None:
    # Checked before the mode, because an asynchronous judge without a model would fail unseen in the background.
    if params.ctx.call_model is None:
        what = f"Rule {rule.id!r} has a judge, but there is no model to call"
        hint = "Give the harness a model that answers this name, or make the rule a predicate."
        raise NoeticConfigError("MISSING_CALL_MODEL", what, given=judge.model, hint=hint, rule_id=rule.id)
    if judge.mode == "async" and policy.late_verdicts:
        judge_later(rule, judge, params, result)
        return None
    result.waited, result.waiting_for = True, rule.id
    decision: SteeringDecision | None = await _waited(judge_now(rule, judge, params, result))
    if decision is None:
        # A fault under either policy, so that the ledger shows that this judge did not decide.
        result.faults += (RuleFault(rule.id, None, "unparseable"),)
        if policy.on_unparseable == "allow":
            return ALLOW
        return SteeringDecision(SteeringAction.DENY, UNREADABLE_GUIDANCE, (rule.id,))
    if decision.action is SteeringAction.ALLOW:
        return decision
    return SteeringDecision(decision.action, capped(decision.guidance or "") or None, (rule.id,))


def _named(answer: Any, prepared: PreparedRule) -> SteeringDecision:
    """Return a rule's decision with the rule's name, unless it only allows."""
    rule_id = prepared.rule.id
    if not isinstance(answer, SteeringDecision):
        if not isinstance(answer, Mapping):
            what = f"Rule {rule_id!r} answered a {type(answer).__name__}"
            hint = "A rule must return deny(...), guide(...), ask(...), allow() or None."
            raise NoeticError("step_failed", what, given=answer, hint=hint, step_id=rule_id)
        answer = as_decision(answer)
    decision: SteeringDecision = answer
    # A condition's decision already has the name; an allow is not attributed to a rule.
    if prepared.decide is not None or decision.action is SteeringAction.ALLOW:
        return decision
    # `deny(3)` is only detected here, because records do not check field types.
    guidance: Any = decision.guidance
    if guidance is not None and not isinstance(guidance, str):
        raise TypeError(f"Guidance must be text, not {type(guidance).__name__}: {guidance!r:.80}.")
    text = None if guidance is None else capped(guidance)
    return SteeringDecision(decision.action, text, (rule_id,), decision.stop, decision.matched)
