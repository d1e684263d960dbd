"""Sweeps of regulators over recorded runs, in one process and in two.

    python -m benchmarks.sweeps

Two processes are compared with half of the time of one, by the wall clock and by processor time, which a busy machine disturbs
less: that of the caller and of the busier worker together, as if nothing of the caller's ran beside the workers.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from itertools import cycle, islice
from typing import Any, Final

import joblib
import psutil
from dask.distributed import Client, LocalCluster

from benchmarks.comparing import Lines, parser
from noetic_nb.lab import datasets, first_stop, sweep
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Run

PAIRS: Final = ("two processes", "two Dask workers")
LINES: Final[dict[str, float | None]] = {
    "50 configurations x 100 runs, two processes": 5,
    "1 000 configurations x 100 runs, two processes": 60,
    "100 configurations x 100 runs, two processes / half of the time of one": 1.25,
    "100 configurations x 100 runs, two processes, processor time / half of the time of one": 1.25,
    "100 configurations x 100 runs, two Dask workers / half of the time of one": 1.67,
    "100 configurations x 100 runs, two Dask workers, processor time / half of the time of one": 1.67,
}
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


def swept(configurations: int, runs: list[Any], **options: Any) -> float:
    space = {
        "call_budget.total": list(range(1, configurations // 10 + 1)),
        "cost_cap.tokens_out": range(100, 1_100, 100),
    }
    began = time.perf_counter()
    sweep(space, runs, metrics={"stopped": stopped}, regulator=REGULATOR, **options)
    return time.perf_counter() - began


def sweeps(lines: Lines) -> None:
    runs = some_runs(100)
    swept(10, runs[:2], n_jobs=2)  # the processes are up
    lines.value("50 configurations x 100 runs, two processes", swept(50, runs, n_jobs=2), unit="s")
    lines.value("1 000 configurations x 100 runs, two processes", swept(1_000, runs, n_jobs=2), unit="s")


def processor_seconds() -> dict[int, float]:
    """Return the processor time of this process and of all that it has started, by their ids."""
    own = psutil.Process()
    found = {}
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found[process.pid] = times.user + times.system
    return found


def took(configurations: int, runs: list[Run], **options: Any) -> tuple[float, float]:
    """Return the seconds of a sweep: of the wall, and of the caller and the busier worker together."""
    swept(10, runs[:2], **options)  # the workers are up
    walls, busy = [], []
    for _ in range(2):
        before = processor_seconds()
        walls.append(swept(configurations, runs, **options))
        each = {pid: now - before.get(pid, 0.0) for pid, now in processor_seconds().items()}
        busy.append(each.pop(os.getpid()) + max(each.values(), default=0.0))
    return min(walls), min(busy)


def two_workers(lines: Lines) -> None:
    runs = some_runs(100)
    wall, busy = took(100, runs, n_jobs=1)

    def compared(name: str, found: tuple[float, float]) -> None:
        what = f"100 configurations x 100 runs, {name} / half of the time of one"
        lines.ratio(what, found[0], wall / 2, unit="s")
        what = f"100 configurations x 100 runs, {name}, processor time / half of the time of one"
        lines.ratio(what, found[1], busy / 2, unit="s")

    compared(PAIRS[0], took(100, runs, n_jobs=2))
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
        joblib.parallel_config("dask"),
    ):
        compared(PAIRS[1], took(100, runs))


def main() -> int:
    """Measure and print."""
    options, lines = parser(__doc__).parse_args(), Lines(LINES)
    sweeps(lines)
    two_workers(lines)
    return lines.end(options)


if __name__ == "__main__":
    sys.exit(main())
