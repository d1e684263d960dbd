"""The costs of looking for losses and comparing layers, beside a floor in the same run.

Run ``python -m benchmarks.remembering``.
"""

from __future__ import annotations

import asyncio
import re
import sys
from time import process_time
from typing import Any, Final

import noetic_nb as nn
from benchmarks.comparing import Lines, best, parser
from noetic_nb import lab
from noetic_nb.items import Item, item_text
from noetic_nb.layers import entity_memory, episodic_memory, history_window, observational_memory, semantic_recall
from noetic_nb.runs._requests.recorded_requests import recorded_request

ITEMS: Final = 1_000
SETS: Final = 12
BUDGETS: Final = (250, 500, 1_000, 2_000, 4_000)
DIALOGUES: Final = 10
LINES: Final[dict[str, float | None]] = {
    "what a request did not remember, looked for in the whole log / splitting that log into words": None,
    "what a request did not remember, looked for in the whole log": 200,
    "of it reading the request": None,
    "12 sets of layers compared, 5 budgets, 10 dialogues / as many sets without a layer": None,
    "12 sets of layers compared, 5 budgets, 10 dialogues, one processor": 24,  # a minute on two for fifty dialogues
}


def long_run() -> nn.Run:
    """Record a conversation of a thousand items of which forty are sent."""
    said: list[Item] = [item for one in lab.made_dialogues(40) for session in one.sessions for item in session]
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
    options, lines = parser(__doc__).parse_args(), Lines(LINES)
    run = long_run()
    log = run.log("t")
    floor = best(lambda: [re.findall(r"\w+", item_text(item)) for item in log], clock=process_time)
    found = best(lambda: lab.lost(run, -1), clock=process_time)
    read = best(lambda: recorded_request(run, -1).items, clock=process_time)
    what = "what a request did not remember, looked for in the whole log / splitting that log into words"
    about = f"{len(log):,} items, {len(lab.lost(run, -1))} losses"
    lines.ratio(what, found, floor, about=about, unit="ms")
    lines.value("what a request did not remember, looked for in the whole log", found * 1e3)
    lines.value("of it reading the request", read * 1e3)
    some: list[Any] = [
        [],
        [history_window(6)],
        [semantic_recall()],
        [episodic_memory()],
        [observational_memory(buffer_threshold=100)],
        [entity_memory(lambda text: {word: [text] for word in text.split() if word.istitle()})],
    ]
    sets = {str(at): some[at % len(some)] for at in range(SETS)}
    dialogues = lab.made_dialogues(DIALOGUES)
    plain = best(lambda: lab.memory_bench({"plain": []}, dialogues, budgets=BUDGETS), times=2, clock=process_time)
    bench = best(lambda: lab.memory_bench(sets, dialogues, budgets=BUDGETS), times=1, clock=process_time)
    what = "12 sets of layers compared, 5 budgets, 10 dialogues / as many sets without a layer"
    lines.ratio(what, bench, SETS * plain, unit="s")
    lines.value("12 sets of layers compared, 5 budgets, 10 dialogues, one processor", bench, unit="s")
    return lines.end(options)


if __name__ == "__main__":
    sys.exit(main())
