"""The one threshold of a regulator's predicate that is varied, and the value it is compared with.

A predicate explains itself: each of its conditions has a value and a threshold. What is compared with the threshold that is
varied is its score; where another condition does not hold, no threshold makes it fire.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final

from noetic_nb.regulator import (
    CallBudget,
    CostCap,
    LowConfidence,
    ProceduralWarning,
    QualityDecline,
    RepeatedFailure,
    ScopeDrift,
    ToolLoop,
)
from noetic_nb.regulator.events import U32_MAX, U64_MAX
from noetic_nb.regulator.predicates.evidence import Evidence
from noetic_nb.regulator.predicates.explanation import Condition, Finding, Predicate

__all__ = ["Varied", "varied"]

_CAPS: Final = {"tokens_out": U32_MAX, "tokens_in": U32_MAX, "usd": 1e12, "wallclock_ms": U64_MAX}
WARNS: Final = (ScopeDrift, LowConfidence, ProceduralWarning)
"""They decide and stop nothing."""


@dataclass(frozen=True, slots=True)
class Varied:
    """One predicate whose main threshold may be set to anything.

    Attributes
    ----------
    predicate : Predicate
        As it was given.
    field : str
        The threshold, as its field is called.
    condition : str
        The condition that compares a value with it.
    least, most : float
        The settings that are legal.
    whole : bool
        Whether it counts.
    put : callable
        From a setting to the predicate that has it.
    """

    predicate: Predicate
    field: str
    condition: str
    least: float
    most: float
    whole: bool
    put: Callable[[Any], Predicate]

    @property
    def stops(self) -> bool:
        """Whether it breaks the circuit, which a warning does not."""
        return not isinstance(self.predicate, WARNS)

    def probe(self) -> Callable[[Evidence], float]:
        """Return a function that scores one piece of evidence; minus infinity where no setting makes it fire."""
        predicate = self.put(int(self.least) if self.whole else self.least)
        return lambda evidence: self._score(predicate.explain(evidence))

    def _score(self, found: Finding) -> float:
        main: Condition | None = None
        for condition in found.conditions:
            if condition.name == self.condition:
                main = condition
            elif not condition.holds:
                return -inf
        for condition in found.any_of:
            if condition.name == self.condition:
                main = condition
            elif condition.holds:
                # Another limit is exceeded: it fires, whatever this one is set to.
                return inf
        value = None if main is None else main.value
        if main is None or value is None or math.isnan(value):
            return -inf
        match main.relation:
            case ">=":
                return -inf if value < self.least else min(value, self.most)
            case ">":
                return -inf if value <= self.least else min(value, self.most)
            case "<":
                # Mirrored, so that a higher score is always the nearer to firing.
                return -inf if value >= self.most else -value

    def at(self, score: float) -> Predicate:
        """Return the predicate that fires from this score on."""
        if isinstance(self.predicate, LowConfidence):  # it fires below its threshold
            return self.put(min(max(math.nextafter(-score, inf), self.least), self.most))
        if isinstance(self.predicate, CallBudget):  # it fires above its threshold
            score = math.ceil(score) - 1
        setting = min(max(score, self.least), self.most)
        return self.put(math.ceil(setting) if self.whole else setting)


def varied(predicate: Predicate) -> Varied | None:
    """Return which threshold of a predicate is varied; None for one of one's own, of which nobody knows.

    Of several limits it is the first: the total of calls before those of single tools, the cap on output tokens before other
    currencies. The others stand as they are.

    Examples
    --------
    >>> found = varied(CallBudget(total=20))
    >>> found.field, found.at(13)
    ('total', CallBudget(total=12, per_tool={}))
    """

    def of(field: str, condition: str, least: float, most: float, *, whole: bool) -> Varied:
        return Varied(
            predicate, field, condition, least, most, whole, lambda setting: _replaced(predicate, field, setting)
        )

    match predicate:
        case ToolLoop():
            return of("threshold", "repetitions", 2, inf, whole=True)
        case RepeatedFailure():
            return of("threshold", "failures", 1, inf, whole=True)
        case QualityDecline():
            return of("min_delta", "delta", 0.0, 1.0, whole=False)
        case ScopeDrift():
            return of("threshold", "drift_score", 0.0, 1.0, whole=False)
        case LowConfidence():
            return of("threshold", "confidence_of_worst_stretch", 0.0, 1.0, whole=False)
        case ProceduralWarning():
            return of("min_corrections", "corrections", 1, 20, whole=True)
        case CostCap():
            cap = next((name for name in _CAPS if getattr(predicate, name) is not None), "tokens_out")
            return of(cap, cap, 0, _CAPS[cap], whole=cap != "usd")
        case CallBudget(total=None, per_tool=limits) if limits:
            tool = next(iter(limits))
            return Varied(
                predicate,
                f"per_tool.{tool}",
                f"calls of {tool}",
                0,
                inf,
                True,
                lambda setting: replace(predicate, per_tool={**limits, tool: setting}),
            )
        case CallBudget():
            return of("total", "calls", 0, inf, whole=True)
    return None


def _replaced(predicate: Any, field: str, setting: float) -> Any:
    return replace(predicate, **{field: setting})
