"""Two live executions on one scope: replacing the other's state is reported, with the replaced value."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from noetic_nb.events import ErrorRaised
from noetic_nb.memory import MemoryLayer
from noetic_nb.storage import InMemoryStorage, SQLiteStorage
from tests.memory.stacks import Watched, context, layer


async def load(p: Any) -> Any:
    return {"state": await p.storage.get("state") or {"n": 0}}


def notes(scope: Any = "thread") -> MemoryLayer:
    return layer("notes", scope=scope, init=load)


def conflicts(stack: Watched) -> list[Any]:
    return [e for e in stack.events if isinstance(e, ErrorRaised) and e.error_kind == "state_conflict"]


async def write(stack: Watched, execution_id: str, value: Any) -> None:
    stack.state.set(execution_id, "notes", value)
    await stack.state.flush(execution_id)


async def test_two_live_executions_of_one_thread_report_the_state_they_replace(tmp_path: Path) -> None:
    async with SQLiteStorage(tmp_path / "desk.db") as storage:
        stack = Watched(notes(), storage=storage)
        await stack.init(context("e1"))
        await stack.init(context("e2"))

        await write(stack, "e1", {"n": 1})
        assert stack.notes == []
        await write(stack, "e2", {"n": 2})

        ((layer_id, hook, error),) = stack.notes
        assert (layer_id, hook, error.kind, error.replaced) == ("notes", "persist", "state_conflict", {"n": 1})
        assert [(e.where.execution_id, e.step_id) for e in conflicts(stack)] == [("e2", "notes")]
        assert await storage.get("layers/notes/t1/state") == {"n": 2}


async def test_two_processes_on_one_resource_report_the_state_they_replace(tmp_path: Path) -> None:
    async with SQLiteStorage(tmp_path / "desk.db") as one, SQLiteStorage(tmp_path / "desk.db") as two:
        here, there = Watched(notes("resource"), storage=one), Watched(notes("resource"), storage=two)
        await here.init(context("e1", "t1", resource_id="ann"))
        await there.init(context("e2", "t2", resource_id="ann"))

        await write(there, "e2", {"n": 2})
        await write(here, "e1", {"n": 1})

        assert [error.replaced for _, _, error in here.notes] == [{"n": 2}]
        assert there.notes == []


WORKER = """
import asyncio, sys
from noetic_nb.memory import ExecutionContext, LayerStack, MemoryHooks, MemoryLayer
from noetic_nb.storage import SQLiteStorage

async def load(p):
    return {"state": await p.storage.get("state")}

async def main():
    async with SQLiteStorage(sys.argv[1]) as storage:
        layer = MemoryLayer(id="notes", slot=1, scope="thread", hooks=MemoryHooks(init=load))
        stack = LayerStack([layer], storage=storage)
        ctx = ExecutionContext(execution_id="there", thread_id="t1")
        await stack.init(ctx)
        stack.state.set("there", "notes", {"from": "another process"})
        await stack.dispose(ctx)

asyncio.run(main())
"""


async def test_another_process_that_wrote_meanwhile_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "desk.db"
    async with SQLiteStorage(path) as storage:
        stack = Watched(notes(), storage=storage)
        await stack.init(context("here"))
        worker = await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER, str(path))
        assert await worker.wait() == 0

        await write(stack, "here", {"from": "this process"})

        assert [error.replaced for _, _, error in stack.notes] == [{"from": "another process"}]
        assert await storage.get("layers/notes/t1/state") == {"from": "this process"}


async def test_executions_one_after_the_other_never_conflict(tmp_path: Path) -> None:
    async with SQLiteStorage(tmp_path / "desk.db") as storage:
        stack = Watched(notes(), storage=storage)
        for n in range(5):
            ctx = context(f"e{n}")
            await stack.init(ctx)
            await write(stack, ctx.execution_id, {"n": n})
            await write(stack, ctx.execution_id, None if n % 2 else {"n": n, "again": True})
            await stack.dispose(ctx)

        assert (stack.notes, conflicts(stack)) == ([], [])


async def test_other_threads_and_other_layers_never_conflict(tmp_path: Path) -> None:
    async with SQLiteStorage(tmp_path / "desk.db") as storage:
        stack = Watched(notes(), layer("more", init=load), storage=storage)
        await asyncio.gather(*(stack.init(context(f"e{n}", f"t{n}")) for n in range(4)))
        for n in range(4):
            for layer_id in ("notes", "more"):
                stack.state.set(f"e{n}", layer_id, {"n": n})
            await stack.state.flush(f"e{n}")

        assert stack.notes == []


async def test_clearing_a_state_that_somebody_else_wrote_is_reported(tmp_path: Path) -> None:
    async with SQLiteStorage(tmp_path / "desk.db") as storage:
        stack = Watched(notes(), storage=storage)
        await stack.init(context("e1"))
        await stack.init(context("e2"))
        await write(stack, "e1", {"n": 1})

        await write(stack, "e2", None)

        assert [error.replaced for _, _, error in stack.notes] == [{"n": 1}]
        assert await storage.get("layers/notes/t1/state") is None


async def test_feedback_during_an_execution_is_no_conflict(tmp_path: Path) -> None:
    async def on_feedback(p: Any) -> None:
        await p.storage.set("state", {"n": 7})

    async with SQLiteStorage(tmp_path / "desk.db") as storage:
        stack = Watched(notes().with_hooks(on_feedback=on_feedback), storage=storage)
        await stack.init(context("e1"))

        await stack.feedback(context("e1"), kind="quality", value=1.0, source="user")
        await write(stack, "e1", {"n": 8})

        assert stack.notes == []


async def test_where_the_store_keeps_no_versions_executions_of_one_process_are_in_the_events() -> None:
    storage = InMemoryStorage()
    stack, other = Watched(notes(), storage=storage), Watched(notes(), storage=storage)
    await stack.init(context("e1"))
    await other.init(context("e2"))

    await write(stack, "e1", {"n": 1})
    await write(other, "e2", {"n": 2})

    assert (conflicts(stack), len(conflicts(other))) == ([], 1)
    assert other.notes == []


async def test_no_update_of_many_rivals_is_lost_unreported(tmp_path: Path) -> None:
    rivals, rounds = 4, 25
    async with SQLiteStorage(tmp_path / "desk.db") as storage:
        stacks = [Watched(notes(), storage=storage) for _ in range(rivals)]
        for n, stack in enumerate(stacks):
            await stack.init(context(f"e{n}"))
        written: list[Any] = []

        async def work(n: int) -> None:
            for k in range(rounds):
                value = {"rival": n, "k": k}
                written.append(value)
                await write(stacks[n], f"e{n}", value)

        await asyncio.gather(*(work(n) for n in range(rivals)))

        final = await storage.get("layers/notes/t1/state")
        replaced = [error.replaced for stack in stacks for _, _, error in stack.notes]
        unaccounted = [
            value
            for value in written
            if value != final and value not in replaced and {**value, "k": value["k"] + 1} not in written
        ]
        assert unaccounted == []
        assert replaced
