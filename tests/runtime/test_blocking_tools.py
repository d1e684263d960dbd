"""Tools that are plain functions: they block neither the loop nor the stop button, and an interrupted call may have run."""

from __future__ import annotations

import asyncio
import contextvars
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb._core.worker_threads import Worker
from noetic_nb.events import ToolCalled, ToolProgress
from noetic_nb.steps import fork, loop, spawn, step, until
from noetic_nb.testing import drive_loop
from tests.runtime.factories import make_harness, outputs, record_events, started

WHO = contextvars.ContextVar("WHO", default="nobody")
CUT = "Error: cancelled; may have run"
PATIENCE_S = 30


class Gate:
    """A tool that waits until it is released and signals its start; `calls` are the arguments of its calls."""

    def __init__(self, **options: Any) -> None:
        self.calls: list[int] = []
        self.threads: list[int] = []
        self.begun, self.go, self.ended = asyncio.Event(), threading.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def work(n: int) -> str:
            """Work."""
            self.calls.append(n)
            self.threads.append(threading.get_ident())
            loop.call_soon_threadsafe(self.begun.set)
            assert self.go.wait(PATIENCE_S)
            self.ended.set()
            return f"did {n}"

        self.tool = nn.tool(work, **options)


def calls(*numbers: int, name: str = "work") -> list[nn.CallTool]:
    return [nn.CallTool(name, n=n) for n in numbers]


async def begun(gate: Gate) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await gate.begun.wait()


def where(log: list[Any], **options: Any) -> nn.Tool:
    def work(n: int) -> str:
        """Work."""
        log.append((threading.current_thread(), WHO.get()))
        WHO.set("changed")
        return str(n)

    return nn.tool(work, **options)


def own_step(tool: Any) -> Any:
    return step.tool("own", tool=tool, args={"n": 1}, takes_input=False)


SHAPES: dict[str, Callable[[Any], Any]] = {
    "react": lambda tool: nn.react(model="m", tools=[tool]),
    "tool step": own_step,
    "spawn": lambda tool: spawn("child", nn.react(model="m", tools=[tool])),
    "fork": lambda tool: fork("f", mode="all", paths=[nn.react(model="m", tools=[tool])], merge="first"),
    "started": lambda tool: started(own_step(tool)),
    "guarded": lambda tool: nn.react(model="m", tools=[nn.guard(tool, nn.RuleBook())]),
    "loop": lambda tool: loop("l", own_step(tool), until=until.max_steps(1)),
}


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
async def test_the_loop_is_free_while_a_plain_function_works(shape: str, is_streamed: bool) -> None:
    gate = Gate()
    harness = make_harness([calls(1), "done"], step=SHAPES[shape](gate.tool))
    turn = asyncio.ensure_future(harness.stream("go").reply if is_streamed else harness.execute("go"))

    await begun(gate)
    gate.go.set()
    await turn

    assert gate.calls == [1]
    assert gate.threads != [threading.get_ident()]


async def test_the_calls_of_a_turn_share_one_thread_that_ends_with_it_and_see_the_context() -> None:
    WHO.set("ann")
    seen: list[Any] = []
    harness = make_harness([calls(1, 2), calls(3), "done"], tools=[where(seen)])

    await harness.execute("go")

    threads = {thread for thread, _ in seen}
    assert (len(seen), len(threads), threads & {threading.main_thread()}) == (3, 1, set())
    assert [who for _, who in seen] == ["ann", "ann", "ann"]
    assert WHO.get() == "ann"
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


async def test_paths_of_a_fork_take_turns_in_that_thread() -> None:
    seen: list[Any] = []
    at_work: list[int] = []

    def work(n: int) -> int:
        """Work."""
        at_work.append(n)
        seen.append((threading.get_ident(), len(at_work)))
        at_work.remove(n)
        return n

    paths = [step.tool(f"p{n}", tool=nn.tool(work), args={"n": n}, takes_input=False) for n in range(4)]
    harness = make_harness([], step=fork("f", mode="all", paths=paths, merge=lambda found, ctx: sum(found)))

    reply = await harness.execute("go")

    assert reply.output == 6
    assert len({thread for thread, _ in seen}) == 1
    assert {at_once for _, at_once in seen} == {1}


