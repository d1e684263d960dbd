"""What all benchmarks share: contestants that take turns, processes that start afresh, and lines that say who did what.

A line says what was done, what it took here and on the other side, the ratio, the goal, and whether it was met. The ratio is the
median of the rounds' own ratios, so that a machine that slows down halfway slows both sides down.
"""

from __future__ import annotations

import argparse
import gc
import inspect
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import process_time
from typing import Any, Final, TypeAlias

Work: TypeAlias = Callable[[], Any]
"""What is timed, plain or async; an awaitable that it returns is awaited."""

SCALES: Final = {"us": 1e6, "ms": 1e3, "s": 1.0}
WARM: Final = 3


async def timed(work: Work, times: int = 1, clock: Callable[[], float] = process_time) -> float:
    """Return the seconds of a call; the first one, which tells whether it has to be awaited, counts as any other."""
    start = clock()
    first = work()
    if isinstance(first, Awaitable):
        await first
        for _ in range(times - 1):
            await work()
    else:
        for _ in range(times - 1):
            work()
    return (clock() - start) / times


async def alternate(
    works: Mapping[str, Work], *, rounds: int, times: int = 1, clock: Callable[[], float] = process_time
) -> dict[str, list[float]]:
    """Return the seconds of a call of each contestant in each round: all warmed up, all timed as often, all taking turns.

    Every other round goes backwards, so that nobody is always first.
    """
    for work in works.values():
        for _ in range(WARM):
            await timed(work)
    taken: dict[str, list[float]] = {name: [] for name in works}
    gc.collect()
    for number in range(rounds):
        for name in works if number % 2 == 0 else reversed(list(works)):
            taken[name].append(await timed(works[name], times, clock))
    return taken


def best(work: Work, *, times: int = 5, clock: Callable[[], float]) -> float:
    """Return the least seconds of some calls of plain work, which nothing else of the process delays."""
    found = []
    for _ in range(times):
        gc.collect()
        start = clock()
        work()
        found.append(clock() - start)
    return min(found)


def fresh(scripts: Mapping[str, str], *, rounds: int, arguments: Sequence[str] = ()) -> dict[str, list[list[float]]]:
    """Return the figures that each script prints in a process of its own, per round.

    Everything is compiled in a round before, into a folder of its own, as it is where a package was installed: whoever forbids
    bytecode in the environment would otherwise measure how fast Python compiles.
    """
    found: dict[str, list[list[float]]] = {name: [] for name in scripts}
    with tempfile.TemporaryDirectory() as folder:
        around = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        around["PYTHONPYCACHEPREFIX"] = folder
        for number in range(rounds + 1):
            for name, script in scripts.items():
                command = [sys.executable, "-c", script, *arguments]
                done = subprocess.run(command, env=around, capture_output=True, text=True)
                if done.returncode:
                    raise SystemExit(f"{name} failed in a process of its own:\n{done.stderr}")
                if number:
                    found[name].append([float(word) for word in done.stdout.split()])
    return found


class Lines:
    """Prints comparisons, and remembers the goals that were missed."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def ratio(
        self,
        what: str,
        ours: Sequence[float] | float,
        peer: Sequence[float] | float,
        *,
        goal: float | None = None,
        unit: str = "us",
    ) -> float:
        """Print what both sides took and return the ratio; seconds, unless the unit is another than of time."""
        mine, other = _list(ours), _list(peer)
        ratio = statistics.median([a / b for a, b in zip(mine, other, strict=True)])
        scale = SCALES.get(unit, 1.0)
        figures = (
            f"{statistics.median(mine) * scale:10.2f} {unit:<3} {statistics.median(other) * scale:10.2f} {unit:<3}"
        )
        print(f"{what:<98} {figures} {ratio:8.3f}x  {self._verdict(what, ratio, goal)}", flush=True)
        return ratio

    def value(self, what: str, value: float, *, goal: float | None = None, unit: str = "ms") -> None:
        """Print a figure of ours that has no other side, in the unit that is named."""
        print(f"{what:<98} {value:10.2f} {unit:<3} {'':25} {self._verdict(what, value, goal, unit)}", flush=True)

    def end(self, options: argparse.Namespace) -> int:
        """Return what the process ends with: 1 where ``--check`` was given and a goal missed."""
        return 1 if options.check and self.missed else 0

    def _verdict(self, what: str, found: float, goal: float | None, unit: str = "x") -> str:
        if goal is None:
            return "no goal"
        if found <= goal:
            return f"goal <= {goal:g}{unit}  met"
        self.missed.append(what)
        return f"goal <= {goal:g}{unit}  MISSED"


def parser(text: str | None, *, rounds: int) -> argparse.ArgumentParser:
    """Return what every benchmark is started with."""
    made = argparse.ArgumentParser(description=inspect.cleandoc(text or ""), formatter_class=_AsWritten)
    made.add_argument("--rounds", type=int, default=rounds)
    made.add_argument("--check", action="store_true", help="exit with 1 when a goal is missed")
    return made


_AsWritten = argparse.RawDescriptionHelpFormatter


def _list(values: Sequence[float] | float) -> list[float]:
    return [values] if isinstance(values, int | float) else list(values)
