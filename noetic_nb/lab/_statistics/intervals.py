"""Counts with their intervals, and samples drawn by group.

References
----------
.. [1] Wilson, E. B. (1927). Probable inference, the law of succession, and statistical inference. JASA 22, 209-212.
.. [3] Korn, E. L., and Graubard, B. I. (1998). Confidence intervals for proportions with small expected number of positive
   counts estimated from survey data. Survey Methodology 24, 193-201.
.. [2] Field, C. A., and Welsh, A. H. (2007). Bootstrapping clustered data. JRSS B 69, 369-390.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from math import isnan, nan, sqrt
from typing import Final, NamedTuple

CONFIDENCE: Final = 0.95
"""Every interval covers this share."""
# The quantile of the normal distribution that belongs to it.
_Z: Final = 1.959963984540054


class Count(NamedTuple):
    """How many of how many, with the share and its 95 % interval of Wilson [1]_; not a number where there is none."""

    n: int
    of: int
    rate: float
    low: float
    high: float

    def __repr__(self) -> str:
        if not self.of:
            return "0/0"
        return f"{self.n}/{self.of} ({100 * self.rate:.1f} % [{100 * self.low:.1f}, {100 * self.high:.1f}])"


def counted(n: int, of: int, *, size: float | None = None) -> Count:
    """Return a count with the interval of Wilson, of a sample of another effective size where that is given."""
    if not of:
        return Count(n, of, nan, nan, nan)
    rate, size = n / of, of if size is None else size
    scale = 1 + _Z * _Z / size
    middle = (rate + _Z * _Z / (2 * size)) / scale
    spread = _Z * sqrt(rate * (1 - rate) / size + _Z * _Z / (4 * size * size)) / scale
    # At the ends the interval begins at the share itself; rounding would put it a hair beyond.
    return Count(n, of, rate, min(rate, max(0.0, middle - spread)), max(rate, min(1.0, middle + spread)))


def clustered(hits: Sequence[int], totals: Sequence[int]) -> Count:
    """Return a count over groups whose members resemble each other, with the interval of Wilson for its effective size [3]_.

    The size is that of a simple sample whose rate varies as much as this one does from group to group; where all or none were
    hit, the number of groups. One group has no interval.
    """
    n, of, groups = sum(hits), sum(totals), len(totals)
    if groups < 2 or not of:
        return Count(n, of, n / of if of else nan, nan, nan)
    rate = n / of
    spread = sum([(hit - rate * total) ** 2 for hit, total in zip(hits, totals, strict=True)])
    variance = spread * groups / (groups - 1) / of**2
    size = groups if n in (0, of) else rate * (1 - rate) / variance if variance else of
    return counted(n, of, size=min(max(size, 1.0), of))


def resampled(groups: Sequence[Hashable], samples: int, seed: int) -> Iterator[list[int]]:
    """Draw groups with replacement; yields the places of the runs of each sample [2]_.

    Runs of one task resemble each other, so that whole tasks are drawn.
    """
    members: dict[Hashable, list[int]] = {}
    for at, group in enumerate(groups):
        members.setdefault(group, []).append(at)
    pools, rng = list(members.values()), random.Random(seed)
    for _ in range(samples):
        yield [at for pool in rng.choices(pools, k=len(pools)) for at in pool]


def interval(
    statistic: Callable[[list[int]], float], groups: Sequence[Hashable], *, samples: int = 1_000, seed: int = 0
) -> tuple[float, float]:
    """Return the 95 % percentile interval of a statistic over samples of groups.

    `statistic` gets the places of a sample. Samples where it is not a number (one class only) are left out; where that is more
    than half of them, or there is but one group, the interval is not a number.
    """
    if len(set(groups)) < 2:
        return nan, nan
    drawn = sorted(value for sample in resampled(groups, samples, seed) if not isnan(value := statistic(sample)))
    if len(drawn) <= samples / 2:
        return nan, nan
    tail = (1 - CONFIDENCE) / 2
    return _quantile(drawn, tail), _quantile(drawn, 1 - tail)


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
