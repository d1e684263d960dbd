"""Make the packaged data from a folder of downloads: ``python -m benchmarks.datasets_build FOLDER``.

The folder holds ``tau-airline``, ``tau2`` and ``agentdojo``, each with its licence. The choice is fixed: the same input gives the
same files.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from noetic_nb.events import ToolCalled
from noetic_nb.lab import datasets
from noetic_nb.lab.datasets import DATA
from noetic_nb.runs import Run
from noetic_nb.runs._load import read_gzip

__all__ = ["CHOSEN", "build", "build_agentdojo", "build_all", "build_tau2", "contents"]

CHOSEN: Final[dict[str, tuple[int, ...]]] = {
    "one tool again and again": (14, 15, 20, 26, 40, 51, 76, 80, 83),
    "long, many tools": (12, 29, 75, 87, 98),
    "short": (3, 49, 69),
    "no tool at all": (4, 81, 97),
}
"""Indices in the full set of airline runs and why each was taken; ten succeeded, ten did not, and all four trials occur."""
TAU2: Final = ("retail-gpt-4.1.json.gz", "retail-toolorchestra-gpt-5.json.gz", "telecom-gpt-4.1.json.gz")
_LICENCE: Final = "MIT"


def _pack(target: Path, content: bytes) -> int:
    target.parent.mkdir(parents=True, exist_ok=True)
    # mtime=0: the file must not differ from one build to the next.
    packed = gzip.compress(content, mtime=0)
    target.write_bytes(packed)
    return len(packed)


def _json(data: Any) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


def build(source: Path, target: Path) -> int:
    """Write the chosen airline runs and their licence into a folder.

    Parameters
    ----------
    source : Path
        The full set, gzipped, with ``LICENSE`` in the same folder.
    target : Path
        The folder to write ``airline.json.gz`` and ``LICENSE.tau-bench`` to.

    Returns
    -------
    int
        Size of the data, bytes.
    """
    everything: list[dict[str, Any]] = json.loads(read_gzip(source))
    chosen = [
        {
            "index": index,
            "task_id": everything[index]["task_id"],
            "trial": everything[index]["trial"],
            "reward": everything[index]["reward"],
            "info": {"task": {"instruction": everything[index]["info"]["task"]["instruction"]}},
            "traj": everything[index]["traj"],
        }
        for index in sorted(index for indices in CHOSEN.values() for index in indices)
    ]
    size = _pack(target / "airline.json.gz", _json(chosen))
    shutil.copyfile(source.with_name("LICENSE"), target / "LICENSE.tau-bench")
    return size


def build_tau2(source: Path, target: Path) -> int:
    """Write result files of tau2-bench, whole, and their licence; returns the size of the data, bytes."""
    size = sum([_pack(target / name, _json(json.loads(read_gzip(source / name)))) for name in TAU2])
    shutil.copyfile(source / "LICENSE.tau2-bench", target / "LICENSE.tau2-bench")
    return size


def build_agentdojo(source: Path, target: Path) -> int:
    """Write the runs of AgentDojo, a file for each suite, and their licence; returns the size of the data, bytes."""
    suites: dict[str, list[bytes]] = {}
    for file in sorted(source.glob("*.jsonl.gz")):
        for line in read_gzip(file).splitlines():
            entry = json.loads(line)
            suites.setdefault(entry["suite_name"], []).append(_json(entry))
    shutil.copyfile(source / "LICENSE.agentdojo", target / "LICENSE.agentdojo")
    return sum([_pack(target / f"agentdojo-{suite}.jsonl.gz", b"\n".join(runs)) for suite, runs in suites.items()])


def contents() -> list[dict[str, Any]]:
    """Return the packaged contents, a row for each set: the numbers of `datasets.describe`."""
    sets: dict[str, Callable[[], Iterable[Run]]] = {
        "airline": datasets.airline,
        "retail": datasets.retail,
        "telecom": datasets.telecom,
        "agentdojo banking": lambda: datasets.agentdojo("banking"),
        "agentdojo workspace": lambda: datasets.agentdojo("workspace"),
    }
    rows = []
    for name, load in sets.items():
        runs = list(load())
        outcomes = [run.meta["outcome"] for run in runs]
        calls = sum([len(run.select(ToolCalled)) for run in runs])
        good, failed = outcomes.count(True), outcomes.count(False)
        rows.append(
            {"name": name, "runs": len(runs), "calls": calls, "good": good, "failed": failed, "licence": _LICENCE}
        )
    return rows


def build_all(source: Path, target: Path = DATA) -> int:
    """Write all packaged data; in the package's own folder, write the table of `contents` too."""
    size = build(source / "tau-airline" / "trajectories.json.gz", target)
    size += build_tau2(source / "tau2", target) + build_agentdojo(source / "agentdojo", target)
    if target == DATA:
        text = json.dumps(contents(), indent=1)
        (target / "contents.json").write_text(text + "\n", encoding="utf-8")
    return size


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and build."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("source", type=Path, help="folder with tau-airline, tau2 and agentdojo")
    parser.add_argument("--target", type=Path, default=DATA, help="folder to write to")
    chosen = parser.parse_args(arguments)
    print(f"{build_all(chosen.source, chosen.target):,} bytes, in {chosen.target}")


if __name__ == "__main__":
    main()
