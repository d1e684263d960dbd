"""Small facts of the specification: snapshots of states, clearing, unsubscribing, and fields of errors."""

from __future__ import annotations

import asyncio
import copy
import pickle
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticError
from noetic_nb.memory import LayerStateStore, MemoryHooks, MemoryLayer, layer_fn
from noetic_nb.steps import step
from noetic_nb.storage import InMemoryStorage, ScopedStorage
from tests.runtime.factories import make_harness


class Slow(InMemoryStorage):
    """A store whose writes wait until they are released."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def set(self, key: str, value: Any) -> None:
        await self.gate.wait()
        await super().set(key, value)


async def test_cleanup_with_a_write_pending_ends_the_registration_and_finishes_the_write() -> None:
    storage, store = Slow(), LayerStateStore()
    target = ScopedStorage(storage, "notes", "t")
    store.register_durable("e1", "notes", target)
    store.set("e1", "notes", {"n": 1})  # running
    await asyncio.sleep(0)
    store.set("e1", "notes", {"n": 2})  # waiting

    store.cleanup("e1")

    assert not store.holds("e1", "notes")
    store.set("e1", "notes", {"n": 3})  # another execution with the same id: not mirrored
    storage.gate.set()
    await store.flush("e1")
    assert await target.get("state") == {"n": 2}
    assert store._mirror.by_execution == store._mirror.pending == store._mirror.writing == {}


def test_a_write_that_no_loop_has_begun_is_finished_by_the_next_flush_after_a_cleanup() -> None:
    storage = Slow()
    store, target = LayerStateStore(), ScopedStorage(storage, "notes", "t")
    store.register_durable("e1", "notes", target)
    store.register_durable("e1", "other", ScopedStorage(storage, "other", "t"))
    store.set("e1", "notes", {"n": 1})
    store.cleanup("e1")

    async def flushed() -> Any:
        storage.gate.set()
        await store.flush("e1")
        return await target.get("state")

    assert not store.holds("e1", "notes")
    assert not store.holds("e1", "other")
    assert asyncio.run(flushed()) == {"n": 1}


@pytest.mark.parametrize("reader", ["hook", "function"])
async def test_the_state_of_another_layer_is_a_copy(reader: str) -> None:
    seen: list[Any] = []

    def look(ctx: Any) -> Any:
        found = ctx.read_layer_state("notes")
        seen.append(copy.deepcopy(found))
        found["n"].append("changed by another")
        assert ctx.read_layer_state("none") is None

    function = layer_fn(
        description="Looks.", input=dict[str, Any], output=None, execute=lambda args, state, ctx: look(ctx)
    )
    notes = MemoryLayer(id="notes", slot=1, scope="thread", hooks=MemoryHooks(init=lambda p: {"state": {"n": [1]}}))
    other = MemoryLayer(
        id="other", slot=2, scope="thread", provides={"look": function},
        hooks=MemoryHooks(recall=lambda p: look(p.ctx)) if reader == "hook" else MemoryHooks(),
    )  # fmt: skip
    replies = ["one", "two"] if reader == "hook" else [nn.CallTool("other/look"), nn.CallTool("other/look"), "done"]
    harness = make_harness(replies, tools=None, memory=[notes, other])

    async with harness.execution() as ctx:
        await ctx.run(nn.react(model="m"), "hi")
        if reader == "hook":
            await ctx.run(nn.react(model="m"), "hi")

    assert seen == [{"n": [1]}] * 2


@pytest.mark.parametrize(
    ("result", "state"),
    [({"state": None}, None), ({}, {"n": 1}), (None, {"n": 1}), ({"result": 1}, {"n": 1}), ({"state": {}}, {})],
)
async def test_a_state_of_none_clears_as_in_hooks(result: Any, state: Any) -> None:
    function = layer_fn(description="Does.", input=dict[str, Any], output=Any, execute=lambda args, before, ctx: result)
    layer = MemoryLayer(
        id="notes", slot=1, scope="thread", provides={"do": function},
        hooks=MemoryHooks(init=lambda p: {"state": {"n": 1}}),
    )  # fmt: skip
    harness = make_harness([nn.CallTool("notes/do"), "done"], tools=None, memory=[layer])

    async with harness.execution() as ctx:
        await ctx.run(nn.react(model="m"), "hi")
        assert harness._engine.stack.state.get(ctx.id, "notes") == state
        # Cleared, but not missing: the layer still takes part.
        assert harness._engine.stack.state.has(ctx.id, "notes")


@pytest.mark.parametrize("as_text", [True, False])
async def test_an_output_that_does_not_fit_names_the_place(as_text: bool) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}}
    output: Any = '{"a": [1, "two"]}' if as_text else {"a": [1, "two"]}
    for wanted, place in ((schema, "a/1"), (dict[str, list[int]], "a.1")):
        child = step.run("child", lambda value, ctx: output)
        spawn = step.spawn("below", child, context_out={"strategy": "schema", "schema": wanted})
        with pytest.raises(NoeticError) as caught:
            await make_harness([], step=spawn).execute("hi")
        assert caught.value.kind == "llm_parse_error"
        assert place.replace("/", ".") in caught.value.validation_error.replace("/", ".").replace("[", ".").replace(
            "]", ""
        )


async def test_text_that_is_no_json_is_told_what_was_wanted() -> None:
    spawn = step.spawn(
        "below",
        step.run("child", lambda value, ctx: "no"),
        context_out={"strategy": "schema", "schema": dict[str, int]},
    )

    with pytest.raises(NoeticError, match="dictionary") as caught:
        await make_harness([], step=spawn).execute("hi")

    assert caught.value.raw == '"no"'


FIELDS = {
    "step_failed": ("step_id", "cause", "retries_exhausted"),
    "llm_refused": ("step_id", "refusal"),
    "llm_rate_limit": ("step_id", "retry_after_ms"),
    "spawn_summary_failed": ("step_id", "child_output", "summary_cause"),
    "channel_timeout": ("channel_name", "timeout"),
    "cancelled": ("reason",),
    "item_schema_mismatch": ("category", "item_type"),
    "budget_exceeded": ("field", "limit", "actual"),
    "steering_denied": ("guidance",),
    "handle_evicted": ("handle_id", "step_id", "grace_period_ms"),
}


@pytest.mark.parametrize("kind", FIELDS)
@pytest.mark.parametrize("given", [True, False], ids=["given as None", "not given"])
def test_the_fields_of_a_kind_are_there_where_they_are_none(kind: Any, given: bool) -> None:
    error = NoeticError(kind, "It failed.", **(dict.fromkeys(FIELDS[kind]) if given else {}))

    for one in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert {name: getattr(one, name) for name in FIELDS[kind]} == dict.fromkeys(FIELDS[kind])
        assert one.to_dict() == {"kind": kind, "message": "It failed.", **error.facts}
    assert str(error) == "It failed."
    with pytest.raises(AttributeError):
        _ = error.weather


async def test_an_error_of_a_model_has_the_step_it_was_raised_in() -> None:
    harness = make_harness([NoeticError("llm_failed", "It failed.")], step=step.llm("ask", model="m"))

    with pytest.raises(NoeticError) as caught:
        await harness.execute("hi")

    assert caught.value.step_id == "ask"
