"""The costs of layers, rules, a recorder and views: every line against the bare turn with one tool of the same run.

    python -m benchmarks.turns [--check] [--rounds 60]

Each turn asks once for a tool and then answers, with a model that answers at once, as one of a conversation of ten turns on a
thread of its own; states and ledgers are kept in memory. The kinds of turn take turns within each round, so that a slow moment
hits all of them, and the best round of each counts: other work of the machine only ever adds. The same turn beside another
library is in `benchmarks.runtime`.

With a recorder and views, the turns of whole conversations count, on average and to their replies; a thread reads for the views
meanwhile. The rest of the reading, for which an agent that waits for a model leaves time, is in the line of processor time. Views
are followed as in a kernel without a page: their messages are made and encoded, and not sent.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import comm
from comm.base_comm import BaseComm

import noetic_nb as nn
from benchmarks.comparing import Lines, parser
from noetic_nb.events import TurnCompleted
from noetic_nb.memory import MemoryHooks, MemoryLayer
from noetic_nb.runs import Run, record
from noetic_nb.widgets import Ledger, RunTimeline, TokenAllocation
from noetic_nb.widgets.base._reading_thread import follower_of

ANSWER: Final = "Order A17 is packed."
CALL: Final = nn.CallTool("lookup", order_id="A17")
QUESTION: Final = "Where is order A17?"
TURNS: Final = 10
TALKS: Final = 40

LINES: Final[dict[str, float | None]] = {
    "a turn with five layers and ten rules / the bare turn with one tool": None,
    "what ten rules add / the bare turn with one tool": None,
    "what five layers add / the bare turn with one tool": None,
    "a turn with five layers, ten rules and a recorder / the same without a recorder": None,
    "a turn with five layers, ten rules, a recorder and three views / without recorder and views": 1.8,
    "processor time of these turns with all reading of the views / without recorder and views": 4,
    "the views are complete after the last turn": 100,
    "all reading of a turn by three views, alone / the bare turn with one tool": None,
}


def lookup(order_id: str) -> dict[str, str]:
    """Find one order."""
    return {"order": order_id, "state": "packed"}


def answer(request: nn.ModelRequest) -> Any:
    """Ask for the tool first, then say what it said."""
    return CALL if request.items[-1]["type"] == "message" else ANSWER


def notes(number: int) -> MemoryLayer:
    """Return a layer of a conversation that recalls what it noted, and notes every response."""

    async def recall(p: Any) -> str | None:
        return None if p.state is None else f"Layer {number} has noted: {', '.join(p.state['notes'])}"

    async def store(p: Any) -> dict[str, Any]:
        known = [] if p.state is None else p.state["notes"]
        return {"state": {"notes": [*known, nn.items.item_text(p.response.items[-1])][-8:]}}

    hooks = MemoryHooks(recall=recall, store=store)
    return MemoryLayer(
        id=f"notes{number}", slot=200 + number, scope="thread", budget={"min": 0, "max": 200}, hooks=hooks
    )


def rule(number: int) -> nn.SteeringRule:
    """Return a rule that looks at an argument and has no opinion."""

    def predicate(call: Any) -> dict[str, str] | None:
        return {"action": "deny"} if call.tool_args["order_id"] == f"X{number}" else None

    return nn.SteeringRule(id=f"rule{number}", applies_to="before_tool_call", predicate=predicate)


def agent(*, layers: int = 0, rules: int = 0, **kept: Any) -> tuple[nn.AgentHarness, nn.ScriptedModel]:
    """Return an agent with one tool, so many layers and so many rules; and its model. What is left over is for its harness."""
    memory = [notes(number) for number in range(layers)]
    if rules:
        memory.append(nn.steering(rules=[rule(number) for number in range(rules)]))
    step = nn.react(model="scripted", instructions="You answer questions about orders.", tools=[nn.tool(lookup)])
    config = nn.AgentConfig(name="desk", step=step, memory=memory)
    model = nn.ScriptedModel(answer)
    return nn.AgentHarness(config, model=model, **kept), model


Talk = Callable[[], Awaitable[None]]


def talk(harness: nn.AgentHarness, model: nn.ScriptedModel) -> Talk:
    """Return what runs one conversation of `TURNS` turns; `watched` records each and has three views follow it."""
    number = 0

    async def run() -> None:
        nonlocal number
        number += 1
        name = f"t{number}"
        for _ in range(TURNS):
            await harness.execute(QUESTION, thread_id=name)
        harness.close_thread(name)
        model.reset()  # it keeps its requests for tests to look at; a real client keeps none

    return run


async def best_of(talks: dict[str, Talk], rounds: int) -> dict[str, float]:
    """Return the seconds of a turn of each kind, of the best round."""
    for run in talks.values():
        for _ in range(3):
            await run()
    best = dict.fromkeys(talks, float("inf"))
    gc.collect()
    for _ in range(rounds):
        for name, run in talks.items():
            start = time.perf_counter()
            await run()
            best[name] = min(best[name], (time.perf_counter() - start) / TURNS)
    return best


class Page(BaseComm):
    """Encodes what a view sends, as a kernel does, and sends it nowhere."""

    def publish_msg(
        self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **keys: Any
    ) -> None:
        """Encode a message."""
        json.dumps({"type": msg_type, "data": data, "metadata": metadata, **keys}, default=str)


async def in_turns(
    talks: dict[str, Talk], rounds: int, after: Callable[[str], object]
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return the seconds of a turn of each kind in each round, on average: by the clock, and of the processor with `after`."""
    for run in talks.values():
        for _ in range(3):
            await run()
    after("")
    taken: dict[str, list[float]] = {name: [] for name in talks}
    worked: dict[str, list[float]] = {name: [] for name in talks}
    for number in range(rounds):
        for name in talks if number % 2 == 0 else reversed(list(talks)):
            gc.collect()
            start, processor = time.perf_counter(), time.process_time()
            for _ in range(TALKS):
                await talks[name]()
            taken[name].append((time.perf_counter() - start) / (TURNS * TALKS))
            after(name)
            worked[name].append((time.process_time() - processor) / (TURNS * TALKS))
    return taken, worked


