"""Every way a provider can fail, under a whole agent: afterwards the thread works on, spend is charged, the ledger is whole."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.events import ModelCalled, SteeringDecided, TurnCompleted
from tests.models.endpoint import Behaviour, Endpoint, chat, running

KEY = "k-test-" + "0" * 24


def calls(name: str, arguments: str) -> dict[str, Any]:
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return chat(tool_calls=[call])


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with running() as served:
        yield served


@pytest.fixture
async def desk(endpoint: Endpoint) -> AsyncIterator[tuple[nn.AgentHarness, nn.Run]]:
    async def at_once(seconds: float) -> None:
        """Wait for nothing."""

    @nn.tool
    def lookup(order_id: str) -> str:
        """Find one order."""
        return f"{order_id} is packed"

    config = nn.AgentConfig(
        name="desk",
        step=nn.react(model="m", tools=[lookup]),
        memory=[nn.steering(nn.RuleBook()), nn.regulation(nn.Regulator.for_user("ann"))],
    )
    model = nn.OpenAIModel("m", api_key=KEY, base_url=endpoint.url, sleep=at_once, max_retries=1, timeout_ms=2_000)
    async with model:
        harness = nn.AgentHarness(config, model=model)
        yield harness, nn.record(harness)


FAULTS = {
    "rate limited": ([Behaviour(status=429, headers=(("Retry-After", "1"),))] * 2, "llm_rate_limit"),
    "server error": ([Behaviour(status=500)] * 2, "llm_failed"),
    "says nothing": ([Behaviour(ending="mute")] * 2, "llm_failed"),
    "hangs up": ([Behaviour(ending="drop")] * 2, "llm_failed"),
    "breaks off": ([Behaviour((b'{"id": "c1", "cho',), ending="cut")] * 2, "llm_failed"),
    "refuses": ([chat(None, refusal="I will not.")], "llm_refused"),
    "is no JSON": ([Behaviour((b"<html>busy</html>",), content_type="text/html")] * 2, "llm_failed"),
    "is other JSON": ([{"hello": "world"}] * 2, "llm_failed"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_after_a_fault_the_thread_works_on(
    endpoint: Endpoint, desk: tuple[nn.AgentHarness, nn.Run], fault: str
) -> None:
    harness, run = desk
    answers, kind = FAULTS[fault]
    for answer in answers:
        endpoint.then(answer)
    with pytest.raises(nn.NoeticError) as caught:
        await harness.execute("Where is order A1?")
    endpoint.behaviours.clear()
    endpoint.then(chat("Order A1 is packed."))

    reply = await harness.execute("And now?")

    assert (caught.value.kind, reply.text) == (kind, "Order A1 is packed.")
    said = ["".join(part["text"] for part in item["content"]) for item in harness.log() if item["role"] == "user"]
    assert said == ["Where is order A1?", "And now?"], "what the user said is kept"
    assert [turn.outcome for turn in run.select(TurnCompleted)] == ["failure", "success"]
    # The ledger has an entry for every response that came to a review, and every model call is on the tape.
    assert len(run.select(SteeringDecided)) == len([c for c in run.select(ModelCalled) if c.status == "ok"])
    assert KEY not in json.dumps([str(event) for event in run.events])


async def test_a_refusal_is_charged(endpoint: Endpoint, desk: tuple[nn.AgentHarness, nn.Run]) -> None:
    harness, run = desk
    endpoint.then(chat(None, refusal="I will not."))
    with pytest.raises(nn.NoeticError, match="refused"):
        await harness.execute("Do it")

    turn = run.select(TurnCompleted)[0]

    assert (turn.input_tokens, turn.output_tokens) == (20, 5)
    assert run.select(ModelCalled)[0].output_tokens == 5


@pytest.mark.parametrize("arguments", ["{not json", '{"order": 7}', '["A1"]', "null", ""])
async def test_malformed_arguments_come_back_to_the_model_in_plain_words(
    endpoint: Endpoint, desk: tuple[nn.AgentHarness, nn.Run], arguments: str
) -> None:
    harness, _ = desk
    endpoint.then(calls("lookup", arguments)).then(chat("I used the tool wrongly."))

    reply = await harness.execute("Where is order A1?")

    answered = endpoint.seen[-1].body["messages"][-1]
    assert reply.text == "I used the tool wrongly."
    assert answered["role"] == "tool"
    assert answered["content"].startswith("Error: ")


async def test_an_empty_answer_is_asked_for_again_without_logging_the_asking(
    endpoint: Endpoint, desk: tuple[nn.AgentHarness, nn.Run]
) -> None:
    harness, run = desk
    for answer in (chat(""), chat(""), chat("Here I am.")):
        endpoint.then(answer)

    reply = await harness.execute("Hello?")

    assert reply.text == "Here I am."
    assert [seen.body["messages"][-1]["content"] for seen in endpoint.seen] == ["Hello?", "continue", "continue"]
    assert [item["content"][0]["text"] for item in harness.log()] == ["Hello?", "Here I am."]
    assert run.select(TurnCompleted)[0].output_tokens == 15, "all three were paid for"


async def test_nothing_but_empty_answers_is_a_failure(endpoint: Endpoint, desk: tuple[nn.AgentHarness, nn.Run]) -> None:
    harness, _ = desk
    for _ in range(4):
        endpoint.then(chat(""))

    with pytest.raises(nn.NoeticError, match="4 empty answers in a row"):
        await harness.execute("Hello?")
