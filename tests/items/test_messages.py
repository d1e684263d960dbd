"""Messages of other frameworks: read as items, reported if they cannot be mapped, and written again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.errors import ItemValidationError, NoeticConfigError
from noetic_nb.items import Item
from noetic_nb.items._messages import Message, decode_messages, encode_messages

ARGS = {"id": "A17"}
CALL = {"id": "c1", "type": "function", "function": {"name": "lookup", "arguments": json.dumps(ARGS)}}
TALKS: dict[str, list[Any]] = {
    "openai": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Where is A17?"}]},
        {"role": "assistant", "content": "A moment.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "packed"},
        {
            "choices": [{"message": {"role": "assistant", "content": "It is packed."}, "finish_reason": "stop"}],
            "model": "m-1",
            "usage": {"prompt_tokens": 40, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 32}},
        },
    ],
    "openai-responses": [
        {"role": "system", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Where is A17?"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A moment."}]},
        {"type": "function_call", "call_id": "c1", "name": "lookup", "arguments": json.dumps(ARGS)},
        {"type": "function_call_output", "call_id": "c1", "output": "packed"},
        {
            "object": "response",
            "model": "m-1",
            "output": [
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is packed."}]}
            ],
            "usage": {"input_tokens": 40, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 32}},
        },
    ],
    "anthropic": [
        {"role": "user", "content": "Where is A17?"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "A moment."},
                {"type": "tool_use", "id": "c1", "name": "lookup", "input": ARGS},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "packed"}]},
        {
            "role": "assistant",
            "model": "m-1",
            "content": [{"type": "text", "text": "It is packed."}],
            "stop_reason": "end_turn",
            "usage": {
                "input_tokens": 6,
                "cache_read_input_tokens": 32,
                "cache_creation_input_tokens": 2,
                "output_tokens": 4,
            },
        },
    ],
    "langchain": [
        {"type": "system", "data": {"content": "Be brief."}},
        {"type": "human", "data": {"content": "Where is A17?"}},
        {
            "type": "ai",
            "data": {"content": "A moment.", "tool_calls": [{"name": "lookup", "args": ARGS, "id": "c1"}]},
        },
        {"type": "tool", "data": {"content": "packed", "tool_call_id": "c1", "status": "success"}},
        {
            "type": "ai",
            "data": {
                "content": [{"type": "text", "text": "It is packed."}],
                "response_metadata": {"model_name": "m-1", "finish_reason": "stop"},
                "usage_metadata": {"input_tokens": 40, "output_tokens": 4, "input_token_details": {"cache_read": 32}},
            },
        },
    ],
    "pydantic-ai": [
        {
            "kind": "request",
            "parts": [
                {"part_kind": "system-prompt", "content": "Be brief."},
                {"part_kind": "user-prompt", "content": "Where is A17?"},
            ],
        },
        {
            "kind": "response",
            "parts": [
                {"part_kind": "text", "content": "A moment."},
                {"part_kind": "tool-call", "tool_name": "lookup", "args": ARGS, "tool_call_id": "c1"},
            ],
        },
        {
            "kind": "request",
            "parts": [{"part_kind": "tool-return", "tool_name": "lookup", "content": "packed", "tool_call_id": "c1"}],
        },
        {
            "kind": "response",
            "model_name": "m-1",
            "finish_reason": "stop",
            "parts": [{"part_kind": "text", "content": "It is packed."}],
            "usage": {"input_tokens": 40, "output_tokens": 4, "cache_read_tokens": 32},
        },
    ],
}


def facts(messages: list[Message]) -> list[Any]:
    """Return the content of items without ids."""
    found: list[Any] = []
    for message in messages:
        for item in message.items:
            if item["type"] == "function_call":
                found.append((message.role, item["name"], json.loads(item["arguments"]), item["callId"]))
            elif item["type"] == "function_call_output":
                found.append((message.role, item["callId"], item["output"]))
            else:
                parts = item.get("content") or ()
                found.append((message.role, item["type"], "".join(part.get("text", "") for part in parts)))
    return found


@pytest.mark.parametrize("name", TALKS)
def test_a_conversation_of_each_format_is_recognised_and_read_whole(name: str) -> None:
    messages, unmapped, found = decode_messages(TALKS[name])

    system = [("system", "message", "Be brief.")] if name != "anthropic" else []
    assert found == name
    assert unmapped == []
    assert facts(messages) == [
        *system,
        ("user", "message", "Where is A17?"),
        ("assistant", "message", "A moment."),
        ("assistant", "lookup", ARGS, "c1"),
        ("tool", "c1", "packed"),
        ("assistant", "message", "It is packed."),
    ]
    last = messages[-1]
    assert (last.model, last.finish_reason) == ("m-1", "stop")
    stored = {"cache_write_tokens": 2} if name == "anthropic" else {}
    assert last.usage == {"input_tokens": 40, "output_tokens": 4, "cached_tokens": 32, **stored}


@pytest.mark.parametrize(
    ("name", "message", "errors"),
    [
        (
            "openai",
            {"role": "tool", "tool_call_id": "c1", "content": "", "error": "no such order"},
            {"c1": "no such order"},
        ),
        (
            "anthropic",
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "no such order", "is_error": True}],
            },
            {"c1": "no such order"},
        ),
        (
            "langchain",
            {"type": "tool", "content": "no such order", "tool_call_id": "c1", "status": "error"},
            {"c1": "no such order"},
        ),
        (
            "pydantic-ai",
            {
                "kind": "request",
                "parts": [
                    {"part_kind": "retry-prompt", "tool_name": "f", "content": "no such order", "tool_call_id": "c1"}
                ],
            },
            {"c1": "no such order"},
        ),
    ],
)
def test_a_failed_call_keeps_its_error(name: str, message: Any, errors: dict[str, str]) -> None:
    messages, _, found = decode_messages([message])

    assert found == name
    assert (messages[0].errors, messages[0].statuses_known) == (errors, True)


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"role": "king", "content": "hi"}, "messages[1].role"),
        ({"role": "user", "content": [{"type": "hologram", "data": "x"}]}, "messages[1].content[0]"),
        ({"role": "user", "content": 5}, "messages[1].content"),
        ({"role": "assistant", "content": "x", "tool_calls": [{"id": "c"}]}, "messages[1].tool_calls[0]"),
        ({"role": "assistant", "content": "x", "tool_calls": "all"}, "messages[1].tool_calls"),
        ({"role": "tool", "content": "x"}, "messages[1].tool_call_id"),
        ({"role": "tool", "tool_call_id": "c", "content": [{"type": "image"}]}, "messages[1].content[0]"),
        ({"no": "message"}, "messages[1]"),
    ],
)
def test_what_cannot_be_mapped_is_listed_with_its_place_or_refused(message: Any, place: str) -> None:
    talk = [{"role": "user", "content": "hi"}, message]

    _, unmapped, _ = decode_messages(talk, format="openai")

    assert [entry["place"] for entry in unmapped] == [place]
    with pytest.raises(ItemValidationError, match=place.replace("[", r"\[")):
        decode_messages(talk, format="openai", strict=True)


def test_messages_of_no_format_are_refused_and_so_are_formats_that_do_not_exist() -> None:
    for given_format, talk in ((None, [{"a": 1}]), ("morse", [])):
        with pytest.raises(NoeticConfigError) as caught:
            decode_messages(talk, format=given_format)  # type: ignore[arg-type]
        assert caught.value.code == "UNKNOWN_FORMAT"
    with pytest.raises(NoeticConfigError):
        encode_messages([], "pydantic-ai")


def test_thoughts_keep_their_signatures() -> None:
    block = {"type": "thinking", "thinking": "Hm.", "signature": "s1"}
    hidden = {"type": "redacted_thinking", "data": "d1"}
    talk = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [block, hidden, {"type": "text", "text": "x"}]},
    ]

    messages, unmapped, _ = decode_messages(talk)

    assert unmapped == []
    assert encode_messages([item for message in messages for item in message.items], "anthropic")[1]["content"] == [
        block,
        hidden,
        {"type": "text", "text": "x"},
    ]


PRINTABLE = st.characters(exclude_categories=("C", "Z"), include_characters=" ")
TEXT = st.text(PRINTABLE, min_size=1, max_size=20)


IMAGES = st.builds(
    lambda url: {"type": "input_image", "imageUrl": url, "detail": "auto"},
    st.sampled_from(["https://x/y.png", "data:image/png;base64,QUJD"]),
)


@st.composite
def talks(draw: st.DrawFn) -> list[Item]:
    """Draw conversations with all features of each provider: images, thinking, parallel calls, refusals."""
    items: list[Any] = []
    number = 0

    def answer(text: dict[str, Any]) -> None:
        if draw(st.booleans()):
            thought = ({"type": "reasoning_text", "text": draw(TEXT)},)
            items.append(Item(type="reasoning", summary=(), content=thought))
        items.append(Item(type="message", role="assistant", content=(text,)))

    for _ in range(draw(st.integers(1, 3))):
        pictures = draw(st.lists(IMAGES, max_size=1))
        content = ({"type": "input_text", "text": draw(TEXT)}, *pictures)
        items.append(Item(type="message", role="user", content=content))
        for _ in range(draw(st.integers(0, 2))):
            if draw(st.booleans()):
                answer({"type": "output_text", "text": draw(TEXT), "annotations": ()})
            calls = []
            for _ in range(draw(st.integers(1, 3))):
                number += 1
                calls.append(f"c{number}")
                args = json.dumps(draw(st.dictionaries(TEXT, st.integers() | TEXT, max_size=2)))
                items.append(Item(type="function_call", callId=f"c{number}", name="act", arguments=args))
            items += [Item(type="function_call_output", callId=c, output=draw(TEXT)) for c in calls]
        refusal: dict[str, Any] = {"type": "refusal", "refusal": draw(TEXT)}
        text: dict[str, Any] = {"type": "output_text", "text": draw(TEXT), "annotations": ()}
        answer(draw(st.sampled_from([text, refusal])))
    return items


@given(talks(), st.sampled_from(["openai", "openai-responses", "anthropic", "langchain"]))
def test_what_is_written_is_read_again_as_it_was(items: list[Item], name: str) -> None:
    wire = encode_messages(items, name)

    messages, unmapped, _ = decode_messages(json.loads(json.dumps(wire)), format=name)  # type: ignore[arg-type]

    again = [item for message in messages for item in message.items]
    assert unmapped == []
    assert [plain(item, name) for item in again] == [plain(item, name) for item in items]
    assert encode_messages(again, name) == wire


def plain(item: Item, name: str) -> Any:
    """Return the content of an item that a format can express, without ids."""
    if item["type"] == "function_call":
        return item["name"], json.loads(item["arguments"]), item["callId"]
    if item["type"] == "function_call_output":
        return item["callId"], item["output"]
    parts = [
        (part["type"], part.get("text") or part.get("refusal") or part.get("imageUrl")) for part in item["content"]
    ]
    # Anthropic has no separate form for a refusal: it is text.
    kinds = {"refusal": "output_text"} if name == "anthropic" else {}
    return item["type"], item.get("role"), [(kinds.get(kind, kind), text) for kind, text in parts]