def reading(recorded: Run) -> float:
    """Return the seconds that three views take to read a turn of a run, event by event as they come."""
    run = Run()
    views = [TokenAllocation(run), Ledger(run), RunTimeline(run)]
    events = recorded.events[-70 * TURNS * TALKS :]
    follower_of(run).is_awake = True  # so that nobody begins
    for event in events:
        run.append(event)
    turns = sum(isinstance(event, TurnCompleted) for event in events)
    start = time.perf_counter()
    for view in views:
        view.catch_up()
    taken = (time.perf_counter() - start) / turns
    for view in views:
        view.close()
    return taken


async def measure(rounds: int) -> Lines:
    """Measure and print everything."""
    kinds = {"bare": agent(), "layers": agent(layers=5), "rules": agent(rules=10), "all": agent(layers=5, rules=10)}
    # More of them, as each is short: the best of a few is a matter of luck.
    best = await best_of({name: talk(*kind) for name, kind in kinds.items()}, 4 * rounds)
    bare = best["bare"]
    comm.create_comm = Page
    watched, recorded = agent(layers=5, rules=10), agent(layers=5, rules=10)
    record(recorded[0])
    run = record(watched[0])
    views = [TokenAllocation(run), Ledger(run), RunTimeline(run)]
    left: list[float] = []

    def catch_up(name: str) -> None:
        start = time.perf_counter()
        for view in views:
            view.catch_up()
        if name == "watched":
            left.append(time.perf_counter() - start)

    # Fewer rounds: a run grows with each, and what a view costs is to be that of a conversation and not of a day.
    kinds = {"without": agent(layers=5, rules=10), "recorded": recorded, "watched": watched}
    seen, worked = await in_turns({name: talk(*kind) for name, kind in kinds.items()}, max(5, rounds // 6), catch_up)
    alone = reading(run)
    for view in views:
        view.close()
    lines, about = Lines(LINES), f"{len(run.events) / len(run.turns):.0f} events a turn"
    for what, ours, other in (
        ("a turn with five layers and ten rules / the bare turn with one tool", best["all"], bare),
        ("what ten rules add / the bare turn with one tool", best["rules"] - bare, bare),
        ("what five layers add / the bare turn with one tool", best["layers"] - bare, bare),
    ):
        lines.ratio(what, ours, other)
    for what, name in (
        ("a turn with five layers, ten rules and a recorder / the same without a recorder", "recorded"),
        ("a turn with five layers, ten rules, a recorder and three views / without recorder and views", "watched"),
    ):
        lines.ratio(what, seen[name], seen["without"], about=about)
    what = "processor time of these turns with all reading of the views / without recorder and views"
    lines.ratio(what, worked["watched"], worked["without"], about=about)
    lines.value(
        "the views are complete after the last turn", max(left) * 1e3, about=f"{TURNS * TALKS} turns", unit="ms"
    )
    lines.ratio("all reading of a turn by three views, alone / the bare turn with one tool", alone, bare)
    return lines


def main() -> None:
    """Measure and print."""
    options = parser(__doc__, rounds=60).parse_args()
    sys.exit(asyncio.run(measure(options.rounds)).end(options))


if __name__ == "__main__":
    main()
