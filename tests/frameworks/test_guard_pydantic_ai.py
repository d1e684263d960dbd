"""Rules in front of real tools of pydantic-ai, called by its agent."""

# ruff: noqa: E402
from __future__ import annotations

import json
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticError

pydantic_ai = pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")

from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

DONE: list[Any] = []


def pay(amount: int, to: str = "bank") -> str:
    """Pay someone."""
    DONE.append(amount)
    return f"paid {amount} to {to}"


async def pay_later(amount: int, to: str = "bank") -> str:
    """Pay someone."""
    DONE.append(amount)
    return f"paid {amount} to {to}"


async def pay_as(ctx: RunContext[str], amount: int, to: str = "bank") -> str:
    """Pay someone."""
    DONE.append(amount)
    return f"paid {amount} to {to}"


def agent_of(tool: Any, *amounts: int) -> Any:
    """Return an agent whose model calls a tool with one amount after the other."""

    def answer(messages: Any, info: Any) -> Any:
        done = sum(isinstance(one, ModelResponse) for one in messages)
        if done < len(amounts):
            name = info.function_tools[0].name
            return ModelResponse([ToolCallPart(name, {"amount": amounts[done]}, f"c{done}")])
        return ModelResponse([TextPart("Done.")])

    return Agent(FunctionModel(answer), tools=[tool], deps_type=str)


def results(run: Any) -> list[Any]:
    return [part.content for one in run.all_messages() for part in one.parts if isinstance(part, ToolReturnPart)]


@pytest.mark.parametrize("form", ["tool", "function"])
@pytest.mark.parametrize("function", [pay, pay_later, pay_as])
def test_a_tool_is_judged_once_and_the_agent_reads_why_it_was_not_run(function: Any, form: str) -> None:
    DONE.clear()
    book = nn.RuleBook()
    book.when("tool.args.amount > 100", id="small", guidance="Ask a person.")
    book.when("history.size() >= 2", id="twice", guidance="Twice.")
    given = Tool(function) if form == "tool" else function
    guarded = nn.guard(given, book, on_deny="return")

    run = agent_of(guarded, 7, 700, 8).run_sync("Pay.", deps="Ann")

    assert run.output == "Done."
    first, second, third = results(run)
    assert first == "paid 7 to bank"
    assert json.loads(second)["error"]["ruleId"] == "small"
    assert json.loads(third)["error"]["ruleId"] == "twice"
    assert DONE == [7]
    table = guarded.run.to_frame("tools")
    assert list(table["status"]) == ["ok", "denied", "denied"]
    if form == "tool":
        assert type(guarded) is Tool
        assert list(table["call_id"]) == ["c0", "c1", "c2"] or function is not pay_as
        assert dict(table["args"][0]) == {"amount": 7, "to": "bank"}
        assert guarded.tool_def == given.tool_def


def test_a_denial_that_is_raised_ends_the_run() -> None:
    DONE.clear()
    guarded = nn.guard(Tool(pay), [{"id": "no", "applies_to": ["before_tool_call"], "when": "true"}], on_deny="raise")

    with pytest.raises(NoeticError) as caught:
        agent_of(guarded, 7).run_sync("Pay.", deps="Ann")

    assert caught.value.kind == "steering_denied"
    assert DONE == []
