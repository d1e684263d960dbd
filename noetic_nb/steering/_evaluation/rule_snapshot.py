"""The rules of one version, in order, found by enforcement point and tool, and prepared for evaluation. Never changes.

What several conditions share (their bindings) is made once for each evaluation, and only if one of them is reached.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

from noetic_nb._core.names import skeleton
from noetic_nb.memory._steering_decision import SteeringDecision
from noetic_nb.steering._predicates.bindings import Bindings, Params
from noetic_nb.steering._predicates.conditions import compiled
from noetic_nb.steering._predicates.in_thread import in_thread
from noetic_nb.steering._predicates.sequence_rules import check_sequence
from noetic_nb.steering._rules.rule import CelCondition, LLMEval, Point, PythonPredicate, SequenceRule, SteeringRule

_Key: TypeAlias = tuple[Point, str | None]

# Tool names come from models: names that mean nothing must not fill memory.
MAX_PREPARED: Final = 1024


@dataclass(frozen=True, slots=True)
class PreparedRule:
    """A rule and how it is evaluated."""

    rule: SteeringRule
    evaluate: Callable[[Params, Bindings], Any] | None = None
    """Returns an answer, or something to await; None where only a judge decides."""
    decide: Callable[[Params], SteeringDecision] | None = None
    """The decision of a condition that is true; None where the rule returns decisions itself."""


class PreparedRules(NamedTuple):
    """The rules for a point and a tool."""

    rules: tuple[PreparedRule, ...]
    """In order."""
    needs: frozenset[str]
    """Names that their conditions need bound."""


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
            case LLMEval() | None:  # a judge alone, or nothing at all
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
