"""A live run and its replay through the same regulator agree: both map events in the same way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noetic_nb.events import ModelCalled, RegulatorDecided, RegulatorSaw, SteeringDecided
from noetic_nb.lab._replaying.regulator_readings import replay_regulator
from noetic_nb.layers import regulation
from noetic_nb.memory import MemoryLayer
from noetic_nb.models import CallTool, Reply, ScriptedModel
from noetic_nb.regulator import CostCap, Regulator
from noetic_nb.runs import Run, load_run, record
from noetic_nb.runtime import AgentConfig, AgentHarness, AgentReply, react
from noetic_nb.steps import Step, loop, spawn, step, tool, until
from noetic_nb.testing import FakeClock, SeededIds


@tool
async def search(day: int) -> dict[str, Any]:
    """Look for flights of one day."""
    return {"day": day, "flights": []}


APPROVALS = (RegulatorDecided, SteeringDecided)
shout = step.run("shout", lambda text, ctx: text.upper())


def template() -> Regulator:
    return Regulator.for_user("ann").with_cost_cap(100_000)


async def lived() -> Run:
    config = AgentConfig(
        name="desk",
        step=react(model="scripted", instructions="You book flights.", tools=[search]),
        memory=[regulation(template())],
    )
    replies = [CallTool("search", day=1), CallTool("search", day=2), "Nothing on those days.", "Sorry.", "Sorry again."]
    harness = AgentHarness(config, model=ScriptedModel(replies), clock=FakeClock(), ids=SeededIds())
    run = record(harness)
    await harness.execute("a flight to Ulm on monday", thread_id="t1", resource_id="ann")
    await harness.feedback("t1", quality=0.5)
    await harness.correct("t1", "no layovers please")
    await harness.execute("and on tuesday", thread_id="t1", resource_id="ann")
    await harness.feedback("t1", quality=0.4)
    await harness.execute("a train then", thread_id="t2", resource_id="ann")
    return run


def heard(run: Run) -> list[tuple[str, dict[str, Any]]]:
    events = [(e.where.thread_id, dict(e.event)) for e in run.select(RegulatorSaw)]
    for _, event in events:
        event.pop("output", None)  # a replay knows the output of a tool, but release predicates do not read it
    return events


def answered(run: Run) -> list[tuple[object, ...]]:
    return [
        (e.where, e.at, e.decision, e.suggestion, e.confidence, e.tokens_out, e.cost_cap, e.stops, e.thresholds)
        for e in run.select(RegulatorDecided)
    ]


async def test_a_replay_tells_and_answers_what_the_live_layer_did() -> None:
    run = await lived()

    replayed = replay_regulator(run, template())

    assert len(answered(run)) >= 10
    assert heard(replayed) == heard(run)
    assert answered(replayed) == answered(run)


@pytest.mark.parametrize(
    ("currency", "cap"), [("usd", 0.2), ("tokens_in", 50), ("wallclock_ms", 9), ("tokens_out", 20)]
)
async def test_a_cap_in_any_currency_stops_a_live_turn_and_the_replay_of_a_free_one(currency: str, cap: float) -> None:
    capped = Regulator.for_user("ann").with_predicates(
        CostCap(**{"tokens_out": None, "poor_mean": None, currency: cap})  # type: ignore[arg-type]
    )

    async def asked(*layers: MemoryLayer) -> tuple[Run, AgentReply]:
        config = AgentConfig(name="desk", step=react(model="scripted", tools=[search]), memory=layers)
        usage = {"input_tokens": 25, "output_tokens": 10}
        replies = [Reply(tool_calls=[CallTool("search", day=day)], usage=usage, cost=0.1) for day in range(4)]
        harness = AgentHarness(
            config, model=ScriptedModel([*replies, "None."]), clock=FakeClock(step_ms=5), ids=SeededIds()
        )
        run = record(harness)
        return run, await harness.execute("a flight to Ulm", thread_id="t1")

    stopped, reply = await asked(regulation(capped))
    replayed = replay_regulator((await asked())[0], capped, stop=True)

    assert reply.stopped is not None
    assert reply.stopped["reason"]["kind"] == "cost_cap_reached"
    assert reply.stopped["reason"].get("currency", "tokens_out") == currency
    assert len(stopped.select(ModelCalled)) == len(replayed.select(ModelCalled)) == 2
    assert heard(replayed) == heard(stopped)
    assert [e.decision for e in replayed.select(RegulatorDecided)] == [
        e.decision for e in stopped.select(RegulatorDecided)
    ]
    for run in (stopped, replayed):
        kept = [e.thresholds for e in run.select(RegulatorDecided)]
        assert kept == [{"cost_cap": {currency: cap, "window": 3}}] * len(kept)
        assert len({id(numbers) for numbers in kept}) == 1  # one object, whatever the length of the run


@tool(needs_approval=True)
async def book(day: int) -> str:
    """Book a flight."""
    return "booked"


@tool(inline=True)
def count(day: int) -> str:
    """Count flights."""
    return f"many flights on day {day}"


@pytest.mark.parametrize(
    "body",
    [
        step.llm("ask", model="scripted", tool_rounds=3),
        loop("twice", [step.llm("ask", model="scripted", tool_rounds=3)], until=until.max_steps(2)),
        loop(
            "after",
            [step.tool("count", tool=count, args={"day": 3}), step.llm("ask", model="scripted", tool_rounds=3)],
            until=until.max_steps(1),
        ),
        loop(
            "child", [spawn("inner", step.llm("ask", model="scripted", tool_rounds=3)), shout], until=until.max_steps(1)
        ),
    ],
)
async def test_every_answer_and_every_call_that_a_person_may_refuse_is_observed(body: Step) -> None:
    async def live(memory: list[MemoryLayer]) -> Run:
        config = AgentConfig(name="desk", step=body, tools=[book], memory=memory)
        replies = [CallTool("book", day=1), "One.", CallTool("book", day=2), "Two."]
        harness = AgentHarness(config, model=ScriptedModel(replies), approve=lambda name, args: args["day"] == 1)
        run = record(harness)
        await harness.execute("book both days", thread_id="t1", resource_id="ann")
        return run

    regulated = await live([regulation(template())])
    replayed = replay_regulator(await live([]), template())
    kinds = [[(e.at, e.decision) for e in run.select(RegulatorDecided)] for run in (regulated, replayed)]
    assert kinds[0] == kinds[1]
    seen = [
        [e.event for e in run.select(RegulatorSaw) if e.event["kind"] == "turn_start"] for run in (regulated, replayed)
    ]
    assert seen[0] == seen[1]
    places = [[type(e).__name__ for e in run.events if isinstance(e, APPROVALS)] for run in (regulated, replayed)]
    assert places[0] == places[1]


async def test_a_price_nobody_knows_is_none_live_and_replayed() -> None:
    run = await lived()

    for events in (run, replay_regulator(run, template())):
        costs = [e.event for e in events.select(RegulatorSaw) if e.event["kind"] == "cost"]
        assert costs
        assert not [cost for cost in costs if "usd" in cost]


async def test_a_live_run_has_its_turns_and_its_log_and_survives_its_file(tmp_path: Path) -> None:
    run = await lived()

    loaded = load_run(run.save(tmp_path / "run.jsonl.gz"))

    assert loaded == run
    assert [(t.where.thread_id, t.outcome, t.qualities) for t in run.turns] == [
        ("t1", "success", (0.5,)),
        ("t1", "success", (0.4,)),
        ("t2", "success", ()),
    ]
    assert [turn.text for turn in run.turns] == ["Nothing on those days.", "Sorry.", "Sorry again."]
    assert [item["type"] for item in loaded.log("t1")][:3] == ["message", "function_call", "function_call_output"]
    assert len(run.to_frame("turns")) == 3
