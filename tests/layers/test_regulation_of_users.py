"""A user's regulator is that user's alone: in forks, children, replays, resumed turns, loaded state and streams."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RegulatorDecided, RegulatorSaw, ViewAssembled
from noetic_nb.lab import replay
from noetic_nb.steps import spawn
from noetic_nb.storage import ScopedStorage
from noetic_nb.testing import FakeClock, SeededIds
from tests.runtime.factories import MODELS, requests_of

ASKED, SAID = "Refactor auth async", "No docstrings please"


def desk(regulator: Any, *, step: Any = None, **options: Any) -> nn.AgentHarness:
    config = nn.AgentConfig(name="desk", step=step or nn.react(model="m"), memory=[nn.regulation(regulator)])
    model = nn.ScriptedModel(lambda request: "Done.")
    harness = nn.AgentHarness(config, model=model, clock=FakeClock(step_ms=1), ids=SeededIds(), **options)
    MODELS[harness] = model
    return harness


def taught(user: str = "alice") -> nn.Regulator:
    regulator = nn.Regulator.for_user(user)
    for _ in range(3):
        regulator.on_event(nn.regulator.events.TurnStart(ASKED))
        regulator.on_event(nn.regulator.events.TurnComplete("Done."))
        regulator.on_event(nn.regulator.events.UserCorrection(SAID, True))
    return regulator


def was_told(harness: nn.AgentHarness) -> bool:
    return any(SAID in part["text"] for item in requests_of(harness)[-1].items for part in item["content"])


async def teach(harness: nn.AgentHarness, thread: str, user: str) -> None:
    for _ in range(3):
        await harness.execute(ASKED, thread_id=thread, resource_id=user)
        await harness.correct(thread, SAID)


@pytest.mark.parametrize("thread", ["t1", "bob"])
async def test_a_user_s_regulator_is_refused_under_another_resource(thread: str) -> None:
    harness = desk(taught())

    with pytest.raises(NoeticConfigError) as caught:
        await harness.execute(ASKED, thread_id=thread, resource_id="bob")

    assert caught.value.code == "REGULATOR_OF_ANOTHER"
    for part in ("'alice'", "'bob'", "nn.regulation(nn.Regulator.for_user)"):
        assert part in str(caught.value)
    assert not requests_of(harness)


async def test_a_stream_and_an_open_execution_are_refused_too() -> None:
    harness = desk(taught())

    with pytest.raises(NoeticConfigError, match="REGULATOR_OF_ANOTHER"):
        await harness.stream(ASKED, resource_id="bob").reply
    with pytest.raises(NoeticConfigError, match="REGULATOR_OF_ANOTHER"):
        async with harness.execution(thread_id="t2", resource_id="bob"):
            pass
    assert not requests_of(harness)


@pytest.mark.parametrize("resource", [None, "alice"])
async def test_a_thread_without_a_resource_and_the_user_s_own_go_on(resource: str | None) -> None:
    harness = desk(taught())

    await harness.execute(ASKED, resource_id=resource)

    assert was_told(harness)


async def test_a_thread_that_goes_over_to_another_user_is_refused() -> None:
    harness = desk(taught())
    await harness.execute(ASKED, thread_id="t1", resource_id="alice")

    with pytest.raises(NoeticConfigError, match="REGULATOR_OF_ANOTHER"):
        await harness.execute(ASKED, thread_id="t1", resource_id="bob")

    await harness.execute(ASKED, thread_id="t1", resource_id="alice")
    assert was_told(harness)


async def test_a_factory_makes_a_regulator_for_each_resource() -> None:
    made: list[str] = []

    def of(resource_id: str) -> nn.Regulator:
        made.append(resource_id)
        return taught() if resource_id == "alice" else nn.Regulator.for_user(resource_id)

    harness = desk(of)
    told = []
    for thread, user in (("a", "alice"), ("b", "bob"), ("a2", "alice"), ("a", "bob"), ("a", "alice"), ("t", None)):
        await harness.execute(ASKED, thread_id=thread, resource_id=user)
        told.append(was_told(harness))

    assert told == [True, False, True, False, True, False]
    assert made == ["alice", "bob", "t"]


async def test_a_factory_that_gives_another_user_s_regulator_is_refused() -> None:
    harness = desk(lambda resource_id: taught())

    with pytest.raises(NoeticConfigError, match="REGULATOR_OF_ANOTHER"):
        await harness.execute(ASKED, resource_id="bob")


async def test_a_factory_that_gives_no_regulator_is_refused() -> None:
    harness = desk(lambda resource_id: None)

    with pytest.raises(NoeticConfigError, match="INVALID_REGULATION"):
        await harness.execute(ASKED, resource_id="bob")


@pytest.mark.parametrize("regulator", [nn.Regulator.for_user("alice"), nn.Regulator.for_user])
@pytest.mark.parametrize("turn", [0, 1, 3])
async def test_a_fork_has_what_its_user_taught_until_then(regulator: Any, turn: int) -> None:
    harness = desk(regulator, storage=nn.InMemoryStorage(), checkpoints=True)
    await teach(harness, "t1", "alice")
    await harness.execute(ASKED, thread_id="t1", resource_id="alice")

    fork = await harness.memory("t1").rewind(turn)
    await harness.execute(ASKED, thread_id=fork)
    told = was_told(harness)
    again = await harness.memory(fork).rewind(turn)
    await harness.execute(ASKED, thread_id=again)

    assert not told
    assert not was_told(harness)
    last = await harness.memory("t1").rewind(4)
    await harness.execute(ASKED, thread_id=last)
    assert was_told(harness)


async def test_a_resource_with_the_name_of_a_fork_does_not_get_what_the_fork_knows() -> None:
    harness = desk(nn.Regulator.for_user)
    await teach(harness, "t1", "alice")
    fork = await harness.memory("t1").rewind(3)
    await harness.execute(ASKED, thread_id=fork)

    with pytest.raises(NoeticConfigError, match="REGULATOR_OF_ANOTHER"):
        await harness.execute(ASKED, thread_id="t2", resource_id=fork)


@pytest.mark.parametrize("layer_id", ["regulation", "inner"])
async def test_a_child_is_of_the_user_of_its_parent(layer_id: str) -> None:
    child = spawn("child", nn.react(model="m"), memory=[nn.regulation(taught(), id=layer_id)])
    harness = desk(nn.Regulator.for_user, step=child)

    with pytest.raises(NoeticConfigError, match="REGULATOR_OF_ANOTHER"):
        await harness.execute(ASKED, thread_id="b", resource_id="bob")
    assert not requests_of(harness)

    await harness.execute(ASKED, thread_id="a", resource_id="alice")
    assert was_told(harness)


async def test_what_was_stored_for_another_user_is_refused_and_kept() -> None:
    storage = nn.InMemoryStorage()
    first = desk(nn.Regulator.for_user, storage=storage)
    await teach(first, "a", "alice")
    state = await first.memory("a").state("regulation")
    await first.execute(ASKED, thread_id="b", resource_id="bob")

    with pytest.raises(nn.NoeticError, match="REGULATOR_OF_ANOTHER"):
        await first.memory("b").edit("regulation", state)
    await first.execute(ASKED, thread_id="b", resource_id="bob")
    assert not was_told(first)

    await first.memory("b").edit("regulation", {**json.loads(json.dumps(state)), "user_id": "bob"})
    await first.execute(ASKED, thread_id="b", resource_id="bob")
    assert was_told(first)


async def test_a_record_of_another_user_from_storage_is_refused_until_it_is_replaced() -> None:
    storage = nn.InMemoryStorage()
    record = json.loads(taught().export_json())
    await ScopedStorage(storage, "regulation", "bob").set("state", record)
    harness = desk(nn.Regulator.for_user, storage=storage)

    with pytest.raises(NoeticConfigError, match="REGULATOR_OF_ANOTHER"):
        await harness.execute(ASKED, thread_id="b", resource_id="bob")
    assert await ScopedStorage(storage, "regulation", "bob").get("state") == record

    await harness.memory("b").edit("regulation", None)
    await harness.execute(ASKED, thread_id="b", resource_id="bob")
    assert not was_told(harness)


async def test_a_turn_in_a_new_process_is_of_the_user_of_its_thread() -> None:
    storage = nn.InMemoryStorage()
    await teach(desk(nn.Regulator.for_user, storage=storage, checkpoints=True), "t1", "bob")

    own = desk(nn.Regulator.for_user, storage=storage, checkpoints=True)
    await own.execute(ASKED, thread_id="t1")
    assert was_told(own)

    with pytest.raises(NoeticConfigError, match="REGULATOR_OF_ANOTHER"):
        await desk(nn.Regulator.for_user("alice"), storage=storage, checkpoints=True).execute(ASKED, thread_id="t1")


async def test_feedback_of_another_user_reaches_no_regulator() -> None:
    harness = desk(nn.Regulator.for_user("alice"))
    with pytest.raises(NoeticConfigError):
        await harness.execute(ASKED, thread_id="b", resource_id="bob")

    for _ in range(3):
        await harness.correct("b", SAID)

    assert await harness.memory("b").state("regulation") is None


@pytest.mark.parametrize("regulator", [None, nn.Regulator.recommended("calibrated")])
async def test_a_replay_gives_each_user_a_regulator(regulator: nn.Regulator | None) -> None:
    harness = desk(nn.Regulator.for_user)
    run = nn.record(harness)
    for user in ("alice", "bob"):
        for thread in "ab":
            await harness.execute(ASKED, thread_id=f"{user}-{thread}", resource_id=user)

    again = await asyncio.to_thread(lambda: replay(run, regulator=regulator, mode="closed"))

    assert [turn.text for turn in again.turns] == [turn.text for turn in run.turns]
    decided = [(event.where.thread_id, event.at) for event in run.select(RegulatorDecided)]
    assert [(event.where.thread_id, event.at) for event in again.select(RegulatorDecided)] == decided
    assert not again.meta["replay"]["diverged"]


async def test_a_regulator_is_tried_on_a_run_of_many_users() -> None:
    """A template that is asked "what if" is nobody's."""
    harness = desk(nn.Regulator.for_user)
    run = nn.record(harness)
    await teach(harness, "b", "bob")
    capped = nn.Regulator.for_user("alice").with_cost_cap(1)

    again = await asyncio.to_thread(lambda: replay(run, layers=[nn.regulation(lambda resource_id: capped)]))

    assert {event.cost_cap for event in again.select(RegulatorDecided)} == {1}


