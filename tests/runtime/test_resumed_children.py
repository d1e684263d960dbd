"""Turns interrupted at any write and resumed: the same result and log, no duplicates, the same keys."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

import noetic_nb as nn
from noetic_nb.steps import fork, loop, spawn, step, until
from tests.runtime.crash_points import TRACES, GroupedDisk, cut_everywhere, pay

pytestmark = pytest.mark.matrix  # `cut_everywhere` takes a sample of the writes


def text_of(item: Any) -> str:
    return "".join(part.get("text", "") for part in item["content"]) if item["type"] == "message" else item["output"]


def paying(request: Any) -> Any:
    """Pay twice, one call at a time, then say so."""
    paid = sum(item["type"] == "function_call_output" for item in request.items)
    if paid < 2:
        return nn.Reply(tool_calls=nn.CallTool("pay", amount=paid + 1), cost=1.0)
    return nn.Reply(f"all of {text_of(request.items[-1])}", cost=1.0)


def answering(request: Any) -> Any:
    return nn.Reply(f"re {text_of(request.items[-1])}", cost=1.0)


def drafting(request: Any) -> Any:
    drafts = sum(item.get("role") == "assistant" for item in request.items)
    return nn.Reply(f"draft {drafts + 1}", cost=10.0)


class Plan(BaseModel):
    goal: str


def planning(request: Any) -> Any:
    return nn.Reply('{"goal": "home"}', cost=1.0)


def react(**more: Any) -> Any:
    return nn.react(model="m", tools=[pay], max_steps=5, **more)


def after(name: str = "after") -> Any:
    return step.run(name, lambda value, ctx: value)


def once(*steps: Any, name: str = "once", **more: Any) -> Any:
    return loop(name, list(steps), until=until.max_steps(1), **more)


def acts(value: Any, ctx: Any) -> str:
    assert isinstance(value, Plan)
    return f"went {value.goal}"


def flaky() -> Any:
    """Return a loop whose first iteration fails after it has paid."""

    async def body(value: Any, ctx: Any) -> str:
        paid = await ctx.run(step.tool("charge", pay, {"amount": 1}))
        if ctx.state.setdefault("failed", 0) < 1:
            ctx.state["failed"] += 1
            raise ValueError("flaky")
        return f"{paid} at {ctx.place}"

    return loop("tries", [step.run("b", body), after("c")], until=until.max_steps(3), on_error="retry")


def starting() -> Any:
    async def one(value: Any, ctx: Any) -> str:
        first = ctx.start(react(), "first")
        second = ctx.start(step.tool("charge", pay, {"amount": 7}))
        asked = await ctx.run(step.llm("beside", model="m"), "beside")
        return f"{await first.result()}, {await second.result()}, {asked}"

    return once(step.run("one", one), after())


def merging() -> nn.MemoryLayer:
    """Return a layer that counts the results of its children, each only once."""
    hooks = nn.MemoryHooks(
        init=lambda p: {"state": {"n": 0}},
        on_spawn=lambda p: {"child_state": {"n": 0}},
        on_item_append=lambda p: {"items": p.items, "state": {"n": p.state["n"]}},
        store=lambda p: {"state": {"n": p.state["n"] + 1}},
        on_return=lambda p: {"parent_state": {"n": p.parent_state["n"] + p.child_state["n"] + 100}},
        on_complete=lambda p: COUNTED.append(p.state["n"]),
    )
    return nn.MemoryLayer(id="count", slot=100, scope="execution", hooks=hooks)


COUNTED: list[int] = []

AGENTS: dict[str, tuple[Any, Any]] = {
    "react": (lambda: once(react(), after()), lambda: paying),
    "structured": (
        lambda: once(step.llm("plan", model="m", output=Plan), step.run("act", acts), after()),
        lambda: planning,
    ),
    "spawn": (lambda: once(spawn("team", react()), after()), lambda: paying),
    "inherit": (lambda: once(after("x"), spawn("team", react(), context_in="inherit"), after()), lambda: paying),
    "nested": (lambda: once(spawn("outer", once(spawn("inner", react()), after("z"))), after()), lambda: paying),
    "spawn-structured": (
        lambda: once(spawn("team", step.llm("plan", model="m", output=Plan)), step.run("act", acts), after()),
        lambda: planning,
    ),
    "fork": (
        lambda: once(
            fork(
                "f", mode="all", paths=[react(), spawn("s", react()), step.llm("l", model="m")], merge="concat"
            ),
            after(),
        ),
        lambda: paying,
    ),
    "fork-list": (
        lambda: once(
            fork(
                "f", mode="all", paths=[step.llm(n, model="m", output=Plan) for n in "ab"],
                merge=lambda results, ctx: results,
            ),
            step.run("count", lambda value, ctx: len(value)),
        ),
        lambda: planning,
    ),
    "costly": (
        lambda: once(
            loop("lp", [step.llm("w", model="m")], until=until.max_cost(30)),
            step.run("publish", lambda v, ctx: f"published {v}"),
        ),
        lambda: drafting,
    ),
    "costly-child": (
        lambda: once(spawn("s", loop("lp", [step.llm("w", model="m")], until=until.max_cost(30))), after()),
        lambda: drafting,
    ),
    "retried": (lambda: once(flaky(), after()), lambda: None),
    "started": (starting, lambda: paying),
}  # fmt: skip


@pytest.mark.parametrize("name", AGENTS)
async def test_a_turn_cut_off_at_any_write_ends_as_if_it_had_not_been(name: str) -> None:
    agent, model = AGENTS[name]

    assert await cut_everywhere(agent, model) > 3


@pytest.mark.parametrize("name", ["spawn", "nested", "fork", "spawn-structured", "fork-list", "started"])
async def test_a_child_gives_back_to_its_parent_once(name: str) -> None:
    agent, model = AGENTS[name]

    def check(harness: Any, reply: Any) -> int:
        return COUNTED.pop()

    assert await cut_everywhere(agent, model, check=check, memory=[merging()]) > 3


@pytest.mark.parametrize("name", AGENTS)
async def test_a_turn_cut_off_anywhere_takes_no_step_more_than_it_may(name: str) -> None:
    agent, model = AGENTS[name]
    await cut_everywhere(agent, model)
    steps = TRACES[0].steps

    assert await cut_everywhere(agent, model, limits={"max_steps": steps}) > 3


def bodies() -> Any:
    """Return a loop that counts its spending, around one whose output is not JSON data."""
    inner = loop("inner", [step.llm("plan", model="m", output=Plan)], until=until.max_steps(2), feed_output=False)
    return once(loop("lp", [inner], until=until.max_cost(5), feed_output=False), step.run("act", acts))


async def test_a_loop_whose_iterations_are_no_data_is_judged_as_before() -> None:
    assert await cut_everywhere(bodies, lambda: planning) > 3


def beside() -> Any:
    """Return a loop that counts its spending, and starts parallel steps that also spend."""

    async def one(value: Any, ctx: Any) -> str:
        handle = ctx.start(once(step.llm("x", model="m"), step.llm("y", model="m")), "q")
        said = await ctx.run(step.llm("z", model="m"), "beside")
        return f"{await handle.result()} {said}"

    return once(loop("lp", [step.run("one", one)], until=until.max_cost(7)), after())


async def test_a_loop_that_starts_steps_beside_it_is_judged_as_before() -> None:
    assert await cut_everywhere(beside, lambda: lambda request: nn.Reply("ok", cost=1.0)) > 3


class FailsOnce(GroupedDisk):
    """One write of the first process fails; the storage of later processes works."""

    fails_at = 0

    def __init__(self, texts: dict[str, str] | None = None) -> None:
        super().__init__(texts)
        self.left = type(self).fails_at if texts is None else -1

    async def set_many(self, values: Any, *, delete: Any = (), absent: Any = ()) -> None:
        self.left -= 1
        if self.left == -1:
            raise OSError("disk full")
        await super().set_many(values, delete=delete, absent=absent)


@pytest.mark.parametrize("fails_at", range(1, 5))
@pytest.mark.parametrize("in_children", [False, True])
async def test_the_end_of_a_step_whose_write_failed_is_written_with_the_next(
    in_children: bool, fails_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def agent() -> Any:
        steps = [step.llm(name, model="m") for name in "abcde"]
        return once(*[spawn(f"s-{inner.id}", inner) if in_children else inner for inner in steps])

    monkeypatch.setattr(FailsOnce, "fails_at", fails_at)

    assert await cut_everywhere(agent, lambda: answering, (FailsOnce,))
