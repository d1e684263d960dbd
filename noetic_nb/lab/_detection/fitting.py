"""Thresholds fitted on some tasks and reported on others, and on unseen domains.

Rates and areas of many bootstrap samples of whole groups are computed at once, as arrays. A sample is a row of weights:
how often each run was drawn. Nothing is refitted per sample.

References
----------
.. [1] Hanley, J. A., and McNeil, B. J. (1982). The meaning and use of the area under a receiver operating characteristic (ROC)
   curve. Radiology 143, 29-36.
.. [2] Westfall, P. H., and Young, S. S. (1993). Resampling-based multiple testing. Wiley.
.. [3] Field, C. A., and Welsh, A. H. (2007). Bootstrapping clustered data. JRSS B 69, 369-390.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from math import nan
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noetic_nb._core.long_work import Work
from noetic_nb.lab._detection.calibration import CHANCE, SPLITS
from noetic_nb.lab._statistics.intervals import CONFIDENCE, Cluster, counted, student

Floats: TypeAlias = NDArray[np.float64]
Booleans: TypeAlias = NDArray[np.bool_]

_TAIL = (1 - CONFIDENCE) / 2


def weights_of(groups: Sequence[Hashable], samples: int, seed: int) -> Floats:
    """Return how often each run is in each sample, shape (samples, runs); whole groups are drawn with replacement [3]_."""
    group_of_run, rng = _numbers(groups), random.Random(int(seed))
    count = int(group_of_run.max(initial=-1)) + 1
    drawn = np.zeros((samples, count))
    for row in drawn:
        row += np.bincount(rng.choices(range(count), k=count), minlength=count)
    return drawn[:, group_of_run]


def areas(scores: Floats, failed: Booleans, weights: Floats, strata: Sequence[Hashable] | None = None) -> Floats:
    """Return the area under the ROC curve of each sample [1]_, or NaN; with `strata`, over pairs within a stratum."""
    won = np.zeros(len(weights))
    pairs = np.zeros(len(weights))
    labels = np.zeros(len(scores), dtype=int) if strata is None else _numbers(strata)
    for label in np.unique(labels):
        place = np.flatnonzero(labels == label)
        order = place[np.argsort(scores[place], kind="stable")]
        _, starts = np.unique(scores[order], return_index=True)
        of_failed = np.add.reduceat(weights[:, order] * failed[order], starts, axis=1)
        of_good = np.add.reduceat(weights[:, order] * ~failed[order], starts, axis=1)
        below = np.cumsum(of_good, axis=1) - of_good
        won += (of_failed * (below + of_good / 2)).sum(axis=1)
        pairs += of_failed.sum(axis=1) * of_good.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(pairs > 0, won / pairs, nan)


def area(scores: Floats, failed: Booleans, strata: Sequence[Hashable] | None = None) -> float:
    return float(areas(scores, failed, np.ones((1, len(scores))), strata)[0]) if len(scores) else nan


def _numbers(labels: Sequence[Hashable]) -> NDArray[np.int64]:
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(label, len(known)) for label in labels], dtype=np.int64)


def percentiles(values: Floats) -> tuple[float, float]:
    """Return the 95 % percentile interval of a statistic; NaN if over half of the samples have no value."""
    known = values[~np.isnan(values)]
    if len(known) <= len(values) / 2:
        return nan, nan
    low, high = np.quantile(known, [_TAIL, 1 - _TAIL])
    return float(low), float(high)


def share(hits: Booleans, among: Booleans, clusters: Sequence[Cluster]) -> tuple[float, float, float]:
    """Return a proportion of some runs, with its interval."""
    count = counted(hits[among].astype(int).tolist(), list(compress(clusters, among)))
    return count.rate, count.low, count.high


def corrected_ends(values: Floats, samples: Floats, tasks: int) -> tuple[Floats, Floats]:
    """Return the ends of simultaneous intervals of several areas; `samples` has a row per sample, a column per area.

    In each sample, the largest deviation of any area counts; its 95th percentile is the margin of every area
    (single-step maxT [2]_, symmetric, so that an area near 1, whose samples rarely rise, is not overrated). With few
    tasks the margin grows as Student's t does. An interval is never shorter than the area's own, and is NaN for an area
    that over half of the samples lack.
    """
    usable = np.isnan(samples).mean(axis=0) < 0.5
    if not usable.any():
        nothing = np.full(len(values), nan)
        return nothing, nothing
    strays = np.nan_to_num(np.abs(samples[:, usable] - values[usable])).max(axis=1)
    margin = float(np.quantile(strays, CONFIDENCE)) * student(tasks - 1) / student(100_000)
    lows, highs = np.array([percentiles(column) for column in samples.T]).T
    return (
        np.where(usable, np.minimum(lows, values - margin), nan),
        np.where(usable, np.maximum(highs, values + margin), nan),
    )


IN_SAMPLE: Final = "in sample"
HELD_OUT: Final = "held out"
LEFT_OUT: Final = "domain left out"
ALL: Final = "all"
SPLIT_SAMPLES: Final = 200


class Evidence(NamedTuple):
    """The area under a detector's ROC curve, its corrected 95 % interval and its standard error."""

    auc: float
    low: float
    high: float
    error: float