def test_an_agent_with_a_factory_in_json() -> None:
    registry = nn.Registry()
    registry.fn(nn.Regulator.for_user, name="own")
    config = nn.AgentConfig(name="desk", step=nn.react(model="m"), memory=[nn.regulation(nn.Regulator.for_user)])

    data = nn.dump_config(config, registry)

    assert data["memory"][0]["options"] == {"regulator": {"$ref": "fn:own"}}
    assert nn.dump_config(nn.load_config(json.dumps(data), registry), registry) == data


@pytest.mark.parametrize("given", ["a template", "a factory"])
def test_a_replay_with_a_user_s_regulator_tells_nobody_else_what_that_user_taught(given: str) -> None:
    harness = desk(nn.Regulator.for_user)
    run = nn.record(harness)

    async def main() -> None:
        for user in ("alice", "bob"):
            await harness.execute(ASKED, thread_id=user, resource_id=user)
        await harness.execute(ASKED, thread_id="nobody")

    asyncio.run(main())
    model = nn.ScriptedModel(lambda request: "Done.")
    changes: Any = {"regulator": taught()} if given == "a template" else {"layers": [nn.regulation(taught())]}

    again = replay(run, model=model, mode="closed", **changes)

    told = {event.where.thread_id for event in again.select(ViewAssembled) if SAID in str(event.layer_items)}
    assert told == {"alice", "nobody"}