async def test_what_takes_the_context_or_is_told_so_is_called_on_the_thread_of_the_loop() -> None:
    seen: dict[str, bool] = {}

    def note(name: str) -> str:
        seen[name] = threading.current_thread() is threading.main_thread()
        return name

    def inline() -> str:
        """Work."""
        return note("inline")

    def context(ctx: Any) -> str:
        """Work."""
        return note("context")

    async def asynchronous() -> str:
        """Work."""
        return note("asynchronous")

    def look(root: Any, state: Any, ctx: Any) -> Any:
        return {"result": note("look")}

    layer = nn.MemoryLayer(
        id="notes",
        slot=1,
        scope="execution",
        hooks=nn.MemoryHooks(recall=lambda p: note("recall") and None),
        provides={"look": nn.layer_fn(description="Look.", input=dict[str, str], output=str, execute=look)},
    )
    rules = nn.RuleBook()
    rules.rule(on="before_tool_call", id="sees")(lambda call: note("rule") and None)
    tools = [nn.tool(inline, inline=True), context, asynchronous]
    names = ["inline", "context", "asynchronous"]
    harness = make_harness(
        [[*map(nn.CallTool, names), nn.CallTool("notes/look")], "done"], tools=tools, memory=[layer, nn.steering(rules)]
    )

    reply = await harness.execute("go")

    assert outputs(reply.items) == [*names, "look"]
    assert seen == dict.fromkeys([*names, "look", "recall", "rule"], True)


# -- cut off ------------------------------------------------------------------------------------------------------------


async def stop_task(harness: nn.AgentHarness, turn: asyncio.Future[Any]) -> Any:
    turn.cancel()


async def stop_harness(harness: nn.AgentHarness, turn: asyncio.Future[Any]) -> Any:
    await harness.cancel()


@pytest.mark.parametrize("stop", [stop_task, stop_harness])
async def test_a_turn_ends_while_its_tool_works_and_the_log_says_what_may_have_run(stop: Any) -> None:
    gate = Gate()
    harness = make_harness([calls(1, 2, 3), "done", calls(4), "again"], tools=[gate.tool])
    events = record_events(harness)
    turn = asyncio.ensure_future(harness.execute("go"))
    await begun(gate)

    await stop(harness, turn)
    with pytest.raises((asyncio.CancelledError, nn.NoeticError)):
        await turn

    cut, *left = outputs(harness.log())
    assert cut.startswith(CUT)
    assert len(left) == 2
    assert all(text.startswith("Error: not run, ") for text in left)
    assert [(event.status, event.output) for event in events.of("tool_called")] == [("cancelled", cut)]
    assert harness.status().state == "idle"

    gate.go.set()
    harness = make_harness([calls(4), "again"], tools=[gate.tool])
    assert outputs((await harness.execute("go on")).items) == ["did 4"]
    assert gate.calls == [1, 4]


async def test_a_limit_of_time_cuts_a_plain_function_off() -> None:
    gate = Gate()
    harness = make_harness([calls(1, 2), "done"], tools=[gate.tool])

    with pytest.raises(nn.NoeticError) as caught:
        await harness.execute("go", limits={"max_duration_ms": 50})

    gate.go.set()
    assert caught.value.kind == "budget_exceeded"
    cut, left = outputs(harness.log())
    assert cut.startswith(CUT)
    assert left.startswith("Error: not run, ")


