"""Rates and areas of one set of scores over many samples of whole groups at once, as arrays.

A sample is a row of weights: how often each run was drawn. Nothing is fitted again in a sample.

References
----------
.. [1] Hanley, J. A., and McNeil, B. J. (1982). The meaning and use of the area under a receiver operating characteristic (ROC)
   curve. Radiology 143, 29-36.
.. [2] Westfall, P. H., and Young, S. S. (1993). Resampling-based multiple testing. Wiley.
.. [3] Beran, R. (1988). Balanced simultaneous confidence sets. JASA 83, 679-686.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import nan
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from noetic_nb.lab.statistics.intervals import CONFIDENCE, counted, resampled

__all__ = [
    "Booleans",
    "Floats",
    "area",
    "areas",
    "lower_ends",
    "percentiles",
    "share",
    "weights_of",
]

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
    """Return the area under the ROC curve.

    Examples
    --------
    >>> area(np.array([3.0, 1.0, 2.0]), np.array([True, False, False]))
    1.0
    """
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
        groups_of_these = len({group for group, is_among in zip(groups, among, strict=True) if is_among})
        end = counted(round(rate * groups_of_these), groups_of_these)
        return rate, end.low, end.high
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = (weights @ (hits & among)) / (weights @ among)
    return (rate, *(percentiles(drawn) if len(set(groups)) > 1 else (nan, nan)))


def lower_ends(samples: Floats) -> Floats:
    """Return the lower ends of intervals of several statistics that hold together, from their values in the same samples.

    Each statistic is ranked among its own samples; the lowest rank of a sample says how far out its farthest statistic is, and
    the 2.5th percentile of these ranks is the level at which every end is taken (minP [2]_, balanced [3]_). For one statistic
    it is the ordinary percentile.

    Parameters
    ----------
    samples : array, shape (samples, statistics)
        The statistics of each sample.

    Returns
    -------
    array, shape (statistics,)
        Not a number for a statistic that more than half of the samples lack.
    """
    ends = np.full(samples.shape[1], nan)
    usable = np.isnan(samples).mean(axis=0) < 0.5
    kept = samples[:, usable]
    kept = kept[~np.isnan(kept).any(axis=1)]
    if not kept.size:
        return ends
    level = float(np.quantile(_ranks(kept).min(axis=1), _TAIL))
    ends[usable] = [np.quantile(column, level) for column in kept.T]
    return ends


def _ranks(values: Floats) -> Floats:
    """Return the place of each value in its column, 0 for the lowest to 1 for the highest."""
    order = np.argsort(values, axis=0, kind="stable")
    ranks = np.empty_like(values)
    np.put_along_axis(ranks, order, np.broadcast_to(np.linspace(0, 1, len(values))[:, None], values.shape), axis=0)
    return ranks
