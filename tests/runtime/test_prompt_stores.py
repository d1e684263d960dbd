"""The stores of this package are read and written without waiting where that is possible: nothing else is different."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.runtime._durability.checkpoints import TurnRecord
from noetic_nb.storage import InMemoryStorage, SQLiteStorage
from noetic_nb.testing import FakeClock, SeededIds
from tests.runtime.factories import texts


class Another(InMemoryStorage):
    """What is derived from a store may do what it likes, so it is asked and waited for like any other."""


@contextlib.asynccontextmanager
async def opened(kind: type[Any], folder: Path) -> AsyncIterator[Any]:
    if kind is SQLiteStorage:
        async with SQLiteStorage(folder / "desk.db") as store:
            yield store
    else:
        yield kind()


@nn.tool
def lookup(order_id: str) -> str:
    """Find an order."""
    return "packed"


def harness(store: Any, answer: Any, seed: int = 1, **more: Any) -> nn.AgentHarness:
    config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[lookup]), **more)
    clock, ids = FakeClock(), SeededIds(seed)
    return nn.AgentHarness(
        config, model=nn.ScriptedModel(answer), storage=store, checkpoints=True, clock=clock, ids=ids
    )


def said(harness: nn.AgentHarness) -> list[str]:
    return [text.partition(": ")[2] for text in texts(harness.log())]


async def contents(store: Any) -> dict[str, Any]:
    return {key: await store.get(key) for key in await store.list("")}


async def written(kind: type[Any], folder: Path, layers: list[Any]) -> list[dict[str, Any]]:
    """Return all that is in a store at each model call of two turns, and after them."""
    seen = []
    async with opened(kind, folder) as store:

        async def answer(request: Any) -> Any:
            seen.append(await contents(store))
            return (
                nn.CallTool("lookup", order_id="Ä17") if request.items[-1]["type"] == "message" else "Packed: ✓ \ud800."
            )

        talking = harness(store, answer, memory=layers)
        for said in ("Where is \ud83d it?", "Sure?"):
            assert (await talking.execute(said, thread_id="t~1:2", state={"n": 1.5})).saved
        seen.append(await contents(store))
    return seen


@pytest.mark.parametrize("layers", [[], [nn.working_memory()]], ids=["no layers", "a layer"])
@pytest.mark.parametrize("kind", [InMemoryStorage, SQLiteStorage])
async def test_what_is_written_is_the_same_as_in_a_store_of_ones_own(
    tmp_path: Path, kind: type[Any], layers: list[Any]
) -> None:
    expected = await written(Another, tmp_path, layers)

    assert len(expected) == 5
    assert all(expected)
    assert await written(kind, tmp_path, layers) == expected


@pytest.mark.parametrize("kind", [InMemoryStorage, SQLiteStorage, Another])
async def test_a_harness_hears_at_once_what_another_has_added(tmp_path: Path, kind: type[Any]) -> None:
    async with opened(kind, tmp_path) as store:
        one, other = harness(store, ["Yes."] * 2), harness(store, ["No."], 2)
        await one.execute("First?")
        await other.execute("Second?")
        await one.execute("Third?")

        assert said(one) == ["First?", "Yes.", "Second?", "No.", "Third?", "Yes."]


@pytest.mark.parametrize("kind", [InMemoryStorage, SQLiteStorage])
async def test_what_another_process_left_open_is_taken_in_by_a_thread_that_was_read(
    tmp_path: Path, kind: type[Any]
) -> None:
    async with opened(kind, tmp_path) as store:
        one = harness(store, ["Yes."] * 2)
        await one.execute("First?")

        async def dies(request: Any) -> Any:
            kept.update(await contents(store))
            return "No."

        kept: dict[str, Any] = {}
        await harness(store, dies, 2).execute("Second?")
        for key in await store.list(""):
            await store.delete(key)
        for key, value in kept.items():  # as it was when that process was killed in its model call
            await store.set(key, value)
        await one.execute("Third?")

        assert said(one) == ["First?", "Yes.", "Second?", "Third?", "Yes."]


async def test_nothing_is_left_of_the_record_of_a_turn_when_it_is_over() -> None:
    talking = harness(InMemoryStorage(), ["Yes."] * 2)
    await talking.execute("First?")
    gc.collect()
    gc.disable()  # what is left in a circle would stay
    try:
        others = [
            found for found in gc.get_objects() if type(found) is TurnRecord
        ]  # of turns that another test left open
        await talking.execute("Second?")
        left = [found for found in gc.get_objects() if type(found) is TurnRecord]
    finally:
        gc.enable()

    assert [found for found in left if not any(found is other for other in others)] == []
