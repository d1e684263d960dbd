"""Control over a running turn: limits, channels, interruptions, hooks, and resuming after a crash."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.runtime import Checkpoints
from noetic_nb.steps import channel, fork, loop, spawn, step, until
from noetic_nb.testing import SeededIds, drive_loop
from tests.runtime.factories import make_harness, outputs, record_events, texts
from tests.runtime.test_threads import Gate

pytestmark = pytest.mark.virtual_time

# -- limits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "field"),
    [({"max_cost": 0.4}, "cost"), ({"max_tokens": 15}, "tokens"), ({"max_steps": 3}, "steps")],
)
async def test_spending_more_than_a_limit_raises(limits: Any, field: str) -> None:
    usage = {"input_tokens": 9, "output_tokens": 1}
    reply = nn.Reply(tool_calls=nn.CallTool("lookup", order_id="A"), usage=usage, cost=0.25)
    harness = make_harness(lambda request: reply, limits=limits)

    with pytest.raises(nn.NoeticError) as caught:
        await harness.execute("go")

    assert (caught.value.kind, caught.value.field, caught.value.limit) == (
        "budget_exceeded",
        field,
        next(iter(limits.values())),
    )
    assert caught.value.actual > caught.value.limit
    calls = [item["callId"] for item in harness.log() if item["type"] == "function_call"]
    answered = [item["callId"] for item in harness.log() if item["type"] == "function_call_output"]
    assert calls == answered, "no call is left without an answer"


def test_a_turn_that_takes_too_long_is_cut_short() -> None:
    async def main() -> Any:
        harness = make_harness([nn.Fault("hang")])
        try:
            await harness.execute("go", limits={"max_duration_ms": 250})
        except nn.NoeticError as exc:
            return exc.kind, exc.field, asyncio.get_running_loop().time()

    assert drive_loop(main()) == ("budget_exceeded", "duration", 0.25)


async def test_children_count_towards_the_limit() -> None:
    one = fork("f", mode="settle", paths=[step.llm(n, model="m") for n in "abc"], merge=lambda r, c: r, concurrency=1)
    harness = make_harness(lambda request: nn.Reply("x", cost=1.0), step=loop("l", one, until=until.never()))

    with pytest.raises(nn.NoeticError) as caught:
        await harness.execute("go", limits={"max_cost": 4})

    assert caught.value.kind == "budget_exceeded"


@pytest.mark.parametrize("inner", [False, True])
async def test_a_fork_that_settles_does_not_settle_for_a_limit(inner: bool) -> None:
    paths = [step.llm(n, model="m") for n in "abc"]
    one = fork("f", mode="settle", paths=paths, merge=lambda ends, ctx: "all is well", concurrency=1)
    if inner:
        one = fork("outer", mode="settle", paths=[fork("f", mode="all", paths=paths, merge="last")], merge="last")
    harness = make_harness(lambda request: nn.Reply("x", cost=1.0), step=one)

    with pytest.raises(nn.NoeticError) as caught:
        await harness.execute("go", limits={"max_cost": 1.5})

    assert (caught.value.kind, caught.value.field) == ("budget_exceeded", "cost")


async def test_a_limit_of_another_harness_is_a_failure_of_its_path() -> None:
    async def ask(value: Any, ctx: Any) -> Any:
        other = make_harness([nn.Reply("x", cost=9.0)])
        return (await other.execute("go", limits={"max_cost": 1})).text

    one = fork("f", mode="settle", paths=[step.run("ask", ask)], merge=lambda ends, ctx: ends[0]["status"])

    assert (await make_harness([], step=one).execute("go", limits={"max_cost": 5})).text == "rejected"


async def test_the_next_turn_begins_a_new_count() -> None:
    harness = make_harness(lambda request: nn.Reply("x", cost=1.0), limits={"max_cost": 1})

    assert [(await harness.execute("go")).cost for _ in range(3)] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("limits", [{"max_cost": -1}, {"max_cost": float("nan")}, {"max_steps": 0}, {"colour": 1}])
async def test_limits_that_cannot_be_are_refused(limits: Any) -> None:
    with pytest.raises(nn.NoeticConfigError):
        await make_harness(["x"]).execute("go", limits=limits)


# -- channels -----------------------------------------------------------------------------------------------------------


async def test_paths_of_a_fork_talk_through_a_channel() -> None:
    pipe = channel("pipe", schema=int)

    async def send(value: Any, ctx: Any) -> None:
        for number in range(3):
            await ctx.send(pipe, number)

    async def recv(value: Any, ctx: Any) -> Any:
        return [await ctx.recv(pipe) for _ in range(3)]

    both = fork("f", mode="all", paths=[step.run("recv", recv), step.run("send", send)], merge="first")
    harness = make_harness([])
    async with harness.execution() as ctx:
        assert await harness.run(both, None, ctx) == [0, 1, 2]


async def test_channels_do_not_leak_between_executions() -> None:
    pipe = channel("pipe")
    harness = make_harness([])

    async with harness.execution(thread_id="a") as one, harness.execution(thread_id="b") as two:
        await one.send(pipe, None)
        assert two.try_recv(pipe) is channel.EMPTY
        assert one.try_recv(pipe) is None, "None is a message"
        assert one.try_recv(pipe) is channel.EMPTY


@pytest.mark.parametrize("message", ["3", 3.5, None, [3]])
async def test_a_message_that_does_not_fit_is_refused_when_it_is_sent(message: Any) -> None:
    pipe = channel("numbers", schema=int, external=True)
    harness = make_harness([])

    async with harness.execution() as ctx:
        with pytest.raises(nn.NoeticError) as caught:
            await ctx.send(pipe, message)
        with pytest.raises(nn.NoeticError):
            harness.channel_handle(pipe, ctx.id).send(message)
        assert ctx.try_recv(pipe) is channel.EMPTY

    assert caught.value.reason == "invalid_payload"


async def test_one_name_is_one_channel() -> None:
    harness = make_harness([])

    async with harness.execution() as ctx:
        await ctx.send(channel("c", schema=int), 1)
        await ctx.send(channel("c", schema=int), 2)
        with pytest.raises(nn.NoeticConfigError) as caught:
            await ctx.send(channel("c", mode="value"), 3)

    assert caught.value.code == "CHANNEL_REDECLARED"


async def test_an_inner_channel_cannot_be_reached_from_outside() -> None:
    harness = make_harness([])

    async with harness.execution() as ctx:
        with pytest.raises(nn.NoeticConfigError):
            harness.channel_handle(channel("c"), ctx.id)


def test_a_message_for_a_reader_that_was_cut_goes_to_the_next_in_line() -> None:
    harness = make_harness([])
    pipe = channel("pipe")

    async def main() -> Any:
        async with harness.execution() as ctx:
            first = asyncio.create_task(ctx.recv(pipe))
            second = asyncio.create_task(ctx.recv(pipe, timeout_ms=300))
            await asyncio.sleep(0.01)
            await ctx.send(pipe, "m")
            first.cancel()
            return await second, ctx.try_recv(pipe)

    assert drive_loop(main()) == ("m", channel.EMPTY)


async def test_a_channel_can_be_reached_through_a_child_of_its_execution() -> None:
    harness = make_harness([])
    pipe = channel("pipe", external=True)

    async def talks(value: Any, ctx: Any) -> Any:
        handle = harness.channel_handle(pipe, ctx.id)
        handle.send("from outside")
        return handle.closed, await ctx.recv(pipe)

    async with harness.execution() as ctx:
        made_there = await harness.run(spawn("child", step.run("talk", talks)), None, ctx)

    assert made_there == (False, "from outside")


@pytest.mark.parametrize("was_used", [True, False])
async def test_a_channel_of_an_execution_that_ended_takes_nothing_more(was_used: bool) -> None:
    harness = make_harness([])
    pipe = channel("pipe")

    async with harness.execution() as ctx:
        if was_used:
            await ctx.send(pipe, 1)
    with pytest.raises(nn.NoeticError) as caught:
        await ctx.send(pipe, 2)

    assert caught.value.kind == "channel_closed"
    assert ctx.try_recv(pipe) == (1 if was_used else channel.EMPTY)


@pytest.mark.parametrize("options", [{"mode": "pipe"}, {"capacity": 0}, {"mode": "value", "capacity": 3}, {"name": ""}])
def test_a_channel_that_cannot_be_is_refused(options: Any) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        channel(**{"name": "c", **options})

    assert caught.value.code == "INVALID_CHANNEL"


@given(sends=st.lists(st.integers(), max_size=12), capacity=st.integers(1, 4), readers=st.integers(1, 3))
def test_a_queue_loses_and_doubles_nothing(sends: list[int], capacity: int, readers: int) -> None:
    pipe = channel("q", capacity=capacity)

    async def main() -> list[int]:
        harness = make_harness([])
        got: list[int] = []
        async with harness.execution() as ctx:

            async def read() -> None:
                while True:
                    got.append(await ctx.recv(pipe, timeout_ms=0))

            tasks = [asyncio.create_task(read()) for _ in range(readers)]
            for number in sends:
                await ctx.send(pipe, number)
            for _ in range(30):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return got

    got = drive_loop(main())

    assert sorted(got) == sorted(sends)
    assert readers > 1 or got == sends, "one reader gets them in order; several may overtake each other on waking"


# -- saying something meanwhile -----------------------------------------------------------------------------------------


async def test_an_interruption_cancels_the_turn_and_is_answered_instead() -> None:
    gate = Gate()
    harness = make_harness(gate, tools=[])
    first = asyncio.create_task(harness.execute("one"))
    await gate.entered.wait()
    queued = asyncio.create_task(harness.execute("queued"))
    await asyncio.sleep(0)

    urgent = asyncio.create_task(harness.execute("stop that", delivery="interrupt"))
    with pytest.raises(nn.NoeticError) as caught:
        await first
    gate.open.set()

    assert caught.value.kind == "cancelled"
    assert await urgent is await queued
    assert list(texts((await urgent).items)) == ["user: stop that", "user: queued", "assistant: answer 2"]


async def test_what_is_said_between_rounds_is_heard_in_the_same_turn() -> None:
    started, go = asyncio.Event(), asyncio.Event()

    @nn.tool
    async def work() -> str:
        """Work."""
        started.set()
        await go.wait()
        return "done"

    model = nn.ScriptedModel([nn.CallTool("work"), "All right."])
    harness = make_harness(model, tools=[work])
    first = asyncio.create_task(harness.execute("one"))
    await started.wait()
    second = asyncio.create_task(harness.execute("also this", delivery="between_rounds"))
    await asyncio.sleep(0)
    go.set()

    assert await first is await second
    assert list(texts(model.requests[1].items))[-1] == "user: also this"


async def test_what_comes_too_late_for_a_round_is_the_next_turn() -> None:
    gate = Gate()
    harness = make_harness(gate, tools=[])
    first = asyncio.create_task(harness.execute("one"))
    await gate.entered.wait()
    late = asyncio.create_task(harness.execute("two", delivery="between_rounds"))
    await asyncio.sleep(0)
    gate.open.set()

    assert ((await first).text, (await late).text) == ("answer 1", "answer 2")


async def test_an_unknown_delivery_is_refused() -> None:
    with pytest.raises(nn.NoeticConfigError):
        await make_harness(["x"]).execute("hi", delivery="carrier pigeon")  # type: ignore[arg-type]


# -- hooks and events ---------------------------------------------------------------------------------------------------


async def test_step_hooks_are_called_around_every_step() -> None:
    seen: list[Any] = []

    async def after(one: Any, output: Any, ctx: Any) -> None:
        seen.append(("after", one.id, output))

    harness = make_harness(
        ["Hello!"],
        before_step=lambda one, value, ctx: seen.append(("before", one.id, str(value))),
        after_step=after,
    )
    await harness.execute("hi")

    assert seen == [
        ("before", "react-loop", "hi"),
        ("before", "react", "hi"),
        ("after", "react", "Hello!"),
        ("after", "react-loop", "Hello!"),
    ]


async def test_every_step_leaves_its_path_duration_and_status() -> None:
    harness = make_harness([nn.CallTool("lookup", order_id="A"), nn.Fault("server_error")])
    events = record_events(harness)

    with pytest.raises(nn.NoeticError):
        await harness.execute("hi")

    ended = [(event.path, event.status) for event in events.of("step_ended")]
    assert ended == [
        ("/react-loop#1/react#1", "ok"),
        ("/react-loop#1/react#2", "error"),
        ("/react-loop#1", "error"),
    ]
    assert [event.path for event in events.of("step_started")] == [
        "/react-loop#1",
        "/react-loop#1/react#1",
        "/react-loop#1/react#2",
    ]


# -- going on after a crash ---------------------------------------------------------------------------------------------


class Crash(BaseException):
    """The process ends here: nothing is cleaned up in storage."""


class Storage(nn.InMemoryStorage):
    """Storage that survives a crash, and accepts no writes after it."""

    crashed = False

    async def set(self, key: str, value: Any) -> None:
        if not self.crashed:
            await super().set(key, value)

    async def delete(self, key: str) -> None:
        if not self.crashed:
            await super().delete(key)


def durable(storage: Any, ran: list[str], crash_at: str | None, replies: Any, keys: list[str]) -> nn.AgentHarness:
    @nn.tool
    def pay(amount: int, ctx: Any) -> str:
        """Pay."""
        keys.append(ctx.idempotency_key)
        return f"paid {amount}"

    def work(name: str) -> Any:
        def execute(value: Any, ctx: Any) -> str:
            if name == crash_at:
                storage.crashed = True
                raise Crash
            ran.append(name)
            ctx.state[name] = True
            return name

        return step.run(name, execute)

    ask = nn.react(model="m", tools=[pay])
    whole = loop("all", [work("a"), ask, work("b"), work("c")], until=until.max_steps(1))
    memory = [nn.working_memory(scope="execution")]
    return nn.AgentHarness(
        nn.AgentConfig(name="durable", step=whole, memory=memory),
        model=nn.ScriptedModel(replies, seed=len(keys)),
        storage=storage,
        ids=SeededIds(len(ran)),
        checkpoints=True,
    )


REPLIES = [
    nn.Reply(tool_calls=nn.CallTool("pay", amount=3), cost=0.5),
    nn.Reply(tool_calls=nn.CallTool("working-memory/update", note="paid"), cost=0.5),
    nn.Reply("done", cost=0.5),
]


async def test_a_turn_goes_on_where_it_stood_and_repeats_no_step() -> None:
    storage, ran, keys = Storage(), [], []
    first = durable(storage, ran, "b", REPLIES, keys)
    with pytest.raises(Crash):
        await first.execute("go", thread_id="t", resource_id="ann")
    storage.crashed = False

    second = durable(storage, ran, None, [], keys)
    unfinished = await second.unfinished()
    reply = await second.resume(unfinished[0])

    assert ran == ["a", "b", "c"]
    assert len(keys) == 1
    assert (reply.cost, reply.text) == (1.5, "done")
    assert list(texts(second.log("t"))) == ["user: go", "user: a", "assistant: done"]
    assert await second.unfinished() == ()


async def test_a_tool_that_is_called_again_sees_the_same_key() -> None:
    storage, ran, keys = Storage(), [], []
    crashing = [nn.CallTool("pay", amount=3), "never"]
    first = durable(storage, ran, None, crashing, keys)
    stack_set = storage.set

    async def dies(key: str, value: Any) -> None:
        if len(keys) == 1 and ":ledger:" in key:
            storage.crashed = True
            raise Crash
        await stack_set(key, value)

    storage.set = dies  # type: ignore[method-assign]
    with pytest.raises(Crash):
        await first.execute("go")
    storage.crashed = False
    storage.set = stack_set  # type: ignore[method-assign]

    second = durable(storage, ran, None, [nn.CallTool("pay", amount=3), "paid"], keys)
    reply = await second.resume((await second.unfinished())[0])

    assert len(keys) == 2
    assert keys[0] == keys[1]
    assert len(outputs(reply.items)) == 1


async def test_layers_keep_the_state_they_had() -> None:
    storage, ran, keys = Storage(), [], []
    first = durable(storage, ran, "b", REPLIES, keys)
    with pytest.raises(Crash):
        await first.execute("go")
    storage.crashed = False
    second = durable(storage, ran, None, [], keys)
    seen: list[Any] = []
    second._stack.state.listen(lambda execution, layer, state, hook: seen.append((hook, state)))

    await second.resume((await second.unfinished())[0])

    assert "paid" in str(seen[0])


@pytest.mark.parametrize("damage", [{"version": 9}, {"itemLog": None}, {"turn": "x"}, {"tokens": {}}])
async def test_a_damaged_checkpoint_is_one_clear_error(damage: Any) -> None:
    storage, ran, keys = Storage(), [], []
    with pytest.raises(Crash):
        await durable(storage, ran, "a", REPLIES, keys).execute("go")
    storage.crashed = False
    second = durable(storage, ran, None, REPLIES, keys)
    execution = (await second.unfinished())[0]
    key = f"execution:{execution}:snapshot"
    await storage.set(key, {**(await storage.get(key)), **damage})

    with pytest.raises(nn.NoeticConfigError) as caught:
        await second.resume(execution)

    assert caught.value.code == "CHECKPOINT_SCHEMA_MISMATCH"


async def test_an_unknown_checkpoint_names_the_known_ones() -> None:
    with pytest.raises(nn.NoeticConfigError, match="There is none") as caught:
        await durable(Storage(), [], None, [], []).resume("nobody")

    assert caught.value.code == "NO_CHECKPOINT"


@pytest.mark.parametrize("options", [{"max_entries": 0}, {"max_entry_bytes": -1}])
def test_bad_retention_is_refused(options: Any) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        Checkpoints(**options)

    assert caught.value.code == "STEP_LEDGER_RETENTION_INVALID"


async def test_a_turn_that_ends_by_itself_leaves_no_checkpoint() -> None:
    storage = Storage()
    harness = durable(storage, [], None, [*REPLIES, nn.Fault("server_error")], [])

    await harness.execute("go")
    with pytest.raises(nn.NoeticError):
        await harness.execute("fails")

    assert await harness.unfinished() == ()


# -- cancelled at every moment ------------------------------------------------------------------------------------------

SPAWNED = spawn("s", step.llm("ask", model="m"), context_in="inherit")
FORKED = fork("f", mode="all", paths=[step.llm("a", model="m"), step.llm("b", model="m")], merge="first")


class Slow:
    """A scripted model that yields to the loop before it answers."""

    def __init__(self, replies: Any) -> None:
        self.model = nn.ScriptedModel(replies)

    async def complete(self, request: Any) -> Any:
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        return await self.model.complete(request)


@pytest.mark.parametrize(
    ("one", "replies"),
    [
        (None, lambda request: nn.Reply("ok", cost=1.0)),
        (None, lambda request: "ok" if request.items[-1]["type"] == "function_call_output"
         else nn.CallTool("lookup", order_id="A")),
        (FORKED, lambda request: nn.Reply("ok", cost=1.0)),
        (SPAWNED, lambda request: nn.Reply("ok", cost=1.0)),
    ],
    ids=["plain", "tool", "fork", "spawn"],
)  # fmt: skip
def test_a_cancellation_at_any_suspension_leaves_a_thread_that_works(one: Any, replies: Any) -> None:
    kinds = set()
    for at in range(1, 40):
        hooks = nn.MemoryHooks(
            init=lambda p: {"state": {"turns": 0}},
            on_complete=lambda p: {"state": {"turns": 1, "outcome": p.outcome}},
            on_spawn=lambda p: {"child_state": {}},
        )
        storage = nn.InMemoryStorage()
        harness = make_harness(Slow(replies), step=one, storage=storage,
                       memory=[nn.MemoryLayer(id="l", slot=1, scope="thread", hooks=hooks)])  # fmt: skip

        async def turn(harness: Any = harness) -> str:
            try:
                return (await harness.execute("go")).text
            except asyncio.CancelledError:
                return "cancelled"

        kinds.add(drive_loop(turn(), cancel_at=at))

        assert len(harness._threads.live) == 0
        log = list(harness.log())
        calls = {item["callId"] for item in log if item["type"] == "function_call"}
        assert calls == {item["callId"] for item in log if item["type"] == "function_call_output"}
        state = drive_loop(storage.get("layers/l/default/state"))
        assert state is None or state["turns"] in (0, 1)
        assert drive_loop(turn()) == "ok"
    assert kinds == {"ok", "cancelled"}


def waiting_tool() -> tuple[Any, asyncio.Event, asyncio.Event]:
    """Return a tool that waits, the event of its start, and the event that it awaits."""
    started, go = asyncio.Event(), asyncio.Event()

    @nn.tool
    async def work() -> str:
        """Work."""
        started.set()
        await go.wait()
        return "done"

    return work, started, go


async def test_a_message_between_rounds_is_what_layers_are_asked_about() -> None:
    work, started, go = waiting_tool()
    asked: list[str] = []
    hooks = nn.MemoryHooks(recall=lambda p: asked.append(p.query))
    layer = nn.MemoryLayer(id="l", slot=1, scope="thread", hooks=hooks)
    harness = make_harness(
        nn.ScriptedModel([nn.CallTool("work"), nn.CallTool("work"), "All right."]), tools=[work], memory=[layer]
    )
    first = asyncio.create_task(harness.execute("one"))
    await started.wait()
    second = asyncio.create_task(harness.execute("also this", delivery="between_rounds"))
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(first, second)

    assert asked == ["one", "one", "also this"], "it is logged within the second round, and asked about from the third"


async def test_a_message_between_rounds_is_for_the_agent_and_not_for_its_child() -> None:
    work, started, go = waiting_tool()
    model = nn.ScriptedModel([nn.CallTool("work"), "The child is done.", "All right."])
    child = nn.spawn("child", nn.react(model="m", tools=[work]))
    whole = nn.loop("all", [child, nn.step.llm("say", model="m")], until=nn.until.max_steps(1))
    harness = make_harness(model, step=whole)
    first = asyncio.create_task(harness.execute("one"))
    await started.wait()
    second = asyncio.create_task(harness.execute("also this", delivery="between_rounds"))
    await asyncio.sleep(0)
    go.set()
    replies = await asyncio.gather(first, second, return_exceptions=True)

    assert not [reply for reply in replies if isinstance(reply, BaseException)]
    assert all("also this" not in str(request.items) for request in model.requests[:2])


async def test_a_message_before_the_first_call_of_a_turn_is_the_next_turn() -> None:
    started, go = asyncio.Event(), asyncio.Event()

    async def prepare(value: Any, ctx: Any) -> Any:
        if not started.is_set():
            started.set()
            await go.wait()
        return value

    model = nn.ScriptedModel(lambda request: f"re {list(texts(request.items))[-1]}")
    whole = nn.loop("all", [nn.step.run("p", prepare), nn.step.llm("l", model="m")], until=nn.until.max_steps(1))
    harness = make_harness(model, step=whole)
    first = asyncio.create_task(harness.execute("one"))
    await started.wait()
    second = asyncio.create_task(harness.execute("two", delivery="between_rounds"))
    await asyncio.sleep(0)
    go.set()

    assert [reply.text for reply in await asyncio.gather(first, second)] == ["re user: one", "re user: two"]
