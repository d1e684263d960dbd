"""Time a turn beside the same turn in LangGraph, with a model that answers at once; prints ratios of one run.

Absolute figures move with the machine: judge the ratios. The parts alternate within each round, so that a slow moment of
the machine hits both. Run with ``python -m benchmarks.runtime``; ``--soak`` adds a conversation of 10 000 turns.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import noetic_nb as nn
from noetic_nb.items import assistant_message, input_message

# The script of both models; each makes a new message of it for every answer, as a real one would.
ANSWER = "Order A17 is packed."
CALL = nn.CallTool("lookup", order_id="A17")
QUESTION = "Where is order A17?"

# A turn in a fresh process, imports included: seconds, and the resident memory it leaves, in KiB.
COLD_OURS = """
import time; start = time.perf_counter()
import asyncio
import noetic_nb as nn
config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"))
harness = nn.AgentHarness(config, model=nn.ScriptedModel(["hello"]))
assert asyncio.run(harness.execute("hi")).text == "hello"
took = time.perf_counter() - start
print(took, open("/proc/self/status").read().split("VmRSS:")[1].split()[0])
"""
COLD_PEER = """
import time; start = time.perf_counter()
import asyncio
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
agent = create_agent(FakeMessagesListChatModel(responses=[AIMessage("hello")]), tools=[])
state = asyncio.run(agent.ainvoke({"messages": [{"role": "user", "content": "hi"}]}))
assert state["messages"][-1].content == "hello"
took = time.perf_counter() - start
print(took, open("/proc/self/status").read().split("VmRSS:")[1].split()[0])
"""

Turn = Callable[[], Awaitable[Any]]


def lookup(order_id: str) -> dict[str, str]:
    """Find one order."""
    return {"order": order_id, "state": "packed"}


def _answers(with_tool: bool) -> Callable[[nn.ModelRequest], Any]:
    def answer(request: nn.ModelRequest) -> Any:
        asks = with_tool and request.items[-1]["type"] == "message"
        return CALL if asks else ANSWER

    return answer


def ours(*, with_tool: bool = False, budget: float = 10_000_000) -> tuple[nn.AgentHarness, nn.ScriptedModel]:
    """Return an agent of this library, and its model."""
    tools = [nn.tool(lookup)] if with_tool else []
    policy = nn.ProjectionPolicy(token_budget=budget, response_reserve=1_000, overflow="truncate")
    step = nn.react(model="scripted", instructions="You answer questions about orders.", tools=tools)
    config = nn.AgentConfig(name="desk", step=step, projection=policy)
    model = nn.ScriptedModel(_answers(with_tool))
    return nn.AgentHarness(config, model=model), model


def peer(*, with_tool: bool = False, remembers: bool = False) -> Any:
    """Return the same agent in LangGraph, around the fake chat model of its own core library."""
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langgraph.checkpoint.memory import InMemorySaver

    def answers() -> Iterator[AIMessage]:
        for number in itertools.count():
            if with_tool:
                call = {"name": "lookup", "args": {"order_id": "A17"}, "id": f"c{number}"}
                yield AIMessage("", tool_calls=[call])
            yield AIMessage(ANSWER)

    class Fake(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self

    return create_agent(
        Fake(messages=answers()),
        tools=[lookup] if with_tool else [],
        system_prompt="You answer questions about orders.",
        checkpointer=InMemorySaver() if remembers else None,
    )


def _message(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def _fresh_turns(with_tool: bool) -> tuple[Turn, Turn]:
    """Return one turn of a new conversation, ours and the peer's."""
    (harness, model), graph = ours(with_tool=with_tool), peer(with_tool=with_tool)
    count = iter(range(10**9))

    async def one() -> None:
        name = f"t{next(count)}"
        assert (await harness.execute(QUESTION, thread_id=name)).text == ANSWER
        harness.close_thread(name)
        model.reset()  # it keeps its requests for tests to look at; a real client keeps none

    async def other() -> None:
        state = await graph.ainvoke(_message(QUESTION))
        assert state["messages"][-1].content == ANSWER

    return one, other


def _conversations(turns: int) -> tuple[Turn, Turn]:
    """Return a whole conversation, ours and the peer's."""
    (harness, model), graph = ours(), peer(remembers=True)
    count = iter(range(10**9))

    async def one() -> None:
        name = f"t{next(count)}"
        for _ in range(turns):
            await harness.execute(QUESTION, thread_id=name)
        harness.close_thread(name)
        model.reset()  # it keeps its requests for tests to look at; a real client keeps none

    async def other() -> None:
        config = {"configurable": {"thread_id": f"t{next(count)}"}}
        for _ in range(turns):
            await graph.ainvoke(_message(QUESTION), config)

    return one, other


async def _timed(work: Turn, times: int) -> float:
    """Return milliseconds per call."""
    start = time.perf_counter()
    for _ in range(times):
        await work()
    return (time.perf_counter() - start) * 1_000 / times


