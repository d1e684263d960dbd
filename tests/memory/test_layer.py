"""A layer that cannot work is rejected where it is written, with a code that says why."""

from __future__ import annotations

import math
from typing import Any

import pytest

from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory import LayerStack, MemoryHooks, MemoryLayer, Slot, layer_data, layer_fn, memory
from tests.memory.stacks import layer

BAD: list[tuple[dict[str, Any], str]] = [
    ({"id": ""}, "INVALID_LAYER_ID"),
    ({"id": "  "}, "INVALID_LAYER_ID"),
    ({"id": 7}, "INVALID_LAYER_ID"),
    ({"slot": math.nan}, "INVALID_SLOT"),
    ({"slot": math.inf}, "INVALID_SLOT"),
    ({"slot": "first"}, "INVALID_SLOT"),
    ({"slot": True}, "INVALID_SLOT"),
    ({"slot": None}, "INVALID_SLOT"),
    ({"scope": "session"}, "UNKNOWN_SCOPE"),
    ({"scope": None}, "UNKNOWN_SCOPE"),
    ({"budget": -1}, "INVALID_BUDGET"),
    ({"budget": math.nan}, "INVALID_BUDGET"),
    ({"budget": "much"}, "INVALID_BUDGET"),
    ({"budget": True}, "INVALID_BUDGET"),
    ({"budget": {"min": 5, "max": 1}}, "INVALID_BUDGET"),
    ({"budget": {"min": -5, "max": 1}}, "INVALID_BUDGET"),
    ({"budget": {"min": 5}}, "INVALID_BUDGET"),
    ({"budget": {"min": math.inf, "max": math.inf}}, "INVALID_BUDGET"),
    ({"budget": {"min": 1, "max": 2, "mid": 1}}, "INVALID_BUDGET"),
    ({"budget": {"min": 1, "max": math.nan}}, "INVALID_BUDGET"),
    ({"hooks": {"recall": print}}, "INVALID_HOOK"),
    ({"timeouts": {"recal": 5}}, "INVALID_TIMEOUT"),
    ({"timeouts": {"recall": "long"}}, "INVALID_TIMEOUT"),
    ({"timeouts": {"recall": math.nan}}, "INVALID_TIMEOUT"),
    ({"timeouts": {"recall": True}}, "INVALID_TIMEOUT"),
    ({"on_init_error": "ignore"}, "INVALID_LAYER_OPTION"),
    ({"recall_mode": "lazy"}, "INVALID_LAYER_OPTION"),
    ({"rerender_timing": "later"}, "INVALID_LAYER_OPTION"),
    ({"on_steering_error": "shrug"}, "INVALID_LAYER_OPTION"),
    ({"provides": {"x": len}}, "INVALID_PROVIDES"),
    ({"provides": {"not a name": layer_data(len)}}, "INVALID_PROVIDES"),
    ({"item_schemas": {"toys": [dict]}}, "UNKNOWN_ITEM_CATEGORY"),
]


@pytest.mark.parametrize(("fields", "code"), BAD, ids=[f"{c}-{f!r}"[:60] for f, c in BAD])
def test_a_bad_layer_record_is_refused_by_code(fields: dict[str, Any], code: str) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        MemoryLayer(**({"id": "a", "slot": 100, "scope": "thread"} | fields))

    assert caught.value.code == code


@pytest.mark.parametrize("name", MemoryHooks.__slots__)
def test_a_hook_that_cannot_be_called_is_refused_by_name(name: str) -> None:
    with pytest.raises(NoeticConfigError, match=name) as caught:
        MemoryHooks(**{name: "not callable"})

    assert caught.value.code == "INVALID_HOOK"


def test_two_layers_of_one_id_are_refused_wherever_layers_are_collected() -> None:
    for collect in (memory, LayerStack):
        with pytest.raises(NoeticConfigError) as caught:
            collect([layer("a"), layer("a", slot=5)])
        assert (caught.value.code, caught.value.given) == ("DUPLICATE_LAYER_ID", "a")


def test_what_is_no_layer_is_refused() -> None:
    with pytest.raises(NoeticConfigError) as caught:
        memory([{"id": "a"}])

    assert caught.value.code == "INVALID_LAYER"


def test_a_layer_without_hooks_is_legal() -> None:
    assert layer().hooks.names() == ()


def test_timeouts_may_be_named_as_the_wire_names_them() -> None:
    made = layer(timeouts={"beforeToolCall": 7, "recall": 0})

    assert (made.timeout_ms("before_tool_call"), made.timeout_ms("recall"), made.timeout_ms("store")) == (7, 0, 30_000)


def test_a_function_that_cannot_be_executed_is_refused() -> None:
    with pytest.raises(NoeticConfigError, match="execute"):
        layer_fn(description="", input=int, output=int, execute=None)
    with pytest.raises(NoeticConfigError, match="state"):
        layer_data("state")


def test_swapping_a_hook_leaves_the_old_layer_alone() -> None:
    old = layer(recall=lambda p: "old")

    new = old.with_hooks(recall=lambda p: "new", store=lambda p: None)

    assert (old.hooks.names(), new.hooks.names()) == (("recall",), ("recall", "store"))
    assert old.hooks.recall(None) == "old"


def test_the_slots_are_those_of_the_reference() -> None:
    assert {slot.name: int(slot) for slot in Slot} == {
        "REMINDER": 80,
        "STEERING": 90,
        "WORKING_MEMORY": 100,
        "ENTITY": 150,
        "OBSERVATIONS": 200,
        "PROCEDURAL": 250,
        "EPISODIC": 300,
        "RAG": 350,
        "SEMANTIC_RECALL": 400,
    }
