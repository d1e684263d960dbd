"""Functions of inactive layers are not offered to the model; those of active layers are."""

from __future__ import annotations

from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.events import ViewAssembled
from noetic_nb.memory import MemoryHooks, MemoryLayer, layer_fn
from noetic_nb.steps import step
from tests.runtime.factories import lookup, make_harness, outputs, requests_of


def failing(p: Any) -> Any:
    raise OSError("no disk")


def adding(id: str, **hooks: Any) -> MemoryLayer:
    add = layer_fn(
        description="Adds.", input=dict[str, int], output=str, execute=lambda args, state, ctx: {"result": "ok"}
    )
    return MemoryLayer(
        id=id, slot=1, scope="thread", on_init_error="disable", provides={"add": add}, hooks=MemoryHooks(**hooks)
    )


def offered(harness: nn.AgentHarness) -> list[list[str]]:
    """Return the names of the tools in each request."""
    return [[tool.name for tool in request.tools] for request in requests_of(harness)]


@pytest.mark.parametrize("chosen", [False, True], ids=["listed", "chosen"])
@pytest.mark.parametrize("init", [failing, lambda p: None], ids=["disabled", "no state"])
async def test_a_layer_that_is_out_of_action_offers_nothing(init: Any, chosen: bool) -> None:
    tools: Any = (lambda ctx: [lookup]) if chosen else [lookup]
    ask = step.llm("ask", model="m", tools=tools, tool_rounds=3)
    harness = make_harness(
        [nn.CallTool("bad/add"), "done"], step=ask, memory=[adding("bad", init=init), adding("good")]
    )

    await harness.execute("hi", thread_id="t")

    assert offered(harness) == [["lookup", "good/add"]] * 2
    assert outputs(harness.log("t").items) == ["Error: unknown tool 'bad/add'"]


@pytest.mark.parametrize("layer", [nn.working_memory, lambda: adding("notes", init=lambda p: {"state": 1})])
async def test_what_a_path_of_a_fork_does_not_have_is_not_offered_to_it(layer: Any) -> None:
    ask = step.llm("ask", model="m", tools=[lookup])
    both = step.fork("both", mode="all", paths=[ask], merge="first")
    harness = make_harness(
        lambda request: "done", step=nn.loop("l", [ask, both], until=nn.until.max_steps(1)), memory=[layer()]
    )

    for _ in range(2):
        await harness.execute("hi", thread_id="t")

    name = harness._engine.stack.layers[0].id
    with_it = ["lookup", *[tool for tool in offered(harness)[0] if tool.startswith(f"{name}/")]]
    assert len(with_it) == 2
    assert offered(harness) == [with_it, ["lookup"]] * 2


async def test_the_tokens_of_tools_are_those_of_what_is_offered() -> None:
    found = []
    for memory in ([adding("bad", init=failing)], []):
        harness = make_harness(["done"], tools=[lookup], memory=memory)
        run = nn.record(harness)
        await harness.execute("hi")
        found.append([view.tools for view in run.select(ViewAssembled)])

    assert found[0] == found[1] != []
