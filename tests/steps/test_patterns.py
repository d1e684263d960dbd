"""Agent patterns: how they handle the task, and that their constraints hold."""

from __future__ import annotations

from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.steps import (
    adaptive_plan,
    channel,
    dual_agent,
    ralph_wiggum,
    react,
    recursive_llm,
    step,
    task_tree,
    until,
)


async def said(one: Any, text: str = "Do it", replies: Any = ()) -> tuple[Any, Any]:
    model = nn.ScriptedModel(replies if callable(replies) else list(replies))
    reply = await nn.AgentHarness(nn.AgentConfig(name="p", step=one), model=model).execute(text)
    return reply, model


async def test_react_with_memory_of_its_own_recalls_from_it() -> None:
    notes = nn.static_content("Refunds take five days.")

    reply, model = await said(react(model="m", memory=[notes]), "When?", ["In five days."])

    assert reply.text == "In five days."
    assert [item["role"] for item in model.requests[0].items] == ["developer", "user"]


async def test_react_asks_again_after_tools_without_posting_its_own_answer() -> None:
    @nn.tool
    def look() -> str:
        """Look."""
        return "found"

    _, model = await said(react(model="m", tools=[look]), "Look", [nn.CallTool("look"), "Found."])

    assert [item["type"] for item in model.requests[1].items] == ["message", "function_call", "function_call_output"]


@pytest.mark.parametrize(("max_cost", "answer"), [(0, "Found."), (None, "Found."), (0.5, "Found."), (0.1, "")])
async def test_react_reads_what_its_tools_found_unless_that_is_too_dear(max_cost: Any, answer: str) -> None:
    @nn.tool
    def look() -> str:
        """Look."""
        return "found"

    replies = [nn.Reply(tool_calls=[nn.CallTool("look")], cost=0.2), "Found."]
    reply, _ = await said(react(model="m", tools=[look], max_cost=max_cost), "Look", replies)

    assert reply.text == answer


async def test_ralph_repeats_the_task_with_what_was_wrong() -> None:
    stubborn = ralph_wiggum(model="m", verify=lambda text: {"pass": text == "42", "feedback": "Only the number."})

    reply, model = await said(stubborn, "Six times seven?", ["It is 42.", "42"])

    second = model.requests[1].items[0]["content"][0]["text"]
    assert reply.text == "42"
    assert "Six times seven?" in second
    assert "Only the number." in second
    assert len(model.requests[1].items) == 1, "every attempt has a fresh mind"


async def test_ralph_gives_up_with_the_last_result() -> None:
    stubborn = ralph_wiggum(model="m", verify=lambda text: False, max_iterations=2)

    reply, model = await said(stubborn, "x", lambda request: "no")

    assert (reply.text, len(model.requests)) == ("no", 2)


