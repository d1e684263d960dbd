"""Presets: all figures come from the study, and the recommended preset has no false alarms on good runs."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.events import RegulatorDecided, ToolCalled
from noetic_nb.lab import datasets, replay_regulator
from noetic_nb.regulator import CallBudget, Regulator, ScopeDrift, Settings, presets
from noetic_nb.regulator.events import ToolCall, ToolResult, TurnComplete, TurnStart

ROOT = Path(__file__).parents[2]
CHOSEN = {"airline", "retail", "telecom"}


@pytest.fixture(scope="module")
def study() -> ModuleType:
    spec = importlib.util.spec_from_file_location("preset_study", ROOT / "benchmarks" / "studies" / "presets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks" / "studies"))
        spec.loader.exec_module(module)
    return module


# Figures


def test_each_preset_and_predicate_has_its_figures_at_each_desk_and_model() -> None:
    places = [(figure.domain, figure.model) for figure in presets.figures("release")]
    assert {domain for domain, _ in places} == {"all domains", "airline", "banking", "retail", "telecom", "workspace"}
    for name in (*presets.PRESETS, *presets.MEASURED):
        assert [(figure.domain, figure.model) for figure in presets.figures(name)] == places
        lines = presets.describe(name).splitlines()[1 : len(places) + 1]
        for line in lines:
            # Count, total, share, and its interval if the tasks are known.
            assert len(re.findall(r"\d+ of \d+ \(\d+ %(, \d+ to \d+ %)?\)", line)) in (2, 4)
    assert {figure.detector for figure in presets.figures()} == {*presets.PRESETS, *presets.MEASURED}


def test_runs_that_numbers_were_chosen_on_are_named_and_left_out_of_the_sum() -> None:
    found = presets.figures("recommended")

    assert {figure.domain for figure in found if figure.chosen_here} == CHOSEN
    assert not any(figure.chosen_here for figure in presets.figures("release"))
    for name in ("release", "recommended"):
        first, *rest = presets.figures(name)
        # Without the runs whose task is unknown, which have no interval.
        others = [figure for figure in rest if not figure.chosen_here and figure.good.low is not None]
        assert (first.good.n, first.good.of) == (sum(f.good.n for f in others), sum(f.good.of for f in others))
    lines = presets.describe("recommended").splitlines()
    assert "all domains" in lines[1]
    assert "chosen on these runs" in lines[-2]
    assert "need grades" in lines[-1]


def test_runs_without_a_task_have_no_interval() -> None:
    lost = [figure for figure in presets.figures() if figure.model == "gpt-4.1-mini-2025-04-14"]

    assert lost
    assert all(share.low is share.high is None for figure in lost for share in (figure.failed, figure.good))


def test_the_presets_are_those_that_are_measured() -> None:
    assert {
        "release": Regulator.for_user("ann").settings,
        "newer": Regulator.newer("ann").settings,
        "recommended": Regulator.recommended("ann").settings,
    } == presets.PRESETS
    recommended = presets.PRESETS["recommended"].predicates
    for name in (
        "identical calls 3 times",
        "3 failures in a row",
        "more than 20 calls",
        "drift in context, as recommended",
    ):
        assert set(presets.MEASURED[name]) <= set(recommended)


def test_no_share_is_written_by_hand() -> None:
    source = Path(presets.__file__).read_text(encoding="utf-8")

    written = re.findall(r".*?\d ?%.*", source)

    assert [line for line in written if "95 %" not in line and "'1 of 50" not in line] == []


def test_the_page_shows_the_table_of_the_study(study: ModuleType) -> None:
    page = (ROOT / "docs" / "studies" / "presets.md").read_text(encoding="utf-8")

    assert f"{study.BEGIN}\n{study.as_markdown()}\n{study.END}" in page


def test_the_study_makes_the_same_table_again(study: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "PRESETS", {})
    monkeypatch.setattr(study, "MEASURED", {"more than 12 calls": presets.MEASURED["more than 12 calls"]})

    made = study.as_json(study.measure(study.load())).splitlines()

    kept = presets.TABLE.read_text(encoding="utf-8").splitlines()
    rows = [line.rstrip(",") for line in kept if '"more than 12 calls"' in line]
    assert made[0] == kept[0]
    assert [line.rstrip(",") for line in made[1:-1]] == rows


def test_what_was_not_measured_has_no_description() -> None:
    with pytest.raises(ValueError, match="'keyword drift'"):
        presets.describe("hunch")


# The recommended preset

DETAILED = (
    "I have moved the passenger Noah Muller to flight HAT271 on May 24 for $613, with Gold seats in row 44, and the refund of "
    "$982 goes to the card that ends in 9914 within seven days."
)


def decided(*events: Any, settings: Settings | None = None) -> str:
    regulator = Regulator.recommended("ann").with_settings(settings or presets.PRESETS["recommended"])
    for event in events:
        regulator.on_event(event)
    return regulator.decide().kind


BEFORE = (
    TurnStart("Which trains run from Ulm to Bonn?"),
    ToolCall("trains", '{"from": "Ulm"}'),
    ToolResult("trains", True, 5, output="ICE 612 at noon"),
    TurnComplete("ICE 612 leaves at noon."),
)
NOW = TurnStart("Please add a bicycle to the booking.")


def test_drift_is_said_of_a_long_late_reply_full_of_details_that_nobody_knows() -> None:
    assert decided(*BEFORE, NOW, TurnComplete(DETAILED)) == "scope_drift_warn"


@pytest.mark.parametrize(
    "events",
    [
        (NOW, ToolCall("trains", "{}"), TurnComplete(DETAILED)),
        (*BEFORE, NOW, TurnComplete("HAT271, $613 and 9914.")),
        (BEFORE[0], BEFORE[3], NOW, TurnComplete(DETAILED)),
        (*BEFORE, NOW, TurnComplete("the weather will be nice and a good book is better than every other idea " * 3)),
    ],
    ids=["first turn", "short reply", "no tools", "no details"],
)
def test_drift_is_silent_where_there_is_nothing_to_tell_it_by(events: tuple[Any, ...]) -> None:
    assert decided(*events) == "continue"


def test_drift_hides_no_other_decision() -> None:
    predicates = Regulator.recommended("ann").predicates

    assert [type(predicate) for predicate in predicates].index(ScopeDrift) == len(predicates) - 1


def test_the_budget_leaves_every_good_run_of_the_study_room() -> None:
    (budget,) = [each for each in Regulator.recommended("ann").predicates if isinstance(each, CallBudget)]

    assert budget.total is not None
    assert set(presets.most_calls()) == CHOSEN
    assert budget.total * 3 == max(presets.most_calls().values()) * 4


def test_no_good_packaged_run_is_stopped_and_no_first_turn_is_warned_about() -> None:
    for run in datasets.airline():
        replayed = replay_regulator(run, nn.Regulator.recommended("ann"))
        found = [made for made in replayed.select(RegulatorDecided) if made.decision["kind"] != "continue"]

        assert not [made for made in found if made.where.turn == 1]
        if run.meta["outcome"]:
            assert not [made for made in found if made.stops], len(run.select(ToolCalled))