@dataclass(frozen=True)
class Scored:
    """A detector or baseline on some runs: `scores` maps the runs to fit on to the score of every run, or NaN."""

    name: str
    baseline: bool
    scores: Callable[[Booleans], Floats]


def folds_of(
    groups: Sequence[Hashable], kinds: Sequence[Hashable], failed: Sequence[bool], folds: int, seed: int
) -> list[int]:
    """Return the fold of each run; groups stay whole, and each fold has a share of every kind and of failures."""
    strata: defaultdict[tuple[Any, bool], list[Hashable]] = defaultdict(list)
    kind_of: dict[Hashable, Hashable] = {}
    fails: set[Hashable] = set()
    for group, kind, has_failed in zip(groups, kinds, failed, strict=True):
        kind_of.setdefault(group, kind)
        if has_failed:
            fails.add(group)
    for group, kind in kind_of.items():
        strata[kind, group in fails].append(group)
    rng, place, fold_of = random.Random(int(seed)), 0, {}
    for members in strata.values():
        rng.shuffle(members)
        for group in members:
            # Dealt out in turn over all strata, so that folds differ by at most one group.
            fold_of[group] = place % folds
            place += 1
    return [fold_of[group] for group in groups]


def fitted_threshold(scores: Floats, failed: Booleans, max_stopped_good: float) -> float | None:
    """Return the highest threshold that stops the most failed runs without exceeding `max_stopped_good`, or None."""
    candidates, hits, misses = _stopped(scores, failed)
    allowed = misses / max(int((~failed).sum()), 1) <= max_stopped_good
    best = hits[allowed].max(initial=0)
    return float(candidates[allowed & (hits == best)].max()) if best else None


def _stopped(scores: Floats, failed: Booleans) -> tuple[Floats, Floats, Floats]:
    """Return every threshold, ascending, with the failed and the good runs that reach it."""
    thresholds = np.unique(scores[np.isfinite(scores)])
    counts = [
        len(some) - np.searchsorted(np.sort(some), thresholds, side="left")
        for some in (scores[failed], scores[~failed])
    ]
    return thresholds, counts[0].astype(np.float64), counts[1].astype(np.float64)


def curve_of(scores: Floats, failed: Booleans) -> dict[str, list[float]]:
    """Return the effect of each threshold: shares of failed and good runs that reach it, and the precision."""
    thresholds, hits, misses = (column[::-1] for column in _stopped(scores, failed))
    return {
        "threshold": thresholds.tolist(),
        "stopped_failed": (hits / max(int(failed.sum()), 1)).tolist(),
        "stopped_good": (misses / max(int((~failed).sum()), 1)).tolist(),
        "precision": (hits / np.maximum(hits + misses, 1)).tolist(),
    }


