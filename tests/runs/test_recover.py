"""The run file of a killed process says that it may lack turns, and `recover` adds those that are in storage."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticError
from noetic_nb.events import ItemsAppended
from noetic_nb.runs._save import THE_END, is_unfinished, member_ends

AGENT = Path(__file__).parents[1] / "faults" / "recorded_agent.py"


@nn.tool
def look(place: str) -> str:
    """Look somewhere."""
    return f"seen {place}"


def agent(replies: list[Any], storage: Any) -> nn.AgentHarness:
    config = nn.AgentConfig(name="d", step=nn.react(model="m", tools=[look]))
    return nn.AgentHarness(config, model=nn.ScriptedModel(replies), storage=storage, checkpoints=True)


async def killed_after(path: Path, storage: Any, *, lost: list[tuple[str, str, list[Any]]]) -> nn.Run:
    """Leave a file as after a kill: one turn in it, further turns only in storage; returns the run as it was."""
    harness = agent(["One.", *(reply for *_, replies in lost for reply in replies)], storage)
    run = nn.record(harness, autosave=path)
    await harness.execute("First.", thread_id="a", resource_id="ann")
    kept = path.with_name("kept")
    shutil.copy(path, kept)
    for text, thread_id, _ in lost:
        await harness.execute(text, thread_id=thread_id, resource_id="ann")
    run.stop_recording()
    os.replace(kept, path)  # replacing the file ends the recording for good
    return run


async def test_a_turn_that_is_only_in_storage_is_added(tmp_path: Path) -> None:
    path, storage = tmp_path / "run.jsonl.gz", nn.InMemoryStorage()
    whole = await killed_after(
        path,
        storage,
        lost=[("Look in A17.", "a", [nn.CallTool("look", place="A17"), "Found."]), ("Hello.", "b", ["Hi."])],
    )
    loaded = nn.load_run(path)
    assert "nn.recover" in loaded.meta["unfinished"]
    assert len(loaded.turns) == 1

    run = nn.recover(path, storage)

    assert "unfinished" not in run.meta
    assert run.meta["recovered"] == [{"thread_id": "a", "turn": 2}, {"thread_id": "b", "turn": 1}]
    for thread_id in ("a", "b"):
        assert run.log(thread_id) == whole.log(thread_id)
    assert [(turn.where.thread_id, turn.where.turn, turn.query, turn.text) for turn in run.turns] == [
        (turn.where.thread_id, turn.where.turn, turn.query, turn.text) for turn in whole.turns
    ]
    calls = run.to_frame("tools")
    assert calls[["tool_name", "args", "output"]].values.tolist() == (
        whole.to_frame("tools")[["tool_name", "args", "output"]].values.tolist()
    )
    assert nn.load_run(path) == run
    assert not is_unfinished(path)
    # A second recovery changes nothing.
    assert nn.recover(path, storage) == run


async def test_threads_of_before_the_run_and_turns_that_are_there_are_left_alone(tmp_path: Path) -> None:
    path, storage = tmp_path / "run.jsonl.gz", nn.InMemoryStorage()
    before = agent(["Old."] * 2, storage)
    await before.execute("Long ago.", thread_id="old")
    await before.execute("Long ago.", thread_id="a", resource_id="ann")
    data = await storage.get("thread:old:part:00000000")
    await storage.set("thread:old:part:00000000", {**data, "writtenAt": 1.0})
    await killed_after(path, storage, lost=[("Second.", "a", ["Two."])])

    run = nn.recover(path, storage)

    assert run.threads == ("a",)
    assert [turn.query for turn in run.turns] == ["First.", "Second."]
    assert run.meta["recovered"] == [{"thread_id": "a", "turn": 3}]


async def test_a_file_that_lacks_nothing_only_loses_its_mark(tmp_path: Path) -> None:
    path, storage = tmp_path / "run.jsonl.gz", nn.InMemoryStorage()
    await killed_after(path, storage, lost=[])
    before = nn.load_run(path)

    run = nn.recover(path, storage)

    assert list(run.events) == list(before.events)
    assert "recovered" not in run.meta
    assert nn.load_run(path) == run


async def test_secrets_of_storage_stay_out_of_what_is_recovered(tmp_path: Path) -> None:
    path, storage = tmp_path / "run.jsonl.gz", nn.InMemoryStorage()
    secret = "sk-proj-" + "aB3dE6gH9jK2mN5pQ8sT"
    await killed_after(path, storage, lost=[(f"Use {secret}.", "a", [nn.CallTool("look", place=secret), "Done."])])

    run = nn.recover(path, storage)

    assert secret not in str(list(run.events)) + str(list(nn.load_run(path).events))


async def test_a_file_says_nothing_while_it_grows_and_once_it_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    harness = agent(["One.", "Two."], nn.InMemoryStorage())
    run = nn.record(harness, autosave=path)
    await harness.execute("First.")

    assert nn.load_run(path) == run
    run.stop_recording()
    assert path.read_bytes().endswith(THE_END)
    assert nn.load_run(path) == run
    # Recording continues, and the end marker moves.
    again = nn.record(harness, autosave=path)
    await harness.execute("Second.")
    again.stop_recording()
    assert path.read_bytes().count(THE_END) == 1
    assert nn.load_run(path) == again
    assert len(again.turns) == 2
    again.save(tmp_path / "saved.jsonl.gz")
    assert "unfinished" not in nn.load_run(tmp_path / "saved.jsonl.gz").meta


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(NoeticError, match="no such file"):
        nn.recover(tmp_path / "none.jsonl.gz", nn.InMemoryStorage())
    assert list(tmp_path.iterdir()) == []


def recorded(path: Path) -> list[tuple[str, int, str]]:
    return [(turn.where.thread_id, turn.where.turn, turn.text) for turn in nn.load_run(path).turns]


@pytest.mark.kill
def test_a_killed_agent_whose_file_is_recovered_lacks_no_turn_of_its_storage(tmp_path: Path) -> None:
    import random

    kills, dice = int(os.environ.get("NOETIC_NB_KILLS", "3")), random.Random()
    said = missed = 0
    for number in range(kills):
        folder = tmp_path / str(number)
        folder.mkdir()
        process = subprocess.Popen([sys.executable, str(AGENT), str(folder)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(dice.randrange(1, 25))]
        process.kill()
        process.wait()
        process.stdout.close()
        assert all(lines)
        path = folder / "run.jsonl.gz"

        async def saved(folder: Path = folder) -> dict[str, int]:
            # Only finished turns: a running one is resumed, and recorded then.
            async with nn.SQLiteStorage(folder / "agent.db") as storage:
                keys = [key for key in await storage.list("thread:") if ":part:" in key]
                parts = (await storage.get_many(keys)).values()
                return {part["threadId"]: part["first"] + len(part["items"]) for part in parts}

        before = nn.load_run(path)
        said += "unfinished" in before.meta

        async def recover(path: Path = path, folder: Path = folder) -> nn.Run:
            async with nn.SQLiteStorage(folder / "agent.db") as storage:
                return nn.recover(path, storage)

        run = asyncio.run(recover())
        missed += len(run.turns) > len(before.turns)
        for thread_id, items in asyncio.run(saved()).items():
            last = [event for event in run.select(ItemsAppended) if event.where.thread_id == thread_id][-1]
            assert last.start + len(last.items) >= items  # the run may include the turn that was running
        assert recorded(path) == [(turn.where.thread_id, turn.where.turn, turn.text) for turn in run.turns]
        assert member_ends(path)[1] is False
    assert said == kills
    print(f"\n{kills} kills, {missed} files lacked turns that storage had, all said so and were completed")