async def test_agents_that_share_a_list_of_layers_share_no_thread() -> None:
    """Agents with storages of their own have threads of the same names, of different people."""
    memory = [nn.regulation(lambda resource_id: nn.Regulator.for_user(resource_id).with_token_cap(9))]
    config = nn.AgentConfig(name="desk", step=nn.react(model="m"), memory=memory)

    def shared() -> nn.AgentHarness:
        model = nn.ScriptedModel(lambda request: "Done.")
        harness = nn.AgentHarness(config, model=model, clock=FakeClock(step_ms=1), ids=SeededIds())
        MODELS[harness] = model
        return harness

    first, second = shared(), shared()
    for _ in range(3):
        await first.execute(ASKED)
        await first.correct("default", SAID)
    stopped = await first.execute(ASKED)
    await second.execute(ASKED)

    assert stopped.stopped is not None
    assert not was_told(second)
    known = [str(await harness.memory("default").state("regulation")) for harness in (first, second)]
    assert [SAID in state for state in known] == [True, False]
    await first.reset_task("default")
    await first.execute(ASKED)
    assert was_told(first)


async def test_agents_over_one_storage_share_what_a_user_taught() -> None:
    storage, memory = nn.InMemoryStorage(), [nn.regulation(nn.Regulator.for_user)]
    harnesses = []
    for name in ("desk", "shop"):
        config = nn.AgentConfig(name=name, step=nn.react(model="m"), memory=memory)
        model = nn.ScriptedModel(lambda request: "Done.")
        harness = nn.AgentHarness(config, model=model, clock=FakeClock(step_ms=1), ids=SeededIds(), storage=storage)
        MODELS[harness] = model
        harnesses.append(harness)
    await teach(harnesses[0], "t1", "alice")

    await harnesses[1].execute(ASKED, thread_id="t2", resource_id="alice")

    assert was_told(harnesses[1])


