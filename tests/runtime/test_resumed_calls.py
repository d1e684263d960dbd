"""Rules of a resumed turn count every call of its tree once, in any execution and wherever the process ended."""

from __future__ import annotations

import json
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.steering import RuleBook
from noetic_nb.steps import fork, loop, spawn, step, until
from tests.runtime.crash_points import cut_everywhere, pay
from tests.runtime.factories import attempt, started
from tests.runtime.test_resumed_turns import Once, whole

pytestmark = pytest.mark.matrix  # `cut_everywhere` takes a sample of the writes


def paying(id: str) -> Any:
    return step.tool(id, pay, {"amount": 1}, takes_input=False)


def rules(count: int) -> list[nn.MemoryLayer]:
    book = RuleBook()
    book.at_most(count, "pay")
    return [nn.steering(book)]


def tree() -> Any:
    twice = loop("twice", [paying("one"), paying("two")], until=until.max_steps(1))
    return whole(
        paying("first"),
        spawn("child", twice),
        fork("both", mode="all", paths=[twice, spawn("inner", paying("three"), memory=[])], merge="last"),
        started(paying("four")),
        # Six, and the first one: no more.
        attempt(paying("last"), spawn("late", paying("later"))),
    )


async def test_a_limit_is_neither_forgotten_nor_reached_too_soon() -> None:
    resumed = await cut_everywhere(tree, lambda: None, memory=rules(7))

    assert resumed > 10


async def cut_after(first: Any, *, count: int = 1) -> Any:
    """Run a step, end the process, and try to pay in the next one; return the storage and the outcome."""
    once = Once()
    agent = whole(first, once.step(), attempt(paying("again"), spawn("s", paying("below"), memory=[])))
    await once.first(agent, memory=rules(count))
    return once, agent


@pytest.mark.parametrize(
    "first",
    [
        lambda: paying("p"),
        lambda: spawn("s", paying("p")),
        lambda: fork("f", mode="all", paths=[paying("p")], merge="last"),
        lambda: started(paying("p")),
        lambda: spawn("s", spawn("t", paying("p")), memory=[]),
    ],
    ids=["turn", "spawn", "fork", "start", "grandchild"],
)
async def test_a_call_of_the_process_before_counts(first: Any) -> None:
    once, agent = await cut_after(first())

    _, reply = await once.again(agent, memory=rules(1))

    assert reply.output == ["steering_denied", "steering_denied"]


async def test_a_snapshot_of_an_earlier_version_loads() -> None:
    once, agent = await cut_after(paying("p"), count=2)
    # From before calls had a place and an execution.
    for key, text in list(once.disk.texts.items()):
        data = json.loads(text)
        if isinstance(data, dict) and "calls" in data:
            once.disk.texts[key] = json.dumps({**data, "calls": [call[:5] for call in data["calls"]]})

    _, reply = await once.again(agent, memory=rules(2))

    assert reply.output == ["ok", "steering_denied"]


async def test_a_child_written_before_children_kept_their_guards_begins_with_them() -> None:
    once = Once()
    agent = whole(
        spawn("s", whole(step.run("note", lambda value, ctx: "noted"), once.step(), attempt(paying("p"))), memory=[])
    )
    await once.first(agent, memory=rules(0))
    for key, text in list(once.disk.texts.items()):
        data = json.loads(text)
        if ":child:" in key:
            assert data["layers"].pop("steering")
            once.disk.texts[key] = json.dumps(data)

    _, reply = await once.again(agent, memory=rules(0))

    assert reply.output == ["steering_denied"]
