"""What a first agent loads: only packages that have a wheel for every Python, the browser's too."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

FIRST_AGENT = """
import json, sys
from importlib.metadata import packages_distributions
import noetic_nb as nn
@nn.tool
def look(order: str) -> str:
    "Look up an order."
    return "packed"
async def main():
    rules = nn.RuleBook()
    rules.at_most(3, "look")
    step = nn.react(model="scripted", tools=[look])
    memory = [nn.working_memory(), nn.steering(rules), nn.regulation(nn.Regulator.for_user("ann").with_cost_cap(9_000))]
    config = nn.AgentConfig(name="desk", step=step, memory=memory)
    harness = nn.AgentHarness(config, model=nn.ScriptedModel([nn.CallTool("look", order="A17"), "Packed."]))
    run = nn.record(harness)
    await harness.execute("Where is A17?")
import asyncio
asyncio.run(main())
known = packages_distributions()
print(json.dumps(sorted({one for name in list(sys.modules) for one in known.get(name.partition(".")[0], [])})))
"""
# Each has a pure wheel, or like pydantic-core one for WebAssembly. Whoever adds to it looks for that first.
LOADED = {
    "annotated-types",
    "lazy-loader",
    "msgspec",
    "pydantic",
    "pydantic-core",
    "typing-extensions",
    "typing-inspection",
}
# Brought by the tools of whoever develops, not by the library.
TOOLS = {"noetic-nb", "setuptools"}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_a_first_agent_loads_few_packages_and_all_of_them_lie_beside_the_site() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_AGENT], capture_output=True, text=True, check=True)

    loaded = {_plain(name) for name in json.loads(done.stdout)} - TOOLS
    assert loaded == LOADED
    lock = Path(__file__).parents[2] / "lite/wheels.txt"
    beside = {line.partition("==")[0] for line in lock.read_text().splitlines() if not line.startswith("#")}
    assert loaded <= beside
