"""Storage that was truncated, edited or partly restored: always one specific error, never a wrong conversation."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.steps import spawn, step
from tests.matrix import matrix
from tests.runtime.crash_points import Disk

# Each is typical damage from an editor, a full disk or another program.
WRONG: dict[str, Any] = {
    "nothing": None, "text": "x", "negative": -1, "fraction": 1.5, "truth": True, "absurd": 10**400,
    "infinite": float("inf"), "unknown": float("nan"), "list": [], "object": {}, "nested": [[[[1]]]],
}  # fmt: skip
MISSING = object()


def answer(request: nn.ModelRequest) -> Any:
    """Look something up for every question, then answer it."""
    last = request.items[-1]
    if last["type"] == "function_call_output":
        return f"{last['output']}!"
    return nn.CallTool("look", word=last["content"][0]["text"])


@nn.tool
def look(word: str) -> str:
    """Look a word up."""
    return f"found {word}"


@cache
def config() -> nn.AgentConfig:
    """Return an agent whose turns have steps, a child, a loop and a layer."""
    child = spawn("child", step.llm("small", model="m", tools=[look]), context_in="inherit")
    whole = nn.loop(
        "whole",
        [step.run("before", lambda value, ctx: "go"), child, nn.react(model="m", tools=[look])],
        until=nn.until.max_steps(1),
    )
    return nn.AgentConfig(name="desk", step=whole, memory=[nn.working_memory(initial={"city": "Rome"})])


def desk(store: Any) -> nn.AgentHarness:
    return nn.AgentHarness(
        config(),
        model=nn.ScriptedModel(answer),
        storage=store,
        checkpoints=nn.Checkpoints(on_error="warn"),
        diagnostic=lambda *problem: None,
    )


async def cut_off() -> dict[str, str]:
    """Return storage with a finished turn, and an interrupted one with most kinds of records."""
    store = Disk()
    await desk(store).execute("a", thread_id="t")
    await desk(store).execute("b", thread_id="t")
    found = [
        copy
        for copy in store.copies
        if any(":part:00000000" in key for key in copy)
        and any(":child:" in key for key in copy)
        and sum(":ledger:" in key for key in copy) > 0
        and any(":snapshot" in key for key in copy)
    ]
    return found[len(found) // 2]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value inside a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*path, key)
        yield from places(part, (*path, key))


def damaged(text: str, path: tuple[Any, ...], wrong: Any) -> str:
    """Return a record with one value wrong or missing."""
    data = json.loads(text)
    inside = data
    for key in path[:-1]:
        inside = inside[key]
    if wrong is MISSING:
        del inside[path[-1]]
    else:
        inside[path[-1]] = wrong
    return json.dumps(data)


async def outcome(store: Any, act: Any) -> str:
    """Return the outcome of an action: "done", or the code of a specific error; any other exception is a bug."""
    try:
        await act(desk(store))
    except nn.NoeticConfigError as error:
        return error.code
    except nn.NoeticError as error:
        return error.kind
    return "done"


async def resume(harness: nn.AgentHarness) -> None:
    """Resume all interrupted turns."""
    for execution_id in await harness.unfinished():
        await harness.resume(execution_id)


ACTS: dict[str, Any] = {
    "resume": resume,
    "execute": lambda harness: harness.execute("c", thread_id="t"),
    "forget": lambda harness: harness.forget_thread("t"),
    "names": lambda harness: harness.saved_threads(),
}


@matrix("wrong", [*WRONG, "missing"], keep=3)
async def test_whatever_is_wrong_in_a_record_is_one_specific_error(wrong: str) -> None:
    left = await cut_off()
    value = MISSING if wrong == "missing" else WRONG[wrong]
    seen: dict[str, int] = {}

    for key, text in left.items():
        if not key.startswith(("thread:", "execution:")):
            continue
        for number, path in enumerate(places(json.loads(text))):
            # Listing and deleting read the same few fields of every record, and a new message reads no ends of steps.
            acts = 4 if number < 4 else 2 if ":part:" in key or key.endswith(":snapshot") else 1
            for name, act in list(ACTS.items())[:acts]:
                store = Disk({**left, key: damaged(text, path, value)})
                what = await outcome(store, act)
                if what == "step_failed" and path[0] == "output":
                    continue  # it is data that the step accepts unchecked
                assert what in ("done", "CHECKPOINT_SCHEMA_MISMATCH", "NO_CHECKPOINT"), (key, path, name, what)
                seen[what] = seen.get(what, 0) + 1
                if name in ("forget", "names"):
                    assert what == "done", (key, path, name)
    assert seen["CHECKPOINT_SCHEMA_MISMATCH"] > 50


@pytest.mark.parametrize("cut", [0, 1, 0.5, -1])
@pytest.mark.parametrize("kind", [":part:00000000", ":snapshot", ":open", ":child:", ":ledger:"])
async def test_a_record_that_was_cut_short_is_one_specific_error(kind: str, cut: float) -> None:
    left = await cut_off()
    key = next(key for key in left if kind in key)
    text = left[key]
    left[key] = text[: int(len(text) * cut) if 0 < cut < 1 else int(cut)]

    reads = {name: await outcome(Disk(dict(left)), act) for name, act in ACTS.items()}

    assert reads["forget"] == reads["names"] == "done"
    assert "CHECKPOINT_SCHEMA_MISMATCH" in (reads["resume"], reads["execute"])
    assert set(reads.values()) <= {"done", "CHECKPOINT_SCHEMA_MISMATCH"}


@pytest.mark.parametrize("kind", [":part:00000000", ":open", ":snapshot"])
async def test_a_database_with_a_damaged_row_is_one_specific_error(kind: str, tmp_path: Path) -> None:
    left, path = await cut_off(), tmp_path / "desk.db"
    async with nn.SQLiteStorage(path) as store:
        await store.set_many({key: json.loads(text) for key, text in left.items()})
        other = sqlite3.connect(path)
        with other:
            other.execute("UPDATE entries SET value = substr(value, 1, 9) WHERE key LIKE ?", (f"%{kind}",))
        other.close()

        executed = await outcome(store, ACTS["execute"])
        forgotten = await outcome(store, ACTS["forget"])

    assert (executed, forgotten) == ("CHECKPOINT_SCHEMA_MISMATCH", "done")


async def test_one_damaged_snapshot_hides_no_other_and_is_named_when_it_is_resumed() -> None:
    left = await cut_off()
    key = next(key for key in left if key.endswith(":snapshot"))
    store = Disk({**left, "execution:broken:snapshot": left[key][:40], "execution:odd:snapshot": "3"})
    harness = desk(store)

    assert set(await harness.unfinished()) == {key.split(":")[1], "broken", "odd"}
    for execution_id in ("broken", "odd"):
        with pytest.raises(nn.NoeticConfigError) as caught:
            await harness.resume(execution_id)
        assert (caught.value.code, caught.value.given) == ("CHECKPOINT_SCHEMA_MISMATCH", execution_id)
        await harness.clear_checkpoint(execution_id)
    assert await harness.unfinished() == (key.split(":")[1],)
    await harness.resume(key.split(":")[1])


async def test_a_store_that_cannot_be_read_is_not_taken_for_damaged() -> None:
    class Gone(Disk):
        async def get(self, key: str) -> Any:
            raise nn.NoeticError("storage_failed", "The disk reported an error.", reason="SQLITE_IOERR")

        async def get_many(self, keys: Any) -> Any:
            return {key: await self.get(key) for key in keys}

    assert await outcome(Gone(await cut_off()), ACTS["execute"]) == "storage_failed"


async def test_a_damaged_end_of_a_step_does_not_let_the_step_run_again() -> None:
    left = await cut_off()
    key = next(key for key in left if ":ledger:" in key)
    store = Disk({**left, key: "{}"})

    assert await outcome(store, resume) == "CHECKPOINT_SCHEMA_MISMATCH"
