"""Rules in front of runnables and compiled graphs of LangChain, in whichever way they are called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError

pytest.importorskip("langchain_core", reason="langchain-core is not installed")

from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough
from langchain_core.tools import tool

DONE: list[Any] = []


def pay(given: dict[str, Any]) -> str:
    DONE.append(given["amount"])
    return f"paid {given['amount']}"


async def pay_later(given: dict[str, Any]) -> str:
    return pay(given)


@tool("pay")
def pay_tool(amount: int) -> str:
    """Pay someone."""
    DONE.append(amount)
    return f"paid {amount}"


def graph() -> Any:
    graphs = pytest.importorskip("langgraph.graph", reason="langgraph is not installed")
    made = graphs.StateGraph(dict)
    made.add_node("pay", lambda state: {"said": pay(state)})
    made.add_edge(graphs.START, "pay")
    made.add_edge("pay", graphs.END)
    return made.compile(name="pay")


async def listed(pieces: Any) -> list[Any]:
    return [piece async for piece in pieces]


async def each(value: Any) -> Any:
    yield value


def pipe_after(runnable: Any, given: Any) -> Any:
    return (RunnablePassthrough() | runnable).invoke(given)


async def events(runnable: Any, given: Any) -> list[Any]:
    return [event["data"] async for event in runnable.astream_events(given, version="v2")]


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "invoke": lambda runnable, given: runnable.invoke(given),
    "ainvoke": lambda runnable, given: asyncio.run(runnable.ainvoke(given)),
    "batch": lambda runnable, given: runnable.batch([given]),
    "abatch": lambda runnable, given: asyncio.run(runnable.abatch([given])),
    "batch as completed": lambda runnable, given: list(runnable.batch_as_completed([given])),
    "abatch as completed": lambda runnable, given: asyncio.run(listed(runnable.abatch_as_completed([given]))),
    "stream": lambda runnable, given: list(runnable.stream(given)),
    "astream": lambda runnable, given: asyncio.run(listed(runnable.astream(given))),
    "transform": lambda runnable, given: list(runnable.transform(iter([given]))),
    "atransform": lambda runnable, given: asyncio.run(listed(runnable.atransform(each(given)))),
    "events": lambda runnable, given: asyncio.run(events(runnable, given)),
    "pipe": lambda runnable, given: (runnable | str).invoke(given),
    "pipe, streamed": lambda runnable, given: list((runnable | str).stream(given)),
    "pipe, batch": lambda runnable, given: (runnable | str).batch([given]),
    "pipe, async": lambda runnable, given: asyncio.run((runnable | str).ainvoke(given)),
    "pipe after": pipe_after,
    "settings": lambda runnable, given: runnable.with_config(tags=["a"]).invoke(given),
    "retry": lambda runnable, given: runnable.with_retry(wait_exponential_jitter=False).invoke(given),
    "map": lambda runnable, given: runnable.map().invoke([given]),
}

RUNNABLES: dict[str, Callable[[], Any]] = {
    "function": lambda: RunnableLambda(pay),
    "two functions": lambda: RunnableLambda(pay, afunc=pay_later),
    "sequence": lambda: (RunnableLambda(pay) | str).with_config(run_name="pay"),
    "settings": lambda: RunnableLambda(pay).with_config(tags=["a"]),
    "retry": lambda: RunnableLambda(pay).with_retry(wait_exponential_jitter=False),
    "tool": lambda: pay_tool,
    "tool with settings": lambda: pay_tool.with_config(tags=["a"]),
    "tool with a retry": lambda: pay_tool.with_retry(wait_exponential_jitter=False),
    "graph": graph,
    "graph with settings": lambda: graph().with_config(tags=["a"]),
}


def book() -> nn.RuleBook:
    rules = nn.RuleBook()
    rules.when("tool.args.amount > 100", id="small", guidance="Ask a person.")
    return rules


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", RUNNABLES)
def test_no_way_to_call_leads_past_the_rules(kind: str, way: str) -> None:
    DONE.clear()
    original = RUNNABLES[kind]()
    guarded = nn.guard(original, book(), on_deny="raise")
    assert isinstance(guarded, Runnable)

    with nn.guard_session(), pytest.raises(NoeticError) as caught:
        WAYS[way](guarded, {"amount": 500})
    assert caught.value.kind == "steering_denied"
    assert DONE == []

    with nn.guard_session():
        found = WAYS[way](guarded, {"amount": 7})
    assert "paid 7" in str(found)
    assert DONE == [7]
    statuses = list(guarded.run.to_frame("tools")["status"])
    assert statuses.count("ok") == 1
    assert set(statuses) == {"ok", "denied"}

    WAYS[way](original, {"amount": 500})
    assert DONE == [7, 500], "the first one is left alone"


@pytest.mark.parametrize("kind", ["function", "tool with settings", "tool with a retry", "graph"])
def test_a_rule_names_what_is_called_in_the_end(kind: str) -> None:
    DONE.clear()
    rules = nn.RuleBook()
    rules.at_most(0, "pay")

    with pytest.raises(NoeticError):
        nn.guard(RUNNABLES[kind](), rules, on_deny="raise").invoke({"amount": 5})

    assert DONE == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: RunnableLambda(lambda given: pay(given)),
        lambda: pay_tool | str,
        lambda: RunnablePassthrough() | pay_tool,
        lambda: pay_tool.with_fallbacks([pay_tool]),
    ],
    ids=["lambda", "pipe", "pipe after", "fallbacks"],
)
def test_what_has_no_name_is_refused_where_rules_name_tools(make: Any) -> None:
    rules = nn.RuleBook()
    guarded = nn.guard(make(), rules)
    rules.at_most(0, "pay")

    with pytest.raises(NoeticConfigError, match="name"):
        nn.guard(make(), rules)
    with pytest.raises(NoeticConfigError, match="name"):
        guarded.invoke({"amount": 5})


def test_a_graph_streams_its_steps_and_each_stream_is_one_call() -> None:
    DONE.clear()
    guarded = nn.guard(graph(), book())

    with nn.guard_session():
        pieces = list(guarded.stream({"amount": 5}, stream_mode="updates"))

    assert pieces == [{"pay": {"said": "paid 5"}}]
    assert DONE == [5]
    assert len(guarded.run.to_frame("tools")) == 1


def test_a_denial_can_be_what_a_runnable_returns() -> None:
    guarded = nn.guard(RunnableLambda(pay), book(), on_deny="return")

    assert "Ask a person." in guarded.invoke({"amount": 500})
    assert "Ask a person." in "".join(guarded.stream({"amount": 500}))
    assert len((guarded | str).batch([{"amount": 500}] * 2)) == 2


@pytest.mark.parametrize("way", ["invoke", "stream", "batch", "ainvoke"])
def test_a_method_alone_stands_for_its_runnable(way: str) -> None:
    DONE.clear()
    rules = nn.RuleBook()
    rules.at_most(0, "pay")
    for original in (pay_tool, RunnableLambda(pay), graph()):
        call = nn.guard(getattr(original, way), rules, on_deny="raise")
        given: Any = [{"amount": 5}] if way == "batch" else {"amount": 5}
        with pytest.raises(NoeticError):
            asyncio.run(call(given)) if way == "ainvoke" else list(call(given))
    assert DONE == []


def test_what_is_changed_while_a_rule_waits_does_not_run() -> None:
    DONE.clear()
    rules, given = nn.RuleBook(), {"amount": 5, "lines": [1]}

    @rules.rule(on="before_tool_call")
    async def slow(call: Any) -> None:
        await asyncio.sleep(0)
        given["amount"] = 500

    for original in (RunnableLambda(pay), graph()):
        given["amount"] = 5
        nn.guard(original, rules).invoke(given)

    assert DONE == [5, 5]
