"""On which runs the presets and predicates of a regulator fall, by desk and model: failed ones, or good ones?

Run ``python benchmarks/studies/presets.py``; it reads runs of the package and of ``benchmarks/studies/data``. ``--write`` keeps
the table as ``noetic_nb/regulator/presets.json``, which `noetic_nb.regulator.presets` reads, and in docs/studies/presets.md.

A run is replayed without grades: the reward is known only once it is over. Intervals are those of the lab, over tasks. Runs whose
task the data has lost have none. Numbers of the recommended preset were chosen on the desks of tau; AgentDojo and AgentRx are
other data.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any, Final

import inputs

from noetic_nb.events import QualityGiven, RegulatorDecided, ToolCalled
from noetic_nb.lab import datasets, replay_regulator
from noetic_nb.lab._statistics.intervals import Cluster, counted
from noetic_nb.lab._statistics.labels import clusters_of
from noetic_nb.regulator import Regulator
from noetic_nb.regulator.presets import CHOSEN_ON, MEASURED, PRESETS, TABLE, Figure, figures
from noetic_nb.runs import Run

BEGIN, END = "<!-- benchmarks/studies/presets.py -->", "<!-- end -->"
AGENTRX: Final = "another agent (AgentRx)"
EVERY: Final = ("all domains", "runs that it was not chosen on")
"""The first row of each table; runs without a task are left out of it."""


def load() -> list[Run]:
    """Return the runs that somebody judged and nobody attacked."""
    return inputs.load() + datasets.load_trajectories(inputs.HERE / "retail-agentrx.json.gz", name="retail")


def model_of(run: Run) -> str:
    """Return the model of a run; files of tau-bench do not tell it."""
    return str(run.meta["model"] or ("gpt-4o" if run.meta["domain"] == "airline" else AGENTRX))


def was_chosen(detector: str, place: tuple[str, str]) -> bool:
    """Tell whether the numbers of a preset or predicate were chosen on the runs of a desk and model."""
    return place[0] in CHOSEN_ON.get(detector, ()) and place[1] != AGENTRX


def ungraded(run: Run) -> Run:
    """Return the run as it was while it lasted."""
    return Run(run.run_id, meta=run.meta, events=[event for event in run.events if not isinstance(event, QualityGiven)])


def share_of(hits: Iterable[tuple[Cluster | None, bool]]) -> list[float | None]:
    """Return how many of (cluster, hit) are hits, of how many, and the interval of the share."""
    known = list(hits)
    count = counted([hit for _, hit in known], [cluster for cluster, _ in known])
    return [count.n, count.of, *(None if isnan(end) else round(end, 4) for end in (count.low, count.high))]


def hits_of(runs: Sequence[Run], regulator: Regulator, *, only_stops: bool) -> list[bool]:
    """Return for each run whether the regulator stops it, or decides anything at all."""
    found = []
    for run in runs:
        decided = replay_regulator(run, regulator).select(RegulatorDecided)
        kinds = {event.decision["kind"] for event in decided} - {"continue"}
        found.append("circuit_break" in kinds if only_stops else bool(kinds))
    return found


def measure(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the table as data."""
    runs = [ungraded(run) for run in runs]
    regulators = {name: (Regulator.for_user("s").with_settings(settings), True) for name, settings in PRESETS.items()}
    for name, predicates in MEASURED.items():
        regulators[name] = (Regulator.for_user("s").with_predicates(*predicates), False)
    places = [(run.meta["domain"], model_of(run)) for run in runs]
    facts = list(zip(places, clusters_of(runs), [bool(run.meta["outcome"]) for run in runs], strict=True))
    rows = []
    for name, (regulator, only_stops) in regulators.items():
        hits = hits_of(runs, regulator, only_stops=only_stops)
        chosen = [was_chosen(name, place) for place in places]
        every = [
            (EVERY, *fact[1:], hit) for fact, hit, kind in zip(facts, hits, chosen, strict=True) if fact[1] and not kind
        ]
        by_place = [(*fact, hit) for fact, hit in zip(facts, hits, strict=True)]
        for place in (EVERY, *sorted({*places})):
            here = [(task, good, hit) for at, task, good, hit in [*every, *by_place] if at == place]
            rows.append(
                {
                    "detector": name,
                    "domain": place[0],
                    "model": place[1],
                    "chosen_here": was_chosen(name, place),
                    "failed": share_of((task, hit) for task, good, hit in here if not good),
                    "good": share_of((task, hit) for task, good, hit in here if good),
                    "precision": share_of((task, not good) for task, good, hit in here if hit),
                    "base_rate": share_of((task, not good) for task, good, _ in here),
                }
            )
    sources = sorted({f"{run.meta['source']}, {run.meta['domain']}" for run in runs})
    most: dict[str, int] = {}
    for run, (place, _, good) in zip(runs, facts, strict=True):
        if was_chosen("recommended", place):
            most[place[0]] = max(most.get(place[0], 0), len(run.select(ToolCalled)) if good else 0)
    return {"runs": len(runs), "sources": sources, "most_calls": most, "rows": rows}


def as_json(table: Mapping[str, Any]) -> str:
    """Return the table as the text that is kept: a line for each row, so that a change can be read."""
    rows = ",\n".join(f"  {json.dumps(row)}" for row in table["rows"])
    head = json.dumps({key: value for key, value in table.items() if key != "rows"})[:-1]
    return f'{head}, "rows": [\n{rows}\n]}}\n'


def as_markdown() -> str:
    """Return the kept table as it is shown: predicates with the same figures together, and runs that they spare in one row."""
    lines = ["| desk and model | failed runs | good runs | none of these: at most |", "|---|---|---|---|"]
    for figure in figures("3 failures in a row"):  # it falls on no run
        ends = [share.high for share in (figure.failed, figure.good)]
        most = (
            "not known, the tasks are lost"
            if None in ends
            else " and ".join(f"{100 * (end or 0):.0f} %" for end in ends)
        )
        lines.append(f"| {_where(figure)} | {figure.failed.of} | {figure.good.of} | {most} |")
    lines += [
        "",
        "| | desk and model | of failed runs | of good runs | of these, failed | of all, failed |",
        "|---|---|---|---|---|---|",
    ]
    by_rows: dict[tuple[str, ...], list[str]] = {}
    for detector in dict.fromkeys(figure.detector for figure in figures()):
        by_rows.setdefault(tuple(_rows(detector)), []).append(detector)
    lines += [f"| {', '.join(names)} | {row}" for rows, names in by_rows.items() for row in rows]
    return "\n".join(lines)


def _where(figure: Figure) -> str:
    return f"{figure.domain}, {figure.model}{' *' if figure.chosen_here else ''}"


def _rows(detector: str) -> list[str]:
    fell = [figure for figure in figures(detector) if figure.precision.of]
    rows = [f"{_where(each)} | {each.failed} | {each.good} | {each.precision} | {each.base_rate} |" for each in fell]
    spared = "; ".join(_where(figure) for figure in figures(detector) if not figure.precision.of)
    return [*rows, f"{spared} | none | none | | |"] if spared else rows


def main(arguments: Sequence[str]) -> int:
    """Read the command line, measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="keep the table, in the package and on its page")
    chosen = parser.parse_args(arguments)
    text = as_json(measure(load()))
    if chosen.write:
        TABLE.write_text(text, encoding="utf-8")
        page = Path(__file__).parents[2] / "docs" / "studies" / "presets.md"
        before, rest = page.read_text(encoding="utf-8").split(BEGIN)
        after = rest.split(END)[1]
        page.write_text(f"{before}{BEGIN}\n{as_markdown()}\n{END}{after}", encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
