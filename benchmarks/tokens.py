"""The costs of counting, each beside the plain work it stands for, in the same run. Needs the extra ``tokens``.

Run ``python -m benchmarks.tokens``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import noetic_nb as nn
from benchmarks.comparing import WARM, Lines, alternate, parser
from noetic_nb.items import Item, ItemLog, item_text
from noetic_nb.lab import datasets
from noetic_nb.tokenizers import Tally, TokenCalibration

MEGABYTES: Final = 10_000_000
# The work measured, by name, its peer, and the most that the ratio may be.
CONTESTS: Final[dict[str, tuple[str, str, float | None]]] = {
    "items of four conversations, never counted / ordinary encoding of their texts": ("items", "encoding", 1.2),
    "items of four conversations, counted before / ordinary encoding of their texts": ("items again", "encoding", 0.05),
    "a log made of them / ordinary encoding of their texts": ("log", "encoding", None),
    "a text of 10 MB / its encoding in one piece": ("long text", "long encoding", 1.2),
    "200 turns whose plans are reconciled and learned from / 200 turns by the estimate": (
        "calibrated turn",
        "plain turn",
        None,
    ),
}
LINES: Final = {what: goal for what, (_, _, goal) in CONTESTS.items()}


def fresh(items: list[Item]) -> list[Item]:
    """Return the items as nobody has counted them."""
    return [Item(item) for item in items]


async def measure(rounds: int) -> dict[str, list[float]]:
    """Return seconds, a value a round: for all items, for a text, for a conversation."""
    counter: Any = nn.tokenizers.get("o200k_base")
    encode = counter._encode
    run = datasets.retail(4)
    items = [item for one in run for thread in one.threads for item in one.log(thread)]
    texts = [item_text(item) for item in items]
    long = ("Order #W4923227 isn't here yet; it was sent on Monday, by express. " * 200_000)[:MEGABYTES]

    def unknown() -> Iterator[list[Item]]:
        return iter([fresh(items) for _ in range(rounds + WARM)])

    counted, logged = unknown(), unknown()
    works: dict[str, Callable[[], object]] = {
        "encoding": lambda: [len(encode(text)) for text in texts],
        "items": lambda: [nn.item_tokens(item, counter) for item in next(counted)],
        "items again": lambda: [nn.item_tokens(item, counter) for item in items],
        "log": lambda: ItemLog(next(logged), tokenizer=counter),
        "plain turn": lambda: _talk(None),
        "calibrated turn": lambda: _talk(_learned()),
    }
    for text in texts:  # the texts and the vocabulary are in the caches of the machine for whoever is first
        encode(text)
    short = await alternate(works, rounds=rounds)
    texts_too = {"long encoding": lambda: len(encode(long)), "long text": lambda: counter(long)}
    return short | await alternate(texts_too, rounds=3)


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
    options = parser(__doc__, rounds=11).parse_args()
    cost = asyncio.run(measure(options.rounds))
    lines = Lines(LINES)
    for name, (mine, other, _) in CONTESTS.items():
        lines.ratio(name, cost[mine], cost[other], unit="ms")
    return lines.end(options)


if __name__ == "__main__":
    sys.exit(main())
