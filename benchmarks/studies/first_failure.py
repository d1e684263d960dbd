"""Where a failed run went wrong: the proposals of `first_failure` against the steps that people marked.

Run ``python benchmarks/studies/first_failure.py``; ``--write`` keeps the page in docs/studies.
"""

from __future__ import annotations

import gzip
import json
import platform
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

from inputs import HERE, arguments, publish

import noetic_nb as nn
from noetic_nb.lab import Count, datasets, first_failure
from noetic_nb.lab._failing.steps import threads_of
from noetic_nb.lab._statistics.intervals import counted
from noetic_nb.lab._statistics.labels import clusters_of
from noetic_nb.runs import Run

NEAR: Final = 3
WITH_LABELS: Final = ("retail-agentrx-failed.json.gz", "retail-agentrx-labels.json.gz")


class Marked(NamedTuple):
    """A failed run, the step that people marked, and for each item of its log the step of the file."""

    run: Run
    step: int
    steps: list[int]


def read(folder: Path, name: str) -> Any:
    """Read a file of the data."""
    with gzip.open(folder / name) as file:
        return json.load(file)


def marked(folder: Path = HERE) -> Iterator[Marked]:
    """Yield the failed runs with the step of their root cause; the labels are never given to `first_failure`."""
    labels = {label["trajectory_id"]: label for label in read(folder, WITH_LABELS[1])}
    for entry in read(folder, WITH_LABELS[0]):
        label = labels[entry["task_id"]]
        root = label["root_cause"]["failure_id"]
        step = next(failure["step_number"] for failure in label["failures"] if failure["failure_id"] == root)
        yield Marked(nn.import_run([entry], progress=False), step, [*_steps_of_items(entry["traj"])])


def _steps_of_items(messages: Sequence[dict[str, Any]]) -> Iterator[int]:
    for message in messages:
        if message["role"] == "system":
            continue
        items = len(message.get("tool_calls") or []) + bool((message.get("content") or "").strip())
        yield from [message["index"]] * (items if message["role"] == "assistant" else 1)


def proposed(each: Marked) -> int | None:
    """Return the step that `first_failure` proposes."""
    found = first_failure(each.run)
    return None if found is None else each.steps[found.item]


def last_write(each: Marked) -> int | None:
    """Return the step of the best of seven trivial rules: the first failed write, else the last write."""
    writes = [step for thread in threads_of(each.run) for step in thread.calls if step.writes]
    failed = [step for step in writes if step.failed]
    return each.steps[(failed[0] if failed else writes[-1]).item] if writes else None


def scores(marks: Sequence[Marked], steps: Sequence[int | None]) -> dict[str, Count]:
    """Return how often a step is the marked one, or near it, of all runs and of those with a proposal."""
    clusters = clusters_of([each.run for each in marks])
    exact = [step == each.step for each, step in zip(marks, steps, strict=True)]
    near = [step is not None and abs(step - each.step) <= NEAR for each, step in zip(marks, steps, strict=True)]
    spoken = [at for at, step in enumerate(steps) if step is not None]
    return {
        "exact": counted(exact, clusters),
        f"within {NEAR} steps": counted(near, clusters),
        "exact, where it speaks": counted([exact[at] for at in spoken], [clusters[at] for at in spoken]),
        "no proposal": counted([step is None for step in steps], clusters),
    }


def page() -> str:
    """Return the page."""
    marks = [*marked()]
    steps = [proposed(each) for each in marks]
    ours, theirs = scores(marks, steps), scores(marks, [last_write(each) for each in marks])
    lines = [
        "# The first failing step",
        "",
        "How often does `lab.first_failure` name the step that people marked as the cause of a failure?",
        "",
        "Written by `python benchmarks/studies/first_failure.py --write`; every figure on this page is computed by it.",
        "",
        f"* **Runs**: {len(marks)} failed runs of a shop's service desk in which people marked the step that caused "
        "the failure (AgentRx, MIT). They are half of the published runs. **The kinds of evidence were written "
        "while looking at these runs**, so the first table shows how well they fit, not how often they will be "
        "right. The other half was never looked at.",
        "* **Unit of analysis**: a run; each run is of a different task. Intervals are 95 %.",
        "* **Never read**: rewards, outcomes, expected actions, labels.",
        "* **Tried**: 15 kinds of evidence are in use. Five more were dropped because good runs had them as often: "
        "general words of retraction, a question of the agent left open at the end, an action claimed without a "
        "call, an amount without an origin, a write without the user's consent.",
        f"* **Versions**: noetic_nb {version('noetic_nb')}, Python {platform.python_version()}.",
        "",
        "| | `first_failure` | the first failed write, else the last write |",
        "|---|---|---|",
        *[f"| {name} | {count!r} | {theirs[name]!r} |" for name, count in ours.items()],
        "",
        "## Runs without marks",
        "",
        "A proposal in a good run is a false alarm. The AgentRx runs were used to drop kinds of evidence, and the "
        "retail runs to make their wording narrower.",
        "",
        "| runs | proposals in failed runs | in good runs | reasons |",
        "|---|---|---|---|",
    ]
    sets = {
        "AgentRx": [
            run for run in nn.import_runs(HERE / "retail-agentrx.json.gz", progress=False) if isinstance(run, Run)
        ],
        "airline": datasets.load_trajectories(HERE / "airline.json.gz"),
        "retail": datasets.retail(),
        "telecom": datasets.telecom(),
    }
    for name, runs in sets.items():
        found = [first_failure(run) for run in runs]
        reasons = Counter(each.reason for each in found if each is not None)
        cells = []
        for outcome in (False, True):
            here = [at for at, run in enumerate(runs) if run.meta["outcome"] is outcome]
            cells.append(counted([found[at] is not None for at in here], clusters_of([runs[at] for at in here])))
        said = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common()) or "none"
        lines.append(f"| {name} | {cells[0]!r} | {cells[1]!r} | {said} |")
    lines += [
        "",
        "`first_failure` rarely proposes a step in a good run, but it also proposes none in many failed runs. No "
        "proposal does not mean that the run is good. It cannot see causes that lie outside the run, such as "
        "something the user should have said.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    given = arguments(sys.argv[1:], __doc__ or "")
    publish(page(), "first_failure.md", write=given.write)
