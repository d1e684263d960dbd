"""What memory costs, each beside the plain work it stands for, in the same run.

Run ``python benchmarks/memory.py``. Contestants take turns within each round, and the median of the rounds' ratios is
given, so that a machine that slows down halfway slows all of them down. ``--check`` exits with 1 when a ratio misses its goal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, Final

import noetic_nb as nn
from noetic_nb.items import ItemLog, assistant_message, input_message, item_tokens, parse_item
from noetic_nb.memory import (
    ExecutionContext,
    LayerStack,
    MemoryHooks,
    MemoryLayer,
    ProjectionPolicy,
    allocate_budgets,
    assemble_view,
    budget,
)
from noetic_nb.runs.prefix_reuse import CacheReader
from noetic_nb.runs.recorded_requests import RequestIndex
from noetic_nb.tokens import estimate_tokens

LAYERS: Final = 20
HISTORY: Final = 10_000
POLICY: Final = ProjectionPolicy(token_budget=128_000, response_reserve=4_000, overflow="truncate")
PLAIN: Final[dict[str, Any]] = {
    "id": "item_0123456789abcdef",
    "status": "completed",
    "type": "message",
    "role": "user",
    "content": [{"type": "input_text", "text": "Where is order A17? " * 4}],
}
# Name -> (what is measured, what it is measured against, at most so many times as much).
GOALS: Final = {
    "recall of 20 trivial layers / a bare loop of awaits": ("recall", "bare awaits", 3.0),
    "recall of 20 layers that really wait / the same, bare": ("recall, waiting", "bare awaits, waiting", None),
    "allocate_budgets, known / cold": ("allocate, known", "allocate, cold", 0.2),
    "assemble_view of 10 000 items / counting them again": ("assemble", "recount", 0.15),
    "assemble_view of 10 000 items that are no log / counting": ("assemble a list", "recount", None),
    "append of an item, counted / json.dumps of it": ("append", "json.dumps", 5.0),
    "a turn with a window after 1 500 turns / after 10": ("window, late", "window, early", 1.5),
    "a turn steered over its thread after 1 500 turns / after 110": ("thread rules, late", "thread rules, early", 1.5),
    "the same / steered over the execution": ("thread rules, late", "execution rules, late", 4.0),
    "a call with caching read / one whose request is read": ("cache read", "request read", 1.3),
    "a call with caching read / one that nobody reads": ("cache read", "call", None),
}


async def _said(params: Any) -> str:
    return "hello"


async def _said_later(params: Any) -> str:
    await asyncio.sleep(0)
    return "hello"


def _layers(recall: Any) -> list[MemoryLayer]:
    return [
        MemoryLayer(id=f"l{n}", slot=n, scope="thread", budget={"min": 0, "max": 100}, hooks=MemoryHooks(recall=recall))
        for n in range(LAYERS)
    ]


async def _bare(recall: Callable[[Any], Awaitable[str]]) -> list[tuple[Any, int]]:
    """Do what recall must do at least: ask each layer, count, make a message of it."""
    found = []
    for _ in range(LAYERS):
        text = await recall(None)
        found.append((input_message(text, "developer"), estimate_tokens(text)))
    return found


@nn.tool
def _look(what: str) -> str:
    """Look something up."""
    return what


async def _after(turns: int, *layers: MemoryLayer) -> nn.AgentHarness:
    """Return an agent that has had so many turns, with a call each."""

    def answer(request: Any) -> Any:
        return "Yes." if request.items[-1]["type"] == "function_call_output" else nn.CallTool("_look", what="it")

    config = nn.AgentConfig(
        name="desk", step=nn.react(model="m", tools=[_look]), memory=[*layers, nn.history_window(20)]
    )
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(answer))
    for _ in range(turns):
        await harness.execute("And now?")
    return harness


def _rules(scope: Any) -> MemoryLayer:
    book = nn.RuleBook()
    book.rule("harmless", on="before_tool_call")(lambda call: nn.allow())
    return nn.steering(book, scope=scope)


async def _read_by(reader: Any) -> nn.AgentHarness:
    """Return an agent with five layers, one of which changes at every call, whose run is read as it grows."""

    def says(at: int) -> Any:
        return lambda p: f"turn {p.ctx.turn} " * 20 if at == 3 else "the same " * 20

    layers = [MemoryLayer(id=f"l{at}", slot=at, scope="thread", hooks=MemoryHooks(recall=says(at))) for at in range(5)]
    step = nn.react(model="gpt-4o", instructions="You answer. " * 200)
    harness = nn.AgentHarness(
        nn.AgentConfig(name="desk", step=step, memory=layers), model=nn.ScriptedModel(lambda request: "yes " * 20)
    )
    run = nn.record(harness)
    if reader is not None:
        run.subscribe(lambda event: reader.take(event))
    for _ in range(100):
        await harness.execute("And now? " * 10)
    return harness


async def measure_turns(rounds: int, samples: dict[str, list[float]]) -> None:
    """Add what a turn costs late in a conversation, and early in it."""
    contestants = {
        "window, early": await _after(10),
        "window, late": await _after(1_500),
        # After 110 turns the ledger is full, and only the calls of the thread still grow.
        "thread rules, early": await _after(110, _rules("thread")),
        "thread rules, late": await _after(1_500, _rules("thread")),
        "execution rules, late": await _after(1_500, _rules("execution")),
        "call": await _read_by(None),
        "request read": await _read_by(RequestIndex()),
        "cache read": await _read_by(CacheReader()),
    }
    for _ in range(rounds):
        for name, harness in contestants.items():
            started = perf_counter()
            for _ in range(20):
                await harness.execute("And now?")
            samples.setdefault(name, []).append((perf_counter() - started) * 1e6 / 20)


async def measure(rounds: int) -> dict[str, list[float]]:
    """Return the cost of each operation in each round, microseconds."""
    samples: dict[str, list[float]] = {}

    async def timed(name: str, action: Callable[[], Any], times: int) -> None:
        started = perf_counter()
        for _ in range(times):
            done = action()
            if hasattr(done, "__await__"):
                await done
        samples.setdefault(name, []).append((perf_counter() - started) * 1e6 / times)

    ctx = ExecutionContext(execution_id="e", thread_id="t")
    trivial, waiting = LayerStack(_layers(_said)), LayerStack(_layers(_said_later))
    layers = _layers(_said)
    budgets = allocate_budgets(layers, total_budget=8_000, response_reserve=1_000).by_layer()
    asked: list[int] = []

    def counted(text: str) -> int:
        asked.append(1)
        return estimate_tokens(text)

    grown = ItemLog(tokenizer=counted)

    def split_cold() -> None:
        budget._KNOWN.clear()
        allocate_budgets(layers, total_budget=8_000, response_reserve=1_000)

    # Before the long history is made: a heap of 100 000 objects makes the collector's share of any loop a matter of luck.
    for _ in range(rounds):
        await timed("bare awaits", lambda: _bare(_said), 50)
        await timed("recall", lambda: trivial.recall(ctx, budgets=budgets), 50)
        await timed("bare awaits, waiting", lambda: _bare(_said_later), 20)
        await timed("recall, waiting", lambda: waiting.recall(ctx, budgets=budgets), 20)
        await timed("allocate, cold", split_cold, 200)
        await timed(
            "allocate, known", lambda: allocate_budgets(layers, total_budget=8_000, response_reserve=1_000), 200
        )
        await timed("json.dumps", lambda: json.dumps(PLAIN), 200)
        await timed("append", lambda: grown.append(PLAIN), 200)
    said = [
        (input_message if n % 2 else assistant_message)(f"remark number {n} " * 6, item_id=f"i{n}")
        for n in range(HISTORY)
    ]
    log = ItemLog(said)
    for _ in range(rounds):
        # Copies, because an item remembers its own count.
        copies = [parse_item(dict(item)) for item in said]
        await timed("recount", lambda items=copies: sum([item_tokens(item) for item in items]), 1)
        await timed("assemble", lambda: assemble_view([], [], log.items, POLICY), 5)
        await timed("assemble a list", lambda: assemble_view([], [], said, POLICY), 1)
    assert len(asked) == len(grown), "an item was counted twice"
    before = len(asked)
    assemble_view([], [], grown.items, POLICY, tokenizer=counted)
    assert len(asked) == before, "a view counted again what the log had counted"
    await measure_turns(rounds, samples)
    return samples


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--check", action="store_true", help="exit with 1 when a ratio misses its goal")
    options = parser.parse_args()
    cost = asyncio.run(measure(options.rounds))
    missed = 0
    for name, (ours, theirs, goal) in GOALS.items():
        ratio = statistics.median([a / b for a, b in zip(cost[ours], cost[theirs], strict=True)])
        mine, yours = statistics.median(cost[ours]), statistics.median(cost[theirs])
        verdict = "" if goal is None else f"goal <= {goal:g}" + ("" if ratio <= goal else "  MISSED")
        missed += goal is not None and ratio > goal
        print(f"{name:<58} {mine:9.2f} / {yours:9.2f} us = {ratio:6.3f}  {verdict}")
    return 1 if missed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
