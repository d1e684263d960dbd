"""What earlier runtimes of this design got wrong, one test for each; and every kind of error, reached."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import innermost
from noetic_nb.models import ModelResponse
from noetic_nb.steps import channel, fork, loop, spawn, step, until
from noetic_nb.testing import drive_loop
from tests.runtime.made import heard, lookup, made, outputs, texts


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

    harness = made([nn.CallTool("act"), "ok", nn.CallTool("act"), "ok"], tools=[act], memory=[guard],
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
        await made([], step=flow, memory=[nn.steering(rules)]).execute("go")

    assert caught.value.kind == "steering_denied"


async def test_04_an_approval_flag_gates_a_direct_tool_step_too() -> None:
    @nn.tool(needs_approval=True)
    def wire() -> str:
        """Send."""
        return "sent"

    with pytest.raises(nn.NoeticError) as caught:
        await made([], step=step.tool("w", wire)).execute("go")

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

    harness = made([nn.CallTool("act"), "ok"], tools=[act], memory=[layer(after_model_call=review)])
    await harness.execute("go")

    assert order == ["review", "tool", "review"]


async def test_06_a_channel_is_closed_when_its_execution_ends() -> None:
    pipe = channel("c", external=True)
    harness = made([])

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
    harness = made(lambda request: "ok", step=spawn("s", step.llm("a", model="m")), memory=[layer(**hooks)])

    for _ in range(20):
        await harness.execute("go")

    store = harness._stack.state
    assert (store._states, store._by_execution, harness._threads.live) == ({}, {}, {})


async def test_12_a_cancelled_race_is_cancelled_and_a_late_loser_merges_nothing() -> None:
    back: list[str] = []

    async def stubborn(value: Any, ctx: Any) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "I finish anyway"

    memory = [layer(on_spawn=lambda p: {"child_state": 1}, on_return=lambda p: back.append(p.result))]
    quick = step.run("quick", lambda value, ctx: asyncio.sleep(0.001, "quick"))
    harness = made([], memory=memory)

    async with harness.execution() as ctx:
        race = fork("r", mode="race", paths=[step.run("stubborn", stubborn), quick])
        assert await harness.run(race, None, ctx) == "quick"

    assert back == ["quick"]


async def test_14_what_layers_ask_models_is_paid_by_the_execution() -> None:
    async def recall(p: Any) -> str:
        from noetic_nb.memory import HookModelRequest

        response = await p.ctx.call_model(HookModelRequest("helper", ()))
        return f"note {len(response.items)}"

    replies = {"scripted": [nn.Reply("ok", cost=1.0)], "helper": [nn.Reply("hint", cost=0.25)]}
    harness = made(nn.ScriptedModel(replies), memory=[layer(recall=recall)])

    assert (await harness.execute("go")).cost == 1.25


async def test_14_a_refused_call_is_paid_too() -> None:
    harness = made([nn.Fault("refusal")])
    events = heard(harness)

    with pytest.raises(nn.NoeticError):
        await harness.execute("go")

    assert events.of("turn_completed")[0].input_tokens > 0


async def test_15_the_policy_holds_without_layers() -> None:
    policy = nn.ProjectionPolicy(token_budget=200, response_reserve=20, overflow="truncate")
    model = nn.ScriptedModel(lambda request: "y" * 100)
    harness = made(model, tools=[], projection=policy)

    for number in range(5):
        await harness.execute(f"question {number}")

    assert len(model.requests[-1].items) < 9


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
        lambda: step.llm("a", model="m", output={"type": "object", "if": {}}),
    ],
)
def test_16_an_option_that_cannot_be_honoured_is_refused_when_it_is_set(make: Any) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        make()

    assert caught.value.code.isupper()


async def test_19_the_kind_of_an_error_survives_the_steps_around_it() -> None:
    async def outer(value: Any, ctx: Any) -> Any:
        return await ctx.run(loop("l", step.llm("ask", model="m", output=int), until=until.max_steps(1)), "n?")

    harness = made(["no number"])
    async with harness.execution() as ctx:
        with pytest.raises(nn.NoeticError) as caught:
            await harness.run(step.run("outer", outer), None, ctx)

    first = innermost(caught.value)
    assert isinstance(first, ValueError) or first.kind == "llm_parse_error"
    assert caught.value.cause.kind == "llm_parse_error"


async def test_20_a_failure_after_a_success_is_not_answered_with_the_old_reply() -> None:
    harness = made(["fine", nn.Fault("server_error")])
    await harness.execute("one")

    with pytest.raises(nn.NoeticError):
        await harness.execute("two")

    assert list(texts(harness.log())) == ["user: one", "assistant: fine", "user: two"]


async def test_20_a_tool_that_failed_is_not_reported_as_a_success() -> None:
    harness = made([nn.CallTool("fails"), "ok"])
    events = heard(harness)

    await harness.execute("go")

    assert [(event.status, event.error) for event in events.of("tool_called")] == [("error", "out of paper")]


def test_22_a_tool_leaves_its_real_duration() -> None:
    @nn.tool
    async def slow() -> str:
        """Take your time."""
        await asyncio.sleep(0.002)
        return "done"

    async def main() -> float:
        harness = made([nn.CallTool("slow"), "ok"], tools=[slow])
        events = heard(harness)
        await harness.execute("go")
        return events.of("tool_called")[0].duration_ms

    assert asyncio.run(main()) >= 2


# -- every kind of error ------------------------------------------------------------------------------------------------


async def unknown_item(harness: nn.AgentHarness) -> Any:
    class Odd:
        async def complete(self, request: Any) -> ModelResponse:
            return ModelResponse((nn.Item(type="custom:thing"),))

    return await made(Odd()).execute("hi")


async def waits(harness: nn.AgentHarness) -> Any:
    async with harness.execution() as ctx:
        return await ctx.recv(channel("c"), timeout_ms=5)


async def closed(harness: nn.AgentHarness) -> Any:
    return harness.channel_handle(channel("c", external=True), "gone").send(1)


async def runs(harness: nn.AgentHarness, one: Any, value: Any = "go") -> Any:
    async with harness.execution() as ctx:
        return await harness.run(one, value, ctx)


def boom(value: Any, ctx: Any) -> Any:
    raise ValueError("boom")


async def cancelled(harness: nn.AgentHarness) -> Any:
    async with harness.execution() as ctx:
        ctx.abort("enough")
        return await harness.run(step.run("r", boom), None, ctx)


DENYING = nn.RuleBook()
DENYING.rule("no", on="after_model_call")(lambda response: nn.deny("No."))
SUMMARY = spawn("s", step.llm("a", model="m"), context_out="summary")
REACHED: dict[str, tuple[Any, Any]] = {
    "step_failed": (lambda: made([]), lambda h: runs(h, step.run("r", boom))),
    "llm_refused": (lambda: made([nn.Fault("refusal")]), lambda h: h.execute("hi")),
    "llm_parse_error": (lambda: made(["x"]), lambda h: runs(h, step.llm("a", model="m", output=int))),
    "llm_rate_limit": (lambda: made([nn.Fault("rate_limit")]), lambda h: h.execute("hi")),
    "llm_failed": (lambda: made([nn.Fault("server_error")]), lambda h: h.execute("hi")),
    "fork_partial": (lambda: made([]), lambda h: runs(h, fork("f", mode="race", paths=[step.run("r", boom)]))),
    "spawn_summary_failed": (
        lambda: made(nn.ScriptedModel({"m": ["x", nn.Fault("server_error")]})),
        lambda h: runs(h, SUMMARY),
    ),
    "channel_timeout": (lambda: made([]), waits),
    "channel_closed": (lambda: made([]), closed),
    "cancelled": (lambda: made([]), cancelled),
    "item_schema_mismatch": (lambda: made([]), unknown_item),
    "budget_exceeded": (lambda: made([nn.Reply("x", cost=2.0)]), lambda h: h.execute("hi", limits={"max_cost": 1})),
    "steering_denied": (lambda: made(["x"], memory=[nn.steering(DENYING)]), lambda h: h.execute("hi")),
}


@pytest.mark.parametrize("kind", REACHED)
def test_every_kind_of_error_can_be_reached(kind: str) -> None:
    make, act = REACHED[kind]

    async def main() -> Any:
        return await act(make())

    with pytest.raises(nn.NoeticError) as caught:
        drive_loop(main())

    assert caught.value.kind == kind
    assert str(caught.value)
