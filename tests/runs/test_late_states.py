"""The state of a layer in a run: what it was when it was written, frozen when somebody reads it."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.events import LayerStateChanged, Where
from noetic_nb.items.frozen import FrozenDict
from noetic_nb.late_data import Later
from noetic_nb.memory import MemoryHooks, MemoryLayer
from noetic_nb.runs import record

WHERE = Where("t1", "e1", 1)


def written(state: Any) -> LayerStateChanged:
    return LayerStateChanged(WHERE, 0.0, "notes", "store", Later(state))


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


def test_a_state_is_the_same_frozen_object_each_time_it_is_read() -> None:
    event = written({"notes": [{"n": 1}], "cap": {2}})

    state = event.state

    assert state is event.state
    assert isinstance(state, FrozenDict)
    assert isinstance(state["notes"], tuple)
    assert state["cap"]["$unserializable"] == "set"
    with pytest.raises(TypeError):
        state["notes"][0]["n"] = 2


def test_threads_that_read_a_state_at_once_get_one_object() -> None:
    start = Barrier(4)
    event = written({"notes": list(range(20_000))})

    def read(_: int) -> Any:
        start.wait()
        return event.state

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(read, range(4)))
    assert len({id(state) for state in found}) == 1


@pytest.mark.parametrize(
    "again",
    [copy.copy, copy.deepcopy, lambda event: pickle.loads(pickle.dumps(event)), lambda event: replace(event, t_ms=0.0)],
    ids=["copy", "deepcopy", "pickle", "replace"],
)
def test_an_event_with_an_unread_state_is_equal_to_one_with_a_frozen_one(again: Any) -> None:
    frozen = LayerStateChanged(WHERE, 0.0, "notes", "store", FrozenDict({"notes": (1, 2)}))

    assert again(written({"notes": [1, 2]})) == frozen
    assert repr(written({"notes": [1, 2]})) == repr(frozen)


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
