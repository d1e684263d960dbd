"""Random numbers in the pictures of live, replayed and imported runs equal those in the tables."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from noetic_nb.events import LayerStateChanged, Where
from noetic_nb.lab import datasets, replay_regulator
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Run
from noetic_nb.widgets import (
    Compare,
    Ledger,
    MemoryView,
    RegulatorTrends,
    RunTimeline,
    TokenAllocation,
    Transcript,
)
from tests.plots.decided_runs import decided_run
from tests.widgets.rows import cells, part
from tests.widgets.scenes import demo_run, many_layers_run, memory_run, two_threads_run, watched_run
from tests.widgets.timeline_scenes import branches_run, many_turns, out_of_time_run

PICKED = 40


def noted_run() -> Run:
    """Return two layers: one written in every turn and changed in every second, one written in every third."""

    def wrote(layer: str, turn: int, state: int) -> LayerStateChanged:
        return LayerStateChanged(Where("t1", f"e{turn}", turn), 0.0, layer, "store", {"n": state})

    notes = [wrote("notes", turn, turn // 2) for turn in range(1, 31)]
    return Run(events=[*notes, *(wrote("plan", turn, turn) for turn in range(1, 31, 3))])


RUNS: list[Callable[[], Run]] = [
    demo_run, watched_run, two_threads_run, many_layers_run, memory_run, branches_run, out_of_time_run,
    noted_run, lambda: many_turns(40), lambda: datasets.airline_run(26), lambda: datasets.agentdojo("workspace", 1)[0],
    lambda: replay_regulator(datasets.airline_run(26), Regulator.for_user("ann")), lambda: decided_run(40),
]  # fmt: skip

made = cache(lambda: [make() for make in RUNS])

Fact = tuple[str, float, float]
"""The place of a number, the drawn number, and the number in the table."""


def of_trends(run: Run) -> Iterator[Fact]:
    with RegulatorTrends(run) as view:
        table, marks = view.to_frame(), view.reading.scene().marks
        if table.empty:
            return
        table = table[table["thread_id"] == table["thread_id"].iloc[-1]].reset_index(drop=True)
        drawn = {"spent": "spent", "tokens": "tokens", "mean": "mean", "quality": "quality", "rule-spent": "cap"}
        for mark in marks:
            if mark.series in drawn and mark.points and (mark.series != "quality" or len(mark.points) == 2):
                at, value = int(mark.points[0]), mark.points[3 if len(mark.points) == 4 else 1]
                yield f"trends {mark.series} {at}", value, table[drawn[mark.series]].iloc[at]


def of_timeline(run: Run) -> Iterator[Fact]:
    with RunTimeline(run) as view:
        table, scene = view.to_frame(), view.reading.scene()
    for kind, words in scene.legend:
        if kind != "sign":
            yield f"timeline {words}", float(words.split()[-1].replace(",", "")), (table["kind"] == kind).sum()
    if scene.axis == "time":
        for mark in scene.marks:
            if mark.key.isdigit() and table["kind"].iloc[int(mark.key)] in ("model", "tool"):
                took = table["duration_ms"].iloc[int(mark.key)]
                yield f"timeline {mark.text}", mark.points[2] - mark.points[0], took


def of_memory(run: Run) -> Iterator[Fact]:
    with MemoryView(run) as view:
        shown = view.reading.shown
        table, scene = view.to_frame(), view.reading.scene()
    for mark in scene.marks:
        if mark.key:
            at, turn = map(int, mark.key.split())
            layer = view.reading.index.tracks[at].layer_id
            here = table[
                (table["thread_id"] == shown.thread_id) & (table["layer_id"] == layer) & (table["turn"] == turn)
            ]
            yield f"memory {mark.text}", float(mark.words or 0), here["changed"].sum()


def of_compare(run: Run) -> Iterator[Fact]:
    with Compare(run, run) as view:
        table, scene = view.to_frame(), view.reading.scene()
    cost = table[table["what"] == "cost"].set_index("turn")
    for mark in scene.marks:
        side, panel = mark.series.split("-")
        at = int(mark.points[0])
        if panel == "differences":
            rows = table[table["turn"] == at + 1]
            yield f"compare {at}", mark.points[3], sum(rows["a"].map(repr) != rows["b"].map(repr))
        if panel == "cost":
            yield f"compare {side} {at}", mark.points[3], cost[side].loc[at + 1]


def of_allocation(run: Run) -> Iterator[Fact]:
    with TokenAllocation(run) as view:
        table, scene = view.to_frame(), view.reading.scene()
    if "used" not in table:
        return  # an imported run has only estimates
    calls = [part for _, part in table.groupby("seq", sort=False)]
    names = dict(scene.legend)
    for mark in scene.marks:
        name, call = names.get(mark.series, ""), int(mark.points[0])
        if not mark.series.startswith("band-") or name == "rest" or call >= len(calls):
            continue
        part = calls[call]
        layers = part[part["layer_id"] == name]["used"]
        known = layers.iloc[0] if len(layers) else part[name].iloc[0] if name in part else float("nan")
        yield f"allocation {name} {call}", mark.points[3] - mark.points[1], known


def of_ledger(run: Run) -> Iterator[Fact]:
    with Ledger(run) as view:
        table, facets, lines = view.to_frame(), dict(view.snapshot["facets"]), view.snapshot["lines"]
    for line in [line for line in lines if "at" in line and cells(line)["ms"]]:
        drawn = float(cells(line)["ms"].replace(",", ""))
        yield f"ledger line {line['at']}", drawn, table["duration_ms"].iloc[line["at"]]
    for kind, column in (("action", "action"), ("tool", "tool_name")):
        for value, count in facets.get(kind, ()):
            yield f"ledger {value}", count, (table[column] == value).sum()
    for rule, count in facets.get("rule", ()):
        yield f"ledger {rule}", count, table["rule_ids"].map(lambda ids, rule=rule: rule in ids).sum()


def of_transcript(run: Run) -> Iterator[Fact]:
    with Transcript(run) as view:
        table, asked = view.to_frame(), view.reading.asked_first()
        pages = [view.reading.answer({**each, "only": False}) for each in asked]
    for row in [row for page in pages for row in page["rows"] if part(row, "nn-number")]:
        drawn = float(part(row, "nn-number").split()[0].replace(",", "").lstrip("~"))
        yield f"transcript {row['key']}", drawn, table.loc[table["place"] == row["key"], "tokens"].iloc[0]


@pytest.mark.parametrize(
    "facts_of",
    [of_trends, of_timeline, of_memory, of_compare, of_allocation, of_ledger, of_transcript],
    ids=lambda each: each.__name__,
)
def test_numbers_of_pictures_are_those_of_tables(facts_of: Callable[[Run], Iterator[Fact]]) -> None:
    facts = [(place, drawn, known) for run in made() for place, drawn, known in facts_of(run) if known == known]
    picked = random.Random(38).sample(facts, min(PICKED, len(facts)))

    assert len(picked) >= 20
    # A duration and its clock time are measured at slightly different moments.
    wrong = [
        fact
        for fact in picked
        if fact[1] != pytest.approx(float(fact[2]), rel=0.02, abs=1.5 if "timeline" in fact[0] else 0)
    ]
    assert wrong == []
