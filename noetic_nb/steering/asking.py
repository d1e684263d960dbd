"""Make a rule askable: one call with the hook's parameters, whatever decides it.

What several conditions share (their bindings) is made once for each evaluation, and only if one of them is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from noetic_nb.memory.decision import SteeringDecision
from noetic_nb.steering.bindings import Bindings, Params
from noetic_nb.steering.conditions import compiled
from noetic_nb.steering.isolate import in_thread
from noetic_nb.steering.rule import SteeringRule
from noetic_nb.steering.sentences import broken

__all__ = ["Asked", "askable"]

Ask: TypeAlias = Callable[[Params, Bindings], Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """A rule and how it is asked."""

    rule: SteeringRule
    ask: Ask | None
    """Answers what the rule answers, or something to await; None where only a judge decides."""
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
            asked.append(Asked(rule, found.ask, found.decide))
        elif rule.sequence is not None:
            asked.append(Asked(rule, partial(_sentence, rule), None))
        elif rule.predicate is not None:
            asked.append(Asked(rule, _predicate(rule, rule.predicate), None))
        else:
            asked.append(Asked(rule, None, None))
    return tuple(asked), frozenset(needs)


def _sentence(rule: SteeringRule, params: Params, _: Bindings) -> SteeringDecision | None:
    return broken(rule, params)


def _predicate(rule: SteeringRule, predicate: Callable[[Any], Any]) -> Ask:
    if rule.isolate == "thread":
        return lambda params, _: in_thread(predicate, params, name=rule.id)
    return lambda params, _: predicate(params)
