"""Rates and areas of one set of scores over many samples of whole groups at once, as arrays.

A sample is a row of weights: how often each run was drawn. Nothing is fitted again in a sample.

References
----------
.. [1] Hanley, J. A., and McNeil, B. J. (1982). The meaning and use of the area under a receiver operating characteristic (ROC)
   curve. Radiology 143, 29-36.
.. [2] Westfall, P. H., and Young, S. S. (1993). Resampling-based multiple testing. Wiley.
.. [3] Field, C. A., and Welsh, A. H. (2007). Bootstrapping clustered data. JRSS B 69, 369-390.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from itertools import compress
from math import nan
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from noetic_nb.lab._statistics.intervals import CONFIDENCE, Cluster, counted, student

Floats: TypeAlias = NDArray[np.float64]
Booleans: TypeAlias = NDArray[np.bool_]

_TAIL = (1 - CONFIDENCE) / 2


def weights_of(groups: Sequence[Hashable], samples: int, seed: int) -> Floats:
    """Return how often each run is in each sample, shape (samples, runs); whole groups are drawn with replacement [3]_."""
    members: dict[Hashable, list[int]] = {}
    for at, group in enumerate(groups):
        members.setdefault(group, []).append(at)
    pools, rng = list(members.values()), random.Random(seed)
    weights = np.zeros((samples, len(groups)))
    for row in weights:
        for pool in rng.choices(pools, k=len(pools)):
            row[pool] += 1
    return weights


def areas(scores: Floats, failed: Booleans, weights: Floats, strata: Sequence[Hashable] | None = None) -> Floats:
    """Return the area under the ROC curve of each sample [1]_, not a number where one class is missing.

    It is the share of pairs of a failed run and a good one in which the failed run scores higher; a tie is half a pair. With
    `strata` only pairs within one of them count.
    """
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
    """Return the 95 % percentile interval of a statistic; not a number where more than half of the samples have none."""
    known = values[~np.isnan(values)]
    if len(known) <= len(values) / 2:
        return nan, nan
    low, high = np.quantile(known, [_TAIL, 1 - _TAIL])
    return float(low), float(high)


def share(hits: Booleans, among: Booleans, clusters: Sequence[Cluster]) -> tuple[float, float, float]:
    """Return a share of some runs, with its interval."""
    count = counted(hits[among].astype(int).tolist(), list(compress(clusters, among)))
    return count.rate, count.low, count.high


def corrected_ends(values: Floats, samples: Floats, tasks: int) -> tuple[Floats, Floats]:
    """Return the ends of intervals of several areas that hold together; `samples` has a row a sample, a column an area.

    In each sample the area that strays farthest counts; what that exceeds in 5 % of the samples is the margin of every area
    (single-step maxT [2]_, symmetric, so that an area near 1, whose samples hardly stray upwards, is not taken for sure). Few
    tasks stray farther than their samples do, by as much as Student's t does. An interval is never shorter than the area's own,
    and not a number for an area that more than half of the samples lack.
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
