"""Stores run concurrently and independently; only those that wait need a task."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from noetic_nb.memory import LayerStack
from noetic_nb.memory._hooks.lifecycle import side_by_side
from noetic_nb.models import ScriptedModel
from noetic_nb.models._client import ModelResponse
from noetic_nb.runtime import AgentConfig, AgentHarness
from noetic_nb.steps import react
from noetic_nb.sync import protected
from tests.memory.stacks import CTX, layer

WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


@contextmanager
def tasks_noted() -> Iterator[list[str]]:
    """Return the names of the coroutines that become tasks of the running loop meanwhile."""
    loop, made = asyncio.get_running_loop(), []

    def note(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(coro.__qualname__)
        return asyncio.Task(coro, loop=loop, **options)

    loop.set_task_factory(note)
    try:
        yield made
    finally:
        loop.set_task_factory(None)


def called(function: Any) -> Any:
    return function()


def store_of(seen: list[str], name: str) -> Any:
    async def store(p: Any) -> dict[str, Any]:
        seen.append(name)
        return {"state": {"by": name}}

    return store


async def test_stores_that_wait_for_nothing_run_in_the_task_of_the_caller() -> None:
    seen: list[str] = []
    stack = LayerStack([layer("a", store=store_of(seen, "a")), layer("b", store=store_of(seen, "b"))])
    with tasks_noted() as made:
        await stack.init(CTX)
        await stack.store(CTX, response=ModelResponse(()), log=())
        await stack.complete(CTX, log=(), outcome="success")
        states = stack.state.states("e1")
        await stack.dispose(CTX)

    assert (seen, {*made}) == (["a", "b"], set())
    assert states == {"a": {"by": "a"}, "b": {"by": "b"}}


async def test_those_behind_one_that_waits_run_while_it_waits() -> None:
    order: list[str] = []
    go = asyncio.Event()

    async def first() -> str:
        order.append("first begins")
        await go.wait()
        order.append("first ends")
        return "first"

    async def second() -> str:
        order.append("second")
        go.set()
        return "second"

    assert await side_by_side(called, [first, second]) == ["first", "second"]
    assert order == ["first begins", "second", "first ends"]


async def test_a_time_limit_within_one_ends_only_that_one() -> None:
    forever = asyncio.Event()

    async def limited() -> str:
        try:
            async with asyncio.timeout(0.001):
                await forever.wait()
        except TimeoutError:
            return "out of time"
        return "never"

    async def other() -> str:
        await asyncio.sleep(0)
        return "done"

    assert await side_by_side(called, [other, limited, limited]) == ["done", "out of time", "out of time"]
    assert await side_by_side(called, [limited, other]) == ["out of time", "done"]
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_what_one_sets_in_its_context_is_its_own() -> None:
    seen: list[str] = []

    def call(name: str, *, waits: bool) -> Any:
        async def run() -> str:
            seen.append(WHO.get())
            token = WHO.set(name)
            if waits:
                await asyncio.sleep(0)
            found = WHO.get()
            WHO.reset(token)
            WHO.set(f"left by {name}")
            return found

        return run

    calls = [call("a", waits=False), call("b", waits=True), call("c", waits=False), call("d", waits=True)]
    assert await side_by_side(called, calls) == ["a", "b", "c", "d"]
    assert (seen, WHO.get()) == (["nobody"] * 4, "nobody")


async def test_a_cancellation_reaches_all_of_them() -> None:
    ended: list[str] = []

    def call(name: str) -> Any:
        async def run() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append(name)
                raise

        return run

    task = asyncio.ensure_future(side_by_side(called, [call("a"), call("b")]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert sorted(ended) == ["a", "b"]


async def test_what_is_protected_runs_to_its_end_when_its_caller_is_cancelled() -> None:
    begun, go, ended = asyncio.Event(), asyncio.Event(), []

    async def work() -> None:
        begun.set()
        await go.wait()
        ended.append("work")

    task = asyncio.ensure_future(protected(work(), "Working"))
    await begun.wait()
    task.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert ended == ["work"]


async def test_a_hook_that_ends_an_execution_begins_in_the_task_it_ends_in() -> None:
    tasks: list[Any] = []

    async def dispose(p: Any) -> None:
        tasks.append(asyncio.current_task())
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        tasks.append(asyncio.current_task())

    config = AgentConfig(name="n", step=react(model="m"), memory=[layer("a", dispose=dispose)])
    harness = AgentHarness(config, model=ScriptedModel(["a"]))
    turn = asyncio.ensure_future(harness.execute("Hi", thread_id="t1"))
    await turn

    assert tasks[0] is tasks[1] is not turn


async def test_a_turn_that_is_cancelled_while_it_closes_closes_all_the_same() -> None:
    closing, go, seen = asyncio.Event(), asyncio.Event(), []

    async def waits(p: Any) -> None:
        closing.set()
        await go.wait()
        seen.append("dispose of b")

    layers = [layer("a", dispose=lambda p: seen.append("dispose of a")), layer("b", dispose=waits)]
    harness = AgentHarness(AgentConfig(name="n", step=react(model="m"), memory=layers), model=ScriptedModel(["a"]))
    turn = asyncio.ensure_future(harness.execute("Hi", thread_id="t1"))
    await closing.wait()
    turn.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await turn

    assert seen == ["dispose of b", "dispose of a"]