async def test_a_call_that_was_cut_off_counts() -> None:
    gate = Gate()
    rules = nn.RuleBook()
    rules.at_most(1, "work")
    memory = [nn.steering(rules, scope="thread")]
    harness = make_harness([calls(1), calls(2), "no"], tools=[gate.tool], memory=memory)
    run = nn.record(harness)
    turn = asyncio.ensure_future(harness.execute("go"))
    await begun(gate)
    turn.cancel()
    await asyncio.wait([turn])
    gate.go.set()

    reply = await harness.execute("again")

    assert "steering_denied" in outputs(reply.items)[0]
    assert gate.calls == [1]
    assert [event.status for event in run.select(ToolCalled)] == ["cancelled", "denied"]


async def test_a_call_that_waits_for_the_thread_and_is_cut_off_was_not_made() -> None:
    gate = Gate()
    paths = [
        step.tool(name, tool=gate.tool, args={"n": n}, takes_input=False) for n, name in ((1, "first"), (2, "second"))
    ]
    harness = make_harness([], step=fork("f", mode="all", paths=paths, merge="first"))
    events = record_events(harness)
    turn = asyncio.ensure_future(harness.execute("go"))
    await begun(gate)
    for _ in range(20):  # until the other call waits
        await asyncio.sleep(0)

    await harness.cancel()
    with pytest.raises(nn.NoeticError):
        await turn
    gate.go.set()

    assert gate.ended.wait(PATIENCE_S)
    assert gate.calls == [1]
    assert [event.status for event in events.of("tool_called")] == ["cancelled"]


async def test_a_thread_that_is_left_behind_does_not_hold_the_rest_of_the_turn_up() -> None:
    gate = Gate()
    seen: list[Any] = []

    async def both(value: Any, ctx: Any) -> Any:
        handle = ctx.start(own_step(gate.tool))
        await begun(gate)
        handle.cancel()
        return await ctx.run(own_step(where(seen)))

    harness = make_harness([], step=step.run("both", both))

    assert (await harness.execute("go")).output == "1"
    gate.go.set()
    assert seen[0][0].ident != gate.threads[0]


@pytest.mark.parametrize("is_generator", [False, True])
@pytest.mark.parametrize("ends", ["in one answer", "in two", "in steps", "in the last call", "in functions"])
async def test_a_cancellation_arrives_between_two_calls_that_block_the_loop(ends: str, is_generator: bool) -> None:
    done: list[int] = []
    turn: asyncio.Future[Any]
    loop = asyncio.get_running_loop()

    def stop(n: int) -> str:
        done.append(n)
        loop.call_soon(loop.call_soon, turn.cancel)  # as the stop button does while the loop is blocked
        return "did"

    def work(n: int) -> str:
        """Work."""
        return stop(n)

    def pieces(n: int) -> Iterator[str]:
        """Work."""
        yield stop(n)

    tool = nn.tool(pieces if is_generator else work, name="work", inline=True)
    own = [step.tool(f"s{n}", tool=tool, args={"n": n}, takes_input=False) for n in (1, 2)]
    functions = [step.run(f"f{n}", lambda value, ctx, n=n: stop(n)) for n in (1, 2)]

    async def one_by_one(value: Any, ctx: Any) -> None:
        for each in functions if ends == "in functions" else own:
            await ctx.run(each)

    replies: Any = {"in one answer": [calls(1, 2), "x"], "in two": [calls(1), calls(2), "x"]}
    is_step = ends in ("in steps", "in functions")
    harness = make_harness(
        replies.get(ends, [calls(1), "x"]), tools=[tool], step=step.run("all", one_by_one) if is_step else None
    )
    turn = asyncio.ensure_future(harness.execute("go"))
    await asyncio.wait([turn])

    assert turn.cancelled()
    assert done == [1]
    if not is_step and not is_generator:
        assert outputs(harness.log())[0] == "did"


async def test_a_call_that_ended_keeps_its_result_where_a_layer_ends_the_turn_behind_it() -> None:
    stop = nn.Stop(suggestion="Enough.", decision=None)
    layer = nn.MemoryLayer(
        id="watch", slot=1, scope="execution", hooks=nn.MemoryHooks(on_tool_outcome=lambda p: {"stop": stop})
    )
    harness = make_harness([[nn.CallTool("lookup", order_id="A"), nn.CallTool("lookup", order_id="B")]], memory=[layer])

    reply = await harness.execute("go")

    first, second = outputs(reply.items)
    assert first == '{"order":"A","state":"packed"}'
    assert second.startswith("Error: not run, the turn was stopped: Enough.")


