"""Steps that run in parallel to their execution: results, errors, and their fate when it ends."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.errors import innermost
from noetic_nb.runtime import Handle
from noetic_nb.runtime._execution.handle import GRACE_PERIOD_MS
from noetic_nb.steps import fork, spawn, step
from noetic_nb.testing import drive_loop
from tests.runtime.factories import Events, make_harness, record_events

pytestmark = pytest.mark.virtual_time


class Reports(list[tuple[str, str, BaseException]]):
    """A diagnostic that records its calls."""

    def __call__(self, layer_id: str, hook: str, error: BaseException) -> None:
        self.append((layer_id, hook, error))


def after(ms: float, value: Any = "done", name: str = "slow") -> Any:
    async def execute(_: Any, ctx: Any) -> Any:
        await asyncio.sleep(ms / 1000)
        return value

    return step.run(name, execute)


def stubborn(ms: float, value: Any = "late", name: str = "stubborn") -> Any:
    """A step that ignores cancellation until its time is over."""

    async def execute(_: Any, ctx: Any) -> Any:
        until = asyncio.get_running_loop().time() + ms / 1000
        while (left := until - asyncio.get_running_loop().time()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(left)
        return value

    return step.run(name, execute)


def broken(name: str = "broken") -> Any:
    def execute(value: Any, ctx: Any) -> Any:
        raise ValueError("bad")

    return step.run(name, execute)


def now_ms() -> float:
    return round(asyncio.get_running_loop().time() * 1000, 3)


async def kind_of(handle: Handle) -> Any:
    try:
        return await handle.result()
    except nn.NoeticError as exc:
        return exc.kind


def agent(execute: Any, replies: Any = (), **more: Any) -> tuple[nn.AgentHarness, Events, Reports]:
    reports = Reports()
    harness = make_harness(list(replies), step=step.run("main", execute), diagnostic=reports, **more)
    return harness, record_events(harness), reports


# -- results ------------------------------------------------------------------------------------------------------------


def test_a_started_step_runs_beside_the_one_that_started_it() -> None:
    async def main(value: Any, ctx: Any) -> Any:
        handle = ctx.start(after(30, "found"))
        assert not handle.done
        await asyncio.sleep(0.030)
        both = await handle.result(), await handle.result()
        assert handle.done
        return both, now_ms()

    async def turn() -> Any:
        harness, events, reports = agent(main)
        reply = await harness.execute("go")
        return reply.output, [event.path for event in events.of("step_started")], reports

    output, paths, reports = drive_loop(turn())

    assert output == (("found", "found"), 30.0)
    assert paths == ["/main#1", "/main#1/[0]/slow#1"]
    assert reports == []


async def test_what_it_spends_is_the_parents() -> None:
    asks = step.llm("ask", model="m")

    async def main(value: Any, ctx: Any) -> Any:
        handles = [ctx.start(asks, "one"), ctx.start(asks, "two")]
        answers = [await handle.result() for handle in handles]
        return answers, ctx.cost, ctx.model_calls

    harness, events, _ = agent(main, [nn.Reply("1", cost=0.5), nn.Reply("2", cost=0.25)])

    reply = await harness.execute("go")

    assert reply.output == (["1", "2"], 0.75, 2)
    assert reply.cost == 0.75
    assert [event.step_kind for event in events.of("child_started")] == ["start", "start"]
    assert len(reply.items) == 1 + 1, "what its children said is not in the parent's log; its answer is"


async def test_layers_hand_down_and_merge_as_for_a_spawn() -> None:
    hooks = nn.MemoryHooks(
        init=lambda p: {"state": ["root"]},
        on_spawn=lambda p: {"child_state": [*p.parent_state, "child"]},
        on_return=lambda p: {"parent_state": [*p.parent_state, *p.child_state[1:]], "result": f"{p.result}!"},
    )
    layer = nn.MemoryLayer(id="l", slot=1, scope="execution", hooks=hooks)

    async def main(value: Any, ctx: Any) -> Any:
        handles = [ctx.start(after(1, name=name)) for name in "ab"]
        results = [await handle.result() for handle in handles]
        return results, ctx.engine.stack.state.get(ctx.id, "l")

    harness, _, _ = agent(main, memory=[layer])

    assert (await harness.execute("go")).output == (["done!", "done!"], ["root", "child", "child"])


def test_what_a_child_started_gives_its_memory_to_the_child_before_the_child_does() -> None:
    hooks = nn.MemoryHooks(
        init=lambda p: {"state": []},
        on_spawn=lambda p: {"child_state": []},
        on_return=lambda p: {"parent_state": [*p.parent_state, *p.child_state, p.result]},
    )
    layer = nn.MemoryLayer(id="l", slot=1, scope="execution", hooks=hooks)

    async def inner(value: Any, ctx: Any) -> Any:
        ctx.start(stubborn(5, "started"))
        await asyncio.sleep(0.001)
        return "spawned"

    async def main(value: Any, ctx: Any) -> Any:
        await ctx.run(spawn("s", step.run("inner", inner)))
        return ctx.engine.stack.state.get(ctx.id, "l")

    async def turn() -> Any:
        harness, _, _ = agent(main, memory=[layer])
        return (await harness.execute("go")).output

    assert drive_loop(turn()) == ["started", "spawned"]


async def test_an_error_is_raised_to_everyone_who_asks_and_reported_to_nobody_else() -> None:
    async def main(value: Any, ctx: Any) -> Any:
        handle = ctx.start(broken())
        seen = []
        for _ in range(3):
            with pytest.raises(nn.NoeticError) as caught:
                await handle.result()
            seen.append(caught.value)
        assert seen[0] is seen[1] is seen[2]
        return type(innermost(seen[0])).__name__

    harness, events, reports = agent(main)

    assert (await harness.execute("go")).output == "ValueError"
    assert reports == []
    assert events.of("error_raised") == []


async def test_an_error_that_nobody_asked_for_is_reported() -> None:
    async def main(value: Any, ctx: Any) -> Any:
        ctx.start(broken())
        await asyncio.sleep(0.001)
        return "fine"

    harness, events, reports = agent(main)

    assert (await harness.execute("go")).output == "fine"
    assert [(where, hook, type(innermost(error))) for where, hook, error in reports] == [
        ("broken", "handle", ValueError)
    ]
    assert [(event.error_kind, event.step_id) for event in events.of("error_raised")] == [("step_failed", "broken")]


def test_an_error_is_reported_where_whoever_asked_gave_up() -> None:
    async def fails_late(value: Any, ctx: Any) -> Any:
        await asyncio.sleep(0.020)
        raise ValueError("bad")

    async def main(value: Any, ctx: Any) -> Any:
        handle = ctx.start(step.run("late", fails_late))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(handle.result(), 0.010)
        await asyncio.sleep(0.020)
        assert handle.done

    async def turn() -> Any:
        harness, _, reports = agent(main)
        await harness.execute("go")
        return [(where, type(innermost(error))) for where, _, error in reports]

    assert drive_loop(turn()) == [("late", ValueError)]


async def test_a_step_that_waits_for_itself_is_told_so() -> None:
    async def main(value: Any, ctx: Any) -> Any:
        held: list[Handle] = []
        held.append(ctx.start(step.run("self", lambda value, inner: held[0].result())))
        return await held[0].result()

    harness, _, _ = agent(main)

    with pytest.raises(nn.NoeticError, match="waits for its own result"):
        await harness.execute("go")


async def test_a_tool_may_start_something_that_goes_on_after_its_call() -> None:
    handles: list[Handle] = []

    @nn.tool
    def begin(ctx: Any) -> str:
        """Begin."""
        handles.append(ctx.start(after(1, "found")))
        return handles[0].id

    @nn.tool
    async def end() -> str:
        """End."""
        found: str = await handles[0].result()
        return found

    harness = make_harness([nn.CallTool("begin"), nn.CallTool("end"), "ok"], tools=[begin, end])

    reply = await harness.execute("go")

    assert [item["output"] for item in reply.items if item["type"] == "function_call_output"] == ["handle_0_1", "found"]


# -- stopping -----------------------------------------------------------------------------------------------------------


def test_a_handle_can_be_cancelled() -> None:
    async def main(value: Any, ctx: Any) -> Any:
        handle = ctx.start(after(10_000))
        await asyncio.sleep(0.001)
        first = handle.cancel("changed my mind")
        with pytest.raises(nn.NoeticError) as caught:
            await handle.result()
        return first, handle.cancel(), caught.value.kind, caught.value.reason, now_ms()

    async def turn() -> Any:
        harness, _, reports = agent(main)
        return (await harness.execute("go")).output, reports

    assert drive_loop(turn()) == ((True, False, "cancelled", "changed my mind", 1.0), [])


async def test_one_that_is_cancelled_before_it_began_does_nothing() -> None:
    done: list[str] = []

    async def main(value: Any, ctx: Any) -> Any:
        handle = ctx.start(step.run("never", lambda value, ctx: done.append("x")))
        handle.cancel()
        return await kind_of(handle)

    harness, _, _ = agent(main)

    assert (await harness.execute("go")).output == "cancelled"
    assert done == []


def test_an_abort_of_the_parent_reaches_what_it_started() -> None:
    handles: list[Handle] = []

    async def main(value: Any, ctx: Any) -> Any:
        handles.append(ctx.start(after(10_000)))
        await handles[0].result()

    async def turn() -> Any:
        harness, _, reports = agent(main)
        task = asyncio.create_task(harness.execute("go"))
        await asyncio.sleep(0.005)
        await harness.cancel(reason="enough")
        with pytest.raises(nn.NoeticError) as caught:
            await task
        with pytest.raises(nn.NoeticError) as later:
            await handles[0].result()
        return caught.value.reason, later.value.reason, now_ms(), reports

    assert drive_loop(turn()) == ("enough", "enough", 5.0, [])


async def test_a_layer_that_stops_a_started_step_stops_the_turn() -> None:
    stop = nn.Stop({"kind": "circuit_break"}, "Stop here.")
    hooks = nn.MemoryHooks(
        before_tool_call=lambda p: {"decision": nn.SteeringDecision("deny", stop=stop)}, on_spawn=lambda p: None
    )
    layer = nn.MemoryLayer(id="l", slot=1, scope="execution", hooks=hooks)

    @nn.tool
    def pay() -> str:
        """Pay."""
        return "paid"

    async def main(value: Any, ctx: Any) -> Any:
        handle = ctx.start(step.tool("pay", pay))
        await asyncio.sleep(5)
        return await kind_of(handle)

    harness, _, _ = agent(main, memory=[layer])

    reply = await harness.execute("go")

    assert (reply.text, reply.stopped) == ("Stop here.", {"kind": "circuit_break"})


def test_a_stop_that_comes_while_the_turn_ends_is_heard() -> None:
    stop = nn.Stop({"kind": "circuit_break"}, "Stop here.")

    async def slow_rule(p: Any) -> Any:
        await asyncio.sleep(0.010)
        return {"decision": nn.SteeringDecision("deny", stop=stop)}

    layer = nn.MemoryLayer(id="l", slot=1, scope="execution", hooks=nn.MemoryHooks(before_tool_call=slow_rule))

    @nn.tool
    def pay() -> str:
        """Pay."""
        return "paid"

    async def main(value: Any, ctx: Any) -> Any:
        ctx.start(step.tool("pay", pay))
        await asyncio.sleep(0.005)
        return "answer"

    async def turn() -> Any:
        harness, _, _ = agent(main, memory=[layer])
        return (await harness.execute("go")).text

    assert drive_loop(turn()) == "Stop here."


# -- the end of an execution --------------------------------------------------------------------------------------------


def test_what_still_runs_at_the_end_is_told_to_stop() -> None:
    handles: list[Handle] = []

    async def main(value: Any, ctx: Any) -> Any:
        handles.append(ctx.start(after(10_000)))
        await asyncio.sleep(0.001)
        return "answer"

    async def turn() -> Any:
        harness, events, reports = agent(main)
        reply = await harness.execute("go")
        ended = [event.outcome for event in events.of("child_ended")]
        return reply.output, await kind_of(handles[0]), now_ms(), ended, reports

    assert drive_loop(turn()) == ("answer", "cancelled", 1.0, ["aborted"], [])


def test_one_that_ends_within_the_grace_period_keeps_its_result() -> None:
    handles: list[Handle] = []

    async def main(value: Any, ctx: Any) -> Any:
        handles.append(ctx.start(stubborn(GRACE_PERIOD_MS - 100, "saved")))
        await asyncio.sleep(0)

    async def turn() -> Any:
        harness, _, reports = agent(main)
        await harness.execute("go")
        return await handles[0].result(), now_ms(), reports

    assert drive_loop(turn()) == ("saved", GRACE_PERIOD_MS - 100, [])


def test_one_that_minds_nothing_is_left_behind() -> None:
    handles: list[Handle] = []
    waited: list[Any] = []
    returned: list[Any] = []

    async def main(value: Any, ctx: Any) -> Any:
        handles.append(ctx.start(stubborn(3_000)))
        waited.append(asyncio.create_task(kind_of(handles[0])))
        await asyncio.sleep(0)

    async def turn() -> Any:
        hooks = nn.MemoryHooks(init=lambda p: {"state": 0}, on_spawn=lambda p: {"child_state": 1},
                               on_return=lambda p: returned.append(p))  # fmt: skip
        layer = nn.MemoryLayer(id="l", slot=1, scope="thread", hooks=hooks)
        harness, events, reports = agent(main, memory=[layer])
        await harness.execute("go")
        ended = now_ms()
        assert await waited[0] == "handle_evicted"
        with pytest.raises(nn.NoeticError) as caught:
            await handles[0].result()
        await asyncio.sleep(5)
        assert returned == [], "what comes too late is not merged"
        assert await kind_of(handles[0]) == "handle_evicted"
        return ended, caught.value, events, reports

    ended, error, events, reports = drive_loop(turn())

    assert ended == GRACE_PERIOD_MS
    assert error.facts == {"handle_id": handles[0].id, "step_id": "stubborn", "grace_period_ms": 500}
    assert [(where, hook, told is error) for where, hook, told in reports] == [("stubborn", "handle", True)]
    assert [(event.error_kind, event.step_id) for event in events.of("error_raised")] == [
        ("handle_evicted", "stubborn")
    ]


@pytest.mark.parametrize("shape", ["spawn", "failing spawn", "fork", "scope", "turn"])
def test_every_execution_ends_what_it_started(shape: str) -> None:
    handles: list[Handle] = []

    async def main(value: Any, ctx: Any) -> Any:
        handles.append(ctx.start(stubborn(3_000)))
        await asyncio.sleep(0)
        if shape == "failing spawn":
            raise ValueError("bad")
        return "out"

    async def whole() -> Any:
        inner = step.run("inner", main)

        async def tries(value: Any, ctx: Any) -> Any:
            with pytest.raises(nn.NoeticError):
                await ctx.run(spawn("s", inner))
            assert handles[0].done, "the child has ended what it started"
            return "out"

        outer: Any = {
            "spawn": spawn("s", inner),
            "failing spawn": step.run("tries", tries),
            "fork": fork("f", mode="all", paths=[inner], merge="first"),
        }.get(shape, inner)
        reports = Reports()
        harness = make_harness([], step=outer, diagnostic=reports)
        if shape == "scope":
            async with harness.execution() as ctx:
                output = await harness.run(outer, None, ctx)
                assert now_ms() == 0, "the scope is still open"
        else:
            output = (await harness.execute("go")).output
        return output, now_ms(), await kind_of(handles[0]), len(reports), len(harness._engine.handles)

    assert drive_loop(whole()) == ("out", 500.0, "handle_evicted", 1, 0)


async def test_a_handle_lives_as_long_as_a_scope_over_several_cells() -> None:
    harness = make_harness([])
    async with harness.execution() as ctx:
        handle = ctx.start(after(1, "x"))
        await harness.run(after(3), None, ctx)
        assert handle.done
    assert await handle.result() == "x"
    assert repr(handle) == "Handle('handle_0_1', step 'slow', done)"


async def test_nothing_is_started_in_an_execution_that_has_ended() -> None:
    kept: list[Any] = []

    async def main(value: Any, ctx: Any) -> Any:
        kept.append(ctx)

    harness = make_harness([], step=spawn("s", step.run("inner", main)))
    async with harness.execution() as root:
        await harness.run(harness.config.step, None, root)
        with pytest.raises(nn.NoeticError, match="has ended"):
            kept[0].start(after(1))
    with pytest.raises(nn.NoeticError, match="has ended"):
        root.start(after(1))


def test_nothing_is_started_while_an_execution_ends() -> None:
    said: list[str] = []

    async def main(value: Any, ctx: Any) -> Any:
        async def tries(value: Any, inner: Any) -> Any:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                for one in (ctx, inner):
                    with pytest.raises(nn.NoeticError) as caught:
                        one.start(after(1))
                    said.append(caught.value.kind)

        ctx.start(step.run("tries", tries))
        await asyncio.sleep(0.001)

    async def turn() -> None:
        harness, _, _ = agent(main)
        await harness.execute("go")

    drive_loop(turn())

    assert said == ["step_failed", "cancelled"]


async def test_where_nothing_was_started_nothing_is_kept() -> None:
    harness = make_harness(["hi"])

    await harness.execute("go")

    assert harness._engine.handles == {}


async def test_one_of_many_that_ended_well_is_not_kept() -> None:
    async def main(value: Any, ctx: Any) -> Any:
        for _ in range(20):
            await ctx.start(after(0)).result()
            await asyncio.sleep(0)
        return len(ctx.engine.handles[ctx.id].handles)

    harness, _, _ = agent(main)

    assert (await harness.execute("go")).output == 0


def test_no_step_is_nothing_to_start() -> None:
    async def whole() -> None:
        harness = make_harness([])
        async with harness.execution() as ctx:
            ctx.start("a step")

    with pytest.raises(nn.NoeticConfigError, match="not a step"):
        drive_loop(whole())


@given(
    st.lists(
        st.tuples(st.sampled_from(["after", "stubborn", "broken"]), st.integers(0, 1_500), st.booleans()), max_size=5
    ),
    st.integers(0, 1_000),
)
def test_every_handle_has_one_outcome_and_the_end_is_never_far(plan: Any, own: int) -> None:
    handles: list[Handle] = []
    seen: dict[int, Any] = {}

    async def main(value: Any, ctx: Any) -> Any:
        watchers = []
        for number, (how, ms, watched) in enumerate(plan):
            one = {"after": after, "stubborn": stubborn}.get(how)
            handle = ctx.start(broken() if one is None else one(ms + 0.25))
            handles.append(handle)
            if watched:

                async def watch(number: int = number, handle: Handle = handle) -> None:
                    seen[number] = await kind_of(handle)

                watchers.append(asyncio.create_task(watch()))
        await asyncio.sleep(own / 1000)
        return watchers

    async def turn() -> Any:
        harness, _, reports = agent(main)
        watchers = (await harness.execute("go")).output
        ended = now_ms()
        await asyncio.gather(*watchers)
        return ended, [await kind_of(handle) for handle in handles], [error.kind for _, _, error in reports]

    ended, outcomes, reported = drive_loop(turn())

    expected, complaints = [], []
    for how, ms, watched in plan:
        if how == "broken":
            expected.append("step_failed")
            complaints += [] if watched else ["step_failed"]
        elif ms + 0.25 < own:
            expected.append("done" if how == "after" else "late")
        elif how == "after":
            expected.append("cancelled")
        elif ms + 0.25 < own + GRACE_PERIOD_MS:
            expected.append("late")
        else:
            expected.append("handle_evicted")
            complaints.append("handle_evicted")
    assert outcomes == expected
    assert sorted(reported) == sorted(complaints)
    assert own <= ended <= own + GRACE_PERIOD_MS
    assert all(seen[number] == outcome for number, outcome in enumerate(outcomes) if number in seen)


def test_a_cancellation_at_any_suspension_ends_what_was_started() -> None:
    ends = set()
    for at in range(1, 30):
        handles: list[Handle] = []

        async def main(value: Any, ctx: Any, handles: list[Handle] = handles) -> Any:
            handles += [ctx.start(stubborn(300)), ctx.start(after(20)), ctx.start(stubborn(3_000, name="never"))]
            for ms in range(3):
                await asyncio.sleep(ms / 1000)
            return await handles[1].result()

        closed: list[str] = []
        hooks = nn.MemoryHooks(init=lambda p: {"state": 0}, dispose=lambda p, closed=closed: closed.append("disposed"))
        layer = nn.MemoryLayer(id="l", slot=1, scope="execution", hooks=hooks)
        harness, _, _ = agent(main, memory=[layer])

        async def turn(harness: Any = harness, handles: list[Handle] = handles) -> Any:
            try:
                end = (await harness.execute("go")).output
            except asyncio.CancelledError:
                end = "cancelled"
            assert all(handle.done for handle in handles)
            return end, now_ms()

        end, ms = drive_loop(turn(), cancel_at=at)
        ends.add(end)

        assert ms <= 30 + GRACE_PERIOD_MS
        assert harness._engine.handles == {}
        assert harness._threads.live == {}
        assert "disposed" in closed or not handles
    assert ends == {"done", "cancelled"}


async def test_a_started_step_is_not_run_again_after_a_crash() -> None:
    class Crash(BaseException):
        pass

    runs: list[str] = []
    storage, left = nn.InMemoryStorage(), nn.InMemoryStorage()

    async def work(value: Any, ctx: Any) -> str:
        runs.append("work")
        return "worked"

    async def main(value: Any, ctx: Any) -> Any:
        handle = ctx.start(step.run("work", work))
        result = await handle.result()
        if not await left.list(""):  # as storage would be if the process ended here
            for key in await storage.list(""):
                await left.set(key, await storage.get(key))
        return result

    config = nn.AgentConfig(name="a", step=step.run("main", main))
    await nn.AgentHarness(config, storage=storage, checkpoints=True).execute("go")
    again = nn.AgentHarness(config, storage=left, checkpoints=True)

    reply = await again.resume((await again.unfinished())[0])

    assert (reply.output, runs) == ("worked", ["work"])


def test_what_is_left_behind_writes_no_checkpoint() -> None:
    async def main(value: Any, ctx: Any) -> Any:
        ctx.start(stubborn(3_000))
        await asyncio.sleep(0)

    async def turn() -> Any:
        storage = nn.InMemoryStorage()
        config = nn.AgentConfig(name="a", step=step.run("main", main))
        harness = nn.AgentHarness(config, storage=storage, checkpoints=True, diagnostic=Reports())
        await harness.execute("go")
        await asyncio.sleep(5)
        return await storage.list("execution:")

    assert list(drive_loop(turn())) == []
