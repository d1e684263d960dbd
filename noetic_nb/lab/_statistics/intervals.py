"""Counts and means with intervals that account for clusters of runs.

Runs of one task resemble each other, so many runs of few tasks are weak evidence. Every interval here uses the spread
between clusters of runs: one cluster per task, or two-way clusters if user tasks are crossed with injection tasks.

References
----------
.. [1] Cameron, A. C., Gelbach, J. B., and Miller, D. L. (2011). Robust inference with multiway clustering. JBES 29, 238-249.
.. [2] Abramowitz, M., and Stegun, I. A. (1964). Handbook of mathematical functions, 26.7.3 and 26.7.4.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from functools import cache
from itertools import product
from math import atan, cos, isnan, nan, pi, sin, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._checks import check_share, is_number

if TYPE_CHECKING:
    import pandas

TARGET = 0.8
"""The power that `detectable` refers to."""


def power(
    difference: float, *, share: float, tasks: int | Iterable[int], trials: int | Iterable[int], icc: float = 0.2
) -> pandas.DataFrame:
    """Return the power of a comparison of two agents, or rule books, on the same tasks.

    Parameters
    ----------
    difference : float
        Between the two success rates, such as 0.1 for 50 % against 60 %.
    share : float
        The success rate of the first, 0 to 1.
    tasks, trials : int or iterable of int
        Numbers to plan with; every pair has a row.
    icc : float
        Correlation of outcomes within a task, 0 to 1. A task is assumed equally hard for both agents.

    Returns
    -------
    pandas.DataFrame
        ``tasks, trials, runs`` (of each of the two), ``power`` (the probability that the 95 % interval of the
        difference excludes 0) and ``detectable`` (the smallest difference with a power of 80 %, NaN if there is none).

    Raises
    ------
    NoeticConfigError
        ``INVALID_SHARE`` for a share outside 0 to 1, or a difference that is 0 or leads there; ``INVALID_COUNT`` for
        fewer than two tasks or one trial.

    Notes
    -----
    The variance of a task's mean difference is ((1 - icc) / trials) (v1 + v2) + icc (sqrt(v1) - sqrt(v2))^2, with the
    variance v = p (1 - p) of each side: noise averages out over trials, and the difficulty of the task cancels [1]_.
    The power is that of a t-test over tasks.

    References
    ----------
    .. [1] Miller, E. (2024). Adding error bars to evals: a statistical approach to language model evaluations. arXiv:2411.00640.

    Examples
    --------
    >>> power(0.1, share=0.5, tasks=[50, 200], trials=4)[["tasks", "runs", "power"]].round(2).values.tolist()
    [[50.0, 200.0, 0.6], [200.0, 800.0, 0.99]]
    """
    import pandas

    check_share(share=share, icc=icc)
    if not is_number(difference) or not difference or abs(difference) > 1 or not 0 <= share + difference <= 1:
        what = "A difference is a number other than 0, and the second share must be from 0 to 1."
        hint = "The difference is added to the share: 0.1 with share=0.5 plans 50 % against 60 %."
        raise NoeticConfigError("INVALID_SHARE", what, given=difference, hint=hint)
    rows = []
    for number, repeats in product(_counts(tasks, "tasks", least=2), _counts(trials, "trials", least=1)):
        chance = _chance(difference, share, number, repeats, icc)
        found = _detectable(1 if difference > 0 else -1, share, number, repeats, icc)
        rows.append((number, repeats, number * repeats, chance, found))
    return pandas.DataFrame(rows, columns=["tasks", "trials", "runs", "power", "detectable"])


def _counts(given: Any, name: str, least: int) -> list[int]:
    counts = list(given) if isinstance(given, Iterable) else [given]
    if not counts or any(isinstance(count, bool) or not isinstance(count, int) or count < least for count in counts):
        hint = f"Use {name}=50, or a list of such numbers."
        raise NoeticConfigError("INVALID_COUNT", f"{name} are whole numbers from {least} on.", given=given, hint=hint)
    return counts


def _chance(difference: float, share: float, tasks: int, trials: int, icc: float) -> float:
    other = share + difference
    spreads = share * (1 - share), other * (1 - other)
    variance = (1 - icc) / trials * sum(spreads) + icc * (sqrt(spreads[0]) - sqrt(spreads[1])) ** 2
    error = sqrt(variance / tasks)
    return 1.0 if not error else NormalDist().cdf(abs(difference) / error - student(tasks - 1))


def _detectable(sign: int, share: float, tasks: int, trials: int, icc: float) -> float:
    """Return the smallest difference in a direction with the target power, by bisection."""
    low, high = 0.0, 1 - share if sign > 0 else share
    if high <= 0 or _chance(sign * high, share, tasks, trials, icc) < TARGET:
        return float("nan")
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if _chance(sign * middle, share, tasks, trials, icc) >= TARGET else (middle, high)
    return high


CONFIDENCE: Final = 0.95
"""The coverage of every interval."""
FEW: Final = 10
"""Intervals of fewer clusters are marked."""
NO_TASKS: Final = 'no interval, as runs do not name their task: pass by="run" or a function of a run'


class Cluster(NamedTuple):
    """The task of a run, and the attacker's task if it was attacked."""

    task: Hashable
    injection: Hashable = None