# -- errors -------------------------------------------------------------------------------------------------------------


async def test_stop_iteration_ends_the_call_and_not_the_loop() -> None:
    def work(n: int) -> str:
        """Work."""
        raise StopIteration(n)

    async with asyncio.timeout(PATIENCE_S):
        reply = await make_harness([calls(1), "done"], tools=[work]).execute("go")

    assert "StopIteration" in outputs(reply.items)[0]
    assert reply.text == "done"


async def test_an_error_of_the_wrong_thread_says_how_to_stay_in_the_right_one() -> None:
    connection = sqlite3.connect(":memory:")

    def query(n: int) -> int:
        """Work."""
        found: int = connection.execute("select ?", (n,)).fetchone()[0]
        return found

    def scheduled(n: int) -> str:
        """Work."""
        asyncio.get_running_loop()
        return "scheduled"

    def mine(n: int) -> str:
        """Work."""
        raise ValueError("thread 17 of the forum is closed")

    tools = [query, scheduled, mine]
    script = [[nn.CallTool(each.__name__, n=1) for each in tools], "done"]
    harness = make_harness(script, tools=tools)
    events = record_events(harness)
    texts = outputs((await harness.execute("go")).items)
    inline = make_harness(script, tools=[nn.tool(each, inline=True) for each in tools])

    assert ["inline=True" in text for text in texts] == [True, True, False]
    assert ["inline=True" in event.error for event in events.of("tool_called")] == [True, True, False]
    assert outputs((await inline.execute("go")).items)[:2] == ["1", "scheduled"]
    with pytest.raises(nn.NoeticError, match="inline=True"):
        await make_harness([], step=own_step(nn.tool(query, name="work"))).execute("go")
    connection.close()


# -- generators ---------------------------------------------------------------------------------------------------------


async def test_a_generator_runs_and_is_closed_in_the_thread() -> None:
    threads: list[int] = []
    begun, closed, go = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work(n: int) -> Iterator[int]:
        """Work."""
        try:
            threads.append(threading.get_ident())
            yield 1
            threads.append(threading.get_ident())
            loop.call_soon_threadsafe(begun.set)
            assert go.wait(PATIENCE_S)
            yield 2
        finally:
            threads.append(threading.get_ident())
            closed.set()

    harness = make_harness([calls(1), "done"], tools=[work])
    events = record_events(harness)
    turn = asyncio.ensure_future(harness.execute("go"))
    async with asyncio.timeout(PATIENCE_S):
        await begun.wait()
    turn.cancel()
    await asyncio.wait([turn])
    go.set()

    assert closed.wait(PATIENCE_S)
    assert len(threads) == 3
    assert len(set(threads)) == 1
    assert [event.value for event in events if isinstance(event, ToolProgress)] == [1]


# -- agents inside of tools ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_outer_sync", [False, True])
async def test_a_tool_may_wait_for_another_agent_and_its_clients_stay_on_one_loop(is_outer_sync: bool) -> None:
    loops: list[Any] = []

    async def answer(request: Any) -> str:
        loops.append(asyncio.get_running_loop())
        return "answer"

    other = make_harness(answer)

    def work(n: int) -> str:
        """Work."""
        return nn.run_sync(other.execute("go"), nested="patch").text + nn.run_sync(other.execute("go")).text

    harness = make_harness([calls(1, 2), "done"], tools=[work])
    reply = nn.run_sync(harness.execute("go")) if is_outer_sync else await harness.execute("go")

    assert outputs(reply.items) == ["answeranswer"] * 2
    assert len(loops) == 4
    assert len(set(loops)) == 1


# -- where there are no threads -------------------------------------------------------------------------------------------


