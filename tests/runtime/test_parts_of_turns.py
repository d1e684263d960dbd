"""Helpers of turns: keys of storage, texts of errors, and the order of requests."""

from __future__ import annotations

import pytest

from noetic_nb.items import ItemLog, input_message
from noetic_nb.memory import SteeringDecision
from noetic_nb.runtime._config.config import as_item_schemas, exceeded
from noetic_nb.runtime._context.messages import query_of
from noetic_nb.runtime._context.reply import problem_code
from noetic_nb.runtime._context.step_errors import error_text, typed_text, unsaved_text
from noetic_nb.runtime._durability.corruption import count
from noetic_nb.runtime._durability.thread_log import open_key, part_key, states_key, thread_prefix
from noetic_nb.runtime._execution.tool_call import denial_text
from noetic_nb.runtime._planning.make_plan import arranged
from noetic_nb.runtime._planning.turn_plan import SentItems, log_stretches


def test_no_id_reaches_into_the_keys_of_another_thread() -> None:
    assert thread_prefix("tenant:ann~1") == "thread:tenant~1ann~01:"
    assert [part_key("t1", 3), states_key("t1", 3), open_key("t1")] == [
        "thread:t1:part:00000003",
        "thread:t1:states:00000003",
        "thread:t1:open",
    ]


def test_a_stored_number_is_whole_and_not_absurd() -> None:
    assert count(3, "turn") == 3
    with pytest.raises(ValueError, match="'turn' is not a whole number from 0 to"):
        count(10**400, "turn")


def test_errors_are_told_with_their_kind() -> None:
    assert [error_text(ValueError("too small")), typed_text(KeyError("A17")), typed_text(TimeoutError())] == [
        "too small",
        "'A17' (KeyError)",
        "TimeoutError",
    ]
    assert unsaved_text(OSError(28, "No space left on device")) == (
        "The turn is not saved: OSError: [Errno 28] No space left on device"
    )
    assert exceeded("steps", 3, 4).field == "steps"
    assert problem_code("recall", KeyError("embed")) == "recall_failed"
    assert problem_code("store", KeyError("embed")) == "layer_failed"
    assert denial_text(SteeringDecision("deny", "Ask first.", ("ask",))) == (
        '{"error":{"kind":"steering_denied","action":"deny","guidance":"Ask first.","ruleId":"ask"}}'
    )


def test_the_query_is_the_last_message_of_the_user() -> None:
    assert query_of([input_message("hello"), input_message("be brief", "developer")]) == "hello"


def test_what_changes_stands_before_the_latest_question() -> None:
    first, last, note = input_message("a"), input_message("b"), input_message("note", "developer")

    assert [*arranged((), [("notes", note)], [first, last], ["notes"])] == [first, note, last]


def test_a_request_is_stretches_of_the_log_and_items_between_them() -> None:
    log = ItemLog([input_message(text, item_id=text) for text in "abcd"]).items
    note = input_message("note", "developer")

    found = log_stretches([log[0], note, log[2], log[3]], log)

    assert [(part.start, part.stop, len(part.written)) for part in found] == [(0, 1, 0), (0, 0, 1), (2, 4, 0)]
    assert [item.id for item in SentItems((note,), log)] == [note.id, "a", "b", "c", "d"]


def test_schemas_of_items_are_kept_by_category() -> None:
    assert repr(as_item_schemas({"developer_messages": [{"type": "object"}]})) == (
        "{'developerMessages': (OutputSchema({'type': 'object'}),)}"
    )
