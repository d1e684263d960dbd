"""An agent with durable threads that is recorded to a file until it is killed; says each turn that is over."""

from __future__ import annotations

import asyncio
import os
import sys

import noetic_nb as nn


@nn.tool
def look(place: str) -> str:
    """Look somewhere."""
    return f"seen {place}"


def answer(request: nn.ModelRequest) -> nn.CallTool | str:
    """Look once, then say so."""
    last = request.items[-1]
    return "Seen." if last["type"] == "function_call_output" else nn.CallTool("look", place=last["content"][0]["text"])


async def main(folder: str) -> None:
    """Talk to the agent for ever."""
    config = nn.AgentConfig(name="recorded", step=nn.react(model="scripted", tools=[look]))
    async with nn.SQLiteStorage(f"{folder}/agent.db") as store:
        harness = nn.AgentHarness(config, model=nn.ScriptedModel(answer), storage=store, checkpoints=True)
        nn.record(harness, autosave=f"{folder}/run.jsonl.gz")
        number = 0
        while True:
            number += 1
            await harness.execute(f"Place {number}", thread_id=f"t{number % 3}")
            os.write(1, f"{number}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
