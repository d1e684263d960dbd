"""Do rules about drift, loops, failures and cost tell runs that fail, by domain and on tasks that they were not fitted on?

Run ``python benchmarks/studies/failure_detectors.py``; ``--write`` keeps the page in docs/studies.

Four questions: how well each score orders the runs of one domain (nothing is fitted), what a threshold does on tasks and on
domains that it was not fitted on (`lab.calibrate`), whether nine features together do better (a logistic regression, out of
fold by task, and on a domain that it has not seen), and how sure `lab.calibrate` is of its verdicts on these runs: at ten seeds,
with detectors that know nothing, and with one whose true area is known. The features were named before anything was measured.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import isnan, log
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from inputs import SAMPLES, SEED, about, arguments, load, publish, task_of, with_task
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from noetic_nb.events import ToolCalled
from noetic_nb.items._json_text import compact_json
from noetic_nb.lab import calibrate
from noetic_nb.lab._detection.calibration import CHANCE
from noetic_nb.lab._detection.detectors import Unscored, detectors_of
from noetic_nb.lab._detection.fitting import (
    Fitting,
    Scored,
    area,
    areas,
    corrected_ends,
    folds_of,
    percentiles,
    weights_of,
)
from noetic_nb.lab._detection.threshold_search import COUNTS, FOLDS, WORDS, WordModel
from noetic_nb.lab._statistics.labels import clusters_of
from noetic_nb.regulator import CallBudget, CostCap, Regulator, RepeatedFailure, ScopeDrift, ToolLoop
from noetic_nb.regulator.predicates.context_scorer import CONTEXT_SCORER
from noetic_nb.runs import Run

DETECTORS: Final[dict[str, Any]] = {
    "loop: same tool": ToolLoop(),
    "loop: same call": ToolLoop(by="call", across_turns=True),
    "loop: same result": ToolLoop(by="result", across_turns=True),
    "repeated failure": RepeatedFailure(),
    "call budget": CallBudget(),
    "cost cap (output tokens, hard)": CostCap(poor_mean=None),
    "drift of keywords": ScopeDrift(),
    "drift in context": ScopeDrift(scorer=CONTEXT_SCORER, min_words=20, min_earlier=1, min_tool_texts=1),
    "regulator, release": Regulator.for_user("study"),
    "regulator, recommended": Regulator.recommended("study"),
}
LOGISTIC: Final = "nine features"
# Whole runs; measured by others on the same three sources, with features of their own.
OUTSIDE: Final = {"airline": 0.71, "retail": 0.51, "telecom": 0.80}
# Folds are drawn so often, as one drawing of them moves an area by some hundredths.
DRAWINGS: Final = 10
SEEDS: Final = range(10)
# Made labels and made detectors on the tasks of each domain.
MADE: Final = 100
AREA: Final = 0.75


def features(run: Run) -> list[float]:
    """Return nine numbers of a whole run."""
    calls = run.select(ToolCalled)
    different = {(call.name, compact_json(call.args or {})) for call in calls}
    replies = [len(turn.text) for turn in run.turns if turn.text]
    return [
        len(calls),
        COUNTS["messages"](run),
        COUNTS["state-changing calls"](run),
        log(1 + COUNTS["length in tokens"](run)),
        sum(call.status != "ok" for call in calls),
        len({call.name for call in calls}),
        len(calls) - len(different),
        any("transfer" in call.name for call in calls),
        sum(replies) / max(len(replies), 1),
    ]


def out_of_fold(values: Any, failed: Any, groups: Sequence[Any]) -> Any:
    """Return the mean score of models that have not seen the task, over several drawings of folds."""
    total = np.zeros(len(failed))
    for drawing in range(DRAWINGS):
        folds = np.asarray(folds_of(groups, [""] * len(groups), failed.tolist(), FOLDS, SEED + drawing))
        for fold in range(FOLDS):
            total[folds == fold] += fitted(values[folds != fold], failed[folds != fold], values[folds == fold])
    return total / DRAWINGS


def fitted(values: Any, failed: Any, wanted: Any) -> Any:
    """Return the scores of a logistic regression."""
    model = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=1_000))
    model.fit(values, failed)
    return model.decision_function(wanted)


def scores_of(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the score of every run by every detector and count, not a number where there is none."""
    found: dict[str, Any] = {}
    for each in (*detectors_of(DETECTORS), *detectors_of(COUNTS)):
        scores = []
        for run in runs:
            try:
                scores.append(each.score(run))
            except Unscored:
                scores.append(np.nan)
        found[each.name] = np.asarray(scores)
    return found


