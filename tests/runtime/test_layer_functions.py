"""Functions of layers, called by the model, in every kind of step and with or without subscribers."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.memory import MemoryHooks, MemoryLayer, layer_fn
from noetic_nb.steps import step
from noetic_nb.testing import SeededIds
from tests.matrix import matrix
from tests.runtime.factories import make_harness, outputs, record_events

WORKING = "working-memory/update"
EMITS = {"all": True, "none": False, "some": lambda kind, data: kind == "tool_called"}


def counting(**hooks: Any) -> MemoryLayer:
    """Return a layer whose function counts its calls, and sees the execution as hooks do."""

    def add(args: dict[str, int], state: Any, ctx: Any) -> dict[str, Any]:
        total = (state or 0) + args["n"]
        return {"result": f"{total} on {ctx.thread_id} at depth {ctx.depth}", "state": total}

    function = layer_fn(description="Adds.", input=dict[str, int], output=str, execute=add)
    return MemoryLayer(
        id="count", slot=nn.Slot.WORKING_MEMORY, scope="thread", provides={"add": function}, hooks=MemoryHooks(**hooks)
    )


LAYERS = {
    "no hooks": lambda: counting(),
    "hooks": lambda: counting(
        init=lambda p: {"state": 0},
        recall=lambda p: f"total {p.state}",
        on_spawn=lambda p: {"child_state": p.parent_state},
    ),
    "working memory": lambda: nn.working_memory(scope="resource"),  # inherited by children
}
CALLS = {"working memory": (WORKING, {"city": "Rome"})}
PLACES = {
    "turn": lambda inner: inner,
    "spawn": lambda inner: step.spawn("below", inner),
    "fork": lambda inner: step.fork("beside", mode="all", paths=[inner], merge="first"),
    "started": lambda inner: step.run("begin", lambda value, ctx: ctx.start(inner, value).result()),
}


@matrix(
    "layer,emit,place,is_streamed,is_followed", product(LAYERS, EMITS, PLACES, [True, False], [True, False]), keep=40
)
async def test_the_model_calls_a_function_of_a_layer(
    layer: str, emit: str, place: str, is_streamed: bool, is_followed: bool
) -> None:
    name, args = CALLS.get(layer, ("count/add", {"n": 2}))
    logged: list[Any] = []

    def reply(request: nn.ModelRequest) -> Any:
        logged[:] = request.items
        return nn.CallTool(name, **args) if len(outputs(logged)) < 2 else "done"

    inner = step.llm("ask", model="m", emit=EMITS[emit], tool_rounds=4)
    harness = nn.AgentHarness(
        nn.AgentConfig(name="desk", step=PLACES[place](inner), memory=[LAYERS[layer]()]),
        model=nn.ScriptedModel(reply),
        ids=SeededIds(),
    )
    if is_followed:
        record_events(harness)

    if is_streamed:
        answer = await harness.stream("hi", thread_id="t", resource_id="r").reply
    else:
        answer = await harness.execute("hi", thread_id="t", resource_id="r")

    assert answer.text == "done", answer
    found = outputs(logged)
    assert len(found) == 2
    assert not [text for text in found if "Error" in text or "error" in text]
    if layer != "working memory":
        depth = int(place != "turn")
        assert found == [f"{total} on t at depth {depth}" for total in (2, 4)]


@pytest.mark.parametrize("way", ["run", "start"])
async def test_a_tool_runs_a_step_with_the_context_it_was_given(way: str) -> None:
    double = step.run("double", lambda n, ctx: f"{2 * n} at {ctx.place} of {ctx.depth}")

    @nn.tool
    async def think(n: int, ctx: Any) -> str:
        """Think."""
        run, start = ctx.harness.run, ctx.harness.start
        return str(await (run(double, n, ctx) if way == "run" else start(double, n, ctx).result()))

    harness = make_harness([nn.CallTool("think", n=2), "done"], step=step.llm("ask", model="m", tools=[think]))
    events = record_events(harness)

    await harness.execute("go")

    place = "/ask#1/double#1 of 0" if way == "run" else "/ask#1/[0]/double#1 of 1"
    assert [event.output for event in events.of("tool_called")] == [f"4 at {place}"]


async def test_a_tool_sets_what_a_step_may_set() -> None:
    @nn.tool
    def note(ctx: Any) -> str:
        """Note."""
        ctx.state = {"noted": ctx.call_id}
        return "noted"

    harness = make_harness([nn.CallTool("note"), "done"], tools=[note])
    harness_state = step.run("look", lambda value, ctx: dict(ctx.state))

    async with harness.execution() as ctx:
        await ctx.run(step.llm("ask", model="m", tools=[note]), "go")
        seen = await ctx.run(harness_state)

    assert seen == ctx.state
    assert list(seen) == ["noted"]
