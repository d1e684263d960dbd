"""An agent with durable memory that works until it is killed; says each turn that is over on a line of its own."""

from __future__ import annotations

import asyncio
import os
import sys

import noetic_nb as nn


def remember(request: nn.ModelRequest) -> nn.CallTool | str:
    """Note the number the user said, then confirm it."""
    last = request.items[-1]
    if last["type"] == "function_call_output":
        return "Noted."
    number = int(last["content"][0]["text"].split()[-1])
    return nn.CallTool("working-memory/update", last=number, pair=[number, number])


async def main(path: str) -> None:
    """Talk to the agent for ever."""
    config = nn.AgentConfig(
        name="durable", step=nn.react(model="scripted"), memory=[nn.working_memory(scope="resource")]
    )
    async with nn.SQLiteStorage(path) as store:
        harness = nn.AgentHarness(config, model=nn.ScriptedModel(remember), storage=store)
        kept = await store.get("layers/working-memory/ann/state") or {"last": 0}
        number = kept["last"]
        while True:
            number += 1
            await harness.execute(f"Remember {number}", thread_id=f"t{number % 3}", resource_id="ann")
            os.write(1, f"{number}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
