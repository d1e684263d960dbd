"""A recorded run gives rules their live history: that of the whole tree, in the order of decision."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.events import ToolCalled
from noetic_nb.lab import backtest
from noetic_nb.lab._recorded_calls import calls_of
from noetic_nb.steering import RuleBook
from noetic_nb.widgets._rules.draft_trial import sample_calls
from tests.runtime.factories import attempt, started
from tests.steering.test_tree_history import both, call, confirm, pay

SEEN: list[Any] = []


@nn.tool
async def slow() -> str:
    """Take long."""
    for _ in range(10):
        await asyncio.sleep(0)
    return "slow"


@nn.tool
async def outer(ctx: Any) -> str:
    """Let a child pay, and ask the model, meanwhile."""
    await ctx.run(nn.spawn("s", call(pay)))
    await ctx.run(nn.step.llm("ask", model="scripted", tools=[]))
    return "done"


STEPS = {
    "one after another": lambda: attempt(call(pay), nn.spawn("s", call(confirm)), call(confirm, fails=True), call(pay)),
    "side by side": lambda: attempt(both(call(slow), call(pay, "a"), nn.spawn("s", call(confirm))), call(pay)),
    "inside a call": lambda: attempt(call(outer), call(pay)),
    "started": lambda: attempt(started(call(slow)), call(pay)),
    "refused": lambda: attempt(nn.spawn("s", call(confirm)), both(call(pay), call(confirm)), call(confirm)),
}


def watching() -> RuleBook:
    rules = RuleBook()
    points = ["before_tool_call", "after_model_call"]
    rules.rule("look", on=points, history=True)(lambda p: SEEN.append(tuple(p.history)) and None)
    rules.at_most(1, "confirm")
    return rules


@pytest.mark.parametrize("name", STEPS)
async def test_the_history_of_a_recorded_call_is_the_one_it_had(name: str) -> None:
    SEEN.clear()
    config = nn.AgentConfig(name="desk", step=STEPS[name](), memory=[nn.steering(watching())])
    desk = nn.AgentHarness(config, model=nn.ScriptedModel(["Here."] * 3))
    run = nn.record(desk)
    await desk.execute("go")

    found = [recorded.params.history for recorded in calls_of(run)]

    assert sorted(map(str, found)) == sorted(map(str, SEEN))
    own = nn.SteeringRule(id="any", applies_to="before_tool_call", predicate=lambda made: None)
    assert {str(made.params.history) for made in sample_calls([run], own)} <= set(map(str, SEEN))


@pytest.mark.filterwarnings("ignore::noetic_nb.steering._evaluation.rule_reading.UnknownTarget")
@pytest.mark.parametrize("name", STEPS)
async def test_a_backtest_of_the_rules_in_force_changes_nothing(name: str) -> None:
    rules = RuleBook()
    rules.at_most(1, "confirm")
    rules.never("pay", after="slow")
    config = nn.AgentConfig(name="desk", step=STEPS[name](), memory=[nn.steering(rules)])
    desk = nn.AgentHarness(config, model=nn.ScriptedModel(["Here."] * 3))
    run = nn.record(desk)
    await desk.execute("go")
    live = [e.status == "denied" for e in run.events if isinstance(e, ToolCalled)]

    table = backtest(rules, run, on_unknown="warn")
    calls = table[table.hook == "before_tool_call"]

    assert list(calls.after == "deny") == live


async def test_a_loaded_run_keeps_the_order(tmp_path: Any) -> None:
    config = nn.AgentConfig(name="desk", step=STEPS["side by side"](), memory=[nn.steering(watching())])
    desk = nn.AgentHarness(config)
    run = nn.record(desk)
    await desk.execute("go")

    again = nn.load_run(run.save(tmp_path / "run.jsonl"))

    assert [c.params.history for c in calls_of(again)] == [c.params.history for c in calls_of(run)]
