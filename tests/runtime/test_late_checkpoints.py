"""Values in an in-memory store are those at the time of the write, whenever they are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.items import input_message
from noetic_nb.storage import InMemoryStorage, SQLiteStorage
from noetic_nb.testing import FakeClock, SeededIds

THREAD = "t1"


def harness(storage: Any, step: Any, **options: Any) -> nn.AgentHarness:
    return nn.AgentHarness(nn.AgentConfig(name="desk", step=step), storage=storage, checkpoints=True, **options)


async def snapshots(storage: Any) -> list[Any]:
    keys = [key for key in await storage.list("execution:") if key.endswith(":snapshot")]
    return [await storage.get(key) for key in keys]


async def test_what_a_step_changes_afterwards_does_not_show_in_the_snapshot_before_it() -> None:
    storage = InMemoryStorage()
    found: list[Any] = []

    async def change(value: Any, ctx: Any) -> str:
        ctx.state["cart"] = ["book"]
        ctx.item_log.append(input_message("and one more"))
        ctx.query = "another"
        ctx.tokens, ctx.step_count, ctx.tool_calls = nn.models.Usage(5, 5), 40, 7
        ctx.resource_id = "somebody"
        found.extend(await snapshots(storage))
        return "done"

    await harness(storage, nn.step.run("change", change)).execute("Hi", thread_id=THREAD, resource_id="ann")

    (snapshot,) = found
    assert snapshot["state"] == {}
    assert [item["content"][0]["text"] for item in snapshot["itemLog"]["items"]] == ["Hi"]
    assert (snapshot["query"], snapshot["resourceId"]) == ("Hi", "ann")
    assert (snapshot["tokens"]["input_tokens"], snapshot["stepCount"], snapshot["toolCalls"]) == (0, 0, 0)


async def test_a_part_is_the_same_however_late_it_is_read_and_in_whichever_store(tmp_path: Path) -> None:
    texts: list[Any] = []
    async with SQLiteStorage(tmp_path / "desk.db") as in_file:
        for storage in (InMemoryStorage(), in_file):
            model = nn.ScriptedModel(["One “é”.", "Two.", "Three."])
            desk = harness(storage, nn.react(model="m"), model=model, clock=FakeClock(), ids=SeededIds())
            first = await desk.execute("Hi", thread_id=THREAD)
            await desk.execute("And?", thread_id=THREAD)
            desk.close_thread(THREAD)
            await desk.execute("So?", thread_id=THREAD)
            part: Any = await storage.get("thread:t1:part:00000000")
            assert part["items"][1] == json.loads(json.dumps(first.items[-1]))
            texts.append(part)

    assert texts[0] == texts[1]


async def test_another_harness_goes_on_from_what_was_never_read() -> None:
    storage = InMemoryStorage()
    answers = ["One.", "Two."]
    await harness(storage, nn.react(model="m"), model=nn.ScriptedModel(answers[:1])).execute("Hi", thread_id=THREAD)

    later = harness(storage, nn.react(model="m"), model=nn.ScriptedModel(answers[1:]))
    await later.execute("And?", thread_id=THREAD)

    assert [item["content"][0]["text"] for item in later.log(THREAD)] == ["Hi", "One.", "And?", "Two."]


async def test_what_is_no_json_data_fails_when_it_is_written_and_not_when_it_is_read() -> None:
    storage = InMemoryStorage()
    desk = harness(storage, nn.react(model="m"), model=nn.ScriptedModel(["One."]))

    desk._threads.thread(THREAD).resource_id = {"no", "text"}  # type: ignore[assignment]

    with pytest.raises(nn.NoeticError) as caught:
        await desk.execute("Hi", thread_id=THREAD)

    assert caught.value.kind == "not_saved"


async def test_a_snapshot_that_holds_state_is_written_at_once() -> None:
    storage = InMemoryStorage()
    found: list[Any] = []

    async def change(value: Any, ctx: Any) -> str:
        ctx.state["cart"].append("book")
        found.extend(await snapshots(storage))
        return "done"

    await harness(storage, nn.step.run("change", change)).execute("Hi", thread_id=THREAD, state={"cart": ["pen"]})

    assert found[0]["state"] == {"cart": ["pen"]}
