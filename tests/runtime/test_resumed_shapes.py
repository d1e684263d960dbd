"""Agents with less common structures, interrupted at any write and resumed."""

from __future__ import annotations

from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.items import input_message
from noetic_nb.steps import branch, fork, loop, spawn, step, until
from tests.runtime.crash_points import cut_everywhere, pay
from tests.runtime.test_resumed_children import (
    COUNTED,
    Plan,
    after,
    answering,
    drafting,
    merging,
    once,
    paying,
    planning,
    react,
)

pytestmark = pytest.mark.matrix  # `cut_everywhere` takes a sample of the writes


class Opened:
    """An object that is not JSON data."""


def settling() -> Any:
    def bad(value: Any, ctx: Any) -> Any:
        raise ValueError("no")

    failing = once(step.tool("t", pay, {"amount": 3}), step.run("bad", bad), name="failing")
    paths = [react(), failing, step.llm("l", model="m")]
    return once(
        fork("f", mode="settle", paths=paths, merge=lambda r, ctx: [str(end.get("status")) for end in r]), after()
    )


def failing_child() -> Any:
    def bad(value: Any, ctx: Any) -> str:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        if ctx.state["n"] == 2:
            raise ValueError("no")
        return f"n{ctx.state['n']}"

    body = [step.llm("q", model="m"), step.run("b", bad)]
    return once(spawn("s", loop("lp", body, until=until.max_steps(3), on_error="skip")), after())


@nn.tool
async def delegate(n: int, ctx: Any) -> str:
    """Delegate."""
    charge = once(step.tool("charge", pay, {"amount": n}), after("i"), name="charging")
    paths = [step.run("p", lambda value, ctx: "p"), step.tool("charge", pay, {"amount": 5})]
    first = await ctx.run(spawn("sub", charge))
    second = await ctx.run(fork("both", mode="all", paths=paths, merge="concat"))
    return f"{first} {second}"


def delegating(request: Any) -> Any:
    done = sum(item["type"] == "function_call_output" for item in request.items)
    return nn.Reply(tool_calls=nn.CallTool("delegate", n=done), cost=1.0) if done < 2 else nn.Reply("done", cost=1.0)


def deep() -> Any:
    async def one(value: Any, ctx: Any) -> str:
        paths = [spawn("x", react()), spawn("y", spawn("z", react()))]
        first = ctx.start(fork("f", mode="all", paths=paths, merge="concat"), "q")
        second = ctx.start(once(step.run("u", lambda value, ctx: Opened()), step.run("w", lambda value, ctx: "w")))
        return f"{await first.result()} {await second.result()}"

    return loop("outer", [step.run("one", one), after()], until=until.max_steps(2))


def logging() -> Any:
    def log(value: Any, ctx: Any) -> Opened:
        ctx.item_log.append(input_message("noted", "developer"))
        return Opened()

    inner = once(step.run("h", log), step.run("n", lambda value, ctx: "n"), step.llm("q", model="m"), name="in")
    return loop("l", [once(spawn("s", inner), after("m"), name="mid"), after()], until=until.max_steps(2))


def summing(request: Any) -> Any:
    return nn.Reply("sum", cost=1.0) if request.purpose == "summary" else paying(request)


def costly_fork() -> Any:
    paths = [step.llm(name, model="m") for name in "ab"]
    return once(loop("lp", [fork("f", mode="all", paths=paths, merge="concat")], until=until.max_cost(30)), after())


def costly_spawn() -> Any:
    body = [spawn("f", step.llm("a", model="m", output=Plan)), step.run("h", lambda value, ctx: "again")]
    return once(loop("lp", body, until=until.max_cost(3)), after())


def costly_pair() -> Any:
    """Return a loop whose child spends twice in each iteration: if interrupted between, the first spending does not count."""
    pair = spawn("s", once(step.llm("x", model="m"), step.llm("y", model="m"), name="pair"))
    return once(loop("lp", [pair], until=until.max_cost(15), max_iterations=3), after())


SHAPES: dict[str, tuple[Any, Any]] = {
    "settle": (settling, paying),
    "child that skips": (failing_child, answering),
    "children of tools": (lambda: once(nn.react(model="m", tools=[delegate], max_steps=5), after()), delegating),
    "deep": (deep, paying),
    "layers of its own": (
        lambda: once(spawn("s", react(), memory=[merging(), nn.working_memory()]), after()),
        paying,
    ),
    "branches": (lambda: once(branch("b", lambda value, ctx: spawn("s", react())), after()), paying),
    "logs what is no data": (logging, answering),
    "summary": (
        lambda: once(spawn("s", react(), context_out={"strategy": "summary", "model": "m"}), after()),
        summing,
    ),
    "costly fork": (costly_fork, drafting),
    "costly spawn": (costly_spawn, planning),
    "costly pair in a child": (costly_pair, drafting),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("with_layer", [False, True])
async def test_an_agent_of_any_shape_ends_as_if_it_had_not_been_cut_off(name: str, with_layer: bool) -> None:
    agent, model = SHAPES[name]
    more: dict[str, Any] = {}
    if with_layer:
        more = {"memory": [merging()], "check": lambda harness, reply: COUNTED[-1]}

    assert await cut_everywhere(agent, lambda: model, **more) > 3
