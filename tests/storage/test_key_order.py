"""Keys in memory are found by their beginnings, in order, whatever was written and deleted between two looks."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.storage import InMemoryStorage

KEYS = st.text("ab:", min_size=1, max_size=4)
PREFIXES = ["", "a", "ab", "b:", "ba:", ":"]


def looked_at(store: InMemoryStorage, model: dict[str, Any]) -> None:
    for prefix in PREFIXES:
        found = asyncio.run(store.list(prefix))
        assert found == sorted(key for key in model if key.startswith(prefix))


@given(
    st.lists(st.tuples(st.sampled_from(["set", "write", "delete", "look"]), st.lists(KEYS, max_size=12)), max_size=12)
)
def test_every_look_finds_what_is_there(steps: list[tuple[str, list[str]]]) -> None:
    store, model = InMemoryStorage(), dict[str, Any]()
    for kind, keys in steps:
        if kind == "look":
            looked_at(store, model)
            continue
        for key in keys if kind == "set" else ():
            asyncio.run(store.set(key, 1))
        written, gone = dict.fromkeys(keys, 1) if kind == "write" else {}, keys if kind == "delete" else ()
        asyncio.run(store.set_many(written, delete=gone))
        model |= dict.fromkeys(() if kind == "delete" else keys, 1)
        for key in gone:
            model.pop(key, None)
    looked_at(store, model)


def calls_of_list(threads: int) -> int:
    """Return how many functions run while the keys of one of so many threads are listed."""
    store = InMemoryStorage({f"thread:{number}:part": number for number in range(threads)})
    listing, calls = store.list("thread:7:"), []
    sys.setprofile(lambda frame, event, arg: calls.append(event))
    try:
        with pytest.raises(StopIteration) as done:
            listing.send(None)
    finally:
        sys.setprofile(None)
    assert done.value.value == ["thread:7:part"]
    return len(calls)


def test_a_look_at_one_thread_does_not_read_the_keys_of_all() -> None:
    assert calls_of_list(10_000) < 10 * calls_of_list(10)


def agent(storage: InMemoryStorage, replies: list[str]) -> nn.AgentHarness:
    config = nn.AgentConfig(name="desk", step=nn.react(model="m"))
    return nn.AgentHarness(config, model=nn.ScriptedModel(replies), storage=storage, checkpoints=True)


async def test_a_thread_that_another_harness_has_begun_in_memory_is_continued() -> None:
    storage = InMemoryStorage()
    await agent(storage, ["One."]).execute("hi", thread_id="t1")
    second = agent(storage, ["Two.", "Three."])

    await second.execute("beside", thread_id="t")  # whose name the other one begins with
    reply = await second.execute("and?", thread_id="t1")

    assert reply.saved is True
    assert [nn.items.item_text(item) for item in second.log("t1")] == ["hi", "One.", "and?", "Three."]


async def test_a_saved_thread_without_its_first_part_is_no_new_one() -> None:
    storage = InMemoryStorage()
    first = agent(storage, ["One.", "Two."])
    for text in ("hi", "and?"):
        await first.execute(text, thread_id="t1")
    (key, *_) = await storage.list("thread:t1:part:")
    await storage.delete(key)

    with pytest.raises(nn.NoeticConfigError, match="missing"):
        await agent(storage, ["Three."]).execute("now?", thread_id="t1")
