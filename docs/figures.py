"""Draw every figure for a page of 420 px, one of 1 400 px and a column of 85 mm, light and dark: python -m docs.figures folder.

Runs and tables are those of the data sets that ship and of the tests, so that anyone sees the same pictures.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from noetic_nb import lab, plots
from noetic_nb.lab import datasets
from noetic_nb.regulator import CallBudget
from noetic_nb.runs import Run
from tests.plots.decided_runs import decided_run
from tests.widgets import scenes, timeline_scenes

# By name: width and height in inches, dots an inch, and the ground.
PAGES = {
    "420": ((4.2, 3.2), 100, "white"),
    "420-dark": ((4.2, 3.2), 100, "#121212"),
    "1400": ((14.0, 7.0), 100, "white"),
    "1400-dark": ((14.0, 7.0), 100, "#121212"),
    "column": ((85 / 25.4, 65 / 25.4), 300, "white"),
}


def memory_table() -> pandas.DataFrame:
    """Return a table in the form of a memory bench."""
    sets = {"plain history": 0.35, "window": 0.22, "semantic": 0.6, "window + semantic + entity": 0.68}
    rows = [
        (
            name,
            budget,
            least + 0.14 * step,
            least + 0.14 * step - 0.05,
            least + 0.14 * step + 0.05,
            budget * 0.8 + 90 * place,
        )
        for place, (name, least) in enumerate(sets.items())
        for step, budget in enumerate((500, 1_000, 2_000))
    ]
    frame = pandas.DataFrame(rows, columns=["layers", "budget", "recall", "low", "high", "tokens"])
    return frame.assign(cost_fresh=frame.tokens / 1e6, cost_cached=frame.tokens / 4e6, ms=float("nan"))


def figures() -> Iterator[tuple[str, Callable[..., Axes]]]:
    """Yield every figure by name, as a function of the axes."""
    airline = datasets.airline()
    calibration = lab.calibrate(CallBudget(), airline, samples=100)
    worth = lab.economics(CallBudget(), airline, samples=100)
    space = {"cap": [6, 8, 10, 12, 16, 20], "window": [2, 4]}
    rows = [
        (cap, window, 1 - (cap / 24) ** 2 - window / 40, 0.9 - cap / 25 + window / 60)
        for cap in space["cap"]
        for window in space["window"]
    ]
    tried = pandas.DataFrame(rows, columns=["cap", "window", "caught", "blocked"])
    tried = tried.assign(caught_low=tried.caught - 0.05, caught_high=tried.caught + 0.05)
    tried.attrs["space"] = list(space)
    for name, run in {
        "demo": scenes.demo_run(), "layers": scenes.many_layers_run(), "hostile": scenes.hostile_run(), "long": scenes.long_run(),
        "empty": Run(), "plain": datasets.airline_run(26),
    }.items():  # fmt: skip
        yield f"trends-{name}", lambda ax, run=run: plots.trends(run, ax=ax)
        yield f"allocation-{name}", lambda ax, run=run: plots.allocation(run, ax=ax)
        yield f"context-{name}", lambda ax, run=run: plots.context(run, ax=ax)
    for turns in (0, 8, 600):
        yield f"ledger-{turns}", lambda ax, turns=turns: plots.ledger(decided_run(turns), ax=ax)
    for name, run in {
        "branches": timeline_scenes.branches_run(),
        "demo": scenes.demo_run(),
        "untimed": timeline_scenes.untimed_run(),
    }.items():
        yield f"timeline-{name}", lambda ax, run=run: plots.timeline(run, ax=ax)
    yield "roc", lambda ax: plots.roc(calibration, ax=ax)
    yield "economics", lambda ax: plots.economics(worth, ax=ax)
    yield "economics-unknown", lambda ax: plots.economics(worth, saved="cost_saved", ax=ax)
    yield "sweep", lambda ax: plots.sweep(tried, "cap", "caught", ax=ax)
    yield "pareto", lambda ax: plots.pareto(tried, "blocked", "caught", ax=ax, label="cap")
    yield "memory_bench", lambda ax: plots.memory_bench(memory_table(), ax=ax)
    curve = memory_table().assign(age=lambda table: table.budget / 100, budget=500)
    yield "recall_curve", lambda ax: plots.recall_curve(curve, ax=ax)
    shares = {"layer": ["hybrid recall", "window", "entity memory"], "alone": [0.52, 0.1, 0.3]}
    added = pandas.DataFrame({**shares, "left_out": [0.31, -0.05, 0.02], "shapley": [0.42, 0.01, 0.16]})
    yield "layer_shares", lambda ax: plots.layer_shares(added, ax=ax)
    kept = pandas.DataFrame(
        {"layers": shares["layer"], "recall": [0.88, 0.1, 0.77], "precision": [1.0, float("nan"), 0.93]}
    )
    for column in ("recall", "precision"):
        kept[f"{column}_low"], kept[f"{column}_high"] = kept[column] - 0.1, (kept[column] + 0.05).clip(upper=1)
    yield "write_fidelity", lambda ax: plots.write_fidelity(kept, ax=ax)
    survived = pandas.DataFrame(
        {"kind": ["name", "number", "date", "id", "preference"], "rate": [0.9, 0.4, 0.55, 0.2, 0.7]}
    )
    survived = survived.assign(low=survived.rate - 0.15, high=survived.rate + 0.1)
    yield "survival", lambda ax: plots.survival(survived, ax=ax)
    yield "memory_bench-unknown", lambda ax: plots.memory_bench(memory_table(), cost="ms", ax=ax)


def main(folder: Path) -> None:
    """Write the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in figures():
        for page, (size, dpi, ground) in PAGES.items():
            figure = Figure(figsize=size, facecolor=ground, layout="constrained")
            draw(figure.subplots())
            figure.savefig(folder / f"{name}-{page}.png", dpi=dpi)
        own: Any = draw(None)
        (folder / f"{name}-own.png").write_bytes(own._repr_png_())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
