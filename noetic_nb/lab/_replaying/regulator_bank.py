"""The runs of a bank that a regulator would stop, counted by their outcome: read once, decided again for each setting."""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan
from typing import NamedTuple

from noetic_nb.lab._replaying.regulator_readings import RegulatorReadings
from noetic_nb.lab._replaying.regulator_replay import RegulatorTemplate
from noetic_nb.lab._statistics.intervals import Count, counted
from noetic_nb.lab._statistics.labels import Outcome, clusters_of, labels_of, runs_in
from noetic_nb.regulator import Regulator
from noetic_nb.regulator._settings import Settings
from noetic_nb.runs import Run


class Stops(NamedTuple):
    """The failed runs of a bank that are stopped, and the good ones."""

    failed: Count
    good: Count

    def __str__(self) -> str:
        runs = self.failed.of + self.good.of
        return f"Of the {runs} runs of the bank it would stop {_said(self.failed, 'failed')} and {_said(self.good, 'good')}."


def _said(found: Count, kind: str) -> str:
    if not found.of:
        return f"none of 0 {kind} ones"
    ends = "no interval" if isnan(found.low) else f"95 % interval {100 * found.low:.0f} to {100 * found.high:.0f} %"
    return f"{found.n} of {found.of} {kind} ones ({100 * found.rate:.0f} %, {ends})"


class RegulatorBank:
    """Labelled runs on which regulators that differ in predicates are tried; a run without a label does not count.

    Raises `NoeticConfigError` ``INVALID_RUN``, ``NO_RUNS``, ``NO_LABELS``, ``INVALID_OUTCOME``, ``RUN_INCOMPLETE`` or
    ``RUN_NOT_ENDED``.
    """

    def __init__(self, runs: Run | Iterable[Run], outcome: Outcome = "outcome") -> None:
        found = runs_in(runs)
        labels = labels_of(found, outcome)
        kept = [(run, label) for run, label in zip(found, labels, strict=True) if label is not None]
        self._runs = [RegulatorReadings(run) for run, _ in kept]
        self._labels = [label for _, label in kept]
        self._clusters = clusters_of([run for run, _ in kept])
        # Of the last regulator: its memory is worked out once.
        self._template: tuple[Regulator, RegulatorTemplate] | None = None

    def stops(self, regulator: Regulator, settings: Settings) -> Stops:
        """Return the runs that would be stopped by a regulator with the memory of another one, and other settings."""
        if self._template is None or self._template[0] is not regulator:
            self._template = regulator, RegulatorTemplate.of(regulator)
        template = self._template[1].with_settings(settings)
        stopped = [readings.first_stop(template) is not None for readings in self._runs]
        return Stops(*[self._counted(stopped, label) for label in (False, True)])

    def _counted(self, stopped: list[bool], wanted: bool) -> Count:
        places = [place for place, label in enumerate(self._labels) if label is wanted]
        return counted([stopped[place] for place in places], [self._clusters[place] for place in places])
