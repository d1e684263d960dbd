"""Hooks run in order and under their limit; a failing hook is reported and affects nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from noetic_nb.errors import NoeticError
from noetic_nb.events import MemoryTraceSpan
from noetic_nb.items import ItemLog
from noetic_nb.memory import Stop
from noetic_nb.memory._hook_timeout import HookTimeout
from noetic_nb.models._client import NO_USAGE
from noetic_nb.storage import InMemoryStorage
from noetic_nb.testing import drive_loop
from tests.memory.stacks import CTX, RESPONSE, Watched, boom, context, hang, layer, returning

pytestmark = pytest.mark.virtual_time

CHILD = context("e2", depth=1)
USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}


async def call(stack: Watched, hook: str) -> Any:
    """Trigger a hook."""
    match hook:
        case "init":
            return await stack.init(CTX)
        case "recall":
            return await stack.recall(CTX, budgets={})
        case "store":
            return await stack.store(CTX, response=RESPONSE, log=())
        case "on_spawn":
            return await stack.spawn(CTX, CHILD)
        case "on_return":
            for each in stack.layers:
                stack.state.set(CHILD.execution_id, each.id, {"n": 1})
            return await stack.return_(CTX, CHILD, child_log=(), result="r")
        case "on_complete":
            return await stack.complete(CTX, log=(), outcome="success")
        case "dispose":
            return await stack.dispose(CTX)
        case "before_tool_call":
            return await stack.before_tool_call(CTX, tool_name="t", tool_args={})
        case "after_model_call":
            return await stack.after_model_call(CTX, response=RESPONSE)
        case "on_item_append":
            return await stack.append(CTX, [USER], log=())
        case "project_history":
            return await stack.project_history(CTX, [USER])
        case "on_tool_outcome":
            return await stack.tool_outcome(CTX, name="t", call_id="c", success=True, duration_ms=1, error=None)
        case "on_model_outcome":
            return await stack.model_outcome(CTX, model="m", usage=NO_USAGE, cost=None, duration_ms=1)
        case "on_feedback":
            return await stack.feedback(CTX, kind="quality", value=0.5, source="user")
    raise AssertionError(hook)


SLOT_ORDER = [
    "recall",
    "on_spawn",
    "on_return",
    "before_tool_call",
    "after_model_call",
    "on_item_append",
    "project_history",
    "on_tool_outcome",
    "on_model_outcome",
    "on_feedback",
]
ALL = ["init", "store", "on_complete", "dispose", *SLOT_ORDER]


def noting(seen: list[str], name: str) -> Any:
    def hook(params: Any) -> None:
        seen.append(name)

    return hook


@pytest.mark.parametrize("hook", ALL)
async def test_hooks_run_in_slot_order_and_those_of_the_lifecycle_in_the_order_given(hook: str) -> None:
    seen: list[str] = []
    slots = {"late": 300, "early": 80, "middle": 100, "twin": 100}
    stack = Watched(*(layer(id, slot, **{hook: noting(seen, id)}) for id, slot in slots.items()))

    await call(stack, hook)

    expected = ["early", "middle", "twin", "late"] if hook in SLOT_ORDER else [*slots]
    assert seen == (expected[::-1] if hook == "dispose" else expected)


ISOLATED = [name for name in ALL if name not in ("init", "before_tool_call", "after_model_call")]


@pytest.mark.parametrize("hook", ISOLATED)
async def test_a_hook_that_raises_is_one_diagnostic_and_the_others_run(hook: str) -> None:
    seen: list[str] = []
    stack = Watched(layer("bad", 1, **{hook: boom}), layer("good", 2, **{hook: noting(seen, "good")}))

    await call(stack, hook)

    assert stack.told == [("bad", hook)]
    assert seen == ["good"]
    assert sorted(stack.spans) == [("bad", hook, "error"), ("good", hook, "ok")]


@pytest.mark.parametrize("hook", ISOLATED)
async def test_the_trace_of_a_failed_hook_has_type_message_and_stack_without_secrets(hook: str) -> None:
    secret = "sk-proj-" + "a1B2" * 8

    def reads_settings(params: Any) -> Any:
        try:
            return {}["path"]
        except KeyError as exc:
            raise ValueError(f"refused {secret}") from exc

    stack = Watched(layer("bad", **{hook: reads_settings}))
    await call(stack, hook)

    (span,) = [event for event in stack.events if isinstance(event, MemoryTraceSpan) and event.status == "error"]
    assert (span.error_type, span.error) == ("ValueError", "refused [redacted]")
    assert span.error_stack is not None
    assert all(part in span.error_stack for part in ("in reads_settings", "KeyError: 'path'", "ValueError: refused"))
    assert secret not in span.error_stack


async def test_the_stack_of_a_deep_failure_is_bounded_and_keeps_its_end() -> None:
    def deeper(n: int) -> Any:
        if n == 0:
            raise ValueError("at the bottom " + "x" * 100_000 + " the end")
        return deeper(n - 1)

    stack = Watched(layer("bad", store=lambda p: deeper(300)))
    await call(stack, "store")

    (span,) = [event for event in stack.events if isinstance(event, MemoryTraceSpan) and event.status == "error"]
    assert span.error_stack is not None
    assert len(span.error_stack) <= 4_000
    assert span.error_stack.endswith("the end\n")


@pytest.mark.parametrize("hook", ISOLATED)
def test_a_hook_that_hangs_is_cancelled_and_the_others_run(hook: str) -> None:
    seen: list[str] = []
    cancelled: list[str] = []

    async def hanging(params: Any) -> None:
        try:
            await hang(params)
        except asyncio.CancelledError:
            cancelled.append(hook)
            raise

    async def run() -> Watched:
        stack = Watched(
            layer("bad", 1, timeouts={hook: 20}, **{hook: hanging}),
            layer("good", 2, **{hook: noting(seen, "good")}),
        )
        await call(stack, hook)
        return stack

    stack = drive_loop(run())

    assert (stack.told, seen, cancelled) == ([("bad", hook)], ["good"], [hook])
    assert isinstance(stack.notes[0][2], HookTimeout)
    assert ("bad", hook, "timeout") in stack.spans


def test_what_a_timed_out_hook_would_have_done_later_never_happens() -> None:
    done: list[str] = []

    async def late(params: Any) -> Any:
        await asyncio.sleep(0.05)
        done.append("late")
        return {"state": {"late": True}}

    async def run() -> Watched:
        stack = Watched(layer("a", store=late, timeouts={"store": 20}))
        await call(stack, "store")
        await asyncio.sleep(1)
        return stack

    stack = drive_loop(run())

    assert (done, stack.state.has("e1", "a")) == ([], False)


def test_a_timeout_error_of_the_hooks_own_is_not_taken_for_ours() -> None:
    async def own(params: Any) -> Any:
        await asyncio.sleep(0.001)
        raise TimeoutError("the hook's own")

    async def run() -> Watched:
        stack = Watched(layer("a", recall=own))
        await call(stack, "recall")
        return stack

    stack = drive_loop(run())

    assert (str(stack.notes[0][2]), stack.spans) == ("the hook's own", [("a", "recall", "error")])


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_nothing_is_no_limit(limit: float) -> None:
    async def slow(params: Any) -> str:
        await asyncio.sleep(3_600)
        return "after an hour"

    async def run() -> Any:
        return await Watched(layer("a", recall=slow, timeouts={"recall": limit})).recall(CTX, budgets={})

    (entry,) = drive_loop(run())

    assert entry.token_count == 4


WRONG_SHAPES = ["text", 7, True, ["state"], ("a",), {1, 2}, b"bytes"]


@pytest.mark.parametrize("value", WRONG_SHAPES, ids=repr)
@pytest.mark.parametrize("hook", ["store", "on_complete", "on_spawn", "on_return", "on_item_append", "project_history"])
async def test_a_result_of_the_wrong_shape_is_a_diagnostic_that_says_what_came(hook: str, value: Any) -> None:
    stack = Watched(layer("a", **{hook: returning(value)}))

    await call(stack, hook)

    assert stack.told == [("a", hook)]
    assert type(value).__name__ in str(stack.notes[0][2])


@pytest.mark.parametrize("items", ["text", 7, [{"no": "type"}], [{"type": "unheard:of"}], [None]], ids=repr)
async def test_recalled_items_that_are_none_drop_the_contribution_with_a_diagnostic(items: Any) -> None:
    stack = Watched(layer("a", recall=returning({"items": items})), layer("b", recall=returning("fine")))

    entries = await stack.recall(CTX, budgets={})

    assert [entry.layer_id for entry in entries] == ["b"]
    assert stack.told == [("a", "recall")]


# -- who takes part ---------------------------------------------------------------------------------------------------


async def test_of_four_layers_only_the_initialised_and_the_cleared_one_recall() -> None:
    seen: dict[str, Any] = {}

    def recall_of(id: str) -> Any:
        def recall(p: Any) -> str:
            seen[id] = p.state
            return id

        return recall

    def disabled_init(p: Any) -> Any:
        raise RuntimeError("no")

    stack = Watched(
        layer("ready", 1, init=returning({"state": {"n": 1}}), recall=recall_of("ready")),
        layer("disabled", 2, init=disabled_init, on_init_error="disable", recall=recall_of("disabled")),
        layer("cleared", 3, init=returning({"state": {"n": 1}}), recall=recall_of("cleared")),
        layer("without", 4, init=returning(None), recall=recall_of("without")),
        layer("plain", 5, recall=recall_of("plain")),
    )
    await stack.init(CTX)
    stack.state.set("e1", "cleared", None)
    stack.events.clear()

    await stack.recall(CTX, budgets={})

    assert seen == {"ready": {"n": 1}, "cleared": None, "plain": None}
    assert ("disabled", "recall", "skipped") in stack.spans
    assert ("without", "recall", "skipped") in stack.spans


@pytest.mark.parametrize("hook", [h for h in ALL if h not in ("init", "on_return", "on_feedback", "before_tool_call")])
async def test_a_disabled_layer_is_skipped_everywhere_and_its_trace_says_so(hook: str) -> None:
    seen: list[str] = []
    stack = Watched(layer("a", init=boom, on_init_error="disable", **{hook: noting(seen, "a")}))
    await stack.init(CTX)
    stack.events.clear()

    await call(stack, hook)

    assert seen == []
    assert stack.spans == [("a", hook, "skipped")]


async def test_a_failing_init_fails_the_execution_and_a_second_try_begins_anew() -> None:
    calls: list[int] = []

    def init(p: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("storage is away")
        return {"state": "loaded"}

    stack = Watched(layer("a", init=init, recall=lambda p: p.state))

    with pytest.raises(RuntimeError, match="away"):
        await stack.init(CTX)
    assert await stack.recall(CTX, budgets={}) == ()
    await stack.init(CTX)

    assert [entry.layer_id for entry in await stack.recall(CTX, budgets={})] == ["a"]
    assert stack.told == [("a", "init")]


def test_an_init_that_hangs_is_a_hook_timeout() -> None:
    async def run() -> None:
        await Watched(layer("a", init=hang)).init(CTX)

    with pytest.raises(HookTimeout) as caught:
        drive_loop(run())

    assert (caught.value.kind, caught.value.timeout_ms) == ("hook_timeout", 10_000)
    assert isinstance(caught.value, TimeoutError)


async def test_a_corrupt_durable_value_is_raised_or_disables_never_silently_empty() -> None:
    class Corrupt(InMemoryStorage):
        async def get(self, key: str) -> Any:
            raise NoeticError("storage_failed", "The value is not JSON.", key=key)

    async def init(p: Any) -> Any:
        return {"state": await p.storage.get("state") or "empty"}

    strict, lenient = layer("a", init=init), layer("b", init=init, on_init_error="disable", recall=lambda p: "b")

    with pytest.raises(NoeticError, match="not JSON"):
        await Watched(strict, storage=Corrupt()).init(CTX)
    stack = Watched(lenient, storage=Corrupt())
    await stack.init(CTX)
    assert await stack.recall(CTX, budgets={}) == ()
    assert stack.told == [("b", "init")]


# -- state through results -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hook", ["store", "on_complete"])
async def test_returning_a_state_of_none_clears_and_returning_no_state_keeps(hook: str) -> None:
    for answer, expected in (({"state": None}, None), ({}, "before"), (None, "before"), ({"state": "new"}, "new")):
        stack = Watched(layer("a", **{hook: returning(answer)}))
        stack.state.set("e1", "a", "before")

        await call(stack, hook)

        assert (stack.state.has("e1", "a"), stack.state.get("e1", "a")) == (True, expected), answer


@pytest.mark.parametrize("hook", ["recall", "on_item_append", "on_tool_outcome", "on_model_outcome"])
async def test_other_hooks_take_an_empty_state_and_ignore_none(hook: str) -> None:
    for answer, expected in (({"state": None}, "before"), ({"state": {}}, {}), ({"state": 0}, 0)):
        stack = Watched(layer("a", **{hook: returning(answer)}))
        stack.state.set("e1", "a", "before")

        await call(stack, hook)

        assert stack.state.get("e1", "a") == expected, answer
        assert stack.told == []


async def test_store_may_spoil_its_copy_of_the_state_without_harm() -> None:
    def spoil(p: Any) -> None:
        p.state["notes"].append("spoiled")
        raise RuntimeError("after spoiling")

    stack = Watched(layer("a", store=spoil))
    stack.state.set("e1", "a", {"notes": []})

    await call(stack, "store")

    assert stack.state.get("e1", "a") == {"notes": []}


def test_stores_run_at_the_same_time_and_write_in_the_order_of_the_layers() -> None:
    order: list[str] = []

    def storing(id: str, seconds: float) -> Any:
        async def store(p: Any) -> Any:
            await asyncio.sleep(seconds)
            order.append(id)
            return {"state": id}

        return store

    async def run() -> list[str]:
        stack = Watched(layer("slow", 1, store=storing("slow", 2)), layer("quick", 2, store=storing("quick", 1)))
        written: list[str] = []
        stack.state.listen(lambda execution, layer_id, state, hook: written.append(layer_id))
        before = asyncio.get_running_loop().time()
        await call(stack, "store")
        assert asyncio.get_running_loop().time() - before < 2.5
        return written

    assert drive_loop(run()) == ["slow", "quick"]
    assert order == ["quick", "slow"]


async def test_return_passes_the_result_through_the_layers_and_merges_their_states() -> None:
    def returning_to(id: str) -> Any:
        def on_return(p: Any) -> Any:
            return {
                "parent_state": {"n": (p.parent_state or {"n": 0})["n"] + p.child_state["n"]},
                "result": p.result + id,
            }

        return on_return

    stack = Watched(layer("b", 200, on_return=returning_to("b")), layer("a", 100, on_return=returning_to("a")))

    result = await call(stack, "on_return")

    assert result == "rab"
    assert (stack.state.get("e1", "a"), stack.state.get("e1", "b")) == ({"n": 1}, {"n": 1})


async def test_a_child_writes_to_storage_through_its_parents_mirror() -> None:
    storage = InMemoryStorage()
    stack = Watched(
        layer("a", init=returning({"state": {"n": 1}}), on_spawn=lambda p: {"child_state": {"n": p.parent_state["n"]}}),
        storage=storage,
    )
    await stack.init(CTX)
    await stack.spawn(CTX, CHILD)

    stack.state.set("e2", "a", {"n": 2})
    await stack.state.flush("e2")
    stack.state.set("e1", "a", {"n": 3})
    await stack.state.flush("e1")

    assert await storage.get("layers/a/t1/state") == {"n": 3}
    assert stack.notes == []
    assert [e for e in stack.events if e.kind == "error_raised"] == []


@pytest.mark.parametrize("hook", ["on_item_append", "project_history", "store", "recall", "on_complete"])
async def test_a_hook_cannot_change_the_items_it_is_given(hook: str) -> None:
    log = ItemLog([USER])

    def meddle(p: Any) -> None:
        items = getattr(p, "items", None) or getattr(p, "new_items", None) or p.log
        items[0]["role"] = "system"

    stack = Watched(layer("a", **{hook: meddle}))
    if hook == "recall":
        await stack.recall(CTX, budgets={}, log=log)
    elif hook == "on_complete":
        await stack.complete(CTX, log=log, outcome="success")
    elif hook == "store":
        await stack.store(CTX, response={"items": list(log), "usage": {}}, log=log)
    elif hook == "project_history":
        await stack.project_history(CTX, log.items)
    else:
        await stack.append(CTX, list(log), log=())

    assert stack.told == [("a", hook)]
    assert "never change" in str(stack.notes[0][2])
    assert log[0]["role"] == "user"


async def test_a_path_of_a_fork_writes_nothing_to_storage_by_itself() -> None:
    storage = InMemoryStorage()
    stack = Watched(
        layer("a", init=returning({"state": {"n": 1}}), on_spawn=lambda p: {"child_state": {"n": 1}}), storage=storage
    )
    await stack.init(CTX)
    await stack.spawn(CTX, CHILD, durable=False)

    stack.state.set("e2", "a", {"n": 2})
    await stack.dispose(CHILD)

    assert await storage.list("") == []


def test_each_hook_notes_into_its_own_trace_even_where_they_run_at_once() -> None:
    def noting_store(id: str, seconds: float) -> Any:
        async def store(p: Any) -> None:
            p.ctx.trace.set_attribute("who", id)
            await asyncio.sleep(seconds)
            p.ctx.trace.add_event("woke", {"after": seconds})

        return store

    async def run() -> Watched:
        stack = Watched(layer("a", store=noting_store("a", 2)), layer("b", store=noting_store("b", 1)))
        await call(stack, "store")
        CTX.trace.set_attribute("who", "nobody")
        return stack

    stack = drive_loop(run())

    assert {e.layer_id: (e.attributes, e.notes) for e in stack.events} == {
        "a": ({"who": "a"}, ({"name": "woke", "attributes": {"after": 2}},)),
        "b": ({"who": "b"}, ({"name": "woke", "attributes": {"after": 1}},)),
    }


async def test_a_trace_takes_plain_values_only() -> None:
    stack = Watched(layer("a", recall=lambda p: p.ctx.trace.set_attribute("x", [])))

    await call(stack, "recall")

    assert stack.told == [("a", "recall")]


# -- stops and endings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hook", [h for h in ALL if h not in ("on_feedback",)])
async def test_a_stop_of_any_hook_is_collected_once(hook: str) -> None:
    stop = Stop({"kind": "enough"}, "Let us stop here.")
    stack = Watched(layer("a", **{hook: returning({"stop": stop})}))

    decision = await call(stack, hook)

    carried = getattr(decision, "stop", None)
    if hook != "dispose":
        assert (stack.take_stop(CTX) or carried) == stop
    assert stack.take_stop(CTX) is None
    assert stack.told == []


async def test_disposing_forgets_the_execution_and_leaves_storage_written() -> None:
    storage = InMemoryStorage()

    def dispose(p: Any) -> None:
        stack.state.set("e1", "a", "written while disposing")

    stack = Watched(layer("a", init=returning({"state": 1}), dispose=dispose), storage=storage)
    await stack.init(CTX)

    await stack.complete(CTX, log=(), outcome="success")
    await stack.dispose(CTX)

    assert (stack.state.has("e1", "a"), await storage.get("layers/a/t1/state")) == (False, "written while disposing")


async def test_a_thousand_executions_leave_nothing_behind() -> None:
    stack = Watched(
        layer("a", init=returning({"state": 1}), store=returning({"state": 2, "stop": Stop({"kind": "x"}, "x")})),
        layer("b", scope="execution", recall_mode="eventual", recall=returning("b")),
    )
    for n in range(1_000):
        ctx = context(f"e{n}")
        await stack.init(ctx)
        await stack.recall(ctx, budgets={}, mode="cached")
        await stack.store(ctx, response=RESPONSE, log=())
        await stack.complete(ctx, log=(), outcome="success")
        await stack.dispose(ctx)

    state, eventual = stack.state, stack._eventual
    assert (state._states, state._disabled) == ({}, {})
    assert (state._mirror.by_execution, state._mirror.pending, state._mirror.writing) == ({}, {}, {})
    assert (eventual._cache, eventual._last_params, eventual._live, stack._runner._stops) == ({}, {}, {}, {})


def test_a_cancellation_from_outside_passes_through_every_hook() -> None:
    async def run(hook: str) -> list[tuple[str, str]]:
        stack = Watched(layer("a", **{hook: hang}))
        task = asyncio.ensure_future(call(stack, hook))
        await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return stack.told

    for hook in ALL:
        assert drive_loop(run(hook)) == [], hook


async def test_what_a_hook_notes_after_another_has_run_within_it_is_its_own() -> None:
    inner = Watched(layer("inner", recall=returning("y")))

    async def recall(p: Any) -> str:
        await inner.recall(CTX, budgets={"inner": 9})
        p.ctx.trace.set_attribute("hits", 3)
        p.ctx.trace.add_event("found")
        return "x"

    stack = Watched(layer("a", recall=recall))
    await stack.recall(CTX, budgets={"a": 9})

    (span,) = [event for event in stack.events if isinstance(event, MemoryTraceSpan)]
    assert dict(span.attributes or {}) == {"hits": 3}
    assert [note["name"] for note in span.notes] == ["found"]


TIMEOUTS_MS = {
    "init": 10_000,
    "recall": 5_000,
    "store": 30_000,
    "on_spawn": 10_000,
    "on_return": 10_000,
    "on_complete": 30_000,
    "dispose": 5_000,
    "before_tool_call": 5_000,
    "after_model_call": 10_000,
    "on_item_append": 5_000,
    "project_history": 5_000,
    "on_tool_outcome": 5_000,
    "on_model_outcome": 5_000,
    "on_feedback": 5_000,
    "on_hook_failure": 5_000,
}


def test_every_hook_has_its_default_limit() -> None:
    assert {name: layer("a").timeout_ms(name) for name in TIMEOUTS_MS} == TIMEOUTS_MS


async def test_a_hook_that_hangs_is_left_at_its_default_limit() -> None:
    stack = Watched(layer("a", project_history=hang))
    await stack.init(CTX)
    began = asyncio.get_running_loop().time()

    await stack.project_history(CTX, [])

    assert asyncio.get_running_loop().time() - began == pytest.approx(5)
    assert stack.told == [("a", "project_history")]
