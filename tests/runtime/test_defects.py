"""Defects of earlier runtimes of this design, by number; those of memory are in ``tests/memory`` as ``test_defect_N``."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import innermost
from noetic_nb.steps import channel, fork, loop, spawn, step, until
from noetic_nb.testing import drive_loop
from tests.runtime.factories import lookup, make_harness, outputs, record_events, texts
from tests.runtime.test_control import Crash, Storage

pytestmark = pytest.mark.virtual_time


async def ran(one: Any, value: Any = None, replies: Any = (), **more: Any) -> Any:
    harness = make_harness(replies if callable(replies) else list(replies), step=one, **more)
    async with harness.execution() as ctx:
        return await harness.run(one, value, ctx)


def layer(**hooks: Any) -> nn.MemoryLayer:
    return nn.MemoryLayer(id="l", slot=1, scope="execution", hooks=nn.MemoryHooks(**hooks))


async def test_01_a_failed_init_does_not_switch_enforcement_off_for_the_next_run() -> None:
    ran: list[str] = []

    def init(p: Any) -> Any:
        raise RuntimeError("no rules")

    guard = nn.MemoryLayer(
        id="guard", slot=90, scope="execution", enforces=True, on_init_error="disable",
        hooks=nn.MemoryHooks(init=init, before_tool_call=lambda p: nn.allow()),
    )  # fmt: skip

    @nn.tool
    def act() -> str:
        """Act."""
        ran.append("acted")
        return "done"

    harness = make_harness([nn.CallTool("act"), "ok", nn.CallTool("act"), "ok"], tools=[act], memory=[guard],
                   diagnostic=lambda *_: None)  # fmt: skip

    for _ in range(2):
        assert "steering_denied" in outputs((await harness.execute("go")).items)[0]
    assert ran == []


async def test_02_tool_nodes_of_workflow_documents_are_steered() -> None:
    rules = nn.RuleBook()
    rules.rule("never", on="before_tool_call", tools=["lookup"])(lambda call: nn.deny("Never."))
    document = {"version": 1, "root": {"kind": "tool", "id": "t", "toolName": "lookup", "args": {"order_id": "A"}}}
    flow = nn.load_workflow(document, nn.Registry(tools=[lookup]))

    with pytest.raises(nn.NoeticError) as caught:
        await make_harness([], step=flow, memory=[nn.steering(rules)]).execute("go")

    assert caught.value.kind == "steering_denied"


async def test_03_rules_see_a_tool_by_its_own_name_and_two_that_look_alike_are_refused() -> None:
    seen: list[str] = []
    rules = nn.RuleBook()
    rules.rule("note", on="before_tool_call")(lambda call: seen.append(call.tool_name))

    @nn.tool(name="plan/update")
    def update() -> str:
        """Update."""
        return "ok"

    await make_harness([nn.CallTool("plan_update"), "ok"], tools=[update], memory=[nn.steering(rules)]).execute("go")
    assert seen == ["plan/update"]

    twin = nn.tool(name="plan_update")(lambda: "twin")
    with pytest.raises(nn.NoeticConfigError):
        await make_harness([nn.CallTool("plan_update"), "ok"], tools=[update, twin]).execute("go")


async def test_04_arguments_and_results_of_tools_are_checked() -> None:
    ran_with: list[int] = []

    @nn.tool
    def pay(amount: int) -> int:
        """Pay."""
        ran_with.append(amount)
        return "three"  # type: ignore[return-value]

    reply = await make_harness(
        [nn.CallTool("pay", amount="a lot"), nn.CallTool("pay", amount=3), "ok"], tools=[pay]
    ).execute("go")

    bad, wrong = outputs(reply.items)
    assert ("amount" in bad, "does not fit" in wrong, ran_with) == (True, True, [3])


async def test_04_an_approval_flag_gates_a_direct_tool_step_too() -> None:
    @nn.tool(needs_approval=True)
    def wire() -> str:
        """Send."""
        return "sent"

    with pytest.raises(nn.NoeticError) as caught:
        await make_harness([], step=step.tool("w", wire)).execute("go")

    assert caught.value.kind == "steering_denied"


async def test_05_a_response_is_reviewed_before_the_tools_it_asks_for_run() -> None:
    order: list[str] = []

    @nn.tool
    def act() -> str:
        """Act."""
        order.append("tool")
        return "done"

    def review(p: Any) -> None:
        order.append("review")

    harness = make_harness([nn.CallTool("act"), "ok"], tools=[act], memory=[layer(after_model_call=review)])
    await harness.execute("go")

    assert order == ["review", "tool", "review"]


async def test_06_a_channel_is_closed_when_its_execution_ends() -> None:
    pipe = channel("c", external=True)
    harness = make_harness([])

    async with harness.execution() as ctx:
        handle = harness.channel_handle(pipe, ctx.id)
        assert not handle.closed

    assert handle.closed
    assert harness.channel_handle(pipe, "nobody").closed
    with pytest.raises(nn.NoeticError) as caught:
        handle.send(1)
    assert (caught.value.kind, caught.value.channel_name) == ("channel_closed", "c")


async def test_07_nothing_of_an_execution_is_left_behind() -> None:
    hooks = {"init": lambda p: {"state": 1}, "on_spawn": lambda p: {"child_state": 2}}
    harness = make_harness(lambda request: "ok", step=spawn("s", step.llm("a", model="m")), memory=[layer(**hooks)])

    for _ in range(20):
        await harness.execute("go")

    store = harness._stack.state
    assert (store._states, store._mirror.by_execution, harness._threads.live) == ({}, {}, {})


async def test_08_layers_of_a_spawn_are_initialised_and_recall() -> None:
    own = nn.MemoryLayer(
        id="own", slot=1, scope="execution",
        hooks=nn.MemoryHooks(init=lambda p: {"state": "ready"}, recall=lambda p: f"I am {p.state}"),
    )  # fmt: skip
    model = nn.ScriptedModel(["ok"])

    await make_harness(model, step=nn.react(model="m", memory=[own])).execute("hi")

    assert "I am ready" in str(list(model.requests[0].items))


async def test_09_a_layer_sees_what_the_user_says_what_tools_answer_and_what_is_asked() -> None:
    seen: list[str] = []

    def recall(p: Any) -> None:
        seen.append(f"query {p.query}")

    hooks = {"on_item_append": lambda p: seen.extend(item["type"] for item in p.items), "recall": recall}
    await make_harness([nn.CallTool("lookup", order_id="A"), "ok"], memory=[layer(**hooks)]).execute("hi")

    assert seen == ["message", "query hi", "function_call_output", "query hi"]


async def test_12_a_resumed_turn_has_its_counters_its_state_and_its_layers() -> None:
    storage = Storage()
    inits: list[Any] = []

    def agent(crash: bool) -> nn.AgentHarness:
        def first(value: Any, ctx: Any) -> str:
            ctx.state["seen"] = "before"
            return "one"

        def second(value: Any, ctx: Any) -> Any:
            if crash:
                storage.crashed = True
                raise Crash
            return [ctx.state["seen"], ctx.cost, ctx.tokens.input_tokens, ctx.model_calls, ctx.step_count]

        counting = layer(
            init=lambda p: {"state": inits.append("init") or {"n": 0}}, store=lambda p: {"state": {"n": 7}}
        )
        steps = [step.run("first", first), step.llm("ask", model="m"), step.run("second", second)]
        return nn.AgentHarness(
            nn.AgentConfig(name="a", step=loop("l", steps, until=until.max_steps(1)), memory=[counting]),
            model=nn.ScriptedModel([nn.Reply("x", cost=0.5, usage={"input_tokens": 9, "output_tokens": 1})]),
            storage=storage, checkpoints=True,
        )  # fmt: skip

    with pytest.raises(Crash):
        await agent(True).execute("go")
    storage.crashed = False
    second = agent(False)
    states: list[Any] = []
    second._stack.state.listen(lambda execution, layer_id, state, hook: states.append(state))
    reply = await second.resume((await second.unfinished())[0])

    assert reply.output == ["before", 0.5, 9, 1, 4], "as if it had not been cut off"
    assert (inits, states[0]) == (["init"], {"n": 7}), "the layer was not begun anew"


async def test_12_a_cancelled_race_is_cancelled_and_a_late_loser_merges_nothing() -> None:
    back: list[str] = []

    async def stubborn(value: Any, ctx: Any) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "I finish anyway"

    memory = [layer(on_spawn=lambda p: {"child_state": 1}, on_return=lambda p: back.append(p.result))]
    quick = step.run("quick", lambda value, ctx: asyncio.sleep(0.001, "quick"))
    harness = make_harness([], memory=memory)

    async with harness.execution() as ctx:
        race = fork("r", mode="race", paths=[step.run("stubborn", stubborn), quick])
        assert await harness.run(race, None, ctx) == "quick"

    assert back == ["quick"]


async def test_14_what_layers_ask_models_is_paid_by_the_execution() -> None:
    async def recall(p: Any) -> str:
        from noetic_nb.memory._execution_context import HookModelRequest

        response = await p.ctx.call_model(HookModelRequest("helper", ()))
        return f"note {len(response.items)}"

    replies = {"scripted": [nn.Reply("ok", cost=1.0)], "helper": [nn.Reply("hint", cost=0.25)]}
    harness = make_harness(nn.ScriptedModel(replies), memory=[layer(recall=recall)])

    assert (await harness.execute("go")).cost == 1.25


async def test_14_a_refused_call_is_paid_too() -> None:
    harness = make_harness([nn.Fault("refusal")])
    events = record_events(harness)

    with pytest.raises(nn.NoeticError):
        await harness.execute("go")

    assert events.of("turn_completed")[0].input_tokens > 0


async def test_15_the_policy_holds_without_layers() -> None:
    policy = nn.ProjectionPolicy(token_budget=200, response_reserve=20, overflow="truncate")
    model = nn.ScriptedModel(lambda request: "y" * 100)
    harness = make_harness(model, tools=[], projection=policy)

    for number in range(5):
        await harness.execute(f"question {number}")

    assert len(model.requests[-1].items) < 9


async def test_15_no_budget_at_all_is_refused_and_never_nan() -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        nn.allocate_budgets((), total_budget=float("inf"), response_reserve=float("inf"))

    assert caught.value.code == "INVALID_BUDGET_INPUT"


async def test_16_limits_hooks_and_time_limits_are_honoured() -> None:
    hooks: list[str] = []
    late = spawn("late", step.run("r", lambda value, ctx: asyncio.sleep(10)), timeout_ms=1)
    harness = make_harness([nn.Reply("x", cost=1.0)], before_step=lambda one, value, ctx: hooks.append(one.id))

    with pytest.raises(nn.NoeticError) as limited:
        await harness.execute("go", limits={"max_cost": 0.5})
    with pytest.raises(nn.NoeticError) as timed:
        await ran(late)

    assert (limited.value.kind, timed.value.kind, hooks) == ("budget_exceeded", "step_failed", ["react-loop", "react"])


@pytest.mark.parametrize(
    "make",
    [
        lambda: step.run("r", print, retry={"max_attempts": 0}),
        lambda: fork("f", mode="all", paths=[], merge="last", concurrency=0),
        lambda: fork("f", mode="race", paths=[], merge="last"),
        lambda: fork("f", mode="all", paths=[]),
        lambda: spawn("s", step.run("r", print), timeout_ms=0),
        lambda: spawn("s", step.run("r", print), context_in="some"),
        lambda: loop("l", step.run("r", print), until=until.never(), max_iterations=0),
        lambda: loop("l", step.run("r", print), until=None),
        lambda: step.run(" ", print),
        lambda: step.run("r", "print"),
        lambda: step.llm("a", model=" "),
        lambda: step.tool("t", print),
        lambda: nn.branch("b"),
        lambda: until.max_steps(-1),
        lambda: until.max_cost(float("nan")),
        lambda: step.llm("a", model="m", output={"type": "object", "iff": {}}),
    ],
)
def test_16_an_option_that_cannot_be_honoured_is_refused_when_it_is_set(make: Any) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        make()

    assert caught.value.code.isupper()


async def test_17_feedback_of_every_member_reaches_the_next_round() -> None:
    inputs: list[Any] = []
    body = step.run("body", lambda value, ctx: inputs.append(value) or len(inputs))
    stop = until.any(until.verified(lambda n: (n >= 3, f"{n} is too few")), until.max_steps(9))

    await ran(loop("l", body, until=stop, prepare_next=lambda output, verdict, ctx: verdict.feedback), "start")

    assert inputs == ["start", "1 is too few", "2 is too few"]


async def test_17_a_predicate_knows_nothing_of_an_earlier_run() -> None:
    count: list[int] = []
    again = loop("l", step.run("same", lambda value, ctx: count.append(1) or "same"), until=until.converged())
    harness = make_harness([])

    async with harness.execution() as ctx:
        await harness.run(again, None, ctx)
        await harness.run(again, None, ctx)

    assert len(count) == 4, "twice two rounds: the first round of a run has nothing to compare with"


async def test_17_a_loop_counts_what_it_spent_itself() -> None:
    seen: list[Any] = []

    def look(snapshot: Any) -> bool:
        seen.append((snapshot.cost, snapshot.tokens.total_tokens))
        return snapshot.step_count == 2

    ask = step.llm("ask", model="m")
    harness = make_harness(lambda request: nn.Reply("x", cost=1.0, usage={"input_tokens": 8, "output_tokens": 2}))

    async with harness.execution() as ctx:
        for _ in range(2):
            await harness.run(loop("l", ask, until=until.custom(look)), "go", ctx)
        assert (await harness.run(loop("l", ask, until=until.max_cost(3)), "go", ctx), ctx.cost) == ("x", 7.0)

    assert seen == [(1.0, 10), (2.0, 20)] * 2


async def test_17_a_loop_that_is_resumed_counts_from_where_it_began() -> None:
    storage = Storage()
    seen: list[float] = []

    def agent(crash: bool) -> nn.AgentHarness:
        def work(value: Any, ctx: Any) -> str:
            if crash:
                storage.crashed = True
                raise Crash
            return "done"

        inner = loop("inner", [step.llm("b", model="m"), step.run("work", work)],
                     until=until.custom(lambda snapshot: seen.append(snapshot.cost) or True))  # fmt: skip
        whole = loop("whole", [step.llm("a", model="m"), inner], until=until.max_steps(1))
        model = nn.ScriptedModel(lambda request: nn.Reply("x", cost=1.0))
        return nn.AgentHarness(nn.AgentConfig(name="a", step=whole), model=model, storage=storage, checkpoints=True)

    with pytest.raises(Crash):
        await agent(True).execute("go")
    storage.crashed = False
    second = agent(False)
    reply = await second.resume((await second.unfinished())[0])

    assert (seen, reply.cost) == ([1.0], 2.0), "what was spent in the loop before the crash, and nothing from before it"


@pytest.mark.parametrize("mode", ["all", "race"])
def test_18_a_concurrency_of_nothing_is_refused(mode: Any) -> None:
    with pytest.raises(nn.NoeticConfigError):
        fork("f", mode=mode, paths=[], merge=None if mode == "race" else "first", concurrency=0)


def test_18_waiting_for_another_try_and_a_late_hook_end_on_time() -> None:
    later: list[str] = []

    async def hook(p: Any) -> None:
        await asyncio.sleep(60)
        later.append("the hook went on")

    async def main() -> Any:
        slow = nn.MemoryLayer(id="slow", slot=1, scope="execution", hooks=nn.MemoryHooks(recall=hook),
                              timeouts={"recall": 50})  # fmt: skip
        await make_harness(["ok"], memory=[slow], diagnostic=lambda *_: None).execute("hi")
        began = asyncio.get_running_loop().time()
        retry = step.run("r", lambda value, ctx: 1 / 0, retry={"max_attempts": 5, "initial_delay_ms": 10_000})
        harness = make_harness([])
        async with harness.execution() as ctx:
            task = asyncio.create_task(harness.run(retry, None, ctx))
            await asyncio.sleep(0.001)
            ctx.abort("enough")
            await asyncio.wait([task])
        error = task.exception()
        await asyncio.sleep(100)
        return getattr(error, "kind", error), began

    assert drive_loop(main()) == ("cancelled", 0.05)
    assert later == []


async def test_19_the_kind_of_an_error_survives_the_steps_around_it() -> None:
    async def outer(value: Any, ctx: Any) -> Any:
        return await ctx.run(loop("l", step.llm("ask", model="m", output=int), until=until.max_steps(1)), "n?")

    harness = make_harness(["no number"])
    async with harness.execution() as ctx:
        with pytest.raises(nn.NoeticError) as caught:
            await harness.run(step.run("outer", outer), None, ctx)

    first = innermost(caught.value)
    assert isinstance(first, ValueError) or first.kind == "llm_parse_error"
    assert caught.value.cause.kind == "llm_parse_error"


async def test_20_a_failure_after_a_success_is_not_answered_with_the_old_reply() -> None:
    harness = make_harness(["fine", nn.Fault("server_error")])
    await harness.execute("one")

    with pytest.raises(nn.NoeticError):
        await harness.execute("two")

    assert list(texts(harness.log())) == ["user: one", "assistant: fine", "user: two"]


async def test_20_a_tool_that_returns_nothing_still_answers_and_data_can_be_said() -> None:
    @nn.tool
    def ping() -> None:
        """Do nothing."""

    reply = await make_harness([nn.CallTool("ping"), "ok"], tools=[ping]).execute("hi")
    sent: list[Any] = []
    await ran(step.llm("ask", model="m"), {"order": "A"}, lambda request: sent.extend(request.items) or "ok")

    assert outputs(reply.items) == ["null"]
    assert list(texts(sent)) == ['user: {"order":"A"}']


async def test_20_a_tool_that_failed_is_not_reported_as_a_success() -> None:
    harness = make_harness([nn.CallTool("fails"), "ok"])
    events = record_events(harness)

    await harness.execute("go")

    assert [(event.status, event.error) for event in events.of("tool_called")] == [("error", "out of paper")]


async def test_21_nothing_that_was_logged_or_stored_can_be_changed_from_outside() -> None:
    storage, value = nn.InMemoryStorage(), {"list": [1]}
    await storage.set("k", value)
    value["list"].append(2)
    harness = make_harness(["ok"])
    reply = await harness.execute("hi")

    assert await storage.get("k") == {"list": [1]}
    for spoil in (lambda item: item.update(role="x"), lambda item: item["content"][0].update(text="x")):
        with pytest.raises((TypeError, AttributeError)):
            spoil(reply.items[0])
    assert list(texts(harness.log())) == ["user: hi", "assistant: ok"]


async def test_21_a_thread_named_like_a_path_has_a_place_of_its_own() -> None:
    storage = nn.InMemoryStorage()
    notes = nn.MemoryLayer(
        id="l", slot=1, scope="thread",
        hooks=nn.MemoryHooks(init=lambda p: {"state": 0}, store=lambda p: {"state": p.ctx.thread_id}),
    )  # fmt: skip
    harness = make_harness(lambda request: "ok", memory=[notes], storage=storage)

    for name in ("a", "a/state", "a~1state"):
        await harness.execute("hi", thread_id=name)

    kept = {key: await storage.get(key) for key in await storage.list("layers/")}
    assert kept == {
        "layers/l/a/state": "a",
        "layers/l/a~1state/state": "a/state",
        "layers/l/a~01state/state": "a~1state",
    }


def test_22_a_tool_leaves_its_real_duration() -> None:
    @nn.tool
    async def slow() -> str:
        """Take your time."""
        await asyncio.sleep(0.002)
        return "done"

    async def main() -> float:
        harness = make_harness([nn.CallTool("slow"), "ok"], tools=[slow])
        events = record_events(harness)
        await harness.execute("go")
        return events.of("tool_called")[0].duration_ms

    assert asyncio.run(main()) >= 2


async def test_22_every_step_and_every_hook_leaves_a_record() -> None:
    harness = make_harness(["ok"], memory=[layer(recall=lambda p: "note")])
    events = record_events(harness)

    await harness.execute("go")

    assert [(event.step_id, event.status) for event in events.of("step_ended")] == [
        ("react", "ok"),
        ("react-loop", "ok"),
    ]
    assert ("l", "recall", "ok") in [(event.layer_id, event.hook, event.status) for event in events.of("hook_called")]


async def test_23_tokens_can_be_counted_by_another_tokenizer() -> None:
    config = nn.AgentConfig(name="a", step=step.llm("ask", model="m"))
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["ok"]), tokenizer=len)

    await harness.execute("\u65e5\u672c\u8a9e")

    assert harness.log().tokens > 2 * sum(len(text) for text in texts(harness.log()))
