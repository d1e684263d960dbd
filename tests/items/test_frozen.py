"""Items are deeply immutable, and keep all given data."""

from __future__ import annotations

import copy
import enum
import json
import math
import pickle
from typing import Any

import pytest
from hypothesis import given

from noetic_nb.errors import ItemValidationError
from noetic_nb.items import Item, dump_item, freeze, parse_item, thaw
from tests.items.strategies import ITEMS_WITH_EXTRA, JSON, message


def every_mapping(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value, *(found for inner in value.values() for found in every_mapping(inner))]
    if isinstance(value, tuple | list):
        return [found for inner in value for found in every_mapping(inner)]
    return []


CHANGES = {
    "set a key": lambda d: d.__setitem__("type", "other"),
    "delete a key": lambda d: d.__delitem__("type"),
    "set an attribute": lambda d: setattr(d, "role", "system"),
    "delete an attribute": lambda d: delattr(d, "role"),
    "clear": lambda d: d.clear(),
    "pop": lambda d: d.pop("type"),
    "popitem": lambda d: d.popitem(),
    "setdefault": lambda d: d.setdefault("new", 1),
    "update": lambda d: d.update(type="other"),
    "merge in place": lambda d: d.__ior__({"type": "other"}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_no_way_of_changing_a_mapping_works_at_any_depth(change: Any) -> None:
    given_item = message("user", "hi", extra={"deep": [{"deeper": {"n": 1}}]})
    item = parse_item(given_item)

    for mapping in every_mapping(item):
        with pytest.raises(TypeError, match="never change"):
            change(mapping)

    assert dump_item(item) == given_item


def test_lists_inside_an_item_become_tuples() -> None:
    item = parse_item(message("user", "hi", tags=["a", ["b"]]))

    assert item["tags"] == ("a", ("b",))
    assert isinstance(item["content"], tuple)


def test_changing_what_an_item_was_made_of_does_not_change_the_item() -> None:
    source = message("user", "before")
    item = parse_item(source)

    source["content"][0]["text"] = "after"
    source["role"] = "system"

    assert (item["role"], item["content"][0]["text"]) == ("user", "before")


def test_changing_a_dump_does_not_change_the_item() -> None:
    item = parse_item(message("user", "before"))

    dump_item(item)["content"][0]["text"] = "after"

    assert item["content"][0]["text"] == "before"


@given(ITEMS_WITH_EXTRA)
def test_parse_and_dump_give_back_every_key_in_order(plain: dict[str, Any]) -> None:
    dumped = dump_item(parse_item(plain))

    assert dumped == plain
    assert list(dumped) == list(plain)


@given(ITEMS_WITH_EXTRA)
def test_an_item_survives_json(plain: dict[str, Any]) -> None:
    item = parse_item(plain)

    assert parse_item(json.loads(json.dumps(item))) == item


@given(JSON)
def test_thaw_undoes_freeze(value: Any) -> None:
    assert thaw(freeze(value)) == value


@given(ITEMS_WITH_EXTRA)
def test_parsing_an_item_again_returns_the_same_object(plain: dict[str, Any]) -> None:
    item = parse_item(plain)

    assert parse_item(item) is item


@given(ITEMS_WITH_EXTRA)
def test_equal_items_hash_alike_and_copies_are_the_item_itself(plain: dict[str, Any]) -> None:
    item = parse_item(plain)

    assert hash(item) == hash(parse_item(copy.deepcopy(plain)))
    assert copy.copy(item) is item
    assert copy.deepcopy(item) is item


def test_an_item_survives_pickle() -> None:
    item = parse_item(message("user", "hi"))

    twin = pickle.loads(pickle.dumps(item))

    assert twin == item
    assert type(twin) is Item


def test_absent_and_null_differ_but_read_alike() -> None:
    absent, null = parse_item({"type": "reasoning"}), parse_item({"type": "reasoning", "summary": None})

    assert (absent.summary, null.summary) == (None, None)
    assert ("summary" in absent, "summary" in null) == (False, True)
    assert dump_item(absent) != dump_item(null)


def test_an_unknown_field_is_an_attribute_error_that_lists_the_known_ones() -> None:
    item = parse_item({"type": "message", "role": "user", "content": []})

    with pytest.raises(AttributeError, match=r"'rle'.*'role'"):
        item.rle


def test_snake_case_keys_are_read_and_written_as_the_wire_has_them() -> None:
    call = parse_item({"type": "function_call", "call_id": "c", "name": "t", "arguments": "{}"})
    photo = parse_item(
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "u", "detail": "low"}]}
    )

    assert list(dump_item(call)) == ["type", "callId", "name", "arguments"]
    assert dump_item(photo)["content"][0] == {"type": "input_image", "imageUrl": "u", "detail": "low"}


def test_provider_shaped_items_keep_their_keys_as_they_are() -> None:
    given_item = {"type": "web_search_call", "call_id": "c", "callId": "d", "action": {"image_url": "u"}}

    assert dump_item(parse_item(given_item)) == given_item


def test_both_spellings_of_one_key_are_refused() -> None:
    with pytest.raises(ItemValidationError, match=r"call_id.*callId"):
        parse_item({"type": "function_call", "call_id": "a", "callId": "b", "name": "t", "arguments": ""})


class Mood(enum.StrEnum):
    GOOD = "good"


def test_string_enumerations_become_their_text() -> None:
    item = parse_item(message("user", "hi", mood=Mood.GOOD))

    assert type(item["mood"]) is str
    assert item["mood"] == "good"


CYCLE: dict[str, Any] = {"type": "message"}
CYCLE["self"] = CYCLE


@pytest.mark.parametrize(
    "bad",
    [
        None,
        "message",
        [],
        7,
        {},
        {"type": ""},
        {"type": None},
        {"type": 3},
        {"role": "user"},
        message("user", "x", score=math.nan),
        message("user", "x", score=math.inf),
        message("user", "x", when={1, 2}),
        message("user", "x", when=object()),
        message("user", "x", raw=b"bytes"),
        {"type": "message", 1: "one"},
        message("user", "x", inner={2: "two"}),
        CYCLE,
    ],
    ids=lambda bad: repr(bad)[:40],
)
def test_what_is_no_item_is_refused_with_what_was_given(bad: Any) -> None:
    with pytest.raises(ItemValidationError) as caught:
        parse_item(bad)

    assert str(caught.value)
    assert isinstance(caught.value, ValueError)
