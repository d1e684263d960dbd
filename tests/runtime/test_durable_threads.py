"""Conversations that outlive their harness: no item is lost, duplicated, or partly read."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.items import assistant_message, input_message
from noetic_nb.testing import SeededIds, drive_loop
from tests.runtime.crash_points import Disk, GroupedDisk
from tests.runtime.factories import texts

pytestmark = pytest.mark.virtual_time

WARN = nn.Checkpoints(on_error="warn")


class Store(nn.InMemoryStorage):
    """A store that counts its changes, and can die, fail or be slow."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[str] = []
        self.sizes: list[int] = []
        self.dies_after: float = float("inf")
        self.fails: Any = lambda number: False
        self.naps = False

    def _alive(self, key: str) -> bool:
        if self.fails(len(self.changes)):
            self.changes.append(f"failed {key}")
            raise OSError("full")
        if len(self.changes) >= self.dies_after:
            return False
        self.changes.append(key)
        return True

    async def set(self, key: str, value: Any) -> None:
        if self.naps:
            await asyncio.sleep(0)
        if self._alive(key):
            self.sizes.append(len(json.dumps(value)))
            await super().set(key, value)
        if self.naps:
            await asyncio.sleep(0.01)

    async def delete(self, key: str) -> None:
        if self.naps:
            await asyncio.sleep(0)
        if self._alive(key):
            await super().delete(key)


class Grouped(Store):
    """The same with atomic groups."""

    async def set_many(self, values: Any, *, delete: Any = (), absent: Any = ()) -> None:
        if self.naps:
            await asyncio.sleep(0)
        for key in absent:
            if await self.get(key) is not None:
                raise nn.NoeticError("state_conflict", "taken", key=key)
        if self._alive("+".join(values)):
            for key in delete:
                await nn.InMemoryStorage.delete(self, key)
            for key, value in values.items():
                self.sizes.append(len(json.dumps(value)))
                await nn.InMemoryStorage.set(self, key, value)
        if self.naps:
            await asyncio.sleep(0.01)


def answer(request: Any) -> Any:
    """Look something up for every question, then answer it."""
    last = request.items[-1]
    if last["type"] == "function_call_output":
        return f"{last['output']}!"
    said = last["content"][0]["text"]
    return nn.Fault("server_error") if said == "fail" else nn.CallTool("look", word=said)


KEYS: list[str] = []


@nn.tool
def look(word: str, ctx: Any) -> str:
    """Look a word up."""
    KEYS.append(ctx.idempotency_key)
    return f"found {word}"


@cache
def steps() -> Any:
    after = nn.step.run("after", lambda value, ctx: value)
    return nn.loop("whole", [nn.react(model="m", tools=[look]), after], until=nn.until.max_steps(1))


def talker(store: Any, seed: int = 0, *, model: Any = answer, checkpoints: Any = True, **more: Any) -> nn.AgentHarness:
    options = {"step": steps(), "memory": [nn.working_memory()], **more}
    client = model if hasattr(model, "complete") else nn.ScriptedModel(model, seed=seed)
    return nn.AgentHarness(
        nn.AgentConfig(name="talker", **options),
        model=client,
        storage=store,
        ids=SeededIds(seed),
        checkpoints=checkpoints,
    )


def told(words: Any) -> list[str]:
    """Return the expected items of a conversation about some words."""
    return [line for word in words for line in (f"user: {word}", f"assistant: found {word}!")]


def whole(log: Any) -> bool:
    """Tell whether every call in a log is followed by exactly one answer."""
    calls: list[str] = []
    for item in log:
        if item["type"] == "function_call":
            calls.append(item["callId"])
        if item["type"] == "function_call_output" and (not calls or calls.pop() != item["callId"]):
            return False
    ids = [item["id"] for item in log if "id" in item]
    return not calls and len(ids) == len(set(ids))


async def saved(store: Any, thread_id: str = "default") -> list[str]:
    """Return the thread as a new harness reads it."""
    harness = talker(store, 99)
    await harness.load_thread(thread_id)
    assert whole(harness.log(thread_id))
    return list(texts(harness.log(thread_id)))


