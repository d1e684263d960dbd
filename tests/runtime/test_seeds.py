"""Changes to a thread without a turn: an initial conversation, added items, and a new beginning."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import ItemValidationError
from noetic_nb.items import assistant_message, function_call, function_call_output, input_message
from noetic_nb.storage import InMemoryStorage, SQLiteStorage
from noetic_nb.testing import SeededIds, drive_loop
from tests.runtime.factories import lookup, record_events, texts

CHAT = [
    {"role": "user", "content": "Where is A17?"},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "lookup", "arguments": '{"order_id":"A17"}'}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "packed"},
    {"role": "assistant", "content": "Packed."},
]  # fmt: skip


def agent(*, storage: Any = None, checkpoints: bool = False, scope: Any = "thread", **more: Any) -> nn.AgentHarness:
    memory = [nn.working_memory(scope=scope)]
    config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[lookup]), memory=memory, **more)
    model = nn.ScriptedModel(lambda request: "ok")
    return nn.AgentHarness(config, model=model, ids=SeededIds(), storage=storage, checkpoints=checkpoints)


async def knows(harness: nn.AgentHarness, thread_id: str = "t") -> Any:
    return await harness.memory(thread_id).state("working-memory")


async def spoken(harness: nn.AgentHarness, thread_id: str = "t", **more: Any) -> None:
    await harness.execute("hi", thread_id=thread_id, **more)
    async with harness.execution(thread_id=thread_id, **more) as ctx:
        await ctx.memory["working-memory"].update(city="Rome")


# -- chat messages and checks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["seed", "append", "execute", "stream"])
async def test_a_chat_as_openai_has_it_is_taken_everywhere(way: str) -> None:
    harness = agent()

    if way == "seed":
        harness.seed("t", CHAT)
    elif way == "append":
        harness.append("t", CHAT)
    elif way == "execute":
        await harness.execute(CHAT, thread_id="t")
    else:
        assert (await harness.stream(CHAT, thread_id="t").reply).text == "ok"

    log = harness.log("t")
    assert [item["type"] for item in log][:4] == ["message", "function_call", "function_call_output", "message"]
    assert (log[1]["callId"], log[2]["callId"], log[2]["output"]) == ("c1", "c1", "packed")


@pytest.mark.parametrize(
    "item", [{"type": "message", "role": "king", "content": []}, {"role": "king", "content": "hi"}]
)
async def test_what_is_not_as_its_type_must_be_changes_nothing(item: Any) -> None:
    harness = agent()
    harness.seed("t", CHAT)

    for give in (harness.append, lambda *given: harness.seed(*given, replace=True)):
        with pytest.raises(ItemValidationError, match="no such role"):
            give("t", [input_message("fine"), item])
    with pytest.raises(ItemValidationError, match="no such role"):
        await harness.execute([item], thread_id="t")
    assert len(harness.log("t")) == 4


@pytest.mark.parametrize("given", ["hi", {"role": "user", "content": "hi"}, [3]])
def test_a_conversation_is_a_list(given: Any) -> None:
    with pytest.raises(ItemValidationError):
        agent().seed("t", given)


# -- seeds --------------------------------------------------------------------------------------------------------------


async def test_a_thread_with_items_is_not_seeded_again() -> None:
    harness = agent()
    logged = harness.seed("t", CHAT)

    with pytest.raises(nn.NoeticConfigError) as caught:
        harness.seed("t", CHAT)

    assert caught.value.code == "THREAD_EXISTS"
    assert list(harness.log("t")) == list(logged) == list(await logged)


async def test_a_run_is_seeded_whatever_the_name_of_its_thread() -> None:
    harness = agent()
    run = nn.record(harness)
    await harness.execute("hi", thread_id="a")

    agent_2 = agent()
    agent_2.seed("t", run)
    assert list(agent_2.log("t")) == list(harness.log("a"))

    await harness.execute("ho", thread_id="b")
    agent_3 = agent()
    agent_3.seed("b", run)
    assert list(agent_3.log("b")) == list(harness.log("b"))
    with pytest.raises(nn.NoeticConfigError, match="several threads"):
        agent_3.seed("c", run)


async def test_repeated_call_ids_of_a_conversation_are_made_unique() -> None:
    harness = agent()
    harness.seed("t", [*CHAT, *CHAT])
    harness.append("t", CHAT)

    calls = [item["callId"] for item in harness.log("t") if "callId" in item]
    assert calls == ["c1", "c1", "c1~2", "c1~2", "c1~3", "c1~3"]


# -- a new beginning ----------------------------------------------------------------------------------------------------


class Late(InMemoryStorage):
    """Storage that answers with a delay, like a database."""

    async def list(self, prefix: str) -> list[str]:
        await asyncio.sleep(0)
        return await super().list(prefix)


@pytest.mark.parametrize("make", [InMemoryStorage, Late])
@pytest.mark.parametrize("checkpoints", [False, True])
async def test_a_thread_that_is_begun_anew_knows_nothing_of_before(make: Any, checkpoints: bool) -> None:
    storage = make()
    harness = agent(storage=storage, checkpoints=checkpoints)
    run = nn.record(harness)
    for thread_id in ("t", "other"):
        await spoken(harness, thread_id)

    harness.seed("t", CHAT, replace=True)

    assert len(harness.log("t")) == 4
    assert await knows(harness) is None
    assert harness.memory("t").history("working-memory") == ()
    assert harness.memory("t").turns == ()
    assert await knows(harness, "other") == {"city": "Rome"}
    reply = await harness.execute("more", thread_id="t")
    assert list(texts(harness.log("t")))[-2:] == ["user: more", "assistant: ok"]
    assert list(run.log("t")) == list(harness.log("t"))
    assert len(harness.log("t")) == 6
    assert reply.turn_id != ""
    assert await knows(harness) in (None, {}, "")


@pytest.mark.parametrize("waited", [False, True])
@pytest.mark.parametrize("loaded", [False, True])
def test_what_is_saved_is_replaced_too(tmp_path: Path, waited: bool, loaded: bool) -> None:
    async def main() -> None:
        storage = SQLiteStorage(tmp_path / "state.db")
        first = agent(storage=storage, checkpoints=True)
        for _ in range(3):
            await spoken(first)
        harness = agent(storage=storage, checkpoints=True) if loaded else first
        logged = harness.seed("t", CHAT, replace=True)
        if waited:
            assert await logged is logged
        else:
            await harness.execute("more", thread_id="t")
        later = agent(storage=storage, checkpoints=True)
        assert await later.load_thread("t")
        assert len(later.log("t")) == (4 if waited else 6)
        assert await knows(later) in (None, {}, "")
        await later.execute("again", thread_id="t")
        assert len(later.log("t")) == (6 if waited else 8)
        await storage.aclose()

    asyncio.run(main())


def test_an_unfinished_turn_of_before_is_gone() -> None:
    storage = InMemoryStorage()

    async def cut() -> None:
        class Stuck:
            async def complete(self, request: Any) -> Any:
                await asyncio.Event().wait()

        config = nn.AgentConfig(name="desk", step=nn.react(model="m"))
        harness = nn.AgentHarness(config, model=Stuck(), storage=storage, checkpoints=True)
        turn = asyncio.ensure_future(harness.execute("cut", thread_id="t"))
        for _ in range(50):
            await asyncio.sleep(0)
        kept = dict(vars(storage))
        storage.__init__()  # type: ignore[misc]  # the process ends here
        turn.cancel()
        await asyncio.wait([turn])
        vars(storage).update(kept)

    async def main() -> Any:
        await cut()
        harness = agent(storage=storage, checkpoints=True)
        assert len(await harness.unfinished()) == 1
        await harness.seed("t", [input_message("new")], replace=True)
        await harness.execute("more", thread_id="t")
        return await harness.unfinished(), list(texts(harness.log("t")))

    assert drive_loop(main()) == ((), ["user: new", "user: more", "assistant: ok"])


async def test_what_a_thread_shares_by_its_resource_stays() -> None:
    harness = agent(scope="resource")
    await spoken(harness, resource_id="ann")

    harness.seed("t", CHAT, replace=True)

    assert await knows(harness) == {"city": "Rome"}
    await harness.execute("more", thread_id="t")
    assert await knows(harness) == {"city": "Rome"}


async def test_a_store_that_fails_keeps_the_old_state_from_the_new_thread() -> None:
    class Broken(InMemoryStorage):
        fails = False

        async def list(self, prefix: str) -> list[str]:
            if self.fails:
                raise OSError("disk")
            return await super().list(prefix)

    storage = Broken()
    harness = agent(storage=storage)
    await spoken(harness)
    storage.fails = True
    harness.seed("t", CHAT, replace=True)

    with pytest.raises(OSError, match="disk"):
        await harness.execute("more", thread_id="t")
    storage.fails = False
    await harness.execute("more", thread_id="t")
    assert await knows(harness) in (None, {}, "")


async def test_a_turn_that_runs_keeps_its_thread() -> None:
    harness = agent()
    harness.seed("t", CHAT)

    async with harness.execution(thread_id="t"):
        for give in (harness.append, lambda *given: harness.seed(*given, replace=True)):
            with pytest.raises(nn.NoeticError) as caught:
                give("t", [input_message("x")])
            assert caught.value.kind == "step_failed"


# -- more of the same ---------------------------------------------------------------------------------------------------


async def test_items_are_added_and_never_an_id_twice() -> None:
    harness = agent()
    events = record_events(harness)
    first = [input_message("one", item_id="a"), assistant_message("two", item_id="b")]

    assert len(harness.append("t", first)) == 2
    assert len(harness.append("t", [*first, input_message("three", item_id="c")])) == 1
    assert len(harness.append("t", [input_message("four", item_id="d")] * 2)) == 1
    with pytest.raises(ItemValidationError, match="another item with the id 'a'"):
        harness.append("t", [input_message("five"), input_message("other", item_id="a")])

    assert [item["id"] for item in harness.log("t")] == ["a", "b", "c", "d"]
    assert [event.start for event in events.of("items_appended")] == [0, 2, 3]


async def test_a_call_that_was_given_another_id_is_known_again() -> None:
    harness = agent()
    harness.append("t", [function_call("f", "{}", "x", item_id="1"), function_call_output("x", "a", item_id="2")])
    again = [function_call("f", "{}", "x", item_id="3"), function_call_output("x", "b", item_id="4")]

    assert [item["callId"] for item in harness.append("t", again)] == ["x~2", "x~2"]
    assert harness.append("t", again) == ()


@pytest.mark.parametrize("given", [5, None, "Hi", {"role": "user", "content": "Hi"}])
async def test_items_outside_of_a_list_are_an_error_that_says_so(given: Any) -> None:
    harness = agent()
    for add in (harness.append, harness.seed):
        with pytest.raises(ItemValidationError, match=r"must be a list of items.*Given.*Pass"):
            add("t", given)
    assert harness.threads == ()
