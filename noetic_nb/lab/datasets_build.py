"""Make the packaged airline data from the full set: ``python -m noetic_nb.lab.datasets_build trajectories.json.gz``.

The choice is fixed: the same input gives the same file, and its licence must lie beside it as ``LICENSE``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from noetic_nb.lab.datasets import DATA
from noetic_nb.runs.load import read_gzip

__all__ = ["CHOSEN", "build"]

CHOSEN: Final[dict[str, tuple[int, ...]]] = {
    "one tool again and again": (14, 15, 20, 26, 40, 51, 76, 80, 83),
    "long, many tools": (12, 29, 75, 87, 98),
    "short": (3, 49, 69),
    "no tool at all": (4, 81, 97),
}
"""Indices in the full set and why each was taken; ten succeeded, ten did not, and all four trials occur."""


def build(source: Path, target: Path) -> int:
    """Write the chosen runs and their licence into a folder.

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
    # mtime=0: the file must not differ from one build to the next.
    packed = gzip.compress(json.dumps(chosen, ensure_ascii=False, separators=(",", ":")).encode(), mtime=0)
    target.mkdir(parents=True, exist_ok=True)
    (target / "airline.json.gz").write_bytes(packed)
    shutil.copyfile(source.with_name("LICENSE"), target / "LICENSE.tau-bench")
    return len(packed)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and build."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("source", type=Path, help="trajectories.json.gz of the full set")
    parser.add_argument("--target", type=Path, default=DATA, help="folder to write to")
    chosen = parser.parse_args(arguments)
    size = build(chosen.source, chosen.target)
    print(f"{sum(map(len, CHOSEN.values()))} runs, {size:,} bytes, in {chosen.target}")


if __name__ == "__main__":
    main()
