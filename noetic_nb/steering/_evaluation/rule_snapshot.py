"""The rules of one version, in order, found by enforcement point and tool, and prepared for evaluation. Never changes.

What several conditions share (their bindings) is made once for each evaluation, and only if one of them is reached.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from operator import sub
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

from noetic_nb._core.names import skeleton
from noetic_nb.memory._steering_decision import SteeringDecision
from noetic_nb.steering._predicates.bindings import MAX_AT_ONCE, Bindings, Params
from noetic_nb.steering._predicates.conditions import compiled, context_type
from noetic_nb.steering._predicates.in_thread import in_thread
from noetic_nb.steering._predicates.sequence_rules import check_sequence
from noetic_nb.steering._rules.rule import CelCondition, LLMEval, Point, PythonPredicate, SequenceRule, SteeringRule

__all__ = ["Asked", "PreparedRule", "RuleSnapshot"]

_Key: TypeAlias = tuple[Point, str | None]

# Tool names come from models: names that mean nothing must not fill memory.
MAX_PREPARED: Final = 1024


@dataclass(frozen=True, slots=True)
class PreparedRule:
    """A rule and how it is evaluated."""

    rule: SteeringRule
    predicate: Callable[[Any], Any] | None = None
    """A plain function of the hook's parameters, called first."""
    evaluate: Callable[[Params, Bindings], Any] | None = None
    """Every other form that returns an answer, or something to await; None where only a judge decides."""
    decide: Callable[[Params], SteeringDecision] | None = None
    """The decision of a condition that is true; None where the rule returns decisions itself."""
    program: Callable[[Any], Any] | None = None
    """A condition's program, which may be run as it is."""


class PreparedRules(NamedTuple):
    """The rules for a point and a tool."""

    rules: tuple[PreparedRule, ...]
    """In order."""
    needs: frozenset[str]
    """Names that their conditions need bound."""
    quick: tuple[tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None], ...]
    """Of the first of them, up to one that is something else: a predicate without a judge, or else the program of a condition."""
    ids: tuple[str, ...]
    predicates: tuple[Callable[[Any], Any], ...] | None
    """All of `quick`, where they are predicates."""

    def asked(self, params: Params, took: list[float] | None = None) -> Asked | None:
        """Ask the quick ones up to one that has something to say; None where these are all the rules and none has.

        `took` is filled with how long each of the rules that had nothing to say took; without it nothing is measured.
        """
        if took is None and self.predicates is not None:
            return self._asked_quickly(self.predicates, params)
        # A clock is read once a rule: from one rule to the next is what the first has taken.
        now = None if took is None else params.ctx.clock.monotonic_ms
        times = [] if now is None else [now()]
        place, context, found = 0, None, None
        try:
            for place, (predicate, program) in enumerate(self.quick):
                if predicate is not None:
                    # The most frequent answer by far: no opinion.
                    if (answer := predicate(params)) is not None:
                        found = Asked(place, answer)
                        break
                elif program is not None:
                    if context is None:
                        bindings = Bindings(params, self.needs)
                        if bindings.weight > MAX_AT_ONCE:  # perhaps not here
                            found = Asked(place)
                            break
                        context = bindings.context(context_type())
                    if (value := program(context)) is not False:
                        # What is neither is an error, which is raised where the rule is evaluated.
                        found = Asked(place, True if value is True else None)
                        break
                if now is not None:
                    times.append(now())
            else:
                if len(self.quick) < len(self.rules):
                    found = Asked(len(self.quick))
        except BaseException as exc:  # handled where the others are, as an error of this rule
            found = Asked(place, error=exc)
        if took is None:
            return found
        took += map(sub, times[1:], times)
        return None if found is None else found._replace(since=times[-1])

    def _asked_quickly(self, predicates: tuple[Callable[[Any], Any], ...], params: Params) -> Asked | None:
        """Ask rules that are all predicates, while nobody wants to know how long each takes."""
        place = 0
        try:
            for place, predicate in enumerate(predicates):
                if (answer := predicate(params)) is not None:
                    return Asked(place, answer)
        except BaseException as exc:
            return Asked(place, error=exc)
        return Asked(len(predicates)) if len(predicates) < len(self.rules) else None


