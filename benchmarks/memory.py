"""The costs of memory, each beside the plain work it stands for, in the same run.

Run ``python -m benchmarks.memory``. Floors ask, count and make the messages that the work is about, and nothing else.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import noetic_nb as nn
from benchmarks.comparing import WARM, Lines, alternate, parser
from noetic_nb.items import ItemLog, assistant_message, input_message, item_tokens, parse_item
from noetic_nb.memory import (
    ExecutionContext,
    LayerStack,
    MemoryHooks,
    MemoryLayer,
    ProjectionPolicy,
    allocate_budgets,
    assemble_view,
)
from noetic_nb.runs._requests.prefix_reuse import CacheReader
from noetic_nb.runs._requests.recorded_requests import RequestIndex
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
# The work measured, by name, its peer, and the most that the ratio may be.
CONTESTS: Final[dict[str, tuple[str, str, float | None]]] = {
    "recall of 20 trivial layers, counted and made messages of / a bare loop of awaits that does both": (
        "recall",
        "bare awaits",
        None,
    ),
    "the same of layers that really wait / the same loop": ("recall, waiting", "bare awaits, waiting", None),
    "allocate_budgets for 20 layers, nothing known of them / the bare arithmetic": (
        "allocate, cold",
        "arithmetic",
        None,
    ),
    "the same for a system prompt of another length each time / the bare arithmetic": (
        "allocate, changing",
        "arithmetic",
        None,
    ),
    "assemble_view of 10 000 items that were counted / counting them again": ("assemble", "recount", 0.15),
    "assemble_view of 10 000 items that are no log, counted before / counting them again": (
        "assemble a list",
        "recount",
        None,
    ),
    "append of an item, validated, frozen and counted / json.dumps of it": ("append", "json.dumps", None),
    "a turn with a window after 1 500 turns / the same after 10": ("window, late", "window, early", 1.5),
    "a turn steered over its thread after 1 500 turns / after 110": ("thread rules, late", "thread rules, early", 1.5),
    "a turn steered over its thread after 1 500 turns / steered over the execution": (
        "thread rules, late",
        "execution rules, late",
        4.0,
    ),
    "a call with caching read / one whose request is read": ("cache read", "request read", None),
    "a call with caching read / one that nobody reads": ("cache read", "call", None),
}
LINES: Final = {what: goal for what, (_, _, goal) in CONTESTS.items()}


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


async def turns(rounds: int) -> dict[str, list[float]]:
    """Return what a turn costs late in a conversation, and early in it."""
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
    asked = {name: lambda harness=harness: harness.execute("And now?") for name, harness in contestants.items()}
    return await alternate(asked, rounds=rounds, times=20)


async def small_work(rounds: int) -> dict[str, list[float]]:
    """Return what recall, the split of budgets and an append cost."""
    ctx = ExecutionContext(execution_id="e", thread_id="t")
    trivial, waiting = LayerStack(_layers(_said)), LayerStack(_layers(_said_later))
    layers = _layers(_said)
    ranges = [(0.0, 100.0)] * LAYERS
    budgets = allocate_budgets(layers, total_budget=8_000, response_reserve=1_000).by_layer()
    grown = ItemLog(tokenizer=estimate_tokens)
    lengths = itertools.count()

    def arithmetic() -> list[tuple[str, float]]:
        rest = 8_000 - 1_000 - sum([low for low, _ in ranges])
        pool = 0.6 * rest
        rooms = [high - low for low, high in ranges]
        total = sum(rooms)
        return [
            (f"l{n}", low + min(room / total * pool, room))
            for n, ((low, _), room) in enumerate(zip(ranges, rooms, strict=True))
        ]

    def cold() -> None:
        allocate_budgets(layers, total_budget=8_000, response_reserve=1_000)

    def changing() -> None:
        length = next(lengths) % 5_000  # many more than are remembered
        allocate_budgets(layers, total_budget=8_000, response_reserve=1_000, system_prompt_tokens=length)

    works: dict[str, Callable[[], Any]] = {
        "bare awaits": lambda: _bare(_said),
        "recall": lambda: trivial.recall(ctx, budgets=budgets),
        "bare awaits, waiting": lambda: _bare(_said_later),
        "recall, waiting": lambda: waiting.recall(ctx, budgets=budgets),
        "arithmetic": arithmetic,
        "allocate, cold": cold,
        "allocate, changing": changing,
        "json.dumps": lambda: json.dumps(PLAIN),
        "append": lambda: grown.append(PLAIN),
    }
    return await alternate(works, rounds=rounds, times=50)


async def views(rounds: int) -> dict[str, list[float]]:
    """Return what a view of a long history costs."""
    said = [
        (input_message if n % 2 else assistant_message)(f"remark number {n} " * 6, item_id=f"i{n}")
        for n in range(HISTORY)
    ]
    asked: list[int] = []

    def counted(text: str) -> int:
        asked.append(1)
        return estimate_tokens(text)

    log = ItemLog(said, tokenizer=counted)
    before = len(asked)
    assemble_view([], [], log.items, POLICY, tokenizer=counted)
    assert len(asked) == before, "a view counted again what the log had counted"
    # Copies, because an item remembers its own count, and both sides of a comparison read as many.
    copies = iter([[parse_item(dict(item)) for item in said] for _ in range(rounds + WARM)])
    known = ItemLog(said)
    works: dict[str, Callable[[], Any]] = {
        "recount": lambda: sum([item_tokens(item) for item in next(copies)]),
        "assemble": lambda: assemble_view([], [], known.items, POLICY),
        "assemble a list": lambda: assemble_view([], [], said, POLICY),
    }
    return await alternate(works, rounds=rounds)


async def measure(rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each operation in each round."""
    # The small work before the long history is made: in a heap of 100 000 objects the collector's share is a matter of luck.
    return await small_work(rounds) | await views(rounds) | await turns(rounds)


def main() -> int:
    """Measure and print."""
    options = parser(__doc__, rounds=15).parse_args()
    cost = asyncio.run(measure(options.rounds))
    lines = Lines(LINES)
    for name, (mine, other, _) in CONTESTS.items():
        lines.ratio(name, cost[mine], cost[other])
    return lines.end(options)


if __name__ == "__main__":
    sys.exit(main())
