"""Items from external data: their tokens are those of their JSON, and they share no objects with their input."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.errors import ItemValidationError
from noetic_nb.items import _item as items
from noetic_nb.items._json_text import compact_json
from noetic_nb.tokens import estimate_tokens

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["input_text", "output_text", "input_image"]), "text": LEAVES},
    optional={
        "annotations": st.sampled_from([[], [{"a": 1}], None, ()]),
        "image_url": st.just("a.png"),
        "imageUrl": st.just("b.png"),
        "extra": LEAVES,
    },
)
VALUES = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "function_call", "function_call_output", "my:own"])},
    optional={
        "id": LEAVES,
        "status": st.sampled_from(["completed", "in_progress", None]),
        "role": st.sampled_from(["user", "assistant", "system", "tool", None]),
        "content": st.lists(PARTS | st.just("text"), max_size=2) | st.none() | st.text(max_size=3),
        "call_id": st.just("c1"),
        "callId": st.just("c2"),
        "output": LEAVES | st.lists(LEAVES, max_size=2),
        1: st.just("a key that is not text"),
    },
)


@given(VALUES)
def test_the_tokens_of_an_item_are_those_of_its_json(value: Any) -> None:
    try:
        item = items.parse_shape(value)
    except ItemValidationError:
        return
    assert items.item_tokens(item) == estimate_tokens(compact_json(item))


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_what_is_read_shares_nothing_with_what_was_given(role: str) -> None:
    part = {"type": "output_text", "text": "hi", "annotations": []} if role == "assistant" else {"text": "hi"}
    value = {"id": "i1", "status": "completed", "type": "message", "role": role, "content": [part]}
    item = items.parse_shape(value)

    part["text"] = value["status"] = "changed"

    assert (item["content"][0]["text"], item["status"]) == ("hi", "completed")
