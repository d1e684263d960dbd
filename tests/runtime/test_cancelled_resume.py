"""A resumed turn is cancelled at any moment: recorded steps are not repeated, and the thread stays usable."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.testing import drive_loop
from tests.matrix import matrix
from tests.runtime.test_control import REPLIES, Crash, Storage, durable

pytestmark = pytest.mark.virtual_time


class Slow(Storage):
    """Storage that yields to the loop before and after each write."""

    async def set(self, key: str, value: Any) -> None:
        await asyncio.sleep(0)
        await super().set(key, value)
        await asyncio.sleep(0.01)


def recorded(storage: Slow) -> set[str]:
    """Return the steps whose end is in the ledger."""

    async def read() -> set[str]:
        keys = [key for key in await storage.list("execution:") if ":ledger:" in key]
        return {(await storage.get(key))["stepId"] for key in keys}

    return drive_loop(read())


async def resumed(harness: nn.AgentHarness) -> str:
    try:
        return (await harness.resume((await harness.unfinished())[0])).text
    except asyncio.CancelledError:
        return "cancelled"


@matrix("crash_at", ["b", "a", "c"], keep=1)
def test_a_resumed_turn_cancelled_anywhere_repeats_nothing_and_leaves_a_thread_that_works(crash_at: str) -> None:
    ends = []
    for at in range(1, 80):
        storage, ran, keys = Slow(), [], []
        with pytest.raises(Crash):
            drive_loop(durable(storage, ran, crash_at, REPLIES, keys).execute("go"))
        storage.crashed = False
        before = recorded(storage)
        started = len(ran)
        harness = durable(storage, ran, None, [*REPLIES[len(keys) * 3 :], "fine"], keys)

        ends.append(drive_loop(resumed(harness), cancel_at=at))

        assert not before & set(ran[started:])
        assert len(harness._threads.live) == 0
        log = list(harness.log())
        assert [item["callId"] for item in log if item["type"] == "function_call"] == [
            item["callId"] for item in log if item["type"] == "function_call_output"
        ]
        assert len(keys) == len(set(keys)), "the tool is called once"
        later = durable(storage, ran, None, lambda request: "fine", keys)
        assert drive_loop(later.execute("again")).text in ("fine", "done")
    assert {"cancelled", "done"} <= set(ends)
