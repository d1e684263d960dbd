"""Where Python cannot start threads, as in a browser: what waits for one elsewhere is done on the spot."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from pathlib import Path

import pytest

import noetic_nb as nn
from noetic_nb._core.nested_loop import run_nested
from noetic_nb.errors import NoeticConfigError
from noetic_nb.layers._helpers.collaborators import as_embedder
from noetic_nb.lessons import check
from noetic_nb.steering._predicates.in_thread import in_thread
from noetic_nb.storage import SQLiteStorage
from noetic_nb.sync import run_sync

WHO = contextvars.ContextVar("WHO", default="nobody")


@pytest.fixture(autouse=True)
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(sys, "platform", "emscripten")
    monkeypatch.setattr(threading.Thread, "start", refused)


async def test_run_sync_runs_on_the_spot_with_the_same_context_and_gives_the_loop_back() -> None:
    async def who() -> str:
        await asyncio.sleep(0.001)
        return WHO.get()

    WHO.set("ann")
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    assert run_sync(who()) == "ann"
    assert (asyncio.get_running_loop(), asyncio.current_task()) == (loop, task)
    async with asyncio.timeout(10):
        await asyncio.sleep(0)


async def test_run_sync_within_run_sync_works() -> None:
    async def inner() -> int:
        await asyncio.sleep(0)
        return 42

    async def outer() -> int:
        return run_sync(inner())

    assert run_sync(outer()) == 42


async def test_errors_pass_through_and_what_is_left_behind_is_cancelled() -> None:
    left: list[asyncio.Task[None]] = []

    async def fail() -> None:
        left.append(asyncio.create_task(asyncio.sleep(3600)))
        await asyncio.sleep(0)
        raise KeyError("order")

    with pytest.raises(KeyError, match="order"):
        run_nested(fail())
    assert left[0].cancelled()
    assert asyncio.current_task() is not None


async def test_what_only_the_loop_outside_can_bring_is_refused() -> None:
    never = asyncio.get_running_loop().create_future()

    async def wait() -> None:
        await asyncio.wait_for(asyncio.Event().wait(), None)

    with pytest.raises(NoeticConfigError) as caught:
        run_sync(wait())
    assert caught.value.code == "NO_THREADS"
    assert not never.done()


async def test_a_check_of_a_lesson_runs_agents_inside_of_a_cell() -> None:
    assert not check("1.2", list)
    assert check("1.2", lambda: [nn.semantic_recall(min_score=0.05, budget={"min": 0, "max": 60})])


async def test_a_rule_in_a_thread_of_its_own_decides_and_fails_closed() -> None:
    def ends_the_program() -> None:
        raise SystemExit

    assert await in_thread(pow, 2, 5) == 32
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 / 0)
    with pytest.raises(RuntimeError, match="SystemExit"):
        await in_thread(ends_the_program)


async def test_sqlite_keeps_what_is_written_and_says_what_fails(tmp_path: Path) -> None:
    async with SQLiteStorage(tmp_path / "desk.db") as store:
        await asyncio.gather(*(store.set(f"k{n}", n) for n in range(20)))
        await store.set_many({"a": 1}, delete=["k0"])
        with pytest.raises(nn.NoeticError) as caught:
            await store.compare_and_set("a", None, 2)
        assert caught.value.kind == "state_conflict"
    with pytest.raises(nn.NoeticError, match="closed"):
        await store.set("late", 1)
    async with SQLiteStorage(tmp_path / "desk.db") as again:
        assert await again.list("") == sorted(["a", *(f"k{n}" for n in range(1, 20))])


async def test_an_async_embedder_is_tried_at_its_first_use() -> None:
    calls: list[int] = []

    async def embed(texts: list[str]) -> list[list[float]]:
        calls.append(len(texts))
        return [[1.0] for _ in texts]

    as_embedder(embed)

    assert calls == []
