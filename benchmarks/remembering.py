"""What looking for losses and comparing layers costs, beside a floor in the same run; printed, never asserted.

Run ``python benchmarks/remembering.py``. Times are processor seconds, so that a busy machine does not count.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from time import process_time
from typing import Any, Final

import noetic_nb as nn
from noetic_nb import lab
from noetic_nb.items import Item, item_text
from noetic_nb.lab.remembering.made_dialogues import made_dialogues
from noetic_nb.layers import entity_memory, episodic_memory, history_window, observational_memory, semantic_recall
from noetic_nb.runs.recorded_requests import recorded_request

ITEMS: Final = 1_000
LOST_GOAL_MS: Final = 200
BENCH_GOAL_S: Final = 60
SETS: Final = 12
BUDGETS: Final = (250, 500, 1_000, 2_000, 4_000)
DIALOGUES: Final = 50


def seconds(work: Callable[[], Any], times: int = 5) -> float:
    """Return the least processor time of some."""
    found = []
    for _ in range(times):
        began = process_time()
        work()
        found.append(process_time() - began)
    return min(found)


def long_run() -> nn.Run:
    """Record a conversation of a thousand items of which forty are sent."""
    said: list[Item] = [item for one in made_dialogues(40) for session in one.sessions for item in session]
    texts = [item_text(item) for item in said if item.get("role") == "user"][: ITEMS // 2]
    config = nn.AgentConfig(name="d", step=nn.react(model="scripted"), memory=[history_window(40), semantic_recall()])
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Noted. Tell me more whenever you like."] * len(texts)))
    run = nn.record(harness)

    async def play() -> None:
        for text in texts:
            await harness.execute(text, thread_id="t")

    asyncio.run(play())
    return run


def main() -> int:
    """Measure and print."""
    run = long_run()
    log = run.log("t")
    floor = seconds(lambda: [re.findall(r"\w+", item_text(item)) for item in log])
    found = seconds(lambda: lab.lost(run, -1))
    read = seconds(lambda: recorded_request(run, -1).items)
    print(
        f"lost on {len(log)} items, {len(lab.lost(run, -1))} losses: {1e3 * found:.0f} ms (goal {LOST_GOAL_MS} ms), of it "
        f"reading the request {1e3 * read:.0f} ms; floor: splitting the log into words {1e3 * floor:.1f} ms"
    )
    some: list[Any] = [
        [],
        [history_window(6)],
        [semantic_recall()],
        [episodic_memory()],
        [observational_memory(buffer_threshold=100)],
        [entity_memory(lambda text: {word: [text] for word in text.split() if word.istitle()})],
    ]
    sets = {str(at): some[at % len(some)] for at in range(SETS)}
    dialogues = made_dialogues(DIALOGUES)
    plain = seconds(lambda: lab.memory_bench({"plain": []}, dialogues, budgets=BUDGETS), 1)
    bench = seconds(lambda: lab.memory_bench(sets, dialogues, budgets=BUDGETS), 1)
    print(
        f"bench: {SETS} sets x {len(BUDGETS)} budgets x {DIALOGUES} dialogues: {bench:.1f} s of one processor (goal "
        f"{BENCH_GOAL_S} s on two); floor: as many sets without a layer {SETS * plain:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
