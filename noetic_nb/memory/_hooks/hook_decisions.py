"""The result of a hook that decides: its decision, its state, and the facts about its rules."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from noetic_nb.memory._hooks.hook_results import UNSET, field_of
from noetic_nb.memory._steering_decision import ALLOW, SteeringDecision, Stop, as_decision

__all__ = ["NO_TIMES", "Faults", "RuleTimes", "read_decision"]

_FIELDS: Final = ("decision", "stop", "state", "outcome", "faults", "rules_ms")
Faults: TypeAlias = tuple[tuple[str, str], ...]
"""Rules that failed, each with what went wrong."""


class RuleTimes(NamedTuple):
    """Rules and how long each took, in milliseconds, as a layer of this library has measured them: nothing to check."""

    ids: tuple[str, ...] = ()
    took: tuple[float, ...] = ()
    """Of the first of them, as far as they were asked."""


NO_TIMES: Final = RuleTimes()


def read_decision(value: Any, hook: str) -> tuple[SteeringDecision, Any, str | None, Faults, RuleTimes]:
    """Return the decision, the new state (or `UNSET`), the error, the failed rules and the duration of each rule."""
    if value is None:
        return ALLOW, UNSET, None, (), NO_TIMES
    if isinstance(value, SteeringDecision):
        return value, UNSET, None, (), NO_TIMES
    given, stop, state, outcome, faults, rules_ms = [field_of(value, name, hook=hook) for name in _FIELDS]
    if given is UNSET:
        # A result with only a state or a stop is no opinion; anything else without a decision is an error, never an allow.
        decision = ALLOW if stop is not UNSET or state is not UNSET else as_decision(value)
    else:
        decision = ALLOW if given is None else as_decision(given)
    if isinstance(stop, Stop):
        decision = SteeringDecision(decision.action, decision.guidance, decision.rule_ids, stop, decision.matched)
    elif stop is not UNSET and stop is not None:
        raise TypeError(f"`stop` is a Stop(decision, suggestion), not {type(stop).__name__}: {stop!r:.80}.")
    wrong = outcome if isinstance(outcome, str) else None
    return decision, state, wrong, _pairs(faults, str), _times(rules_ms)


def _pairs(found: Any, kind: type) -> tuple[tuple[str, Any], ...]:
    """Return the facts about each rule, and nothing of a foreign hook's field of the same name."""
    if type(found) is not tuple:
        return ()
    for pair in found:
        if type(pair) is not tuple or len(pair) != 2 or type(pair[0]) is not str or type(pair[1]) is not kind:
            return tuple([each for each in found if type(each) is tuple and [*map(type, each)] == [str, kind]])
    return found


def _times(found: Any) -> RuleTimes:
    """Return the rules and the duration of each; of a foreign hook, the readable part."""
    return found if type(found) is RuleTimes else RuleTimes(*zip(*_pairs(found, float), strict=True))
