"""Scores of detectors: "the score reaches t" is "with the threshold t the run would have been stopped"."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf, nextafter
from typing import Any, ClassVar

import pytest

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ModelCalled, QualityGiven, RegulatorDecided, ToolCalled, TurnCompleted, TurnStarted, Where
from noetic_nb.lab import datasets, first_stop, replay_regulator
from noetic_nb.lab._detection.detectors import Unscored, detectors_of
from noetic_nb.regulator import (
    CallBudget,
    CostCap,
    LowConfidence,
    ProceduralWarning,
    QualityDecline,
    Regulator,
    RepeatedFailure,
    ScopeDrift,
    ToolLoop,
)
from noetic_nb.regulator.decisions import CallBudgetExceeded, CircuitBreak
from noetic_nb.runs import Run
from tests.matrix import matrix, several

WARNINGS = (ScopeDrift, LowConfidence, ProceduralWarning)


class Story:
    """Turns of one or several threads, written event by event."""

    def __init__(self, run_id: str = "story", **meta: Any) -> None:
        self.run_id, self.meta, self.events, self.now = run_id, meta, [], 0.0
        self.turn = 0

    def _where(self) -> Where:
        return Where("t", f"e{self.turn}", self.turn)

    def start(self, query: str = "Where is order A17?") -> Story:
        self.turn += 1
        self.events.append(TurnStarted(self._where(), self._tick(), f"u{self.turn}", 0, 1, query))
        return self

    def think(self, tokens: int = 100, cost: float | None = 0.01, logprobs: Any = ()) -> Story:
        usage = {"input_tokens": 2 * tokens, "output_tokens": tokens, "cost": cost, "logprobs": logprobs}
        self.events.append(ModelCalled(self._where(), self._tick(), 0, "m", "agent", 500.0, "ok", **usage))
        return self

    def call(self, name: str = "search", args: Any = None, *, fails: bool = False) -> Story:
        status: Any = "error" if fails else "ok"
        error = "not found" if fails else None
        self.events.append(
            ToolCalled(self._where(), self._tick(), name, f"c{self.now}", args or {}, "out", 1.0, status, error)
        )
        return self

    def reply(self, text: str = "The order is on its way to you.") -> Story:
        self.events.append(
            TurnCompleted(self._where(), self._tick(), f"u{self.turn}", "success", 1.0, text, 0, 0, None, 1, 0)
        )
        return self

    def grade(self, quality: float) -> Story:
        self.events.append(QualityGiven(self._where(), self._tick(), quality, "user"))
        return self

    def _tick(self) -> float:
        self.now += 1_000.0
        return self.now

    def run(self) -> Run:
        return Run(self.run_id, meta=self.meta, events=self.events)


def looping() -> Run:
    return Story().start().call().call().call("pay").call().call().call().call().reply().run()


def failing() -> Run:
    story = Story().start().call(fails=True).call("pay", fails=True).call().reply()
    return story.start().call(fails=True).call(fails=True).call(fails=True).reply().run()


def declining() -> Run:
    story = Story()
    for quality in (0.9, 0.5, 0.3, 0.2, 0.1, 0.6):
        story.start().think().reply().grade(quality)
    return story.start().think().reply().run()


def graded_late() -> Run:
    story = Story()
    for quality in (0.9, 0.5, 0.1):
        story.start().think().reply().grade(quality)
    return story.run()


def recovering() -> Run:
    story = Story()
    for quality in (0.9, 0.5, 0.1):
        story.start().think().reply().grade(quality)
    # The better grade comes before the next turn, which is stopped nevertheless.
    return story.grade(1.0).start().think().reply().run()


def spending() -> Run:
    story = Story()
    for quality, tokens in ((0.4, 300), (0.2, 500), (0.1, 700), (0.9, 4_000), (1.0, 10)):
        story.start().think(tokens).call().reply().grade(quality)
    return story.start().think(5).reply().run()


def doubting() -> Run:
    unsure = ((" word", -5.5), (" word", -4.5), (" word", -0.1), (" word", -6.9), (" word", 0.0), (" word", -6.0))
    return Story().start().think(logprobs=unsure).reply().start().think(logprobs=unsure[3:]).reply().run()


def wandering() -> Run:
    story = Story().start("Where is order A17, the blue kettle?").reply("Order A17, your blue kettle, is in Ulm.")
    story.start("And when does the kettle arrive?").call().reply("Paris offers museums, gardens, markets, bridges.")
    return story.run()


STORIES = [looping, failing, declining, graded_late, recovering, spending, doubting, wandering]
PREDICATES = [
    ToolLoop(),
    ToolLoop(by="call", period=2, across_turns=True),
    RepeatedFailure(),
    RepeatedFailure(across_turns=False),
    CallBudget(),
    CallBudget(total=3, per_tool={"pay": 0}),
    CallBudget(per_tool={"search": 2, "pay": 3}),
    CostCap(),
    CostCap(window=1),
    CostCap(poor_mean=None),
    CostCap(tokens_out=None, usd=0.05, poor_mean=None),
    CostCap(tokens_out=9, wallclock_ms=2_000, poor_mean=None),
    QualityDecline(),
    QualityDecline(window=2, poor_mean=0.9),
    ScopeDrift(),
    ScopeDrift(min_words=6, min_earlier=1),
    LowConfidence(),
    LowConfidence(min_tokens=1),
    ProceduralWarning(),
]


def decides(run: Run, predicate: Any) -> bool:
    """Tell whether a regulator with only this predicate stops the run, or warns."""
    replayed = replay_regulator(run, Regulator.for_user("calibrated").with_predicates(predicate))
    if isinstance(predicate, WARNINGS):
        return any(event.decision["kind"] != "continue" for event in replayed.select(RegulatorDecided))
    return first_stop(replayed) is not None


def scored(detecting: Any, runs: list[Run]) -> list[tuple[Run, float]]:
    """Return the runs that have a score, with the score."""
    found = []
    for run in runs:
        with suppress(Unscored):
            found.append((run, detecting.score(run)))
    return found


def settings_of(predicate: Any) -> Iterator[tuple[float, Any]]:
    """Yield thresholds with their predicate, made from scores and by hand."""
    match predicate:
        case CallBudget(total=None, per_tool=limits) if limits:
            for total in range(9):
                yield total + 1, replace(predicate, per_tool={**limits, "search": total})
        case CallBudget():
            for total in range(9):
                yield total + 1, replace(predicate, total=total)
        case ToolLoop():
            for threshold in range(2, 7):
                yield threshold, replace(predicate, threshold=threshold)
        case RepeatedFailure():
            for threshold in range(1, 7):
                yield threshold, replace(predicate, threshold=threshold)
        case CostCap(tokens_out=None):
            for usd in (0.005, 0.01, 0.02, 0.05, 0.055, 1.0):
                yield usd, replace(predicate, usd=usd)
        case CostCap():
            for tokens in (0, 1, 100, 300, 301, 800, 1_500, 1_501, 5_500, 5_515, 5_516, 9_000):
                yield tokens, replace(predicate, tokens_out=tokens)
        case QualityDecline():
            for delta in (0.0, 0.05, 0.1, 0.19, 0.2, 0.3, 0.4, 0.45, 0.6, 0.8, 1.0):
                yield delta, replace(predicate, min_delta=delta)
        case LowConfidence():
            for threshold in (0.0, 0.01, 0.02, 0.1, 0.2, 0.3, 0.45, 0.99, 1.0):
                # It fires below its threshold, so the lowest firing score is the next one above it, mirrored.
                yield -nextafter(threshold, -inf), replace(predicate, threshold=threshold)
        case ScopeDrift():
            for threshold in (0.0, 0.2, 0.5, 0.7, 0.9, 1.0):
                yield threshold, replace(predicate, threshold=threshold)
        case ProceduralWarning():
            for least in (1, 2, 3):
                yield least, replace(predicate, min_corrections=least)


@matrix("predicate", PREDICATES, keep=10, ids=lambda predicate: predicate.kind)
def test_a_score_that_reaches_the_threshold_is_a_run_that_is_stopped(predicate: Any) -> None:
    (detecting,) = detectors_of(predicate)
    scores = scored(detecting, [story() for story in STORIES])

    assert scores
    for run, score in scores:
        for threshold, changed in settings_of(predicate):
            assert (score >= threshold) == decides(run, changed), (run, score, threshold)


@matrix("predicate", PREDICATES, keep=10, ids=lambda predicate: predicate.kind)
def test_a_threshold_taken_from_scores_gives_back_the_predicate_that_stops_the_same_runs(predicate: Any) -> None:
    (detecting,) = detectors_of(predicate)
    scores = scored(detecting, [*(story() for story in STORIES), *datasets.airline(several(4, 8))])

    for threshold in {score for _, score in scores if abs(score) < inf}:
        (changed,) = detecting.regulator(threshold).settings.predicates
        for run, score in scores:
            assert (score >= threshold) == decides(run, changed), (run, score, threshold)


@pytest.mark.parametrize("predicate", [ToolLoop(), CallBudget(), RepeatedFailure(), CostCap(poor_mean=None)], ids=repr)
def test_each_height_is_reached_where_a_replay_stops_first(predicate: Any) -> None:
    (detecting,) = detectors_of(predicate)
    seen = 0
    for run, _ in scored(detecting, [looping(), failing(), spending(), *datasets.airline(several(4, 8))]):
        for seq, score in detecting.trace(run):
            replayed = replay_regulator(run, detecting.regulator(score))
            stopped_at = first_stop(replayed)
            assert stopped_at is not None
            assert replayed.events[stopped_at.position].t_ms == run.events[seq].t_ms
            seen += 1
    assert seen > 2


def test_a_late_grade_counts_only_where_another_turn_could_have_been_stopped() -> None:
    (detecting,) = detectors_of(QualityDecline())

    assert detecting.score(graded_late()) == -inf
    assert detecting.score(declining()) == pytest.approx(0.3)


def test_another_limit_that_is_exceeded_stops_at_every_threshold() -> None:
    (detecting,) = detectors_of(CallBudget(total=100, per_tool={"pay": 0}))

    assert detecting.score(looping()) == inf
    assert detecting.score(Story().start().call().reply().run()) == 1


@pytest.mark.parametrize(
    ("predicate", "run", "why"),
    [
        (CostCap(tokens_out=None, usd=1.0), Story().start().think(cost=None).reply().run(), "price"),
        (CostCap(), Story().start().think(0).reply().run(), "usage"),
        (CostCap(), Story().start().call().reply().run(), "no model call"),
        (LowConfidence(), Story().start().think().reply().run(), "no log-probabilities"),
        (ToolLoop(), Story(dropped=[{"thread_id": "t", "first": 0, "last": 3}]).start().call().run(), "dropped"),
        (lambda run: float("nan"), looping(), "NaN"),
        (lambda run: 1 / 0, looping(), "ZeroDivisionError"),
        (lambda run: "3", looping(), "must return a number"),
        (lambda run: None, looping(), "TypeError"),
    ],
)
def test_what_is_not_known_is_no_score(predicate: Any, run: Run, why: str) -> None:
    (detecting,) = detectors_of(predicate)

    with pytest.raises(Unscored, match=why):
        detecting.score(run)


@dataclass(frozen=True)
class TooManyPayments:
    kind: ClassVar[str] = "payments"
    name: str = "payments"
    fails: bool = False

    def check(self, evidence: Any, /) -> Any:
        if self.fails:
            raise LookupError("no evidence")
        paid = evidence.call_counts.get("pay", 0)
        return CircuitBreak(CallBudgetExceeded("pay", paid, 0), "Stop.") if paid else None

    def explain(self, evidence: Any, /) -> Any:
        raise NotImplementedError


def test_a_predicate_of_ones_own_stops_or_does_not() -> None:
    (detecting,) = detectors_of(TooManyPayments())

    assert detecting.name == "payments"
    assert detecting.score(looping()) == 1.0
    assert detecting.trace(looping())[0].seq == 3
    assert detecting.score(spending()) == -inf
    assert detecting.regulator(1.0).settings.predicates == (TooManyPayments(),)


def test_a_predicate_that_raises_gives_no_score() -> None:
    (detecting,) = detectors_of(TooManyPayments(fails=True))

    with pytest.raises(Unscored, match="LookupError: no evidence"):
        detecting.score(looping())


def test_a_regulator_stops_or_does_not() -> None:
    (detecting,) = detectors_of(Regulator.for_user("ann").with_predicates(ToolLoop(threshold=4)))

    assert detecting.name == "regulator"
    assert [detecting.score(run) for run in (looping(), failing())] == [1.0, -inf]
    assert looping().events[detecting.trace(looping())[0].seq].name == "search"


def test_a_function_is_asked_about_the_run_so_far() -> None:
    (detecting,) = detectors_of({"calls": lambda run: len(run.select(ToolCalled))})

    trace = detecting.trace(failing())

    assert [score for _, score in trace] == [1, 2, 3, 4, 5, 6]
    assert all(isinstance(failing().events[seq], ToolCalled) for seq, _ in trace)
    with pytest.raises(NoeticConfigError) as caught:
        detecting.regulator(3.0)
    assert caught.value.code == "NOT_A_PREDICATE"


@pytest.mark.parametrize("given", [3, "tool_loop", None, ToolLoop, {}, {"a": 3}, {1: ToolLoop()}, {"a": ToolLoop}])
def test_what_is_no_detector_is_refused(given: Any) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        detectors_of(given)
    assert caught.value.code == "INVALID_DETECTOR"
