"""What the studies of detectors read, and how their pages say so."""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
from collections.abc import Hashable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from noetic_nb.lab import datasets
from noetic_nb.runs import Run

DATA_VARIABLE: Final = "NOETIC_DATA"
FILES: Final = (
    "tau-airline/trajectories.json.gz",
    "tau2/retail-gpt-4.1.json.gz",
    "tau2/retail-toolorchestra-gpt-5.json.gz",
    "tau2/telecom-gpt-4.1.json.gz",
    "agentdojo/banking-workspace.jsonl.gz",
)
SEED: Final = 0
SAMPLES: Final = 1_000


def load(folder: Path) -> list[Run]:
    """Return the runs that somebody judged and nobody attacked."""
    runs = datasets.load_trajectories(folder / FILES[0])
    for name in FILES[1:4]:
        runs += datasets.load_tau2(folder / name)
    runs += datasets.load_agentdojo(folder / FILES[4])
    return [run for run in runs if run.meta["outcome"] is not None and not run.meta["attack"]]


def task_of(run: Run) -> Hashable:
    """Return the task of a run; where its id is lost, the first message says which it was."""
    known = run.meta["task_id"]
    return run.meta["domain"], run.turns[0].query if known is None else known


def about(folder: Path, runs: Sequence[Run], script: str, split: str) -> list[str]:
    """Return the lines of a page that say what it was made of."""
    counts = []
    for domain in sorted({run.meta["domain"] for run in runs}):
        here = [run for run in runs if run.meta["domain"] == domain]
        failed = sum(not run.meta["outcome"] for run in here)
        counts.append(f"{domain} {len(here)} runs of {len({*map(task_of, here)})} tasks, {failed} failed")
    digests = [f"`{name}` {hashlib.sha256((folder / name).read_bytes()).hexdigest()[:16]}" for name in FILES]
    versions = ", ".join(f"{name} {version(name)}" for name in ("noetic_nb", "numpy", "scikit-learn"))
    return [
        f"Written by `python benchmarks/studies/{script} DATA --write`; every figure on this page is computed by it.",
        "",
        f"* **Runs**: {'; '.join(counts)}. Runs that were attacked are left out.",
        f"* **Files** (first 16 digits of SHA-256): {'; '.join(digits for digits in digests)}.",
        f"* **Split**: {split}",
        f"* **Seed** {SEED}; **samples** {SAMPLES}; intervals of 95 %, whole tasks drawn again, nothing fitted again.",
        f"* **Versions**: {versions}, Python {platform.python_version()}.",
        "",
    ]


def arguments(given: Sequence[str], doc: str) -> argparse.Namespace:
    """Read the command line of a study."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("data", nargs="?", type=Path, default=os.environ.get(DATA_VARIABLE), help="folder of the runs")
    parser.add_argument("--write", action="store_true", help="keep the page in docs/studies")
    chosen = parser.parse_args(given)
    if chosen.data is None:
        parser.error(f"name the folder of the runs, or set {DATA_VARIABLE}")
    chosen.data = Path(chosen.data)
    return chosen


def publish(text: str, name: str, *, write: bool) -> None:
    """Print a page, and keep it where that is wanted."""
    if write:
        page = Path(__file__).parents[2] / "docs" / "studies" / name
        page.parent.mkdir(exist_ok=True)
        page.write_text(text, encoding="utf-8")
    print(text, end="")
