"""Rates and areas of one set of scores over many samples of whole groups at once, as arrays.

A sample is a row of weights: how often each run was drawn. Nothing is fitted again in a sample.

References
----------
.. [1] Hanley, J. A., and McNeil, B. J. (1982). The meaning and use of the area under a receiver operating characteristic (ROC)
   curve. Radiology 143, 29-36.
.. [2] Westfall, P. H., and Young, S. S. (1993). Resampling-based multiple testing. Wiley.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import compress
from math import nan
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from noetic_nb.lab._statistics.intervals import CONFIDENCE, counted, resampled

Floats: TypeAlias = NDArray[np.float64]
Booleans: TypeAlias = NDArray[np.bool_]

_TAIL = (1 - CONFIDENCE) / 2


def weights_of(groups: Sequence[Hashable], samples: int, seed: int) -> Floats:
    """Return how often each run is in each sample of groups, shape (samples, runs)."""
    drawn = [np.bincount(sample, minlength=len(groups)) for sample in resampled(groups, samples, seed)]
    return np.asarray(drawn, dtype=np.float64).reshape(samples, len(groups))


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


def share(hits: Booleans, among: Booleans, weights: Floats, groups: Sequence[Hashable]) -> tuple[float, float, float]:
    """Return a share of some runs, with its interval over samples.

    Where all hit, or none, samples do not differ: the interval is that of Wilson over the groups, of which each counts once.
    """
    of = int(among.sum())
    if not of:
        return nan, nan, nan
    rate = float((hits & among).sum() / of)
    if rate in (0.0, 1.0):
        count = len(set(compress(groups, among)))
        end = counted(round(rate * count), count)
        return rate, end.low, end.high
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = (weights @ (hits & among)) / (weights @ among)
    return (rate, *(percentiles(drawn) if len(set(groups)) > 1 else (nan, nan)))


def lower_ends(values: Floats, samples: Floats) -> Floats:
    """Return the lower ends of intervals of several areas that hold together; `samples` has a row a sample, a column an area.

    In each sample the area that strays farthest counts; what that exceeds in 5 % of the samples is the margin of every area
    (single-step maxT [2]_, symmetric, so that an area near 1, whose samples hardly stray upwards, is not taken for sure). An end
    is never above that of the area's own interval, and not a number for an area that more than half of the samples lack.
    """
    usable = np.isnan(samples).mean(axis=0) < 0.5
    if not usable.any():
        return np.full(len(values), nan)
    strays = np.nan_to_num(np.abs(samples[:, usable] - values[usable])).max(axis=1)
    margin = float(np.quantile(strays, CONFIDENCE))
    own = np.array([percentiles(column)[0] for column in samples.T])
    return np.where(usable, np.minimum(own, values - margin), nan)