# -- going on -------------------------------------------------------------------------------------------------------------


async def test_a_new_harness_goes_on_where_the_last_one_was_left() -> None:
    store = Store()
    first = talker(store, 1)
    await first.execute("a", thread_id="t", resource_id="ann")
    await first.execute("b", thread_id="t")

    second = talker(store, 2)
    reply = await second.execute("c", thread_id="t")

    assert list(texts(second.log("t"))) == told("abc")
    assert list(second.log("t"))[: len(first.log("t"))] == list(first.log("t"))
    assert list(texts(reply.items)) == told("c")
    session = second._threads.by_id["t"]
    assert (session.turn, session.resource_id) == (3, "ann")


async def test_a_remark_after_a_restart_is_about_the_same_person() -> None:
    store = Store()
    heard: list[Any] = []
    hooks = nn.MemoryHooks(on_feedback=lambda p: heard.append((p.kind, p.ctx.resource_id)))
    layer = nn.MemoryLayer(id="l", slot=1, scope="resource", hooks=hooks)
    await talker(store, 1, memory=[layer]).execute("a", thread_id="t", resource_id="ann")

    second = talker(store, 2, memory=[layer])
    await second.correct("t", "no telemetry please")
    await second.feedback("t", quality=0.5)
    await second.reset_task("t")

    assert heard == [("correction", "ann"), ("quality", "ann"), ("reset_task", "ann")]


async def test_failed_and_aborted_turns_are_saved_too() -> None:
    store = Store()
    harness = talker(store)
    with pytest.raises(nn.NoeticError):
        await harness.execute("fail")
    with pytest.raises(nn.NoeticError):
        await harness.execute("b", limits={"max_steps": 2})

    assert await saved(store) == ["user: fail", "user: b"]
    assert await talker(store, 2).unfinished() == ()


async def test_an_open_execution_is_saved_after_each_of_its_steps() -> None:
    store = Store()
    ask = nn.step.llm("ask", model="m", tools=[look])
    harness = talker(store)

    async with harness.execution(thread_id="t", resource_id="ann") as ctx:
        await harness.run(ask, "a", ctx)
        assert await saved(store, "t") == told("a")
        await harness.run(ask, "b", ctx)
        store.dies_after = 0  # the process ends with the execution open

    second = talker(store, 2)
    async with second.execution(thread_id="t") as ctx:
        assert (list(texts(ctx.item_log)), ctx.turn, ctx.resource_id) == (told("ab"), 2, "ann")
    assert await second.unfinished() == ()


async def test_what_was_said_before_the_first_turn_is_saved_with_it() -> None:
    store = Store()
    harness = talker(store)
    harness.seed("t", [input_message("early"), assistant_message("yes")])
    await harness.execute("a", thread_id="t")
    harness.append("t", [input_message("by the way")])
    await harness.execute("b", thread_id="t")

    assert await saved(store, "t") == ["user: early", "assistant: yes", *told("a"), "user: by the way", *told("b")]


async def test_a_fork_of_a_thread_is_saved_with_the_history_it_shares() -> None:
    store = Store()
    harness = talker(store)
    for word in "abc":
        await harness.execute(word, thread_id="t")
    fork = await harness.memory("t").rewind(1)

    await harness.execute("x", thread_id=fork)

    assert await saved(store, fork) == told("ax")
    assert await saved(store, "t") == told("abc")


async def test_a_fork_does_not_take_the_name_of_a_saved_thread() -> None:
    store = Store()
    first = talker(store, 1)
    await talk(first, "ab")
    fork = await first.memory().rewind(1)
    await first.execute("x", thread_id=fork)
    second = talker(store, 2)
    await talk(second, "c")

    again = await second.memory().rewind(3)
    assert (fork, again) == ("default@1", "default@3")
    await second.execute("y", thread_id=again)
    with pytest.raises(nn.NoeticConfigError) as caught:
        await second.memory().rewind(3, thread_id=fork)
    assert caught.value.code == "THREAD_EXISTS"
    third = talker(store, 3)
    await talk(third, "d")
    assert await third.memory().rewind(4) == "default@4"
    assert await third.memory().rewind(0, thread_id="new") == "new"


