"""Postponed step ends are part of the next write, and are written before any other work begins."""

from __future__ import annotations

from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb import step, until
from noetic_nb.memory import MemoryHooks, MemoryLayer
from tests.runtime.crash_points import GroupedDisk, harness, ledger


def closing() -> MemoryLayer:
    """Return a layer that acts at the end of the turn."""
    return MemoryLayer(id="closing", slot=1, scope="thread", hooks=MemoryHooks(on_complete=lambda params: None))


def answer(request: Any) -> str:
    return "ok"


@pytest.mark.parametrize(
    ("agent", "more", "writes"),
    [
        (lambda: nn.react(model="m"), {}, 2),
        (lambda: step.llm("ask", model="m"), {}, 2),
        (lambda: nn.react(model="m"), {"memory": [closing()]}, 3),
        (lambda: nn.react(model="m"), {"after_step": lambda *given: None}, 4),
        (lambda: nn.loop("l", step.llm("ask", model="m"), until=until.custom(lambda seen: True)), {}, 3),
        (lambda: nn.loop("l", step.llm("ask", model="m"), until=until.max_steps(3)), {}, 4),
    ],
    ids=["react", "llm", "a layer that closes", "after_step", "a predicate of the user's", "three rounds"],
)
async def test_a_turn_is_written_where_something_comes_between(agent: Any, more: Any, writes: int) -> None:
    store = GroupedDisk()

    reply = await harness(agent(), store, answer, **more).execute("hi")

    assert (reply.saved, len(store.copies)) == (True, writes)


async def test_what_has_ended_is_written_before_anything_else_begins() -> None:
    store, seen = GroupedDisk(), dict[str, set[str]]()

    def note(name: str) -> Any:
        async def noted(value: Any, ctx: Any) -> str:
            seen[name] = await ledger(store, ctx.id)
            return name

        return step.run(name, noted)

    async def go_on(output: Any, verdict: Any, ctx: Any) -> str:
        seen["prepare_next"] = await ledger(store, ctx.id)
        return "again"

    inner = nn.loop("inner", step.llm("ask", model="m"), until=until.max_steps(1))
    outer = nn.loop("outer", [inner, note("one"), note("two")], until=until.max_steps(2), prepare_next=go_on)
    await harness(outer, store, answer).execute("hi")

    assert seen["prepare_next"] == {"/outer#1/inner#1", "/outer#1/one#1", "/outer#1/two#1"}
    assert seen["one"] == seen["prepare_next"] | {"/outer#1/inner#2"}
    assert seen["two"] == seen["one"] | {"/outer#1/one#2"}


async def test_what_was_put_off_is_written_before_an_error_is_dealt_with() -> None:
    store, seen = GroupedDisk(), list[set[str]]()

    async def deal(error: Any, ctx: Any) -> str:
        seen.append(await ledger(store, ctx.id))
        return "abort"

    inner = nn.loop("inner", step.llm("ask", model="m"), until=until.output_contains("never"), max_iterations=2)
    outer = nn.loop("outer", [inner], until=until.max_steps(1), on_error=deal)
    with pytest.raises(nn.NoeticError):
        await harness(outer, store, answer).execute("hi")

    assert seen == [{"/outer#1/inner#1/ask#1", "/outer#1/inner#1/ask#2"}]
