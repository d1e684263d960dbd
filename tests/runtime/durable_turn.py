"""An agent with a long turn, checkpointed after every step, which continues when restarted. Prints each step it runs."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import noetic_nb as nn

STEPS = 30


def work(number: int) -> Any:
    async def execute(value: Any, ctx: Any) -> int:
        await asyncio.sleep(0.002)
        os.write(1, f"{number}\n".encode())
        return number

    return nn.step.run(f"step-{number}", execute)


async def main(path: str) -> None:
    """Begin the turn, or resume the existing one."""
    whole = nn.loop("all", [work(number) for number in range(STEPS)], until=nn.until.max_steps(1))
    async with nn.SQLiteStorage(path) as store:
        harness = nn.AgentHarness(nn.AgentConfig(name="durable", step=whole), storage=store, checkpoints=True)
        unfinished = await harness.unfinished()
        reply = await (harness.resume(unfinished[0]) if unfinished else harness.execute("go"))
        os.write(1, f"done {reply.output}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