async def test_items_of_an_extension_are_read_by_a_harness_that_knows_them() -> None:
    store = Store()

    def notes() -> Any:
        schemas = {"items": [lambda item: item["type"] == "my:note"]}
        return nn.MemoryLayer(id="n", slot=1, scope="thread", hooks=nn.MemoryHooks(), item_schemas=schemas)

    first = talker(store, 1, memory=[notes()])
    first.seed("t", [{"type": "my:note", "text": "x"}])
    await first.execute("a", thread_id="t")

    second = talker(store, 2, memory=[notes()])
    assert await second.load_thread("t")
    assert second.log("t")[0]["type"] == "my:note"
    with pytest.raises(nn.NoeticConfigError) as caught:
        await talker(store, 3).load_thread("t")
    assert caught.value.code == "CHECKPOINT_SCHEMA_MISMATCH"


# -- how much is written --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Store, Grouped])
async def test_a_turn_writes_what_is_new_and_never_the_history(kind: Any) -> None:
    largest = []
    for length in (10, 10_000):
        store = kind()
        harness = talker(store)
        harness.seed("t", [input_message(f"message {n}") for n in range(length)])
        await harness.execute("a", thread_id="t")
        assert length == 10 or sum(size > 500_000 for size in store.sizes) == 1, "what was there before, once"
        store.sizes.clear()
        store.changes.clear()
        await harness.execute("b", thread_id="t")
        largest.append(max(store.sizes))
        parts = [key for key in store.changes if ":part:" in key]
        assert len(parts) == 1, "one part for the turn, and no part before it is written again"

    assert largest[1] < largest[0] + 100


async def test_nothing_that_was_written_of_a_thread_is_written_again() -> None:
    store = Store()
    for number in range(5):
        await talker(store, number).execute("a")

    parts = [key for key in store.changes if ":part:" in key]
    assert parts == [f"thread:default:part:{n:08d}" for n in range(5)]


# -- by name --------------------------------------------------------------------------------------------------------------


async def test_threads_are_listed_loaded_and_forgotten() -> None:
    store = Store()
    first = talker(store, 1)
    for name in ("b", "a:x", "a", "~1"):
        await first.execute(name, thread_id=name)

    second = talker(store, 2)
    assert await second.saved_threads() == ("a", "a:x", "b", "~1")
    assert await second.load_thread("a")
    assert list(texts(second.log("a"))) == told("a")
    assert len(second.preview("a").items) == 4
    assert await second.forget_thread("a")
    assert not await second.forget_thread("a")
    assert not await second.load_thread("a")
    assert second.threads == ()
    assert await second.saved_threads() == ("a:x", "b", "~1")
    assert await saved(store, "a:x") == told(["a:x"])
    assert (await second.execute("new", thread_id="a")).text == "found new!"
    assert list(texts(second.log("a"))) == told(["new"])


@given(names=st.lists(st.text(st.sampled_from("a~:01/%"), min_size=1, max_size=6), min_size=1, max_size=4, unique=True))
def test_no_thread_reaches_into_another(names: list[str]) -> None:
    async def main() -> None:
        store = Store()
        harness = talker(store)
        for name in names:
            await harness.execute(name, thread_id=name)
        assert await harness.saved_threads() == tuple(sorted(names))
        await harness.forget_thread(names[0])
        assert await harness.saved_threads() == tuple(sorted(names[1:]))
        for name in names[1:]:
            assert await saved(store, name) == told([name])

    drive_loop(main())


async def test_a_thread_is_not_forgotten_while_a_turn_runs() -> None:
    store = Store()
    harness = talker(store)
    async with harness.execution():
        with pytest.raises(nn.NoeticError, match="A turn of thread 'default' is running"):
            await harness.forget_thread("default")
        assert not await harness.load_thread("other")
        assert await harness.load_thread("default"), "it is loaded: it is at work"


async def test_what_is_said_while_a_thread_is_loaded_waits_for_it() -> None:
    store = Store()
    await talker(store, 1).execute("a")
    second = talker(store, 2)

    loaded, reply = await asyncio.gather(second.load_thread(), second.execute("b"))

    assert (loaded, reply.text) == (True, "found b!")
    assert list(texts(second.log())) == told("ab")


