"""An endless conversation in one thread, which continues when restarted. Prints each finished turn on its own line."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import noetic_nb as nn


@nn.tool
async def double(number: int) -> int:
    """Double a number."""
    await asyncio.sleep(0.001)
    return 2 * number


def answer(request: nn.ModelRequest) -> Any:
    """Double every number in the user's message."""
    last = request.items[-1]
    if last["type"] == "function_call_output":
        return f"It is {last['output']}."
    return nn.CallTool("double", number=int(last["content"][0]["text"]))


def talker(store: Any) -> nn.AgentHarness:
    """Return a harness over a storage."""
    after = nn.step.run("after", lambda value, ctx: value)
    whole = nn.loop("whole", [nn.react(model="m", tools=[double]), after], until=nn.until.max_steps(1))
    config = nn.AgentConfig(name="talker", step=whole, memory=[nn.working_memory()])
    return nn.AgentHarness(config, model=nn.ScriptedModel(answer), storage=store, checkpoints=True)


async def main(path: str) -> None:
    """Finish the turn that was cut off, or leave it (every other time); then go on for ever."""
    async with nn.SQLiteStorage(path) as store:
        harness = talker(store)
        unfinished = await harness.unfinished()
        await harness.load_thread("t")
        number = sum(item.get("role") == "user" for item in harness.log("t"))
        if unfinished and number % 2:
            await harness.resume(unfinished[0])
            os.write(1, f"{number}\n".encode())
        while True:
            number += 1
            await harness.execute(str(number), thread_id="t")
            os.write(1, f"{number}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