class Count(NamedTuple):
    """A number of runs or calls out of a total, with the share and its 95 % interval.

    The interval is Wilson's [1]_ for the effective number of independent trials (Kish's design effect, at least 1
    [2]_), with the quantile of Student's t for the number of clusters.

    Attributes
    ----------
    n, of : int
        The counted runs or calls, and the total.
    rate, low, high : float
        The share and the ends of its interval; NaN without any runs.
    clusters : int or None
        The number of clusters behind the interval; if user tasks and injection tasks are crossed, at most the smaller
        of the two numbers; below ten, their effective number. None if the task of a run is unknown.

    References
    ----------
    .. [1] Wilson, E. B. (1927). Probable inference, the law of succession, and statistical inference. JASA 22, 209-212.
    .. [2] Korn, E. L., and Graubard, B. I. (1998). Confidence intervals for proportions with small expected number of positive
       counts estimated from survey data. Survey Methodology 24, 193-201.
    """

    n: int
    of: int
    rate: float
    low: float
    high: float
    clusters: int | None

    def columns(self, name: str) -> dict[str, Any]:
        """Return the parts as columns of a table: `name`, ``<name>_of`` and so on."""
        return {name: self.n, **{f"{name}_{part}": getattr(self, part) for part in self._fields[1:]}}

    def __repr__(self) -> str:
        if not self.of:
            return "0/0"
        share = f"{self.n}/{self.of} ({100 * self.rate:.1f} %"
        if isnan(self.low):
            return f"{share}, {NO_TASKS if self.clusters is None else 'no interval: one cluster'})"
        few = f", only {self.clusters} clusters" if self.clusters is not None and self.clusters < FEW else ""
        return f"{share} [{100 * self.low:.1f}, {100 * self.high:.1f}]{few})"


class Spread(NamedTuple):
    """The variance of a sum over clusters, of its residuals."""

    variance: float
    clusters: int
    """As in `Count`."""
    size: float
    """The design effect if all values of a cluster agree: the mean size of the cluster of a run."""


def _one_way(residuals: Sequence[float], labels: Sequence[Hashable]) -> Spread:
    sums: defaultdict[Hashable, float] = defaultdict(float)
    for residual, label in zip(residuals, labels, strict=True):
        sums[label] += residual
    groups, size = len(sums), sum(n * n for n in Counter(labels).values()) / len(labels)
    effective = max(min(groups, 2), round(len(labels) / size))
    variance = sum(each * each for each in sums.values()) * groups / (groups - 1) if groups > 1 else nan
    return Spread(variance, effective if effective < FEW else groups, size)


