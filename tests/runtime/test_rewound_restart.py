"""Rewinding to a turn of an earlier process restores its conversation and layer states exactly as that turn left them."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.memory import MemoryHooks, MemoryLayer
from noetic_nb.runtime._durability import thread_writer as turn_states
from noetic_nb.runtime._threads import state_history
from noetic_nb.runtime._threads import state_history as state_size
from tests.runtime.crash_points import Disk, GroupedDisk
from tests.runtime.factories import texts


def counter(layer_id: str = "count", scope: Any = "thread", *, every: int = 1, **more: str) -> MemoryLayer:
    """Return a layer that counts the turns, and stores the count and more every few turns."""

    async def begin(params: Any) -> Any:
        return {"state": await params.storage.get("state") or {"n": 0}}

    async def store(params: Any) -> Any:
        number = params.ctx.turn
        return {"state": {"n": number, **more}} if number % every == 0 else {}

    return MemoryLayer(id=layer_id, slot=1, scope=scope, hooks=MemoryHooks(init=begin, store=store))


def desk(store: Any, *layers: MemoryLayer, checkpoints: Any = True) -> nn.AgentHarness:
    """Return a harness whose layers count."""
    config = nn.AgentConfig(name="desk", step=nn.react(model="m"), memory=list(layers or (counter(),)))
    return nn.AgentHarness(
        config,
        model=nn.ScriptedModel(lambda request: f"re {request.items[-1]['content'][0]['text']}"),
        storage=store,
        checkpoints=checkpoints,
        diagnostic=lambda *problem: None,
    )


async def talk(harness: nn.AgentHarness, words: str, *, thread_id: str = "t", **more: Any) -> None:
    for word in words:
        await harness.execute(word, thread_id=thread_id, **more)


def told(words: str) -> list[str]:
    return [line for word in words for line in (f"user: {word}", f"assistant: re {word}")]


async def states(harness: nn.AgentHarness, thread_id: str) -> dict[str, Any]:
    """Return the layer states of a thread."""
    return {layer.layer_id: layer.state for layer in await harness.memory(thread_id).layers()}


@pytest.mark.parametrize("kind", [Disk, GroupedDisk])
async def test_a_new_process_goes_back_to_every_turn_as_the_old_one_did(kind: Any) -> None:
    store = kind()
    layers = (counter(), counter("person", "resource"), counter("slow", every=2), counter("whole", "global"))
    first = desk(store, *layers)
    await talk(first, "abcd", resource_id="ann")

    second = desk(store, *layers)
    await second.load_thread("t")

    assert second.memory("t").turns == first.memory("t").turns == (1, 2, 3, 4)
    for turn in range(5):
        here = await first.memory("t").rewind(turn, thread_id=f"here {turn}")
        there = await second.memory("t").rewind(turn, thread_id=f"there {turn}")
        assert list(texts(second.log(there))) == list(texts(first.log(here))) == told("abcd"[:turn])
        assert await states(second, there) == await states(first, here)
        n = {"n": turn} if turn else None
        slow = {"n": turn - turn % 2} if turn else None
        assert await states(second, there) == {"count": n, "person": n, "slow": slow, "whole": {"n": 4}}
    assert await states(second, "t") == await states(first, "t"), "the thread itself stays"


async def test_nobody_has_to_read_the_thread_first() -> None:
    store = nn.InMemoryStorage()
    await talk(desk(store, counter("person", "resource")), "abc", resource_id="ann")
    second = desk(store, counter("person", "resource"))

    fork = await second.memory("t").rewind(2)
    await second.execute("x", thread_id=fork)

    assert list(texts(second.log(fork))) == told("abx")
    assert await states(second, fork) == {"person": {"n": 3}}


async def test_a_fork_is_gone_back_to_after_another_restart() -> None:
    store = nn.InMemoryStorage()
    await talk(desk(store), "abc")
    second = desk(store)
    fork = await second.memory("t").rewind(2, thread_id="fork")
    await second.execute("x", thread_id=fork)
    third = desk(store)

    again = await third.memory(fork).rewind(2)

    assert list(texts(third.log(again))) == told("ab")
    assert await states(third, again) == {"count": {"n": 2}}


async def test_what_is_edited_between_turns_is_part_of_the_next_one() -> None:
    store = nn.InMemoryStorage()
    first = desk(store, counter(every=3))
    await talk(first, "a")
    await first.memory("t").edit("count", {"n": 70})
    await talk(first, "b")
    second = desk(store, counter(every=3))

    found = [await states(second, await second.memory("t").rewind(turn)) for turn in (1, 2)]

    assert found == [{"count": {"n": 0}}, {"count": {"n": 70}}]


@pytest.mark.parametrize("kind", [Disk, GroupedDisk])
async def test_wherever_a_process_was_killed_its_turns_are_gone_back_to_as_they_were(kind: Any) -> None:
    store = kind()
    await talk(desk(store), "abc")
    rewound = 0

    for number, left in enumerate(store.copies):
        for more in ("", "x"):
            again = desk(kind(dict(left)))
            await again.load_thread("t")
            await talk(again, more)
            for turn in again.memory("t").turns:
                fork = await again.memory("t").rewind(turn)
                assert list(texts(again.log(fork))) == list(texts(again.log("t")))[: len(again.log(fork))]
                n = (await states(again, fork))["count"]["n"]
                # The layer may or may not have counted an interrupted turn; it has counted all others.
                assert n in ((turn,) if turn == again.memory("t").turns[-1] else (turn, turn - 1)), number
                rewound += 1
    assert rewound > 40


async def test_another_process_s_turns_are_gone_back_to_as_well() -> None:
    store = nn.InMemoryStorage()
    one, two = desk(store), desk(store)
    for harness, word in zip(itertools.cycle([one, two]), "abcd", strict=False):
        await talk(harness, word)

    found = [await states(two, await two.memory("t").rewind(turn)) for turn in (1, 2, 3, 4)]

    assert found == [{"count": {"n": turn}} for turn in (1, 2, 3, 4)]


# -- what it costs --------------------------------------------------------------------------------------------------------


async def test_a_state_is_written_where_it_changed_and_not_read_with_the_thread() -> None:
    store = nn.InMemoryStorage()
    await talk(desk(store, counter(every=3)), "abcdef")
    read: list[str] = []

    class Watched(nn.InMemoryStorage):
        async def get_many(self, keys: Any) -> Any:
            read.extend(keys)
            return await super().get_many(keys)

    watched = Watched()
    watched._texts, watched._keys = store._texts, store._keys
    second = desk(watched, counter(every=3))
    await second.load_thread("t")

    assert [key[-2:] for key in await store.list("thread:t:states:")] == ["00", "02", "05"]
    assert not [key for key in read if ":states:" in key]
    await second.memory("t").rewind(5)
    assert [key for key in read if ":states:" in key] == ["thread:t:states:00000002"]


async def test_states_that_are_too_long_ago_are_removed_and_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_states, "MAX_PARTS", 3)
    store = nn.InMemoryStorage()
    await talk(desk(store, counter(), counter("slow", every=4)), "abc")
    await talk(desk(store, counter(), counter("slow", every=4)), "defg")
    second = desk(store, counter(), counter("slow", every=4))

    numbers = [int(key[-2:]) for key in await store.list("thread:t:states:")]
    with pytest.raises(nn.NoeticConfigError, match="too old") as caught:
        await second.memory("t").rewind(2)

    assert numbers == [3, 4, 5, 6]
    assert caught.value.code == "UNKNOWN_TURN"
    assert await states(second, await second.memory("t").rewind(6)) == {"count": {"n": 6}, "slow": {"n": 4}}


async def test_a_thread_is_forgotten_with_its_states() -> None:
    store = nn.InMemoryStorage()
    harness = desk(store)
    await talk(harness, "ab")

    await harness.forget_thread("t")

    assert await store.list("thread:") == []


# -- what is not there ----------------------------------------------------------------------------------------------------


async def test_turns_of_an_earlier_version_have_no_states_and_are_not_offered() -> None:
    store = nn.InMemoryStorage()
    await talk(desk(store), "ab")
    for key in await store.list("thread:t:part:"):
        part = await store.get(key)
        del part["states"]
        await store.set(key, part)
    second = desk(store)

    with pytest.raises(nn.NoeticConfigError) as caught:
        await second.memory("t").rewind(1)

    assert (caught.value.code, second.memory("t").turns) == ("UNKNOWN_TURN", ())
    assert list(texts(second.log("t"))) == told("ab")


async def test_a_state_that_is_no_data_does_not_keep_a_turn_from_being_saved() -> None:
    async def store_set(params: Any) -> Any:
        return {"state": {1, 2}}

    odd = MemoryLayer(id="odd", slot=1, scope="thread", hooks=MemoryHooks(store=store_set))
    store = nn.InMemoryStorage()
    reply = await desk(store, odd, checkpoints=nn.Checkpoints(on_error="warn")).execute("a", thread_id="t")
    second = desk(store, odd)

    with pytest.raises(nn.NoeticConfigError, match="not JSON data") as caught:
        await second.memory("t").rewind(1)

    assert (reply.saved, caught.value.code) == (False, "UNKNOWN_TURN")
    assert list(texts(second.log("t"))) == told("a")


@pytest.mark.parametrize("damage", [None, "text", {}, {"other": 1}, [1]])
async def test_damaged_states_are_one_clear_error(damage: Any) -> None:
    store = nn.InMemoryStorage()
    await talk(desk(store), "ab")
    store._texts["thread:t:states:00000000"] = json.dumps(damage)
    second = desk(store)

    with pytest.raises(nn.NoeticConfigError) as caught:
        await second.memory("t").rewind(1)

    assert caught.value.code == "CHECKPOINT_SCHEMA_MISMATCH"
    assert await states(second, await second.memory("t").rewind(2)) == {"count": {"n": 2}}


async def test_a_state_that_is_no_longer_remembered_is_not_taken_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_history, "MAX_CHANGES", 3)
    harness, kept = desk(None, checkpoints=False), desk(nn.InMemoryStorage())
    await talk(harness, "abcde")
    await talk(kept, "abcde")

    with pytest.raises(nn.NoeticConfigError, match="no longer stored"):
        await harness.memory("t").rewind(1)

    assert await states(harness, await harness.memory("t").rewind(4)) == {"count": {"n": 4}}
    assert await states(kept, await kept.memory("t").rewind(1)) == {"count": {"n": 1}}


async def test_the_states_that_are_remembered_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_history, "MAX_BYTES", 200_000)
    harness = desk(None, counter(text="x" * 20_000), checkpoints=False)
    for thread_id in ("t", "other"):
        await talk(harness, "abcdefgh", thread_id=thread_id)

    history = harness._threads._history
    remembered = [change for thread_id in ("t", "other") for change in history.changes("count", thread_id)]
    assert 100_000 < sum(state_size.size_of(change.state) for change in remembered) <= 200_000
    assert {change.scope_key for change in remembered} == {"t", "other"}
    with pytest.raises(nn.NoeticConfigError, match="no longer stored"):
        await harness.memory("t").rewind(1)
    assert (await states(harness, await harness.memory("other").rewind(8)))["count"]["n"] == 8
