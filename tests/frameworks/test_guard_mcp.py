"""Rules in front of the tools of a real MCP server, called through a session."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

import noetic_nb as nn

mcp = pytest.importorskip("mcp", reason="mcp is not installed")

DONE: list[Any] = []


async def connected(stack: AsyncExitStack) -> Any:
    """Return something with ``call_tool`` of a server in this process."""
    try:
        from mcp.server.mcpserver import MCPServer as Server  # of version 2
    except ImportError:
        from mcp.server.fastmcp import FastMCP as Server
    server = Server("bank")

    @server.tool()
    def pay(amount: int, to: str = "bank") -> str:
        """Pay someone."""
        if amount < 0:
            raise ValueError("too small")
        DONE.append(amount)
        return f"paid {amount} to {to}"

    if hasattr(mcp, "Client"):
        return await stack.enter_async_context(mcp.Client(server))
    from mcp.shared.memory import create_connected_server_and_client_session as session_of

    return await stack.enter_async_context(session_of(server._mcp_server))


def test_a_call_is_judged_by_the_name_and_arguments_of_the_tool() -> None:
    DONE.clear()
    book = nn.RuleBook()
    book.when("tool.args.amount > 100", id="small", tools="pay", guidance="Ask a person.")
    guarded: Any = None

    async def work() -> list[Any]:
        nonlocal guarded
        async with AsyncExitStack() as stack:
            session = await connected(stack)
            guarded = nn.guard(session.call_tool, book, on_deny="return")
            return [await guarded("pay", {"amount": amount}) for amount in (7, 700, -1)]

    allowed, refused, failed = asyncio.run(work())

    assert DONE == [7]
    assert allowed.content[0].text == "paid 7 to bank"
    assert type(refused) is type(allowed)
    assert json.loads(refused.content[0].text)["error"]["ruleId"] == "small"
    assert list(guarded.run.to_frame("tools")["status"]) == ["ok", "denied", "error"]
    assert failed.content[0].text.startswith("Error executing tool pay")


def test_each_way_to_call_a_session_is_seen() -> None:
    DONE.clear()
    book = nn.RuleBook()
    book.at_most(0, "pay")

    async def work() -> list[Any]:
        async with AsyncExitStack() as stack:
            call_tool = (await connected(stack)).call_tool
            return [
                await nn.guard(partial(call_tool, "pay"), book, on_deny="return")({"amount": 1}),
                await nn.guard(partial(call_tool, arguments={"amount": 1}), book, on_deny="return")("pay"),
                await nn.guard(call_tool, book, on_deny="return")(" PAY", {"amount": 1}),
            ]

    for refused in asyncio.run(work()):
        assert "at most" in refused.content[0].text or "may not" in refused.content[0].text
    assert DONE == []


def test_tools_of_a_server_of_version_2_are_tools_of_an_agent_of_ours() -> None:
    if not hasattr(mcp, "Client"):
        pytest.skip("version 2 has the class Client")
    DONE.clear()
    book = nn.RuleBook()
    book.when("tool.args.amount > 100", id="small", tools="pay", guidance="Ask a person.")
    asked = iter([nn.CallTool("pay", amount=7), nn.CallTool("pay", amount=700), "Paid what I may."])

    async def work() -> Any:
        async with AsyncExitStack() as stack:
            client = await connected(stack)
            (offered,) = (await client.list_tools()).tools

            @nn.tool(name=offered.name, description=offered.description)
            async def pay(amount: int, to: str = "bank") -> str:
                answer = await client.call_tool(offered.name, {"amount": amount, "to": to})
                return "".join([part.text for part in answer.content])

            config = nn.AgentConfig(name="clerk", step=nn.react(model="m", tools=[pay]), memory=[nn.steering(book)])
            harness = nn.AgentHarness(config, model=nn.ScriptedModel(lambda _request: next(asked)))
            run = nn.record(harness)
            await harness.execute("Pay both.", thread_id="t1")
            return run

    run = asyncio.run(work())

    assert DONE == [7]
    table = run.to_frame("tools")
    assert list(table["tool_name"]) == ["pay", "pay"]
    assert list(table["status"]) == ["ok", "denied"]
    assert table["output"][0] == "paid 7 to bank"
    assert run.turns[0].text == "Paid what I may."
