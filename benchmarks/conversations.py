"""Conversations that last, and many at once: with checkpoints on both sides, ours beside LangGraph's in the same run.

Run ``python -m benchmarks.conversations``. Both sides have a native async model that answers at once, both save every turn
before they answer, both are warmed up; contestants take turns within each round, as often each, and medians are compared.

* A conversation of 20 turns, in memory (its ``InMemorySaver``) and in SQLite (its ``AsyncSqliteSaver``).
* A turn that was killed in its second model call, resumed in a new harness: all that it takes, its own work included.
* A thread of 10 000 turns: to read it, and what its next turn takes beside the first of another.
* 1 000 conversations side by side on one loop in SQLite: turns a second, how evenly, and the memory of a thread at rest.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import statistics
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import noetic_nb as nn
from benchmarks.comparing import Lines, parser
from noetic_nb.items import assistant_message
from noetic_nb.models import ModelRequest, ModelResponse, Usage
from noetic_nb.storage import InMemoryStorage, SQLiteStorage

ANSWER: Final = "Order A17 is packed."
QUESTION: Final = "Where is order A17?"
SYSTEM: Final = "You answer questions about orders."
TURNS: Final = 20
LONG: Final = 10_000
PARTS: Final = ("resume", "long", "memory", "talk", "many")
LINES: Final[dict[str, float | None]] = {
    "a turn killed in its second model call, resumed in a new harness / a new turn": None,
    "a turn killed in its second model call, resumed, beyond a new turn": 5,
    "a thread of 10 000 turns is read": 300,
    "the next turn of a thread of 10 000 turns / a first turn": 1.2,
    "memory of a thread at rest, one turn old": 12,
    "memory of a thread once it is closed": 0.1,
    "20 turns, each saved in memory / LangGraph's with its InMemorySaver": 0.08,
    "20 turns, each saved in SQLite / LangGraph's with its AsyncSqliteSaver": 0.08,
    "a turn each of many conversations side by side, saved in SQLite / LangGraph's with its AsyncSqliteSaver": 0.1,
    "latency of a turn each of many conversations, saved in SQLite, p99 / p50": 5,
}
# A turn whose process dies in its second model call: by then a step has ended and the tool has run.
KILLED: Final = """
import asyncio, os, sys
import noetic_nb as nn
from noetic_nb.storage import SQLiteStorage

def answer(request):
    if request.items[-1]["type"] == "message":
        return nn.CallTool("lookup", order_id="A17")
    os._exit(0)

@nn.tool
def lookup(order_id: str) -> str:
    "Find an order."
    return "packed"

step = nn.react(model="m", tools=[lookup])
harness = nn.AgentHarness(nn.AgentConfig(name="desk", step=step), model=nn.ScriptedModel(answer),
                          storage=SQLiteStorage(sys.argv[1]), checkpoints=True)
asyncio.run(harness.execute("Where is order A17?", thread_id="t1"))
"""

Turn = Callable[[], Awaitable[Any]]


class Answering:
    """A model that answers at once and keeps nothing."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Return the same answer, made anew."""
        return ModelResponse((assistant_message(ANSWER),), Usage(20, 8))


def ours(storage: Any) -> nn.AgentHarness:
    """Return an agent of this library that saves its conversations."""
    step = nn.react(model="m", instructions=SYSTEM)
    config = nn.AgentConfig(name="desk", step=step)
    return nn.AgentHarness(config, model=Answering(), storage=storage, checkpoints=True)