async def test_without_threads_tools_run_on_the_spot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "emscripten")
    seen: list[Any] = []

    reply = await make_harness([calls(1), "done"], tools=[where(seen)]).execute("go")

    assert (reply.text, seen[0][0]) == ("done", threading.main_thread())


def test_a_loop_of_virtual_time_runs_tools_on_the_spot() -> None:
    seen: list[Any] = []

    drive_loop(make_harness([calls(1), "done"], tools=[where(seen)]).execute("go"))

    assert seen[0][0] is threading.main_thread()


async def test_a_system_without_a_thread_left_is_an_error_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    seen: list[Any] = []

    reply = await make_harness([calls(1), "done"], tools=[where(seen)]).execute("go")

    assert outputs(reply.items) == ["Error: can't start new thread (RuntimeError)"]
    assert seen == []


async def test_a_worker_that_nobody_holds_any_more_ends() -> None:
    worker = Worker("test")
    thread = await worker.call(threading.current_thread)

    del worker
    thread.join(PATIENCE_S)

    assert not thread.is_alive()


# -- who waits ----------------------------------------------------------------------------------------------------------


async def test_a_message_that_waited_stops_its_turn_when_its_caller_is_cancelled() -> None:
    first, second = Gate(), Gate()
    harness = make_harness(
        [calls(1, name="a"), "one", calls(2, name="b"), "two", "three"],
        tools=[nn.tool(first.tool.execute, name="a"), nn.tool(second.tool.execute, name="b")],
    )
    one = asyncio.ensure_future(harness.execute("one"))
    await begun(first)
    two = asyncio.ensure_future(harness.execute("two"))
    await asyncio.sleep(0)
    first.go.set()
    assert (await one).text == "one"
    await begun(second)

    two.cancel()
    await asyncio.wait([two])
    reply = await harness.execute("three")
    second.go.set()

    assert reply.text == "two", "the third message gets the next line of the script"
    assert outputs(harness.log())[1].startswith(CUT)


async def test_a_turn_goes_on_while_another_caller_waits_for_it() -> None:
    gate, other = Gate(), Gate()
    harness = make_harness(
        [calls(1, name="a"), "one", calls(2, name="b"), "both"],
        tools=[nn.tool(gate.tool.execute, name="a"), nn.tool(other.tool.execute, name="b")],
    )
    one = asyncio.ensure_future(harness.execute("one"))
    await begun(gate)
    two, three = (asyncio.ensure_future(harness.execute(text)) for text in ("two", "three"))
    await asyncio.sleep(0)
    gate.go.set()
    await one
    await begun(other)

    two.cancel()
    await asyncio.wait([two])
    other.go.set()

    assert (await three).text == "both"


@pytest.mark.parametrize("side", ["text", "events", "reply"])
async def test_the_last_reader_of_a_stream_that_is_cancelled_stops_the_turn(side: str) -> None:
    gate = Gate()
    harness = make_harness([calls(1, 2), "done"], tools=[gate.tool])
    stream = harness.stream("go")

    async def read() -> None:
        if side == "reply":
            await stream.reply
        else:
            async for _ in getattr(stream, side):
                pass

    readers = [asyncio.ensure_future(read()) for _ in range(2)]
    await begun(gate)
    readers[0].cancel()
    await asyncio.wait([readers[0]])
    assert harness.status().state == "generating"
    readers[1].cancel()
    await asyncio.wait([readers[1]])
    async with asyncio.timeout(PATIENCE_S):
        while harness.status().state != "idle":
            await asyncio.sleep(0)
    gate.go.set()

    assert gate.calls == [1]
    assert outputs(harness.log())[0].startswith(CUT)


async def test_a_reader_that_leaves_a_stream_stops_nothing() -> None:
    gate = Gate()
    harness = make_harness([calls(1), "done"], tools=[gate.tool])
    stream = harness.stream("go")
    async for _ in stream.items:
        break
    await begun(gate)
    gate.go.set()

    assert (await stream.reply).text == "done"