async def test_closing_a_thread_leaves_what_is_saved() -> None:
    store = Store()
    harness = talker(store)
    await harness.execute("a")
    harness.close_thread("default")
    await harness.execute("b")

    assert list(texts(harness.log())) == told("ab")


async def test_a_thread_that_was_begun_beside_a_saved_one_is_refused_and_kept() -> None:
    store = Store()
    await talker(store, 1).execute("a")
    second = talker(store, 2)
    second.seed("default", [input_message("other")])

    with pytest.raises(nn.NoeticConfigError) as caught:
        await second.execute("b")

    assert caught.value.code == "THREAD_EXISTS"
    assert list(texts(second.log())) == ["user: other"]
    assert await saved(store) == told("a")
    second.close_thread("default")
    await second.execute("b")
    assert await saved(store) == told("ab")


@pytest.mark.parametrize("name", ["load_thread", "forget_thread", "resume", "clear_checkpoint"])
async def test_a_harness_without_checkpoints_says_so(name: str) -> None:
    harness = talker(Store(), checkpoints=False)

    with pytest.raises(nn.NoeticConfigError) as caught:
        await getattr(harness, name)("x")

    assert caught.value.code == "NO_CHECKPOINT"
    assert await harness.saved_threads() == ()


# -- killed at any write --------------------------------------------------------------------------------------------------


async def talk(harness: nn.AgentHarness, words: str) -> None:
    for word in words:
        await harness.execute(word)


def writes(kind: Any) -> int:
    """Return the number of changes that a conversation makes."""
    store = kind()
    drive_loop(talk(talker(store), "abc"))
    return len(store.changes)


