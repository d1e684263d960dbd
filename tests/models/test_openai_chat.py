"""OpenAIModel over chat completions: the real package against an endpoint on loopback."""

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
from tests.models.endpoint import Endpoint, chat, chat_chunks, sse

Make = Callable[..., OpenAIModel]
LOOK = ToolSpec("desk/look", "Find an order.", {"type": "object", "properties": {"id": {"type": "string"}}})


def called(name: str, arguments: Any, id_: str = "call_1", **more: Any) -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


# What is sent


async def test_a_plain_question_is_sent_and_its_answer_read(endpoint: Endpoint, client: Make) -> None:
    endpoint.then(chat("Hello."))

    answer = await client().complete(ask(instructions="Be brief."))

    assert endpoint.seen[0].path == "/v1/chat/completions"
    assert endpoint.seen[0].body == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
    }
    assert assistant_text(answer.items) == "Hello."
    assert answer.usage == Usage(20, 5)
    assert (answer.finish_reason, answer.model, answer.cost) == ("stop", "m-2026", None)


async def test_without_a_model_of_its_own_the_steps_name_is_sent(endpoint: Endpoint, client: Make) -> None:
    endpoint.then(chat("Hello."))

    await client(model=None).complete(ask())

    assert endpoint.seen[0].body["model"] == "step-model"


async def test_parameters_tools_and_schema_are_sent(endpoint: Endpoint, client: Make) -> None:
    endpoint.then(chat("{}"))
    schema = {"title": "Trip plan", "type": "object", "properties": {"to": {"type": "string"}}}
    params = ModelParams(temperature=0.5, top_p=0.9, max_tokens=64, stop_sequences=("END",))

    await client(logprobs=2, extra_body={"top_k": 3}, extra_headers={"X-Title": "lab"}).complete(
        ask(tools=(LOOK,), params=params, output_schema=schema)
    )

    body = endpoint.seen[0].body
    assert (body["temperature"], body["top_p"], body["max_tokens"], body["stop"]) == (0.5, 0.9, 64, ["END"])
    assert body["tools"][0]["function"] == {
        "name": "desk_look",
        "description": "Find an order.",
        "parameters": LOOK.parameters,
    }
    assert body["response_format"]["json_schema"] == {"name": "Trip_plan", "schema": schema, "strict": False}
    assert (body["logprobs"], body["top_logprobs"], body["top_k"]) == (True, 2, 3)
    assert endpoint.seen[0].headers["x-title"] == "lab"


QUESTION = {"role": "user", "content": "Where are A and B?"}
LOOK_SENT = {
    "type": "function",
    "function": {"name": "desk_look", "description": "Find an order.", "parameters": dict(LOOK.parameters)},
}


def round_of_tools(text: str | None, call_id: str, output: str) -> tuple[list[Any], list[dict[str, Any]]]:
    """One round as items of the log, and as the messages that are sent of it."""
    items = [] if text is None else [assistant_message(text)]
    items += [function_call("desk/look", '{"id":"A"}', call_id), function_call_output(call_id, output)]
    sent = called("desk_look", '{"id":"A"}', call_id)
    return items, [
        {"role": "assistant", "content": text, "tool_calls": [sent]},
        {"role": "tool", "tool_call_id": call_id, "content": output},
    ]


@pytest.mark.parametrize("texts", [(None,), ("Looking.",), (None, None), ("Looking.", "Again."), (None, "Again.")])
async def test_rounds_of_tools_are_sent_whole(endpoint: Endpoint, client: Make, texts: tuple[str | None, ...]) -> None:
    endpoint.then(chat("Packed."))
    rounds = [round_of_tools(text, f"c{number}", f"packed {number}") for number, text in enumerate(texts)]
    items = [item for said, _ in rounds for item in said]

    await client().complete(ask(input_message("Where are A and B?"), *items, instructions="Be brief.", tools=(LOOK,)))

    assert endpoint.seen[0].body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            QUESTION,
            *(message for _, sent in rounds for message in sent),
        ],
        "tools": [LOOK_SENT],
    }


async def test_two_calls_of_one_round_are_one_message(endpoint: Endpoint, client: Make) -> None:
    endpoint.then(chat("Packed."))
    calls = [function_call("desk/look", "{}", "a"), function_call("desk/look", "{}", "b")]
    outputs = [function_call_output("b", "two"), function_call_output("a", "one")]

    await client().complete(ask(input_message("Where are A and B?"), *calls, *outputs, input_message("And C?")))

    assert endpoint.seen[0].body == {
        "model": "m",
        "messages": [
            QUESTION,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [called("desk_look", "{}", "a"), called("desk_look", "{}", "b")],
            },
            {"role": "tool", "tool_call_id": "a", "content": "one"},
            {"role": "tool", "tool_call_id": "b", "content": "two"},
            {"role": "user", "content": "And C?"},
        ],
    }


