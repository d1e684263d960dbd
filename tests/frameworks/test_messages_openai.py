"""Messages of the packages openai and openai-agents: their own objects read, and what is written accepted by their types."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic import TypeAdapter

import noetic_nb as nn
from noetic_nb.events import ModelCalled, ToolCalled
from noetic_nb.items._messages import decode_messages, encode_messages
from noetic_nb.runs import Run

pytest.importorskip("openai", reason="the package openai is not installed")

from openai.types import chat, responses

# Loops and streams that the package leaves open are its own.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")

CALL = {"id": "c1", "type": "function", "function": {"name": "lookup", "arguments": '{"id": "A17"}'}}
CUSTOM = {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}


def completion(message: dict[str, Any], **fields: Any) -> Any:
    return chat.ChatCompletion.model_validate(
        {
            "id": "x",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": "gpt-4o",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}],
            "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25},
            **fields,
        }
    )


def test_responses_of_the_chat_api_are_read_whole() -> None:
    asked = {
        "role": "user",
        "content": [{"type": "text", "text": "Where?"}, {"type": "image_url", "image_url": {"url": "u"}}],
    }
    first = completion({"content": None, "tool_calls": [CALL, CUSTOM]})
    results = [
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "packed"}]},
        {"role": "tool", "tool_call_id": "c2", "content": "done"},
    ]
    cited = {
        "type": "url_citation",
        "url_citation": {"start_index": 0, "end_index": 2, "title": "T", "url": "https://x"},
    }
    last = completion({"content": "Packed.", "annotations": [cited]})

    run = Run.from_messages([asked, first, *results, last])

    assert [(call.name, call.args, call.status) for call in run.select(ToolCalled)] == [
        ("lookup", {"id": "A17"}, "ok"),
        ("patch", {"input": "*** Begin"}, "ok"),
    ]
    assert [(call.model, call.input_tokens, call.finish_reason) for call in run.select(ModelCalled)] == [
        ("gpt-4o", 20, "stop"),
        ("gpt-4o", 20, "stop"),
    ]
    assert run.log("t1")[-1]["content"][0]["annotations"][0]["type"] == "url_citation"
    assert run.meta["unmapped"] == []
    assert run.meta["estimated"] == ["t_ms", "status"]


def test_messages_of_a_response_may_stand_in_dictionaries() -> None:
    calls = completion({"content": None, "tool_calls": [CALL]}).choices[0].message.tool_calls

    run = Run.from_messages([{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": calls}])

    assert run.meta["unmapped"] == []
    assert run.log("t1")[1]["name"] == "lookup"


def test_a_streamed_response_is_put_together() -> None:
    def chunk(delta: dict[str, Any], **fields: Any) -> Any:
        choice = {"index": 0, "delta": delta, "finish_reason": fields.pop("finish_reason", None)}
        base = {"id": "s1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
        return chat.ChatCompletionChunk.model_validate({**base, "choices": [choice], **fields})

    piece = {"index": 0, "id": "c1", "type": "function", "function": {"name": "lookup", "arguments": '{"id":'}}
    chunks = [
        chunk({"role": "assistant", "content": "One "}),
        chunk({"content": "moment."}),
        chunk({"tool_calls": [piece]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": ' "A17"}'}}]}, finish_reason="tool_calls"),
        chunk({}, choices=[], usage={"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}),
    ]

    messages, unmapped, name = decode_messages([{"role": "user", "content": "x"}, *chunks])

    assert (name, unmapped, len(messages)) == ("openai", [], 2)
    text, call = messages[1].items
    assert (text["content"][0]["text"], call["arguments"]) == ("One moment.", '{"id": "A17"}')
    assert messages[1].usage == {"input_tokens": 9, "output_tokens": 4}


def test_other_choices_and_spoken_answers_are_listed() -> None:
    spoken = {"id": "a1", "data": "QUJD", "expires_at": 5, "transcript": "Hello."}
    answer = completion({"content": None, "audio": spoken}).model_dump()
    answer["choices"].append({"index": 1, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi."}})

    run = Run.from_messages([{"role": "user", "content": "x"}, answer])

    assert run.turns[0].text == "Hello."
    assert [entry["place"] for entry in run.meta["unmapped"]] == ["messages[1].audio", "messages[1].choices[1]"]


OUTPUT: list[dict[str, Any]] = [
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": "enc",
    },
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "tea"}},
    {
        "type": "mcp_call",
        "id": "mcp_1",
        "server_label": "shop",
        "name": "stock",
        "arguments": '{"of": "tea"}',
        "output": "12",
        "error": None,
        "status": "completed",
    },
    {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "patch", "input": "*** Begin"},
    {
        "type": "computer_call",
        "id": "cu_1",
        "call_id": "c3",
        "status": "completed",
        "pending_safety_checks": [],
        "action": {"type": "click", "button": "left", "x": 1, "y": 2},
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c1",
        "name": "lookup",
        "arguments": '{"id": "A17"}',
        "status": "completed",
    },
]
LISTED = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "shop", "tools": []}
RESULTS: list[dict[str, Any]] = [
    {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
    {
        "type": "computer_call_output",
        "call_id": "c3",
        "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,QUJD"},
    },
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "packed"}]},
]


def response(output: list[dict[str, Any]]) -> Any:
    return responses.Response.model_validate(
        {
            "id": "resp_1",
            "object": "response",
            "created_at": 1_700_000_000,
            "completed_at": 1_700_000_002,
            "model": "gpt-5",
            "instructions": "Be brief.",
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "status": "completed",
            "temperature": 0.5,
            "usage": {
                "input_tokens": 30,
                "input_tokens_details": {"cached_tokens": 10, "cache_write_tokens": 0},
                "output_tokens": 6,
                "output_tokens_details": {"reasoning_tokens": 2},
                "total_tokens": 36,
            },
        }
    )


TEXT = {"type": "output_text", "text": "Packed.", "annotations": []}
ANSWER = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [TEXT]}


def test_responses_with_tools_of_every_kind_are_read_whole() -> None:
    run = Run.from_messages(
        [{"role": "user", "content": "Where?"}, response([LISTED, *OUTPUT]), *RESULTS, response([ANSWER])]
    )

    assert run.meta["source"] == "openai-responses"
    assert (run.meta["policy"], run.meta["model"], run.meta["params"]) == ("Be brief.", "gpt-5", {"temperature": 0.5})
    assert [(call.name, call.args, call.output, call.status) for call in run.select(ToolCalled)] == [
        ("stock", {"of": "tea"}, "12", "ok"),
        ("patch", {"input": "*** Begin"}, "done", "ok"),
        ("computer", {"action": OUTPUT[4]["action"], "pending_safety_checks": ()}, "[computer_screenshot]", "ok"),
        ("lookup", {"id": "A17"}, "packed", "ok"),
    ]
    assert [(call.input_tokens, call.cached_tokens, call.duration_ms) for call in run.select(ModelCalled)] == [
        (30, 10, 2_000.0),
        (30, 10, 2_000.0),
    ]
    assert run.meta["unmapped"] == []
    assert run.turns[0].text == "Packed."


def test_items_of_the_responses_api_go_out_as_they_came_in() -> None:
    run = Run.from_messages([{"role": "user", "content": "Where?"}, *OUTPUT, *RESULTS, ANSWER])

    wire = run.to_messages("openai-responses")

    assert wire[1 : 1 + len(OUTPUT)] == [
        {k: v for k, v in item.items() if v is not None or k == "error"} for item in OUTPUT
    ]
    assert wire[-4:-2] == RESULTS[:2]
    for item in wire:
        TypeAdapter(responses.ResponseInputItemParam).validate_python(item)


def test_a_streamed_response_of_the_new_api_is_its_last_event() -> None:
    done = {"type": "response.completed", "sequence_number": 9, "response": response([ANSWER]).model_dump()}
    delta = {
        "type": "response.output_text.delta",
        "delta": "Pa",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
    }

    messages, unmapped, name = decode_messages([{"role": "user", "content": "x"}, delta, done])

    assert (name, unmapped) == ("openai-responses", [])
    assert [message.role for message in messages] == ["system", "user", "assistant"]


def test_results_of_the_agents_sdk_are_read_with_their_usage() -> None:
    agents = pytest.importorskip("agents", reason="the package openai-agents is not installed")
    pytest.importorskip("agents.items")

    class Model(agents.Model):  # type: ignore[misc, name-defined]
        asked = 0

        async def get_response(self, *args: Any, **kwargs: Any) -> Any:
            self.asked += 1
            made = {**OUTPUT[5]} if self.asked == 1 else ANSWER
            kind = responses.ResponseFunctionToolCall if self.asked == 1 else responses.ResponseOutputMessage
            usage = agents.Usage(requests=1, input_tokens=10 * self.asked, output_tokens=3, total_tokens=13)
            return agents.ModelResponse(output=[kind.model_validate(made)], usage=usage, response_id=None)

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    @agents.function_tool  # type: ignore[misc, unused-ignore]
    def lookup(id: str) -> str:
        """Look an order up."""
        return "packed"

    agents.set_tracing_disabled(True)
    agent = agents.Agent(name="desk", model=Model(), tools=[lookup])
    result = asyncio.run(agents.Runner.run(agent, "Where is A17?"))

    run = nn.import_run(result)

    assert [(turn.query, turn.text) for turn in run.turns] == [("Where is A17?", "Packed.")]
    assert [(call.name, call.args, call.output) for call in run.select(ToolCalled)] == [
        ("lookup", {"id": "A17"}, "packed")
    ]
    assert [(call.input_tokens, call.output_tokens) for call in run.select(ModelCalled)] == [(10, 3), (20, 3)]
    assert run.meta["unmapped"] == []


TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": "https://x/y.png"}}],
    },
    {"role": "assistant", "content": "A moment.", "tool_calls": [CALL, {**CALL, "id": "c3"}]},
    {"role": "tool", "tool_call_id": "c1", "content": "packed"},
    {"role": "tool", "tool_call_id": "c3", "content": "Error: none"},
    {"role": "assistant", "content": "Packed.", "reasoning_content": "Hm."},
    {
        "role": "user",
        "content": [{"type": "file", "file": {"file_data": "data:application/pdf;base64,QQ==", "filename": "a"}}],
    },
    {"role": "assistant", "content": None, "refusal": "No."},
]


@pytest.mark.parametrize("name", ["openai", "openai-responses"])
def test_what_is_written_is_what_the_types_of_the_package_take(name: str) -> None:
    run = Run.from_messages(TALK)
    kind: Any = chat.ChatCompletionMessageParam if name == "openai" else responses.ResponseInputItemParam

    wire = run.to_messages(name)

    assert json.loads(json.dumps(wire)) == wire
    for message in wire:
        TypeAdapter(kind).validate_python(message)
    again = Run.from_messages(wire, format=name)  # type: ignore[arg-type]
    assert again.meta["unmapped"] == []
    assert encode_messages(again.log("t1"), "openai") == encode_messages(run.log("t1"), "openai")
