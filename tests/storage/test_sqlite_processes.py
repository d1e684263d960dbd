"""Several processes on one file, and processes that die. ``NOETIC_NB_KILLS=100`` and ``NOETIC_NB_WRITES=10000`` run it whole."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noetic_nb.storage import SQLiteStorage

KILLS = int(os.environ.get("NOETIC_NB_KILLS", "3"))
WRITES = int(os.environ.get("NOETIC_NB_WRITES", "100"))

StartWorker = Callable[..., "subprocess.Popen[str]"]


async def read_all(path: Path) -> dict[str, Any]:
    async with SQLiteStorage(path) as store:
        return await store.get_many(await store.list(""))


@pytest.mark.kill
def test_whatever_was_awaited_survives_a_kill_at_any_moment(path: Path, start_worker: StartWorker) -> None:
    dice = random.Random()
    acknowledged = 0
    for turn in range(KILLS):
        worker = start_worker("work_until_killed", path)
        assert worker.stdout is not None
        assert worker.stderr is not None
        # The child runs ahead of what is read here, so the number of lines does not fix where it is killed; the
        # first kill comes before the first line, while the file is being made.
        for _ in range(dice.randrange(1, 120) if turn else 1):
            line = worker.stdout.readline()
            assert line, worker.stderr.read()
        worker.kill()
        rest, errors = worker.communicate()
        reported = [int(word) for word in [line.strip(), *rest.split()] if word.isdigit()]
        acknowledged = max([acknowledged, *reported])

        found = asyncio.run(read_all(path))

        assert errors == ""
        if acknowledged:
            states = [found[f"state/{layer}"]["n"] for layer in range(5)]
            assert min(states) >= acknowledged, (turn, states, acknowledged)
            assert found["pair/a"] == found["pair/b"] >= acknowledged, turn
            assert found[f"log/{acknowledged % 50}"]["n"] >= acknowledged
    assert acknowledged > 0
    print(f"\n{KILLS} kills, {acknowledged} acknowledged writes, none lost")


def test_two_processes_lose_no_update_and_never_see_a_lock(path: Path, start_worker: StartWorker) -> None:
    workers = [start_worker("count_together", path, WRITES) for _ in range(2)]

    outputs = [worker.communicate() for worker in workers]
    found = asyncio.run(read_all(path))

    assert [(worker.returncode, errors) for worker, (_, errors) in zip(workers, outputs, strict=True)] == [(0, "")] * 2
    assert found["counter"] == 2 * WRITES
    assert [found[f"own/{worker.pid}"] for worker in workers] == [WRITES] * 2
    print(f"\n2 x {WRITES} updates of one key, conflicts reported: {[int(said) for said, _ in outputs]}")


def test_two_processes_write_as_fast_as_they_can_and_nothing_is_missing(path: Path, start_worker: StartWorker) -> None:
    workers = [start_worker("write_alone", path, WRITES) for _ in range(2)]

    outputs = [worker.communicate() for worker in workers]
    found = asyncio.run(read_all(path))

    assert [(worker.returncode, errors) for worker, (_, errors) in zip(workers, outputs, strict=True)] == [(0, "")] * 2
    assert found == {f"own/{worker.pid}/{n}": n for worker in workers for n in range(WRITES)}


async def test_many_stores_may_make_one_file_at_once(path: Path, start_worker: StartWorker) -> None:
    workers = [start_worker("write_alone", path, 1) for _ in range(4)]

    errors = [(await asyncio.to_thread(worker.communicate))[1] for worker in workers]

    assert errors == [""] * 4
    assert len(await asyncio.to_thread(lambda: asyncio.run(read_all(path)))) == 4
