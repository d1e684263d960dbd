"""The parts that all benchmarks share: contestants that take turns, processes that start afresh, and lines that say who did what.

A line says what was done, what it took here and on the other side, the ratio, the goal, and whether it was met. The ratio is the
median of the rounds' own ratios, so that a machine that slows down halfway slows both sides down.
"""

from __future__ import annotations

import argparse
import gc
import inspect
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
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
    """Prints comparisons, keeps them, and remembers the goals that were missed.

    Parameters
    ----------
    known : mapping of str to float or None
        Every line that is to be printed, and its goal. A line names what is done here and, after a slash, what is done on the
        other side. One that is not known is refused, so that the list of a benchmark is what its run prints.
    """

    def __init__(self, known: Mapping[str, float | None]) -> None:
        self.known = known
        self.printed: dict[str, dict[str, Any]] = {}

    def ratio(
        self,
        what: str,
        ours: Sequence[float] | float,
        peer: Sequence[float] | float,
        *,
        about: str = "",
        unit: str = "us",
    ) -> float:
        """Print what both sides took and return the ratio; seconds, unless the unit is another than of time.

        `about` is a fact that the run itself found, such as a number of items.
        """
        mine, other = _list(ours), _list(peer)
        ratio = statistics.median([a / b for a, b in zip(mine, other, strict=True)])
        scale = SCALES.get(unit, 1.0)
        sides = [statistics.median(side) * scale for side in (mine, other)]
        self._print(what, about, {"ours": sides[0], "other": sides[1], "unit": unit, "ratio": ratio})
        return ratio

    def value(self, what: str, value: float, *, about: str = "", unit: str = "ms") -> None:
        """Print a figure of ours that has no other side, in the unit that is named."""
        self._print(what, about, {"ours": value, "unit": unit})

    def skip(self, what: str, why: str) -> None:
        """Say why a line cannot be measured here."""
        self._print(what, why, {})

    def end(self, options: argparse.Namespace) -> int:
        """Keep what was printed where ``--into`` was given; return 1 where ``--check`` was given and a goal missed."""
        if options.into is not None:
            missing = self.known.keys() - self.printed.keys()
            if missing:
                raise SystemExit(f"Known, but not measured: {'; '.join(sorted(missing))}")
            options.into.write_text(json.dumps([self.printed[what] for what in self.known], indent=1))
        return 1 if options.check and any(missed(line) for line in self.printed.values()) else 0

    def _print(self, what: str, about: str, figures: dict[str, Any]) -> None:
        if what not in self.known:
            raise SystemExit(f"Not among the lines of this benchmark: {what!r}")
        line = {"what": what, "about": about, "goal": self.known[what], **figures}
        self.printed[what] = line
        whole = f"{what} ({about})" if about else what
        cells = [f"{line[side]:10.2f} {line['unit']:<3}" if side in line else "" for side in ("ours", "other")]
        ratio = f"{line['ratio']:8.3f}x" if "ratio" in line else ""
        print(f"{whole:<110} {cells[0]:14} {cells[1]:14} {ratio:9}  {verdict(line)}", flush=True)


def missed(line: Mapping[str, Any]) -> bool:
    """Return whether a line has a goal that it did not meet."""
    return line["goal"] is not None and "ours" in line and line.get("ratio", line["ours"]) > line["goal"]


def verdict(line: Mapping[str, Any]) -> str:
    """Return the goal of a line in words, and whether it was met."""
    if "ours" not in line:
        return "not measured"
    if line["goal"] is None:
        return "no goal"
    unit = "x" if "ratio" in line else f" {line['unit']}".rstrip()
    return f"goal <= {line['goal']:.4g}{unit}  {'MISSED' if missed(line) else 'met'}"


def parser(text: str | None, *, rounds: int | None = None) -> argparse.ArgumentParser:
    """Return what every benchmark is started with; one that measures each thing once has no rounds."""
    made = argparse.ArgumentParser(description=inspect.cleandoc(text or ""), formatter_class=_AsWritten)
    if rounds is not None:
        made.add_argument("--rounds", type=int, default=rounds)
    made.add_argument("--check", action="store_true", help="exit with 1 when a goal is missed")
    made.add_argument("--into", type=Path, help="a file for the lines, as JSON")
    return made


_AsWritten = argparse.RawDescriptionHelpFormatter


def _list(values: Sequence[float] | float) -> list[float]:
    return [values] if isinstance(values, int | float) else list(values)