async def test_a_rule_of_steps_may_not_hand_a_thread_to_another_users_child_that_shares_the_list() -> None:
    """The child's own list is that of alice, whoever the parent works for."""
    memory = [nn.regulation(taught(), id="hers")]
    child = spawn("child", nn.react(model="m"), memory=memory)
    config = nn.AgentConfig(name="desk", step=child, memory=[])
    model = nn.ScriptedModel(lambda request: "Done.")
    harness = nn.AgentHarness(config, model=model, clock=FakeClock(step_ms=1), ids=SeededIds())

    with pytest.raises(NoeticConfigError, match="REGULATOR_OF_ANOTHER"):
        await harness.execute(ASKED, thread_id="b", resource_id="bob")
    assert not model.requests


def test_a_watched_agent_hears_nothing_of_what_a_user_taught() -> None:
    """Its decisions would quote it."""
    regulator = taught()
    before = regulator.export_json()
    processor = nn.watch(regulator=regulator)
    harness = desk(nn.Regulator.for_user)
    run = nn.record(harness)
    asyncio.run(harness.execute(ASKED, resource_id="bob"))
    processor._add([event for event in run.events if not isinstance(event, RegulatorDecided | RegulatorSaw)])

    assert regulator.export_json() == before
    assert processor.run.select(RegulatorDecided)
    assert SAID not in str(processor.run.events[:])


def test_a_replay_refuses_to_tell_a_user_what_a_thread_of_his_name_was_told() -> None:
    harness = desk(nn.Regulator.for_user)
    run = nn.record(harness)

    async def main() -> None:
        await harness.execute(ASKED, thread_id="bob")
        await harness.execute(ASKED, thread_id="t", resource_id="bob")

    asyncio.run(main())

    with pytest.raises(NoeticConfigError, match="REGULATOR_OF_ANOTHER"):
        replay(run, regulator=taught(), mode="closed", model=nn.ScriptedModel(lambda request: "Done."))
