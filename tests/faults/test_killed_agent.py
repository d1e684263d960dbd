"""A durable agent is killed at random moments: what it said was done is there. ``NOETIC_NB_KILLS=100`` runs it whole."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import noetic_nb as nn

AGENT = Path(__file__).with_name("durable_agent.py")
KILLS = int(os.environ.get("NOETIC_NB_KILLS", "3"))


def state_in(path: Path) -> dict[str, object]:
    async def read() -> dict[str, object]:
        async with nn.SQLiteStorage(path) as store:
            return await store.get("layers/working-memory/ann/state") or {}

    return asyncio.run(read())


@pytest.mark.kill
def test_a_killed_agent_keeps_every_turn_it_had_finished(tmp_path: Path) -> None:
    path, dice, finished = tmp_path / "agent.db", random.Random(), 0
    for _ in range(KILLS):
        agent = subprocess.Popen([sys.executable, str(AGENT), str(path)], stdout=subprocess.PIPE, text=True)
        assert agent.stdout is not None
        lines = [agent.stdout.readline() for _ in range(dice.randrange(1, 60))]
        agent.kill()
        agent.wait()
        lines += agent.stdout.readlines()
        agent.stdout.close()
        said = [int(line) for line in lines if line.endswith("\n")]

        state = state_in(path)

        # A turn may have been written and not yet said; never the other way round, and never half.
        assert said, "the agent died by itself"
        finished = max([finished, *said])
        assert state["last"] >= finished  # type: ignore[operator]
        assert state["pair"] == [state["last"]] * 2
    assert finished > 0
    print(f"\n{KILLS} kills, {finished} finished turns, none lost")
