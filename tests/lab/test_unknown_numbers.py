"""Values missing in a recording are missing in every table, view and replay: never an unmeasured zero."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from noetic_nb import plots
from noetic_nb.events import ChildEnded, ModelCalled, QualityGiven, TurnCompleted
from noetic_nb.lab import datasets, replay_regulator
from noetic_nb.lab._recorded_calls import calls_of
from noetic_nb.memory.params import AfterModelCallParams
from noetic_nb.models import Reply, ScriptedModel
from noetic_nb.regulator import Regulator, ToolLoop
from noetic_nb.runs import Run, load_run, record
from noetic_nb.runtime import AgentConfig, AgentHarness, react
from noetic_nb.steps import spawn
from noetic_nb.widgets import TokenAllocation


def test_a_recording_without_costs_and_durations_has_none_in_its_tables(tmp_path: Path) -> None:
    for run in datasets.airline():
        loaded = load_run(run.save(tmp_path / "run.jsonl.gz"))
        for each in (run, loaded):
            turns, tools = each.to_frame("turns"), each.to_frame("tools")
            assert turns["cost"].isna().all()
            assert turns["duration_ms"].isna().all()
            assert tools["duration_ms"].isna().all()
            assert turns["quality"].notna().sum() == 1
        assert run.meta["estimated"] == [
            name for name in ("t_ms", "input_tokens", "output_tokens", "status") if name != "status" or len(tools)
        ]


def dojo(tmp_path: Path, **changes: Any) -> Run:
    messages = [
        {"role": "user", "content": "Pay the rent."},
        {"role": "assistant", "content": "", "tool_calls": [{"id": None, "function": "pay", "args": {"sum": 1}}]},
        {"role": "tool", "content": "Error was the payee's name.", "tool_call_id": None, "error": None},
        {"role": "assistant", "content": "Paid."},
    ]
    entry = {"suite_name": "banking", "pipeline_name": "gpt", "user_task_id": "u1", "messages": messages, **changes}
    path = tmp_path / "dojo.json"
    path.write_text(json.dumps(entry))
    (run,) = datasets.load_agentdojo(path)
    return run


def test_a_run_that_nobody_judged_has_no_grade(tmp_path: Path) -> None:
    unknown = dojo(tmp_path, utility=None)

    assert unknown.meta["outcome"] is None
    assert not unknown.select(QualityGiven)
    assert unknown.to_frame("turns")["quality"].isna().all()
    assert [grade.quality for grade in dojo(tmp_path, utility=False).select(QualityGiven)] == [0.0]


def test_the_errors_of_a_recording_are_its_own_where_it_has_them(tmp_path: Path) -> None:
    run = dojo(tmp_path, utility=True)

    assert list(run.to_frame("tools")["status"]) == ["ok"]
    assert "status" not in run.meta["estimated"]


def test_rules_see_no_price_where_none_was_recorded() -> None:
    found = [call.params for call in calls_of(datasets.airline_run(26))]

    assert all(math.isnan(params.ctx.cost) for params in found)
    assert {params.response.cost for params in found if isinstance(params, AfterModelCallParams)} == {None}


def test_a_turn_that_a_replay_cuts_off_has_no_duration_where_times_are_estimates() -> None:
    loops = Regulator.for_user("ann").with_predicates(ToolLoop())

    cut = replay_regulator(datasets.airline_run(26), loops, stop=True)

    assert cut.turns[-1].stopped is not None
    assert cut.to_frame("turns")["duration_ms"].isna().all()


@pytest.mark.parametrize("prices", [(None, None), (None, 0.5), (0.0, 0.0)])
async def test_a_live_turn_costs_what_is_known_and_unknown_is_not_zero(prices: tuple[float | None, ...]) -> None:
    child = spawn("helper", child=react(model="m", instructions="Help."))
    replies = [Reply("well", cost=price) for price in prices]
    harness = AgentHarness(AgentConfig(name="desk", step=child), model=ScriptedModel([replies[0]]))
    alone = record(harness)
    await harness.execute("hi")
    harness = AgentHarness(AgentConfig(name="desk", step=react(model="m")), model=ScriptedModel(replies))
    both = record(harness)
    await harness.execute("hi")
    await harness.execute("and you?")

    assert [ended.cost for ended in alone.select(ChildEnded)] == [prices[0]]
    assert [call.cost for call in both.select(ModelCalled)] == list(prices)
    assert [turn.cost for turn in both.select(TurnCompleted)] == list(prices)
    assert list(both.to_frame("turns")["cost"].isna()) == [price is None for price in prices]


def test_a_view_of_a_recording_without_plans_says_so() -> None:
    run = datasets.airline_run(26)

    with TokenAllocation(run) as view:
        assert "This recording has no plans" in view.to_text()
        assert "This recording has no plans" in view.to_html()
    drawn = " ".join(text.get_text() for text in plots.allocation(run, turn=2).texts)
    assert "This recording has no plans" in " ".join(drawn.split())


def test_a_growing_run_without_plans_tells_its_page_once() -> None:
    run = Run()
    with TokenAllocation(run) as view:
        assert "No model call yet" in view.to_text()
        for event in datasets.airline_run(26).events:
            run.append(event)
        assert "This recording has no plans" in view.to_text()
