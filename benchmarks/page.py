"""Make the page of costs of what a run of all benchmarks has kept.

    python -m benchmarks.page build/bench.json docs/costs.md

The page ends with a checksum of what is above it: a figure that is changed by hand is noticed by a test.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from benchmarks.collect import BENCHMARKS
from benchmarks.comparing import missed

# The split of a turn has a table of its own.
SPLIT: Final = "split"
TIMES: Final = {"us": 1.0, "ms": 1e3, "s": 1e6}
SIGNED: Final = "<!-- sha256 {} -->\n"
HEAD: Final = """# Costs

Written by `make bench` on {date}, in {seconds} s; all figures of a part are from the same run. {met} of {goals} goals were met.

* **Machine**: {processor}, {processors} processors, {memory_gib} GiB, {system}. Its load meanwhile: {low:.1f} to {high:.1f}. \
Background load makes timings worse and ratios less reliable.
* **Versions**: {versions}.
* **How to read a line**: our work, then, after a slash, the peer's. Both do the same work in turns, after the same warm-up. \
A ratio is the median over the rounds; below 1 ours is faster or smaller. A goal is an upper limit of the ratio, or of our \
figure where there is no peer. Each benchmark also prints lines without a goal.
"""
TABLE: Final = """
| Part | Work / peer | Ours | Theirs | Ratio | Goal |
|---|---|---:|---:|---:|---|
"""
SPLIT_TABLE: Final = """
| Part | Name | Of a turn | Share and how often |
|---|---|---:|---|
"""


def figure(value: float, unit: str) -> str:
    """Return a figure with three digits and its unit, of times the one that suits it; nothing breaks between the two.

    >>> [figure(*one).split() for one in ((82.4, "us"), (0.0034, "s"), (1_000_000, "B"), (0, ""))]
    [['82.4', 'µs'], ['3.40', 'ms'], ['1,000,000', 'B'], ['0']]
    """
    if unit in TIMES:
        value *= TIMES[unit]
        unit = "us" if abs(value) < 1e3 else "ms" if abs(value) < 1e6 else "s"
        value /= TIMES[unit]
    digits = 0 if value == int(value) or abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 0.1 else 3
    return f"{value:,.{digits}f}\u00a0{unit.replace('us', 'µs')}".rstrip()


def row(part: str, line: Mapping[str, Any]) -> str:
    """Return a line of the table."""
    here, slash, there = line["what"].partition(" / ")
    what = f"{here} ({line['about']}){slash}{there}" if line["about"] else line["what"]
    ours, other = [figure(line[side], line["unit"]) if side in line else "" for side in ("ours", "other")]
    ratio = figure(line["ratio"], "") if "ratio" in line else ""
    goal = ""
    if line["goal"] is not None and "ours" in line:
        most = figure(line["goal"], "" if "ratio" in line else line["unit"])
        goal = f"≤\u00a0{most} **missed**" if missed(line) else f"≤\u00a0{most} met"
    return f"| {part} | {what} | {ours} | {other} | {ratio} | {goal} |\n"


def rows(found: Mapping[str, Any]) -> Iterator[str]:
    """Return the lines of all benchmarks but the split; those without a goal stay with the benchmark."""
    for name, one in found["benchmarks"].items():
        if name != SPLIT:
            for line in one["lines"]:
                if line["goal"] is not None:
                    yield row(BENCHMARKS[name], line)


def page(found: Mapping[str, Any]) -> str:
    """Return the whole page."""
    benchmarks = found["benchmarks"]
    lines = [
        line for one in benchmarks.values() for line in one["lines"] if line["goal"] is not None and "ours" in line
    ]
    text = HEAD.format(
        **found["machine"],
        **{name: found[name] for name in ("date", "seconds")},
        goals=len(lines),
        met=sum(not missed(line) for line in lines),
        low=min(found["loads"]),
        high=max(found["loads"]),
        versions=", ".join(f"{name} {version}" for name, version in found["versions"].items()),
    )
    text += "\n## Every goal\n" + TABLE + "".join(rows(found))
    text += "\nThe parts and their modules; each runs alone with `python -m benchmarks.NAME`:\n\n"
    for name, one in benchmarks.items():
        text += f"* **{BENCHMARKS[name]}**, `{name}`, {one['seconds']:.0f} s: {one['says']}\n"
    text += (
        "\n## Where a turn goes\n\nOne turn with a tool, five layers and ten rules, recorded and saved in memory, split by "
        "`lab.profile(run)` ([how](behaviour/lab.md#where-the-time-goes)). `own` is the library's own overhead, the "
        "recorder included.\n"
    )
    text += SPLIT_TABLE
    for line in benchmarks[SPLIT]["lines"]:
        part, _, name = line["what"].partition(" ")
        text += f"| {part} | {name} | {figure(line['ours'], line['unit'])} | {line['about']} |\n"
    text += "\n"
    return text + SIGNED.format(digest(text))


def digest(text: str) -> str:
    """Return the checksum that stands below a page."""
    return sha256(text.encode()).hexdigest()


def main() -> int:
    """Write the page."""
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("found", type=Path)
    given.add_argument("page", type=Path)
    options = given.parse_args()
    found = json.loads(options.found.read_text())
    if list(found["benchmarks"]) != list(BENCHMARKS):
        print(f"{options.page} is left as it is: only some of the benchmarks were run")
        return 0
    options.page.write_text(page(found), encoding="utf-8")
    print(f"{options.page}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
