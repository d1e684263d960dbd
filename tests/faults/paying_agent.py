"""An agent that pays under a limit until it is killed; its model words each call anew. Says what it does, a line each.

``python -m tests.faults.paying_agent PATH NAME [key]``: NAME is paid by this process; with ``key`` the tool takes its idempotency
key. It waits for its standard input while it asks the model and while it pays, so that it can be killed there.
"""

from __future__ import annotations

import asyncio
import os
import sys

import noetic_nb as nn

LIMIT = 2


def said(text: str) -> None:
    """Say something, and wait until the other side lets it go on."""
    os.write(1, f"{text}\n".encode())
    os.read(0, 1)


def agent(store: nn.SQLiteStorage, name: str, *, knows_key: bool) -> nn.AgentHarness:
    """Return the agent as it is in one process."""

    def with_key(to: str, ctx: nn.Context) -> str:
        """Pay."""
        said(f"pay {ctx.idempotency_key} {to}")
        return "paid"

    def without(to: str) -> str:
        """Pay."""
        said(f"pay {to} {to}")
        return "paid"

    def model(request: nn.ModelRequest) -> nn.Reply | str:
        said("ask")
        last = request.items[-1]
        if last["type"] == "function_call_output" and "paid" not in last["output"]:
            return "No more."
        return nn.Reply(tool_calls=[nn.CallTool("pay", to=f"{name}{place}") for place in range(2)])

    rules = nn.RuleBook()
    rules.at_most(LIMIT, "pay")
    tool = nn.tool(with_key if knows_key else without, name="pay")
    config = nn.AgentConfig(
        name="payer", step=nn.react(model="m", tools=[tool], max_steps=6), memory=[nn.steering(rules)]
    )
    return nn.AgentHarness(config, model=nn.ScriptedModel(model), storage=store, checkpoints=True)


async def main(path: str, name: str, key: str = "") -> None:
    """Go on with the turn that was under way, or begin one."""
    async with nn.SQLiteStorage(path) as store:
        harness = agent(store, name, knows_key=bool(key))
        unfinished = await harness.unfinished()
        reply = await (harness.resume(unfinished[0]) if unfinished else harness.execute("Pay.", thread_id="t"))
        said(f"done {' '.join(warning.code for warning in reply.warnings)}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
