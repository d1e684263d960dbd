"""Checks before a run: preview, check, describe; and configurations that cannot work."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

import noetic_nb as nn
from tests.runtime.factories import Events, lookup, make_harness


async def test_a_preview_shows_what_the_next_call_sends_and_calls_nothing() -> None:
    model = nn.ScriptedModel(["a", "b"])
    harness = make_harness(model, instructions="Be brief.", memory=[nn.static_content("Policy: no refunds.")])
    await harness.execute("one")

    plan = harness.preview()
    asked = len(model.requests)

    assert asked == 1
    assert [item["role"] for item in plan.items] == ["developer", "user", "assistant"]
    assert plan.total_tokens == plan.system + plan.tools + plan.framing + plan.history + sum(
        layer.used for layer in plan.layers
    )


def test_a_preview_of_a_new_thread_is_empty() -> None:
    assert len(make_harness(["a"]).preview("new").items) == 0


def test_check_finds_an_unknown_model_a_missing_step_and_an_idle_layer() -> None:
    layer = nn.MemoryLayer(id="idle", slot=1, scope="thread")
    config = nn.AgentConfig(name="x", step=nn.react(model="gpt-9"), memory=[layer])
    harness = nn.AgentHarness(config, model={"gpt-5": nn.ScriptedModel([])})

    assert [(f.level, f.code) for f in harness.check()] == [("error", "UNKNOWN_MODEL"), ("note", "LAYER_WITHOUT_HOOKS")]
    empty = nn.AgentHarness(nn.AgentConfig(name="x"), model=nn.ScriptedModel([]))
    assert [f.code for f in empty.check()] == ["NO_STEP_CONFIGURED"]


def test_check_finds_rules_about_tools_that_are_not_there_and_budgets_that_do_not_fit() -> None:
    rules = nn.RuleBook()
    rules.rule("typo", on="before_tool_call", tools=["lookpu"])(lambda call: None)
    big = nn.MemoryLayer(id="big", slot=1, scope="thread", budget={"min": 900, "max": 1000},
                         hooks=nn.MemoryHooks(recall=lambda p: None))  # fmt: skip
    harness = make_harness([], memory=[nn.steering(rules), big],
                   projection=nn.ProjectionPolicy(token_budget=1000, response_reserve=200, overflow="truncate"))  # fmt: skip

    assert {f.code for f in harness.check()} == {"UNKNOWN_TOOL", "MINIMUMS_DO_NOT_FIT"}


def test_check_finds_approvals_nobody_gives() -> None:
    @nn.tool(needs_approval=True)
    def wire() -> str:
        """Send."""
        return "sent"

    assert [f.code for f in make_harness([], tools=[wire]).check()] == ["NOBODY_APPROVES"]
    assert make_harness([], tools=[wire], approve=lambda name, args: True).check() == ()


def test_a_description_is_plain_json_data() -> None:
    harness = make_harness([], memory=[nn.working_memory()], instructions="Be brief.")

    about = json.loads(json.dumps(harness.describe(), allow_nan=False))

    assert about["config"]["name"] == "desk"
    assert about["config"]["step"]["kind"] == "loop"


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"name": ""}, "INVALID_AGENT_CONFIG"),
        ({}, "INVALID_AGENT_CONFIG"),
        ({"name": "x", "colour": "red"}, "INVALID_AGENT_CONFIG"),
        ({"name": "x", "step": "react"}, "INVALID_AGENT_CONFIG"),
        ({"name": "x", "tools": [3]}, "INVALID_AGENT_CONFIG"),
        ({"name": "x", "memory": [3]}, "INVALID_LAYER"),
        (
            {"name": "x", "memory": [nn.static_content("a", id="s"), nn.static_content("b", id="s")]},
            "DUPLICATE_LAYER_ID",
        ),
    ],
)
def test_a_configuration_that_cannot_work_says_which_rule_it_breaks(config: dict[str, Any], code: str) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        nn.AgentConfig(**config)

    assert caught.value.code == code


@pytest.mark.parametrize("scope", ["user", "", None])
def test_an_unknown_scope_is_refused(scope: Any) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        nn.MemoryLayer(id="x", slot=1, scope=scope)

    assert caught.value.code == "UNKNOWN_SCOPE"


@pytest.mark.parametrize("model", ["gpt-5", {"a": "gpt-5"}, 3])
def test_a_harness_needs_clients(model: Any) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        nn.AgentHarness(nn.AgentConfig(name="x"), model=model)

    assert caught.value.code == "INVALID_MODEL"


def test_two_tools_that_look_alike_on_the_wire_are_refused() -> None:
    @nn.tool(name="plan/update")
    def one() -> str:
        """One."""
        return ""

    @nn.tool(name="plan.update")
    def two() -> str:
        """Two."""
        return ""

    assert [f.code for f in make_harness([], tools=[one, two]).check()] == ["TOOL_NAME_COLLISION"]


@pytest.mark.parametrize("max_steps", [0, -1, True, 1.5, None])
def test_react_needs_at_least_one_step(max_steps: Any) -> None:
    with pytest.raises(nn.NoeticConfigError):
        nn.react(model="scripted", max_steps=max_steps)


@pytest.mark.parametrize("thread", ["", None, 3])
async def test_a_thread_has_a_name(thread: Any) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        await make_harness(["x"]).execute("hi", thread_id=thread)

    assert caught.value.code == "INVALID_THREAD"


async def test_models_are_routed_by_the_name_of_the_step() -> None:
    step = nn.loop("two", [nn.step.llm("a", model="small"), nn.step.llm("b", model="large")],
                   until=nn.until.max_steps(1))  # fmt: skip
    harness = nn.AgentHarness(
        nn.AgentConfig(name="x", step=step, tools=[lookup]),
        model={"small": nn.ScriptedModel(["from small"]), "large": nn.ScriptedModel(["from large"])},
    )

    assert (await harness.execute("hi")).text == "from large"


async def test_a_sink_that_raises_is_taken_off_and_the_turn_goes_on() -> None:
    told: list[Any] = []

    class Broken:
        def emit(self, event: Any) -> None:
            raise RuntimeError("full")

    harness = make_harness(["x"], diagnostic=lambda *what: told.append(what[:2]))
    harness.subscribe(Broken())

    assert (await harness.execute("hi")).text == "x"
    assert told == [("Broken", "emit")]


async def test_nothing_is_recorded_once_the_last_listener_is_gone() -> None:
    begun: list[str] = []
    layer = nn.MemoryLayer(
        id="told",
        slot=100,
        scope="thread",
        hooks=nn.MemoryHooks(on_record=lambda sink, clock: begun.append("begun") or (lambda: begun.append("ended"))),
    )
    harness = make_harness(["a", "b"], memory=[layer])
    events = Events()

    stop = harness.subscribe(events)
    await harness.execute("hi")
    stop()
    known = len(events)
    await harness.execute("and now?")

    assert known > 0
    assert len(events) == known
    assert begun == ["begun", "ended"]


async def test_a_sink_that_raises_ends_what_was_recorded_for_it() -> None:
    begun: list[str] = []
    layer = nn.MemoryLayer(
        id="told",
        slot=100,
        scope="thread",
        hooks=nn.MemoryHooks(on_record=lambda sink, clock: begun.append("begun") or (lambda: begun.append("ended"))),
    )

    class Broken:
        def emit(self, event: Any) -> None:
            raise RuntimeError("full")

    harness = make_harness(["x"], memory=[layer], diagnostic=lambda *what: None)
    harness.subscribe(Broken())
    await harness.execute("hi")

    assert begun == ["begun", "ended"]


async def test_a_closed_thread_begins_again_without_its_past_turns() -> None:
    harness = make_harness(lambda request: "x")
    await harness.execute("hi", thread_id="t")
    await harness.execute("hi", thread_id="t")
    before = harness.memory("t").turns

    harness.close_thread("t")

    assert (before, harness.memory("t").turns) == ((1, 2), ())


async def test_sinks_that_are_equal_are_heard_each() -> None:
    @dataclass
    class Collector:
        seen: list[Any] = field(default_factory=list)

        def emit(self, event: Any) -> None:
            self.seen.append(event)

    harness = make_harness(["x"])
    one, two = Collector(), Collector()
    harness.subscribe(one)
    harness.subscribe(two)

    await harness.execute("hi")

    assert len(one.seen) == len(two.seen) > 0


@pytest.mark.parametrize(("reserve", "has_room"), [(99, True), (100, False), (101, False)])
def test_check_finds_a_reserve_that_leaves_nothing(reserve: float, has_room: bool) -> None:
    harness = make_harness(["x"], projection=nn.ProjectionPolicy(token_budget=100, response_reserve=reserve))

    assert ("NO_ROOM" in {finding.code for finding in harness.check()}) is not has_room
