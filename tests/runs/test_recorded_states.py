"""Recorded layer states are immutable and equal to the state at the time of the write."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import pytest

import noetic_nb as nn
from noetic_nb.events import LayerStateChanged, Where
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.memory import MemoryHooks, MemoryLayer
from noetic_nb.runs import Run, record

WHERE = Where("t1", "e1", 1)


async def recorded(hooks: MemoryHooks, turns: int = 1) -> nn.Run:
    layer = MemoryLayer(id="notes", slot=200, scope="thread", budget={"min": 0, "max": 200}, hooks=hooks)
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), memory=[layer])
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Yes."] * turns))
    run = record(harness)
    for _ in range(turns):
        await harness.execute("Hm?", thread_id="t1")
    return run


async def test_a_state_that_its_layer_changes_in_place_is_in_the_run_as_it_was() -> None:
    state: dict[str, Any] = {"notes": []}

    async def store(p: Any) -> dict[str, Any]:
        state["notes"].append({"n": len(state["notes"])})
        return {"state": state}

    run = await recorded(MemoryHooks(store=store), turns=3)
    state["notes"][0]["n"] = "changed"

    assert [event.state for event in run.select(LayerStateChanged) if event.hook == "store"] == [
        {"notes": tuple({"n": place} for place in range(count))} for count in (1, 2, 3)
    ]


def test_a_state_that_is_no_json_is_recorded_as_a_description_and_cannot_change() -> None:
    run = Run(events=[LayerStateChanged(WHERE, 0.0, "notes", "store", {"notes": [{"n": 1}], "cap": {2}})])

    (state,) = [event.state for event in run.select(LayerStateChanged)]

    assert isinstance(state, FrozenDict)
    assert isinstance(state["notes"], tuple)
    assert state["cap"]["$unserializable"] == "set"
    with pytest.raises(TypeError):
        state["notes"][0]["n"] = 2


class Counted(NamedTuple):
    word: str
    times: int


async def test_a_record_in_a_state_is_recorded_with_its_names() -> None:
    run = await recorded(MemoryHooks(store=lambda p: {"state": {"seen": [Counted("order", 2)]}}))

    assert run.select(LayerStateChanged)[0].state == {"seen": ({"word": "order", "times": 2},)}


async def test_a_ledger_is_recorded_as_it_was_after_each_decision_and_its_entries_are_shared() -> None:
    @nn.tool
    def look(order: str) -> str:
        """Look up an order."""
        return "packed"

    calls = [nn.CallTool("look", order=f"A{number}") for number in range(5)]
    config = nn.AgentConfig(
        name="desk", step=nn.react(model="scripted", tools=[look]), memory=[nn.steering(nn.RuleBook())]
    )
    harness = nn.AgentHarness(config, model=nn.ScriptedModel([*calls, "Packed."]))
    run = record(harness)
    await harness.execute("Where are they?")

    ledgers = [event.state["ledger"] for event in run.select(LayerStateChanged)]
    sizes = [len(ledger) for ledger in ledgers]
    assert sizes == sorted(sizes)
    assert sizes[-1] >= 10
    for before, after in pairwise(ledgers):
        assert all(entry is same for entry, same in zip(before, after, strict=False))
        assert after[: len(before)] == before
    assert [entry["toolArgs"] for entry in ledgers[-1] if entry["kind"] == "tool_call"] == [
        {"order": f"A{number}"} for number in range(5)
    ]


async def test_a_state_that_is_changed_in_place_after_it_was_loaded_is_in_the_run_as_it_was_loaded() -> None:
    def recall(p: Any) -> None:
        if p.state is not None:
            p.state["n"].append("recalled")

    run = await recorded(MemoryHooks(recall=recall, store=lambda p: {"state": {"n": ["stored"]}}), turns=2)

    states = [(event.hook, event.state) for event in run.select(LayerStateChanged)]
    assert states == [("store", {"n": ("stored",)}), ("init", {"n": ("stored",)}), ("store", {"n": ("stored",)})]


async def test_what_subscribes_cannot_change_what_is_recorded() -> None:
    seen: list[Any] = []

    class Sink:
        def emit(self, event: Any) -> None:
            if isinstance(event, LayerStateChanged):
                seen.append(event.state)

    async def store(p: Any) -> dict[str, Any]:
        return {"state": {"notes": ["a"]}}

    layer = MemoryLayer(
        id="notes", slot=200, scope="thread", budget={"min": 0, "max": 200}, hooks=MemoryHooks(store=store)
    )
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), memory=[layer])
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Yes."]))
    harness.subscribe(Sink())
    run = record(harness)
    await harness.execute("Hm?")

    with pytest.raises(TypeError):
        seen[0]["notes"] = ()
    assert [event.state for event in run.select(LayerStateChanged)] == seen
