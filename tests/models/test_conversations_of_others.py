"""Going on from a conversation that another agent had: the request that is sent is valid for both APIs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter

import noetic_nb as nn
from noetic_nb.models import OpenAIModel
from noetic_nb.runs import Run
from tests.models.endpoint import Endpoint, chat, response

CALL = {"id": "c1", "type": "function", "function": {"name": "look up!", "arguments": '{"id": "A17"}'}}
LONG = "call_" + "x" * 90
TALKS: dict[str, list[Any]] = {
    "openai": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "name": "ann", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]},
        {"role": "assistant", "content": "A moment.", "tool_calls": [CALL, {**CALL, "id": LONG}]},
        {"role": "tool", "tool_call_id": LONG, "content": "b"},
        {"role": "tool", "tool_call_id": "c1", "content": "a"},
        {"role": "assistant", "content": None, "refusal": "No.", "reasoning_content": "Hm."},
        {"role": "user", "content": "And now?"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c9", "type": "custom", "custom": {"name": "patch", "input": "***"}}],
        },
        {"role": "tool", "tool_call_id": "nobody's", "content": "?"},
    ],
    "openai-responses": [
        {"role": "user", "content": "Where?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
        {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "stock", "arguments": "{}", "output": "12"},
        {"type": "computer_call", "id": "cu_1", "call_id": "c3", "action": {"type": "wait"}, "status": "completed"},
        {"type": "computer_call_output", "call_id": "c3", "output": {"type": "computer_screenshot", "image_url": "u"}},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "12."}]},
    ],
    "anthropic": [
        {
            "role": "user",
            "content": [{"type": "document", "source": {"type": "base64", "media_type": "a/b", "data": "QQ=="}}],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
                {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
                {"type": "tool_use", "id": "c1", "name": "lookup", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "x"}, {"type": "text", "text": "?"}],
        },
    ],
    "langchain": [
        {"type": "human", "data": {"content": "Where?"}},
        {"type": "ai", "data": {"content": "", "tool_calls": [{"name": "lookup", "args": {}, "id": "c1"}]}},
        {"type": "tool", "data": {"content": "x", "tool_call_id": "c1"}},
    ],
    "pydantic-ai": [
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "Where?"}], "instructions": "Be brief."},
        {
            "kind": "response",
            "parts": [{"part_kind": "tool-call", "tool_name": "lookup", "args": None, "tool_call_id": "c1"}],
        },
        {
            "kind": "request",
            "parts": [{"part_kind": "tool-return", "tool_name": "lookup", "content": {"a": 1}, "tool_call_id": "c1"}],
        },
    ],
}


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("source", ["messages", "run"])
@pytest.mark.parametrize("name", TALKS)
async def test_the_request_that_goes_on_is_valid(
    endpoint: Endpoint, client: Callable[..., OpenAIModel], name: str, source: str, api: str
) -> None:
    part = {"type": "output_text", "text": "Here.", "annotations": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    endpoint.then(chat("Here.") if api == "chat" else response(message))
    harness = nn.AgentHarness(nn.AgentConfig(name="desk", step=nn.react(model="m")), model=client(api=api))
    harness.seed("t", TALKS[name] if source == "messages" else Run.from_messages(TALKS[name]))

    reply = await harness.execute("And now?", thread_id="t")

    assert reply.text == "Here."
    body = endpoint.seen[0].body
    if api == "chat":
        _check_chat(body["messages"])
    else:
        _check_items(body["input"])


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Return what validates a type of the openai package: a tenth of a second goes into making one."""
    return TypeAdapter(kind)


def _check_chat(messages: list[dict[str, Any]]) -> None:
    waiting: set[str] = set()
    for message in messages:
        adapter(ChatCompletionMessageParam).validate_python(message)
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting, "the answers of tools come at once"
        waiting = {call["id"] for call in message.get("tool_calls", ())}
        assert all(len(call_id) <= 40 for call_id in waiting)
        assert all(call["function"]["name"].replace("_", "").isalnum() for call in message.get("tool_calls", ()))
    assert not waiting


def _check_items(items: list[dict[str, Any]]) -> None:
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    outputs = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    assert sorted(calls) == sorted(outputs)
    for place, item in enumerate(items):
        adapter(ResponseInputItemParam).validate_python(item)
        assert len(item.get("call_id", "")) <= 64
        if item.get("type") == "reasoning":
            assert items[place + 1].get("id", "").startswith(("msg_", "fc_"))


def test_what_stands_beside_a_message_is_no_reason_to_refuse_it() -> None:
    harness = nn.AgentHarness(nn.AgentConfig(name="desk", step=nn.react(model="m")))
    tool = {"type": "tool", "data": {"content": "x", "tool_call_id": "c1", "artifact": {"rows": [1]}}}
    parts = {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "y"}]}

    assert [item["output"] for item in harness.seed("t", [tool])] == ["x"]
    assert [item["output"] for item in harness.append("t", [parts])] == ["y"]


SEALED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}


def _said(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


@pytest.mark.parametrize("source", ["messages", "run"])
@pytest.mark.parametrize("form", ["response", "response.compaction", "item"])
async def test_a_compacted_conversation_goes_on_with_its_compaction_as_it_came(
    endpoint: Endpoint, client: Callable[..., OpenAIModel], form: str, source: str
) -> None:
    asked, answer = _said("user", "Where is the rake?"), {**_said("assistant", "Outside."), "id": "msg_2"}
    whole = {
        "response": {"object": "response", "output": [SEALED, answer]},
        "response.compaction": {"object": form, "output": [asked, SEALED]},
        "item": SEALED,
    }
    talk = [asked, answer, asked, whole[form]]
    endpoint.then(response({**answer, "id": "msg_3", "status": "completed"}))
    harness = nn.AgentHarness(nn.AgentConfig(name="desk", step=nn.react(model="m")), model=client(api="responses"))
    harness.seed("t", talk if source == "messages" else Run.from_messages(talk))

    reply = await harness.execute("And the hoe?", thread_id="t")

    assert reply.text == "Outside."
    sent = endpoint.seen[0].body["input"]
    _check_items(sent)
    assert [item for item in sent if item.get("type") == "compaction"] == [SEALED]
    assert [item["role"] for item in sent if "role" in item].count("user") == 3
