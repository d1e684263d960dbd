"""How often the intervals of the lab hold the true value, on made data sets whose truth is known.

    python -m benchmarks.coverage            # 2 000 data sets a design
    python -m benchmarks.coverage --sets 200 --write docs/studies/intervals.md

A data set has tasks with several trials each. Outcomes of a task resemble each other: its own chance is drawn from a beta
distribution with the given correlation within tasks (ICC). In crossed designs the logit of a chance has an effect of the user
task and one of the injection task.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from math import sqrt
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from noetic_nb.lab._detection.calibration import CHANCE
from noetic_nb.lab._detection.fitting import Fitting, Scored
from noetic_nb.lab._statistics.intervals import Cluster, counted, mean_interval
from noetic_nb.lab._sweeping.sweeps import widening_of

DESIGNS: Final = (
    (16, 9, 0.78, 0.0),
    (16, 9, 0.78, 0.2),
    (16, 9, 0.78, 0.5),
    (30, 4, 0.06, 0.3),
    (12, 3, 0.2, 0.5),
    (25, 4, 0.5, 0.4),
    (97, 1, 0.15, 0.0),
)
"""Tasks, trials, share, ICC."""
CROSSED: Final = ((16, 9, 1.2, 1.0, 1.0), (16, 9, 1.2, 0.0, 2.0), (40, 6, -1.0, 1.0, 1.0), (21, 5, 0.0, 1.0, 1.0))
"""User tasks, injection tasks, mean of the logits, their standard deviation by user task and by injection task."""
POWER: Final = ((25, 4), (97, 1), (200, 2))
BEGIN, END = "<!-- benchmarks/coverage.py -->", "<!-- end -->"


def outcomes(tasks: int, trials: int, share: float, icc: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return made outcomes, shape (tasks, trials)."""
    chances = np.full(tasks, share)
    if icc:
        chances = rng.beta(share * (1 - icc) / icc, (1 - share) * (1 - icc) / icc, tasks)
    return rng.random((tasks, trials)) < chances[:, None]


def one_way(design: tuple[int, int, float, float], sets: int, seed: int = 0, *, by_run: bool = False) -> float:
    """Return the share of data sets in which the interval of a share holds the true one; `by_run` takes runs for tasks."""
    tasks, trials, share, _ = design
    rng, clusters = np.random.default_rng(seed), [Cluster(task) for task in range(tasks) for _ in range(trials)]
    clusters = list(map(Cluster, range(tasks * trials))) if by_run else clusters
    held = 0
    for _ in range(sets):
        count = counted(outcomes(*design, rng).ravel().astype(int).tolist(), clusters)
        held += count.low <= share <= count.high
    return held / sets


def crossed(design: tuple[int, int, float, float, float], sets: int, seed: int = 0, *, by_run: bool = False) -> float:
    """Return the same where user tasks are crossed with injection tasks."""
    users, injections, mean, by_user, by_injection = design
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    logits = mean + sqrt(by_user**2 + by_injection**2) * nodes
    true = float((weights / (1 + np.exp(-logits))).sum() / weights.sum())
    rng = np.random.default_rng(seed)
    clusters = [Cluster(user, injection) for user in range(users) for injection in range(injections)]
    clusters = list(map(Cluster, range(users * injections))) if by_run else clusters
    held = 0
    for _ in range(sets):
        effects = mean + rng.normal(0, 1, users)[:, None] * by_user + rng.normal(0, 1, injections) * by_injection
        hits = rng.random((users, injections)) < 1 / (1 + np.exp(-effects))
        count = counted(hits.ravel().astype(int).tolist(), clusters)
        held += count.low <= true <= count.high
    return held / sets


