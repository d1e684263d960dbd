"""A conversation is killed at random moments and continued: one thread, many turns, each exactly once."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from tests.runtime.durable_conversation import talker

ROOT = Path(__file__).parents[2]
AGENT = "tests.runtime.durable_conversation"
KILLS = int(os.environ.get("NOETIC_NB_KILLS", "3"))


async def saved(path: Path) -> list[dict[str, Any]]:
    """Return the stored conversation, as a new harness reads it."""
    async with nn.SQLiteStorage(path) as store:
        harness = talker(store)
        await harness.load_thread("t")
        return [dict(item) for item in harness.log("t")]


def finished(log: list[dict[str, Any]]) -> set[int]:
    """Check that a log is a valid conversation, turn by turn; return the answered turns.

    An abandoned turn may end anywhere, except that every call has its output, and numbers never repeat.
    """
    numbers, answered, expected = [], set(), "message"
    for item in log:
        kind = item["type"]
        if item.get("role") == "user":
            assert expected != "function_call_output", "a call is left without its answer"
            numbers.append(int(item["content"][0]["text"]))
            expected = "function_call"
            continue
        assert kind == expected, f"{kind} where {expected} was to come"
        if kind == "function_call":
            expected, call = "function_call_output", item["callId"]
        elif kind == "function_call_output":
            assert (item["callId"], int(item["output"])) == (call, 2 * numbers[-1])
            expected = "message"
        else:
            assert item["content"][0]["text"] == f"It is {2 * numbers[-1]}."
            answered.add(numbers[-1])
            expected = "user"
    assert numbers == list(range(1, len(numbers) + 1)), "every turn once, in order"
    return answered


@pytest.mark.kill
def test_a_killed_conversation_has_every_finished_turn_exactly_once(tmp_path: Path) -> None:
    path = tmp_path / "talk.db"
    chance = random.Random(11)
    said: set[int] = set()
    before: list[dict[str, Any]] = []
    for _ in range(KILLS):
        command = [sys.executable, "-m", AGENT, str(path)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(chance.randint(1, 12)):
                said.add(int(process.stdout.readline()))
            process.kill()
            said |= {int(line) for line in process.stdout if line.endswith("\n")}

        log = asyncio.run(saved(path))

        assert log[: len(before)] == before, "what was said is never taken back"
        assert said <= finished(log), "a turn whose end was told is there"
        before = log
    assert len(said) >= KILLS
