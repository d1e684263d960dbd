"""The number of tasks and trials that an experiment needs."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._statistics.intervals import student

if TYPE_CHECKING:
    import pandas

TARGET = 0.8
"""The power that `detectable` is for."""


def power(
    difference: float,
    *,
    share: float,
    tasks: int | Iterable[int],
    trials: int | Iterable[int],
    icc: float = 0.2,
) -> pandas.DataFrame:
    """Plan a comparison of two agents, or rule books, on the same tasks: how often would it show a difference?

    Parameters
    ----------
    difference : float
        Between the shares of the two, such as 0.1 for 50 % against 60 %.
    share : float
        Of the first, 0 to 1: how many of its runs succeed.
    tasks, trials : int or iterable of int
        Numbers to plan with; every pair of them has a row.
    icc : float
        Correlation of outcomes within a task, 0 to 1. Tasks are as hard for one agent as for the other.

    Returns
    -------
    pandas.DataFrame
        ``tasks, trials, runs`` (of each of the two), ``power`` (the chance that the 95 % interval of the difference leaves out 0)
        and ``detectable`` (the smallest difference with a power of 80 %, not a number where there is none).

    Raises
    ------
    NoeticConfigError
        ``INVALID_SHARE`` for shares outside of 0 to 1, or a difference that leads there or is 0; ``INVALID_COUNT`` for fewer
        than two tasks or one trial.

    Notes
    -----
    The variance of the mean difference of a task is ((1 - icc) / trials) (v1 + v2) + icc (sqrt(v1) - sqrt(v2))^2, with the
    variance v = p (1 - p) of each side: chance averages out over trials, and the difficulty of the task cancels [1]_. The power
    is that of a t test over tasks.

    References
    ----------
    .. [1] Miller, E. (2024). Adding error bars to evals: a statistical approach to language model evaluations. arXiv:2411.00640.

    Examples
    --------
    >>> power(0.1, share=0.5, tasks=[50, 200], trials=4)[["tasks", "runs", "power"]].round(2).values.tolist()
    [[50.0, 200.0, 0.6], [200.0, 800.0, 0.99]]
    """
    import pandas

    other = _share(share, "share") + difference
    if not 0 <= other <= 1 or not difference:
        hint = "The difference is added to the share: 0.1 with share=0.5 plans 50 % against 60 %."
        raise NoeticConfigError("INVALID_SHARE", "The second share is not from 0 to 1.", given=difference, hint=hint)
    correlation = _share(icc, "icc")
    rows = []
    for number in _counts(tasks, "tasks", least=2):
        for repeats in _counts(trials, "trials", least=1):
            chance = _chance(difference, share, number, repeats, correlation)
            found = _detectable(1 if difference > 0 else -1, share, number, repeats, correlation)
            rows.append((number, repeats, number * repeats, chance, found))
    return pandas.DataFrame(rows, columns=["tasks", "trials", "runs", "power", "detectable"])


def _share(given: Any, name: str) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
        raise NoeticConfigError("INVALID_SHARE", f"{name} is a number from 0 to 1.", given=given, hint="Such as 0.5.")
    return float(given)


def _counts(given: Any, name: str, least: int) -> list[int]:
    counts = [given] if isinstance(given, int) else list(given)
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
    """Return the smallest difference in a direction with the power that is aimed at, by bisection."""
    low, high = 0.0, 1 - share if sign > 0 else share
    if high <= 0 or _chance(sign * high, share, tasks, trials, icc) < TARGET:
        return float("nan")
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if _chance(sign * middle, share, tasks, trials, icc) >= TARGET else (middle, high)
    return high
