"""What counting costs, each beside the plain work it stands for, in the same run. Needs the extra ``tokens``.

Run ``python -m benchmarks.tokens``. Contestants take turns within each round, and the median of the rounds' ratios is given.
``--check`` exits with 1 when a ratio misses its goal.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

import noetic_nb as nn
from noetic_nb.items import Item, ItemLog, item_text
from noetic_nb.lab import datasets
from noetic_nb.tokenizers import Tally, TokenCalibration

MEGABYTES: Final = 10_000_000
# Name -> (what is measured, what it is measured against, at most so many times as much).
GOALS: Final = {
    "an item, never counted / ordinary encoding of its text": ("items", "encoding", 1.2),
    "an item, counted before / the same": ("items again", "encoding", 0.05),
    "append of counted items to a log / the same": ("log", "encoding", None),
    "a text of 10 MB / its encoding in one piece": ("long text", "long encoding", 1.2),
    "a plan that is reconciled and learned from / one by the estimate": ("calibrated turn", "plain turn", None),
}


def fresh(items: list[Item]) -> list[Item]:
    """Return the items as nobody has counted them."""
    return [Item(item) for item in items]


def measure(rounds: int) -> dict[str, list[float]]:
    """Return microseconds, a value a round: for an item, for a text, for a turn."""
    counter: Any = nn.tokenizers.get("o200k_base")
    encode = counter._encode
    run = datasets.retail(4)
    items = [item for one in run for thread in one.threads for item in one.log(thread)]
    texts = [item_text(item) for item in items]
    long = ("Order #W4923227 isn't here yet; it was sent on Monday, by express. " * 200_000)[:MEGABYTES]
    cost: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[[], object], number: int) -> None:
        start = perf_counter()
        work()
        cost.setdefault(name, []).append((perf_counter() - start) / number * 1e6)

    for turn in range(rounds):
        unknown, logged = fresh(items), fresh(items)
        contest: list[tuple[str, Callable[[], object]]] = [
            ("encoding", lambda: [len(encode(text)) for text in texts]),
            ("items", lambda some=unknown: [nn.item_tokens(item, counter) for item in some]),
        ]
        # Whoever is first reads the texts and the vocabulary into the caches of the machine for the other.
        for text in texts:
            encode(text)
        for name, work in contest if turn % 2 else reversed(contest):
            timed(name, work, len(items))
        timed("items again", lambda some=unknown: [nn.item_tokens(item, counter) for item in some], len(items))
        timed("log", lambda some=logged: ItemLog(some, tokenizer=counter), len(items))
        if turn < 3:
            timed("long encoding", lambda: len(encode(long)), 1)
            timed("long text", lambda: counter(long), 1)
        for name, tokenizer in (("plain turn", None), ("calibrated turn", _learned())):
            timed(name, lambda given=tokenizer: asyncio.run(_talk(given)), 200)
    return cost


def _learned() -> TokenCalibration:
    calibration = TokenCalibration()
    for size in range(100):
        calibration.observe("m", Tally({"user": 100 + size}, 4), 140 + size)
    return calibration


async def _talk(tokenizer: TokenCalibration | None) -> None:
    config = nn.AgentConfig(name="desk", step=nn.react(model="m"))
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["It was sent."] * 200), tokenizer=tokenizer)
    for _ in range(200):
        await harness.execute("Where is order A17? It should have been here on Monday.")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--check", action="store_true", help="exit with 1 when a ratio misses its goal")
    options = parser.parse_args()
    cost = measure(options.rounds)
    missed = 0
    for name, (ours, theirs, goal) in GOALS.items():
        ratio = statistics.median([a / b for a, b in zip(cost[ours], cost[theirs], strict=True)])
        mine, yours = statistics.median(cost[ours]), statistics.median(cost[theirs])
        verdict = "" if goal is None else f"goal <= {goal:g}" + ("" if ratio <= goal else "  MISSED")
        missed += goal is not None and ratio > goal
        print(f"{name:<66} {mine:11.2f} / {yours:11.2f} us = {ratio:6.3f}  {verdict}")
    return 1 if missed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
