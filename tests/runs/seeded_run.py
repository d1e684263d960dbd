"""Records a seeded run and saves it; run as a program in processes with different hash seeds.

Usage: ``python -m tests.runs.seeded_run FOLDER`` writes its files there.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import noetic_nb as nn
from noetic_nb.testing import FakeClock, SeededIds


def search(query: str, fields: list[str] | None = None) -> dict[str, list[str]]:
    """Search the orders."""
    return {"found": sorted({query, "A17", "B2"}), "fields": fields or []}


def harness(*, first: int = 1) -> nn.AgentHarness:
    """Return an agent with rules, memory and a regulator; its id numbers start at `first`."""
    rules = nn.RuleBook()
    rules.at_most(9, "search")
    rules.when('tool.args.query == "secret"', id="no_secrets", guidance="Not that.")
    config = nn.AgentConfig(
        name="desk",
        step=nn.react(model="m", tools=[search]),
        memory=[rules, nn.working_memory(), nn.regulation(nn.Regulator.for_user("ann"))],
        params={"b": 1, "a": {"z": [1, 2], "y": None}},
    )
    answers = [nn.CallTool("search", query="A17", fields=["state"]), "It is on its way.", "You are welcome."]
    return nn.AgentHarness(config, model=nn.ScriptedModel(answers * 2), clock=FakeClock(5_000), ids=SeededIds(first))


async def converse(folder: Path) -> None:
    """Record two threads and write the files."""
    agent = harness()
    run = nn.record(agent)
    for thread in ("ann", "ben"):
        await agent.execute("Where is order A17?", thread_id=thread)
        await agent.execute("Thanks!", thread_id=thread)
    await agent.feedback("ann", quality=0.9)
    run.save(folder / "saved")
    run.save(folder / "bundle", bundle=True)


if __name__ == "__main__":
    asyncio.run(converse(Path(sys.argv[1])))
