"""Stand-ins for tools of other packages, with the attributes and entry points by which a guard recognises them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import noetic_nb as nn
from noetic_nb.events import SteeringDecided, ToolCalled
from noetic_nb.sync import run_sync

DONE: Final[list[Any]] = []
"""The recorded calls of the tools."""


def pay(amount: int, to: str = "bank") -> str:
    """Pay someone."""
    DONE.append(amount)
    return f"paid {amount} to {to}"


async def pay_later(amount: int, to: str = "bank") -> str:
    """Pay someone."""
    DONE.append(amount)
    return f"paid {amount} to {to}"


class LangChainTool:
    """Like ``langchain_core.tools.StructuredTool``: calls itself through `_run` and `_arun`, and has a method ``run``."""

    response_format = "content"

    def __init__(
        self, func: Callable[..., Any] | None, coroutine: Callable[..., Any] | None = None, name: str = "pay"
    ) -> None:
        self.name = name
        self.description = "Pay someone."
        self.args_schema = None
        self.func = func
        self.coroutine = coroutine

    def run(self, tool_input: dict[str, Any], **kwargs: Any) -> Any:
        return self._run(**tool_input, config=None, run_manager=None)

    def invoke(self, input: dict[str, Any], config: Any = None) -> Any:
        return self.run(input)

    async def ainvoke(self, input: dict[str, Any], config: Any = None) -> Any:
        return await self._arun(**input, config=config, run_manager=None)

    def _run(self, *args: Any, config: Any, run_manager: Any = None, **kwargs: Any) -> Any:
        assert self.func is not None
        return self.func(*args, **kwargs)

    async def _arun(self, *args: Any, config: Any, run_manager: Any = None, **kwargs: Any) -> Any:
        if self.coroutine is not None:
            return await self.coroutine(*args, **kwargs)
        return self._run(*args, config=config, **kwargs)


class LangChainClass(LangChainTool):
    """Like a tool that is a class: it has no function, and its `_arun` calls its `_run`."""

    def __init__(self) -> None:
        super().__init__(None)

    def _run(self, amount: int, to: str = "bank", config: Any = None, run_manager: Any = None) -> str:  # type: ignore[override]
        return pay(amount, to)

    async def _arun(self, amount: int, to: str = "bank", config: Any = None, run_manager: Any = None) -> str:  # type: ignore[override]
        return self._run(amount, to)


class LangChainBoth(LangChainClass):
    """Like a class with two independent entry points."""

    async def _arun(self, amount: int, to: str = "bank", config: Any = None, run_manager: Any = None) -> str:  # type: ignore[override]
        return await pay_later(amount, to)


@dataclass
class FunctionSchema:
    """Like pydantic-ai's function schema, which its agent calls with validated arguments."""

    function: Callable[..., Any]
    takes_ctx: bool

    async def call(self, args: dict[str, Any], ctx: Any) -> Any:
        found = self.function(ctx, **args) if self.takes_ctx else self.function(**args)
        return await found if hasattr(found, "__await__") else found


@dataclass(init=False)
class PydanticAITool:
    """Like ``pydantic_ai.Tool``."""

    function: Callable[..., Any]
    takes_ctx: bool
    name: str
    function_schema: FunctionSchema

    def __init__(self, function: Callable[..., Any], takes_ctx: bool = False) -> None:
        self.function, self.takes_ctx, self.name = function, takes_ctx, "pay"
        self.function_schema = FunctionSchema(function, takes_ctx)


@dataclass
class FunctionTool:
    """Like ``agents.FunctionTool``."""

    name: str
    description: str
    params_json_schema: dict[str, Any]
    on_invoke_tool: Callable[[Any, str], Awaitable[Any]]
    strict_json_schema: bool = False


PARAMETERS: Final = {
    "type": "object",
    "properties": {"amount": {"type": "integer"}, "to": {"type": "string", "default": "bank"}},
    "required": ["amount"],
}


