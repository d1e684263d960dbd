"""Live state and its mirror: snapshots, the latest value, deletes, failures that are reported once."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.memory import LayerStateStore
from noetic_nb.storage import InMemoryStorage, ScopedStorage
from noetic_nb.testing import drive_loop

STATES = st.none() | st.dictionaries(st.sampled_from("ab"), st.integers(), max_size=2) | st.text(max_size=3)


class Slow(InMemoryStorage):
    """Counts writes, and makes them wait while a gate is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[Any] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails = False

    async def set(self, key: str, value: Any) -> None:
        await self.gate.wait()
        if self.fails:
            raise OSError("disk on fire")
        self.writes.append(copy.deepcopy(value))
        await super().set(key, value)

    async def delete(self, key: str) -> None:
        await self.gate.wait()
        self.writes.append(None)
        await super().delete(key)


def store_on(storage: Any) -> tuple[LayerStateStore, list[tuple[str, str, str]]]:
    notes: list[tuple[str, str, str]] = []
    store = LayerStateStore(lambda layer_id, hook, error: notes.append((layer_id, hook, str(error))))
    store.register_durable("e", "a", ScopedStorage(storage, "a", "t"))
    return store, notes


async def kept(storage: InMemoryStorage) -> Any:
    return await storage.get("layers/a/t/state")


async def test_rapid_writes_are_coalesced_to_the_first_and_the_last() -> None:
    storage = Slow()
    store, notes = store_on(storage)
    storage.gate.clear()

    store.set("e", "a", {"n": 1})
    await asyncio.sleep(0)
    for n in range(2, 6):
        store.set("e", "a", {"n": n})
    storage.gate.set()
    await store.flush("e")

    assert storage.writes == [{"n": 1}, {"n": 5}]
    assert notes == []


async def test_what_is_mirrored_is_a_snapshot_of_the_moment_it_was_set() -> None:
    storage = Slow()
    store, _ = store_on(storage)
    state = {"notes": ["one"]}

    store.set("e", "a", state)
    state["notes"].append("two, later")
    await store.flush("e")

    assert await kept(storage) == {"notes": ["one"]}


async def test_none_deletes_the_durable_key_and_is_still_an_entry() -> None:
    storage = Slow()
    store, _ = store_on(storage)

    store.set("e", "a", {"n": 1})
    store.set("e", "a", None)
    await store.flush("e")

    assert (store.has("e", "a"), store.get("e", "a"), await storage.list("")) == (True, None, [])


async def test_registering_writes_nothing_by_itself() -> None:
    storage = Slow()
    store = LayerStateStore()
    store.set("e", "a", {"n": 1})

    store.register_durable("e", "a", ScopedStorage(storage, "a", "t"))
    await store.flush("e")

    assert storage.writes == []


async def test_a_failing_backend_is_one_diagnostic_and_the_next_write_tries_again() -> None:
    storage = Slow()
    store, notes = store_on(storage)

    storage.fails = True
    store.set("e", "a", {"n": 1})
    await store.flush("e")
    assert [(layer, hook) for layer, hook, _ in notes] == [("a", "persist")]
    assert "disk on fire" in notes[0][2]
    assert store.get("e", "a") == {"n": 1}

    storage.fails = False
    store.set("e", "a", {"n": 2})
    await store.flush("e")
    assert await kept(storage) == {"n": 2}
    assert len(notes) == 1


async def test_a_state_that_is_no_json_is_reported_and_kept_in_memory() -> None:
    storage = Slow()
    store, notes = store_on(storage)

    store.set("e", "a", {1, 2})
    await store.flush("e")

    assert [(layer, hook) for layer, hook, _ in notes] == [("a", "persist")]
    assert store.get("e", "a") == {1, 2}


async def test_a_state_that_cannot_be_copied_is_reported() -> None:
    storage = Slow()
    store, notes = store_on(storage)

    store.set("e", "a", (n for n in range(3)))
    await store.flush("e")

    assert [(layer, hook) for layer, hook, _ in notes] == [("a", "persist")]


async def test_a_cancelled_flush_does_not_cut_a_write_short() -> None:
    storage = Slow()
    store, _ = store_on(storage)
    storage.gate.clear()
    store.set("e", "a", {"n": 1})

    waiting = asyncio.ensure_future(store.flush("e"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    storage.gate.set()
    await store.flush("e")

    assert await kept(storage) == {"n": 1}


def test_a_store_that_hangs_holds_a_flush_for_half_a_minute_and_is_reported() -> None:
    async def run() -> tuple[float, list[tuple[str, str, str]], Any]:
        storage = Slow()
        store, notes = store_on(storage)
        storage.gate.clear()
        store.set("e", "a", {"n": 1})
        before = asyncio.get_running_loop().time()
        await store.flush("e")
        waited = asyncio.get_running_loop().time() - before
        storage.gate.set()
        await store.flush("e")
        return waited, notes, await kept(storage)

    waited, notes, stored = drive_loop(run())

    assert (waited, stored) == (30, {"n": 1})
    assert [(layer, hook) for layer, hook, _ in notes] == [("a", "persist")]


async def test_cleaning_up_forgets_everything_and_finishes_what_was_written() -> None:
    storage = Slow()
    store, _ = store_on(storage)
    store.disable("e", "b")
    storage.gate.clear()
    store.set("e", "a", {"n": 1})

    store.cleanup("e")
    storage.gate.set()
    for _ in range(5):
        await asyncio.sleep(0)

    assert (store.has("e", "a"), store.is_disabled("e", "b"), store.states("e")) == (False, False, {})
    assert await kept(storage) == {"n": 1}


def test_a_state_set_where_no_loop_runs_is_written_by_the_next_flush() -> None:
    storage = InMemoryStorage()
    store, _ = store_on(storage)

    store.set("e", "a", {"n": 1})
    asyncio.run(store.flush("e"))

    assert asyncio.run(kept(storage)) == {"n": 1}


def test_listeners_hear_every_write_until_they_leave() -> None:
    store = LayerStateStore()
    heard: list[Any] = []
    leave = store.listen(lambda *what: heard.append(what))

    store.set("e", "a", 1, hook="store")
    leave()
    leave()
    store.set("e", "a", 2)

    assert heard == [("e", "a", 1, "store")]


@given(st.lists(STATES, min_size=1, max_size=8))
def test_what_is_stored_in_the_end_is_the_last_state(states: list[Any]) -> None:
    async def run() -> tuple[Any, list[Any]]:
        storage = Slow()
        store, notes = store_on(storage)
        for state in states:
            store.set("e", "a", state)
            if len(str(state)) % 2:
                await asyncio.sleep(0)
        await store.flush("e")
        return await kept(storage), notes

    assert asyncio.run(run()) == (states[-1], [])


async def test_ten_megabytes_of_state_are_kept() -> None:
    storage = InMemoryStorage()
    store, notes = store_on(storage)

    store.set("e", "a", {"text": "x" * 10_000_000})
    await store.flush("e")

    assert len((await kept(storage))["text"]) == 10_000_000
    assert notes == []
