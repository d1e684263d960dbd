"""The limit on tool calls: exact, live as in a replay, in words and as data."""

from __future__ import annotations

import json

import pytest

import noetic_nb as nn
from noetic_nb.events import RegulatorDecided
from noetic_nb.lab import datasets, first_stop, replay_regulator
from noetic_nb.regulator import CallBudget, Regulator, Settings, record_events
from noetic_nb.regulator.decisions import CallBudgetExceeded
from noetic_nb.regulator.events import ToolCall, TurnStart
from noetic_nb.widgets import RegulatorTrends
from tests.regulator.sessions import reason


def fed(budget: CallBudget, *names: str) -> Regulator:
    regulator = Regulator.for_user("ann").with_predicates(budget)
    for place, name in enumerate(names):
        regulator.on_event(ToolCall(name, str(place)))
    return regulator


def test_as_many_calls_as_the_budget_has_are_made_and_no_more() -> None:
    assert reason(fed(CallBudget(total=3), *"abc")) is None
    assert reason(fed(CallBudget(total=3), *"abca")) == CallBudgetExceeded(None, 4, 3)
    assert reason(fed(CallBudget(total=0), "a")) == CallBudgetExceeded(None, 1, 0)
    assert reason(fed(CallBudget(), *"abc" * 50)) is None


def test_a_tool_may_have_a_budget_of_its_own() -> None:
    budget = CallBudget(total=9, per_tool={"pay": 1, "look": 3})

    assert reason(fed(budget, "pay", "look", "look", "look", "other")) is None
    assert reason(fed(budget, "pay", "look", "pay")) == CallBudgetExceeded("pay", 2, 1)
    assert "'pay'" in fed(budget, "pay", "pay").decide().suggestion  # type: ignore[union-attr]


def test_calls_of_all_turns_count_also_those_that_loops_have_forgotten() -> None:
    regulator = Regulator.for_user("ann").with_predicates(CallBudget(total=1_000))
    for turn in range(10):
        regulator.on_event(TurnStart(f"turn {turn}"))
        for place in range(100):
            regulator.on_event(ToolCall("look", str(place)))
    assert reason(regulator) is None

    regulator.on_event(ToolCall("look", None))

    assert reason(regulator) == CallBudgetExceeded(None, 1_001, 1_000)
    regulator.reset_task()
    assert reason(regulator) is None


def test_a_recording_decides_like_a_live_regulator() -> None:
    events = [TurnStart("hi"), *(ToolCall(name, None) for name in "abab"), TurnStart("more"), ToolCall("a", None)]
    budget = CallBudget(total=4, per_tool={"b": 1})
    live = Regulator.for_user("replay").with_predicates(budget)
    expected = []
    for event in events:
        live.on_event(event)
        expected.append(live.decide())

    assert record_events(events).decide([budget]) == tuple(expected)


def test_a_budget_is_data_and_does_not_follow_the_mapping_it_was_made_of() -> None:
    given = {"pay": 1}
    budget = CallBudget(total=20, per_tool=given)
    given["pay"] = 99
    text = Regulator.for_user("ann").with_predicates(budget).export_json("everything")

    assert budget.per_tool == {"pay": 1}
    assert Regulator.from_json(text).predicates == (budget,)
    assert hash(budget) == hash(CallBudget(total=20, per_tool={"pay": 1}))
    data = Settings(predicates=(budget,)).to_dict()
    data["predicates"][0]["per_tool"]["pay"] = 99
    assert budget.per_tool == {"pay": 1}
    assert json.loads(json.dumps(data))["predicates"][0]["total"] == 20


def test_an_explanation_names_what_is_left_and_what_would_help() -> None:
    (near,) = fed(CallBudget(total=4, per_tool={"a": 5}), *"aaa").explain().findings
    (over,) = fed(CallBudget(total=4, per_tool={"a": 5}), *"aaabb").explain().findings
    (none,) = fed(CallBudget()).explain().findings

    assert (near.holds, near.inputs) == (False, {"calls": 3, "calls of a": 3})
    assert near.thresholds == {"calls": 4, "calls of a": 5}
    assert [(change.field, change.before, change.after) for change in over.changes] == [
        ("calls", 5, 4),
        ("total", 4, 5),
    ]
    assert not none.holds
    assert none.distance == 1


@pytest.mark.parametrize("calls", [2, 3])
async def test_a_harness_runs_as_many_calls_as_the_budget_has_and_a_replay_says_the_same(calls: int) -> None:
    ran = []

    @nn.tool
    def look(place: int) -> str:
        """Look somewhere."""
        ran.append(place)
        return "nothing"

    async def lived(*memory: nn.MemoryLayer) -> tuple[nn.Run, nn.AgentReply]:
        config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[look], max_steps=9), memory=[*memory])
        script = [*(nn.CallTool("look", place=place) for place in range(calls)), "done"]
        harness = nn.AgentHarness(config, model=nn.ScriptedModel(script))
        run = nn.record(harness)
        return run, await harness.execute("find it")

    budget = Regulator.for_user("ann").with_predicates(CallBudget(per_tool={"look": 2}))
    run, reply = await lived(nn.regulation(budget))
    assert len(ran) == 2
    assert (reply.stopped is None) == (calls == 2)

    free, _ = await lived()
    replayed = replay_regulator(free, budget)

    stops = [made.decision for made in run.select(RegulatorDecided) if made.stops]
    assert [made.decision for made in replayed.select(RegulatorDecided) if made.stops][:1] == stops


def test_a_replay_stops_a_recorded_run_and_its_view_has_words_for_it() -> None:
    replayed = replay_regulator(
        datasets.airline_run(26), Regulator.for_user("ann").with_predicates(CallBudget(total=12))
    )
    stop = first_stop(replayed)

    assert stop is not None
    assert stop.decision["reason"] == {
        "kind": "call_budget_exceeded",
        "tool_name": None,
        "call_count": 13,
        "call_budget": 12,
    }
    with RegulatorTrends(replayed) as view:
        assert "call budget" in view.to_text()
        assert "13 calls, 12 allowed" in view.to_text()
