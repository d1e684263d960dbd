"""What experiments on recorded runs cost, beside a floor in the same run; printed, never asserted.

Run ``python benchmarks/lab.py DATA`` (or set ``NOETIC_DATA``) with the folder of the studies' runs; without it the smaller
sets of the package are used. Times are processor seconds, so that a busy machine does not count.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any, Final

import lab_sweeps
import numpy as np
from sklearn.metrics import roc_auc_score

from noetic_nb.lab import RegulatorReadings, calibrate, datasets, economics, first_stop, replay_regulator
from noetic_nb.lab.statistics.intervals import resampled
from noetic_nb.regulator import CallBudget, Regulator
from noetic_nb.runs import Run

SAMPLES: Final = 1_000
CALIBRATE_GOAL_S: Final = 15.0
CONFIGURATIONS: Final = 50
REPLAY_GOAL_MS: Final = 0.6


def load(folder: str | None) -> list[Run]:
    """Return the runs of three domains."""
    if folder is None:
        return [*datasets.airline(), *datasets.retail(), *datasets.telecom()]
    runs = datasets.load_trajectories(Path(folder) / "tau-airline" / "trajectories.json.gz")
    return runs + datasets.load_tau2(Path(folder) / "tau2")


def task_of(run: Run) -> Any:
    known = run.meta["task_id"]
    return run.meta["domain"], run.turns[0].query if known is None else known


def seconds(work: Callable[[], Any]) -> float:
    """Return the least processor time of three."""
    times = []
    for _ in range(3):
        began = process_time()
        work()
        times.append(process_time() - began)
    return min(times)


def one_area_resampled(runs: list[Run]) -> None:
    """Do the least that an interval needs without arrays: an area of scikit-learn for each sample, of one score."""
    failed = np.asarray([not run.meta["outcome"] for run in runs])
    scores = np.asarray([len(run.turns) for run in runs])
    for sample in resampled([task_of(run) for run in runs], SAMPLES, 0):
        roc_auc_score(failed[sample], scores[sample])


def shared_readings() -> None:
    """Replay regulators through airline runs: one alone, the floor, and many that share one reading of a run."""
    runs = datasets.airline()
    regulators = [Regulator.for_user("ann").with_cost_cap(100 + 17 * at) for at in range(CONFIGURATIONS)]

    def shared() -> None:
        for run in runs:
            readings = RegulatorReadings(run)
            for regulator in regulators:
                readings.first_stop(regulator)

    alone = 1e3 * seconds(lambda: [first_stop(replay_regulator(run, regulators[0])) for run in runs]) / len(runs)
    each = 1e3 * seconds(shared) / len(runs) / CONFIGURATIONS
    print(
        f"regulator replay of an airline run: {alone:.2f} ms alone, {each:.2f} ms of {CONFIGURATIONS} (goal {REPLAY_GOAL_MS} ms)"
    )


def main() -> int:
    """Measure and print."""
    runs = load(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("NOETIC_DATA"))
    floor = seconds(lambda: one_area_resampled(runs))
    print(f"{len(runs)} runs, {SAMPLES} samples; floor: one area of scikit-learn in each sample {floor:.2f} s")
    calibrated = seconds(lambda: calibrate(CallBudget(), runs, by=task_of, samples=SAMPLES))
    print(
        f"calibrate, six baselines: {calibrated:.2f} s, {calibrated / floor:.1f} floors (goal {CALIBRATE_GOAL_S:.0f} s)"
    )
    priced = seconds(lambda: economics(CallBudget(), runs, by=task_of, samples=SAMPLES))
    print(f"economics: {priced:.2f} s, {priced / floor:.1f} floors")
    shared_readings()
    lab_sweeps.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
