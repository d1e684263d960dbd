"""Sweeps over recorded runs, wall-clock seconds beside the aims; printed, never asserted.

    python benchmarks/lab_sweeps.py [name ...]

Say the load of the machine beside the figures: it is printed first.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from itertools import cycle, islice
from typing import Any

import joblib

from noetic_nb.lab import RegulatorReadings, datasets, first_stop, sweep
from noetic_nb.lab.replaying.regulator_template import RegulatorTemplate
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Run

REGULATOR = Regulator.recommended("benchmark")


def stopped(run: Any) -> float:
    return float(first_stop(run) is not None)


def some_runs(n: int) -> list[Run]:
    """Return the packaged airline runs, again under other names where more are asked for."""
    kept = datasets.airline()
    return [
        Run(f"{run.run_id}-{at}", meta={**run.meta, "task_id": at}, events=run.events)
        for at, run in enumerate(islice(cycle(kept), n))
    ]


def spent(function: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    function()
    return clock() - began


def line(name: str, value: float, aim: str, unit: str = "s") -> None:
    print(f"{name:<52} {value:9.3f} {unit:<3} aim {aim}")


def swept(configurations: int, runs: list[Any], **options: Any) -> float:
    space = {
        "call_budget.total": list(range(1, configurations // 10 + 1)),
        "cost_cap.tokens_out": range(100, 1_100, 100),
    }
    return spent(lambda: sweep(space, runs, metrics={"stopped": stopped}, regulator=REGULATOR, **options))


def replayed() -> None:
    """Replay runs that have been read under one regulator after the other, as a sweep does."""
    readings = [RegulatorReadings(run) for run in some_runs(50)]
    base = RegulatorTemplate.of(REGULATOR)
    templates = [
        base.with_settings(REGULATOR.settings.with_thresholds({"call_budget": {"total": total}}))
        for total in range(1, 11)
    ]
    for each in readings:
        each.replay(base)
    seconds = min(
        spent(lambda: [each.replay(template) for template in templates for each in readings], time.process_time)
        for _ in range(3)
    )
    line("a run replayed under one more regulator", 1_000 * seconds / 500, "<= 0.6", "ms")


def sweeps() -> None:
    runs = some_runs(100)
    swept(10, runs[:2], n_jobs=2)  # the processes are up
    line("50 configurations x 100 runs, two processes", swept(50, runs, n_jobs=2), "< 5")
    line("1 000 configurations x 100 runs, two processes", swept(1_000, runs, n_jobs=2), "< 60")


def two_workers() -> None:
    runs = some_runs(100)
    alone = swept(200, runs, n_jobs=1)
    swept(10, runs[:2], n_jobs=2)
    line("two processes: share of ideal", alone / (2 * swept(200, runs, n_jobs=2)), ">= 0.8", "")
    try:
        from dask.distributed import Client, LocalCluster
    except ImportError:
        print("two Dask workers: the extra `dask` is not installed")
        return
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
        joblib.parallel_config("dask"),
    ):
        swept(10, runs[:2])
        line("two Dask workers: share of ideal", alone / (2 * swept(200, runs)), ">= 0.6", "")


MEASUREMENTS = {function.__name__: function for function in (replayed, sweeps, two_workers)}


def main(*names: str) -> None:
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    for name in names or MEASUREMENTS:
        MEASUREMENTS[name]()


if __name__ == "__main__":
    main(*sys.argv[1:])
