"""Eventual layers make a call wait at most once, and their offers follow every write of their state."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

from noetic_nb.items import item_text
from noetic_nb.memory import LayerStack, LayerStateStore
from noetic_nb.storage import InMemoryStorage
from noetic_nb.testing import drive_loop
from tests.memory.stacks import CTX, RESPONSE, Watched, context, layer


class Counting:
    """An eventual layer that shows its state and counts its recalls."""

    def __init__(self, *, seconds: float = 0.0, scope: Any = "thread") -> None:
        self.asked: list[Any] = []
        self.seconds = seconds
        self.layer = layer("ev", scope=scope, recall_mode="eventual", recall=self.recall, store=self.store)

    async def recall(self, p: Any) -> Any:
        self.asked.append(p.state)
        if self.seconds:
            await asyncio.sleep(self.seconds)
        return None if p.state == "nothing" else f"value {p.state}"

    def store(self, p: Any) -> Any:
        return {"state": (p.state or 0) + 1}


async def shown(stack: Watched, ctx: Any = CTX) -> list[str]:
    entries = await stack.recall(ctx, budgets={}, mode="cached")
    return [item_text(entry.items[0]) for entry in entries]


async def test_eventual_recall_serves_its_last_value_and_is_refreshed_after_store() -> None:
    counting = Counting()
    stack = Watched(counting.layer)

    assert await shown(stack) == ["value None"]
    assert await shown(stack) == ["value None"]
    await stack.store(CTX, response=RESPONSE, log=())
    await stack.settle()
    assert await shown(stack) == ["value 1"]

    assert counting.asked == [None, 1]


def test_defect_10_eventual_recall_waits_only_when_cold() -> None:
    async def run() -> list[float]:
        counting = Counting(seconds=3)
        stack = Watched(counting.layer)
        loop = asyncio.get_running_loop()
        waits = []
        for _ in range(3):
            before = loop.time()
            await shown(stack)
            waits.append(loop.time() - before)
            stack.state.set("e1", "ev", len(waits))
        await stack.settle()
        return waits

    assert drive_loop(run()) == [3.0, 0.0, 0.0]


async def test_defect_10_any_write_of_the_state_refreshes_an_eventual_value() -> None:
    counting = Counting()
    stack = Watched(counting.layer)
    await shown(stack)

    stack.state.set("e1", "ev", "set by a function")
    await stack.settle()

    assert await shown(stack) == ["value set by a function"]


async def test_defect_10_a_value_that_becomes_nothing_is_not_served_again() -> None:
    counting = Counting()
    stack = Watched(counting.layer)
    assert await shown(stack) == ["value None"]

    stack.state.set("e1", "ev", "nothing")
    await stack.settle()

    assert await shown(stack) == []


async def test_a_write_before_the_first_recall_of_an_execution_refreshes_the_value_of_the_thread() -> None:
    counting = Counting()
    stack = Watched(counting.layer)
    await stack.init(CTX)
    await shown(stack)
    await stack.dispose(CTX)
    second = context("e2")

    await stack.init(second)
    stack.state.set("e2", "ev", "new")
    await stack.settle()

    assert await shown(stack, second) == ["value new"]


async def test_a_state_that_was_changed_in_storage_meanwhile_is_seen_after_the_next_init() -> None:
    storage = InMemoryStorage({"layers/ev/t1/state": "old"})

    async def init(p: Any) -> Any:
        return {"state": await p.storage.get("state")}

    counting = Counting()
    made = counting.layer.with_hooks(init=init)
    stack = Watched(made, storage=storage)
    await stack.init(CTX)
    assert await shown(stack) == ["value old"]
    await stack.dispose(CTX)
    await storage.set("layers/ev/t1/state", "new")

    second = context("e2")
    await stack.init(second)
    await stack.settle()

    assert await shown(stack, second) == ["value new"]
    assert counting.asked == ["old", "new"]


async def test_two_threads_have_values_of_their_own() -> None:
    counting = Counting()
    stack = Watched(counting.layer)
    other = context("e9", "t9")
    stack.state.set("e1", "ev", "one")
    stack.state.set("e9", "ev", "nine")

    assert await shown(stack) == ["value one"]
    assert await shown(stack, other) == ["value nine"]
    stack.state.set("e9", "ev", "ten")
    await stack.settle()
    assert (await shown(stack), await shown(stack, other)) == (["value one"], ["value ten"])


async def test_forcing_atomic_recall_asks_an_eventual_layer_every_time() -> None:
    counting = Counting()
    stack = Watched(counting.layer, force_atomic_recall=True)

    await shown(stack)
    await shown(stack)

    assert len(counting.asked) == 2


async def test_defect_10_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noetic_nb.memory._hooks.recall.CACHE_ENTRIES", 8)
    stack = Watched(Counting().layer)

    for n in range(50):
        await shown(stack, context(f"e{n}", f"t{n}"))

    assert (len(stack._eventual._cache), len(stack._eventual._last_params)) == (8, 8)


async def test_a_stack_that_is_gone_listens_no_more() -> None:
    state = LayerStateStore()
    stack = LayerStack([Counting().layer], state=state)
    await stack.recall(CTX, budgets={}, mode="cached")
    assert len(state._listeners) == 1

    del stack
    gc.collect()
    state.set("e1", "ev", 1)

    assert state._listeners == []


async def test_a_failing_refresh_is_a_diagnostic_and_the_next_recall_asks_anew() -> None:
    fails: list[bool] = []

    def recall(p: Any) -> str:
        if fails:
            raise RuntimeError("boom")
        return f"value {p.state}"

    stack = Watched(layer("ev", recall_mode="eventual", recall=recall))
    await shown(stack)
    fails.append(True)
    stack.state.set("e1", "ev", 1)
    await stack.settle()
    assert stack.told == [("ev", "recall")]
    fails.clear()

    assert await shown(stack) == ["value 1"]


async def test_a_state_that_is_written_by_another_thread_is_seen_by_the_next_recall() -> None:
    stack = Watched(Counting().layer)
    stack.state.set("e1", "ev", 1)
    assert await shown(stack) == ["value 1"]

    writer = threading.Thread(target=stack.state.set, args=("e1", "ev", 2))  # no loop to refresh the value on
    writer.start()
    writer.join()

    assert await shown(stack) == ["value 2"]


async def test_a_value_that_is_used_outlasts_those_that_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noetic_nb.memory._hooks.recall.CACHE_ENTRIES", 3)
    counting = Counting()
    stack = Watched(counting.layer)
    first, *others = [context(f"e{n}", f"t{n}") for n in range(6)]

    for ctx in others:
        await shown(stack, first)
        await shown(stack, ctx)

    assert len(counting.asked) == 6, "the first, used between all others, is asked once"
    await shown(stack, others[0])
    assert len(counting.asked) == 7, "one that nobody used has been forgotten"
