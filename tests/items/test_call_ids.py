"""Every call in a log has a unique id, and every output belongs to the call before it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.items import Item, ItemLog, dump_item, function_call, function_call_output, input_message
from noetic_nb.items._build import with_own_call_ids


def call(call_id: str, name: str = "look") -> Item:
    return function_call(name, "{}", call_id, item_id="i")


def out(call_id: str, text: str = "ok") -> Item:
    return function_call_output(call_id, text, item_id="i")


def ids(items: Any) -> list[tuple[str, str]]:
    return [("call" if item["type"] == "function_call" else "out", item["callId"]) for item in items]


@pytest.mark.parametrize(
    ("items", "expect"),
    [
        ([call("a"), out("a"), call("a"), out("a")], ["a", "a", "a~2", "a~2"]),
        ([call("a"), call("a"), out("a"), out("a")], ["a", "a~2", "a", "a~2"]),
        ([call("a"), call("a~2"), call("a"), out("a~2"), out("a"), out("a")], ["a", "a~2", "a~3", "a~2", "a", "a~3"]),
        # The first call has no output: the output after the second call belongs to that call.
        ([call("a"), input_message("hm"), call("a"), out("a")], ["a", None, "a~2", "a~2"]),
        ([out("a"), call("a"), out("a"), out("a")], ["a", "a", "a", "a"]),
    ],
)
def test_a_repeated_id_is_counted_and_outputs_follow_their_calls(items: list[Item], expect: list[str]) -> None:
    made = with_own_call_ids(items)

    assert [item.get("callId") for item in made] == expect
    for before, after in zip(items, made, strict=True):
        if before["type"] == "function_call" and before["callId"] != after["callId"]:
            assert (after["serverCallId"], after.server_call_id) == (before["callId"], before["callId"])
        else:
            assert "serverCallId" not in after


def test_items_without_a_repeated_id_are_the_same_object() -> None:
    items = (call("a"), out("a"), call("b"), out("b"))

    assert with_own_call_ids(items) is items


def test_a_call_without_an_id_is_known_by_that_of_its_item() -> None:
    items = [Item({"id": "i1", "type": "function_call", "name": "look", "arguments": "{}"}), out("i1")]

    assert ids(with_own_call_ids(items)) == [("call", "i1"), ("out", "i1")]


def test_what_another_fork_of_a_log_has_called_takes_no_id() -> None:
    log = ItemLog([input_message("hi")])
    mine, other = log.fork(), log.fork()
    other.extend([call("a"), out("a")], own_call_ids=True)

    mine.extend([call("a"), out("a")], own_call_ids=True)
    mine.extend([call("a"), out("a")], own_call_ids=True)

    assert ids(mine.items[1:]) == [("call", "a"), ("out", "a"), ("call", "a~2"), ("out", "a~2")]


@given(st.lists(st.lists(st.sampled_from(["a", "b", "a~2", ""]), min_size=1, max_size=4), max_size=5))
def test_each_output_stays_with_its_call(answers: list[list[str]]) -> None:
    items: list[Item] = []
    for n, answer in enumerate(answers):
        items += [Item({**dump_item(call(i, f"{n}.{m}")), "id": i or "a"}) for m, i in enumerate(answer)]
        items += [out(i or "a", f"{n}.{m}") for m, i in enumerate(answer)]

    made = with_own_call_ids(items)

    calls = [item for item in made if item["type"] == "function_call"]
    assert len({item["callId"] for item in calls}) == len(calls)
    by_id = {item["callId"]: item["name"] for item in calls}
    for item in made:
        if item["type"] == "function_call_output":
            assert by_id[item["callId"]] == item["output"]
