"""The costs of experiments on recorded runs, beside a floor in the same run.

Run ``python -m benchmarks.lab``.
"""

from __future__ import annotations

import sys
from time import process_time
from typing import Any, Final

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks.comparing import Lines, best, parser
from noetic_nb.lab import (
    RegulatorReadings,
    calibrate,
    datasets,
    economics,
    evaluate,
    first_stop,
    replay_regulator,
    suggest,
)
from noetic_nb.lab._detection.fitting import weights_of
from noetic_nb.lab._statistics.labels import groups_of
from noetic_nb.regulator import CallBudget, Regulator
from noetic_nb.runs import Run
from noetic_nb.steering._predicates.sequence_rules import sequence_rule

SAMPLES: Final = 1_000
CONFIGURATIONS: Final = 50
FLOOR: Final = "one area of scikit-learn in each sample"
LINES: Final[dict[str, float | None]] = {
    f"calibrate with six baselines, 1 000 samples / {FLOOR}": None,
    "calibrate with six baselines": 15,
    f"economics, 1 000 samples / {FLOOR}": None,
    "an airline run replayed under one of 50 regulators that share its reading / under one alone": None,
    "an airline run replayed under one of 50 regulators that share its reading": 0.6,
    "rules suggested for AgentDojo / one rule evaluated on all of its runs": None,
    "the same with a first look at the calls of AgentDojo": None,
    "rules suggested for service desks / one rule evaluated on all of their runs": None,
    "the same with a first look at the calls of service desks": None,
}


def load() -> list[Run]:
    """Return the packaged runs of three domains that say which task they are of."""
    runs = [*datasets.airline(), *datasets.retail(), *datasets.telecom()]
    return [run for run in runs if run.meta["task_id"] is not None]


def seconds(work: Any) -> float:
    """Return the least processor time of three."""
    return best(work, times=3, clock=process_time)


def one_area_resampled(runs: list[Run]) -> None:
    """Do the least that an interval needs without arrays: an area of scikit-learn for each sample, of one score."""
    failed = np.asarray([not run.meta["outcome"] for run in runs])
    scores = np.asarray([len(run.turns) for run in runs])
    for row in weights_of(groups_of(runs), SAMPLES, 0):
        sample = np.repeat(np.arange(len(runs)), row.astype(int))
        roc_auc_score(failed[sample], scores[sample])


def shared_readings(lines: Lines) -> None:
    """Replay regulators through airline runs: one alone, the floor, and many that share one reading of a run."""
    runs = datasets.airline()
    regulators = [Regulator.for_user("ann").with_cost_cap(100 + 17 * at) for at in range(CONFIGURATIONS)]

    def shared() -> None:
        for run in runs:
            readings = RegulatorReadings(run)
            for regulator in regulators:
                readings.first_stop(regulator)

    alone = seconds(lambda: [first_stop(replay_regulator(run, regulators[0])) for run in runs]) / len(runs)
    each = seconds(shared) / len(runs) / CONFIGURATIONS
    what = "an airline run replayed under one of 50 regulators that share its reading / under one alone"
    lines.ratio(what, each, alone, unit="ms")
    lines.value("an airline run replayed under one of 50 regulators that share its reading", each * 1e3)


def suggestions(lines: Lines, desk: list[Run]) -> None:
    """Look for rules in runs of AgentDojo and of service desks; the floor is one rule, evaluated on all of these runs."""
    attacks = [*datasets.agentdojo("banking"), *datasets.agentdojo("workspace")]
    rule = sequence_rule("at_most", "send_money", count=0)
    for name, whose, some in (("AgentDojo", "its", attacks), ("service desks", "their", desk)):
        began = process_time()
        found = suggest(some)
        first = process_time() - began
        again = seconds(lambda some=some: suggest(some))
        floor = seconds(lambda some=some: evaluate([rule], some, on_unknown="warn"))
        about = f"{found.tried} rules on {len(some)} runs, {len(found)} found"
        what = f"rules suggested for {name} / one rule evaluated on all of {whose} runs"
        lines.ratio(what, again, floor, about=about, unit="s")
        lines.value(f"the same with a first look at the calls of {name}", first, unit="s")


def main() -> int:
    """Measure and print."""
    options, lines = parser(__doc__).parse_args(), Lines(LINES)
    runs = load()
    floor, about = seconds(lambda: one_area_resampled(runs)), f"{len(runs)} runs"
    calibrated = seconds(lambda: calibrate(CallBudget(), runs, samples=SAMPLES))
    lines.ratio(f"calibrate with six baselines, 1 000 samples / {FLOOR}", calibrated, floor, about=about, unit="s")
    lines.value("calibrate with six baselines", calibrated, unit="s")
    priced = seconds(lambda: economics(CallBudget(), runs, samples=SAMPLES))
    lines.ratio(f"economics, 1 000 samples / {FLOOR}", priced, floor, about=about, unit="s")
    shared_readings(lines)
    suggestions(lines, runs)
    return lines.end(options)


if __name__ == "__main__":
    sys.exit(main())
