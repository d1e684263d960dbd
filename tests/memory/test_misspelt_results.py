"""A result under a misspelt name is reported, and correctly named results still count."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import noetic_nb as nn
from noetic_nb.memory import MemoryHooks, MemoryLayer, layer_fn
from noetic_nb.steps import step
from tests.runtime.factories import lookup, make_harness

BEGUN = {"init": lambda p: {"state": {"n": 1}}, "on_spawn": lambda p: {"child_state": 1}}
RIGHT: dict[str, dict[str, Any]] = {
    "init": {"state": {"n": 1}},
    "recall": {"items": []},
    "store": {"state": {"n": 2}},
    "on_item_append": {"items": None},
    "project_history": {"items": None},
    "on_spawn": {"childState": 1},
    "on_return": {"parent_state": {"n": 3}},
    "on_complete": {"state": {"n": 4}},
    "on_tool_outcome": {"state": {"n": 5}},
    "on_model_outcome": {"state": {"n": 6}},
    "before_tool_call": {"decision": nn.deny("No.")},
    "after_model_call": {"decision": None},
}
SLIPS = {
    "init": ("stat", "state"), "recall": ("itms", "items"), "store": ("stat", "state"), "on_item_append": ("item", "items"),
    "project_history": ("itms", "items"), "on_spawn": ("chid_state", "child_state"), "on_return": ("parent_stat", "parent_state"),
    "on_complete": ("stat", "state"), "on_tool_outcome": ("stat", "state"), "on_model_outcome": ("stat", "state"),
    "before_tool_call": ("stat", "state"), "after_model_call": ("stat", "state"),
}  # fmt: skip


async def warned(hook: str, result: Any, *, waits: bool = False) -> tuple[Any, Any]:
    """Return the reply of a turn in which a hook returns a given result, and the layer's state."""

    async def later(p: Any) -> Any:
        return result

    made = {**BEGUN, hook: later if waits else lambda p: result}
    layer = MemoryLayer(id="notes", slot=1, scope="thread", hooks=MemoryHooks(**made))
    replies = [nn.CallTool("lookup", order_id="A"), "ok"]
    inner = step.llm("ask", model="m", tools=[lookup], tool_rounds=4)
    whole = step.spawn("below", inner) if hook in ("on_spawn", "on_return") else inner
    harness = make_harness(replies, step=whole, memory=[layer])
    reply = await harness.execute("hi", thread_id="t")
    return reply, await harness.memory("t").state("notes")


@pytest.mark.parametrize("waits", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("hook", SLIPS)
async def test_a_misspelt_key_beside_a_right_one_is_reported(hook: str, waits: bool) -> None:
    slip, meant = SLIPS[hook]

    reply, state = await warned(hook, {**RIGHT[hook], slip: 1}, waits=waits)

    found = {(warning.code, warning.layer_id) for warning in reply.warnings}
    assert found == {("layer_result", "notes")}
    text = reply.warnings[0].text
    assert hook in text
    assert f"{slip!r}" in text
    assert f"Did you mean {meant!r}?" in text
    wanted = None if hook == "init" else RIGHT[hook].get("state", RIGHT[hook].get("parent_state"))
    assert state == wanted  # the result of `init` is stored with the first change


async def test_a_recall_of_nothing_but_a_slip_is_reported_by_its_name() -> None:
    reply, _ = await warned(
        "recall", {"itms": [nn.parse_item({"type": "message", "role": "developer", "content": []})]}
    )

    assert [(warning.code, warning.layer_id) for warning in reply.warnings] == [("layer_result", "notes")]
    assert "'itms'" in reply.warnings[0].text
    assert "Did you mean 'items'?" in reply.warnings[0].text


@pytest.mark.parametrize("result", [{}, object()])
async def test_a_recall_without_items_says_so(result: Any) -> None:
    reply, _ = await warned("recall", result)

    assert [warning.code for warning in reply.warnings] == ["recall_failed"]
    assert "without `items`" in reply.warnings[0].text
    assert "UNSET" not in reply.warnings[0].text


@pytest.mark.parametrize("hook", ["store", "on_item_append", "project_history", "on_spawn", "on_return", "on_complete"])
async def test_a_result_of_nothing_but_a_slip_is_reported(hook: str) -> None:
    reply, state = await warned(hook, {"stat": 1})

    assert [(warning.code, warning.layer_id) for warning in reply.warnings] == [("layer_result", "notes")]
    assert state is None  # nothing was written


@pytest.mark.parametrize("hook", RIGHT)
async def test_right_results_are_not_reported(hook: str) -> None:
    for result in (
        (RIGHT[hook], None, {})
        if hook not in ("init", "recall", "before_tool_call", "after_model_call")
        else (RIGHT[hook],)
    ):
        assert (await warned(hook, result))[0].warnings == ()


class Slip(NamedTuple):
    stat: int = 1


class Record(NamedTuple):
    state: Any
    more: int = 1


async def test_a_record_without_any_field_of_the_hook_is_reported_and_one_with_more_is_not() -> None:
    slip, _ = await warned("store", Slip())
    right, state = await warned("store", Record({"n": 7}))

    assert ["'stat'" in warning.text for warning in slip.warnings] == [True]
    assert (right.warnings, state) == ((), {"n": 7})


@pytest.mark.parametrize("name", ["reslt", "stat"])
async def test_a_function_of_a_layer_is_held_to_its_fields_too(name: str) -> None:
    add = layer_fn(description="Adds.", input=dict[str, Any], output=Any, execute=lambda args, state, ctx: {name: 1})
    layer = MemoryLayer(id="notes", slot=1, scope="thread", provides={"add": add})
    harness = make_harness([nn.CallTool("notes/add"), "ok"], tools=None, memory=[layer])

    reply = await harness.execute("hi")

    assert [(warning.code, name in warning.text) for warning in reply.warnings] == [("layer_result", True)]
