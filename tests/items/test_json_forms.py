"""The JSON form of values, and small helpers for items and texts."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from noetic_nb.items import assistant_message, freeze, function_call, input_message
from noetic_nb.items._build import leading_text, response_text, sent_hash
from noetic_nb.items._frozen import frozen_data, own_copy
from noetic_nb.items._item import is_base_type
from noetic_nb.items._json_form import ModelForm, json_form, without_json_form
from noetic_nb.items._messages.formats import recognise
from noetic_nb.items._messages.message import call, native, native_form, result_text, sendable_id
from noetic_nb.items._origin_index import names_in
from noetic_nb.items._value_forms import READ, is_amount, number_mark, without_dates


class Transfer(BaseModel):
    sum: Decimal
    urgent: bool = False


def test_values_of_python_have_a_json_form() -> None:
    given = {"sum": Decimal("12.50"), "count": Decimal("7.0"), "of": {3}}

    assert json_form(given) == {"sum": 12.5, "count": 7, "of": (3,)}
    assert frozen_data({"ids": [1], "seen": {3}}) == {
        "ids": (1,),
        "seen": {"$unserializable": "set", "text": "{3}"},
    }


def test_validated_arguments_are_the_data_they_stand_for() -> None:
    form = ModelForm(Transfer)

    assert form.dump(form.validate({"sum": "7.50"})) == {"sum": 7.5, "urgent": False}


@pytest.mark.parametrize(("of", "without"), [(list[int], None), (type[int], "type[int]")])
def test_the_part_of_a_schema_without_a_json_form_is_named(of: Any, without: str | None) -> None:
    assert without_json_form(TypeAdapter(of).core_schema) == without


def test_a_change_of_an_own_copy_does_not_reach_the_item() -> None:
    arguments = freeze({"to": {"name": "Ann"}, "tags": ["a"]})

    dict.update(own_copy(arguments)["to"], name="Eve")

    assert arguments == {"to": {"name": "Ann"}, "tags": ("a",)}


@pytest.mark.parametrize(("kind", "known"), [("message", True), ("openrouter:datetime", True), ("my:thing", False)])
def test_base_types_are_known_without_registration(kind: str, known: bool) -> None:
    assert is_base_type(kind) is known


def test_a_response_reads_as_a_line_for_each_message() -> None:
    assert response_text([assistant_message("It is 42."), assistant_message("More?")]) == "It is 42.\nMore?"


@pytest.mark.parametrize(
    ("message", "format"),
    [
        ({"role": "user", "content": "hi"}, "openai"),
        ({"type": "human", "content": "hi"}, "langchain"),
        ({"a": 1}, None),
    ],
)
def test_the_format_of_messages_is_recognised(message: dict[str, Any], format: str | None) -> None:
    assert recognise([message]) == format


def test_a_result_with_a_picture_is_not_all_text() -> None:
    assert result_text([{"type": "text", "text": "Look: "}, {"type": "image", "source": {}}]) == (
        "Look: [image]",
        False,
    )


def test_data_of_a_provider_is_given_back_to_that_one_alone() -> None:
    item = call("web_search", {"query": "tea"}, "c1", **native("anthropic", {"type": "server_tool_use"}))

    assert (native_form(item, "anthropic"), native_form(item, "openai")) == ({"type": "server_tool_use"}, None)


def test_only_an_id_that_is_too_long_is_cut() -> None:
    assert (sendable_id("c1", 40), len(sendable_id("x" * 90, 40))) == ("c1", 40)


def test_properties_are_named_wherever_they_stand_in_a_schema() -> None:
    schema = {"properties": {"who": {"$ref": "#/$defs/Who"}}, "$defs": {"Who": {"properties": {"email": {}}}}}

    assert names_in(schema) == {"email", "who"}


def test_items_that_differ_in_their_ids_are_sent_the_same() -> None:
    assert sent_hash(input_message("hi", item_id="a")) == sent_hash(input_message("hi", item_id="b"))
    assert leading_text(input_message("hi")) == ("message user", "hi")
    assert leading_text(function_call("look", '{"at":1}', "c1")) == ("function_call", 'look{"at":1}')


@pytest.mark.parametrize(("text", "mark"), [("1234.50", "#1234.5"), ("1e3", "#1000"), ("ten", None)])
def test_a_plain_number_has_one_form(text: str, mark: str | None) -> None:
    assert number_mark(text) == mark


def test_dates_and_amounts_are_read_in_texts() -> None:
    text, dates = without_dates("due on march 5th, 2024")

    assert (text.split(), dates) == (["due", "on", f"{READ}0"], [("@2024-03-05",)])
    assert (is_amount("$1,234.50"), is_amount("1,2,3")) == (True, False)