async def test_a_closed_schema_and_a_strict_tool_are_enforced(endpoint: Endpoint, client: Make) -> None:
    endpoint.then(chat("{}"))
    closed = {"type": "object", "properties": {"to": {}}, "required": ["to"], "additionalProperties": False}

    await client().complete(ask(output_schema=closed, tools=(ToolSpec("t", "", closed, strict=True),)))

    body = endpoint.seen[0].body
    assert body["response_format"]["json_schema"]["strict"] is True
    assert body["tools"][0]["function"]["strict"] is True


async def test_history_keeps_calls_and_outputs_together(endpoint: Endpoint, client: Make) -> None:
    endpoint.then(chat("Done."))
    history = (
        input_message("Where are A and B?"),
        assistant_message("Looking."),
        function_call("desk/look", '{"id":"A"}', "c1"),
        function_call("desk/look", '{"id":"B"}', "c2"),
        function_call_output("c1", "packed"),
        input_message("Be quick.", "developer"),
        function_call_output("c2", "lost"),
        input_message("Policy.", "system"),
    )

    await client().complete(ask(*history, instructions="Help.", tools=(LOOK,)))

    messages = endpoint.seen[0].body["messages"]
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "tool", "tool", "system"]
    assert messages[0]["content"] == "Help.\n\nPolicy."
    assert messages[2]["content"] == "Looking."
    assert [c["function"]["name"] for c in messages[2]["tool_calls"]] == ["desk_look", "desk_look"]
    assert [(m["tool_call_id"], m["content"]) for m in messages[3:5]] == [("c1", "packed"), ("c2", "lost")]


async def test_images_and_files_are_sent_as_parts(endpoint: Endpoint, client: Make) -> None:
    endpoint.then(chat("A cat."))
    parts = [
        {"type": "input_text", "text": "What is it?"},
        {"type": "input_image", "imageUrl": "data:image/png;base64,AA=="},
        {"type": "input_file", "fileId": "f1"},
    ]

    await client().complete(ask(parse_item({"type": "message", "role": "user", "content": parts})))

    assert endpoint.seen[0].body["messages"][0]["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "auto"}},
        {"type": "file", "file": {"file_id": "f1"}},
    ]


@pytest.mark.parametrize(
    "item",
    [
        {"type": "desk:note", "text": "x"},
        {"type": "message", "role": "user", "content": [{"type": "input_file", "fileUrl": "https://x/y.pdf"}]},
    ],
)
async def test_what_the_api_has_no_form_for_is_refused(endpoint: Endpoint, client: Make, item: dict[str, Any]) -> None:
    from noetic_nb.items import ItemRegistry

    with pytest.raises(NoeticConfigError) as caught:
        await client().complete(ask(ItemRegistry(strict=False).parse(item)))

    assert caught.value.code == "UNSUPPORTED_BY_API"
    assert endpoint.seen == []


# What is read


async def test_calls_come_back_under_their_own_names(endpoint: Endpoint, client: Make) -> None:
    endpoint.then(chat(None, tool_calls=[called("desk_look", '{"id":"A17"}'), called("made_up", "{}", "call_2")]))

    answer = await client().complete(ask(tools=(LOOK,)))

    assert [(i.name, i.arguments, i.call_id) for i in answer.items] == [
        ("desk/look", '{"id":"A17"}', "call_1"),
        ("made_up", "{}", "call_2"),
    ]
    assert answer.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("sent", "read"),
    [('{"id": ', '{"id": '), ("", "{}"), (None, "{}"), ({"id": "A"}, '{"id": "A"}'), ("not json", "not json")],
)
async def test_arguments_are_passed_on_as_they_were_written(
    endpoint: Endpoint, client: Make, sent: Any, read: str
) -> None:
    endpoint.then(chat(None, tool_calls=[called("look", sent)]))

    answer = await client().complete(ask())

    assert answer.items[0].arguments == read


