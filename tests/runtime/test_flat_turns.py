"""A late turn in a long conversation does no more work than an early one: measured in operations, not in time."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.items import assistant_message, input_message
from noetic_nb.runs import Recorder
from noetic_nb.runs._requests.model_calls import Calls
from noetic_nb.testing import SeededIds, drive_loop

PACKAGE = str(Path(nn.__file__).parent)
EARLY, LATE = 150, 1_500
# Number of turns, one call each, after which a thread's history is full.
FULL = 1_050


def operations(work: Any) -> int:
    """Return the number of Python instructions executed, including those of `copy` and `json`."""
    count = 0

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        if event == "opcode":
            count += 1
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return trace

    gc.collect()
    gc.disable()  # finalizers of other tests must not count
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def conversation(turns: int) -> list[Any]:
    """Return the items of an earlier conversation, which begins with a system message."""
    items: list[Any] = [input_message("Be brief.", "system", item_id="s")]
    for number in range(turns):
        items += [input_message("A question.", item_id=f"u{number}"), assistant_message("Yes.", item_id=f"a{number}")]
    return items


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_window_costs_what_is_in_it(is_recorded: bool) -> None:
    def turn_after(turns: int) -> int:
        config = nn.AgentConfig(name="desk", step=nn.react(model="m"), memory=[nn.history_window(10)])
        harness = nn.AgentHarness(config, model=nn.ScriptedModel(lambda request: "Yes."), ids=SeededIds())
        harness.seed("default", conversation(turns))
        if is_recorded:
            harness.subscribe(Recorder())
        drive_loop(harness.execute("First."))  # one-time set-up
        return operations(lambda: drive_loop(harness.execute("And now?")))

    assert turn_after(LATE) < 1.05 * turn_after(EARLY)


def test_long_stretches_that_a_layer_left_out_are_one_entry_and_count_as_many(tmp_path: Path) -> None:
    config = nn.AgentConfig(name="desk", step=nn.react(model="m"), memory=[nn.history_window(10)])
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(lambda request: "Yes."))
    harness.seed("default", conversation(400))
    run = nn.record(harness)
    drive_loop(harness.execute("And now?"))

    (view,) = [event for event in run.events if event.kind == "view_assembled"]
    share = Calls().take(view)
    assert share is not None
    (left_out,) = [part for part in share.left_out if part.reason == "hidden"]
    ((start, stop, tokens),) = view.hidden
    assert (start, stop) == (1, 792)  # the system message and the newest ten items are sent
    assert [fate for fate in view.fates if fate.reason == "hidden"] == []
    assert (left_out.first, left_out.last, left_out.count, left_out.tokens) == (1, 791, 791, tokens)
    run.save(tmp_path / "run.json")
    assert [event for event in nn.load_run(tmp_path / "run.json").events if event.kind == "view_assembled"] == [view]
    assert tokens == harness.log().items[1:792].tokens


@nn.tool
def look(what: str) -> str:
    """Look something up."""
    return f"{what} is there"


def calls(turns: int) -> dict[str, Any]:
    """Return what a layer with rules keeps of a thread with so many earlier calls."""
    old = [{"name": "look", "status": "ok", "callId": f"c{n}", "executionId": "e", "args": {"what": "it"}, "output": "x"}
           for n in range(turns)]  # fmt: skip
    return {"ledger": [], "pendingAsync": [], "calls": old}


def steered(turns: int, is_read: bool) -> nn.AgentHarness:
    """Return an agent with rules about its whole thread, which has had some turns with a call each."""
    rules = nn.RuleBook()
    if is_read:
        rules.at_most(10 * LATE, "look")
    else:
        rules.rule("harmless", on="before_tool_call")(lambda call: nn.allow())

    def answer(request: Any) -> Any:
        return "Yes." if request.items[-1]["type"] == "function_call_output" else nn.CallTool("look", what="it")

    config = nn.AgentConfig(
        name="desk",
        step=nn.react(model="m", tools=[look]),
        memory=[nn.steering(rules, scope="thread"), nn.history_window(10)],
    )
    storage = nn.InMemoryStorage()
    drive_loop(storage.set("layers/steering/default/state", calls(turns)))
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(answer), ids=SeededIds(), storage=storage)
    harness.seed("default", conversation(turns))
    drive_loop(harness.execute("First."))  # one-time set-up
    return harness


@pytest.mark.parametrize("is_read", [True, False])
def test_steering_of_a_thread_costs_what_is_new(is_read: bool) -> None:
    """A turn does not read earlier calls if no rule needs them."""

    def turn_after(turns: int) -> int:
        harness = steered(turns, is_read)
        return operations(lambda: drive_loop(harness.execute("And now?")))

    # A rule about a thread's calls visits at most a thousand of them.
    early, late = turn_after(EARLY), turn_after(FULL)
    assert late < (early + 30 * 1_000 if is_read else 1.05 * early)


async def test_the_calls_of_a_long_thread_are_known_by_name_and_the_newest_in_full() -> None:
    seen: list[Any] = []
    storage = nn.InMemoryStorage()
    book = nn.RuleBook()

    @book.rule("watch", on="before_tool_call", history=True)
    def watch(call: Any) -> Any:
        seen[:] = call.history
        return nn.allow()

    old = [{"name": "pay out", "status": "ok", "callId": f"c{n}", "executionId": "e", "args": {"n": n}, "output": "x"}
           for n in range(1_100)]  # fmt: skip
    model = nn.ScriptedModel([nn.CallTool("look", what="it"), "Yes."] * 2)
    config = nn.AgentConfig(
        name="desk", step=nn.react(model="m", tools=[look]), memory=[nn.steering(book, scope="thread")]
    )
    await storage.set("layers/steering/default/state", {"ledger": [], "pendingAsync": [], "calls": old})
    harness = nn.AgentHarness(config, model=model, storage=storage)
    await harness.execute("And now?")
    assert len(seen) == 1_100
    await harness.execute("And now?")

    assert len(seen) == 1_000
    assert {(call.name, call.status) for call in seen[:-1]} == {("pay out", "ok")}
    assert (seen[-1].name, dict(seen[-1].args), seen[-1].output) == ("look", {"what": "it"}, "it is there")
    assert (seen[-2].call_id, dict(seen[-2].args), seen[-2].output) == ("c1099", {"n": 1_099}, "x")
