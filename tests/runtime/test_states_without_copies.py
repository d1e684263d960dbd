"""An uncopyable state is its layer's fault: the error names the layer, the old state stays, and the thread continues."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticError
from noetic_nb.events import WarningRaised
from noetic_nb.items._build import item_text
from noetic_nb.memory import ExecutionContext, LayerStack, LayerStateStore, MemoryHooks, MemoryLayer, layer_fn


class Alive:
    """An object that refuses to be copied."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise ValueError("a connection is not copied")


class OwnCopy:
    """Defines its own snapshot, which fails."""

    def snapshot(self) -> Any:
        raise OSError("the file is closed")


ALIVE: dict[str, Callable[[], Any]] = {
    "a lock": lambda: {"n": 2, "parts": [{"lock": threading.Lock()}]},
    "a refusal": lambda: {"n": 2, "parts": [{"lock": Alive()}]},
    "a snapshot": OwnCopy,
}
GOOD = {"n": 1}
TOOL_CALL = [nn.CallTool("look"), "Done."]


@nn.tool
def look() -> str:
    """Look."""
    return "seen"


def at_turn(turn: int, made: Callable[[], Any]) -> Callable[[Any], Any]:
    """Return a hook that stores a valid state, and another one in one turn."""
    return lambda p: {"state": made() if p.ctx.turn == turn else GOOD}


def agent(*, scope: Any = "thread", replies: Any = None, storage: Any = None, **hooks: Any) -> nn.AgentHarness:
    options = {name: hooks.pop(name) for name in ("on_init_error", "provides", "enforces") if name in hooks}
    layer = MemoryLayer(id="notes", slot=100, scope=scope, hooks=MemoryHooks(**hooks), **options)
    step = nn.react(model="m", tools=[look])
    config = nn.AgentConfig(name="desk", step=step, memory=[layer])
    said = ["One.", "Two.", "Three."] if replies is None else replies
    return nn.AgentHarness(config, model=nn.ScriptedModel(said), storage=storage, diagnostic=lambda *_: None)


@pytest.mark.parametrize("made", ALIVE.values(), ids=ALIVE)
@pytest.mark.parametrize("recorded", [False, True], ids=["alone", "recorded"])
@pytest.mark.parametrize("scope", ["thread", "execution", "global"])
async def test_a_store_whose_state_cannot_be_copied_is_a_warning_and_changes_nothing(
    made: Callable[[], Any], recorded: bool, scope: str
) -> None:
    store = at_turn(2, made)
    harness = agent(scope=scope, store=store)
    run = nn.record(harness) if recorded else None

    replies = [await harness.execute("hi", thread_id="t1") for _ in range(3)]

    assert [[(w.code, w.layer_id) for w in reply.warnings] for reply in replies] == [
        [],
        [("layer_failed", "notes")],
        [],
    ]
    (warning,) = replies[1].warnings
    assert re.search(r"'notes'.*`store`.*cannot be copied", warning.text)
    assert [reply.text for reply in replies] == ["One.", "Two.", "Three."]
    if run is not None:
        assert [event.code for event in run.events if isinstance(event, WarningRaised)] == ["layer_failed"]
    if scope != "execution":
        assert await harness.memory("t1").state("notes") == GOOD


async def test_it_says_where_what_cannot_be_copied_is() -> None:
    harness = agent(init=lambda p: {"state": {"n": 1, "parts": [1, {"lock": Alive()}]}})

    with pytest.raises(NoeticError, match=r"Alive at state\.parts\[1\]\.lock.*snapshot") as caught:
        await harness.execute("hi", thread_id="t1")

    error = caught.value
    assert (error.kind, error.layer_id, error.hook) == ("layer_failed", "notes", "init")
    assert isinstance(error.__cause__, ValueError)


