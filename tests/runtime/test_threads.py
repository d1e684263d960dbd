"""Threads: turns never overlap, messages sent meanwhile share one turn, and a cancellation affects only its own callers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.testing import FakeClock
from tests.runtime.factories import make_harness, record_events, texts


class Gate:
    """A model that answers when it is released."""

    def __init__(self) -> None:
        self.asked = 0
        self.open = asyncio.Event()
        self.entered = asyncio.Event()

    async def complete(self, request: Any) -> Any:
        self.asked += 1
        self.entered.set()
        await self.open.wait()
        return await nn.ScriptedModel([f"answer {self.asked}"]).complete(request)


async def test_what_is_said_while_a_turn_runs_shares_the_next_one() -> None:
    gate = Gate()
    harness = make_harness(gate, tools=[])
    first = asyncio.create_task(harness.execute("one"))
    await gate.entered.wait()
    others = [asyncio.create_task(harness.execute(text)) for text in ("two", "three")]
    await asyncio.sleep(0)

    gate.open.set()
    one, two, three = await first, await others[0], await others[1]

    assert one.text == "answer 1"
    assert two is three
    assert list(texts(two.items)) == ["user: two", "user: three", "assistant: answer 2"]


async def test_a_thread_says_what_it_is_doing() -> None:
    gate = Gate()
    harness = make_harness(gate, tools=[])
    before = harness.status()
    first = asyncio.create_task(harness.execute("one"))
    await gate.entered.wait()
    second = asyncio.create_task(harness.execute("two"))
    await asyncio.sleep(0)
    during = harness.status()
    await harness.cancel()
    stopping = harness.status()
    with pytest.raises(nn.NoeticError):
        await first
    gate.open.set()
    await second

    assert (before.state, before.turn_id, before.waiting, harness.threads) == ("idle", None, 0, ("default",))
    assert (during.state, during.waiting, stopping.state) == ("generating", 1, "aborting")
    assert during.turn_id == stopping.turn_id is not None
    assert harness.status() == ("idle", None, 0.0, 0)


@pytest.mark.parametrize("durable", [False, True])
async def test_a_turn_says_how_long_its_first_message_waited_for_the_turn_before_it(durable: bool) -> None:
    gate, clock = Gate(), FakeClock()
    kept = {"storage": nn.InMemoryStorage(), "checkpoints": True} if durable else {}
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"))
    harness = nn.AgentHarness(config, model=gate, clock=clock, **kept)
    events = record_events(harness)
    running = asyncio.create_task(harness.execute("one"))
    await gate.entered.wait()
    waiting = []
    for text in ("two", "three"):
        waiting.append(asyncio.create_task(harness.execute(text)))
        await asyncio.sleep(0)
        clock.advance(40)
    gate.open.set()
    await asyncio.gather(running, *waiting)

    assert [event.waited_ms for event in events.of("turn_started")] == [None, 80.0]


async def test_asking_what_a_thread_does_makes_none() -> None:
    harness = make_harness([])

    assert harness.status("nobody").state == "idle"
    assert harness.threads == ()


async def test_threads_run_side_by_side() -> None:
    gate = Gate()
    harness = make_harness(gate, tools=[])
    tasks = [asyncio.create_task(harness.execute("go", thread_id=name)) for name in "abc"]
    while gate.asked < 3:
        await asyncio.sleep(0)
    gate.open.set()

    replies = await asyncio.gather(*tasks)

    assert [reply.thread_id for reply in replies] == ["a", "b", "c"]


async def test_cancel_ends_the_running_turn_and_the_thread_goes_on() -> None:
    gate = Gate()
    harness = make_harness(gate, tools=[])
    events = record_events(harness)
    running = asyncio.create_task(harness.execute("one"))
    await gate.entered.wait()

    assert await harness.cancel(reason="enough")
    with pytest.raises(nn.NoeticError) as caught:
        await running
    gate.open.set()
    reply = await harness.execute("two")

    assert (caught.value.kind, caught.value.reason) == ("cancelled", "enough")
    assert list(texts(harness.log())) == ["user: one", "user: two", "assistant: answer 2"]
    assert [event.outcome for event in events.of("turn_completed")] == ["aborted", "success"]
    assert reply.text == "answer 2"
    assert running.cancelling() == 0


async def test_cancelling_a_thread_at_rest_does_nothing() -> None:
    harness = make_harness(["x"])

    assert not await harness.cancel("default")
    assert not await harness.cancel("never heard of")


async def test_a_waiter_that_gives_up_takes_only_its_own_message_with_it() -> None:
    gate = Gate()
    harness = make_harness(gate, tools=[])
    first = asyncio.create_task(harness.execute("one"))
    await gate.entered.wait()
    gives_up, stays = (asyncio.create_task(harness.execute(text)) for text in ("two", "three"))
    await asyncio.sleep(0)
    gives_up.cancel()
    await asyncio.sleep(0)

    gate.open.set()
    await first
    reply = await stays

    assert list(texts(reply.items)) == ["user: three", "assistant: answer 2"]


async def test_the_stop_button_cancels_the_turn_and_runs_its_clean_up() -> None:
    ended: list[str] = []
    gate = Gate()
    hooks = nn.MemoryHooks(on_complete=lambda p: ended.append(p.outcome), dispose=lambda p: ended.append("disposed"))
    harness = make_harness(gate, tools=[], memory=[nn.MemoryLayer(id="l", slot=1, scope="thread", hooks=hooks)])
    running = asyncio.create_task(harness.execute("one"))
    await gate.entered.wait()

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    gate.open.set()
    await harness.execute("two")

    assert ended == ["aborted", "disposed", "success", "disposed"]


async def test_a_failed_shared_turn_fails_for_everyone_in_it() -> None:
    gate = Gate()
    answers = iter([None, nn.NoeticError("llm_failed", "The provider is down")])

    class Failing(Gate):
        async def complete(self, request: Any) -> Any:
            answer = await gate.complete(request)
            error = next(answers)
            if error is not None:
                raise error
            return answer

    harness = make_harness(Failing(), tools=[])
    first = asyncio.create_task(harness.execute("one"))
    await gate.entered.wait()
    others = [asyncio.create_task(harness.execute(text)) for text in ("two", "three")]
    await asyncio.sleep(0)
    gate.open.set()

    await first
    results = await asyncio.gather(*others, return_exceptions=True)

    assert [getattr(result, "kind", None) for result in results] == ["llm_failed", "llm_failed"]


async def test_the_resource_of_a_thread_is_remembered() -> None:
    seen: list[Any] = []
    layer = nn.MemoryLayer(
        id="l", slot=1, scope="resource", hooks=nn.MemoryHooks(recall=lambda p: seen.append(p.ctx.resource_id))
    )
    harness = make_harness(["a", "b"], memory=[layer])

    await harness.execute("one", resource_id="ann")
    await harness.execute("two")

    assert seen == ["ann", "ann"]


async def test_an_execution_stays_open_over_several_steps_and_ends_once() -> None:
    ended: list[Any] = []
    hooks = nn.MemoryHooks(init=lambda p: {"state": 0}, on_complete=lambda p: ended.append((p.outcome, len(p.log))))
    harness = make_harness(["a", "b"], memory=[nn.MemoryLayer(id="l", slot=1, scope="thread", hooks=hooks)])

    async with harness.execution(thread_id="t") as ctx:
        first = await harness.run(nn.step.llm("ask", model="scripted"), "one", ctx)
        second = await harness.run(nn.step.llm("ask", model="scripted"), "two", ctx)

    assert (first, second) == ("a", "b")
    assert ended == [("success", 4)]
    assert len(harness.log("t")) == 4


async def test_what_is_said_while_an_execution_is_open_is_answered_after_it() -> None:
    harness = make_harness(["later"])

    async with harness.execution():
        waiting = asyncio.create_task(harness.execute("hi"))
        await asyncio.sleep(0)
        assert not waiting.done()

    assert (await waiting).text == "later"


async def test_an_execution_cannot_be_opened_inside_a_turn_of_its_thread() -> None:
    gate = Gate()
    harness = make_harness(gate, tools=[])
    running = asyncio.create_task(harness.execute("one"))
    await gate.entered.wait()

    with pytest.raises(nn.NoeticError, match="A turn of thread 'default' is running"):
        async with harness.execution():
            pass

    gate.open.set()
    await running


def test_run_sync_answers_without_await() -> None:
    assert nn.run_sync(make_harness(["Hello!"]).execute("Hi")).text == "Hello!"


async def test_run_sync_answers_inside_a_running_loop() -> None:
    assert nn.run_sync(make_harness(["Hello!"]).execute("Hi")).text == "Hello!"


def test_run_sync_can_be_used_again_and_again_on_one_harness() -> None:
    harness = make_harness(["a", "b"], memory=[nn.working_memory()])

    assert [nn.run_sync(harness.execute(text)).text for text in ("1", "2")] == ["a", "b"]
