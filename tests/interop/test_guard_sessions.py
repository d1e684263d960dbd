"""Calls that count together: those of a session, and by default those of one tree of tasks."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from anyio import to_thread

import noetic_nb as nn
from tests.interop.guard_tools import DONE, called, pay, pay_later


@pytest.fixture(autouse=True)
def nothing_done() -> Any:
    DONE.clear()
    with nn.guard_session("t1"):
        yield


def once() -> nn.RuleBook:
    book = nn.RuleBook()
    book.when("history.exists(c, c.ok || c.status == 'pending')", id="once", guidance="Once.")
    return book


def test_each_session_has_a_history_of_its_own_and_goes_on_where_it_was() -> None:
    guarded = nn.guard(pay, once(), on_deny="return")
    first, second = nn.guard_session("a"), nn.guard_session("b")

    with first:
        assert guarded(1) == "paid 1 to bank"
    with second:
        assert guarded(2) == "paid 2 to bank"
    with first:
        assert "Once." in guarded(3)
    assert [event.where.thread_id for event in called(guarded)] == ["a", "b", "a"]


def outside(work: Any) -> Any:
    """Run a coroutine without an open session, in its own loop."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(work)))
    thread.start()
    thread.join()
    return found[0]


def test_without_a_session_sibling_tasks_share_a_history_and_two_trees_do_not() -> None:
    guarded = nn.guard(pay_later, once(), on_deny="return")

    async def agent() -> Any:
        # Like frameworks: one task per call, all created before any of them knows of a session.
        return await asyncio.gather(*[asyncio.create_task(guarded(amount)) for amount in (1, 2)])

    for _ in range(2):
        first, second = outside(agent())
        assert first == "paid 1 to bank"
        assert "Once." in second


def test_a_tool_in_a_thread_of_the_agent_shares_its_history() -> None:
    slow, quick = nn.guard([pay, pay_later], once(), on_deny="return")

    async def agent() -> Any:
        return await asyncio.to_thread(slow, 1), await quick(2)

    first, second = outside(agent())
    assert first == "paid 1 to bank"
    assert "Once." in second


def test_tools_in_many_threads_write_one_history() -> None:
    book = nn.RuleBook()

    @book.rule(on="before_tool_call")
    def three(call: Any) -> Any:
        return nn.deny("Enough.") if len(call.history) >= 3 else None

    guarded = nn.guard(pay, book, on_deny="return")
    threads = [threading.Thread(target=lambda: [guarded(1) for _ in range(20)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert DONE == [1, 1, 1]
    assert sorted(event.place for event in called(guarded)) == list(range(160))


def test_calls_decided_on_at_the_same_time_see_one_another() -> None:
    book = nn.RuleBook()

    @book.rule(on="before_tool_call")
    async def slow(call: Any) -> Any:
        await asyncio.sleep(0)
        return nn.deny("Once.") if call.history else None

    guarded = nn.guard(pay_later, book, on_deny="return")

    async def agent() -> Any:
        return await asyncio.gather(guarded(1), guarded(2))

    first, second = nn.run_sync(agent())
    assert first == "paid 1 to bank"
    assert "Once." in second
    assert {event.call_id: event.behind for event in called(guarded)}


def test_statuses_in_the_history_are_those_of_our_harness() -> None:
    book, seen = nn.RuleBook(), []

    @book.rule(on="before_tool_call")
    def look(call: Any) -> Any:
        seen.append([past.status for past in call.history])
        return nn.guide("Less.") if call.tool_args["amount"] == 2 else None

    def pay(amount: int) -> str:
        if amount == 3:
            raise OSError("full")
        return "paid"

    guarded = nn.guard(pay, book, on_deny="return")
    guarded(1), guarded(2), guarded("x")
    with pytest.raises(OSError, match="full"):
        guarded(3)
    guarded(4)

    assert seen[-1] == ["ok", "guided", "invalid_args", "error"]


# -- two event loops at the same time --------------------------------------------------------------------------------------


def both(agent: Callable[[str], Any]) -> list[Any]:
    """Run an agent in two loops that advance alternately; return their calls."""
    found: dict[str, Any] = {}

    def run(name: str) -> None:
        found[name] = asyncio.run(agent(name))

    threads = [threading.Thread(target=run, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [found["a"], found["b"]]


async def in_anyio(tool: Any, amount: int) -> Any:
    return await to_thread.run_sync(tool, amount)


async def direct(tool: Any, amount: int) -> Any:
    return tool(amount)


async def awaited(tool: Any, amount: int) -> Any:
    return await tool(amount)


CALLS: dict[str, tuple[Any, Any]] = {
    "thread": (pay, asyncio.to_thread),
    "anyio": (pay, in_anyio),
    "here": (pay, direct),
    "async": (pay_later, awaited),
}


@pytest.mark.parametrize("second", CALLS)
@pytest.mark.parametrize("first", CALLS)
def test_the_calls_of_a_loop_and_of_its_threads_count_in_its_own_session(first: str, second: str) -> None:
    book = nn.RuleBook()
    book.at_most(1, ["pay", "pay_later"])
    guarded = dict(zip(CALLS, nn.guard([tool for tool, _ in CALLS.values()], book, on_deny="return"), strict=True))
    barrier = threading.Barrier(2)

    async def agent(name: str) -> list[str]:
        said = []
        for way in (first, second):
            await asyncio.to_thread(barrier.wait, 60)
            said.append(await CALLS[way][1](guarded[way], 1))
        await asyncio.to_thread(barrier.wait, 60)
        return said

    for one, other in both(agent):
        assert one == "paid 1 to bank"
        assert "at most once" in other
    threads = {event.where.thread_id for event in called(guarded["here"])}
    assert len(threads) == 2


def test_a_thread_that_may_belong_to_either_of_two_loops_is_refused_without_a_session() -> None:
    book = nn.RuleBook()
    book.at_most(1, ["pay", "pay_later"])
    sync, later = nn.guard([pay, pay_later], book, on_deny="return")
    barrier, pool = threading.Barrier(2), ThreadPoolExecutor(1)
    caught: list[Any] = []

    async def agent(name: str) -> Any:
        await later(1)
        await asyncio.to_thread(barrier.wait, 60)
        try:
            await asyncio.get_running_loop().run_in_executor(pool, sync, 2)
        except nn.NoeticConfigError as exc:
            caught.append(exc)
        with nn.guard_session(name):
            context = contextvars.copy_context()
            said = await asyncio.get_running_loop().run_in_executor(pool, context.run, sync, 3)
        await asyncio.to_thread(barrier.wait, 60)
        return said

    assert both(agent) == ["paid 3 to bank"] * 2
    assert [exc.code for exc in caught] == ["SEVERAL_SESSIONS"] * 2
    assert sorted(DONE) == [1, 1, 3, 3]


def test_a_thread_of_nobody_belongs_to_the_only_loop_there_is() -> None:
    sync, later = nn.guard([pay, pay_later], once(), on_deny="return")

    async def agent() -> Any:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as pool:
            return await later(1), await loop.run_in_executor(pool, sync, 2)

    for _ in range(2):
        first, second = outside(agent())
        assert first == "paid 1 to bank"
        assert "Once." in second
