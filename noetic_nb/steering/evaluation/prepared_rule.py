"""Make a rule askable: one call with the hook's parameters, whatever decides it.

What several conditions share (their bindings) is made once for each evaluation, and only if one of them is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from noetic_nb.memory.steering_decision import SteeringDecision
from noetic_nb.steering.predicates.bindings import Bindings, Params
from noetic_nb.steering.predicates.conditions import compiled
from noetic_nb.steering.predicates.in_thread import in_thread
from noetic_nb.steering.predicates.sequence_rules import broken
from noetic_nb.steering.rules.rule import SteeringRule

__all__ = ["Asked", "askable"]

Ask: TypeAlias = Callable[[Params, Bindings], Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """A rule and how it is asked."""

    rule: SteeringRule
    predicate: Callable[[Any], Any] | None
    """A plain function of the hook's parameters, asked first."""
    ask: Ask | None
    """Everything else that answers, or answers something to await; None where only a judge decides."""
    decide: Callable[[Params], SteeringDecision] | None
    """What a condition leads to that is true; None where the rule answers decisions itself."""


def askable(rules: Iterable[SteeringRule]) -> tuple[tuple[Asked, ...], frozenset[str]]:
    """Return rules in askable form, and the names that their conditions need bound.

    Raises
    ------
    NoeticConfigError
        ``RULE_DOES_NOT_COMPILE`` or ``MISSING_PACKAGE``.
    """
    asked: list[Asked] = []
    needs: set[str] = set()
    for rule in rules:
        if rule.when is not None:
            found = compiled(rule)
            needs |= found.needs
            asked.append(Asked(rule, None, found.ask, found.decide))
        elif rule.sequence is not None:
            asked.append(Asked(rule, None, partial(_sentence, rule), None))
        elif rule.predicate is not None:
            isolated = _in_thread(rule, rule.predicate) if rule.isolate == "thread" else None
            asked.append(Asked(rule, rule.predicate if isolated is None else None, isolated, None))
        else:
            asked.append(Asked(rule, None, None, None))
    return tuple(asked), frozenset(needs)


def _sentence(rule: SteeringRule, params: Params, bindings: Bindings) -> SteeringDecision | None:
    return broken(rule, params, bindings.earlier)


def _in_thread(rule: SteeringRule, predicate: Callable[[Any], Any]) -> Ask:
    return lambda params, _: in_thread(predicate, params, name=rule.id)