def spread_of(residuals: Sequence[float], clusters: Sequence[Cluster]) -> Spread:
    """Return the variance of a sum of residuals over clusters; two-way if tasks are crossed with injections [1]_."""
    by_task = _one_way(residuals, [cluster.task for cluster in clusters])
    injections = {cluster.injection for cluster in clusters}
    if None in injections or len(injections) < 2:
        return by_task
    by_injection = _one_way(residuals, [cluster.injection for cluster in clusters])
    if isnan(by_task.variance):
        return by_injection
    both = _one_way(residuals, clusters)
    variance = by_task.variance + by_injection.variance - both.variance
    return Spread(
        max(variance, by_task.variance, by_injection.variance),
        min(by_task.clusters, by_injection.clusters),
        by_task.size + by_injection.size - both.size,
    )


def counted(hits: Sequence[bool | int], clusters: Sequence[Cluster | None], *, widening: float = 1.0) -> Count:
    """Count hits, with the interval of their share; `widening` is a factor of its quantile, to correct for a selection."""
    n, of = sum(hits), len(hits)
    if not of:
        return Count(0, 0, nan, nan, nan, 0)
    rate = n / of
    known = [cluster for cluster in clusters if cluster is not None]
    if len(known) < of:
        return Count(n, of, rate, nan, nan, None)
    spread = spread_of([hit - rate for hit in hits], known)
    if spread.clusters < 2:
        return Count(n, of, rate, nan, nan, 1)
    effect = max(1.0, spread.variance / (rate * (1 - rate) * of * of / (of - 1))) if 0 < n < of else spread.size
    z, trials = widening * student(spread.clusters - 1), of / effect
    scale = 1 + z * z / trials
    middle = (rate + z * z / (2 * trials)) / scale
    half = z * sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials)) / scale
    # At 0 and 1 the interval begins at the share itself; rounding could put it slightly beyond.
    low, high = min(rate, max(0.0, middle - half)), max(rate, min(1.0, middle + half))
    return Count(n, of, rate, low, high, spread.clusters)


def mean_interval(
    values: Sequence[float], clusters: Sequence[Cluster | None], *, widening: float = 1.0
) -> tuple[float, float]:
    """Return the 95 % interval of a mean (a share for values of 0 and 1); NaN for one task, or unknown ones."""
    if all(value in (0, 1) for value in values):
        count = counted([int(value) for value in values], clusters, widening=widening)
        return count.low, count.high
    return student_interval(values, clusters, widening=widening)


def student_interval(
    values: Sequence[float], clusters: Sequence[Cluster | None], *, widening: float = 1.0
) -> tuple[float, float]:
    """Return the 95 % interval of a mean of values of any size and sign, such as differences."""
    known = [cluster for cluster in clusters if cluster is not None]
    if len(known) < len(values):
        return nan, nan
    mean = sum(values) / len(values)
    spread = spread_of([value - mean for value in values], known)
    if spread.clusters < 2:
        return nan, nan
    half = widening * student(spread.clusters - 1) * sqrt(spread.variance) / len(values)
    return mean - half, mean + half


@cache
def student(freedom: int, confidence: float = CONFIDENCE) -> float:
    """Return the quantile of Student's t for a two-sided confidence [2]_."""
    low, high = 0.0, 1e6
    while high - low > 1e-9 * (1 + low):
        middle = (low + high) / 2
        low, high = (middle, high) if _between(middle, freedom) < confidence else (low, middle)
    return high


def _between(t: float, freedom: int) -> float:
    """Return the probability that Student's t lies between -t and t."""
    angle = atan(t / sqrt(freedom))
    square = cos(angle) ** 2
    odd = freedom % 2
    term = cos(angle) if odd else 1.0
    total = term if freedom > 1 or not odd else 0.0
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= square * (k - 1) / k
        total += term
    return 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total
