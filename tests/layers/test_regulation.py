"""The regulation layer: what it tells the regulator, what it stops, and what it remembers of whom."""

from __future__ import annotations

from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import QualityGiven, RegulatorDecided, RegulatorSaw
from noetic_nb.testing import FakeClock, SeededIds
from tests.runtime.factories import MODELS, requests_of


@nn.tool
def search(q: str) -> str:
    """Search."""
    return f"nothing about {q}"


def desk(replies: Any, *, grader: Any = None, regulator: Any = None, **options: Any) -> nn.AgentHarness:
    template = regulator or nn.Regulator.for_user("ann")
    config = nn.AgentConfig(
        name="desk",
        step=nn.react(model="m", tools=[search], max_steps=12),
        memory=[nn.regulation(template, grader=grader)],
    )
    model = nn.ScriptedModel(replies)
    harness = nn.AgentHarness(config, model=model, clock=FakeClock(step_ms=1), ids=SeededIds(), **options)
    MODELS[harness] = model
    return harness


def kinds(run: nn.Run) -> list[str]:
    return [event.event["kind"] for event in run.select(RegulatorSaw)]


async def test_a_turn_is_told_in_the_order_it_happened() -> None:
    harness = desk([nn.CallTool("search", q="boats"), "No boats."])
    run = nn.record(harness)

    await harness.execute("Find boats")

    assert kinds(run) == ["turn_start", "cost", "tool_call", "tool_result", "cost", "turn_complete"]


async def test_a_tool_loop_stops_the_turn_before_the_fifth_call_is_made() -> None:
    made: list[str] = []

    @nn.tool
    def look(q: str) -> str:
        """Look."""
        made.append(q)
        return "nothing"

    config = nn.AgentConfig(
        name="loop", step=nn.react(model="m", tools=[look]), memory=[nn.regulation(nn.Regulator.for_user("ann"))]
    )
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(lambda request: nn.CallTool("look", q="x")))

    reply = await harness.execute("Look for x")

    assert len(made) == 4
    assert reply.stopped is not None
    assert reply.stopped["reason"] == {"kind": "repeated_tool_call_loop", "tool_name": "look", "consecutive_count": 5}
    assert reply.text == reply.stopped["suggestion"] != ""


async def test_a_circuit_break_stays_until_the_task_is_reset() -> None:
    marks = iter([0.5, 0.3, 0.1, 0.9])
    harness = desk(["one", "two", "three", "four"], grader=lambda reply: next(marks))
    replies = [await harness.execute("Help me") for _ in range(3)]

    stopped = await harness.execute("And now?")
    asked_before_reset = len(requests_of(harness))
    await harness.reset_task()
    after = await harness.execute("A new question")

    assert [reply.stopped is not None for reply in replies] == [False, False, True]
    assert stopped.stopped == replies[2].stopped
    assert asked_before_reset == 3, "the model was not asked again"
    assert (after.stopped, after.text) == (None, "four")


async def test_a_better_mark_does_not_take_a_break_back() -> None:
    harness = desk(["one", "two", "three", "four"])
    for quality in (0.5, 0.3, 0.1):
        await harness.execute("Help me")
        await harness.feedback(quality=quality)
    await harness.feedback(quality=1.0)

    reply = await harness.execute("Better now?")

    assert reply.stopped is not None


async def test_feedback_between_turns_stops_the_next_turn_not_the_last() -> None:
    harness = desk(["one", "two", "three"])
    run = nn.record(harness)
    for quality in (0.5, 0.3, 0.1):
        reply = await harness.execute("Help me")
        await harness.feedback(quality=quality)

    last = run.select(RegulatorDecided)[-1]

    assert reply.stopped is None
    assert (last.decision["kind"], last.stops) == ("circuit_break", False)


async def test_what_a_grader_says_is_an_event_of_the_run() -> None:
    harness = desk(["fine"], grader=lambda reply: 0.75 if reply.text == "fine" else None)
    run = nn.record(harness)

    await harness.execute("How are you?")

    assert [(event.quality, event.source) for event in run.select(QualityGiven)] == [(0.75, "grader")]


