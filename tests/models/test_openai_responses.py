"""OpenAIModel over the responses API: the real package against an endpoint on loopback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.items import (
    assistant_message,
    assistant_text,
    function_call,
    function_call_output,
    input_message,
    parse_item,
)
from noetic_nb.models import (
    ModelDelta,
    ModelParams,
    ModelResponse,
    OpenAIModel,
    TokenLogprob,
    ToolSpec,
    Usage,
)
from tests.models.conftest import ask, parts_of
from tests.models.endpoint import Endpoint, response, response_events, sse

Make = Callable[..., OpenAIModel]
LOOK = ToolSpec("desk/look", "Find an order.", {"type": "object", "properties": {}})
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}


def message(text: str, **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], **more}
    return {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [part]}


def call(name: str, arguments: str = "{}") -> dict[str, Any]:
    return {
        "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name, "arguments": arguments,
        "status": "completed",
    }  # fmt: skip


@pytest.fixture
def model(client: Make) -> OpenAIModel:
    return client(api="responses")


# What is sent


async def test_a_question_is_sent_and_its_answer_read(endpoint: Endpoint, model: OpenAIModel) -> None:
    endpoint.then(response(THOUGHT, message("Hello.")))

    answer = await model.complete(ask(instructions="Be brief."))

    assert endpoint.seen[0].path == "/v1/responses"
    assert endpoint.seen[0].body == {
        "model": "m",
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
    }
    assert [item.type for item in answer.items] == ["reasoning", "message"]
    assert assistant_text(answer.items) == "Hello."
    assert answer.usage == Usage(20, 5, 4, reasoning_tokens=0)
    assert answer.finish_reason == "stop"


async def test_parameters_tools_and_schema_are_sent(endpoint: Endpoint, client: Make) -> None:
    endpoint.then(response(message("{}")))
    schema = {"type": "object", "properties": {}}

    await client(api="responses", logprobs=3).complete(
        ask(tools=(LOOK,), params=ModelParams(temperature=0, top_p=0.5, max_tokens=9), output_schema=schema)
    )

    body = endpoint.seen[0].body
    assert (body["temperature"], body["top_p"], body["max_output_tokens"]) == (0, 0.5, 9)
    assert body["tools"] == [
        {
            "type": "function",
            "name": "desk_look",
            "description": "Find an order.",
            "parameters": LOOK.parameters,
            "strict": False,
        }
    ]
    assert body["text"]["format"] == {"type": "json_schema", "name": "output", "schema": schema, "strict": False}
    assert (body["include"], body["top_logprobs"]) == (["message.output_text.logprobs"], 3)


async def test_stop_sequences_are_refused_before_anything_is_sent(endpoint: Endpoint, model: OpenAIModel) -> None:
    with pytest.raises(NoeticConfigError, match="cannot take stop sequences") as caught:
        await model.complete(ask(params=ModelParams(stop_sequences=("END",))))

    assert caught.value.code == "UNSUPPORTED_BY_API"
    assert endpoint.seen == []


async def test_history_without_provider_ids_is_sent_without_ids(endpoint: Endpoint, model: OpenAIModel) -> None:
    endpoint.then(response(message("Done.")))
    history = (
        input_message("Where is A?"),
        parse_item({"type": "reasoning", "id": "item_9", "content": [{"type": "reasoning_text", "text": "Hm."}]}),
        assistant_message("Looking."),
        function_call("desk/look", '{"id":"A"}', "c1"),
        function_call_output("c1", "packed"),
    )

    await model.complete(ask(*history))

    assert endpoint.seen[0].body["input"][1:] == [
        {"role": "assistant", "content": "Looking."},
        {"type": "function_call", "call_id": "c1", "name": "desk_look", "arguments": '{"id":"A"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "packed"},
    ]


@pytest.mark.parametrize("rounds", [1, 2])
async def test_rounds_of_tools_are_sent_whole(endpoint: Endpoint, model: OpenAIModel, rounds: int) -> None:
    endpoint.then(response(message("Packed.")))
    items: list[Any] = []
    sent: list[dict[str, Any]] = []
    for number in range(rounds):
        call_id, output = f"c{number}", f"packed {number}"
        items += [function_call("desk/look", '{"id":"A"}', call_id), function_call_output(call_id, output)]
        sent += [
            {"type": "function_call", "call_id": call_id, "name": "desk_look", "arguments": '{"id":"A"}'},
            {"type": "function_call_output", "call_id": call_id, "output": output},
        ]

    await model.complete(ask(input_message("Where is A?"), *items, instructions="Be brief.", tools=(LOOK,)))

    assert endpoint.seen[0].body == {
        "model": "m",
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Where is A?"}]}, *sent],
        "tools": [
            {
                "type": "function",
                "name": "desk_look",
                "description": "Find an order.",
                "parameters": dict(LOOK.parameters),
                "strict": False,
            }
        ],
    }


async def test_a_thought_travels_only_with_what_followed_it(endpoint: Endpoint, model: OpenAIModel) -> None:
    endpoint.then(response(THOUGHT, call("desk_look"))).then(response(message("A."))).then(response(message("B.")))
    first = await model.complete(ask(tools=(LOOK,)))
    output = function_call_output("call_1", "packed")

    await model.complete(ask(input_message("q"), *first.items, output, tools=(LOOK,)))
    await model.complete(ask(input_message("q"), first.items[1], output, tools=(LOOK,)))

    kept, alone = endpoint.seen[1].body["input"], endpoint.seen[2].body["input"]
    assert [entry.get("id") for entry in kept] == [None, "rs_1", "fc_1", None]
    assert kept[1]["encrypted_content"] == "gAAA"
    assert [entry.get("id") for entry in alone] == [None, None, None]


# What is read


async def test_calls_come_back_under_their_own_names(endpoint: Endpoint, model: OpenAIModel) -> None:
    endpoint.then(response(call("desk_look", '{"id": ')))

    answer = await model.complete(ask(tools=(LOOK,)))

    item = answer.items[0]
    assert (item.name, item.call_id, item.arguments) == ("desk/look", "call_1", '{"id": ')
    assert answer.finish_reason == "tool_calls"


async def test_logprobs_travel_beside_the_items(endpoint: Endpoint, client: Make) -> None:
    logprobs = [{"token": "Hi", "logprob": -0.5, "bytes": [], "top_logprobs": []}]
    endpoint.then(response(message("Hi", logprobs=logprobs)))

    answer = await client(api="responses", logprobs=True).complete(ask())

    assert answer.logprobs == (TokenLogprob("Hi", -0.5),)
    assert "logprobs" not in answer.items[0].content[0]


async def test_a_text_without_a_message_becomes_one_at_the_front(endpoint: Endpoint, model: OpenAIModel) -> None:
    endpoint.then(response(call("look"), output_text="Looking."))

    answer = await model.complete(ask())

    assert [item.type for item in answer.items] == ["message", "function_call"]
    assert assistant_text(answer.items) == "Looking."


async def test_a_cut_off_answer_says_length(endpoint: Endpoint, model: OpenAIModel) -> None:
    incomplete = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    endpoint.then(response(message("Once"), **incomplete)).then(response(THOUGHT, **incomplete))

    answer = await model.complete(ask())
    with pytest.raises(NoeticError) as caught:
        await model.complete(ask())

    assert answer.finish_reason == "length"
    assert (caught.value.kind, caught.value.reason, caught.value.usage) == (
        "llm_failed",
        "truncated",
        Usage(20, 5, 4, reasoning_tokens=0),
    )


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": "server_error", "message": "overloaded"}, "llm_failed"),
        ({"code": "rate_limit_exceeded", "message": "slow down"}, "llm_rate_limit"),
        (None, "llm_failed"),
    ],
)
async def test_a_failed_response_is_an_error(
    endpoint: Endpoint, model: OpenAIModel, error: dict[str, str] | None, kind: str
) -> None:
    endpoint.then(response(status="failed", error=error))

    with pytest.raises(NoeticError) as caught:
        await model.complete(ask())

    assert caught.value.kind == kind
    assert caught.value.usage == Usage(20, 5, 4, reasoning_tokens=0)


# Streams


async def test_a_streamed_answer_is_the_whole_answer_in_pieces(endpoint: Endpoint, model: OpenAIModel) -> None:
    whole = response(THOUGHT, message("Hello."), call("desk_look", '{"id":1}'))
    added = {"type": "response.output_item.added", "output_index": 2, "item": {**call("desk_look"), "arguments": ""}}
    deltas = [
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Greet."},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "Hello."},
        added,
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"id":1}'},
    ]
    endpoint.then(sse(response_events(whole, *deltas), named=True)).then(whole)

    *pieces, last = await parts_of(model, ask(tools=(LOOK,)))
    complete = await model.complete(ask(tools=(LOOK,)))

    assert [(p.kind, p.text, p.index) for p in pieces if isinstance(p, ModelDelta)] == [
        ("reasoning", "Greet.", 0),
        ("text", "Hello.", 1),
        ("tool_call", '{"id":1}', 2),
    ]
    assert pieces[2].facts == {"call_id": "call_1", "name": "desk/look"}  # type: ignore[union-attr]
    assert last == complete


async def test_streamed_logprobs_stand_in_where_the_response_has_none(endpoint: Endpoint, client: Make) -> None:
    delta = {"type": "response.output_text.delta", "output_index": 0, "delta": "Hi"}
    logprobs = [{"token": "Hi", "logprob": -0.5, "top_logprobs": []}]
    endpoint.then(sse(response_events(response(message("Hi")), {**delta, "logprobs": logprobs}), named=True))

    *_, last = await parts_of(client(api="responses", logprobs=True), ask())

    assert isinstance(last, ModelResponse)
    assert last.logprobs == (TokenLogprob("Hi", -0.5),)


async def test_an_error_event_fails_the_call(endpoint: Endpoint, model: OpenAIModel) -> None:
    error = {"type": "error", "code": "server_error", "message": "overloaded", "param": None}
    endpoint.then(sse(response_events(response(), error)[:2], named=True))

    with pytest.raises(NoeticError, match="overloaded") as caught:
        await parts_of(model, ask())

    assert caught.value.kind == "llm_failed"


async def test_a_streamed_failure_is_an_error(endpoint: Endpoint, model: OpenAIModel) -> None:
    failure = response(status="failed", error={"code": "server_error", "message": "overloaded"})
    endpoint.then(sse(response_events(failure, last="failed"), named=True))

    with pytest.raises(NoeticError, match="overloaded"):
        await parts_of(model, ask())
