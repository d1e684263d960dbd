"""Areas, shares and intervals over samples, compared with scikit-learn, and the split by task."""

from __future__ import annotations

from math import isnan
from typing import Any

import numpy as np
import pytest

from noetic_nb.lab._detection.fitting import (
    area,
    areas,
    corrected_ends,
    curve_of,
    fitted_threshold,
    folds_of,
    percentiles,
    share,
    weights_of,
)
from noetic_nb.lab._statistics.intervals import Cluster, counted


def metrics() -> Any:
    """Return scikit-learn's function; imported by the test, not by every process that collects the suite."""
    from sklearn import metrics

    return metrics


def drawn(runs: int = 60, seed: int = 3) -> tuple[np.ndarray, np.ndarray, list[int]]:
    rng = np.random.default_rng(seed)
    failed = rng.random(runs) < 0.4
    return np.round(rng.normal(size=runs) + failed, 1), failed, rng.integers(0, 20, runs).tolist()


def test_the_area_is_that_of_scikit_learn_in_every_sample() -> None:
    scores, failed, groups = drawn()
    weights = weights_of(groups, 50, seed=1)

    found = areas(scores, failed, weights)

    for row, ours in zip(weights, found, strict=True):
        sample = np.repeat(np.arange(60), row.astype(int))
        assert ours == pytest.approx(metrics().roc_auc_score(failed[sample], scores[sample]))
    assert area(scores, failed) == pytest.approx(metrics().roc_auc_score(failed, scores))


def test_an_area_within_domains_does_not_count_pairs_across_them() -> None:
    scores, failed, _ = drawn()
    domains = ["a"] * 30 + ["b"] * 30
    moved = np.where(np.arange(60) < 30, scores, scores + 100)
    parts = [(slice(0, 30)), slice(30, 60)]
    pairs = [failed[part].sum() * (~failed[part]).sum() for part in parts]
    expected = np.average([metrics().roc_auc_score(failed[part], scores[part]) for part in parts], weights=pairs)

    assert area(scores, failed, domains) == pytest.approx(expected)
    assert area(moved, failed, domains) == pytest.approx(expected)
    assert area(moved, failed) != pytest.approx(expected)


def test_scores_that_no_threshold_reaches_and_that_every_one_does_are_ranked() -> None:
    scores = np.array([-np.inf, -np.inf, 1.0, np.inf])

    assert area(scores, np.array([False, True, False, True])) == pytest.approx(2.5 / 4)
    assert isnan(area(scores, np.array([True] * 4)))
    assert isnan(area(np.array([]), np.array([], dtype=bool)))


def test_whole_groups_are_drawn() -> None:
    groups = ["a", "a", "a", "b", "c", "c"]
    weights = weights_of(groups, 50, seed=3)

    assert (weights[:, 0] == weights[:, 1]).all()
    assert (weights[:, 4] == weights[:, 5]).all()
    assert weights[:, [0, 3, 4]].sum(axis=1).tolist() == [3.0] * 50


def test_a_share_of_some_runs_is_counted_over_their_tasks() -> None:
    scores, failed, groups = drawn()
    clusters, stopped = [Cluster(group) for group in groups], scores > 0.5
    some = [at for at in range(60) if failed[at]]

    rate, low, high = share(stopped, failed, clusters)

    expected = counted([int(stopped[at]) for at in some], [clusters[at] for at in some])
    assert (rate, low, high) == (expected.rate, expected.low, expected.high)
    assert all(map(isnan, share(stopped, np.zeros(60, dtype=bool), clusters)))


def test_more_than_half_of_the_samples_must_have_a_value() -> None:
    assert all(map(isnan, percentiles(np.array([1.0, np.nan, np.nan]))))
    assert percentiles(np.array([1.0, 1.0, np.nan])) == (1.0, 1.0)


