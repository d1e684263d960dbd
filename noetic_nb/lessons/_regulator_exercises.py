"""Exercises on the regulator: deteriorating answers, a threshold from recorded runs, and the value of a stop."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from noetic_nb.lessons._exercise import Exercise
from noetic_nb.regulator import QualityDecline, Regulator
from noetic_nb.regulator.events import QualityFeedback, TurnComplete, TurnStart

_GRADES: Final[tuple[tuple[float, ...], ...]] = (
    (0.75, 0.5, 0.125),
    (0.5, 0.375, 0.25, 0.125),
    (0.125, 0.25, 0.5),  # better
    (0.25, 0.25, 0.25),  # poor, but not getting worse
    (1.0, 0.875, 0.75),  # worse, but good
    (0.875, 0.25),  # two are not enough
    (),
    (0.15, 0.125, 0.0),  # a drop of exactly 0.15
    (0.65, 0.5, 0.35),  # a mean of exactly 0.5
    (1.0, 0.25, 0.25, 0.25),  # the drop is no longer among the last three
    (0.125, 0.75, 0.5, 0.125),
    (0.5, 0.0, 0.45),  # the lowest is not the newest
)

# Runs by their number of calls: ties, overlap, inseparable runs, and one good run at the top.
_COUNTS: Final[tuple[tuple[tuple[int, ...], tuple[int, ...], float], ...]] = (
    ((3, 4, 5, 6, 7, 8, 9, 10, 11, 30), (5, 9, 12, 20, 25), 0.1),
    ((3, 4, 5, 6, 12, 12, 12, 12, 12, 12), (12, 12, 15, 20), 0.1),
    ((5, 6, 7, 8), (20, 30, 40), 0.0),
    ((10, 20, 30, 40), (1, 2, 3), 0.2),
    ((2, 4, 6, 8, 10), (3, 9, 11, 12), 0.4),
    ((9, 9, 9, 9), (9, 9), 0.5),
    ((1, 2), (7, 7, 7), 1.0),
)


def _worse(answer: Any) -> str | None:
    for grades in _GRADES:
        regulator = Regulator.for_user("learner").with_predicates(QualityDecline())
        for number, grade in enumerate(grades):
            for event in (TurnStart(f"question {number}"), TurnComplete(f"answer {number}"), QualityFeedback(grade)):
                regulator.on_event(event)
        given, expected = answer(list(grades)), regulator.decide().kind == "circuit_break"
        if given is not expected and given != expected:
            return f"After the grades {list(grades)} the regulator answers {expected}, your function {given!r}."
        if not isinstance(given, bool):
            return f"The answer is True or False; for {list(grades)} yours is {given!r}."
    return None


def best_threshold(good: Sequence[int], failed: Sequence[int], allowed: float) -> int | None:
    """Return the threshold that stops most failed runs and at most the allowed share of good ones.

    Runs are given as numbers of calls. A run is stopped if it reaches the threshold, which is one of the numbers in
    `failed`. Returns None if every threshold that stops a failed run stops too many good ones. This is the "split" of
    docs/behaviour/lab.md, "Thresholds from outcomes".
    """
    # Each candidate is a failed run, so a lower one stops more of them: the lowest allowed one is the best.
    return min((each for each in failed if sum(count >= each for count in good) <= allowed * len(good)), default=None)


def _threshold(answer: Any) -> str | None:
    draw = random.Random(4)
    drawn = [
        (tuple(draw.choices(range(2, 30), k=12)), tuple(draw.choices(range(8, 40), k=8)), draw.choice([0.0, 0.1, 0.25]))
        for _ in range(20)
    ]
    for good, failed, allowed in (*_COUNTS, *drawn):
        expected, given = best_threshold(good, failed, allowed), answer(list(good), list(failed), allowed)
        if given != expected or isinstance(given, bool):
            return (
                f"Good runs made {list(good)} calls, failed ones {list(failed)}, and {allowed:.0%} of the good ones may be "
                f"stopped: the threshold is {expected}, your answer is {given!r}."
            )
    return None


def worth(runs: Sequence[tuple[bool, Sequence[int]]], threshold: int) -> tuple[int, int]:
    """Return the tokens saved in failed runs, and the number of lost good runs.

    A run is a pair: whether it was good, and the tokens of each call. It is stopped when its number of calls reaches
    the threshold; that last call is still paid for. (docs/behaviour/lab.md, "What stopping is worth".)
    """
    saved = sum(sum(tokens[threshold:]) for good, tokens in runs if not good)
    return saved, sum(good and len(tokens) >= threshold for good, tokens in runs)


_WORTH: Final[tuple[tuple[tuple[tuple[bool, tuple[int, ...]], ...], int], ...]] = (
    (((False, (100, 120, 140, 160)), (True, (90, 80)), (True, (100, 100, 100))), 3),
    (((False, (7, 11, 13)), (True, (5, 5, 5)), (False, (17,))), 3),
    (((False, (7, 11, 13)), (True, (5, 5, 5)), (False, (17, 19, 23, 29, 31))), 1),
    (((True, (50, 60, 70, 80)), (True, (1, 2))), 2),
    (((False, (9, 8, 7)),), 5),
    ((), 4),
)


def _worth(answer: Any) -> str | None:
    for runs, threshold in _WORTH:
        expected, given = worth(runs, threshold), answer([(good, list(tokens)) for good, tokens in runs], threshold)
        if not isinstance(given, tuple | list) or tuple(given) != expected:
            shown = "; ".join(f"{'good' if good else 'failed'} {list(tokens)}" for good, tokens in runs) or "none"
            return (
                f"Runs: {shown}. Stopped at {threshold} calls, (saved, lost) is {expected}, your answer is {given!r}."
            )
    return None


REGULATOR: Final = (
    Exercise("4.1", "worse", _worse, (
        "Only the last three grades count, and with fewer than three the answer is False.",
        "Two things must hold: the oldest of the three is at least 0.15 above the newest, and their mean is below 0.5.",
        "A drop of exactly 0.15 counts; a mean of exactly 0.5 does not.",
    )),
    Exercise("4.2", "threshold", _threshold, (
        "Candidates are the numbers of calls of the failed runs. For each, count who is stopped: calls >= threshold.",
        "Leave out candidates that stop more than the allowed share of the good runs. None may be left: return None.",
        "Of the rest take the one that stops most failed runs.",
    )),
    Exercise("4.3", "saved_and_lost", _worth, (
        "The call at which the threshold is reached has been paid for. What comes after it is saved.",
        "Only failed runs save something; only good runs can be lost.",
        "tokens[threshold:] are the calls after the stop; a run reaches the threshold if it has at least so many calls.",
    )),
)  # fmt: skip