async def test_a_recursion_takes_a_task_apart_down_to_its_limit() -> None:
    depths: list[int] = []

    def halves(text: str, ctx: Any) -> list[str]:
        return [text[: len(text) // 2], text[len(text) // 2 :]]

    leaf = step.run("leaf", lambda text, ctx: depths.append(ctx.depth) or text)
    reply, _ = await said(recursive_llm(solve=leaf, decompose=halves, merge="concat", max_depth=2), "abcdefgh")

    assert reply.text == "ab\ncd\nef\ngh"
    assert len(depths) == 4


PLAN = {
    "id": "report",
    "children": [
        {"id": "read", "execution": "parallel", "children": [
            {"id": "a", "description": "Read A", "assignee": "reader"},
            {"id": "b", "description": "Read B", "assignee": "reader"}]},
        {"id": "write", "description": "Write", "assignee": "writer"},
    ],
}  # fmt: skip


def worker(task: str) -> Any:
    return step.run(task, lambda value, ctx: f"{value} > {task}")


async def test_a_plan_runs_in_its_order_and_side_by_side() -> None:
    tree = task_tree(PLAN, {"reader": worker, "writer": worker}, merge="concat")

    reply, _ = await said(tree, "go")

    assert reply.text == "go > Read A\ngo > Read B > Write"


@pytest.mark.parametrize("execution", ["sequential", "parallel"])
async def test_a_group_may_say_what_it_is_for_and_need_not_have_a_result(execution: str) -> None:
    child = {"id": "a", "description": "Tidy", "assignee": "silent"}
    inner = {"id": "inner", "description": "Tidy up", "execution": execution, "children": [child]}
    plan = {"id": "all", "description": "Leave the desk as it was", "children": [inner]}

    reply, _ = await said(task_tree(plan, {"silent": lambda task: step.run(task, lambda value, ctx: None)}), "go")

    assert reply.output is None


async def test_a_part_of_a_task_need_not_have_a_result() -> None:
    leaf = step.run("leaf", lambda text, ctx: None)
    parts = recursive_llm(
        solve=leaf, decompose=lambda text, ctx: list(text), merge=lambda results, ctx: results, max_depth=1
    )

    assert (await said(parts, "ab"))[0].output == [None, None]


@pytest.mark.parametrize(
    ("plan", "constraints", "code"),
    [
        ({"id": "x", "assignee": "nobody"}, None, "UNKNOWN_ASSIGNEE"),
        ({"id": "x"}, None, "UNKNOWN_ASSIGNEE"),
        (PLAN, {"assignees": ("reader",)}, "UNKNOWN_ASSIGNEE"),
        (PLAN, {"max_tasks": 2}, "INVALID_PLAN"),
        (PLAN, {"validate_plan": lambda plan: "too dull"}, "INVALID_PLAN"),
        ({"id": "x", "children": [{"id": "x", "assignee": "reader"}]}, None, "INVALID_PLAN"),
        ({"id": "g", "description": "All", "children": [{"id": "x"}]}, None, "UNKNOWN_ASSIGNEE"),
        ({"id": "g", "assignee": "reader", "children": [{"id": "x", "assignee": "reader"}]}, None, "INVALID_PLAN"),
        ({"id": "x", "assignee": "reader", "colour": 1}, None, "INVALID_STEP"),
        ("a plan", None, "INVALID_PLAN"),
    ],
)
def test_a_plan_that_breaks_a_rule_is_refused_before_it_runs(plan: Any, constraints: Any, code: str) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        task_tree(plan, {"reader": worker, "writer": worker}, constraints=constraints)

    assert caught.value.code == code


async def test_a_failed_plan_is_made_again_knowing_why() -> None:
    asked: list[str] = []

    def plan(task: str, ctx: Any) -> str:
        asked.append(task)
        return '{"id": "p", "assignee": "reader", "description": "%s"}' % ("bad" if len(asked) == 1 else "good")

    def agent(task: str) -> Any:
        def execute(value: Any, ctx: Any) -> str:
            if task == "bad":
                raise ValueError("the disk is full")
            return "done"

        return step.run(task, execute)

    reply, _ = await said(adaptive_plan(planner=step.run("plan", plan), agents={"reader": agent}))

    assert reply.text == "done"
    assert "the disk is full" in asked[1]


async def test_a_plan_that_breaks_a_rule_is_not_tried_again() -> None:
    asked: list[str] = []

    def plan(task: str, ctx: Any) -> dict[str, str]:
        asked.append(task)
        return {"id": "p", "assignee": "nobody"}

    with pytest.raises(nn.NoeticError):
        await said(adaptive_plan(planner=step.run("plan", plan), agents={"reader": worker}))

    assert len(asked) == 1


async def test_the_last_failure_is_raised() -> None:
    def agent(task: str) -> Any:
        return step.run(task, lambda value, ctx: 1 / 0)

    planner = step.run("plan", lambda task, ctx: {"id": "p", "assignee": "reader", "description": "x"})
    with pytest.raises(nn.NoeticError, match="division by zero"):
        await said(adaptive_plan(planner=planner, agents={"reader": agent}, max_revisions=2))


def test_a_dual_agent_hears_from_outside_and_not_for_ever() -> None:
    parts = {"talker": worker("a"), "worker": worker("b"), "until_talk": until.never(), "until_work": until.never()}

    with pytest.raises(nn.NoeticConfigError):
        dual_agent(inbox=channel("c"), **parts)
    with pytest.raises(nn.NoeticConfigError):
        dual_agent(inbox=channel("c", external=True), recv_timeout_ms=0, **parts)
