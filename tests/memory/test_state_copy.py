"""Copies of states: as `copy.deepcopy` makes them, and known to be plain only where JSON would give them back."""

from __future__ import annotations

import copy
import threading
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.memory import LayerStateStore
from noetic_nb.memory._state.state_copy import deep_copy, snapshot_of
from noetic_nb.storage import InMemoryStorage, ScopedStorage

PLAIN = st.none() | st.booleans() | st.integers() | st.text() | st.floats()
ODD = PLAIN | st.decimals(allow_nan=False) | st.tuples(st.text(), st.lists(st.text(), max_size=2))
KEYS = st.text() | st.integers() | st.none() | st.booleans() | st.tuples(st.text(), st.integers())
STATES = st.recursive(
    ODD, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


def parts(value: Any) -> list[Any]:
    """Return every mapping and list of some data."""
    if isinstance(value, dict):
        return [value, *[part for inner in value.values() for part in parts(inner)]]
    if isinstance(value, list | tuple):
        own = [value] if isinstance(value, list) else []
        return [*own, *[part for inner in value for part in parts(inner)]]
    return []


@given(STATES)
def test_a_copy_is_what_deepcopy_makes_and_shares_nothing_that_can_change(state: Any) -> None:
    made = deep_copy(state)

    # By their text, as NaN equals nothing.
    assert repr(made) == repr(copy.deepcopy(state))
    assert not {id(part) for part in parts(state)} & {id(part) for part in parts(made)}


def test_a_list_that_stands_twice_is_one_list_in_the_copy_too() -> None:
    inner = ["a"]
    made = snapshot_of({"one": inner, "two": inner})

    assert made["one"] is made["two"] is not inner


def test_a_state_that_holds_itself_is_copied() -> None:
    state: dict[str, Any] = {"name": "a"}
    state["self"] = [state]
    made = snapshot_of(state)

    assert made["self"][0] is made is not state


def test_what_cannot_be_copied_raises_as_it_always_did() -> None:
    with pytest.raises(TypeError, match="lock"):
        deep_copy({"lock": threading.Lock()})


async def test_what_is_in_memory_follows_neither_the_state_nor_its_readers() -> None:
    storage, store = InMemoryStorage(), LayerStateStore()
    store.register_durable("e1", "notes", ScopedStorage(storage, "notes", "t1"))
    state = {"notes": [{"text": "a"}]}

    store.set("e1", "notes", state)
    state["notes"][0]["text"] = "changed by its layer"
    await store.flush("e1")
    (await storage.get("layers/notes/t1/state"))["notes"].append("changed by a reader")

    assert await storage.get("layers/notes/t1/state") == {"notes": [{"text": "a"}]}
    assert await storage.get_text("layers/notes/t1/state") == '{"notes":[{"text":"a"}]}'
    assert await storage.get_many(["layers/notes/t1/state"]) == {"layers/notes/t1/state": {"notes": [{"text": "a"}]}}


async def test_memory_gives_back_what_a_file_would() -> None:
    storage, store = InMemoryStorage(), LayerStateStore()
    store.register_durable("e1", "notes", ScopedStorage(storage, "notes", "t1"))
    twice = ["a"]

    store.set("e1", "notes", {"pair": ("a", 1), "one": twice, "two": twice, 3: "three"})
    await store.flush("e1")
    found: Any = await storage.get("layers/notes/t1/state")

    assert found == {"pair": ["a", 1], "one": ["a"], "two": ["a"], "3": "three"}
    assert found["one"] is not found["two"]


async def test_a_state_that_is_no_json_data_is_reported_and_not_written() -> None:
    told: list[tuple[str, str]] = []
    storage, store = InMemoryStorage(), LayerStateStore(lambda layer_id, hook, error: told.append((layer_id, hook)))
    store.register_durable("e1", "notes", ScopedStorage(storage, "notes", "t1"))

    store.set("e1", "notes", {"since": Decimal(1)})
    await store.flush("e1")

    assert told == [("notes", "persist")]
    assert list(store.unsaved("e1")) == ["notes"]
    assert await storage.list("") == []


async def test_a_store_derived_from_memory_is_written_through_its_own_methods() -> None:
    class Counted(InMemoryStorage):
        written = 0

        async def set(self, key: str, value: Any) -> None:
            self.written += 1
            await super().set(key, value)

    storage, store = Counted(), LayerStateStore()
    store.register_durable("e1", "notes", ScopedStorage(storage, "notes", "t1"))

    store.set("e1", "notes", {"n": 1})
    await store.flush("e1")

    assert storage.written == 1