def test_ends_of_several_hold_together_and_are_never_above_their_own() -> None:
    rng = np.random.default_rng(0)
    samples = 0.7 + 0.05 * rng.normal(size=(4_000, 8))
    values = np.full(8, 0.7)

    ends, highs = corrected_ends(values, samples, 100_001)

    assert (samples <= highs).all(axis=1).mean() == pytest.approx(0.975, abs=0.01)
    assert (samples >= ends).all(axis=1).mean() == pytest.approx(0.975, abs=0.01)
    assert (ends < np.quantile(samples, 0.025, axis=0)).all()
    assert (corrected_ends(values, samples, 8)[0] < ends).all()
    # Eight equal detectors count as one.
    one = samples[:, :1]
    assert corrected_ends(values, np.repeat(one, 8, axis=1), 100_001)[0] == pytest.approx(
        np.repeat(corrected_ends(values[:1], one, 100_001)[0], 8)
    )
    skewed = np.minimum(one, 0.71)
    assert corrected_ends(values[:1], skewed, 100_001)[0][0] <= np.quantile(skewed, 0.025)


def test_an_area_that_most_samples_lack_has_no_lower_end() -> None:
    ends, _ = corrected_ends(np.array([1.0, 2.0]), np.array([[1.0, np.nan]] * 5 + [[2.0, 3.0]]), 20)

    assert isnan(ends[1])
    assert ends[0] <= 1.0


def test_folds_never_divide_a_group_and_share_out_failures() -> None:
    rng = np.random.default_rng(1)
    groups = rng.integers(0, 40, 200).tolist()
    kinds = ["x" if group < 20 else "y" for group in groups]
    failed = [group % 4 == 0 for group in groups]

    folds = folds_of(groups, kinds, failed, 2, seed=5)

    fold_of = dict(zip(groups, folds, strict=True))
    assert [fold_of[group] for group in groups] == folds
    for kind in "xy":
        for fails in (True, False):
            stratum = {g for g, k, f in zip(groups, kinds, failed, strict=True) if k == kind and f == fails}
            assert abs(sum(fold_of[group] for group in stratum) - len(stratum) / 2) <= 1
    assert folds == folds_of(groups, kinds, failed, 2, seed=5)
    assert folds != folds_of(groups, kinds, failed, 2, seed=6)


@pytest.mark.parametrize("most", [0.03, 0.05, 0.3, 1.0])
def test_no_other_threshold_stops_more_failed_runs_and_as_few_good_ones(most: float) -> None:
    scores, failed, _ = drawn()
    scores[::7] = -np.inf

    found = fitted_threshold(scores, failed, most)

    def shares(threshold: float) -> tuple[float, float]:
        return (scores >= threshold)[failed].mean(), (scores >= threshold)[~failed].mean()

    allowed = {t: shares(t) for t in set(scores[np.isfinite(scores)]) if shares(t)[1] <= most}
    assert found is not None
    assert shares(found)[0] == max(hit for hit, _ in allowed.values())
    assert found == max(t for t, (hit, _) in allowed.items() if hit == shares(found)[0])


def test_there_is_no_threshold_where_none_stops_a_failed_run() -> None:
    failed = np.array([True, False, True, False])

    assert fitted_threshold(np.full(4, -np.inf), failed, 1.0) is None
    assert fitted_threshold(np.array([1.0, 2.0, 1.0, 3.0]), failed, 0.4) is None


def test_a_curve_has_the_precision_and_recall_of_scikit_learn() -> None:
    scores, failed, _ = drawn()

    curve = curve_of(scores, failed)

    recalls = np.diff([0.0, *curve["stopped_failed"]])
    assert float(np.dot(recalls, curve["precision"])) == pytest.approx(
        metrics().average_precision_score(failed, scores)
    )
    steps = np.diff([0.0, *curve["stopped_good"]])
    heights = np.array([0.0, *curve["stopped_failed"]])
    assert float(np.dot(steps, (heights[1:] + heights[:-1]) / 2)) == pytest.approx(
        metrics().roc_auc_score(failed, scores)
    )
