"""Concurrent steps in one execution, from the user's own tasks, do not block or replace one another."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.runtime._execution import run_step
from noetic_nb.steps import branch, fork, step
from noetic_nb.testing import drive_loop
from tests.runtime.factories import make_harness, record_events

pytestmark = pytest.mark.virtual_time


async def _later(value: Any, ctx: Any) -> Any:
    await asyncio.sleep(0.01)
    return value


@pytest.mark.parametrize("is_followed", [False, True])
def test_many_steps_side_by_side_are_no_nesting(is_followed: bool) -> None:
    harness = make_harness([])
    if is_followed:
        record_events(harness)

    async def main() -> list[int]:
        async with harness.execution() as ctx:
            return await asyncio.gather(*[harness.run(step.run(f"r{n}", _later), n, ctx) for n in range(200)])

    assert drive_loop(main()) == list(range(200))


@pytest.mark.parametrize("is_followed", [False, True])
def test_a_step_within_itself_is_found_beside_others(is_followed: bool) -> None:
    harness = make_harness([])
    if is_followed:
        record_events(harness)
    endless: Any = branch("again", lambda value, ctx: endless)

    async def main() -> None:
        async with harness.execution() as ctx:
            others = [asyncio.create_task(harness.run(step.run(f"r{n}", _later), n, ctx)) for n in range(80)]
            await asyncio.sleep(0)
            with pytest.raises(nn.NoeticError, match="nested more than 64"):
                await harness.run(endless, 1, ctx)
            await asyncio.gather(*others)

    drive_loop(main())


def test_a_recursion_through_tasks_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        run_step, "MAX_RUNNING", 10**9
    )  # nesting is detected across tasks; this limit is for parallel steps
    harness = make_harness([])

    async def again(value: Any, ctx: Any) -> Any:
        return await asyncio.create_task(ctx.run(step.run("again", again), value))

    async def main() -> None:
        async with harness.execution() as ctx:
            await harness.run(step.run("again", again), 1, ctx)

    with pytest.raises(nn.NoeticError, match="nested"):
        drive_loop(main())


def test_steps_of_a_child_are_not_nested_in_those_of_its_parent() -> None:
    harness = make_harness([])

    def nested(depth: int, inner: Any) -> Any:
        for n in range(depth):
            inner = branch(f"b{n}", lambda value, ctx, inner=inner: inner)
        return inner

    async def main() -> Any:
        async with harness.execution() as ctx:
            return await harness.run(nested(50, nn.spawn("child", nested(50, step.run("last", _later)))), 7, ctx)

    assert drive_loop(main()) == 7


def test_steps_side_by_side_have_places_of_their_own() -> None:
    harness = make_harness([])
    events = record_events(harness)

    async def both(value: Any, ctx: Any) -> list[Any]:
        return await asyncio.gather(*[ctx.run(step.run(f"o{n}", _later), n) for n in range(3)])

    async def main() -> None:
        async with harness.execution() as ctx:
            await harness.run(step.run("outer", both), None, ctx)
            await harness.run(step.run("after", _later), None, ctx)

    drive_loop(main())

    places = [event.path for event in events.of("step_started")]
    assert places == ["/outer#1", "/outer#1/o0#1", "/outer#1/o1#1", "/outer#1/o2#1", "/after#1"]


class Failure(BaseException):
    """Raised like the failure of a test runner."""


def _raises(value: Any, ctx: Any) -> Any:
    raise Failure("must not run")


@pytest.mark.parametrize("mode", ["all", "settle", "race"])
def test_what_is_no_exception_leaves_a_fork_as_it_is(mode: Any) -> None:
    harness = make_harness([])
    more = {} if mode == "race" else {"merge": lambda results, ctx: results}
    ended: list[str] = []

    async def slow(value: Any, ctx: Any) -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            ended.append("slow")

    async def main() -> None:
        async with harness.execution() as ctx:
            await harness.run(fork("f", mode=mode, paths=[step.run("s", slow), step.run("r", _raises)], **more), 1, ctx)

    with pytest.raises(Failure):
        drive_loop(main())
    assert ended == ["slow"]


def _both(harness: nn.AgentHarness, mode: Any, seconds: float) -> tuple[Any, float]:
    """Run a fork of a slow path and one that cancels itself; return the outcome and the duration."""

    async def gives_up(value: Any, ctx: Any) -> None:
        raise asyncio.CancelledError("enough")

    async def slow(value: Any, ctx: Any) -> str:
        await asyncio.sleep(seconds)
        return "slow"

    async def main() -> tuple[Any, float]:
        began = asyncio.get_running_loop().time()
        more = {} if mode == "race" else {"merge": lambda results, ctx: [result["status"] for result in results]}
        both = fork("f", mode=mode, paths=[step.run("g", gives_up), step.run("s", slow)], **more)
        async with harness.execution() as ctx:
            try:
                made: Any = await harness.run(both, 1, ctx)
            except nn.NoeticError as exc:
                made = exc
        return made, asyncio.get_running_loop().time() - began

    return drive_loop(main())


def test_a_path_that_cancels_itself_has_failed() -> None:
    error, took = _both(make_harness([]), "all", 3_600)

    assert took < 1
    assert error.kind == "fork_partial"
    assert [failed.error.kind for failed in error.failed] == ["cancelled", "cancelled"]
    assert "enough" in str(error.failed[0].error.reason)


def test_the_other_paths_go_on_where_failures_are_taken_as_they_come() -> None:
    assert _both(make_harness([]), "settle", 5)[0] == ["rejected", "fulfilled"]
    assert _both(make_harness([]), "race", 5)[0] == "slow"


def test_paths_whose_values_do_not_compare_are_told_apart() -> None:
    class Odd:
        def __eq__(self, other: object) -> Any:
            raise ValueError("the truth value is ambiguous")

        __hash__ = None  # type: ignore[assignment]

    same = step.run("same", lambda value, ctx: Odd())
    harness = make_harness([])
    events = record_events(harness)

    async def main() -> int:
        async with harness.execution() as ctx:
            step_ = fork("f", mode="all", paths=[same, same], concurrency=1, merge=lambda results, ctx: len(results))
            found: int = await harness.run(step_, Odd(), ctx)
            return found

    assert drive_loop(main()) == 2
    assert [e.path for e in events.of("step_started")][1:] == ["/f#1/[0]/same#1", "/f#1/[1]/same#1"]


def adding() -> nn.MemoryLayer:
    """Return a layer that is slow to count the children merged into it."""

    async def on_return(p: Any) -> Any:
        await asyncio.sleep(0.01)
        return {"parent_state": {"n": p.parent_state["n"] + 1}}

    hooks = nn.MemoryHooks(
        init=lambda p: {"state": {"n": 0}}, on_spawn=lambda p: {"child_state": {"n": 0}}, on_return=on_return
    )
    return nn.MemoryLayer(id="count", slot=100, scope="execution", hooks=hooks)


@pytest.mark.parametrize("checkpoints", [False, True])
@pytest.mark.parametrize("other", ["start", "spawn", "fork"])
async def test_children_that_come_back_together_do_not_overwrite_each_other(other: str, checkpoints: bool) -> None:
    harness = nn.AgentHarness(nn.AgentConfig(name="a", memory=[adding()]), checkpoints=checkpoints)
    child = nn.step.run("c", lambda value, ctx: "x")
    async with harness.execution() as ctx:
        first = ctx.start(child)
        if other == "start":
            await ctx.start(child).result()
        elif other == "spawn":
            await ctx.run(nn.spawn("s", child))
        else:
            await ctx.run(nn.fork("f", mode="all", paths=[child], merge="last"))
        await first.result()

        assert harness._stack.state.get(ctx.id, "count") == {"n": 2}
