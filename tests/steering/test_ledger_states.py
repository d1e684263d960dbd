"""The ledger of an execution grows by one entry per decision."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.memory import ExecutionContext, LayerStack, MemoryHooks, MemoryLayer
from noetic_nb.models._client import ModelResponse, Usage
from noetic_nb.runs._recording.recorder import record
from noetic_nb.steering import RuleBook, SteeringRule, steering
from noetic_nb.steering._ledger import Ledger, State
from noetic_nb.testing import FakeClock, SeededIds, drive_loop

CTX = ExecutionContext(execution_id="e1", thread_id="t1", clock=FakeClock())
RESPONSE = ModelResponse((nn.items.assistant_message("Done."),), Usage(7, 2))


def says(answer: Any, *, points: tuple[str, ...] = ("before_tool_call",), name: str = "r") -> SteeringRule:
    return SteeringRule(id=name, applies_to=points, predicate=answer)


def stack(book: RuleBook, *others: MemoryLayer, **options: Any) -> LayerStack:
    return LayerStack([steering(book, **options), *others], clock=FakeClock())


async def call(made: LayerStack, amount: int = 1) -> str:
    args = nn.items.freeze({"amount": amount, "to": ["A", "B"]})
    decision = await made.before_tool_call(CTX, tool_name="pay", tool_args=args)
    return str(decision.action)


STEPS = st.lists(
    st.sampled_from(["call", "dear call", "response", "look", "read", "edit", "judge", "no judge"]), max_size=14
)


def play(steps: list[str], *, most: int) -> tuple[list[Any], list[Any], Any]:
    """Return the answers, every state as it was written, and the last state."""

    async def run() -> tuple[list[Any], list[Any], Any]:
        book = RuleBook([says(lambda c: nn.deny("Too dear.") if c.tool_args["amount"] > 9 else None)])
        made, answers, written = stack(book, max_ledger_entries=most), [], []

        class History:
            def may_skip(self, execution_id: str, layer_id: str, state: Any) -> bool:
                return False

            def note(self, execution_id: str, layer_id: str, state: Any, hook: str) -> None:
                written.append((hook, state))

        made.state.history = History()
        await made.init(CTX)
        for number, step in enumerate(steps):
            if step == "call":
                answers.append(await call(made))
            elif step == "dear call":
                answers.append(await call(made, 99))
            elif step == "response":
                answers.append(str((await made.after_model_call(CTX, response=RESPONSE)).action))
            elif step == "look":
                answers.append(json.loads(json.dumps(made.state.get("e1", "steering"))))
            elif step == "read":
                answers.append(json.loads(json.dumps(made.state.states("e1"))))
            elif step == "edit":
                book.put(says(lambda c: None, name=f"r{number}"))
            elif step == "judge" and "words" not in book:
                book.put(says(lambda c: nn.guide("Shorter."), points=("after_model_call",), name="words"))
            elif step == "no judge" and "words" in book:
                book.remove("words")
        await made.complete(CTX, log=(), outcome="success")
        last = made.state.get("e1", "steering")
        return answers, written, json.loads(json.dumps(last))

    return drive_loop(run())


@given(STEPS, st.sampled_from([100, 3, 1, 0]))
@example(["judge", "response", "response", "no judge", "response", "response"], 100)
@example(["call", "response", "look", "call", "edit", "call", "dear call", "call"], 100)
@example(["call", "call", "call", "call", "read"], 3)
def test_states_are_as_they_were_written_whatever_has_been_added_since(steps: list[str], most: int) -> None:
    _, written, _ = play(steps, most=most)

    assert all(isinstance(state, State) and isinstance(state["ledger"], Ledger) for _, state in written)
    assert [json.loads(state.json_text()) for _, state in written] == [
        nn.items.thaw(state.frozen()) for _, state in play(steps, most=most)[1]
    ]


def test_a_rule_reads_the_ledger_and_what_it_writes_into_it_changes_nothing() -> None:
    seen: list[int] = []

    def forgetful(c: Any) -> None:
        seen.append(len(c.state["ledger"]))
        c.state["ledger"].clear()

    async def run() -> int:
        made = stack(RuleBook([says(forgetful)]))
        await made.init(CTX)
        for _ in range(3):
            await call(made)
        return len(made.state.get("e1", "steering")["ledger"])

    assert (drive_loop(run()), seen) == (3, [0, 1, 2])


def test_arguments_that_somebody_could_change_are_copied_at_once() -> None:
    async def run() -> Any:
        made, args = stack(RuleBook([says(lambda c: None)])), {"to": ["A"]}
        await made.init(CTX)
        await made.before_tool_call(CTX, tool_name="pay", tool_args=args)
        args["to"].append("B")
        return made.state.get("e1", "steering")["ledger"][0]["toolArgs"]

    assert drive_loop(run()) == {"to": ["A"]}


def test_a_layer_that_was_not_initialised_lets_no_response_pass() -> None:
    made = stack(RuleBook([says(lambda c: None)]))

    assert str(drive_loop(made.after_model_call(CTX, response=RESPONSE)).action) == "deny"


def test_a_layer_beside_it_that_judges_responses_is_asked() -> None:
    judge = MemoryLayer(
        id="judge", slot=300, scope="thread", hooks=MemoryHooks(after_model_call=lambda p: {"decision": nn.deny("No.")})
    )

    async def run() -> str:
        made = stack(RuleBook([says(lambda c: None)]), judge)
        await made.init(CTX)
        return str((await made.after_model_call(CTX, response=RESPONSE)).action)

    assert drive_loop(run()) == "deny"


async def test_a_rule_about_responses_that_comes_while_the_turn_runs_judges_the_next_one() -> None:
    book = RuleBook([says(lambda c: None, name="calls")])

    @nn.tool
    def look() -> str:
        """Look, while somebody edits the rules."""
        book.put(says(lambda c: nn.deny("Say nothing."), points=("after_model_call",), name="words"))
        return "seen"

    config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[look]), memory=[book.as_layer()])
    harness = nn.AgentHarness(config, model=nn.ScriptedModel([nn.CallTool("look"), "It is there."]))

    with pytest.raises(nn.NoeticError, match="Say nothing"):
        await harness.execute("Where is it?", thread_id="t1")


async def test_a_run_says_how_each_call_and_response_was_judged() -> None:
    config = nn.AgentConfig(
        name="desk", step=nn.react(model="m", tools=[look]), memory=[RuleBook([says(lambda c: None)]).as_layer()]
    )
    model = nn.ScriptedModel([nn.CallTool("look"), "It is there."])
    harness = nn.AgentHarness(config, model=model, clock=FakeClock(), ids=SeededIds())
    run = record(harness)
    await harness.execute("Where is it?", thread_id="t1")

    assert [event.action for event in run.events if event.kind == "steering_decided"] == ["allow"] * 3


@nn.tool
def look() -> str:
    """Look."""
    return "seen"
