"""Both stores against a plain dictionary: whatever is done, in whatever order, with whatever keys."""

from __future__ import annotations

import asyncio
import copy
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from noetic_nb.errors import NoeticError
from noetic_nb.storage import InMemoryStorage, SQLiteStorage
from noetic_nb.storage._adapter import get_many

ODD = [
    "",
    "a",
    "ab",
    "A",
    "a%",
    "a_",
    "%",
    "a\0",
    "a\0b",
    "a/b",
    "\ud7ff",
    "\ue000",
    "\U0010ffff",
    "a\U0010ffff",
    "é",
    "e\u0301",
]
KEYS = st.sampled_from(ODD) | st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


class StoreMachine(RuleBasedStateMachine):
    store: Any

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.model: dict[str, Any] = {}

    def run(self, awaitable: Any) -> Any:
        return self.runner.run(awaitable)

    @rule(key=KEYS, value=VALUES)
    def set(self, key: str, value: Any) -> None:
        self.run(self.store.set(key, value))
        self.model[key] = copy.deepcopy(value)

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        self.run(self.store.delete(key))
        self.model.pop(key, None)

    @rule(key=KEYS)
    def get(self, key: str) -> None:
        assert self.run(self.store.get(key)) == self.model.get(key)

    @rule(keys=st.lists(KEYS, max_size=5))
    def get_many(self, keys: list[str]) -> None:
        expected = {key: self.model[key] for key in keys if key in self.model}
        assert self.run(get_many(self.store, keys)) == expected

    @rule(prefix=KEYS)
    def list(self, prefix: str) -> None:
        assert self.run(self.store.list(prefix)) == sorted(key for key in self.model if key.startswith(prefix))

    @invariant()
    def everything_is_there(self) -> None:
        keys = self.run(self.store.list(""))
        assert keys == sorted(self.model)
        assert self.run(get_many(self.store, keys)) == self.model

    def teardown(self) -> None:
        self.runner.close()


class InMemoryMachine(StoreMachine):
    @initialize()
    def begin(self) -> None:
        self.store = InMemoryStorage()

    @rule(values=st.dictionaries(KEYS, VALUES, max_size=4), gone=st.lists(KEYS, max_size=3))
    def set_many(self, values: dict[str, Any], gone: Any) -> None:
        gone = [key for key in gone if key not in values]
        self.run(self.store.set_many(values, delete=gone))
        self.model.update(copy.deepcopy(values))
        for key in gone:
            self.model.pop(key, None)

    @rule(values=st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
    def write_nothing_where_a_key_is_taken(self, values: dict[str, Any]) -> None:
        taken = [*self.model][:1]
        if taken:
            with pytest.raises(NoeticError, match="Another writer has written"):
                self.run(self.store.set_many(values, absent=taken))

    @rule(values=st.dictionaries(KEYS, VALUES, max_size=4))
    def write_nothing_where_a_value_is_no_json(self, values: dict[str, Any]) -> None:
        with pytest.raises(NoeticError, match="not JSON data"):
            self.run(self.store.set_many({**values, "z": {1, 2}}))


class SQLiteMachine(StoreMachine):
    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.open()

    def open(self) -> None:
        self.store = SQLiteStorage(Path(self.folder.name) / "desk.db")

    @rule(values=st.dictionaries(KEYS, VALUES, max_size=4), gone=st.lists(KEYS, max_size=3))
    def set_many(self, values: dict[str, Any], gone: Any) -> None:
        self.run(self.store.set_many(values, delete=gone))
        for key in gone:
            self.model.pop(key, None)
        self.model.update(copy.deepcopy(values))

    @rule(key=KEYS)
    def read_version(self, key: str) -> None:
        seen = self.run(self.store.get_versioned(key))
        assert seen.value == self.model.get(key)
        assert (seen.version is None) == (key not in self.model)

    @rule(key=KEYS, value=VALUES, is_right=st.booleans())
    def compare_and_set(self, key: str, value: Any, is_right: bool) -> None:
        seen = self.run(self.store.get_versioned(key)).version
        if is_right:
            new = self.run(self.store.compare_and_set(key, seen, value))
            assert new != seen
            self.model[key] = copy.deepcopy(value)
        else:
            with pytest.raises(NoeticError, match="changed by another writer"):
                self.run(self.store.compare_and_set(key, -1, value))

    @rule(key=KEYS, value=VALUES)
    def write_through_another_connection(self, key: str, value: Any) -> None:
        async def write() -> None:
            async with SQLiteStorage(self.store.path) as other:
                await other.set(key, value)

        self.run(write())
        self.model[key] = copy.deepcopy(value)

    @rule()
    def reopen(self) -> None:
        self.run(self.store.aclose())
        self.open()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.run(self.store.aclose())
            self.folder.cleanup()
        super().teardown()


TestInMemoryStorage = InMemoryMachine.TestCase
TestInMemoryStorage.settings = settings(stateful_step_count=25)
TestSQLiteStorage = SQLiteMachine.TestCase
TestSQLiteStorage.settings = settings(stateful_step_count=25)
