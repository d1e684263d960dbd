"""Following a running turn as text, reasoning, items or events, by one reader or several."""

from __future__ import annotations

import asyncio
import gc
import inspect
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.runtime._threads import turn_stream
from tests.runtime.factories import make_harness
from tests.runtime.test_threads import Gate


async def test_a_turn_is_streamed_as_text_items_and_events() -> None:
    harness = make_harness([nn.CallTool("lookup", order_id="A"), "It is packed."])
    turn = harness.stream("Where?")

    pieces = [piece async for piece in turn.text]
    items = [item["type"] async for item in turn.items]
    kinds = [event.kind async for event in turn.events]
    reply = await turn.reply

    assert pieces == ["It ", "is ", "packed."]
    assert items == [item["type"] for item in reply.items]
    assert kinds[0] in ("items_appended", "turn_started")
    assert kinds[-1] == "turn_completed"


async def test_an_error_of_the_turn_reaches_whoever_follows_it() -> None:
    turn = make_harness([nn.Fault("server_error")]).stream("hi")

    with pytest.raises(nn.NoeticError):
        [piece async for piece in turn.text]


async def test_a_stream_sees_only_its_own_turn() -> None:
    gate = Gate()
    harness = make_harness(gate, tools=[])
    one, two = harness.stream("1", thread_id="x"), harness.stream("2", thread_id="y")
    both = asyncio.gather(_all(one.events), _all(two.events))
    for _ in range(5):
        await asyncio.sleep(0)  # both turns are running now

    gate.open.set()
    first, second = await both

    assert {event.where.thread_id for event in first} == {"x"}
    assert {event.where.thread_id for event in second} == {"y"}


async def _all(stream: Any) -> list[Any]:
    return [part async for part in stream]


async def test_every_reader_sees_the_whole_turn() -> None:
    turn = make_harness(["It is packed and sent."]).stream("Where?")

    first, second = await asyncio.gather(_all(turn.text), _all(turn.text))
    late = await _all(turn.text)

    assert first == second == late == ["It ", "is ", "packed ", "and ", "sent."]


async def test_a_reader_that_leaves_early_takes_nothing_from_the_others() -> None:
    turn = make_harness(["one two three"]).stream("Count.")

    async for piece in turn.text:
        assert piece == "one "
        break

    assert await _all(turn.text) == ["one ", "two ", "three"]


async def test_thoughts_are_streamed_apart_from_the_answer() -> None:
    turn = make_harness([nn.Reply("Packed.", reasoning="Look it up.")]).stream("Where?")

    assert await _all(turn.reasoning) == ["Look ", "it ", "up."]
    assert await _all(turn.text) == ["Packed."]


@pytest.mark.parametrize("words", [7, 8, 9, 16, 17])
async def test_a_reader_that_comes_late_sees_the_newest_parts(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_stream, "BUFFER", 8)
    turn = make_harness([" ".join(map(str, range(words)))]).stream("Count.")
    await turn.reply

    assert [int(piece) for piece in await _all(turn.text)] == list(range(words))[-8:]


async def test_a_reply_that_nobody_awaits_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    turn = make_harness([nn.Fault("server_error")]).stream("hi")
    left = [turn.reply for _ in range(3)]

    with pytest.raises(nn.NoeticError):
        await turn.reply
    with pytest.raises(nn.NoeticError):
        await left.pop()
    left.clear()
    gc.collect()
    await asyncio.sleep(0)

    assert not caplog.records


def test_a_stream_takes_the_options_of_execute() -> None:
    execute, stream = (inspect.signature(method) for method in (nn.AgentHarness.execute, nn.AgentHarness.stream))

    own = [one for one in stream.parameters.values() if one.name != "release"]
    assert own == list(execute.parameters.values())


async def test_a_stream_passes_its_options_on() -> None:
    harness = make_harness(
        [], step=nn.step.run("look", lambda value, ctx: [ctx.resource_id, ctx.state, ctx.tree.limits])
    )

    turn = harness.stream("hi", thread_id="x", resource_id="ann", limits={"max_steps": 5}, state={"n": 1})

    assert (await turn.reply).output == ["ann", {"n": 1}, nn.Limits(max_steps=5)]