@pytest.mark.parametrize("made", ALIVE.values(), ids=ALIVE)
async def test_a_first_state_that_cannot_be_copied_ends_the_turn_with_an_error_of_ours_and_not_the_thread(
    made: Callable[[], Any],
) -> None:
    harness = agent(init=at_turn(1, made))

    with pytest.raises(NoeticError) as caught:
        await harness.execute("hi", thread_id="t1")
    reply = await harness.execute("and now?", thread_id="t1")

    assert (caught.value.kind, caught.value.layer_id, caught.value.hook) == ("layer_failed", "notes", "init")
    assert (reply.text, reply.warnings) == ("One.", ())
    assert [item_text(item) for item in harness.log("t1")] == ["hi", "and now?", "One."]


async def test_such_a_first_state_disables_a_layer_that_is_to_be_disabled_then() -> None:
    stored: list[int] = []
    harness = agent(
        init=at_turn(1, ALIVE["a lock"]), on_init_error="disable", store=lambda p: stored.append(p.ctx.turn)
    )

    first, second = [await harness.execute("hi", thread_id="t1") for _ in range(2)]

    assert [(w.code, w.layer_id) for w in first.warnings] == [("layer_failed", "notes")]
    assert (second.warnings, stored) == ((), [2])


HOOKS: dict[str, tuple[str, str]] = {
    "recall": ("recall_failed", "recall"),
    "on_item_append": ("layer_failed", "on_item_append"),
    "on_tool_outcome": ("layer_failed", "on_tool_outcome"),
    "on_model_outcome": ("layer_failed", "on_model_outcome"),
    "on_complete": ("layer_failed", "on_complete"),
}


@pytest.mark.parametrize(("hook", "code"), [(hook, code) for hook, (code, _) in HOOKS.items()], ids=HOOKS)
async def test_every_other_hook_is_held_to_it_too(hook: str, code: str) -> None:
    harness = agent(
        replies=[*TOOL_CALL, *TOOL_CALL], init=lambda p: {"state": GOOD}, **{hook: at_turn(1, ALIVE["a lock"])}
    )

    first, second = [await harness.execute("hi", thread_id="t1") for _ in range(2)]

    assert {(w.code, w.layer_id) for w in first.warnings} == {(code, "notes")}
    assert all("cannot be copied" in w.text for w in first.warnings)
    assert (first.text, second.text, second.warnings) == ("Done.", "Done.", ())


async def test_nothing_of_a_result_counts_whose_state_cannot_be_kept() -> None:
    def shout(p: Any) -> Any:
        return {"items": [{**item, "content": "LOUD"} for item in p.items], "state": {"lock": threading.Lock()}}

    def recall(p: Any) -> Any:
        return {"items": [{"type": "message", "role": "developer", "content": "sure?"}], "state": Alive()}

    sent: list[list[str]] = []

    def answer(request: nn.ModelRequest) -> str:
        sent.append([item_text(item) for item in request.items])
        return "One."

    harness = agent(on_item_append=shout, recall=recall, replies=answer)

    await harness.execute("hi", thread_id="t1")

    assert sent == [["hi"]]


async def test_a_guard_whose_state_cannot_be_kept_denies() -> None:
    harness = agent(
        replies=TOOL_CALL,
        enforces=True,
        init=lambda p: {"state": GOOD},
        before_tool_call=lambda p: {"decision": {"action": "allow"}, "state": {"lock": threading.Lock()}},
    )

    reply = await harness.execute("hi", thread_id="t1")

    assert [(w.code, w.layer_id) for w in reply.warnings] == [("rule_failed", "notes")]
    (output,) = [item for item in reply.items if item["type"] == "function_call_output"]
    assert "could not be evaluated" in output["output"]


async def test_what_a_child_passes_on_is_held_to_it_too() -> None:
    def on_return(p: Any) -> Any:
        return {"parent_state": {"lock": threading.Lock()}, "result": "changed"}

    hooks = MemoryHooks(init=lambda p: {"state": GOOD}, on_spawn=lambda p: {"child_state": GOOD}, on_return=on_return)
    told: list[tuple[str, str, str]] = []
    store = LayerStateStore(lambda layer_id, hook, error: told.append((layer_id, hook, getattr(error, "kind", ""))))
    store.history = Mock(**{"may_skip.return_value": False})  # somebody who wants a copy
    stack = LayerStack([MemoryLayer(id="notes", slot=100, scope="thread", hooks=hooks)], state=store)
    parent, child = [ExecutionContext(execution_id=name, thread_id="t1") for name in ("e1", "e2")]
    await stack.init(parent)
    await stack.spawn(parent, child)

    result = await stack.return_(parent, child, child_log=(), result="as it was")

    assert (result, store.get("e1", "notes"), told) == ("as it was", GOOD, [("notes", "on_return", "layer_failed")])


