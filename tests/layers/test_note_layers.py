"""Layers that keep what is said or told: working memory, observations, entities, task state, tool memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from noetic_nb.errors import NoeticError
from noetic_nb.items import function_call
from noetic_nb.layers import durable_task_state, entity_memory, observational_memory, tool_memory, working_memory
from noetic_nb.storage import InMemoryStorage
from noetic_nb.testing import drive_loop
from tests.layers.layer_driver import Conversation
from tests.memory.stacks import context


class Profile(BaseModel):
    name: str = ""
    age: int = 0


# -- working memory ---------------------------------------------------------------------------------------------------


async def test_updates_of_working_memory_merge_objects_and_replace_the_rest() -> None:
    talk = Conversation(working_memory(initial={"a": {"c": 2}, "d": [1]}))
    await talk.begin()

    await talk.call("working-memory", "update", a={"b": 1}, __proto__={"x": 1})

    assert talk.state("working-memory") == {"a": {"c": 2, "b": 1}, "d": [1]}


async def test_updating_text_keeps_it_beside_the_new_notes() -> None:
    talk = Conversation(working_memory(initial="prior text"))
    await talk.begin()

    await talk.call("working-memory", "update", x=1)

    assert talk.state("working-memory") == {"x": 1, "_previous": "prior text"}


async def test_an_update_that_breaks_the_schema_changes_nothing() -> None:
    talk = Conversation(working_memory(schema=Profile, initial={"name": "Ann"}))
    await talk.begin()

    with pytest.raises(NoeticError, match="age"):
        await talk.call("working-memory", "update", age="old")
    assert talk.state("working-memory") == {"name": "Ann"}


async def test_stored_notes_that_no_longer_fit_are_reported_and_kept_aside() -> None:
    storage = InMemoryStorage({"layers/working-memory/t1/state": {"age": "old"}})
    talk = Conversation(working_memory(schema=Profile), storage=storage)

    await talk.begin()

    assert talk.state("working-memory") == {}
    assert talk.stack.told == [("working-memory", "init")]
    assert await storage.get("layers/working-memory/t1/rejected") == {"age": "old"}


async def test_working_memory_honours_the_legacy_call() -> None:
    talk = Conversation(working_memory())
    await talk.begin()
    calls = [
        function_call("updateWorkingMemory", "not json", "c1"),
        function_call("updateWorkingMemory", '{"city": "Rome"}', "c2"),
        function_call("updateWorkingMemory", '{"city": "Paris"}', "c3"),
    ]

    await talk.stack.store(talk.context(), response={"items": calls, "usage": {}}, log=())

    assert talk.state("working-memory") == {"city": "Rome"}


async def test_read_only_working_memory_can_be_changed_in_no_way() -> None:
    layer = working_memory(read_only=True, initial={"city": "Rome"})
    talk = Conversation(layer)
    await talk.begin()
    legacy = [function_call("updateWorkingMemory", '{"city": "Paris"}', "c1")]

    await talk.stack.store(talk.context(), response={"items": legacy, "usage": {}}, log=())

    assert set(layer.provides or {}) == {"snapshot"}
    assert talk.state("working-memory") == {"city": "Rome"}


@pytest.mark.parametrize(("scope", "passed"), [("resource", {"n": {"m": 1}}), ("thread", None)])
async def test_a_child_gets_a_copy_of_the_notes_of_a_person_only(scope: Any, passed: Any) -> None:
    talk = Conversation(working_memory(scope=scope, initial={"n": {"m": 1}}))
    await talk.begin()
    child = context("child", depth=1)

    await talk.stack.spawn(talk.context(), child)

    given = talk.stack.state.get("child", "working-memory")
    assert given == passed
    assert given is None or given["n"] is not talk.state("working-memory")["n"]


# -- observations -----------------------------------------------------------------------------------------------------


def words(count: int) -> str:
    return "word" * count  # one token each


async def test_what_was_said_is_distilled_when_it_is_enough() -> None:
    seen: list[tuple[str, ...]] = []

    def observer(texts: Any) -> list[str]:
        seen.append(tuple(texts))
        return [f"{len(texts)} remarks", "  "]

    talk = Conversation(observational_memory(observer, buffer_threshold=10))

    assert await talk.turn(words(4), words(3)) == ""
    shown = await talk.turn(words(3), "ok")

    assert seen == [(words(4), words(3), words(3))]
    assert shown == "<observations>\n- 3 remarks\n</observations>"
    await talk.begin()
    assert talk.state("observational-memory") == {
        "observations": ["3 remarks"],
        "buffer": ["ok"],
        "bufferTokens": 1,
        "version": 1,
    }


async def test_a_failing_observer_loses_nothing_and_is_tried_again() -> None:
    fails = [True]

    async def observer(texts: Any) -> list[str]:
        await asyncio.sleep(0)
        if fails:
            raise RuntimeError("no model")
        return list(texts)

    talk = Conversation(observational_memory(observer, buffer_threshold=3))
    await talk.turn(words(4), words(1))
    assert {hook for _, hook in talk.stack.told} == {"store", "on_item_append"}
    fails.clear()

    assert words(4) in await talk.turn("ok", "ok")


async def test_an_observer_that_always_fails_does_not_make_the_buffer_grow_for_ever() -> None:
    def observer(texts: Any) -> list[str]:
        raise RuntimeError("never")

    talk = Conversation(observational_memory(observer, buffer_threshold=5, max_observations=8))
    for n in range(60):
        await talk.turn(f"{n} {words(3)}", "")
    await talk.begin()

    state = talk.state("observational-memory")
    assert state["bufferTokens"] < 25
    assert len(state["observations"]) == 8


async def test_without_an_observer_the_texts_themselves_are_kept() -> None:
    talk = Conversation(observational_memory(buffer_threshold=2, max_observations=2))
    for text in ("first remark", "second remark", "third remark"):
        await talk.turn(text, "")

    assert await talk.begin() == "<observations>\n- second remark\n- third remark\n</observations>"


async def test_a_model_can_observe() -> None:
    asked: list[Any] = []

    async def call_model(request: Any) -> Any:
        asked.append(request)
        text = "- Ann likes tea.\n\n- Ann lives in Rome."
        return {"items": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]}

    talk = Conversation(observational_memory(model="small", buffer_threshold=2), call_model=call_model)
    await talk.turn("I am Ann and like tea.", "")

    assert "- Ann likes tea.\n- Ann lives in Rome." in await talk.begin()
    assert [request.model for request in asked] == ["small"]


async def test_the_oldest_observations_make_way_where_the_budget_is_small() -> None:
    talk = Conversation(observational_memory(buffer_threshold=1))
    for n in range(9):
        await talk.turn(f"remark number {n}", "")
    await talk.begin()

    shown = await talk.shown(budget=20)

    assert "number 8" in shown
    assert "number 0" not in shown


# -- entities ---------------------------------------------------------------------------------------------------------


async def test_entities_named_in_the_question_are_shown_first() -> None:
    talk = Conversation(entity_memory())
    await talk.begin()
    await talk.call("entity-memory", "remember", name="Rome", fact="The office is on the river.")
    talk.clock.advance(10)
    await talk.call("entity-memory", "remember", name="Ann", fact="She likes tea.")
    await talk.call("entity-memory", "remember", name="ann", fact="She plays chess.")

    assert (await talk.shown("What about Rome?")).splitlines()[1] == "- Rome: The office is on the river."
    assert (await talk.shown("Who is she?")).splitlines()[1:3] == ["- Ann: She plays chess.", "- Ann: She likes tea."]
    assert talk.data("entity-memory", "entities")["Ann"] == ("She likes tea.", "She plays chess.")


async def test_a_forgotten_entity_is_not_shown() -> None:
    talk = Conversation(entity_memory())
    await talk.begin()
    await talk.call("entity-memory", "remember", name="Ann", fact="She likes tea.")

    assert await talk.call("entity-memory", "forget", name="ANN") == "Ann is forgotten."
    assert await talk.call("entity-memory", "forget", name="Bob") == "Nothing is known about Bob."
    assert await talk.shown("Ann") == ""


async def test_an_extractor_reads_both_sides_and_repeats_nothing() -> None:
    talk = Conversation(entity_memory(lambda text: {"Ann": ["likes tea"]} if "tea" in text else {}, max_facts=2))
    await talk.turn("I like tea", "Tea it is")
    await talk.turn("coffee", "")

    await talk.begin()
    assert talk.data("entity-memory", "entities") == {"Ann": ("likes tea",)}


# -- task state -------------------------------------------------------------------------------------------------------


async def test_task_state_is_checkpointed_and_tells_how_the_execution_ended() -> None:
    talk = Conversation(durable_task_state())
    await talk.begin("go")
    assert await talk.call("durable-task-state", "record_artifact", path="a.txt") == "a.txt is noted."
    assert await talk.call("durable-task-state", "record_artifact", path="a.txt") == "a.txt was noted before."
    assert "reserved" in await talk.call("durable-task-state", "set_task_data", key="__outcome", value=1)
    await talk.call("durable-task-state", "set_task_data", key="k", value=[1, 2])
    await talk.end("done", outcome="failure")

    shown = await talk.begin()

    state = talk.state("durable-task-state")
    assert (state["files"], state["data"]) == (["a.txt"], {"k": [1, 2], "__outcome": "failure"})
    assert len(state["checkpoints"]) == 2
    assert shown.startswith("<task_state>\n{")


@pytest.mark.parametrize(("merge", "data"), [("shallow", {"k": 2}), ("namespace", {"k": 1, "child1": {"k": 2}})])
async def test_a_childs_task_state_is_merged_without_repeating_what_it_inherited(merge: Any, data: Any) -> None:
    talk = Conversation(durable_task_state(merge_data=merge))
    await talk.begin()
    await talk.call("durable-task-state", "set_task_data", key="k", value=1)
    await talk.stack.store(talk.context(), response={"items": [], "usage": {}}, log=())
    child = context("child1", depth=1)
    await talk.stack.spawn(talk.context(), child)
    inherited = talk.stack.state.get("child1", "durable-task-state")
    talk.stack.state.set("child1", "durable-task-state", {**inherited, "data": {"k": 2}, "files": ["b"]})

    await talk.stack.return_(talk.context(), child, child_log=(), result=None)

    state = talk.state("durable-task-state")
    assert (state["data"], state["files"], len(state["checkpoints"])) == (data, ["b"], 1)


async def test_a_small_budget_costs_the_oldest_checkpoints_first() -> None:
    talk = Conversation(durable_task_state())
    await talk.begin()
    await talk.call("durable-task-state", "record_artifact", path="important.txt")
    for _ in range(60):
        talk.clock.advance(1)
        await talk.stack.store(talk.context(), response={"items": [], "usage": {}}, log=())

    assert len(talk.state("durable-task-state")["checkpoints"]) == 50
    shown = await talk.shown(budget=100)
    assert "important.txt" in shown
    assert shown.endswith("</task_state>")


@pytest.mark.parametrize("empty", ["", " ", "\n\t"])
async def test_an_artifact_and_a_value_need_a_name(empty: str) -> None:
    talk = Conversation(durable_task_state())
    await talk.begin()

    with pytest.raises(ValidationError):
        await talk.call("durable-task-state", "record_artifact", path=empty)
    with pytest.raises(ValidationError):
        await talk.call("durable-task-state", "set_task_data", key=empty, value=1)


# -- tool memory ------------------------------------------------------------------------------------------------------


async def test_tools_share_a_state_by_id_that_the_model_is_shown() -> None:
    talk = Conversation(
        tool_memory("cart", initial=lambda: {"items": []}, show=lambda cart: f"Cart: {len(cart['items'])}")
    )

    assert await talk.begin() == "Cart: 0"
    await talk.call("cart", "set", value={"items": ["tea"]})
    assert talk.data("cart", "value") == {"items": ["tea"]}
    assert await talk.shown() == "Cart: 1"


async def test_tool_memory_is_new_in_every_execution_and_never_stored() -> None:
    first = {"n": 0}
    talk = Conversation(tool_memory("count", initial=first))
    await talk.begin()
    talk.stack.state.set(talk.context().execution_id, "count", {"n": 5})
    await talk.end()
    await talk.begin()

    assert talk.state("count") == {"n": 0}
    assert talk.state("count") is not first
    assert await talk.stack.storage.list("") == []


def test_a_slow_observer_is_cut_off_after_a_minute() -> None:
    async def observer(texts: Any) -> list[str]:
        await asyncio.sleep(3_600)
        return []

    async def run() -> list[tuple[str, str]]:
        talk = Conversation(observational_memory(observer, buffer_threshold=1))
        before = asyncio.get_running_loop().time()
        await talk.begin("hello there")
        assert asyncio.get_running_loop().time() - before == 60
        return talk.stack.told

    assert drive_loop(run()) == [("observational-memory", "on_item_append")]
