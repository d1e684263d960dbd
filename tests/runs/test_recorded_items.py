"""The log of a thread is rebuilt from the logged items, or the error says what is missing."""

from __future__ import annotations

import pytest

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import ItemsAppended
from noetic_nb.items import input_message
from noetic_nb.runs import Run
from tests.runs.factories import conversation, where


def test_a_log_is_rebuilt_in_place() -> None:
    items = Run(events=conversation(2)).log("t1")

    assert [item["type"] for item in items] == ["message", "function_call", "function_call_output", "message"] * 2
    assert [item.id for item in items[:4]] == ["user1", "call1", "output1", "a1"]


def test_items_appended_at_a_place_that_is_taken_replace_what_followed() -> None:
    one, two, three = (input_message(text, item_id=text) for text in ("one", "two", "three"))
    run = Run("r1", events=[ItemsAppended(where(), 0.0, 0, (one, two), "user")])

    run.append(ItemsAppended(where(2), 1.0, 1, (three,), "user"))

    assert run.log("t1") == [one, three]


def test_a_childs_items_do_not_join_the_log_of_its_thread() -> None:
    run = Run(events=conversation(1))

    run.append(ItemsAppended(where(1, depth=1), 1.0, 0, (input_message("child", item_id="x"),), "seed"))

    assert [item.id for item in run.log("t1")] == ["user1", "call1", "output1", "a1"]


def test_a_log_with_a_gap_says_what_was_not_recorded() -> None:
    run = Run("r1", events=conversation(2)[15:])

    with pytest.raises(NoeticError, match="Items 0 to 3") as raised:
        run.log("t1")

    assert raised.value.kind == "tape_missing"


def test_an_unknown_thread_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(NoeticConfigError, match="'t1'"):
        Run(events=conversation()).log("t9")