async def test_cached_tokens_logprobs_reasoning_and_cost_are_read(endpoint: Endpoint, client: Make) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}, "cost": 0.25}
    body = chat("Hi.", usage=usage, reasoning_content="Greet.")
    top = [{"token": "Hi", "logprob": -0.1}, {"token": "Yo", "logprob": -2.5}]
    body["choices"][0]["logprobs"] = {"content": [{"token": "Hi", "logprob": -0.1, "top_logprobs": top}]}
    endpoint.then(body)

    answer = await client(logprobs=2).complete(ask())

    assert [item.type for item in answer.items] == ["reasoning", "message"]
    assert answer.usage == Usage(9, 2, 8)
    assert answer.logprobs == (TokenLogprob("Hi", -0.1, (("Hi", -0.1), ("Yo", -2.5))),)
    assert answer.cost == 0.25


async def test_a_cut_off_text_is_incomplete(endpoint: Endpoint, client: Make) -> None:
    endpoint.then(chat("Once upon", finish_reason="length"))

    answer = await client().complete(ask())

    assert (answer.items[0].status, answer.finish_reason) == ("incomplete", "length")


async def test_a_price_of_ones_own_wins(endpoint: Endpoint, client: Make) -> None:
    endpoint.then(chat("Hi.")).then(chat("Hi."))

    pair = await client(price=(1.0, 10.0)).complete(ask())
    function = await client(price=lambda model, usage: float(usage.total_tokens)).complete(ask())

    assert pair.cost == pytest.approx(20e-6 + 50e-6)
    assert function.cost == 25.0


# Streams


async def test_a_streamed_answer_is_the_whole_answer_in_pieces(endpoint: Endpoint, client: Make) -> None:
    deltas = [{"role": "assistant", "content": ""}, {"reasoning": "Hm."}, {"content": "Hel"}, {"content": "lo."}]
    endpoint.then(sse(chat_chunks(*deltas)))

    *pieces, last = await parts_of(client(), ask())

    assert endpoint.seen[0].body["stream"] is True
    assert endpoint.seen[0].body["stream_options"] == {"include_usage": True}
    assert pieces == [ModelDelta("reasoning", "Hm."), ModelDelta("text", "Hel"), ModelDelta("text", "lo.")]
    assert isinstance(last, ModelResponse)
    assert assistant_text(last.items) == "Hello."
    assert last.usage == Usage(20, 5, 4)


async def test_streamed_calls_are_put_together(endpoint: Endpoint, client: Make) -> None:
    chunks = chat_chunks(
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "desk_look", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"id":'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"A"}'}}]},
        {"tool_calls": [{"index": 1, "id": "b", "function": {"name": "desk_look", "arguments": "{}"}}]},
        finish_reason="tool_calls",
    )
    endpoint.then(sse(chunks))

    *pieces, last = await parts_of(client(), ask(tools=(LOOK,)))

    assert isinstance(last, ModelResponse)
    assert [(i.call_id, i.name, i.arguments) for i in last.items] == [
        ("a", "desk/look", '{"id":"A"}'),
        ("b", "desk/look", "{}"),
    ]
    assert [p.facts["name"] for p in pieces if isinstance(p, ModelDelta)] == ["desk/look"] * 4


async def test_calls_that_all_claim_the_first_place_are_told_apart_by_id(endpoint: Endpoint, client: Make) -> None:
    pieces = [{"index": 0, "id": id_, "function": {"name": "look", "arguments": "{}"}} for id_ in ("a", "b", "c")]
    endpoint.then(sse(chat_chunks({"tool_calls": pieces}, finish_reason="tool_calls")))

    *_, last = await parts_of(client(), ask())

    assert isinstance(last, ModelResponse)
    assert [item.call_id for item in last.items] == ["a", "b", "c"]


async def test_streamed_logprobs_are_collected(endpoint: Endpoint, client: Make) -> None:
    chunks = chat_chunks({"content": "a"}, {"content": "b"})
    for chunk, number in zip(chunks[:2], (-0.5, -0.25), strict=True):
        chunk["choices"][0]["logprobs"] = {"content": [{"token": "t", "logprob": number}]}
    endpoint.then(sse(chunks))

    *_, last = await parts_of(client(logprobs=True), ask())

    assert isinstance(last, ModelResponse)
    assert [entry.logprob for entry in last.logprobs] == [-0.5, -0.25]


async def test_a_streamed_refusal_is_raised_with_what_it_cost(endpoint: Endpoint, client: Make) -> None:
    endpoint.then(sse(chat_chunks({"refusal": "I can"}, {"refusal": "not."})))

    with pytest.raises(NoeticError) as caught:
        await parts_of(client(price=(1.0, 1.0)), ask())

    assert (caught.value.kind, caught.value.refusal) == ("llm_refused", "I cannot.")
    assert caught.value.usage == Usage(20, 5, 4)
    assert caught.value.cost == pytest.approx(25e-6)