def shown(value: float, ends: tuple[float, float]) -> str:
    return "none" if isnan(value) else f"{value:.2f} [{ends[0]:.2f}, {ends[1]:.2f}]"


def by_domain(runs: Sequence[Run]) -> tuple[list[str], list[str], dict[str, Any]]:
    """Return the table of areas by domain, what it says, and the figures of the logistic regression."""
    scores = scores_of(runs)
    failed = np.asarray([not run.meta["outcome"] for run in runs])
    domains = np.asarray([run.meta["domain"] for run in runs])
    groups = [task_of(run) for run in runs]
    values = np.asarray([features(run) for run in runs], dtype=float)
    names = sorted(set(domains.tolist()))
    cells: dict[str, list[str]] = {}
    said: list[str] = []
    figures: dict[str, Any] = {}
    for name in names:
        here = domains == name
        tasks = [group for group, is_here in zip(groups, here, strict=True) if is_here]
        weights = weights_of(tasks, SAMPLES, SEED)
        some = [run for run, is_here in zip(runs, here, strict=True) if is_here]
        words = WordModel(some, failed[here])
        columns = {key: column[here] for key, column in scores.items()}
        everything = np.ones(len(some), dtype=bool)
        columns[WORDS] = words.scores(
            everything, folds_of(tasks, [""] * len(tasks), failed[here].tolist(), FOLDS, SEED)
        )
        columns[LOGISTIC] = out_of_fold(values[here], failed[here], tasks)
        columns[f"{LOGISTIC}, fitted elsewhere"] = fitted(values[~here], failed[~here], values[here])
        drawn, found = {}, {}
        for key, column in columns.items():
            known = ~np.isnan(column)
            found[key] = area(column[known], failed[here][known])
            drawn[key] = areas(column[known], failed[here][known], weights[:, known])
            cells.setdefault(key, []).append(shown(found[key], percentiles(drawn[key])))
        tried = [*DETECTORS, LOGISTIC]
        values_of, drawn_of = np.asarray([found[key] for key in tried]), np.stack([drawn[key] for key in tried], axis=1)
        ends, _ = corrected_ends(values_of, drawn_of, len(set(tasks)))
        above = [key for key, end in zip(tried, ends, strict=True) if end > 0.5]
        best = max(COUNTS, key=lambda key: found[key])
        gain = percentiles(drawn[LOGISTIC] - drawn[best])
        figures[name] = (found[LOGISTIC], percentiles(drawn[LOGISTIC]))
        best_said = f"The best plain count is {best} ({found[best]:.2f}); the nine features add "
        said.append(
            f"* **{name}**: above one half, corrected for the {len(tried)} that were tried: {', '.join(above) or 'none'}. "
            f"{best_said}{found[LOGISTIC] - found[best]:+.2f} [{gain[0]:+.2f}, {gain[1]:+.2f}]."
        )
    lines = [f"| score | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    lines += [f"| {key} | {' | '.join(row)} |" for key, row in cells.items()]
    return lines, said, figures


def thresholds(runs: Sequence[Run]) -> tuple[list[str], list[str]]:
    """Return the table of thresholds on tasks and domains that they were not fitted on, and what it says."""
    found = calibrate(DETECTORS, runs, by=task_of, samples=SAMPLES, seed=SEED)
    table = found.table
    lines = [
        "| detector | fitted | reported on | threshold | failed runs stopped | good runs stopped |",
        "|---|---|---|---|---|---|",
    ]
    rows = table[~table.baseline & (table.split != "in sample")]
    for row in rows.itertuples():
        if isnan(row.threshold):
            continue
        where = "elsewhere" if row.split == "domain left out" else "other tasks"
        shares = [
            f"{100 * value:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"
            for value, low, high in (
                (row.stopped_failed, row.stopped_failed_low, row.stopped_failed_high),
                (row.stopped_good, row.stopped_good_low, row.stopped_good_high),
            )
        ]
        lines.append(f"| {row.detector} | {where} | {row.domain} | {row.threshold:.3g} | {' | '.join(shares)} |")
    left = rows[(rows.split == "domain left out") & rows.threshold.notna()]
    broken = left[left.stopped_good_low > found.made_of["max_stopped_good"]]
    said = [
        f"* Calibrated together on {found.made_of['runs']} runs, fitted on half of the tasks: `lab.calibrate` recommends "
        f"{found.detector or 'no detector'}.",
        f"* Of {len(left)} thresholds fitted on the other domains to stop at most 5 % of the good runs, {len(broken)} "
        "stop more than 5 % on the domain that was left out (lower end of the interval)"
        + (": " + ", ".join(f"{row.detector} in {row.domain}" for row in broken.itertuples()) if len(broken) else "")
        + ".",
    ]
    never = sorted(set(table[~table.baseline].detector) - set(rows[rows.threshold.notna()].detector))
    said.append(f"* No threshold in any fit: {', '.join(never) or 'none'}.")
    said += [f"* Not scored: {each.detector}: {each.run_id}: {each.why}." for each in found.failures[:3]]
    return lines, said


def verdicts(runs: Sequence[Run]) -> list[str]:
    """Return for each domain what `lab.calibrate` says at ten seeds, its false alarms, and its power."""
    lines = [
        "| domain | tasks | on at seeds | 20 splits that agree | detectable area | on without effect | on, true area "
        f"{AREA} |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in sorted({run.meta["domain"] for run in runs}):
        here = [run for run in runs if run.meta["domain"] == name]
        scores = scores_of(here)
        by_run = {key: dict(zip(map(id, here), scores[key].tolist(), strict=True)) for key in DETECTORS}
        tried: dict[str, Any] = {key: lambda run, known=known: known[id(run)] for key, known in by_run.items()}
        found = [calibrate(tried, here, by=task_of, samples=200, seed=seed, progress=False) for seed in SEEDS]
        agree = sorted(each.stability for each in found)
        failed = np.asarray([not run.meta["outcome"] for run in here])
        alarms, power = made(here, failed)
        cells = (
            len({*map(task_of, here)}),
            f"{sum(each.detector is not None for each in found)} of {len(found)}",
            f"{100 * agree[0]:.0f} to {100 * agree[-1]:.0f} %",
            f"{found[0].detectable:.2f}",
            alarms,
            power,
        )
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return lines


def made(runs: Sequence[Run], failed: Any) -> tuple[str, str]:
    """Return how often one of eleven made detectors is on where none has an effect, and where the first one has."""
    rng = np.random.default_rng(SEED)
    clusters = [cluster for cluster in clusters_of(runs, task_of) if cluster is not None]
    distance = 2**0.5 * NormalDist().inv_cdf(AREA)
    found = np.zeros(2, dtype=int)
    for draw in range(MADE):
        fitting = Fitting(failed, clusters, [""] * len(runs), max_stopped_good=0.05, samples=200, seed=draw)
        # Runs of a task resemble each other in what a detector sees, too.
        by_task = {cluster: rng.normal(size=len(DETECTORS) + 1) for cluster in dict.fromkeys(clusters)}
        null = np.stack([by_task[cluster] for cluster in clusters], axis=1) * 0.5**0.5
        null = null + rng.normal(size=null.shape) * 0.5**0.5
        effect = null.copy()
        effect[0] += distance * failed
        for at, columns in enumerate((null, effect)):
            scored = [Scored(str(row), False, lambda _, column=column: column) for row, column in enumerate(columns)]  # type: ignore[misc]
            found[at] += any(one.low > CHANCE for one in fitting.evidence(scored).values())
    return f"{found[0]} of {MADE}", f"{found[1]} of {MADE}"


def replication(figures: dict[str, Any]) -> list[str]:
    """Return how the nine features compare with what was measured elsewhere."""
    lines = []
    for domain, outside in OUTSIDE.items():
        value, (low, high) = figures[domain]
        if low > outside:
            verdict = "better"
        elif high < outside:
            verdict = "does not replicate: worse"
        else:
            verdict = "about the same" if abs(value - outside) <= 0.02 else "no difference found"
        needed = f"{outside + value - low:.2f}" if outside + value - low < 1 else "none"
        lines.append(f"| {domain} | {outside:.2f} | {value:.2f} [{low:.2f}, {high:.2f}] | {needed} | {verdict} |")
    return [
        "| domain | measured elsewhere | here | area that would be better for sure | |",
        "|---|---|---|---|---|",
        *lines,
        "",
        "With so few tasks the intervals are wide. The fourth column is the smallest area that would beat the "
        "published figure with an interval as wide as ours.",
    ]


def main(given: Sequence[str]) -> int:
    """Measure and print."""
    chosen = arguments(given, __doc__ or "")
    every = load(chosen.data)
    runs = with_task(every)
    split = (
        "areas by domain need no fitting, except for the words and the nine features, which are scored out of fold "
        "by task (five folds). Thresholds are fitted on half of the tasks, or on the other domains."
    )
    areas_table, areas_said, figures = by_domain(runs)
    thresholds_table, thresholds_said = thresholds(runs)
    lines = [
        "# Can detectors find runs that fail?",
        "",
        "Does a count of calls, messages or tokens, or a loop detector, tell failed runs from good ones, also on another domain?",
        "",
        *about(every, "failure_detectors.py", split),
        "## How well scores rank the runs of a domain",
        "",
        "The table shows the area under the ROC curve: how often a failed run scores higher than a good run. 0.50 "
        "is chance; below 0.50, failed runs score lower. In airline, banking and workspace the output tokens are "
        "estimated from the text. The scorer of drift in context was fitted on replies of the airline runs, not on "
        "their outcomes.",
        "",
        *areas_table,
        "",
        *areas_said,
        "",
        "## Thresholds outside their fitting data",
        "",
        "Each threshold is fitted to stop at most 5 % of the good runs in its fitting data. Detectors for which no "
        "such threshold exists have no rows.",
        "",
        *thresholds_table,
        "",
        *thresholds_said,
        "",
        "## How stable the verdicts are",
        "",
        f"`lab.calibrate` with the {len(DETECTORS)} detectors in one domain, at seeds {SEEDS[0]} to {SEEDS[-1]}. A "
        "verdict uses all tasks, so a seed changes it only if no threshold is found. *Splits that agree* are halves "
        "of the tasks that give the same verdict on their own. *Without effect*: eleven synthetic detectors whose "
        "scores are correlated within a task and independent of the labels. *True area*: one of these eleven has "
        f"this area. Each figure is from {MADE} draws on the tasks and labels of the domain.",
        "",
        *verdicts(runs),
        "",
        "## Comparison with published figures",
        "",
        "The published figures are from a logistic regression on nine features of whole runs, which were not "
        "published. Our nine features are the counts of calls, messages, state-changing calls, failed calls, "
        "distinct tools and repeated calls, the length in tokens, the length of replies, and whether a person took "
        "over.",
        "",
        *replication(figures),
        "",
    ]
    publish("\n".join(lines), "failure_detectors.md", write=chosen.write)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
