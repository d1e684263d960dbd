"""What the floors cost, as ratios against a peer or a bare floor measured in the same run.

    python benchmarks/basics.py

Prints three lines: import, a turn without tools, and the split of a budget. Interleaved repeats, medians of ratios; a
shared machine moves the absolute figures by a factor of two, the ratios much less.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

REPEATS = 15
IMPORT_REPEATS = 7


def ratio_line(name: str, ours: list[float], theirs: list[float], goal: float, unit: str, scale: float) -> None:
    """Print one comparison."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    print(
        f"{name}: {statistics.median(ratios):.3f}x (goal <= {goal}x)   "
        f"ours {statistics.median(ours) * scale:.1f} {unit}, theirs {statistics.median(theirs) * scale:.1f} {unit}"
    )


def timed(work: Callable[[], Any], count: int) -> float:
    """Return seconds per call."""
    start = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - start) / count


def import_seconds(module: str) -> float:
    """Return how long a fresh interpreter takes to import a module, itself not counted."""
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def imports() -> None:
    """Compare `import noetic_nb` with `import langgraph.graph`."""
    for module in ("noetic_nb", "langgraph.graph"):
        import_seconds(module)  # the file cache
    ours, theirs = [], []
    for _ in range(IMPORT_REPEATS):
        ours.append(import_seconds("noetic_nb"))
        theirs.append(import_seconds("langgraph.graph"))
    ratio_line("import noetic_nb / import langgraph.graph", ours, theirs, 0.3, "ms", 1e3)


async def turns() -> None:
    """Compare a turn without tools and with an instant model, on a fresh thread each time."""
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage

    import noetic_nb as nn

    config = nn.AgentConfig(name="bench", step=nn.react(model="scripted", instructions="Be brief."))

    def answers() -> Any:
        while True:
            yield AIMessage("Hello.")

    agent = create_agent(GenericFakeChatModel(messages=answers()), tools=[], system_prompt="Be brief.")
    count = 200
    ours: list[float] = []
    theirs: list[float] = []
    for repeat in range(REPEATS + 1):
        # A harness keeps every thread; a new one each round keeps the garbage of earlier rounds out of this one.
        harness = nn.AgentHarness(config, model=nn.ScriptedModel(lambda request: "Hello."))
        gc.collect()
        start = time.perf_counter()
        for thread in range(count):
            await harness.execute("Hi", thread_id=str(thread))
        mine = (time.perf_counter() - start) / count
        gc.collect()
        start = time.perf_counter()
        for _ in range(count // 10):
            await agent.ainvoke({"messages": [("user", "Hi")]})
        peer = (time.perf_counter() - start) / (count // 10)
        if repeat:  # the first round warms up
            ours.append(mine)
            theirs.append(peer)
    ratio_line("0-tool turn / LangGraph", ours, theirs, 0.06, "us", 1e6)


def budgets() -> None:
    """Compare `allocate_budgets` for 20 layers with the bare arithmetic on the same numbers."""
    from noetic_nb.memory import MemoryLayer, allocate_budgets

    ranges = [(10.0 * n, 10.0 * n + 500.0) for n in range(20)]
    layers = [
        MemoryLayer(id=f"layer{n}", slot=n, scope="thread", budget={"min": low, "max": high})
        for n, (low, high) in enumerate(ranges)
    ]

    def floor() -> list[tuple[str, float]]:
        available = 128_000 - 4_000
        rest = available - sum(low for low, _ in ranges)
        pool = 0.6 * rest
        rooms = [high - low for low, high in ranges]
        total = sum(rooms)
        return [
            (f"layer{n}", low + min(room / total * pool, room))
            for n, ((low, _), room) in enumerate(zip(ranges, rooms, strict=True))
        ]

    ours, theirs = [], []
    for _ in range(REPEATS):
        ours.append(timed(lambda: allocate_budgets(layers, total_budget=128_000, response_reserve=4_000), 500))
        theirs.append(timed(floor, 500))
    ratio_line("allocate_budgets, 20 layers / bare arithmetic", ours, theirs, 4, "us", 1e6)


def main() -> None:
    """Run all three."""
    imports()
    asyncio.run(turns())
    budgets()


if __name__ == "__main__":
    main()
