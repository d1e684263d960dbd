"""In an endless conversation, and with an endless supply of new steps, only the log grows."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import noetic_nb as nn
from noetic_nb.runtime._context import step_setup
from noetic_nb.runtime._threads import state_history
from noetic_nb.steps import branch, spawn, step
from tests.runtime.factories import make_harness


async def test_nothing_but_the_log_grows_with_the_turns() -> None:
    model = nn.ScriptedModel(lambda request: "ok")
    policy = nn.ProjectionPolicy(token_budget=2_000, response_reserve=100, overflow="truncate")
    harness = make_harness(model, tools=[], memory=[nn.working_memory()], projection=policy)

    async def rest(turns: int) -> int:
        for _ in range(turns):
            await harness.execute("hi")
            model.reset()
        harness.close_thread("default")
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    await rest(5)
    tracemalloc.start()
    try:
        short = await rest(200)
        long = await rest(800)
    finally:
        tracemalloc.stop()

    assert long - short < 600 * 24, "less than 24 bytes for each further turn"


async def test_only_so_many_turns_can_be_gone_back_to() -> None:
    harness = make_harness(lambda request: "ok", tools=[])

    for _ in range(state_history.MAX_TURNS + 20):
        await harness.execute("hi")

    turns = harness.memory().turns
    assert (len(turns), turns[0], turns[-1]) == (state_history.MAX_TURNS, 21, state_history.MAX_TURNS + 20)
    harness.close_thread("default")
    assert harness.memory().turns == ()


async def test_steps_that_are_made_anew_each_time_leave_nothing_behind() -> None:
    def fresh(value: Any, ctx: Any) -> Any:
        return spawn("s", step.llm("ask", model="m"), memory=[nn.working_memory()])

    model = nn.ScriptedModel(lambda request: "ok")
    harness = make_harness(model, step=branch("b", fresh))

    for _ in range(step_setup.MAX_SETUPS + 20):
        await harness.execute("hi")

    made_for = harness._engine
    assert len(made_for._inner) <= step_setup.MAX_SETUPS
    assert (await harness.execute("hi")).text == "ok"

    plain = make_harness(model, step=branch("b", lambda value, ctx: step.llm("ask", model="m")))
    for _ in range(step_setup.MAX_SETUPS + 20):
        await plain.execute("hi")
    assert len(plain._engine.setups._toolsets) <= step_setup.MAX_SETUPS
