"""Run every benchmark, one after the other, and keep what they print as JSON.

    python -m benchmarks.collect build/bench.json [name ...]

Each is a process of its own. ``python -m benchmarks.page`` makes the page of costs of the file.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import monotonic
from typing import Any, Final

from noetic_nb import __version__

BENCHMARKS: Final = {
    "runtime": "Turn",
    "turns": "Full turn",
    "conversations": "Threads",
    "memory": "Memory",
    "tokens": "Tokens",
    "steering": "Steering",
    "regulator": "Regulator",
    "storage": "Storage",
    "interop": "Imports",
    "watching": "Watching",
    "widgets": "Views",
    "lab": "Lab",
    "sweeps": "Sweeps",
    "remembering": "Losses",
    "split": "Split",
}
PEERS: Final = (
    "langchain", "langgraph", "langgraph-checkpoint-sqlite", "aiosqlite", "common-expression-language", "noos", "tiktoken",
    "anywidget", "ipywidgets", "opentelemetry-sdk", "scikit-learn", "dask",
)  # fmt: skip


def machine() -> dict[str, Any]:
    """Return what the figures were measured on."""
    names = [line.partition(":")[2].strip() for line in _read("/proc/cpuinfo") if line.startswith("model name")]
    memory = [line.split()[1] for line in _read("/proc/meminfo") if line.startswith("MemTotal")]
    return {
        "processor": names[0] if names else platform.processor(),
        "processors": os.cpu_count(),
        "memory_gib": round(int(memory[0]) / 2**20) if memory else None,
        "system": f"{platform.system()} {platform.machine()}",
    }


def _read(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def versions() -> dict[str, str]:
    """Return the versions of this library, of Python and of what it is compared with."""
    found = {"noetic_nb": __version__, "Python": platform.python_version()}
    for name in PEERS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def says(name: str) -> str:
    """Return the first line of what a benchmark says of itself, which asks for nothing to be imported."""
    text = ast.get_docstring(ast.parse(Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")))
    return (text or "").splitlines()[0]


def collected(names: Sequence[str]) -> dict[str, Any]:
    """Run benchmarks and return what they found."""
    begun, loads = datetime.now(UTC), [os.getloadavg()[0]]
    found: dict[str, Mapping[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            print(f"== {name}", flush=True)
            start, kept = monotonic(), Path(folder, f"{name}.json")
            done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", "--into", str(kept)], check=False)
            if done.returncode:
                raise SystemExit(f"benchmarks.{name} failed with {done.returncode}; what it says is above.")
            loads.append(os.getloadavg()[0])
            seconds = round(monotonic() - start, 1)
            found[name] = {"says": says(name), "seconds": seconds, "lines": json.loads(kept.read_text())}
    return {
        "date": begun.strftime("%Y-%m-%d"),
        "seconds": round(sum(one["seconds"] for one in found.values())),
        "loads": loads,
        "machine": machine(),
        "versions": versions(),
        "benchmarks": found,
    }


def main() -> int:
    """Run what is named, or everything."""
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("into", type=Path)
    given.add_argument("names", nargs="*", help=f"of {', '.join(BENCHMARKS)}; all by default")
    options = given.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        given.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    found = collected(options.names or list(BENCHMARKS))
    options.into.parent.mkdir(parents=True, exist_ok=True)
    options.into.write_text(json.dumps(found, indent=1))
    print(f"{options.into}: {len(found['benchmarks'])} benchmarks, {found['seconds']} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
