"""State that a steering layer saves beyond an execution: entries are written and read once, and behaviour is unchanged."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.errors import NoeticError
from noetic_nb.memory._state.state_copy import snapshot_of
from noetic_nb.steering import RuleBook, SteeringRule, steering
from noetic_nb.steering._ledger import Entry, Ledger, State, mark_late_fault
from noetic_nb.storage import InMemoryStorage, SQLiteStorage
from noetic_nb.storage._in_memory import json_text
from tests.steering.steering_helpers import Bench, settle

KEY = "layers/steering/t1/state"
FLAT = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9)
)
VALUES = st.recursive(FLAT, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=3)
FACTS = st.dictionaries(st.text(max_size=5), VALUES, max_size=3)
CHANGES: dict[str, Callable[[Any], Any]] = {
    "item": lambda entry: entry.__setitem__("b", 2),
    "no item": lambda entry: entry.__delitem__("a"),
    "or": lambda entry: entry.__ior__({"b": 2}),
    "clear": lambda entry: entry.clear(),
    "pop": lambda entry: entry.pop("a"),
    "popitem": lambda entry: entry.popitem(),
    "setdefault": lambda entry: entry.setdefault("b", 2),
    "update": lambda entry: entry.update(b=2),
    "late fault": lambda entry: mark_late_fault(entry, "fair", "error"),
}


def plainly(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


@given(st.lists(FACTS, max_size=5), st.lists(FACTS, max_size=3), FACTS, st.lists(st.tuples(st.text(), VALUES)))
def test_a_state_is_written_as_an_encoder_writes_it(
    written: list[Any], plain: list[Any], others: dict[str, Any], marks: list[tuple[str, Any]]
) -> None:
    ledger = Ledger([*[Entry(facts) for facts in written], *plain])
    state = State({"ledger": ledger, **others, "made": Ledger(plain)})
    assert json_text("k", state) == plainly(state) == plainly(copy.deepcopy(state))

    for (key, value), entry in zip(marks, ledger, strict=False):
        entry[key] = value
        longer = State({**state, "ledger": Ledger([*ledger, Entry({"n": value})])})
        assert json_text("k", longer) == plainly(longer)


@given(st.dictionaries(st.integers() | st.booleans() | st.none() | st.text(), VALUES))
def test_keys_that_are_no_text_are_written_as_an_encoder_writes_them(state: dict[Any, Any]) -> None:
    assert json_text("k", State({"ledger": Ledger([Entry({"a": 1})]), **state})) == plainly(
        {"ledger": [{"a": 1}], **state}
    )


@pytest.mark.parametrize("change", CHANGES)
def test_an_entry_that_changes_is_written_anew(change: str) -> None:
    entry = Entry({"a": 1})
    before = entry.json_text()
    CHANGES[change](entry)

    assert entry.json_text() == plainly(dict(entry)) != before


def test_what_is_no_json_data_is_refused_wherever_it_stands() -> None:
    for state in (State({"ledger": Ledger([Entry({"a": float("nan")})])}), State({"ledger": [], "n": {1, 2}})):
        with pytest.raises(NoeticError) as caught:
            json_text("k", state)
        assert (caught.value.kind, caught.value.key) == ("storage_failed", "k")


def test_copies_are_plain_and_share_nothing() -> None:
    state = State({"ledger": Ledger([Entry({"args": {"n": 1}})]), "pendingAsync": []})
    state.json_text()
    for other in (copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        other["ledger"][0]["args"]["n"] = 2
        assert (type(other), type(other["ledger"][0])) == (dict, dict)
        assert plainly(other) == '{"ledger":[{"args":{"n":2}}],"pendingAsync":[]}'
    assert state.json_text() == '{"ledger":[{"args":{"n":1}}],"pendingAsync":[]}'


def test_a_snapshot_does_not_follow_the_queue_that_goes_on() -> None:
    state = State({"ledger": Ledger([Entry({"n": 1})]), "pendingAsync": [{"ruleId": "a", "guidance": "b"}]})
    taken = snapshot_of(state)
    state["pendingAsync"].append({"ruleId": "c", "guidance": "d"})
    state["ledger"].append(Entry({"n": 2}))

    assert taken == {"ledger": [{"n": 1}], "pendingAsync": [{"ruleId": "a", "guidance": "b"}]}


class Watched(InMemoryStorage):
    """Counts the values that were read, and compares each text with its value."""

    def __init__(self) -> None:
        super().__init__()
        self.values_read = 0

    async def get(self, key: str) -> Any:
        self.values_read += 1
        return await super().get(key)

    async def set(self, key: str, value: Any) -> None:
        await super().set(key, value)
        assert await self.get_text(key) == plainly(value)


def rules() -> RuleBook:
    book = RuleBook()
    book.at_most(2, "pay")
    return book


async def turn(layer: Any, storage: Any, name: str, calls: int = 1) -> list[str]:
    """Pay in a separate execution, and return the decisions."""
    bench = await Bench([], layer=layer, storage=storage, execution_id=name).start()
    found = []
    for _ in range(calls):
        found.append((await bench.call()).action.value)
        await bench.stack.tool_outcome(bench.ctx, name="pay", call_id="c", success=True, duration_ms=1.0, error=None)
    await bench.end()
    assert bench.diagnostics == []
    return found


async def test_a_state_that_is_found_as_it_was_left_is_not_read() -> None:
    storage, layer = Watched(), steering(rules(), scope="thread")
    found = [await turn(layer, storage, f"e{n}") for n in range(4)]

    assert found == [["allow"], ["allow"], ["deny"], ["deny"]]
    assert storage.values_read == 1  # by the first execution, which had left no state yet
    assert [row["kind"] for row in await saved(storage)] == [
        "tool_call", "custom"] * 4  # fmt: skip


async def test_what_others_wrote_meanwhile_counts(tmp_path: Path) -> None:
    async with SQLiteStorage(tmp_path / "a.db") as mine, SQLiteStorage(tmp_path / "a.db") as others:
        layer = steering(rules(), scope="thread")
        assert await turn(layer, mine, "e1") == ["allow"]
        assert await turn(steering(rules(), scope="thread"), others, "e2") == ["allow"]
        assert await turn(layer, mine, "e3") == ["deny"]
        await others.delete(KEY)
        assert await turn(layer, mine, "e4") == ["allow"]
        await others.set(KEY, {"ledger": [{"timestamp": "noon"}], "pendingAsync": []})
        with pytest.raises(NoeticError, match=r"ledger\[0\].timestamp is not a finite number"):
            await turn(layer, mine, "e5")


async def test_a_store_of_four_methods_is_enough() -> None:
    class Plain:
        def __init__(self) -> None:
            inner = InMemoryStorage()
            self.get, self.set, self.delete, self.list = inner.get, inner.set, inner.delete, inner.list

    storage, layer = Plain(), steering(rules(), scope="thread")
    assert [await turn(layer, storage, f"e{n}") for n in range(3)] == [["allow"], ["allow"], ["deny"]]


class Gated(Bench):
    """Its judges answer when a gate is open."""

    gate: asyncio.Event

    async def call_model(self, request: Any) -> Any:
        await self.gate.wait()
        return await super().call_model(request)


async def test_an_entry_that_is_marked_after_it_was_saved_is_saved_as_marked() -> None:
    storage = Watched()
    late = SteeringRule(id="late", applies_to="before_tool_call", llm_eval={"prompt": "Fair?", "mode": "async"})
    layer = steering([late], scope="thread", max_retries=0)
    bench = Gated([], layer=layer, storage=storage, judge=lambda prompt: "Perhaps.")
    bench.gate = asyncio.Event()
    await bench.start()
    for _ in range(2):
        await bench.call()
    await bench.stack.state.flush("e1")
    assert [row.get("fault") for row in await saved(storage)] == [None, None]
    bench.gate.set()
    await settle()
    await bench.end()

    assert [row.get("fault") for row in await saved(storage)] == ["unparseable", "unparseable", None]
    following = await Bench([], layer=layer, storage=storage, execution_id="e2", judge=[]).start()
    assert following.ledger == await saved(storage)


async def saved(storage: InMemoryStorage) -> list[Any]:
    """Return the ledger in storage."""
    rows: list[Any] = json.loads(await storage.get_text(KEY) or "")["ledger"]
    return rows


async def test_sqlite_gives_text_and_version_without_the_value(tmp_path: Path) -> None:
    async with SQLiteStorage(tmp_path / "a.db") as store:
        assert (await store.get_text("k"), await store.get_version("k")) == (None, None)
        await store.set("k", {"a": [1, "é"]})
        assert await store.get_text("k") == '{"a":[1,"é"]}'
        assert await store.get_version("k") == (await store.get_versioned("k")).version
        before = await store.get_version("k")
        await store.set("k", 2)
        assert await store.get_version("k") != before
