"""A layer finds the state that it left in its scope, unless its `init` decides otherwise."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.memory import MemoryLayer
from noetic_nb.storage import InMemoryStorage, SQLiteStorage
from tests.memory.stacks import CTX, Watched, context, layer, returning

KEYS = {"thread": "t1", "resource": "r1", "global": "__global__"}


def count(p: Any) -> dict[str, Any]:
    return {"state": {"n": (p.state or {"n": 0})["n"] + 1}}


def counter(scope: Any, **hooks: Any) -> MemoryLayer:
    """Return a layer with a `store` and no `init`."""
    return layer("counter", scope=scope, store=count, recall=lambda p: p.state and f"n={p.state['n']}", **hooks)


def agent(storage: Any, *layers: MemoryLayer, model: Any = None) -> nn.AgentHarness:
    config = nn.AgentConfig(name="a", step=nn.react(model="m"), memory=[*layers])
    return nn.AgentHarness(config, model=model or nn.ScriptedModel(["ok"] * 9), storage=storage)


async def state_after(stack: Watched, execution_id: str = "e1") -> Any:
    ctx = context(execution_id, resource_id="r1")
    await stack.init(ctx)
    return stack.state.get(execution_id, stack.layers[0].id)


@pytest.mark.parametrize("scope", KEYS)
async def test_a_state_comes_back_in_the_next_turn_and_in_the_next_process(scope: str, tmp_path: Path) -> None:
    for turns in ((1, 2), (3,)):
        async with SQLiteStorage(tmp_path / "a.db") as storage:
            harness = agent(storage, counter(scope))
            for turn in turns:
                await harness.execute("hi", thread_id="t1", resource_id="r1")
                assert await harness.memory("t1").state("counter") == {"n": turn}
            assert await storage.get(f"layers/counter/{KEYS[scope]}/state") == {"n": turns[-1]}


async def test_a_state_that_comes_back_is_recalled() -> None:
    model = nn.ScriptedModel(["ok", "ok"])
    harness = agent(None, counter("thread"), model=model)

    await harness.execute("one")
    await harness.execute("two")

    assert "n=1" in str(model.requests[1].items)


async def test_the_state_of_an_execution_ends_with_it() -> None:
    storage = InMemoryStorage()
    stack = Watched(counter("execution"), storage=storage)

    for execution_id in ("e1", "e2"):
        assert await state_after(stack, execution_id) is None
        await stack.store(context(execution_id), response={"items": [], "usage": {}}, log=())
        assert stack.state.get(execution_id, "counter") == {"n": 1}
    assert await storage.list("") == []


@pytest.mark.parametrize("answer", [None, {}, {"other": 1}], ids=repr)
async def test_an_init_that_returns_no_state_gets_the_stored_one(answer: Any) -> None:
    stack = Watched(layer("a", init=returning(answer)), storage=InMemoryStorage({"layers/a/t1/state": {"n": 4}}))

    assert await state_after(stack) == {"n": 4}


@pytest.mark.parametrize("state", [None, {"n": 0}], ids=repr)
async def test_an_init_that_returns_a_state_decides(state: Any) -> None:
    stack = Watched(
        layer("a", init=returning({"state": state})), storage=InMemoryStorage({"layers/a/t1/state": {"n": 4}})
    )

    assert await state_after(stack) == state


async def test_what_was_loaded_is_neither_written_back_nor_a_conflict() -> None:
    class Counting(InMemoryStorage):
        writes = 0

        async def set(self, key: str, value: Any) -> None:
            self.writes += 1
            await super().set(key, value)

    storage = Counting({"layers/counter/t1/state": {"n": 4}})
    stack = Watched(counter("thread"), storage=storage)
    await state_after(stack)
    await stack.state.flush("e1")
    assert storage.writes == 0

    await stack.store(CTX, response={"items": [], "usage": {}}, log=())

    assert await storage.get("layers/counter/t1/state") == {"n": 5}
    assert stack.notes == []


class Unreadable(InMemoryStorage):
    """Cannot read."""

    async def get(self, key: str) -> Any:
        raise OSError("unreadable")


class Hanging(InMemoryStorage):
    """Never answers."""

    async def get(self, key: str) -> Any:
        await asyncio.Event().wait()


async def test_a_state_that_cannot_be_read_fails_the_execution_before_it_is_replaced() -> None:
    stack = Watched(counter("thread"), storage=Unreadable())

    with pytest.raises(OSError, match="unreadable"):
        await stack.init(CTX)
    assert stack.told == [("counter", "init")]


async def test_a_layer_whose_state_cannot_be_read_is_disabled_where_it_says_so() -> None:
    stack = Watched(counter("thread", on_init_error="disable"), storage=Unreadable())

    await stack.init(CTX)

    assert not stack.runs(stack.layers[0], "e1")


@pytest.mark.virtual_time
async def test_a_store_that_hangs_ends_at_the_limit_of_an_init() -> None:
    stack = Watched(counter("thread"), storage=Hanging())

    with pytest.raises(TimeoutError, match="init"):
        await stack.init(CTX)


async def test_a_guard_without_an_init_knows_its_state_in_a_child() -> None:
    def guard(call: Any) -> dict[str, Any]:
        return {"decision": {"action": "deny", "guidance": "enough"}} if call.state == {"used": True} else {}

    paid: list[int] = []

    @nn.tool
    def pay(amount: int) -> str:
        """Pay someone."""
        paid.append(amount)
        return "paid"

    step = nn.spawn("s", nn.step.tool("pay", pay, {"amount": 1}, takes_input=False), memory=[])
    once = layer("once", before_tool_call=guard)
    harness = nn.AgentHarness(
        nn.AgentConfig(name="a", step=step, memory=[once]),
        storage=InMemoryStorage({"layers/once/t1/state": {"used": True}}),
    )

    with pytest.raises(nn.NoeticError, match="enough"):
        await harness.execute("pay", thread_id="t1")
    assert paid == []


async def test_an_edit_within_an_execution_reaches_a_layer_that_has_no_state_yet() -> None:
    harness = agent(None, counter("thread"))

    async with harness.execution(thread_id="t1") as ctx:
        await harness.memory("t1").edit("counter", {"n": 40})
        await harness.run(harness.config.step, "hi", ctx)

    assert await harness.memory("t1").state("counter") == {"n": 41}


async def test_a_state_that_cannot_be_copied_costs_its_layer_the_store_and_not_the_turn() -> None:
    stored: list[str] = []
    stack = Watched(
        layer("locked", init=lambda p: {"state": {"lock": threading.Lock()}}, store=count),
        layer("beside", store=lambda p: stored.append("beside")),
    )
    await stack.init(CTX)

    await stack.store(CTX, response={"items": [], "usage": {}}, log=())

    assert (stack.told, stored) == ([("locked", "store")], ["beside"])
