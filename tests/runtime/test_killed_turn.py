"""A turn is killed at random moments and resumed: it finishes, and repeats no step whose end was recorded."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import noetic_nb as nn
from tests.runtime.durable_turn import STEPS

AGENT = Path(__file__).with_name("durable_turn.py")
KILLS = int(os.environ.get("NOETIC_NB_KILLS", "3"))


async def recorded(path: Path) -> set[int]:
    """Return the steps whose end is in the ledger on disk."""
    async with nn.SQLiteStorage(path) as store:
        keys = [key for key in await store.list("execution:") if ":ledger:" in key]
        entries = [await store.get(key) for key in keys]
    return {int(entry["stepId"].split("-")[1]) for entry in entries if entry["kind"] == "run"}


@pytest.mark.kill
def test_a_killed_turn_finishes_and_repeats_no_recorded_step(tmp_path: Path) -> None:
    path = tmp_path / "turn.db"
    chance = random.Random(7)
    kills = ends = 0
    while kills < KILLS or not ends:
        before = asyncio.run(recorded(path)) if path.exists() else set()
        with subprocess.Popen([sys.executable, str(AGENT), str(path)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            until = chance.randint(1, 8) if kills < KILLS else STEPS + 1
            said = []
            for line in process.stdout:
                said.append(line.strip())
                if len(said) >= until and not said[-1].startswith("done"):
                    process.kill()
                    kills += 1
                    break
        numbers = {int(line) for line in said if not line.startswith("done")}
        assert not numbers & before, "a step whose end was recorded ran again"
        if said and said[-1].startswith("done"):
            assert said[-1] == f"done {STEPS - 1}"
            assert numbers | before == set(range(STEPS))
            ends += 1
