"""What the studies of detectors read, and how their pages say so."""

from __future__ import annotations

import argparse
import platform
import random
from collections.abc import Callable, Hashable, Sequence
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np

from noetic_nb.lab import datasets
from noetic_nb.lab._detection.fitting import percentiles
from noetic_nb.runs import Run

HERE: Final = Path(__file__).with_name("data")
FILES: Final = (
    "tau-airline/trajectories.json.gz",
    "tau2/retail-gpt-4.1.json.gz",
    "tau2/retail-toolorchestra-gpt-5.json.gz",
    "tau2/telecom-gpt-4.1.json.gz",
    "agentdojo/banking-workspace.jsonl.gz",
)
SEED: Final = 0
SAMPLES: Final = 1_000


def load(folder: Path | None = None) -> list[Run]:
    """Return the runs that somebody judged and nobody attacked, of the package and of this folder, or of one like it."""
    if folder is None:
        runs = datasets.load_trajectories(HERE / "airline.json.gz")
        runs += [
            *datasets.retail(),
            *datasets.telecom(),
            *datasets.agentdojo("banking"),
            *datasets.agentdojo("workspace"),
        ]
    else:
        runs = datasets.load_trajectories(folder / FILES[0])
        runs += [run for name in FILES[1:4] for run in datasets.load_tau2(folder / name)]
        runs += datasets.load_agentdojo(folder / FILES[4])
    return [run for run in runs if run.meta["outcome"] is not None and not run.meta["attack"]]


def with_task(runs: Sequence[Run]) -> list[Run]:
    """Return the runs that say which task they are of; the first message is none."""
    return [run for run in runs if run.meta["task_id"] is not None]


def task_of(run: Run) -> Hashable:
    """Return the task of a run."""
    return run.meta["domain"], run.meta["task_id"]


def interval(
    statistic: Callable[[list[int]], float], groups: Sequence[Hashable], *, samples: int = SAMPLES, seed: int = SEED
) -> tuple[float, float]:
    """Return the 95 % percentile interval of a statistic of the places of runs, whole groups drawn again."""
    pools: dict[Hashable, list[int]] = {}
    for at, group in enumerate(groups):
        pools.setdefault(group, []).append(at)
    rng, of = random.Random(seed), list(pools.values())
    drawn = [chain.from_iterable(rng.choices(of, k=len(of))) for _ in range(samples)]
    return percentiles(np.asarray([statistic(list(places)) for places in drawn]))


def about(runs: Sequence[Run], script: str, split: str) -> list[str]:
    """Return the lines of a page that say what it was made of."""
    counts = []
    for domain in sorted({run.meta["domain"] for run in runs}):
        here = with_task([run for run in runs if run.meta["domain"] == domain])
        failed = sum(not run.meta["outcome"] for run in here)
        counts.append(f"{domain} {len(here)} runs of {len({*map(task_of, here)})} tasks, {failed} failed")
    lost = len(runs) - len(with_task(runs))
    versions = ", ".join(f"{name} {version(name)}" for name in ("noetic_nb", "numpy", "scikit-learn"))
    return [
        f"Written by `python benchmarks/studies/{script} --write`; every figure on this page is computed by it.",
        "",
        f"* **Runs**: {'; '.join(counts)}. Attacked runs are left out, and so are {lost} retail runs that do not say "
        "which task they belong to. The files are in the package and in `benchmarks/studies/data`.",
        "* **Unit of analysis**: a run. Intervals come from the spread between tasks, so more runs of the same "
        "tasks hardly narrow them.",
        f"* **Split**: {split}",
        f"* **Seed** {SEED}; **samples** {SAMPLES}. Intervals are 95 %, without refitting: Wilson intervals with the "
        "effective number of runs for shares, and a bootstrap over whole tasks for areas and sums.",
        f"* **Versions**: {versions}, Python {platform.python_version()}.",
        "",
    ]


def arguments(given: Sequence[str], doc: str) -> argparse.Namespace:
    """Read the command line of a study."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("data", nargs="?", type=Path, help="folder of other runs, with the same names")
    parser.add_argument("--write", action="store_true", help="keep the page in docs/studies")
    return parser.parse_args(given)


def publish(text: str, name: str, *, write: bool) -> None:
    """Print a page, and keep it where that is wanted."""
    if write:
        page = Path(__file__).parents[2] / "docs" / "studies" / name
        page.parent.mkdir(exist_ok=True)
        page.write_text(text, encoding="utf-8")
    print(text, end="")