class Asked(NamedTuple):
    """Where an evaluation stands: the rules before `place` had nothing to say, and the one there did, if it was asked."""

    place: int
    answer: Any = None
    error: BaseException | None = None
    since: float | None = None
    """When that one began, where it is measured how long rules take."""


def prepare(rules: Iterable[SteeringRule]) -> PreparedRules:
    """Return rules ready for evaluation.

    Raises
    ------
    NoeticConfigError
        ``RULE_DOES_NOT_COMPILE`` or ``MISSING_PACKAGE``.
    """
    prepared: list[PreparedRule] = []
    needs: set[str] = set()
    for rule in rules:
        match rule.decider:
            case PythonPredicate(function) if rule.isolate == "thread":
                prepared.append(PreparedRule(rule, evaluate=_in_thread(rule, function)))
            case PythonPredicate(function):
                prepared.append(PreparedRule(rule, function))
            case CelCondition():
                condition = compiled(rule)
                needs |= condition.needs
                prepared.append(
                    PreparedRule(rule, evaluate=condition.evaluate, decide=condition.decide, program=condition.program)
                )
            case SequenceRule() as sequence:
                prepared.append(PreparedRule(rule, evaluate=partial(_sequence, rule, sequence)))
            case LLMEval() | None:  # a judge alone, or nothing at all
                prepared.append(PreparedRule(rule))
            case other:
                assert_never(other)
    quick = [
        (one.predicate, one.program)
        for one in takewhile(
            lambda one: (one.predicate is not None and one.rule.llm_eval is None) or one.program is not None, prepared
        )
    ]
    ids = tuple([one.rule.id for one in prepared])
    predicates = tuple([predicate for predicate, _ in quick if predicate is not None])
    return PreparedRules(
        tuple(prepared), frozenset(needs), tuple(quick), ids, predicates if len(predicates) == len(quick) else None
    )


def _sequence(
    rule: SteeringRule, sequence: SequenceRule, params: Params, bindings: Bindings
) -> SteeringDecision | Awaitable[SteeringDecision | None] | None:
    return check_sequence(rule, sequence, params)


def _in_thread(rule: SteeringRule, predicate: Callable[[Any], Any]) -> Callable[[Params, Bindings], Any]:
    return lambda params, _: in_thread(predicate, params, name=rule.id)


@dataclass(frozen=True)
class RuleSnapshot:
    """The rules of one version."""

    version: int
    rules: tuple[SteeringRule, ...]
    # Filled as tools are called; a lookup that two threads make at once is only made twice.
    _prepared: dict[_Key, PreparedRules] = field(default_factory=dict, init=False, repr=False, compare=False)

    def applicable(self, point: Point, tool_name: str | None) -> tuple[SteeringRule, ...]:
        """Return the enabled rules for a point and, before a call, a tool.

        A rule about a tool also applies to every tool whose name looks the same.
        """
        return tuple([prepared.rule for prepared in self.prepared(point, tool_name)[0]])

    def prepared(self, point: Point, tool_name: str | None) -> PreparedRules:
        """Return the same rules ready for evaluation, and the values that their conditions need bound."""
        key = (point, tool_name)
        found = self._prepared.get(key)
        if found is None:
            # Compared by what a reader sees: a name in other letters that looks the same must not slip past a rule.
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
            # Beyond that it still works, at the price of preparing at each call.
            if len(self._prepared) < MAX_PREPARED:
                self._prepared[key] = found
        return found

    def isolated(self, rule_id: str) -> str | None:
        """Return where a rule runs, None where it runs inline or is not there any more."""
        return next((rule.isolate for rule in self.rules if rule.id == rule_id), None)

    def __iter__(self) -> Iterator[SteeringRule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)