async def test_corrections_are_shared_by_a_person_and_counted_for_no_one_else() -> None:
    harness = desk(lambda request: "Done, with docstrings.", regulator=nn.Regulator.for_user)
    for _ in range(3):
        await harness.execute("Refactor auth async", thread_id="a", resource_id="ann")
        await harness.correct("a", "No docstrings please")
    await harness.execute("Make auth async", thread_id="b", resource_id="ann")
    of_ann = requests_of(harness)[-1]
    await harness.execute("Make auth async", thread_id="c", resource_id="ben")
    of_ben = requests_of(harness)[-1]

    def prompt(request: nn.ModelRequest) -> str:
        return "".join(part["text"] for item in request.items for part in item["content"])

    assert "No docstrings please" in prompt(of_ann)
    assert "No docstrings please" not in prompt(of_ben)


async def test_what_a_person_taught_survives_the_process() -> None:
    storage = nn.InMemoryStorage()
    first = desk(lambda request: "Done.", storage=storage)
    for _ in range(3):
        await first.execute("Refactor auth async", thread_id="a", resource_id="ann")
        await first.correct("a", "No docstrings please")

    second = desk(lambda request: "Done.", storage=storage)
    await second.execute("Make auth async", thread_id="z", resource_id="ann")

    items = requests_of(second)[-1].items
    assert any("No docstrings please" in part["text"] for item in items for part in item["content"])


async def test_threads_are_tasks_of_their_own_and_the_template_never_changes() -> None:
    template = nn.Regulator.for_user("ann").with_cost_cap(1_000)
    harness = desk(lambda request: "word " * 50, regulator=template)

    await harness.execute("Talk", thread_id="a")
    await harness.execute("Talk", thread_id="b")

    assert template.total_tokens_out() == 0


@pytest.mark.parametrize("wrong", [None, "regulator", 7])
def test_something_that_is_no_regulator_is_refused(wrong: Any) -> None:
    with pytest.raises(NoeticConfigError, match="INVALID_REGULATION"):
        nn.regulation(wrong)


def last_prompt(harness: nn.AgentHarness) -> str:
    request = requests_of(harness)[-1]
    return "".join(part["text"] for item in request.items for part in item["content"])


async def test_an_edit_of_what_is_known_of_a_person_reaches_every_thread() -> None:
    harness = desk(lambda request: "Done.")
    for _ in range(3):
        await harness.execute("Refactor auth async", thread_id="a", resource_id="ann")
        await harness.correct("a", "No docstrings please")
    await harness.execute("Make auth async", thread_id="b", resource_id="ann")
    taught = await harness.memory("a").state("regulation")

    await harness.memory("a").edit("regulation", None)
    for thread in "abc":
        await harness.execute("Make auth async", thread_id=thread, resource_id="ann")
        assert "No docstrings please" not in last_prompt(harness)

    await harness.memory("b").edit("regulation", taught)
    for thread in "abcd":
        await harness.execute("Make auth async", thread_id=thread, resource_id="ann")
        assert "No docstrings please" in last_prompt(harness)


async def test_an_edit_within_an_open_execution_is_what_is_kept() -> None:
    storage = nn.InMemoryStorage()
    harness = desk(lambda request: "Done.", storage=storage)
    for _ in range(3):
        await harness.execute("Refactor auth async", thread_id="a", resource_id="ann")
        await harness.correct("a", "No docstrings please")

    async with harness.execution(thread_id="a", resource_id="ann"):
        await harness.memory("a").edit("regulation", None)

    later = desk(lambda request: "Done.", storage=storage)
    for asked in (harness, later):
        await asked.execute("Make auth async", thread_id="a", resource_id="ann")
        assert "No docstrings please" not in last_prompt(asked)


@pytest.mark.parametrize("state", [3, "x", {}, {"user_id": 5}, {"learned": {}}])
@pytest.mark.parametrize("begun", [False, True])
async def test_an_edit_that_is_no_snapshot_is_refused_and_changes_nothing(state: Any, begun: bool) -> None:
    harness = desk(lambda request: "Done.")
    if begun:
        await harness.execute("Refactor auth async", thread_id="a", resource_id="ann")
    before = await harness.memory("a").state("regulation")

    with pytest.raises(nn.NoeticError, match="Nothing was changed") as caught:
        await harness.memory("a").edit("regulation", state)

    assert caught.value.kind == "storage_failed"
    assert await harness.memory("a").state("regulation") == before
    assert (await harness.execute("Go on", thread_id="a", resource_id="ann")).text == "Done."