def peer(saver: Any) -> Any:
    """Return the same agent in LangGraph."""
    from langchain.agents import create_agent
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Fake(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "fake"

        def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
            return ChatResult(generations=[ChatGeneration(message=AIMessage(ANSWER))])

        async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
            return self._generate()

    return create_agent(Fake(), tools=[], system_prompt=SYSTEM, checkpointer=saver)


async def say(harness: nn.AgentHarness, thread_id: str) -> None:
    """Run one turn, which has to be saved."""
    reply = await harness.execute(QUESTION, thread_id=thread_id)
    assert reply.saved is True
    assert reply.text == ANSWER


async def say_there(graph: Any, thread_id: str) -> None:
    """Run one turn of the peer."""
    given = {"messages": [{"role": "user", "content": QUESTION}]}
    state = await graph.ainvoke(given, {"configurable": {"thread_id": thread_id}})
    assert state["messages"][-1].content == ANSWER


@asynccontextmanager
async def both(folder: Path | None) -> AsyncIterator[tuple[nn.AgentHarness, Any]]:
    """Open an agent of each side: in memory, or in files of a folder."""
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    if folder is None:
        yield ours(InMemoryStorage()), peer(InMemorySaver())
        return
    async with (
        SQLiteStorage(folder / "ours.db") as storage,
        AsyncSqliteSaver.from_conn_string(str(folder / "peer.db")) as saver,
    ):
        yield ours(storage), peer(saver)


async def timed(work: Awaitable[Any]) -> float:
    """Return milliseconds."""
    start = perf_counter()
    await work
    return (perf_counter() - start) * 1_000


async def compare(*works: Turn, rounds: int) -> list[float]:
    """Return the medians of milliseconds; each is warmed up, and they alternate."""
    for work in works:
        await work()
        await work()
    gc.collect()
    found: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for index, work in enumerate(works):
            found[index].append(await timed(work()))
    return [statistics.median(values) for values in found]


async def conversation(folder: Path | None, *, rounds: int) -> list[float]:
    """Return milliseconds of a conversation of some turns, ours and the peer's."""
    names = (f"t{number}" for number in itertools.count())
    async with both(folder) as (harness, graph):

        async def one() -> None:
            name = next(names)
            for _ in range(TURNS):
                await say(harness, name)
            harness.close_thread(name)

        async def other() -> None:
            name = next(names)
            for _ in range(TURNS):
                await say_there(graph, name)

        return await compare(one, other, rounds=rounds)


def killed(folder: Path, *, times: int) -> list[str]:
    """Return databases in which a process was killed in the middle of a turn."""
    paths = [str(folder / f"{number}.db") for number in range(times)]
    for path in paths:
        subprocess.run([sys.executable, "-c", KILLED, path], check=True)
    return paths


async def resumed(paths: Sequence[str]) -> tuple[float, float]:
    """Return milliseconds that a killed turn takes to end in a new harness, and the same model call in a new turn."""
    found: list[float] = []
    fresh: list[float] = []
    for path in paths:
        async with SQLiteStorage(path) as storage:
            config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[lookup]))
            harness = nn.AgentHarness(config, model=Answering(), storage=storage, checkpoints=True)
            await say(harness, "warm")
            fresh.append(await timed(say(harness, "fresh")))
            (execution_id,) = await harness.unfinished()
            found.append(await timed(harness.resume(execution_id)))
    return statistics.median(found), statistics.median(fresh)


@nn.tool
def lookup(order_id: str) -> str:
    """Find an order."""
    return "packed"


async def long_thread(folder: Path, turns: int, *, rounds: int) -> tuple[float, float, float]:
    """Return milliseconds to read a thread of so many turns, of its next turn, and of a turn of a short one."""
    async with SQLiteStorage(folder / "long.db") as storage:
        writer = ours(storage)
        for _ in range(turns):
            await say(writer, "long")
        del writer
        read: list[float] = []
        late: list[float] = []
        first: list[float] = []
        for number in range(rounds):
            harness = ours(storage)
            await say(harness, f"warm{number}")
            gc.collect()
            read.append(await timed(harness.load_thread("long")))
            for index in range(20):
                first.append(await timed(say(harness, f"first{number}_{index}")))
                late.append(await timed(say(harness, "long")))
        return statistics.median(read), statistics.median(late), statistics.median(first)


