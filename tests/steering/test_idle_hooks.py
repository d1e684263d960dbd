"""A steering layer's recall offers waiting verdicts once, and an earlier stop still applies."""

from __future__ import annotations

import asyncio

import noetic_nb as nn
from noetic_nb.items import item_text
from noetic_nb.memory import MemoryHooks, MemoryLayer
from noetic_nb.steering import SteeringRule, steering
from noetic_nb.testing import drive_loop


def test_a_late_verdict_reaches_the_next_prompt_once_in_a_run_that_nobody_follows() -> None:
    watch = SteeringRule(
        id="watch",
        applies_to="after_model_call",
        llm_eval={"mode": "async", "prompt": "Polite?", "model": "judge"},
    )
    writer, verdicts = nn.ScriptedModel(["One.", "Two.", "Three.", "Four."]), ["DENY: Say please."]
    judge = nn.ScriptedModel(lambda request: verdicts.pop() if verdicts else "ALLOW")
    config = nn.AgentConfig(name="desk", step=nn.react(model="m"), memory=[steering(rules=[watch])])
    harness = nn.AgentHarness(config, model={"m": writer, "judge": judge})

    async def run() -> None:
        for number in range(4):
            await harness.execute(f"Question {number}", thread_id="t1")
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0)

    drive_loop(run())

    texts = [[item_text(item) for item in request.items] for request in writer.requests]
    assert [any("[watch] Say please." in text for text in each) for each in texts] == [False, True, False, False]


def test_a_stop_that_an_earlier_hook_asked_for_ends_the_turn_although_nothing_is_recalled() -> None:
    stop = nn.memory.Stop({"kind": "enough"}, "That is all.")
    hooks = MemoryHooks(on_item_append=lambda p: {"stop": stop})
    model = nn.ScriptedModel(["Never."])
    layers = [steering(rules=[]), MemoryLayer(id="ends", slot=50, scope="thread", hooks=hooks)]
    harness = nn.AgentHarness(nn.AgentConfig(name="a", step=nn.react(model="m"), memory=layers), model=model)

    reply = drive_loop(harness.execute("Hi"))

    assert (reply.text, len(model.requests)) == ("That is all.", 0)
