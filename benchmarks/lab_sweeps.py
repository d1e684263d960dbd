"""Sweeps over recorded runs, wall-clock seconds beside the aims; printed, never asserted.

    python benchmarks/lab_sweeps.py [name ...]

Say the load of the machine beside the figures: it is printed first. Shares of ideal are those of the wall clock, and beside
them those of processor time, which a busy machine disturbs less: the time of one process over twice the sum of the time of the
caller and of the busier worker, as if nothing of the caller's ran beside the workers.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from itertools import cycle, islice
from typing import Any

import joblib
import psutil

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


def processor_seconds() -> dict[int, float]:
    """Return the processor time of this process and of all that it has started, by their ids."""
    own = psutil.Process()
    found = {}
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found[process.pid] = times.user + times.system
    return found


def shares(name: str, aim: str, runs: list[Run], alone: tuple[float, float], **options: Any) -> None:
    swept(10, runs[:2], **options)  # the workers are up
    walls, cpus = [], []
    for _ in range(3):
        before = processor_seconds()
        walls.append(swept(200, runs, **options))
        after = processor_seconds()
        took = {pid: now - before.get(pid, 0.0) for pid, now in after.items()}
        cpus.append(took.pop(os.getpid()) + max(took.values()))
    line(f"{name}: share of ideal, wall clock", alone[0] / (2 * min(walls)), aim, "")
    line(f"{name}: share of ideal, processor time", alone[1] / (2 * min(cpus)), aim, "")


def two_workers() -> None:
    runs = some_runs(100)
    swept(10, runs[:2], n_jobs=1)
    alone = (
        min(swept(200, runs, n_jobs=1) for _ in range(2)),
        min(spent(lambda: swept(200, runs, n_jobs=1), time.process_time) for _ in range(2)),
    )
    shares("two processes", ">= 0.8", runs, alone, n_jobs=2)
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
        shares("two Dask workers", ">= 0.6", runs, alone)


MEASUREMENTS = {function.__name__: function for function in (replayed, sweeps, two_workers)}


def main(*names: str) -> None:
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    for name in names or MEASUREMENTS:
        MEASUREMENTS[name]()


if __name__ == "__main__":
    main(*sys.argv[1:])
