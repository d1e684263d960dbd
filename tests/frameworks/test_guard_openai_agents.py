"""Rules in front of real function tools of the OpenAI Agents SDK, called by its runner."""

# ruff: noqa: E402
from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import innermost

agents = pytest.importorskip("agents", reason="openai-agents is not installed")

from agents import Agent, FunctionTool, Runner, Usage, function_tool, set_tracing_disabled
from agents.items import ModelResponse
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from pydantic import AfterValidator, SecretStr

set_tracing_disabled(True)
DONE: list[Any] = []


@function_tool
def pay(amount: int, to: str = "bank") -> str:
    """Pay someone."""
    DONE.append(amount)
    return f"paid {amount} to {to}"


@function_tool
async def pay_as(ctx: agents.RunContextWrapper[Any], amount: int, to: str = "bank") -> str:
    """Pay someone."""
    DONE.append(amount)
    return f"paid {amount} to {to}"


async def by_hand(ctx: Any, text: str) -> str:
    DONE.append(json.loads(text)["amount"])
    return f"paid {json.loads(text)['amount']} to {json.loads(text)['to']}"


SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "integer"}, "to": {"type": "string", "default": "bank"}},
    "required": ["amount"],
}
TOOLS = {
    "function": lambda: pay,
    "with a context": lambda: pay_as,
    "by hand": lambda: FunctionTool("pay", "Pay someone.", SCHEMA, by_hand, strict_json_schema=False),
}


class Scripted(Model):
    """Calls a tool with one text of arguments after the other."""

    def __init__(self, name: str, *texts: str) -> None:
        self.name, self.texts = name, list(texts)
        self.read: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        self.read = [
            one["output"] for one in input if isinstance(one, dict) and one.get("type") == "function_call_output"
        ]
        if len(self.read) < len(self.texts):
            place = len(self.read)
            call = ResponseFunctionToolCall(
                arguments=self.texts[place], call_id=f"c{place}", name=self.name, type="function_call"
            )
            return ModelResponse([call], Usage(), None)
        text = ResponseOutputText(annotations=[], text="Done.", type="output_text")
        done = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse([done], Usage(), None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("kind", TOOLS)
def test_a_tool_is_judged_once_and_the_model_reads_why_it_was_not_run(kind: str) -> None:
    DONE.clear()
    book = nn.RuleBook()
    book.when("tool.args.amount > 100 || tool.args.to != 'bank'", id="small", guidance="Ask a person.")
    book.when("history.filter(c, c.ok).size() >= 1 && tool.args.amount == 9", id="once", guidance="Once.")
    original = TOOLS[kind]()
    guarded = nn.guard(original, book, on_deny="return")
    model = Scripted(original.name, '{"amount": 7}', '{"amount": 700}', '{"amount": 9}', '{"amount": "x"}')

    reply = asyncio.run(Runner.run(Agent("desk", tools=[guarded], model=model), "Pay."))

    assert reply.final_output == "Done."
    first, second, third, fourth = model.read
    assert first == "paid 7 to bank"
    assert json.loads(second)["error"]["ruleId"] == "small"
    assert json.loads(third)["error"]["ruleId"] == "once"
    assert fourth.startswith("Error: ")
    assert DONE == [7]
    table = guarded.run.to_frame("tools")
    assert list(table["status"]) == ["ok", "denied", "denied", "invalid_args"]
    assert list(table["call_id"])[:3] == ["c0", "c1", "c2"]
    assert dict(table["args"][0]) == {"amount": 7, "to": "bank"}
    assert type(guarded) is type(original)


def test_what_a_validator_gives_is_judged_and_runs_and_secrets_arrive() -> None:
    DONE.clear()

    @function_tool
    def pay_cents(amount: Annotated[int, AfterValidator(lambda value: value * 100)], key: SecretStr) -> str:
        """Pay someone."""
        DONE.append((amount, key.get_secret_value()))
        return "paid"

    book, seen = nn.RuleBook(), []

    @book.rule(on="before_tool_call")
    def look(call: Any) -> None:
        seen.append((call.tool_args["amount"], call.tool_args["key"], call.tool_values["key"].get_secret_value()))

    guarded = nn.guard(pay_cents, book, on_deny="return")
    model = Scripted(pay_cents.name, '{"amount": 1, "key": "abc"}')
    asyncio.run(Runner.run(Agent("desk", tools=[guarded], model=model), "Pay."))

    assert DONE == [(100, "abc")]
    assert seen == [(100, "**********", "abc")]


def test_a_denial_that_is_raised_ends_the_run() -> None:
    DONE.clear()
    guarded = nn.guard(pay, [{"id": "no", "applies_to": ["before_tool_call"], "when": "true"}], on_deny="raise")

    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever the runner wraps it in
        asyncio.run(Runner.run(Agent("desk", tools=[guarded], model=Scripted("pay", '{"amount": 7}')), "Pay."))

    assert "steering_denied" in {
        getattr(one, "kind", "") for one in (caught.value, caught.value.__cause__, innermost(caught.value))
    }
    assert DONE == []
