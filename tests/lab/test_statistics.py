"""Labels, groups, counts and intervals, with what may be wrong in them."""

from __future__ import annotations

import random
from math import isnan

import numpy
import pytest

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._statistics.intervals import counted, interval, resampled
from noetic_nb.lab._statistics.labels import groups_of, labels_of, runs_in
from noetic_nb.runs import Run


def _run(name: str = "r", **meta: object) -> Run:
    return Run(name, meta=meta)


def _raises(run: Run) -> bool:
    raise ZeroDivisionError("by zero")


@pytest.mark.parametrize("of", [1, 2, 7, 100, 1_365])
def test_a_count_has_the_interval_of_scipy(of: int) -> None:
    from scipy.stats import binomtest  # half a second, for whoever runs this

    for n in {0, 1, of // 3, of - 1, of}:
        ours = counted(n, of)
        theirs = binomtest(n, of).proportion_ci(0.95, "wilson")
        assert ours.low == pytest.approx(theirs.low, abs=1e-9)
        assert ours.high == pytest.approx(theirs.high, abs=1e-9)
        assert ours.low <= ours.rate <= ours.high


def test_a_count_of_nothing_has_no_rate() -> None:
    assert isnan(counted(0, 0).rate)
    assert repr(counted(0, 0)) == "0/0"
    assert repr(counted(3, 4)) == "3/4 (75.0 % [30.1, 95.4])"


def test_whole_groups_are_drawn() -> None:
    groups = ["a", "a", "a", "b", "c", "c"]
    for sample in resampled(groups, 50, seed=3):
        drawn = [groups[at] for at in sample]
        assert drawn.count("a") % 3 == 0
        assert drawn.count("c") % 2 == 0


def test_an_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng, hits = random.Random(5), 0
    for trial in range(200):
        tasks = [rng.gauss(0, 1) for _ in range(40)]
        groups = [task for task in range(40) for _ in range(3)]
        values = [tasks[task] for task in groups]  # runs of a task are alike: three values count as one
        low, high = interval(
            lambda places, values=values: sum(values[at] for at in places) / len(places),
            groups,
            samples=200,
            seed=trial,
        )
        hits += low <= 0 <= high
    assert 180 <= hits <= 198


def test_an_interval_of_one_group_is_not_a_number() -> None:
    assert all(map(isnan, interval(lambda places: 1.0, ["a", "a"])))


def test_an_interval_of_a_statistic_that_is_mostly_undefined_is_not_a_number() -> None:
    assert all(map(isnan, interval(lambda places: float("nan"), ["a", "b"], samples=20)))


def test_labels_are_read_from_a_key_or_a_function() -> None:
    runs = [_run(outcome=True, reward=0.2), _run(outcome=None, reward=1.0)]
    assert labels_of(runs, "outcome") == [True, None]
    assert labels_of(runs, lambda run: numpy.bool_(run.meta["reward"] >= 1), both=True) == [False, True]


@pytest.mark.parametrize(
    ("runs", "outcome", "code", "says"),
    [
        ([_run(), _run()], "outcome", "NO_LABELS", "None of the 2 runs"),
        ([_run(outcome=True), _run(outcome=True)], "outcome", "ONE_CLASS", "All labelled runs are good"),
        ([_run(outcome=1)], "outcome", "INVALID_OUTCOME", "neither True, False nor None"),
        ([_run("r7")], _raises, "INVALID_OUTCOME", "r7 raised ZeroDivisionError: by zero"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(runs: list[Run], outcome: object, code: str, says: str) -> None:
    with pytest.raises(NoeticConfigError, match=says) as caught:
        labels_of(runs, outcome, both=True)  # type: ignore[arg-type]
    assert caught.value.code == code


def test_tasks_of_two_domains_are_two_groups() -> None:
    first, second = groups_of([_run(domain="retail", task_id=1), _run(domain="telecom", task_id=1)])
    assert first != second


@pytest.mark.parametrize(
    ("by", "code"),
    [("task", "NO_TASK"), ("suite", "INVALID_GROUP"), (_raises, "INVALID_GROUP"), (lambda run: [], "INVALID_GROUP")],
)
def test_runs_that_cannot_be_grouped_are_refused(by: object, code: str) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        groups_of([_run()], by)  # type: ignore[arg-type]
    assert caught.value.code == code


@pytest.mark.parametrize(("runs", "code"), [([], "NO_RUNS"), ([3], "INVALID_RUN")])
def test_what_is_no_run_is_refused(runs: list[object], code: str) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        runs_in(runs)  # type: ignore[arg-type]
    assert caught.value.code == code
