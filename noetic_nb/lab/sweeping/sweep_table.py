"""The table of a sweep: means with intervals over tasks, and values that could not be counted."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from math import fsum, nan
from typing import TYPE_CHECKING, Any, Final

from noetic_nb.lab.statistics.intervals import CONFIDENCE, resampled
from noetic_nb.lab.sweeping.measured_runs import Job, Measured
from noetic_nb.lab.sweeping.value_labels import digest_of

if TYPE_CHECKING:
    import pandas

__all__ = ["SAMPLES", "columns_of", "table"]

SAMPLES: Final = 1_000
"""As many as `noetic_nb.lab.statistics.intervals.interval` draws."""


class _Intervals:
    """Percentile intervals of means: the same samples of groups for every configuration, so that rows compare."""

    def __init__(self, groups: Sequence[Hashable], seed: int) -> None:
        import numpy

        self._few = len(set(groups)) < 2
        self._weights = numpy.zeros((SAMPLES, len(groups)))
        if not self._few:
            for row, sample in enumerate(resampled(groups, SAMPLES, seed)):
                numpy.add.at(self._weights[row], sample, 1.0)

    def of(self, values: Sequence[float | None]) -> tuple[float, float]:
        import numpy

        is_known = numpy.array([value is not None for value in values], dtype=float)
        if self._few or not is_known.any():
            return nan, nan
        numbers = numpy.array([0.0 if value is None else value for value in values])
        # Not a matrix product: what adds in another order on another number of processors gives other last digits.
        total = numpy.einsum("ij,j->i", self._weights, numbers)
        count = numpy.einsum("ij,j->i", self._weights, is_known)
        means = (total[count > 0]) / count[count > 0]
        if len(means) <= SAMPLES / 2:
            return nan, nan
        tail = 100 * (1 - CONFIDENCE) / 2
        low, high = numpy.percentile(means, [tail, 100 - tail])
        return float(low), float(high)


def columns_of(metric: str, *, is_only: bool) -> tuple[str, str, str]:
    """Return the columns of a metric: its mean and the ends of its interval."""
    return (metric, "low", "high") if is_only else (metric, f"{metric}_low", f"{metric}_high")


def table(job: Job, rows: Mapping[int, Measured], groups: Sequence[Hashable], seed: int) -> pandas.DataFrame:
    """Return one row for each finished configuration, in the order of the space."""
    import pandas

    is_only = len(job.metrics) == 1
    intervals = _Intervals(groups, seed)
    names = [
        *job.space.names,
        *(column for metric in job.metrics for column in columns_of(metric, is_only=is_only)),
        *(f"{metric}_n" for metric in job.metrics if not is_only),
        *("n", "failed", "nan", "seed", "digest"),
    ]
    found = []
    for place in sorted(rows):
        row, labels = rows[place], job.space.labels[place]
        cells: list[Any] = list(labels)
        counts = []
        for metric in job.metrics:
            values = row.values[metric]
            known = [value for value in values if value is not None]
            cells += [_mean(known), *intervals.of(values)]
            counts.append(len(known))
        failed = {at for at, _, _ in row.failures}
        whole = [all(values[at] is not None for values in row.values.values()) for at in range(len(job.runs))]
        cells += [] if is_only else counts
        missing = len(job.runs) - sum(whole) - len(failed)
        cells += [sum(whole), len(failed), missing, seed, digest_of(job.digest, labels)]
        found.append(cells)
    frame = pandas.DataFrame(found, columns=names)
    for column in names[len(job.space.names) : -5 - (0 if is_only else len(job.metrics))]:
        frame[column] = frame[column].astype(float)
    return frame


def _mean(values: Sequence[float]) -> float:
    # The exact sum, whatever the order.
    return fsum(values) / len(values) if values else math.nan
