"""Tools, layers and framing have the same numbers and order in the table, the transcript and the allocation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.events import ViewAssembled
from noetic_nb.memory import MemoryHooks, MemoryLayer, ProjectionPolicy
from noetic_nb.runs import Run
from noetic_nb.runs._requests.model_calls import Calls
from noetic_nb.widgets import TokenAllocation, Transcript
from tests.widgets.rows import part


@nn.tool
def lookup(order_id: str) -> str:
    """Find one order by its number, whatever state it is in, and say when it was sent."""
    return order_id


@nn.tool
def refund(order_id: str, amount: float) -> str:
    """Pay back."""
    return order_id


def notes(name: str, slot: float, placement: Any = "prefix") -> MemoryLayer:
    hooks = MemoryHooks(recall=lambda _: f"The customer prefers e-mail, says {name}.")
    return MemoryLayer(id=name, slot=slot, scope="thread", budget=60, hooks=hooks, placement=placement)


def desk(tokenizer: str = "estimate", order: Any = "slot") -> Run:
    config = nn.AgentConfig(
        name="desk",
        step=nn.react(model="m", instructions="Be brief.", tools=[lookup, refund]),
        memory=[notes("late", 10, "suffix"), notes("second", 30), notes("first", 20)],
        projection=ProjectionPolicy(token_budget=8_000, response_reserve=500, order=order),
        tokenizer=tokenizer,
    )
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["It was sent."] * 2))
    run = nn.record(harness)

    async def talk() -> None:
        for question in ("Where is A17?", "And B18?"):
            await harness.execute(question, thread_id="t")

    asyncio.run(talk())
    return run


COUNTERS = ["estimate", "calibrated-offline", "o200k_base", "calibrated"]


@pytest.mark.parametrize("tokenizer", COUNTERS)
def test_tools_are_split_by_tool_and_add_up(tokenizer: str) -> None:
    run = desk(tokenizer)
    views = run.select(ViewAssembled)
    table = run.to_frame("tokens")

    tools = table[table.part.str.startswith("tool:")]
    assert tools.part.tolist() == ["tool:lookup", "tool:refund"] * 2
    assert tools.groupby("seq").tokens.sum().tolist() == [view.tools for view in views]
    assert tools.tokens.min() > 0
    assert tools[["planned", "reported", "problem"]].isna().all(axis=None)
    requests = table[table.part == "request"]
    assert requests.tokens.tolist() == requests.planned.tolist()
    with Transcript(run, call=1) as view:
        rows = view.to_frame()
    shown = rows[rows.origin == "tools"]
    assert dict(zip("tool:" + shown.tool, shown.tokens, strict=True)) == dict(
        zip(tools.part[-2:], tools.tokens[-2:], strict=True)
    )
    with TokenAllocation(run) as view:
        assert f"lookup {tools.tokens.iloc[-2]:.0f}, refund {tools.tokens.iloc[-1]:.0f}" in view.to_text()
        items = view.reading.answer({"what": "items", "at": 1, "parts": ["tools"]})
    assert [part(row, "nn-number") for row in items["rows"]] == [f"{tokens:.0f} tokens" for tokens in tools.tokens[-2:]]


@pytest.mark.parametrize("tokenizer", COUNTERS)
@pytest.mark.parametrize("order", ["slot", "cache"])
def test_a_layer_has_one_number_and_parts_are_in_the_order_sent(tokenizer: str, order: Any) -> None:
    run = desk(tokenizer, order)
    calls = Calls.of(run.events)
    for at, share in enumerate(calls.all):
        with Transcript(run, call=at) as view:
            rows = view.to_frame()
        assert rows.tokens.sum() == share.sent
        assert rows[rows.origin == "framing"].tokens.tolist() == ([share.framing] if share.framing else [])
        for layer in share.layers:
            assert rows[rows.origin == f"layer:{layer.name}"].tokens.sum() == layer.used > 0
        labels = [part.label for part in share.sent_parts(calls.order) if part.kind in ("layer", "history")]
        late = ["first", "second", "History", "late"]
        assert labels == (late if order == "cache" else ["late", "first", "second", "History"])
        sent = [origin.removeprefix("layer:") for origin in rows.origin if origin.startswith("layer:")]
        assert sent == [label for label in labels if label != "History"]
        with TokenAllocation(run) as allocation:
            lines = [line.split()[0] for line in allocation.to_text().splitlines() if line.startswith("  ")]
        assert [line for line in lines if line in late] == labels
