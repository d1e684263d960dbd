"""A turn of ours beside the same turn in LangGraph, both with a native async model that answers at once.

Run ``python -m benchmarks.runtime``. Each line says what both sides do: tools are native coroutines on both, a conversation is
saved on both or on neither, both are warmed up and timed as often. Conversations of many turns are in
``benchmarks.conversations``.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import sys
import tracemalloc
from collections.abc import Sequence
from typing import Any, Final

import noetic_nb as nn
from benchmarks.comparing import Lines, Work, alternate, fresh, parser
from benchmarks.turns import notes, rule
from noetic_nb.items import assistant_message, function_call, input_message
from noetic_nb.models import ModelRequest, ModelResponse, Usage
from noetic_nb.storage import InMemoryStorage

ANSWER: Final = "Order A17 is packed."
QUESTION: Final = "Where is order A17?"
SYSTEM: Final = "You answer questions about orders."
SAID: Final = "message number {} of a long talk"
LINES: Final[dict[str, float | None]] = {
    "turn of a new conversation, no tool, async model, not saved / LangGraph's": 0.055,
    "turn of a new conversation, one async tool, async model, not saved / LangGraph's": 0.06,
    "turn of a new conversation, one def tool in its thread, async model, not saved / LangGraph's": 0.15,
    "turn with five layers and ten rules, one async tool, not saved / LangGraph's with the tool alone": 0.2,
    "turn behind 10 000 items, all sent, not saved / behind 10 items": 3,
    "turn behind 10 000 items, all sent, not saved / LangGraph's": None,
    "turn behind 10 000 items, all sent, saved in memory / behind 10 items": 3,
    "turn behind 10 000 items, all sent, saved in memory / LangGraph's": None,
    "import, first agent and its first turn in a fresh process, compiled before / LangGraph's": 0.2,
    "resident memory after the first turn of a fresh process / LangGraph's": 0.5,
    "log of a conversation of 10 000 turns, per turn / of 1 000 turns": 1.1,
    "held beyond the log once a conversation of 10 000 turns is closed / of 1 000 turns": None,
}
COLD_ROUNDS: Final = 5

# Import, an agent, and its first turn, in a fresh process: seconds of the processor, and the resident memory it leaves, in KiB.
_COLD: Final = """
import time; start = time.process_time()
import asyncio
{work}
print(time.process_time() - start, open("/proc/self/status").read().split("VmRSS:")[1].split()[0])
"""
COLD_OURS: Final = """
import noetic_nb as nn
config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"))
harness = nn.AgentHarness(config, model=nn.ScriptedModel(["hello"]))
assert asyncio.run(harness.execute("hi")).text == "hello"
"""
COLD_PEER: Final = """
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
agent = create_agent(FakeMessagesListChatModel(responses=[AIMessage("hello")]), tools=[])
state = asyncio.run(agent.ainvoke({"messages": [{"role": "user", "content": "hi"}]}))
assert state["messages"][-1].content == "hello"
"""


async def lookup(order_id: str) -> dict[str, str]:
    """Find one order."""
    return {"order": order_id, "state": "packed"}


def lookup_in_a_thread(order_id: str) -> dict[str, str]:
    """Find one order."""
    return {"order": order_id, "state": "packed"}


class Answering:
    """A model that answers at once and keeps nothing; where there is a tool it asks for that first."""

    def __init__(self, with_tool: bool) -> None:
        self._with_tool = with_tool
        self._calls = itertools.count()

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Return the same answer, made anew."""
        if self._with_tool and request.items[-1]["type"] == "message":
            name = next(iter(request.tools)).name
            return ModelResponse((function_call(name, '{"order_id": "A17"}', f"c{next(self._calls)}"),), Usage(20, 8))
        return ModelResponse((assistant_message(ANSWER),), Usage(20, 8))


def ours(
    *, tool: Any = None, saves: bool = False, budget: float = 10_000_000, memory: Sequence[Any] = ()
) -> nn.AgentHarness:
    """Return an agent of this library."""
    tools = [] if tool is None else [nn.tool(tool)]
    policy = nn.ProjectionPolicy(token_budget=budget, response_reserve=1_000, overflow="truncate")
    step = nn.react(model="scripted", instructions=SYSTEM, tools=tools)
    config = nn.AgentConfig(name="desk", step=step, projection=policy, memory=memory)
    kept: dict[str, Any] = {"storage": InMemoryStorage(), "checkpoints": True} if saves else {}
    return nn.AgentHarness(config, model=Answering(tool is not None), **kept)


