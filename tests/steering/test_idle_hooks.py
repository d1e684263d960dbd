"""Recall and `delivered` of a steering layer are left out of a turn where nothing waits, and never where something does."""

from __future__ import annotations

import asyncio
from typing import Any

import noetic_nb as nn
from noetic_nb.items import item_text
from noetic_nb.memory import ExecutionContext, LayerStack, MemoryHooks, MemoryLayer
from noetic_nb.steering import SteeringRule, steering
from noetic_nb.steering._ledger import State
from noetic_nb.testing import drive_loop

CTX = ExecutionContext(execution_id="e1", thread_id="t1")
GUIDANCE = {"ruleId": "watch", "guidance": "Say please."}


def stack(*others: MemoryLayer, sink: Any = None) -> LayerStack:
    return LayerStack([steering(rules=[]), *others], sink=sink)


def idle(made: LayerStack) -> tuple[bool, bool]:
    return made.is_idle("recall", "e1"), made.is_idle("delivered", "e1")


def test_nothing_is_called_while_nothing_waits() -> None:
    made = stack()
    assert idle(made) == (False, True)  # no execution has begun, so the hook itself says what that means

    drive_loop(made.init(CTX))

    assert idle(made) == (True, True)


def test_what_waits_is_recalled_and_what_was_sent_is_confirmed() -> None:
    async def run() -> list[tuple[bool, bool]]:
        made = stack()
        await made.init(CTX)
        seen = []
        made.state.get("e1", "steering")["pendingAsync"].append(GUIDANCE)
        seen.append(idle(made))
        (entry,) = await made.recall(CTX, budgets={})
        seen.append(idle(made))
        made.delivered(CTX, [])
        seen.append(idle(made))
        await made.recall(CTX, budgets={})
        made.delivered(CTX, [item["id"] for item in entry.items])
        return [*seen, idle(made)]

    # Waits; was taken; was not sent, so it waits again; is taken once more and was not the item that was sent.
    assert drive_loop(run()) == [(False, True), (True, False), (False, True), (False, True)]


def test_a_state_that_somebody_else_has_set_is_looked_at() -> None:
    async def run() -> list[bool]:
        made = stack()
        await made.init(CTX)
        own = made.state.get("e1", "steering")
        seen = []
        for state in (
            State({**own, "pendingAsync": []}),
            State({**own, "pendingAsync": [GUIDANCE]}),
            dict(own),
            None,
            own,
        ):
            made.state.set("e1", "steering", state)
            seen.append(made.is_idle("recall", "e1"))
        return seen

    assert drive_loop(run()) == [False, False, False, False, True]


def test_what_leaves_a_trace_is_called_where_somebody_follows_and_all_where_another_layer_has_the_hook() -> None:
    class Sink:
        def emit(self, event: Any) -> None: ...

    other = MemoryLayer(id="other", slot=100, scope="thread", hooks=MemoryHooks(recall=lambda p: None))
    followed, beside = stack(sink=Sink()), stack(other)
    for made in (followed, beside):
        drive_loop(made.init(CTX))

    assert idle(followed) == (False, True)
    assert idle(beside) == (False, True)
    followed.sink = None
    assert idle(followed) == (True, True)


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
