"""What budgets are worth: tokens and money that failed runs would not have spent, against the good runs that would be lost.

Run ``python benchmarks/studies/stopping_value.py``; ``--write`` keeps the page in docs/studies.

A threshold is fitted on some tasks, as the one that saves most tokens of failed runs and stops at most 5 % of the good ones, and
reported on others: on the other half of the tasks of its domain, and on a domain that it has not seen.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any, Final

from inputs import SAMPLES, SEED, about, arguments, load, publish, task_of, with_task

from noetic_nb.events import ModelCalled, ToolCalled
from noetic_nb.lab import economics
from noetic_nb.lab._detection.fitting import folds_of
from noetic_nb.lab._statistics.intervals import counted
from noetic_nb.lab._statistics.labels import clusters_of
from noetic_nb.regulator import CallBudget, CostCap
from noetic_nb.regulator._settings import RECOMMENDED_SETTINGS
from noetic_nb.runs import Run

MOST_LOST: Final = 0.05
OTHER_TASKS: Final = "other tasks"
OTHER_DOMAINS: Final = "other domains"
POLICIES: Final[dict[str, Any]] = {
    "budget of tool calls": (CallBudget(), "detector"),
    "hard cap on output tokens": (CostCap(poor_mean=None), "detector"),
    "cap on calls of the model": (CallBudget(), "cap on steps"),
}


_ROWS: dict[tuple[str, tuple[str, ...]], Any] = {}


def rows_of(runs: Sequence[Run], name: str) -> Any:
    """Return what a policy does at every threshold, all runs together."""
    key = name, tuple([run.run_id for run in runs])
    if key not in _ROWS:
        _ROWS[key] = _rows_of(runs, name)
    return _ROWS[key]


def _rows_of(runs: Sequence[Run], name: str) -> Any:
    detector, policy = POLICIES[name]
    frame = economics(detector, runs, by=task_of, samples=SAMPLES, seed=SEED)
    return frame[(frame.policy == policy) & (frame.domain == "all")].sort_values("threshold")


def fitted(runs: Sequence[Run], name: str) -> float | None:
    """Return the lowest threshold that stops few enough of the good runs, None where it stops no failed one."""
    rows = rows_of(runs, name)
    allowed = rows[(rows.good_lost <= MOST_LOST) & (rows.tokens_saved > 0)]
    return None if allowed.empty else float(allowed.threshold.iloc[0])


def reported(runs: Sequence[Run], name: str, threshold: float) -> Any:
    """Return what a threshold does; heights between two that were reached do what the upper one does."""
    rows = rows_of(runs, name)
    above = rows[rows.threshold >= threshold]
    return None if above.empty else above.iloc[0]


def spent_by_failed(runs: Sequence[Run]) -> int:
    """Return the tokens of the failed runs."""
    failed = [run for run in runs if not run.meta["outcome"]]
    return sum(call.input_tokens + call.output_tokens for run in failed for call in run.select(ModelCalled))


def share(row: Any, name: str) -> str:
    value, low, high = (100 * row[f"{name}{end}"] for end in ("", "_low", "_high"))
    return f"{value:.0f} % [{low:.0f}, {high:.0f}]"


def none_of(runs: Sequence[Run], *, failed: bool) -> str:
    """Return the share of stopped runs where no run reaches the threshold."""
    some = [run for run in runs if run.meta["outcome"] != failed]
    found = counted([False] * len(some), clusters_of(some, task_of))
    return f"0 % [0, {100 * found.high:.0f}]"


@dataclass(frozen=True)
class Line:
    """One line of the table, with what it says in numbers."""

    text: str
    policy: str
    domain: str
    where: str
    lost: float | None


def line(name: str, domain: str, where: str, fit: Sequence[Run], test: Sequence[Run]) -> Line:
    """Return one line of the table."""
    threshold = fitted(fit, name)
    if threshold is None:
        return Line(f"| {name} | {domain} | {where} | none | | | | |", name, domain, where, None)
    row, all_tokens = reported(test, name, threshold), spent_by_failed(test)
    if row is None:
        shares = f"{none_of(test, failed=False)} | {none_of(test, failed=True)}"
        text = f"| {name} | {domain} | {where} | {threshold:g} | {shares} | 0.0 % [0.0, 0.0] | |"
        return Line(text, name, domain, where, 0.0)
    saved = [100 * row[f"tokens_saved{end}"] / all_tokens for end in ("", "_low", "_high")]
    ends = f"[{row.cost_saved_low:.2f}, {row.cost_saved_high:.2f}]"
    cost = "not recorded" if isnan(row.cost_saved) else f"${row.cost_saved:.2f} {ends}"
    tokens = f"{saved[0]:.1f} % [{saved[1]:.1f}, {saved[2]:.1f}]"
    shares = f"{share(row, 'good_lost')} | {share(row, 'failed_stopped')}"
    text = f"| {name} | {domain} | {where} | {threshold:g} | {shares} | {tokens} | {cost} |"
    return Line(text, name, domain, where, float(row.good_lost))


def held_out(runs: Sequence[Run]) -> list[Line]:
    """Return the lines of thresholds on tasks and domains that they were not fitted on."""
    lines = []
    for domain in sorted({run.meta["domain"] for run in runs}):
        here = [run for run in runs if run.meta["domain"] == domain]
        failed = [not run.meta["outcome"] for run in here]
        folds = folds_of([task_of(run) for run in here], [domain] * len(here), failed, 2, SEED)
        halves = [[run for run, fold in zip(here, folds, strict=True) if fold == half] for half in (0, 1)]
        elsewhere = [run for run in runs if run.meta["domain"] != domain]
        for name in POLICIES:
            lines.append(line(name, domain, OTHER_TASKS, *halves))
            lines.append(line(name, domain, OTHER_DOMAINS, elsewhere, here))
    return lines


def not_carried(lines: Sequence[Line], where: str) -> str:
    """Return which thresholds cost more good runs than where they were fitted."""
    known = [each for each in lines if each.where == where and each.lost is not None]
    broken = [each for each in known if each.lost is not None and each.lost > MOST_LOST]
    named = ", ".join(f"{each.policy} in {each.domain}" for each in broken)
    return (
        f"* Of {len(known)} thresholds fitted on {where}, {len(broken)} lost more good runs than the "
        f"{100 * MOST_LOST:.0f} % that they were fitted for: {named or 'none'}."
    )


def preset(runs: Sequence[Run]) -> str:
    """Return what the budget of the recommended settings does, by domain."""
    (budget,) = [each for each in RECOMMENDED_SETTINGS.predicates if isinstance(each, CallBudget)]
    cells = []
    for domain in sorted({run.meta["domain"] for run in runs}):
        here = [run for run in runs if run.meta["domain"] == domain]
        for good in (False, True):
            some = [run for run in here if run.meta["outcome"] == good]
            found = counted([len(run.select(ToolCalled)) > budget.total for run in some], clusters_of(some, task_of))
            ends = f"[{100 * found.low:.0f}, {100 * found.high:.0f}]"
            cells.append(f"{found.n} of {found.of} {'good' if good else 'failed'} {domain} runs ({ends} %)")
    return f"* The recommended budget of {budget.total} calls stops {', '.join(cells)}. It protects only against longer runs."


def frontier(runs: Sequence[Run]) -> list[str]:
    """Return what most could be saved for so many good runs lost, seen with hindsight: in sample."""
    lines = ["| domain | policy | 0 % | 5 % | 10 % | 20 % |", "|---|---|---|---|---|---|"]
    for domain in sorted({run.meta["domain"] for run in runs}):
        here = [run for run in runs if run.meta["domain"] == domain]
        for name in POLICIES:
            rows, cells = rows_of(here, name), []
            for most in (0.0, 0.05, 0.1, 0.2):
                allowed = rows[rows.good_lost <= most]
                saved = 0.0 if allowed.empty else 100 * allowed.tokens_saved.max() / spent_by_failed(here)
                cells.append(f"{saved:.1f} %")
            lines.append(f"| {domain} | {name} | {' | '.join(cells)} |")
    return lines


def main(given: Sequence[str]) -> int:
    """Measure and print."""
    chosen = arguments(given, __doc__ or "")
    every = load(chosen.data)
    runs = with_task(every)
    table = held_out(runs)
    split = (
        "a threshold is fitted on half of the tasks of a domain and reported on the other half, or fitted on the other domains "
        "and reported on all runs of one."
    )
    lines = [
        "# The value of budgets",
        "",
        "How many tokens does stopping at a budget save, and how many good runs does it lose?",
        "",
        *about(every, "stopping_value.py", split),
        "The saving is the sum of input and output tokens that failed runs spent after the stop. Tokens are "
        "recorded in telecom and retail, and estimated from the text elsewhere. Costs are shown if they were "
        "recorded.",
        "",
        "## Thresholds outside their fitting data",
        "",
        f"Fitted: the lowest threshold that stops at most {100 * MOST_LOST:.0f} % of the good runs.",
        "",
        "| policy | domain | fitted on | threshold | good runs lost | failed runs stopped | tokens of failed runs saved | cost |",
        "|---|---|---|---|---|---|---|---|",
        *[each.text for each in table],
        "",
        "## With hindsight",
        "",
        "The largest share of the tokens of failed runs that any threshold saves while it loses at most the given "
        "share of good runs. It is fitted and reported on the same runs, so no threshold can do better.",
        "",
        *frontier(runs),
        "",
        "## What failed to replicate",
        "",
        not_carried(table, OTHER_TASKS),
        not_carried(table, OTHER_DOMAINS),
        preset(runs),
        "",
    ]
    publish("\n".join(lines), "stopping_value.md", write=chosen.write)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