def peer(*, tool: Any = None, saves: bool = False) -> Any:
    """Return the same agent in LangGraph, around a chat model that is a coroutine as well."""
    from langchain.agents import create_agent
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langgraph.checkpoint.memory import InMemorySaver

    calls = itertools.count()

    class Fake(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "fake"

        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self

        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
            message = AIMessage(ANSWER)
            if tool is not None and messages[-1].type == "human":
                call = {"name": tool.__name__, "args": {"order_id": "A17"}, "id": f"c{next(calls)}"}
                message = AIMessage("", tool_calls=[call])
            return ChatResult(generations=[ChatGeneration(message=message)])

        async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
            return self._generate(messages)

    tools = [] if tool is None else [tool]
    return create_agent(Fake(), tools=tools, system_prompt=SYSTEM, checkpointer=InMemorySaver() if saves else None)


def _message(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def fresh_turns(tool: Any, memory: Sequence[Any] = ()) -> dict[str, Work]:
    """Return one turn of a new conversation that is not saved, ours, with some layers, and the peer's."""
    harness, graph = ours(tool=tool, memory=memory), peer(tool=tool)
    names = (f"t{number}" for number in itertools.count())

    async def one() -> None:
        name = next(names)
        assert (await harness.execute(QUESTION, thread_id=name)).text == ANSWER
        harness.close_thread(name)

    async def other() -> None:
        state = await graph.ainvoke(_message(QUESTION))
        assert state["messages"][-1].content == ANSWER

    return {"ours": one, "peer": other}


def _history(length: int) -> Sequence[Any]:
    return [(assistant_message if n % 2 else input_message)(SAID.format(n)) for n in range(length)]


def long_turns(length: int, *, saves: bool) -> dict[str, Work]:
    """Return a turn behind so many items, all of them sent, ours and the peer's; and ours behind ten."""
    from langchain_core.messages import AIMessage, HumanMessage

    graph = peer(saves=saves)
    config = {"configurable": {"thread_id": "long"}}
    said = [(AIMessage if n % 2 else HumanMessage)(SAID.format(n), id=f"m{n}") for n in range(length)]
    if saves:
        graph.update_state(config, {"messages": said})

    async def other() -> None:
        # A graph that saves nothing is given the conversation again, which is how it goes on there.
        asked = _message(QUESTION)["messages"]
        state = await graph.ainvoke({"messages": asked if saves else [*said, *asked]}, config)
        assert len(state["messages"]) > length

    def turn(items: int) -> Work:
        harness = ours(saves=saves)
        harness.seed("long", _history(items))

        async def one() -> None:
            assert (await harness.execute(QUESTION, thread_id="long")).saved is (saves or None)

        return one

    return {"ours": turn(length), "short": turn(10), "peer": other}


async def soak() -> list[tuple[float, float]]:
    """Return KiB that the log of a conversation takes per turn, and KiB held beyond it: of a thousand turns, and of ten thousand.

    What is held beyond a log is what is left when its thread is closed, so that anything that grows with the turns, in the
    thread or beside it, shows: either the log seems to take more per turn in the long conversation, or more is left.
    """
    harness = ours(budget=20_000)
    await harness.execute(QUESTION, thread_id="warm")
    tracemalloc.start()
    report: list[tuple[float, float]] = []
    for length in (1_000, 10_000):
        for _ in range(length):
            await harness.execute(QUESTION, thread_id="soak")
        gc.collect()
        whole = tracemalloc.get_traced_memory()[0]
        harness.close_thread("soak")
        gc.collect()
        rest = tracemalloc.get_traced_memory()[0]
        report.append(((whole - rest) / 1024 / length, rest / 1024))
    tracemalloc.stop()
    return report


async def main(options: argparse.Namespace) -> int:
    """Measure everything and print it."""
    lines = Lines(LINES)
    full = [*map(notes, range(5)), nn.steering(rules=list(map(rule, range(10))))]
    for what, tool, memory in zip(LINES, (None, lookup, lookup_in_a_thread, lookup), ((), (), (), full), strict=False):
        # So many that caches are warm for each of them, as often for both.
        found = await alternate(fresh_turns(tool, memory), rounds=options.rounds, times=200)
        lines.ratio(what, found["ours"], found["peer"])
    for saves, name in ((False, "not saved"), (True, "saved in memory")):
        # A turn of the peer takes up to a second here.
        found = await alternate(long_turns(10_000, saves=saves), rounds=min(options.rounds, 5), times=2)
        what = f"turn behind 10 000 items, all sent, {name}"
        lines.ratio(f"{what} / behind 10 items", found["ours"], found["short"])
        lines.ratio(f"{what} / LangGraph's", found["ours"], found["peer"])
    scripts = {"ours": _COLD.format(work=COLD_OURS), "peer": _COLD.format(work=COLD_PEER)}
    cold = fresh(scripts, rounds=COLD_ROUNDS)
    seconds, memory = ([[row[at] for row in cold[name]] for name in ("ours", "peer")] for at in (0, 1))
    lines.ratio(
        "import, first agent and its first turn in a fresh process, compiled before / LangGraph's",
        *seconds,
        unit="ms",
    )
    mebibytes = [[kib / 1024 for kib in side] for side in memory]
    lines.ratio("resident memory after the first turn of a fresh process / LangGraph's", *mebibytes, unit="MiB")
    short, long = await soak()
    for index, what in enumerate(
        (
            "log of a conversation of 10 000 turns, per turn / of 1 000 turns",
            "held beyond the log once a conversation of 10 000 turns is closed / of 1 000 turns",
        )
    ):
        lines.ratio(what, long[index], short[index], unit="KiB")
    return lines.end(options)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(parser(__doc__, rounds=15).parse_args())))
