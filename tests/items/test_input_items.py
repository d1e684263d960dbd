"""Items from users are checked when given, and chat messages are converted to items."""

from __future__ import annotations

from typing import Any

import pytest

from noetic_nb.errors import ItemValidationError, NoeticError
from noetic_nb.items import dump_item
from noetic_nb.runtime._context.messages import input_items
from noetic_nb.testing import SeededIds


def made(*given: Any) -> list[dict[str, Any]]:
    return [dump_item(item) for item in input_items(given, ids=SeededIds())]


def message(**fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}], **fields}


@pytest.mark.parametrize(
    "item",
    [
        message(role="king"),
        message(role=None),
        message(content=3),
        message(content=["hi"]),
        message(content=[{"text": "hi"}]),
        message(content=[{"type": "input_text"}]),
        message(content=[{"type": "input_text", "text": 3}]),
        message(content=[{"type": "text", "text": "hi"}]),
        message(content=[{"type": "refusal"}]),
        message(status="done"),
        message(id=3),
        {"type": "message", "role": "user"},
        {"type": "function_call", "call_id": "c", "name": "", "arguments": "{}"},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": {}},
        {"type": "function_call", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": {"a": 1}},
        {"type": "function_call_output", "call_id": "", "output": "a"},
        {"type": "reasoning", "content": "hm"},
        {"role": "user"},
        {"role": "king", "content": "hi"},
        {"role": "user", "content": None},
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]},
        {"role": "user", "content": "hi", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
        {"role": "assistant", "tool_calls": {"id": "c"}},
        {"role": "tool", "content": "3"},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "image_url"}]},
        "hi",
        3,
    ],
)
def test_what_is_not_as_its_type_must_be_is_an_error(item: Any) -> None:
    with pytest.raises(ItemValidationError):
        input_items([message(), item])


def test_an_unknown_type_is_a_mismatch_and_the_place_of_a_fault_is_named() -> None:
    with pytest.raises(NoeticError) as caught:
        input_items([{"type": "my:note"}])
    assert caught.value.kind == "item_schema_mismatch"
    with pytest.raises(ItemValidationError, match="Item 1: there is no such role"):
        input_items([message(), message(role="king")])


def test_a_chat_is_made_into_items() -> None:
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "name": "ann", "content": [{"type": "text", "text": "What is this?"},
                                     {"type": "image_url", "image_url": {"url": "a.png", "detail": "low"}},
                                     {"type": "file", "file": {"file_id": "f1", "filename": "a.pdf"}}]},
        {"role": "assistant", "content": "One moment.", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"n":1}'}},
            {"id": "c2", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "dog"}]},
        {"role": "assistant", "content": None, "function_call": {"name": "old", "arguments": "{}"}},
        {"role": "function", "name": "old", "content": "done"},
        {"role": "assistant", "content": None, "refusal": "No."},
    ]  # fmt: skip

    system, user, said, first, second, *answers, old, done, refused = made(*chat)

    assert (system["role"], system["content"]) == ("system", [{"type": "input_text", "text": "Be brief."}])
    assert user["name"] == "ann"
    assert user["content"] == [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "imageUrl": "a.png", "detail": "low"},
        {"type": "input_file", "fileId": "f1", "filename": "a.pdf"},
    ]
    assert said["content"] == [{"type": "output_text", "text": "One moment.", "annotations": []}]
    assert [(call["callId"], call["arguments"]) for call in (first, second)] == [("c1", '{"n":1}'), ("c2", "{}")]
    assert [(item["callId"], item["output"]) for item in answers] == [("c1", "a cat"), ("c2", "a dog")]
    assert (old["name"], done["callId"], done["output"]) == ("old", old["callId"], "done")
    assert refused["content"] == [{"type": "refusal", "refusal": "No."}]
    assert len({item["id"] for item in made(*chat)}) == 10


def test_text_in_place_of_parts_is_one_part_and_items_stay_as_they_are() -> None:
    given = [message(id="m", status="completed"), {"type": "openrouter:x", "a": 1}, {"type": "reasoning", "id": "r"}]

    assert made(*given) == given
    assert made(message(content="hi"))[0]["content"] == [{"type": "input_text", "text": "hi"}]


def test_a_message_of_the_providers_own_package_is_taken() -> None:
    openai = pytest.importorskip("openai.types.chat")
    answer = openai.ChatCompletionMessage.model_validate(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        }
    )

    assert [item["type"] for item in made(answer, {"role": "tool", "tool_call_id": "c", "content": "ok"})] == [
        "function_call",
        "function_call_output",
    ]