def function_tool() -> FunctionTool:
    async def invoke(ctx: Any, text: str) -> Any:
        return pay(**json.loads(text))

    return FunctionTool("pay", "Pay someone.", PARAMETERS, invoke)


@dataclass
class Session:
    """Like ``mcp.ClientSession``."""

    sent: list[Any] = field(default_factory=list)

    async def call_tool(self, name: str, arguments: dict[str, Any] | None = None, read_timeout: Any = None) -> Any:
        self.sent.append((name, arguments))
        text = pay(**(arguments or {}))
        return SimpleNamespace(content=[SimpleNamespace(type="text", text=text)], isError=False)


def with_ctx(ctx: Any, amount: int, to: str = "bank") -> str:
    return pay(amount, to)


# form -> (makes the tool, calls the guarded one with an amount)
FORMS: Final[dict[str, tuple[Callable[[], Any], Callable[[Any, Any], Any]]]] = {
    "function": (lambda: pay, lambda tool, amount: tool(amount=amount)),
    "async function": (lambda: pay_later, lambda tool, amount: run_sync(tool(amount=amount))),
    "function that returns an awaitable": (
        lambda: lambda amount: pay_later(amount),
        lambda tool, amount: run_sync(_awaited(lambda: tool(amount=amount))),
    ),
    "own tool": (lambda: nn.tool(pay), lambda tool, amount: tool(amount=amount)),
    "own tool, checked call": (lambda: nn.tool(pay), lambda tool, amount: run_sync(tool.call({"amount": amount}))),
    "own async tool": (
        lambda: nn.tool(pay_later, name="pay"),
        lambda tool, amount: run_sync(tool.call({"amount": amount})),
    ),
    "LangChain invoke": (lambda: LangChainTool(pay), lambda tool, amount: tool.invoke({"amount": amount})),
    "LangChain ainvoke": (
        lambda: LangChainTool(None, pay_later),
        lambda tool, amount: run_sync(tool.ainvoke({"amount": amount})),
    ),
    "LangChain ainvoke of a function": (
        lambda: LangChainTool(pay),
        lambda tool, amount: run_sync(tool.ainvoke({"amount": amount})),
    ),
    "LangChain class": (LangChainClass, lambda tool, amount: tool.invoke({"amount": amount})),
    "LangChain class, ainvoke": (
        LangChainClass,
        lambda tool, amount: run_sync(tool.ainvoke({"amount": amount})),
    ),
    "LangChain class, own way to ainvoke": (
        LangChainBoth,
        lambda tool, amount: run_sync(tool.ainvoke({"amount": amount})),
    ),
    "LangChain run": (lambda: LangChainTool(pay), lambda tool, amount: tool.run({"amount": amount})),
    "LangChain func": (lambda: LangChainTool(pay), lambda tool, amount: tool.func(amount=amount)),
    "pydantic-ai": (
        lambda: PydanticAITool(pay),
        lambda tool, amount: run_sync(tool.function_schema.call({"amount": amount}, None)),
    ),
    "pydantic-ai with a context": (
        lambda: PydanticAITool(with_ctx, takes_ctx=True),
        lambda tool, amount: run_sync(
            tool.function_schema.call({"amount": amount}, SimpleNamespace(tool_call_id="c7"))
        ),
    ),
    "OpenAI Agents": (
        function_tool,
        lambda tool, amount: run_sync(
            tool.on_invoke_tool(SimpleNamespace(tool_call_id="c7"), json.dumps({"amount": amount}))
        ),
    ),
    "MCP": (
        lambda: Session().call_tool,
        lambda tool, amount: run_sync(tool("pay", {"amount": amount})),
    ),
}


async def _awaited(make: Callable[[], Any]) -> Any:
    found = make()
    return await found if hasattr(found, "__await__") else found


def called(guarded: Any) -> list[ToolCalled]:
    return [event for event in guarded.run.events if isinstance(event, ToolCalled)]


def decided(guarded: Any) -> list[SteeringDecided]:
    return [event for event in guarded.run.events if isinstance(event, SteeringDecided)]
