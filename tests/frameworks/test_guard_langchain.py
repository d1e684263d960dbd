"""Rules in front of real tools of LangChain, called by LangChain and by LangGraph."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticError

pytest.importorskip("langchain_core", reason="langchain-core is not installed")

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, Tool, tool
from pydantic import BaseModel

DONE: list[Any] = []


@tool
def pay(amount: int, to: str = "bank") -> str:
    """Pay someone."""
    DONE.append(amount)
    return f"paid {amount} to {to}"


@tool
async def pay_later(amount: int, to: str = "bank") -> str:
    """Pay someone."""
    DONE.append(amount)
    return f"paid {amount} to {to}"


class Payment(BaseModel):
    amount: int
    to: str = "bank"


class PayTool(BaseTool):
    name: str = "pay"
    description: str = "Pay someone."
    args_schema: type[BaseModel] = Payment

    def _run(self, amount: int, to: str = "bank", run_manager: Any = None) -> str:
        DONE.append(amount)
        return f"paid {amount} to {to}"


class BothTool(PayTool):
    async def _arun(self, amount: int, to: str = "bank", run_manager: Any = None) -> str:
        return self._run(amount, to)


@tool(response_format="content_and_artifact")
def pay_with_artifact(amount: int, to: str = "bank") -> tuple[str, Any]:
    """Pay someone."""
    DONE.append(amount)
    return f"paid {amount} to {to}", {"amount": amount}


@tool
def pay_as(amount: int, call_id: Annotated[str, InjectedToolCallId], to: str = "bank") -> str:
    """Pay someone."""
    DONE.append(amount)
    return f"paid {amount} to {to}"


@tool
def pay_configured(amount: int, config: Any = None, to: str = "bank") -> str:
    """Pay someone."""
    DONE.append(amount)
    return f"paid {amount} to {to}"


TOOLS = {
    "function": lambda: pay,
    "async function": lambda: pay_later,
    "class": PayTool,
    "class with both": BothTool,
    "artifact": lambda: pay_with_artifact,
    "injected id": lambda: pay_as,
    "with both functions": lambda: StructuredTool.from_function(
        func=pay.func, coroutine=pay_later.coroutine, name="pay", description="Pay someone."
    ),
}


def rules() -> nn.RuleBook:
    book = nn.RuleBook()
    book.when("tool.args.amount > 100", id="small", guidance="Ask a person.")
    return book


def message(amount: int, name: str) -> dict[str, Any]:
    return {"type": "tool_call", "name": name, "id": "c1", "args": {"amount": amount}}


async def aresult(guarded: Any, amount: int) -> Any:
    return await guarded.ainvoke(message(amount, guarded.name))


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("kind", TOOLS)
def test_a_tool_is_judged_once_and_stays_a_tool(kind: str, way: str) -> None:
    if (kind, way) == ("async function", "invoke"):
        pytest.skip("LangChain has no way to call it")
    DONE.clear()
    original = TOOLS[kind]()
    guarded = nn.guard(original, rules(), on_deny="return")

    def call(amount: int) -> Any:
        if way == "ainvoke":
            return asyncio.run(aresult(guarded, amount))
        return guarded.invoke(message(amount, guarded.name))

    with nn.guard_session():
        allowed, refused = call(7), call(700)

    assert type(guarded) is type(original)
    assert isinstance(guarded, BaseTool)
    assert isinstance(allowed, ToolMessage)
    assert allowed.content == "paid 7 to bank"
    assert json.loads(refused.content)["error"]["ruleId"] == "small"
    assert DONE == [7]
    assert isinstance(guarded.run, nn.Run)
    table = guarded.run.to_frame("tools")
    assert list(table["status"]) == ["ok", "denied"]
    assert [dict(args) for args in table["args"]] == [{"amount": 7, "to": "bank"}, {"amount": 700, "to": "bank"}]
    assert guarded.tool_call_schema.model_json_schema() == original.tool_call_schema.model_json_schema()


def test_a_denial_is_raised_and_a_copy_is_guarded_as_well() -> None:
    DONE.clear()
    guarded = nn.guard(pay, rules(), on_deny="raise")

    for each in (guarded, guarded.model_copy(), guarded.model_copy(update={"name": "pay2"})):
        with pytest.raises(NoeticError) as caught:
            each.invoke({"amount": 700})
        assert caught.value.kind == "steering_denied"
    assert DONE == []
    assert guarded.run({"amount": 7}) == "paid 7 to bank"


def test_a_tool_with_one_text() -> None:
    seen: list[Any] = []
    book = nn.RuleBook()

    @book.rule(on="before_tool_call")
    def look(call: Any) -> None:
        seen.append((call.tool_name, dict(call.tool_args)))

    guarded = nn.guard(Tool("search", lambda query: f"found {query}", "Search."), book)

    assert guarded.invoke("A17") == "found A17"
    assert seen == [("search", {"query": "A17"})]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_langgraph_calls_the_tools_of_an_agent_through_the_guard(asynchronous: bool) -> None:
    prebuilt = pytest.importorskip("langgraph.prebuilt", reason="langgraph is not installed")
    graphs = pytest.importorskip("langgraph.graph", reason="langgraph is not installed")
    DONE.clear()
    book = rules()
    book.when("history.exists(c, c.ok)", id="once", guidance="Once.")
    tools = nn.guard([pay], book)

    # Two rounds of a model that calls tools, one of them with two calls at once.
    rounds = [[700], [7, 8], []]

    def model(state: Any) -> Any:
        done = sum(isinstance(one, AIMessage) for one in state["messages"])
        calls = [
            {"type": "tool_call", "name": "pay", "id": f"c{done}{place}", "args": {"amount": amount}}
            for place, amount in enumerate(rounds[done])
        ]
        return {"messages": [AIMessage("", tool_calls=calls) if calls else AIMessage("Done.")]}

    graph = graphs.StateGraph(graphs.MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", prebuilt.ToolNode(tools))
    graph.add_edge(graphs.START, "model")
    graph.add_conditional_edges("model", prebuilt.tools_condition)
    graph.add_edge("tools", "model")
    agent = graph.compile()
    given = {"messages": [("user", "Pay.")]}
    with nn.guard_session():
        state = asyncio.run(agent.ainvoke(given)) if asynchronous else agent.invoke(given)

    results = [one.content for one in state["messages"] if isinstance(one, ToolMessage)]
    assert len(results) == 3
    assert "Ask a person." in results[0]
    # Which of two calls at once is decided on first is the framework's business.
    assert len(DONE) in (1, 2)
    assert list(tools[0].run.to_frame("tools")["status"]).count("ok") == len(DONE)


def test_without_a_session_the_calls_of_a_graph_share_a_history() -> None:
    prebuilt = pytest.importorskip("langgraph.prebuilt", reason="langgraph is not installed")
    graphs = pytest.importorskip("langgraph.graph", reason="langgraph is not installed")
    DONE.clear()
    book = nn.RuleBook()
    book.when("history.size() >= 2", id="twice", guidance="Twice.")
    tools = nn.guard([pay_later], book, on_deny="return")

    async def model(state: Any) -> Any:
        done = sum(isinstance(one, AIMessage) for one in state["messages"])
        call = {"type": "tool_call", "name": "pay_later", "id": f"c{done}", "args": {"amount": done}}
        return {"messages": [AIMessage("", tool_calls=[call]) if done < 4 else AIMessage("Done.")]}

    graph = graphs.StateGraph(graphs.MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", prebuilt.ToolNode(tools))
    graph.add_edge(graphs.START, "model")
    graph.add_conditional_edges("model", prebuilt.tools_condition)
    graph.add_edge("tools", "model")
    asyncio.run(graph.compile().ainvoke({"messages": [("user", "Pay.")]}))

    assert DONE == [0, 1]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_regulator_stops_a_graph(asynchronous: bool) -> None:
    prebuilt = pytest.importorskip("langgraph.prebuilt", reason="langgraph is not installed")
    graphs = pytest.importorskip("langgraph.graph", reason="langgraph is not installed")
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel

    from noetic_nb.interop import regulator_callback
    from noetic_nb.regulator import CallBudget

    DONE.clear()

    def answers() -> Any:
        for place in range(10):
            call = {"type": "tool_call", "name": "pay", "id": f"c{place}", "args": {"amount": place}}
            yield AIMessage(
                "", tool_calls=[call], usage_metadata={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
            )

    chat = GenericFakeChatModel(messages=answers())
    graph = graphs.StateGraph(graphs.MessagesState)
    graph.add_node("model", lambda state: {"messages": [chat.invoke(state["messages"])]})
    graph.add_node("tools", prebuilt.ToolNode([pay]))
    graph.add_edge(graphs.START, "model")
    graph.add_conditional_edges("model", prebuilt.tools_condition)
    graph.add_edge("tools", "model")
    handler = regulator_callback(nn.Regulator.for_user("ann").with_predicates(CallBudget(total=2)))
    agent, given, config = graph.compile(), {"messages": [("user", "Pay.")]}, {"callbacks": [handler]}

    run = (lambda: asyncio.run(agent.ainvoke(given, config))) if asynchronous else (lambda: agent.invoke(given, config))
    with pytest.raises(NoeticError) as caught:
        run()

    assert caught.value.kind == "cancelled"
    assert DONE == [0, 1]
    assert len(handler.noetic_run.turns) == 1
