"""The effects of a `store` do not depend on whether the run has a subscriber."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from noetic_nb.memory import ExecutionContext, LayerStack, LayerStateStore, MemoryHooks, MemoryLayer, Stop
from noetic_nb.memory._layer import DEFAULT_TIMEOUTS_MS
from noetic_nb.memory._state.state_copy import deep_copy
from tests.memory.stacks import Seen

CTX = ExecutionContext(execution_id="e1", thread_id="t1", turn=1)
STOP = Stop({"kind": "enough"}, "That is enough.")


@dataclass
class Result:
    state: Any


class Later:
    """An awaitable that is not a coroutine."""

    def __await__(self) -> Any:
        yield from asyncio.sleep(0).__await__()
        return {"state": {"n": 7}}


class AtOnce:
    def __await__(self) -> Any:
        yield from ()
        return {"state": {"n": 8}}


async def at_once(p: Any) -> Any:
    p.state["n"] += 1
    return {"state": p.state}


async def waits(p: Any) -> Any:
    await asyncio.sleep(0)
    return {"state": {"n": 3}}


async def fails_late(p: Any) -> Any:
    await asyncio.sleep(0)
    raise KeyError("late")


async def hangs(p: Any) -> Any:
    await asyncio.Event().wait()


def fails(p: Any) -> Any:
    raise KeyError("at once")


STORES: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda p: None,
    "no state": lambda p: {},
    "a cleared state": lambda p: {"state": None},
    "a state": lambda p: {"state": {"n": 1}},
    "a record": lambda p: Result({"n": 2}),
    "a record without": lambda p: SimpleNamespace(),
    "at once": at_once,
    "waits": waits,
    "an awaitable": lambda p: Later(),
    "one that is done": lambda p: AtOnce(),
    "fails": fails,
    "fails late": fails_late,
    "a wrong result": lambda p: ["n"],
    "a text": lambda p: "n",
    "a stop": lambda p: {"stop": STOP, "state": {"n": 4}},
    "hangs": hangs,
}


async def outcome(store: Callable[[Any], Any], *, followed: bool, timeouts: Any = None) -> Any:
    told: list[Any] = []
    states = LayerStateStore(lambda layer_id, hook, error: told.append((layer_id, hook, type(error).__name__)))
    hooks = MemoryHooks(init=lambda p: {"state": {"n": 0}}, store=store)
    beside = MemoryHooks(init=lambda p: {"state": {"n": 0}}, store=at_once)
    layer = MemoryLayer(id="notes", slot=1, scope="thread", hooks=hooks, timeouts=timeouts or {})
    other = MemoryLayer(id="other", slot=2, scope="thread", hooks=beside)
    stack = LayerStack([layer, other], state=states, sink=Seen() if followed else None)
    await stack.init(CTX)
    await stack.store(CTX, response={"items": []}, log=())
    return states.states("e1"), told, stack.take_stop(CTX)


@pytest.mark.parametrize("name", STORES)
async def test_a_store_leads_to_the_same_whoever_follows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Milliseconds; only a hook that never ends may reach its limit, however slow the machine is.
    limit = 5.0 if name == "hangs" else 60_000.0
    monkeypatch.setitem(DEFAULT_TIMEOUTS_MS, "store", limit)

    alone = await outcome(STORES[name], followed=False)

    assert alone == await outcome(STORES[name], followed=True)
    assert alone == await outcome(STORES[name], followed=False, timeouts={"store": limit})
    assert alone[0]["other"] == {"n": 1}
    failed = {"fails": "KeyError", "fails late": "KeyError", "hangs": "HookTimeout"}
    failed |= dict.fromkeys(["a wrong result", "a text"], "TypeError")
    assert alone[1] == ([("notes", "store", failed[name])] if name in failed else [])
    assert alone[2] is (STOP if name == "a stop" else None)


async def test_a_layer_that_is_disabled_stores_no_more() -> None:
    stored: list[str] = []
    states = LayerStateStore()
    hooks = MemoryHooks(store=lambda p: stored.append("called"))
    stack = LayerStack([MemoryLayer(id="notes", slot=1, scope="thread", hooks=hooks)], state=states)
    await stack.store(CTX, response={"items": []}, log=())
    states.disable("e1", "notes")

    await stack.store(CTX, response={"items": []}, log=())

    assert stored == ["called"]


@pytest.mark.parametrize("state", [{"a": ["x"], "b": 1, "c": None}, {}, {"n": True}], ids=["list", "empty", "plain"])
def test_a_flat_state_is_copied_apart(state: dict[str, Any]) -> None:
    copied = deep_copy(state)

    assert copied == state
    assert copied is not state
    assert all(copied[key] is not value for key, value in state.items() if isinstance(value, list))


SHARED = ["x"]


@pytest.mark.parametrize(
    "state",
    [{"a": ["x"], "b": ["y"]}, {"a": SHARED, "b": SHARED}, {1: "x"}, {"a": [["x"]]}, {"a": {"b": 1}}, {"a": 1.5}],
    ids=["two lists", "one list twice", "no text as key", "deeper", "a mapping", "a fraction"],
)
def test_what_is_in_two_places_stays_in_two_places(state: Any) -> None:
    copied = deep_copy(state)
    assert copied == state
    assert (copied.get("a") is copied.get("b")) == (state.get("a") is state.get("b"))