def keeping(made: Callable[[], Any]) -> dict[str, Any]:
    """Return a layer's provided function, which stores a state."""
    execute = lambda args, state, ctx: {"result": "kept", "state": made()}  # noqa: E731
    return {"keep": layer_fn(description="Keep.", input=dict[str, str], output=str, execute=execute)}


async def test_a_function_that_leaves_such_a_state_failed_and_the_model_reads_why() -> None:
    harness = agent(
        replies=[nn.CallTool("notes/keep"), "Done."],
        init=lambda p: {"state": GOOD},
        provides=keeping(ALIVE["a lock"]),
    )

    reply = await harness.execute("hi", thread_id="t1")

    (output,) = [item for item in reply.items if item["type"] == "function_call_output"]
    assert re.search(r"'notes' cannot be copied, so its 'keep'", output["output"])
    assert reply.text == "Done."


async def test_code_that_calls_such_a_function_gets_the_error() -> None:
    harness = agent(init=lambda p: {"state": GOOD}, provides=keeping(ALIVE["a refusal"]))

    async with harness.execution(thread_id="t1") as ctx:
        with pytest.raises(NoeticError) as caught:
            await ctx.memory["notes"].keep()
        state = await harness.memory("t1").state("notes")

    assert (caught.value.kind, caught.value.layer_id, caught.value.hook) == ("layer_failed", "notes", "keep")
    assert state == GOOD


async def test_a_state_that_its_layer_made_so_later_is_said_to_be_so() -> None:
    """A layer that modifies its own state in place, bypassing every check."""

    def recall(p: Any) -> None:
        p.state["lock"] = threading.Lock()

    harness = agent(
        replies=[nn.CallTool("notes/keep"), "Done."],
        init=lambda p: {"state": {"n": 1}},
        recall=recall,
        store=lambda p: None,
        provides=keeping(lambda: GOOD),
    )

    reply = await harness.execute("hi", thread_id="t1")

    assert {(w.code, w.layer_id) for w in reply.warnings} == {("layer_failed", "notes")}
    assert all("lock at state.lock" in w.text and "'store'" in w.text for w in reply.warnings)
    (output,) = [item for item in reply.items if item["type"] == "function_call_output"]
    assert "cannot be copied" in output["output"]


async def test_an_edit_by_hand_is_refused_before_it_changes_anything() -> None:
    harness = agent(store=lambda p: {"state": GOOD})
    await harness.execute("hi", thread_id="t1")

    with pytest.raises(NoeticError) as caught:
        await harness.memory("t1").edit("notes", {"lock": threading.Lock()})

    assert (caught.value.kind, caught.value.layer_id) == ("storage_failed", "notes")
    assert await harness.memory("t1").state("notes") == GOOD


class Vector:
    """Compares without a single truth value, as arrays do."""

    def __eq__(self, other: object) -> Any:
        raise ValueError("The truth value of an array is ambiguous.")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("recall_mode", ["atomic", "eventual"])
async def test_a_state_that_cannot_be_compared_is_taken_for_another_one(recall_mode: Any) -> None:
    layer = MemoryLayer(
        id="notes",
        slot=100,
        scope="execution",
        recall_mode=recall_mode,
        hooks=MemoryHooks(init=lambda p: {"state": {"v": Vector()}}, recall=lambda p: "text"),
    )
    globally = MemoryLayer(id="wide", slot=101, scope="global", hooks=layer.hooks, recall_mode=recall_mode)
    config = nn.AgentConfig(name="desk", step=nn.react(model="m"), memory=[layer, globally])
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["One.", "Two."]), diagnostic=lambda *_: None)

    replies = [await harness.execute("hi", thread_id="t1") for _ in range(2)]

    assert [reply.text for reply in replies] == ["One.", "Two."]