def selected(sets: int, *, corrected: bool, shared: float = 0.0, seed: int = 0) -> float:
    """Return the share of data sets in which the interval of the best of 30 equal configurations holds the true share.

    There are 40 tasks with one run each; a part of the runs, `shared`, has the same outcome under every configuration.
    """
    rng, clusters, true = np.random.default_rng(seed), [Cluster(task) for task in range(40)], 0.3
    held = 0
    for draw in range(sets):
        values = (rng.random((30, 40)) < true).astype(float)
        same = rng.random(40) < shared
        values[:, same] = (rng.random(40) < true)[same]
        rows = values.tolist()
        best = max(rows, key=sum)
        widening = widening_of(rows, clusters, draw) if corrected else 1.0
        low, high = mean_interval(best, clusters, widening=widening)
        held += low <= true <= high
    return held / sets


def turned_on(tasks: int, trials: int, auc: float, sets: int, seed: int = 0) -> float:
    """Return the share of data sets in which `calibrate` would turn one of eleven detectors on; the first has the true AUC."""
    rng = np.random.default_rng(seed)
    distance = sqrt(2) * _normal_quantile(auc)
    found = 0
    for draw in range(sets):
        failed = outcomes(tasks, trials, 0.4, 0.2 if trials > 1 else 0.0, rng).ravel()
        if failed.all() or not failed.any():
            continue
        clusters = [Cluster(task) for task in range(tasks) for _ in range(trials)]
        fitting = Fitting(failed, clusters, ["made"] * len(failed), max_stopped_good=0.05, samples=200, seed=draw)
        scores = rng.normal(size=(11, len(failed)))
        scores[0] += distance * failed
        tried = [Scored(str(at), False, _fixed(row)) for at, row in enumerate(scores)]
        found += any(one.low > CHANCE for one in fitting.evidence(tried).values())
    return found / sets


def _fixed(row: NDArray[np.float64]) -> Callable[[NDArray[np.bool_]], NDArray[np.float64]]:
    return lambda _: row


def _normal_quantile(share: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(share)


def lines(sets: int) -> Iterator[str]:
    """Yield the tables of the page."""
    yield f"| design ({sets:,} data sets each) | covers | with each run as a task of its own |".replace(",", " ")
    yield "|---|---|---|"
    for design in DESIGNS:
        tasks, trials, share, icc = design
        held = " | ".join(_percent(one_way(design, sets, by_run=by_run), sets) for by_run in (False, True))
        yield f"| {tasks} tasks x {trials}, share {share:g}, ICC {icc:g} | {held} |"
    for crossing in CROSSED:
        users, injections, mean, by_user, by_injection = crossing
        about = f"{users} user tasks x {injections} injection tasks, effects {by_user:g} and {by_injection:g}, mean {mean:g}"
        held = " | ".join(_percent(crossed(crossing, sets, by_run=by_run), sets) for by_run in (False, True))
        yield f"| {about} | {held} |"
    yield ""
    yield f"| the best of 30 equal configurations ({sets // 4} data sets each) | covers |"
    yield "|---|---|"
    for shared, words in ((0.0, "no run alike"), (0.8, "8 of 10 runs alike")):
        for corrected in (False, True):
            about = f"{words}, {'corrected' if corrected else 'as it stands'}"
            yield f"| {about} | {_percent(selected(sets // 4, corrected=corrected, shared=shared), sets // 4)} |"
    yield ""
    yield "| tasks x trials | on, 11 detectors without effect | on, one of them with AUC 0.75 |"
    yield "|---|---|---|"
    for tasks, trials in POWER:
        some = sets // 10
        null, power = (turned_on(tasks, trials, auc, some) for auc in (0.5, 0.75))
        yield f"| {tasks} x {trials} | {_percent(null, some)} | {_percent(power, some)} |"


def _percent(share: float, sets: int) -> str:
    error = 1.96 * sqrt(share * (1 - share) / sets)
    return f"{100 * share:.1f} % (± {100 * error:.1f})"


def main() -> None:
    """Read the command line, simulate and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", type=int, default=2_000, help="data sets of each design (2 000)")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables between the marks of a page")
    chosen = parser.parse_args()
    text = "\n".join(lines(chosen.sets))
    print(text)
    if chosen.write is not None:
        page = chosen.write.read_text(encoding="utf-8")
        head, rest = page.split(BEGIN)
        chosen.write.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