@pytest.mark.parametrize("kind", [Store, Grouped])
def test_killed_at_any_write_a_conversation_is_resumed_without_loss_or_double(kind: Any) -> None:
    async def main(dies_after: int) -> str:
        store = kind()
        store.dies_after = dies_after
        KEYS.clear()
        await talk(talker(store, 1), "abc")
        before = set(KEYS)
        store.dies_after = float("inf")

        found = await saved(store)
        assert found == told("abc")[: len(found)], "what is found is how the conversation began"
        second = talker(store, 2)
        unfinished = await second.unfinished()
        for execution_id in unfinished:
            await second.resume(execution_id)
        assert set(KEYS) == before, "what is called again has the key it had"
        await second.load_thread()
        await talk(second, "abc"[len(list(texts(second.log()))) // 2 :])

        assert await saved(store) == list(texts(second.log())) == told("abc")
        assert await second.unfinished() == ()
        assert not await store.list("execution:")
        return "resumed" if unfinished else "went on"

    assert {drive_loop(main(n)) for n in range(writes(kind) + 1)} == {"resumed", "went on"}


@pytest.mark.parametrize("kind", [Store, Grouped])
def test_killed_at_any_write_a_conversation_goes_on_with_what_was_said(kind: Any) -> None:
    async def main(dies_after: int) -> None:
        store = kind()
        store.dies_after = dies_after
        await talk(talker(store, 1), "abc")
        store.dies_after = float("inf")
        before = await saved(store)

        second = talker(store, 2)
        unfinished = await second.unfinished()
        await second.execute("z")

        assert await saved(store) == list(texts(second.log())) == [*before, *told("z")]
        assert whole(second.log())
        assert await second.unfinished() == ()
        assert second._threads.by_id["default"].turn == 1 + sum(line.startswith("user") for line in before)
        for execution_id in unfinished:
            with pytest.raises(nn.NoeticConfigError) as caught:
                await second.resume(execution_id)
            assert caught.value.code == "NO_CHECKPOINT"

    for n in range(writes(kind) + 1):
        drive_loop(main(n))


async def cut(store: Any) -> str:
    """Abandon a turn in the middle; return its execution."""
    harness = talker(store, 1)
    await harness.execute("a")
    store.dies_after = len(store.changes) + 4
    await harness.execute("b")
    store.dies_after = float("inf")
    return (await talker(store, 3).unfinished())[0]


async def test_a_thread_that_was_loaded_can_still_be_resumed() -> None:
    store = Store()
    execution_id = await cut(store)
    second = talker(store, 2)

    assert await second.load_thread()
    assert list(texts(second.log()))[:3] == [*told("a"), "user: b"]
    reply = await second.resume(execution_id)

    assert reply.text == "found b!"
    assert list(texts(second.log())) == await saved(store) == told("ab")


async def test_a_turn_that_was_given_up_cannot_be_resumed() -> None:
    store = Store()
    execution_id = await cut(store)
    key = f"execution:{execution_id}:snapshot"
    snapshot = await store.get(key)
    second = talker(store, 2)
    await second.execute("c")
    await store.set(key, snapshot)  # as if its removal was interrupted

    with pytest.raises(nn.NoeticConfigError, match="its thread has continued since") as caught:
        await second.resume(execution_id)

    assert caught.value.code == "NO_CHECKPOINT"
    assert await store.get(key) is None
    assert await saved(store) == [*told("a"), "user: b", *told("c")]


async def test_forgetting_a_thread_forgets_the_turn_that_was_cut_off() -> None:
    store = Store()
    await cut(store)
    second = talker(store, 2)

    assert await second.forget_thread("default")

    assert (await second.unfinished(), await second.saved_threads()) == ((), ())
    assert not await store.list("execution:")


async def test_a_checkpoint_can_be_cleared_without_being_resumed() -> None:
    store = Store()
    execution_id = await cut(store)
    second = talker(store, 2)

    await second.clear_checkpoint(execution_id)

    assert await second.unfinished() == ()
    await second.execute("c")
    assert await saved(store) == told("ac")


# -- failing storage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Store, Grouped])
def test_a_write_that_fails_is_a_warning_and_leaves_no_hole(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main(fails: Any) -> None:
        store = kind()
        harness = talker(store, 1, memory=[], checkpoints=WARN)
        acknowledged = ""
        for word in "abc":
            store.fails = fails
            reply = await harness.execute(word)
            store.fails = lambda number: False
            assert reply.text == f"found {word}!"
            found = await saved(store)
            if reply.saved:
                acknowledged = "abc"[: "abc".index(word) + 1]
                assert reply.warnings == ()
            else:
                assert [(warning.code, warning.turn) for warning in reply.warnings] == [
                    ("not_saved", len(harness.log()) // 4)
                ]
            assert told(word)[1] in found or not reply.saved, "what is said to be saved is"
            assert found[: 2 * len(acknowledged)] == told(acknowledged)
            assert found == told("abc")[: len(found)]
        await harness.execute("d")

        assert await saved(store) == told("abcd")
        assert not await store.list("execution:")

    for n in range(40):
        drive_loop(main(lambda number, n=n: number == n))
        drive_loop(main(lambda number, n=n: number >= n))
    assert "A checkpoint could not be written" in caplog.text


@pytest.mark.parametrize("kind", [Store, Grouped])
async def test_what_could_not_be_written_before_a_turn_is_in_its_snapshot(kind: Any) -> None:
    store = kind()
    store.fails = lambda number: number == 0
    store.dies_after = 5
    harness = talker(store, 1)
    harness.seed("default", [input_message("early")])
    await harness.execute("a")
    store.dies_after, store.fails = float("inf"), lambda number: False

    assert (await saved(store))[:2] == ["user: early", "user: a"]
    second = talker(store, 2)
    await second.resume((await second.unfinished())[0])
    assert await saved(store) == ["user: early", *told("a")]


async def test_a_write_whose_answer_is_lost_is_not_done_twice(caplog: pytest.LogCaptureFixture) -> None:
    class Mute(Grouped):
        async def set_many(self, values: Any, **more: Any) -> None:
            await super().set_many(values, **more)
            if any(":part:" in key for key in values):
                raise OSError("connection reset")

    store = Mute()
    harness = talker(store)
    with caplog.at_level(logging.WARNING):
        await talk(harness, "abc")

    assert await saved(store) == told("abc")
    assert len([key for key in await store.list("thread:") if ":part:" in key]) == 3


async def test_a_store_that_cannot_be_read_fails_the_first_turn_of_a_thread_and_only_that() -> None:
    store = Store()
    await talker(store, 1).execute("a")
    second = talker(store, 2)
    get_many, down = store.get_many, True

    async def fails(keys: Any) -> Any:
        if down:
            raise OSError("no disk")
        return await get_many(keys)

    store.get_many = fails  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no disk"):
        await second.execute("b")
    down = False
    await second.execute("b")
    down = True
    assert (await second.execute("c")).text == "found c!", "a thread that was read goes on"
    down = False

    assert await saved(store) == told("abc")


# -- cancelled ------------------------------------------------------------------------------------------------------------


async def _answered(harness: nn.AgentHarness) -> str:
    try:
        return (await harness.execute("b")).text
    except asyncio.CancelledError:
        return "cancelled"


@pytest.mark.parametrize("kind", [Store, Grouped])
def test_cancelled_at_any_suspension_a_turn_is_saved_as_far_as_it_came(kind: Any) -> None:
    ends = set()
    for at in range(1, 60):
        store = kind()
        drive_loop(talk(talker(store, 1), "a"))
        store.naps = True
        harness = talker(store, 2)

        ends.add(drive_loop(_answered(harness), cancel_at=at))
        store.naps = False

        assert len(harness._threads.live) == 0
        in_memory = list(texts(harness.log()))
        assert drive_loop(saved(store)) == (in_memory or told("a")), "what the thread holds is what is saved"
        assert whole(harness.log())
        drive_loop(talk(harness, "c"))
        assert drive_loop(saved(store)) == list(texts(harness.log()))
        assert list(texts(harness.log()))[-2:] == told("c")
        assert drive_loop(talker(store, 3).unfinished()) == ()
    assert ends == {"cancelled", "found b!"}


SPAWNED = nn.spawn("s", nn.step.llm("ask", model="m"), context_in="inherit")
FORKED = nn.fork("f", mode="all", paths=[nn.step.llm(name, model="m") for name in "ab"], merge="first")


@pytest.mark.parametrize("one", [SPAWNED, FORKED], ids=["spawn", "fork"])
def test_cancelled_at_any_suspension_a_turn_with_children_is_saved_as_far_as_it_came(one: Any) -> None:
    def agent(store: Any, seed: int) -> nn.AgentHarness:
        return talker(store, seed, step=one, model=lambda request: "ok")

    ends = set()
    for at in range(1, 40):
        store = Store()
        store.naps = True
        harness = agent(store, 1)

        ends.add(drive_loop(_answered(harness), cancel_at=at))
        store.naps = False

        assert drive_loop(saved(store)) == list(texts(harness.log()))
        assert drive_loop(_answered(agent(store, 2))) == "ok"
        assert drive_loop(saved(store)) == [*texts(harness.log()), "user: b", "assistant: ok"]
        assert drive_loop(agent(store, 3).unfinished()) == ()
    assert ends == {"cancelled", "ok"}


@pytest.mark.parametrize("kind", [Store, Grouped])
def test_cancelled_at_any_suspension_an_open_execution_is_saved_as_far_as_it_came(kind: Any) -> None:
    ask = nn.step.llm("ask", model="m", tools=[look])
    ends = set()
    for at in range(1, 40):
        store = kind()
        store.naps = True
        harness = talker(store, 1)

        async def scope(harness: Any = harness) -> str:
            try:
                async with harness.execution() as ctx:
                    for word in "ab":
                        await harness.run(ask, word, ctx)
            except asyncio.CancelledError:
                return "cancelled"
            return "done"

        ends.add(drive_loop(scope(), cancel_at=at))
        store.naps = False

        assert drive_loop(saved(store)) == list(texts(harness.log()))
        drive_loop(talk(harness, "c"))
        assert drive_loop(saved(store))[-2:] == told("c")
    assert ends == {"cancelled", "done"}


async def test_stopping_a_turn_while_its_end_is_written_lets_it_be_written() -> None:
    store = Store()
    harness = talker(store)
    begun, go = asyncio.Event(), asyncio.Event()
    write = store.set

    async def slow(key: str, value: Any) -> None:
        if ":part:" in key:
            begun.set()
            await go.wait()
        await write(key, value)

    store.set = slow  # type: ignore[method-assign]
    turn = asyncio.create_task(harness.execute("a"))
    await begun.wait()
    turn.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await turn

    assert await saved(store) == told("a")
    assert harness._threads.by_id["default"].writer.ended == []  # type: ignore[union-attr]


def test_a_store_that_hangs_does_not_hold_the_end_of_a_turn(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(Store):
        async def set(self, key: str, value: Any) -> None:
            if ":part:" in key:
                await asyncio.Event().wait()
            await super().set(key, value)

    reply = drive_loop(talker(Stuck(), checkpoints=WARN).execute("a"))

    assert (reply.text, reply.saved) == ("found a!", False)
    assert "did not answer within 40 seconds" in reply.warnings[0].text
    assert "A checkpoint could not be written" in caplog.text


# -- two harnesses --------------------------------------------------------------------------------------------------------


async def test_two_harnesses_that_take_turns_hear_each_other() -> None:
    store = Store()
    one, two = talker(store, 1), talker(store, 2)

    for harness, word in zip((one, two, one, two), "abcd", strict=True):
        await harness.execute(word)

    assert list(texts(two.log())) == await saved(store) == told("abcd")
    assert two._threads.by_id["default"].turn == 4


@pytest.mark.parametrize("kind", [Store, Grouped])
async def test_two_harnesses_that_overlap_are_told_and_overwrite_nothing(
    kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store = kind()
    one, two = talker(store, 1, checkpoints=WARN), talker(store, 2)
    await one.execute("a")
    await two.load_thread()
    one._threads._ready = two._threads._ready = nothing  # type: ignore[attr-defined]  # both have looked
    await two.execute("b")
    reply = await one.execute("c")
    del one._threads._ready  # type: ignore[attr-defined]

    assert (reply.text, reply.saved) == ("found c!", False)
    assert "Another harness has continued thread 'default'" in reply.warnings[0].text
    assert "Another harness has continued thread 'default'" in caplog.text
    with pytest.raises(nn.NoeticError) as caught:
        await one.execute("d")
    assert (caught.value.kind, caught.value.thread_id) == ("state_conflict", "default")
    assert list(texts(one.log())) == told("ac"), "what was said here can still be read"
    assert await saved(store) == told("ab")
    assert await one.unfinished() == ()
    one.close_thread("default")
    await one.execute("d")
    assert await saved(store) == told("abd")


async def nothing(session: Any) -> None:
    """Do nothing."""


@pytest.mark.parametrize("kind", [Disk, GroupedDisk])
async def test_who_reads_while_another_process_writes_takes_nothing_for_damage(kind: type[Disk]) -> None:
    store = kind()
    await talk(talker(store, 1, memory=[]), "ab")
    everything = told("ab")

    class Moving(nn.InMemoryStorage):
        """Storage that another process changes during reads: after some reads, it is in its later state."""

        def __init__(self, now: dict[str, str], later: dict[str, str], reads: int) -> None:
            super().__init__()
            self._texts, self._keys, self.later, self.reads = now, sorted(now), later, reads

        def _tick(self) -> None:
            self.reads -= 1
            if self.reads == 0:
                self._texts, self._keys = self.later, sorted(self.later)

        async def get(self, key: str) -> Any:
            self._tick()
            return await super().get(key)

        async def get_many(self, keys: Any) -> Any:
            self._tick()
            return await super().get_many(keys)

        async def list(self, prefix: str) -> Any:
            self._tick()
            return await super().list(prefix)

    for at, now in enumerate(store.copies):
        for later in store.copies[at + 1 :]:
            for reads in range(2, 6):
                harness = talker(Moving(now, later, reads), 9, memory=[])
                await harness.load_thread()
                found = list(texts(harness.log()))
                assert found == everything[: len(found)]


# -- damage ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        {"version": 9}, {"threadId": "other"}, {"first": 1}, {"part": 7}, {"turn": "x"}, {"items": None},
        {"items": [{"no": "type"}]}, {"items": [{"type": "odd:thing"}]}, {"items": [3]}, {"resourceId": 3}, None, "text",
    ],
)  # fmt: skip
@pytest.mark.parametrize("number", [0, 1])
async def test_a_damaged_part_is_one_clear_error_and_nothing_is_read(damage: Any, number: int) -> None:
    store = Store()
    await talk(talker(store, 1), "ab")
    key = f"thread:default:part:{number:08d}"
    await store.set(key, {**(await store.get(key)), **damage} if isinstance(damage, dict) else damage)
    second = talker(store, 2)

    for act in (second.load_thread, lambda: second.execute("c")):
        with pytest.raises(nn.NoeticConfigError, match=f"Part {number} of the saved thread 'default'") as caught:
            await act()
        assert caught.value.code == "CHECKPOINT_SCHEMA_MISMATCH"

    assert len(second.log()) == 0
    await second.forget_thread("default")
    await second.execute("c")
    assert await saved(store) == told("c")


@pytest.mark.parametrize("number", [0, 1])
async def test_a_missing_part_is_noticed(number: int) -> None:
    store = Store()
    await talk(talker(store, 1), "abc")
    await store.delete(f"thread:default:part:{number:08d}")

    with pytest.raises(nn.NoeticConfigError, match="it is missing"):
        await talker(store, 2).execute("d")


@pytest.mark.parametrize("damage", [{"version": 1}, {"recorded": 3}, {"parts": 5}, {"sequence": None}, {"threadId": 3}])
async def test_a_damaged_snapshot_is_refused_until_it_is_cleared(damage: Any) -> None:
    store = Store()
    execution_id = await cut(store)
    key = f"execution:{execution_id}:snapshot"
    await store.set(key, {**(await store.get(key)), **damage})
    second = talker(store, 2)

    for act in (lambda: second.execute("c"), lambda: second.resume(execution_id)):
        with pytest.raises(nn.NoeticConfigError) as caught:
            await act()
        assert caught.value.code == "CHECKPOINT_SCHEMA_MISMATCH"

    await second.clear_checkpoint(execution_id)
    await second.execute("c")
    assert await saved(store) == told("ac")


async def test_a_resume_whose_layers_cannot_start_leaves_a_thread_that_can_be_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store()
    execution_id = await cut(store)
    second = talker(store, 2)
    restore = second._durable.checkpoints.restore  # type: ignore[union-attr]

    async def fails(ctx: Any, snapshot: Any) -> None:
        await restore(ctx, snapshot)
        raise OSError("no disk")

    object.__setattr__(second._durable.checkpoints, "restore", fails)  # type: ignore[union-attr]
    with pytest.raises(OSError, match="no disk"):
        await second.resume(execution_id)

    assert second.executions == ()
    third = talker(store, 3)
    assert (await third.resume(execution_id)).text == "found b!"
    assert await saved(store) == told("ab")


async def test_a_turn_that_could_not_be_written_still_counts() -> None:
    class Full(nn.InMemoryStorage):
        full = False

        async def set(self, key: str, value: Any) -> None:
            if self.full:
                raise OSError("no space left")
            await super().set(key, value)

    store = Full()
    harness = nn.AgentHarness(
        nn.AgentConfig(name="talker", step=nn.react(model="m")),
        model=nn.ScriptedModel(lambda request: "x"),
        storage=store,
        checkpoints=WARN,
        diagnostic=lambda *problem: None,
    )
    turns: list[int] = []
    for full in (False, True, False):
        store.full = full
        await harness.execute("hi", thread_id="t")

    again = nn.AgentHarness(
        nn.AgentConfig(name="talker", step=nn.step.run("number", lambda value, ctx: turns.append(ctx.turn))),
        storage=store,
        checkpoints=True,
    )
    await again.execute("hi", thread_id="t")

    assert turns == [4]
    parts = [await store.get(key) for key in await store.list("thread:t:part:")]
    assert [(part["first"], part["turn"]) for part in parts] == [(0, 1), (2, 2), (4, 3), (6, 4)]