class Fitting:
    """Runs with their labels, tasks (`clusters`) and domains, on which detectors are fitted and reported."""

    def __init__(
        self,
        failed: Booleans,
        clusters: Sequence[Cluster],
        domains: Sequence[str],
        *,
        max_stopped_good: float,
        samples: int,
        seed: int,
    ) -> None:
        self.failed, self.clusters, self.domains = failed, clusters, np.asarray(domains)
        self.groups: Sequence[Hashable] = [cluster.task for cluster in clusters]
        self.max_stopped_good, self.samples, self.seed = max_stopped_good, samples, seed
        self.fit: Booleans = np.asarray(folds_of(self.groups, domains, failed.tolist(), 2, seed)) == 0
        self._weights: dict[bytes, Floats] = {}
        self._within: dict[tuple[str, bytes, bytes], tuple[float, Floats]] = {}

    def table(self, detectors: Sequence[Scored], work: Work) -> list[dict[str, Any]]:
        """Return the rows of every detector, corrected for the number of detectors other than baselines."""
        baselines = [detector for detector in detectors if detector.baseline]
        rows = [row for detector in work.each(detectors) for row in self._rows(detector, baselines)]
        tried = [detector for detector in detectors if not detector.baseline]
        found = self.evidence(tried)
        for row in rows:
            is_judged = row["split"] == HELD_OUT and row["domain"] == ALL and not row["baseline"]
            row["auc_within_corrected"] = found[row["detector"]].low if is_judged else nan
        return rows

    def threshold_of(self, detector: Scored) -> float | None:
        return self._fitted(detector.scores(self.fit), self.fit)

    def curve_of(self, detector: Scored) -> dict[str, list[float]]:
        """Return the curve on held-out tasks."""
        scores = detector.scores(self.fit)
        known = ~self.fit & ~np.isnan(scores)
        return curve_of(scores[known], self.failed[known])

    def _fitted(self, scores: Floats, where: Booleans) -> float | None:
        known = where & ~np.isnan(scores)
        return fitted_threshold(scores[known], self.failed[known], self.max_stopped_good)

    def _rows(self, detector: Scored, baselines: Sequence[Scored]) -> Iterator[dict[str, Any]]:
        names = sorted(set(self.domains.tolist()))
        places = [(self.fit, self.fit, ALL, IN_SAMPLE), (self.fit, ~self.fit, ALL, HELD_OUT)]
        places += [(self.fit, ~self.fit & (self.domains == name), name, HELD_OUT) for name in names]
        if len(names) > 1:
            places += [(self.domains != name, self.domains == name, name, LEFT_OUT) for name in names]
        for fitted, where, domain, split in places:
            scores = detector.scores(fitted)
            threshold = self._fitted(scores, fitted)
            yield {
                **self._row(detector, fitted, threshold, where, domain, split),
                **self._gain(detector, [] if detector.baseline else baselines, fitted, where),
            }

    def _gain(self, detector: Scored, baselines: Sequence[Scored], fitted: Booleans, where: Booleans) -> dict[str, Any]:
        """Return by how much the area exceeds that of the best baseline on the runs that both can score."""
        scored = where & ~np.isnan(detector.scores(fitted))
        best, found = "", (nan, np.full(self.samples, nan))
        highest = -1.0
        for each in baselines:
            known = scored & ~np.isnan(each.scores(fitted))
            value, drawn = self._area_within(each, fitted, known)
            if value > highest:
                own, own_drawn = self._area_within(detector, fitted, known)
                best, highest, found = each.name, value, (own - value, own_drawn - drawn)
        low, high = percentiles(found[1])
        return {"best_baseline": best, "gain": found[0], "gain_low": low, "gain_high": high}

    def _area_within(self, detector: Scored, fitted: Booleans, known: Booleans) -> tuple[float, Floats]:
        """Return the area over pairs within a domain, and that of each sample; the same runs use the same samples."""
        key = detector.name, fitted.tobytes(), known.tobytes()
        if key not in self._within:
            self._within[key] = self._areas(detector.scores(fitted)[known], known, self.domains[known].tolist())
        return self._within[key]

    def _areas(self, scores: Floats, known: Booleans, strata: Sequence[str] | None = None) -> tuple[float, Floats]:
        """Return the area of some runs, and that of each sample; NaN for samples of runs of one task."""
        failed, drawn = self.failed[known], np.full(self.samples, nan)
        if len(set(compress(self.groups, known))) > 1:
            key = known.tobytes()
            if key not in self._weights:
                self._weights[key] = weights_of(list(compress(self.groups, known)), self.samples, self.seed)
            drawn = areas(scores, failed, self._weights[key], strata)
        return area(scores, failed, strata), drawn

    def _row(
        self, detector: Scored, fitted: Booleans, threshold: float | None, where: Booleans, domain: str, split: str
    ) -> dict[str, Any]:
        scores = detector.scores(fitted)
        known = where & ~np.isnan(scores)
        scores, failed = scores[known], self.failed[known]
        clusters = list(compress(self.clusters, known))
        row: dict[str, Any] = {
            "detector": detector.name,
            "baseline": detector.baseline,
            "domain": domain,
            "split": split,
            "runs": int(known.sum()),
            "failed": int(failed.sum()),
            "not_scored": int((where & ~known).sum()),
            "threshold": nan if threshold is None else threshold,
        }
        # Without a threshold nothing is stopped, so there is no precision.
        stopped = np.zeros(len(scores), dtype=bool) if threshold is None else scores >= threshold
        everything = np.ones(len(scores), dtype=bool)
        for name, hits, among in (
            ("stopped_failed", stopped, failed),
            ("stopped_good", stopped, ~failed),
            ("precision", failed, stopped),
            ("base_rate", failed, everything),
        ):
            row[name], row[f"{name}_low"], row[f"{name}_high"] = share(hits, among, clusters)
        row |= {f"recall{end}": row[f"stopped_failed{end}"] for end in ("", "_low", "_high")}
        within = self._area_within(detector, fitted, known)
        # Within one domain all pairs count.
        whole = within
        if len(set(self.domains[known].tolist())) > 1:
            whole = self._areas(scores, known)
        for name, (value, drawn) in (("auc", whole), ("auc_within", within)):
            row[name] = value
            row[f"{name}_low"], row[f"{name}_high"] = percentiles(drawn)
        return row

    def verdicts(self, detectors: Sequence[Scored]) -> list[bool]:
        """Return for each of 20 splits whether its held-out half alone would have turned a detector on."""
        found = []
        for split in range(SPLITS):
            halves = folds_of(self.groups, self.domains.tolist(), self.failed.tolist(), 2, self.seed * SPLITS + split)
            fit = np.asarray(halves) == 0
            evidence = self.evidence(detectors, ~fit, SPLIT_SAMPLES)
            found.append(
                any(
                    evidence[each.name].low > CHANCE and self._fitted(each.scores(fit), fit) is not None
                    for each in detectors
                )
            )
        return found

    def evidence(
        self, detectors: Sequence[Scored], where: Booleans | None = None, samples: int | None = None
    ) -> dict[str, Evidence]:
        """Return the area of each detector over pairs within a domain, by default on all runs, with corrected ends."""
        where = np.ones(len(self.failed), dtype=bool) if where is None else where
        weights = np.zeros((0, int(where.sum())))
        tasks = len(set(compress(self.groups, where)))
        if tasks > 1:
            # Independent of the seed: the verdict must depend on the runs only.
            weights = weights_of(list(compress(self.groups, where)), samples or self.samples, seed=0)
        columns, values = [], []
        for detector in detectors:
            scores = detector.scores(self.fit)[where]
            known = ~np.isnan(scores)
            strata = self.domains[where][known].tolist()
            values.append(area(scores[known], self.failed[where][known], strata))
            columns.append(areas(scores[known], self.failed[where][known], weights[:, known], strata))
        if not len(weights):
            return {
                detector.name: Evidence(value, nan, nan, nan) for detector, value in zip(detectors, values, strict=True)
            }
        drawn = np.stack(columns, axis=1)
        lows, highs = corrected_ends(np.asarray(values), drawn, tasks)
        errors = [float(np.nanstd(column)) if not np.isnan(column).all() else nan for column in columns]
        rows = zip(values, lows.tolist(), highs.tolist(), errors, strict=True)
        return {detector.name: Evidence(*row) for detector, row in zip(detectors, rows, strict=True)}