async def side_by_side(folder: Path, threads: int, *, rounds: int) -> dict[str, float]:
    """Return turns a second of both sides, the latencies of ours, and KiB that a thread takes."""
    async with both(folder) as (harness, graph):
        took: list[float] = []
        # Everybody asks at once: who is served late has waited since then, wherever it was that he waited.
        asked = perf_counter()

        async def one(name: str) -> None:
            await say(harness, name)
            took.append((perf_counter() - asked) * 1_000)

        await asyncio.gather(*(one(f"warm{n}") for n in range(10)))
        await asyncio.gather(*(say_there(graph, f"warm{n}") for n in range(10)))
        mine: list[float] = []
        other: list[float] = []
        even: list[tuple[float, float]] = []
        for number in range(rounds):
            took.clear()
            gc.collect()
            asked = perf_counter()
            mine.append(await timed(asyncio.gather(*(one(f"r{number}_{n}") for n in range(threads)))))
            took.sort()
            even.append((took[len(took) // 2], took[int(len(took) * 0.99)]))
            gc.collect()
            other.append(await timed(asyncio.gather(*(say_there(graph, f"r{number}_{n}") for n in range(threads)))))
        middle = even[len(even) // 2]
        return {
            "ours": threads / statistics.median(mine) * 1_000,
            "LangGraph": threads / statistics.median(other) * 1_000,
            "p50": middle[0],
            "p99": middle[1],
        }


async def memory(folder: Path, threads: int) -> tuple[float, float]:
    """Return KiB that a thread takes at rest, and what is left of each once it is closed."""
    async with SQLiteStorage(folder / "ours.db") as storage:
        harness = ours(storage)
        tracemalloc.start()  # from the beginning: a table that takes the place of another one counts as nothing
        for _ in range(2):  # asyncio's own table of tasks, 128 KiB, has not always grown to its size after the first
            await asyncio.gather(*(say(harness, f"warm{n}") for n in range(threads)))
            for number in range(threads):
                harness.close_thread(f"warm{number}")
        await asyncio.sleep(0)  # asyncio itself keeps the tasks of the last `gather` until somebody waits again
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        await asyncio.gather(*(say(harness, f"t{n}") for n in range(threads)))
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        for number in range(threads):
            harness.close_thread(f"t{number}")
        await asyncio.sleep(0)
        gc.collect()
        left = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return (held - before) / 1024 / threads, (left - before) / 1024 / threads


def main(arguments: argparse.Namespace) -> int:
    """Measure everything and print it."""
    rounds, threads, lines = arguments.rounds, arguments.threads, Lines(LINES)

    def ratio(what: str, mine: float, other: float, about: str = "") -> None:
        lines.ratio(what, mine / 1_000, other / 1_000, about=about, unit="ms")

    with tempfile.TemporaryDirectory() as name:
        folders = {part: Path(name) / part for part in PARTS}
        for folder in folders.values():
            folder.mkdir()
        # Ours alone first: what a peer has loaded would be looked through by every collection of garbage.
        if "resume" in arguments.parts:
            paths = killed(folders["resume"], times=5)
            again, new = asyncio.run(resumed(paths))
            ratio("a turn killed in its second model call, resumed in a new harness / a new turn", again, new)
            lines.value("a turn killed in its second model call, resumed, beyond a new turn", again - new)
        if "long" in arguments.parts:
            read, late, first = asyncio.run(long_thread(folders["long"], LONG, rounds=5))
            lines.value("a thread of 10 000 turns is read", read)
            ratio("the next turn of a thread of 10 000 turns / a first turn", late, first)
        if "memory" in arguments.parts:
            held, left = asyncio.run(memory(folders["memory"], threads))
            lines.value("memory of a thread at rest, one turn old", held, about=f"of {threads:,}", unit="KiB")
            lines.value("memory of a thread once it is closed", left, unit="KiB")
        if "talk" in arguments.parts:
            found = asyncio.run(conversation(None, rounds=rounds))
            ratio("20 turns, each saved in memory / LangGraph's with its InMemorySaver", *found)
            found = asyncio.run(conversation(folders["talk"], rounds=rounds))
            ratio("20 turns, each saved in SQLite / LangGraph's with its AsyncSqliteSaver", *found)
        if "many" in arguments.parts:
            many = asyncio.run(side_by_side(folders["many"], threads, rounds=3))
            mine, other = 1_000 / many["ours"], 1_000 / many["LangGraph"]
            what = "a turn each of many conversations side by side, saved in SQLite / LangGraph's with its AsyncSqliteSaver"
            ratio(what, mine, other, f"{threads:,} of them")
            ratio("latency of a turn each of many conversations, saved in SQLite, p99 / p50", many["p99"], many["p50"])
    return lines.end(arguments)


if __name__ == "__main__":
    given = parser(__doc__, rounds=7)
    given.add_argument("--threads", type=int, default=1_000, help="conversations side by side")
    given.add_argument("parts", nargs="*", default=PARTS, help=f"of {', '.join(PARTS)}; all by default")
    sys.exit(main(given.parse_args()))
