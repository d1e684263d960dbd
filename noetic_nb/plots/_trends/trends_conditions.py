"""The conditions of predicates as marks: the turns in which some but not all were met, and the missing condition."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final

from noetic_nb.plots._scene.scene import Mark
from noetic_nb.plots._trends.trends_chart import ThreadChart
from noetic_nb.plots._trends.trends_marks import LANES, lane_of
from noetic_nb.plots._trends.trends_panels import kind_of
from noetic_nb.regulator.predicates.explanation import Condition, PredicateFinding
from noetic_nb.runs._plain_text import count
from noetic_nb.runs._regulation.recorded_decisions import Judged

# Conditions about sufficient data: met in nearly every turn, which is not informative.
ENOUGH: Final = frozenset({"grades", "words", "earlier", "tool_texts", "drift_tokens", "caps_set"})
_NAMES: Final = {
    "mean_quality": "mean quality", "tokens_out": "output tokens", "tokens_in": "input tokens", "usd": "money",
    "wallclock_ms": "time", "delta": "fall of quality", "drift_score": "drift", "earlier": "earlier texts",
    "tool_texts": "tool texts", "drift_tokens": "drift words", "confidence_of_worst_stretch": "confidence",
}  # fmt: skip
_WORDS: Final = {">=": "at least", ">": "more than", "<": "below"}


def state_of(finding: PredicateFinding) -> str:
    """Return ``met``, ``half`` if only some conditions hold, or an empty text.

    Examples
    --------
    >>> poor, spent = Condition("mean_quality", 0.8, "<", 0.5), Condition("tokens_out", 900, ">=", 700)
    >>> state_of(PredicateFinding("cost_cap", False, None, (poor,), (spent,)))
    'half'
    """
    if finding.holds:
        return "met"
    telling = [each for each in (*finding.conditions, *finding.any_of) if each.name not in ENOUGH]
    return "half" if any(each.holds for each in telling) else ""


def text_of(finding: PredicateFinding) -> str:
    """Describe the conditions: the met ones, and the missing ones.

    Examples
    --------
    >>> poor, spent = Condition("mean_quality", 0.8, "<", 0.5), Condition("tokens_out", 900, ">=", 700)
    >>> text_of(PredicateFinding("cost_cap", False, None, (poor,), (spent,)))
    'output tokens at least 700; missing: mean quality below 0.5'
    """
    every = [*finding.conditions, *finding.any_of]
    met = [_said(each) for each in every if each.holds and each.name not in ENOUGH]
    missing = [_said(each) for each in finding.conditions if not each.holds]
    if not any(each.holds for each in finding.any_of):  # one of these is sufficient
        missing += [" or ".join(map(_said, finding.any_of))] * bool(finding.any_of)
    return "; ".join([", ".join(met), *([f"missing: {', '.join(missing)}"] if missing else [])])


def _said(condition: Condition) -> str:
    name = _NAMES.get(condition.name, condition.name.replace("_", " "))
    number = condition.threshold
    return f"{name} {_WORDS[condition.relation]} {count(number) if number >= 1_000 else f'{number:.4g}'}"


def condition_marks(judged: Iterable[Judged], chart: ThreadChart) -> list[Mark]:
    """Return a mark for each series of columns in which a predicate was met or half met, with the missing condition."""
    # By predicate and column; among several turns, the one closest to a decision.
    best: dict[str, dict[int, tuple[str, str]]] = {}
    for each in judged:
        state = state_of(each.finding) if each.thread_id == chart.thread.thread_id else ""
        if not state:
            continue
        columns, at = best.setdefault(each.predicate, {}), chart.column_of(each.turn)
        if at not in columns or (columns[at][0] == "half" and state == "met"):
            masked = "" if each.decided or state == "half" else "; an earlier predicate decided"
            columns[at] = state, f"{text_of(each.finding)}{masked}"
    marks = []
    for predicate, columns in best.items():
        name = LANES.get(kind_of(predicate), kind_of(predicate))
        for (_, state, said), group in groupby(sorted(columns.items()), key=_Stretch()):
            places = [at for at, _ in group]
            marks.append(
                Mark(
                    state,
                    [places[0], lane_of(name), places[-1] + 1, None],
                    f"{name} {'half ' * (state == 'half')}met: {said}",
                )
            )
    return marks


class _Stretch:
    """Returns the same key for equal neighbours."""

    def __init__(self) -> None:
        self.place = 0

    def __call__(self, entry: tuple[int, tuple[str, str]]) -> tuple[int, str, str]:
        at, (state, said) = entry
        self.place += 1
        return at - self.place, state, said


def condition_rows(judged: Iterable[Judged]) -> list[tuple[Any, ...]]:
    """Return a row for each condition: thread, turn, predicate, condition, value, threshold, met, fired."""
    return [
        (each.thread_id, each.turn, each.predicate, one.name, one.value, one.threshold, one.holds, each.decided)
        for each in judged
        for one in (*each.finding.conditions, *each.finding.any_of)
    ]
