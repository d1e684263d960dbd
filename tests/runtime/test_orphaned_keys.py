"""Unreferenced snapshots and leftover keys: failed writes are repeated later, and nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.steps import fork, loop, spawn, step, until
from tests.runtime.crash_points import Disk, GroupedDisk, harness, pay, texts_of


def failing(kind: type[Disk], ends: str) -> Disk:
    """Return a store in which the first write of a key with a given ending fails."""

    class Failing(kind):  # type: ignore[misc, valid-type]
        bad = True

        async def set(self, key: str, value: Any) -> None:
            self.refuse([key])
            await super().set(key, value)

        def refuse(self, keys: Any) -> None:
            if self.bad and any(key.endswith(ends) for key in keys):
                self.bad = False
                raise nn.NoeticError("storage_failed", "busy")

    class FailingGroups(Failing):
        async def set_many(self, values: Any, **more: Any) -> None:
            self.refuse(values)
            await super().set_many(values, **more)

    return FailingGroups() if kind is GroupedDisk else Failing()


@pytest.mark.parametrize("kind", [Disk, GroupedDisk])
async def test_a_turn_that_could_not_be_named_at_first_is_named_later(kind: Any) -> None:
    store, cut = failing(kind, ":open"), Disk()

    def model(request: Any) -> Any:
        if request.items[-1]["type"] == "function_call_output":
            cut.put(store.texts)
            return "paid"
        return nn.CallTool("pay", amount=1)

    agent = nn.react(model="m", tools=[pay])
    await harness(agent, store, model).execute("pay")
    second = harness(agent, cut, lambda request: "new")
    unfinished = await second.unfinished()

    await second.execute("did you pay?")

    assert len(unfinished) == 1
    assert texts_of(second.log())[:3] == ["user: pay", 'call pay {"amount":1}', "output paid 1"]
    assert await second.unfinished() == ()
    assert not await cut.list("execution:")


async def orphan() -> tuple[Disk, str]:
    """Abandon an unreferenced turn, in a thread that has continued without it."""
    store = Disk()

    def dies(request: Any) -> str:
        store.copies.append(dict(store.texts))
        raise RuntimeError

    with pytest.raises(nn.NoeticError):
        await harness(nn.react(model="m"), store, dies).execute("lost", thread_id="t")
    cut = Disk(store.copies[2])
    execution_id = (await harness(None, cut).unfinished())[0]
    await cut.delete("thread:t:open")
    await harness(nn.react(model="m"), cut, lambda request: "re").execute("other", thread_id="t")
    return cut, execution_id


async def test_what_only_a_snapshot_holds_is_not_removed() -> None:
    store, execution_id = await orphan()
    second = harness(nn.react(model="m"), store, lambda request: "re")

    assert await second.unfinished() == ()
    with pytest.raises(nn.NoeticConfigError, match="clear_checkpoint") as caught:
        await second.resume(execution_id)

    assert caught.value.code == "NO_CHECKPOINT"
    assert await store.get(f"execution:{execution_id}:snapshot") is not None
    await second.clear_checkpoint(execution_id)
    assert not await store.list("execution:")


async def test_a_snapshot_goes_last() -> None:
    store = Disk()
    agent = loop("l", [spawn("s", step.llm("a", model="m")), step.run("b", lambda v, ctx: v)], until=until.max_steps(1))
    await harness(agent, store, lambda request: "x").execute("go")
    cut = Disk(max(store.copies, key=lambda texts: sum(key.startswith("execution:") for key in texts)))
    (execution_id,) = await harness(agent, cut).unfinished()
    keys = await cut.list("execution:")
    assert len(keys) > 2

    await harness(agent, cut).clear_checkpoint(execution_id)

    assert [any(key.endswith(":snapshot") for key in texts) for texts in cut.copies[:-1]] == [True] * (len(keys) - 1)
    assert not await cut.list("execution:")


@pytest.mark.parametrize("kind", [Disk, GroupedDisk])
async def test_the_end_of_a_turn_knows_what_to_remove(kind: Any) -> None:
    listed: list[str] = []

    class Listing(kind):  # type: ignore[misc, valid-type]
        async def list(self, prefix: str) -> list[str]:
            listed.append(prefix)
            found: list[str] = await super().list(prefix)
            return found

    store = Listing()
    paths = [spawn(name, step.llm(name, model="m")) for name in "ab"]
    agent = loop(
        "l", [fork("f", mode="all", paths=paths, merge="first"), nn.react(model="m")], until=until.max_steps(2)
    )
    agents = harness(agent, store, lambda request: "x")
    await agents.execute("go")
    listed.clear()

    await agents.execute("go on")

    assert listed == []
    assert [key for key in store.texts if key.startswith("execution:")] == []
    for texts in store.copies:
        copy = Disk(texts)
        again = harness(agent, copy, lambda request: "x")
        for execution_id in await again.unfinished():
            await again.resume(execution_id)
            assert [key for key in copy.texts if key.startswith("execution:")] == []


async def test_the_records_of_children_go_when_the_step_around_them_ends() -> None:
    store = Disk()
    agent = loop("l", [spawn("s", step.llm("a", model="m"))], until=until.max_steps(5))
    await harness(agent, store, lambda request: "x").execute("go")

    assert max(sum(":child:" in key for key in texts) for texts in store.copies) <= 2
