"""Events while a thread is still being read wait or take effect, and are never lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.items import input_message
from tests.runtime.factories import texts

pytestmark = pytest.mark.virtual_time


class Slow(nn.InMemoryStorage):
    """Storage with slow reads."""

    async def get(self, key: str) -> Any:
        await asyncio.sleep(0.01)
        return await super().get(key)

    async def list(self, prefix: str) -> list[str]:
        await asyncio.sleep(0.01)
        return await super().list(prefix)


def echo(request: Any) -> str:
    return f"re {request.items[-1]['content'][0]['text']}"


def talker(store: Any, model: Any = echo, **more: Any) -> nn.AgentHarness:
    config = nn.AgentConfig(name="slow", step=nn.react(model="m"), **more)
    return nn.AgentHarness(config, model=nn.ScriptedModel(model), storage=store, checkpoints=True)


async def spoken() -> Slow:
    """Return a store that contains a thread."""
    store = Slow()
    await talker(store).execute("hi", thread_id="t")
    return store


async def cut(store: Any) -> str:
    """Abandon a turn of a thread in the middle; return its execution."""

    class Dead(BaseException):
        """The process ends."""

    class Dying(nn.InMemoryStorage):
        """Reads and writes the store until it is dead."""

        dead = False

        async def get(self, key: str) -> Any:
            return await nn.InMemoryStorage.get(store, key)

        async def get_many(self, keys: list[str]) -> dict[str, Any]:
            return await nn.InMemoryStorage.get_many(store, keys)

        async def list(self, prefix: str) -> Any:
            return await nn.InMemoryStorage.list(store, prefix)

        async def set(self, key: str, value: Any) -> None:
            if not self.dead:
                await store.set(key, value)

        async def delete(self, key: str) -> None:
            if not self.dead:
                await store.delete(key)

    disk = Dying()

    def dies(request: Any) -> str:
        disk.dead = True
        raise Dead

    harness = talker(disk, dies)
    with pytest.raises(Dead):
        await harness.execute("cut", thread_id="t")
    return (await talker(store).unfinished())[0]


# -- cancelled ------------------------------------------------------------------------------------------------------------


async def test_a_turn_whose_thread_is_still_read_can_be_cancelled() -> None:
    asked: list[Any] = []
    harness = talker(await spoken(), lambda request: asked.append(request) or "x")
    turn = asyncio.create_task(harness.execute("go", thread_id="t"))
    await asyncio.sleep(0.005)

    assert await harness.cancel("t", "changed my mind")
    with pytest.raises(nn.NoeticError, match="changed my mind") as caught:
        await turn

    assert (caught.value.kind, asked) == ("cancelled", [])
    assert list(texts(harness.log("t"))) == ["user: hi", "assistant: re hi", "user: go"]
    assert not await harness.cancel("t")
    assert (await harness.execute("again", thread_id="t")).text == "x"


async def test_a_turn_that_is_resumed_can_be_cancelled_while_its_thread_is_read() -> None:
    store = await spoken()
    execution_id = await cut(store)
    harness = talker(store)
    turn = asyncio.create_task(harness.resume(execution_id))
    await asyncio.sleep(0.025)

    assert await harness.cancel("t")
    with pytest.raises(nn.NoeticError, match="cancelled by the caller"):
        await turn


async def test_an_interruption_is_heard_while_the_thread_is_still_read() -> None:
    harness = talker(await spoken())
    first = asyncio.create_task(harness.execute("go", thread_id="t"))
    await asyncio.sleep(0.005)

    reply = await harness.execute("stop", thread_id="t", delivery="interrupt")

    assert reply.text == "re stop"
    with pytest.raises(nn.NoeticError, match="interrupted by a newer message"):
        await first


async def test_an_interruption_of_a_thread_that_is_only_loaded_interrupts_nothing() -> None:
    harness = talker(await spoken())
    loading = asyncio.create_task(harness.load_thread("t"))
    await asyncio.sleep(0.005)

    assert not await harness.cancel("t")
    reply = await harness.execute("go", thread_id="t", delivery="interrupt")

    assert (await loading, reply.text) == (True, "re go")


async def test_a_cancellation_ends_with_the_turn_it_was_meant_for() -> None:
    store = await spoken()
    read = store.list

    async def fails(prefix: str) -> Any:
        await asyncio.sleep(0.01)
        raise OSError("no disk")

    harness = talker(store)
    store.list = fails  # type: ignore[method-assign]
    turn = asyncio.create_task(harness.execute("go", thread_id="t"))
    await asyncio.sleep(0.005)
    assert await harness.cancel("t")
    with pytest.raises(OSError, match="no disk"):
        await turn
    store.list = read  # type: ignore[method-assign]

    assert (await harness.execute("go", thread_id="t")).text == "re go"


# -- at the same time -----------------------------------------------------------------------------------------------------


def remarked() -> tuple[list[Any], nn.MemoryLayer]:
    heard: list[Any] = []
    hooks = nn.MemoryHooks(on_feedback=lambda p: heard.append((p.kind, p.ctx.resource_id, p.ctx.turn)))
    return heard, nn.MemoryLayer(id="l", slot=1, scope="resource", hooks=hooks)


async def test_remarks_that_come_together_wait_for_the_thread() -> None:
    store = await spoken()
    heard, layer = remarked()
    harness = talker(store, memory=[layer])

    await asyncio.gather(
        harness.feedback("t", quality=1), harness.correct("t", "no"), harness.reset_task("t"), harness.load_thread("t")
    )

    assert sorted(kind for kind, *_ in heard) == ["correction", "quality", "reset_task"]


async def test_a_thread_is_loaded_judged_and_talked_to_at_once() -> None:
    store = await spoken()
    harness = talker(store)

    reply, loaded, _ = await asyncio.gather(
        harness.execute("go", thread_id="t"), harness.load_thread("t"), harness.feedback("t", quality=1)
    )

    assert (reply.text, loaded) == ("re go", True)


async def test_a_thread_is_opened_resumed_or_forgotten_once_it_has_been_read() -> None:
    store = await spoken()
    harness = talker(store)

    async def opened() -> int:
        async with harness.execution(thread_id="t") as ctx:
            return len(ctx.item_log)

    assert await asyncio.gather(harness.load_thread("t"), opened()) == [True, 2]
    execution_id = await cut(store)
    second = talker(store)
    _, reply = await asyncio.gather(second.load_thread("t"), second.resume(execution_id))
    assert reply.text == "re cut"
    third = talker(store)
    assert await asyncio.gather(third.load_thread("t"), third.forget_thread("t")) == [True, True]
    assert await third.saved_threads() == ()


async def test_whoever_waits_for_a_read_that_fails_reads_again() -> None:
    store = await spoken()
    read, broken = store.list, [True]

    async def fails(prefix: str) -> Any:
        await asyncio.sleep(0.01)
        if broken and broken.pop():
            raise OSError("no disk")
        return await read(prefix)

    store.list = fails  # type: ignore[method-assign]
    harness = talker(store)

    first, second = await asyncio.gather(harness.load_thread("t"), harness.load_thread("t"), return_exceptions=True)

    assert isinstance(first, OSError)
    assert second is True


# -- what belongs to whom -------------------------------------------------------------------------------------------------


async def test_a_remark_is_about_the_last_turn_whichever_harness_ran_it() -> None:
    store = nn.InMemoryStorage()
    heard, layer = remarked()
    one, two = talker(store, memory=[layer]), talker(store, memory=[layer])
    await one.execute("x", thread_id="t", resource_id="ann")
    await two.execute("y", thread_id="t", resource_id="bob")

    await one.feedback("t", quality=1)

    assert heard == [("quality", "bob", 2)]


async def test_a_thread_that_was_added_to_is_not_resumed_without_that() -> None:
    store = await spoken()
    execution_id = await cut(store)
    harness = talker(store)
    await harness.load_thread("t")
    harness.append("t", [input_message("extra")])

    with pytest.raises(nn.NoeticConfigError) as caught:
        await harness.resume(execution_id)

    assert caught.value.code == "THREAD_EXISTS"
    assert list(texts(harness.log("t")))[-2:] == ["user: cut", "user: extra"]
    harness.close_thread("t")
    assert (await harness.resume(execution_id)).text == "re cut"


async def test_a_thread_that_was_begun_anew_is_not_overwritten_by_a_resumed_one() -> None:
    store = await spoken()
    execution_id = await cut(store)
    harness = talker(store)
    harness.seed("t", [input_message("other")])

    with pytest.raises(nn.NoeticConfigError) as caught:
        await harness.resume(execution_id)

    assert caught.value.code == "THREAD_EXISTS"
    assert list(texts(harness.log("t"))) == ["user: other"]


async def test_a_thread_that_is_being_read_for_a_turn_is_not_idle() -> None:
    harness = talker(await spoken())
    turn = asyncio.create_task(harness.execute("more", thread_id="t"))
    await asyncio.sleep(0)
    opening = harness.status("t").state
    await harness.cancel("t")
    cancelled = harness.status("t").state
    with pytest.raises(nn.NoeticError):
        await turn

    assert (opening, cancelled, harness.status("t").state) == ("generating", "aborting", "idle")