async def compare(pair: tuple[Turn, Turn], *, rounds: int, times: tuple[int, int]) -> tuple[float, float]:
    """Return medians of milliseconds, the parts alternating."""
    for work in pair:
        await _timed(work, 3)
    found: tuple[list[float], list[float]] = ([], [])
    gc.collect()
    for _ in range(rounds):
        for index, work in enumerate(pair):
            found[index].append(await _timed(work, times[index]))
    return statistics.median(found[0]), statistics.median(found[1])


def _history(length: int) -> Sequence[Any]:
    return [
        (assistant_message if n % 2 else input_message)(f"message number {n} of a long talk") for n in range(length)
    ]


async def history(lengths: tuple[int, int], *, rounds: int, times: int) -> list[float]:
    """Return milliseconds of a turn behind so many items of history, everything sent."""
    threads = {}
    for length in lengths:
        harness, _ = ours()
        harness.seed("long", _history(length))
        threads[length] = harness

    def turn(harness: nn.AgentHarness) -> Turn:
        return lambda: harness.execute(QUESTION, thread_id="long")

    works = [turn(threads[length]) for length in lengths]
    found: list[list[float]] = [[] for _ in lengths]
    for _ in range(rounds):
        for index, work in enumerate(works):
            found[index].append(await _timed(work, times))
    return [statistics.median(values) for values in found]


async def peer_history(length: int) -> float:
    """Return milliseconds of the peer's turn behind so many messages."""
    from langchain_core.messages import AIMessage, HumanMessage

    graph = peer(remembers=True)
    config = {"configurable": {"thread_id": "long"}}
    graph.update_state(config, {"messages": [(AIMessage if n % 2 else HumanMessage)(f"m{n}") for n in range(length)]})
    return await _timed(lambda: graph.ainvoke(_message(QUESTION), config), 5)


def cold(script: str, *, times: int) -> tuple[float, float]:
    """Return medians of seconds and resident KiB of a script in a process of its own."""
    rows = []
    for _ in range(times):
        done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
        rows.append(tuple(map(float, done.stdout.split())))
    return statistics.median(row[0] for row in rows), statistics.median(row[1] for row in rows)


async def soak(turns: int) -> dict[str, float]:
    """Return KiB that the log of a conversation takes per turn, and KiB held beyond it: after a thousand turns, and at the end.

    What is held beyond a log is what is left when its thread is closed, so that anything that grows with the turns, in the
    thread or beside it, shows: either the log seems to take more per turn in the long conversation, or more is left.
    """
    harness, model = ours(budget=20_000)
    await harness.execute(QUESTION, thread_id="warm")
    tracemalloc.start()
    report: dict[str, float] = {}
    for length in (1_000, turns):
        for _ in range(length):
            await harness.execute(QUESTION, thread_id="soak")
            model.reset()
        gc.collect()
        whole = tracemalloc.get_traced_memory()[0]
        harness.close_thread("soak")
        gc.collect()
        rest = tracemalloc.get_traced_memory()[0]
        report[f"log, KiB per turn, {length} turns"] = (whole - rest) / 1024 / length
        report[f"beyond the log, KiB, {length} turns"] = rest / 1024
    tracemalloc.stop()
    return report


async def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure everything and print it."""
    rounds = arguments.rounds
    report: dict[str, Any] = {}

    def line(name: str, mine: float, other: float, target: str, unit: str = "ms") -> None:
        report[name] = {"ours": mine, "peer": other, "ratio": mine / other}
        print(f"{name:34} {mine:10.3f} {unit} {other:10.3f} {unit}   {mine / other:6.3f}x   ({target})", flush=True)

    print(f"{'':34} {'noetic_nb':>13} {'LangGraph':>13}   ratio")
    # So many of each that both take about as long: neither finds the processor's caches colder than the other.
    line("turn, no tool", *await compare(_fresh_turns(False), rounds=rounds, times=(400, 20)), "<= 0.06x")
    line("turn, one tool", *await compare(_fresh_turns(True), rounds=rounds, times=(250, 10)), "<= 0.04x")
    line("conversation of 20 turns", *await compare(_conversations(20), rounds=rounds, times=(20, 1)), "<= 0.06x")
    short, long = await history((10, 10_000), rounds=rounds, times=20)
    line("turn, 10 000 items : 10 items", long, short, "<= 3x, both ours")
    line("turn, 10 000 items", long, await peer_history(10_000), "")
    mine, other = cold(COLD_OURS, times=3), cold(COLD_PEER, times=3)
    line("first turn in a fresh process", mine[0], other[0], "<= 0.6x", "s ")
    line("resident memory after it", mine[1] / 1024, other[1] / 1024, "<= 0.5x", "MB")
    if arguments.soak:
        held = await soak(10_000)
        report["soak"] = held
        for name, value in held.items():
            print(f"{name:40} {value:10.3f}")
    return report


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    figures = asyncio.run(main(options))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=2)
