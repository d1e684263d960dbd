"""Labels, groups, counts and intervals, and their invalid inputs."""

from __future__ import annotations

from math import isnan
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from benchmarks import coverage
from noetic_nb import lab
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._statistics.intervals import Cluster, Count, counted, mean_interval, student
from noetic_nb.lab._statistics.labels import clusters_of, groups_of, labels_of, runs_in
from noetic_nb.runs import Run


def _run(name: str = "r", **meta: object) -> Run:
    return Run(name, meta=meta)


def _raises(run: Run) -> bool:
    raise ZeroDivisionError("by zero")


def _of(n: int, of: int) -> Count:
    """Count independent runs."""
    return counted([1] * n + [0] * (of - n), [Cluster(at) for at in range(of)])


@pytest.mark.parametrize("of", [7, 20, 100, 1_365])
def test_a_count_of_independent_runs_has_the_interval_of_wilson_with_students_quantile(of: int) -> None:
    from scipy.stats import binomtest, t  # the import takes half a second, which other tests need not wait for

    level = 2 * stats_cdf(t.ppf(0.975, of - 1)) - 1
    for n in {0, 1, of // 3, of - 1, of}:
        ours = _of(n, of)
        theirs = binomtest(n, of).proportion_ci(level, "wilson")
        assert ours.low == pytest.approx(theirs.low, abs=1e-6)
        assert ours.high == pytest.approx(theirs.high, abs=1e-6)
        assert ours.low <= ours.rate <= ours.high
        assert ours.clusters == of


def stats_cdf(value: float) -> float:
    return NormalDist().cdf(value)


def test_the_quantile_is_that_of_scipy() -> None:
    from scipy.stats import t

    for freedom in (1, 2, 3, 4, 7, 30, 151, 1_000):
        assert student(freedom) == pytest.approx(t.ppf(0.975, freedom), rel=1e-6)


def test_a_count_of_nothing_has_no_rate() -> None:
    assert isnan(counted([], []).rate)
    assert repr(counted([], [])) == "0/0"


def test_runs_of_one_task_count_for_less() -> None:
    hits = [1] * 30 + [0] * 10
    by_run = counted(hits, [Cluster(at) for at in range(40)])
    by_task = counted(hits, [Cluster(at // 4) for at in range(40)])
    assert (by_task.n, by_task.of, by_task.rate) == (by_run.n, by_run.of, by_run.rate)
    assert by_task.high - by_task.low > 1.5 * (by_run.high - by_run.low)
    assert (by_run.clusters, by_task.clusters) == (40, 10)


def test_where_all_agree_tasks_are_counted_and_not_runs() -> None:
    assert counted([0] * 144, [Cluster(at % 16) for at in range(144)])[3:5] == pytest.approx(_of(0, 16)[3:5])


def test_crossed_tasks_are_counted_both_ways() -> None:
    grid = [(user, injection) for user in range(16) for injection in range(9)]
    hits = [int(injection < 7) for _, injection in grid]  # the injection decides
    two_way = counted(hits, [Cluster(*cell) for cell in grid])
    one_way = counted(hits, [Cluster(user) for user, _ in grid])
    assert two_way.clusters == 9
    assert one_way.clusters == 16
    assert two_way.low < 0.5 < one_way.low
    swapped = counted(hits, [Cluster(injection, user) for user, injection in grid])
    assert swapped[3:5] == pytest.approx(two_way[3:5])


def test_a_count_of_unknown_tasks_has_no_interval_and_names_the_way_on() -> None:
    count = counted([1, 0, 1], [Cluster(1), None, Cluster(2)])
    assert (count.n, count.of, count.clusters) == (2, 3, None)
    assert isnan(count.low)
    assert isnan(count.high)
    assert 'pass by="run" or a function of a run' in repr(count)
    assert repr(counted([1, 1], [Cluster(1), Cluster(1)])) == "2/2 (100.0 %, no interval: one cluster)"


def test_few_clusters_are_marked_also_where_one_has_nearly_all_runs() -> None:
    assert "only 6 clusters" in repr(counted([1, 0] * 3, [Cluster(at) for at in range(6)]))
    assert "only" not in repr(counted([1, 0] * 6, [Cluster(at) for at in range(12)]))
    heavy = [Cluster(0)] * 90 + [Cluster(at) for at in range(1, 11)]
    count = counted([1, 0] * 50, heavy)
    assert count.clusters is not None
    assert count.clusters == 2
    assert "only" in repr(count)


@pytest.mark.parametrize("values", [[3.0, 1.5, 2.0, 8.0, 2.5, 0.0], [1, 1, 0, 1, 0, 0]])
def test_a_mean_has_the_interval_of_its_tasks(values: list[float]) -> None:
    clusters: list[Cluster | None] = [Cluster(at // 2) for at in range(6)]
    low, high = mean_interval(values, clusters)
    assert low < sum(values) / 6 < high
    wide = mean_interval(values, clusters, widening=2)
    assert wide[0] <= low
    assert wide[1] >= high
    assert all(map(isnan, mean_interval(values, [*clusters[:5], None])))
    assert all(map(isnan, mean_interval(values, [Cluster(0)] * 6)))


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    found = {design: coverage.one_way(design, 250) for design in coverage.DESIGNS}
    found |= {design: coverage.crossed(design, 120) for design in coverage.CROSSED[:2]}
    assert all(0.9 <= share <= 1 for share in found.values()), found
    assert 0.93 <= sum(found.values()) / len(found) <= 0.985, found


def test_the_best_of_thirty_equal_configurations_is_covered_once_it_is_corrected() -> None:
    assert coverage.selected(60, corrected=False) < 0.7
    assert coverage.selected(60, corrected=True) >= 0.93
    assert coverage.selected(60, corrected=True, shared=0.8) >= 0.9


@pytest.mark.parametrize(
    ("share", "difference", "tasks", "trials", "icc"), [(0.5, 0.1, 50, 4, 0.2), (0.3, 0.15, 30, 4, 0.4)]
)
def test_an_experiment_shows_a_difference_as_often_as_was_planned(
    share: float, difference: float, tasks: int, trials: int, icc: float
) -> None:
    rng, shown = np.random.default_rng(0), 0
    clusters: list[Cluster | None] = [Cluster(task) for task in range(tasks) for _ in range(trials)]
    for _ in range(300):
        hard = rng.random((tasks, 1))  # a task is equally hard for both agents
        sides = [_outcomes(one, icc, hard, trials, rng) for one in (share, share + difference)]
        low, high = mean_interval((sides[1] - sides[0]).ravel().tolist(), clusters)
        shown += not low <= 0 <= high
    planned = lab.power(difference, share=share, tasks=tasks, trials=trials, icc=icc)["power"][0]
    assert shown / 300 == pytest.approx(planned, abs=0.08)


def _outcomes(share: float, icc: float, hard: Any, trials: int, rng: Any) -> Any:
    from scipy.stats import beta

    chances = beta.ppf(hard, share * (1 - icc) / icc, (1 - share) * (1 - icc) / icc)
    return (rng.random((len(hard), trials)) < chances).astype(float)


def test_a_plan_names_the_smallest_difference_it_would_show() -> None:
    frame = lab.power(-0.1, share=0.5, tasks=[20, 50, 200], trials=(1, 4))
    assert frame["runs"].tolist() == [20, 80, 50, 200, 200, 800]
    assert frame["detectable"].is_unique
    for row in frame.itertuples():
        again = lab.power(-row.detectable, share=0.5, tasks=row.tasks, trials=row.trials)
        assert again["power"][0] == pytest.approx(0.8, abs=0.001)
    assert isnan(lab.power(0.01, share=0.98, tasks=3, trials=1)["detectable"][0])


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"difference": 0.6}, "INVALID_SHARE"),
        ({"difference": 0.0}, "INVALID_SHARE"),
        ({"difference": "x"}, "INVALID_SHARE"),
        ({"share": 1.5}, "INVALID_SHARE"),
        ({"icc": "x"}, "INVALID_SHARE"),
        ({"tasks": 1}, "INVALID_COUNT"),
        ({"trials": []}, "INVALID_COUNT"),
        ({"trials": [2, True]}, "INVALID_COUNT"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(given: dict[str, Any], code: str) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        lab.power(**{"difference": 0.1, "share": 0.5, "tasks": 10, "trials": 1, **given})
    assert caught.value.code == code


def test_labels_are_read_from_a_key_or_a_function() -> None:
    runs = [_run(outcome=True, reward=0.2), _run(outcome=None, reward=1.0)]
    assert labels_of(runs, "outcome") == [True, None]
    assert labels_of(runs, lambda run: np.bool_(run.meta["reward"] >= 1), both=True) == [False, True]


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


def test_attacked_runs_are_of_a_user_task_and_of_an_injection_task() -> None:
    runs = [_run(suite="s", task_id="u", injection_task="i"), _run(suite="s", task_id="u"), _run(suite="s")]
    attacked, alone, unknown = clusters_of(runs)
    assert attacked is not None
    assert alone is not None
    assert attacked.task == alone.task
    assert attacked.injection is not None
    assert alone.injection is None
    assert unknown is None


def test_each_run_may_be_a_task_of_its_own() -> None:
    assert len(set(groups_of([_run("a"), _run("a")], "run"))) == 2


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
