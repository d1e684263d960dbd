"""Configurations measured on runs: what each worker does, with runs that it reads once."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from noetic_nb.lab.replaying.replays import replay
from noetic_nb.lab.sweeping.space import Space, thresholds_in
from noetic_nb.lab.sweeping.threshold_replays import ThresholdReplays
from noetic_nb.runs import Run

__all__ = ["Job", "Measured", "Measurements"]


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that a worker needs, sent once."""

    digest: str
    space: Space
    runs: tuple[Run, ...]
    metrics: Mapping[str, Callable[[Run], Any]]
    fixed: Mapping[str, Any]
    """Arguments of `replay`, or of `apply`, that are the same in every configuration."""
    apply: Callable[..., Run] | None = None
    is_live: bool = False


@dataclass(slots=True)
class Measured:
    """One configuration: by metric its value on each run, None where it has none or failed."""

    place: int
    values: dict[str, list[float | None]]
    failures: list[tuple[int, str | None, str]] = field(default_factory=list)
    """Place of the run, metric (None where the run could not be made) and what went wrong."""


class Measurements:
    """The runs of a job, read once for all configurations that differ in thresholds only."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._replays: dict[tuple[int, tuple[int, ...]], ThresholdReplays | Exception] = {}

    def at(self, place: int) -> Measured:
        """Measure one configuration on every run; what raises on a run is kept as its failure."""
        job = self._job
        found = Measured(place, {name: [] for name in job.metrics})
        for at in range(len(job.runs)):
            try:
                run = self._made(place, at)
            except Exception as exc:
                found.failures.append((at, None, _words(exc)))
                for values in found.values.values():
                    values.append(None)
                continue
            for name, metric in job.metrics.items():
                try:
                    value = _number(metric(run))
                except Exception as exc:
                    found.failures.append((at, name, _words(exc)))
                    value = None
                found.values[name].append(value)
        return found

    def _made(self, place: int, at: int) -> Run:
        job, run = self._job, self._job.runs[at]
        given = dict(job.fixed)
        if given.get("model") is not None and not job.is_live:
            # A script is used up by reading it: each run has a fresh one.
            given["model"] = copy.deepcopy(given["model"])
        configuration = job.space.at(place)
        if job.apply is not None:
            made = job.apply(run, **given, **configuration)
            if not isinstance(made, Run):
                raise TypeError(f"apply= returned {type(made).__name__}, not a Run")
            return made
        thresholds, rest = thresholds_in(configuration)
        given |= rest
        if not thresholds:
            return replay(run, **given)
        return self._under(at, given, thresholds, tuple(id(value) for value in rest.values()))

    def _under(self, at: int, given: dict[str, Any], thresholds: Mapping[str, Any], rest: tuple[int, ...]) -> Run:
        known = self._replays.get((at, rest))
        if known is None:
            for key in [key for key in self._replays if key[0] == at]:
                del self._replays[key]  # one reading a run: thresholds vary fastest where memory matters
            try:
                known = ThresholdReplays(self._job.runs[at], given.pop("regulator", None), **given)
            except Exception as exc:
                known = exc
            self._replays[at, rest] = known
        if isinstance(known, Exception):
            raise known
        return known.under(thresholds)


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if hasattr(value, "item") and not isinstance(value, Real):
        value = value.item()  # of numpy
    if not isinstance(value, Real):
        raise TypeError(f"a metric returns a number or None, and not {type(value).__name__}")
    number = float(value)
    return number if math.isfinite(number) else None


def _words(exc: Exception) -> str:
    text = str(exc)
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__
