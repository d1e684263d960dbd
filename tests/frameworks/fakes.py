"""The same conversation for every framework: models that need no key and no network, and the tool they call."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

QUESTION = "Where are A17 and B7?"
ANSWER = "A17 is packed, B7 does not exist."
ORDERS = ("A17", "B7")
USAGE = ((31, 7), (52, 8), (74, 11))
"""Input and output tokens of the three model calls."""


def lookup(order_id: str) -> str:
    """Find one order."""
    if order_id not in ("A17",):
        raise KeyError(f"no order {order_id}")
    return json.dumps({"order": order_id, "state": "packed"})


def langchain_model(
    calls: Sequence[tuple[str, dict[str, Any]]] = tuple([("lookup", {"order_id": order}) for order in ORDERS]),
    answer: str = ANSWER,
) -> Any:
    """Return a chat model of LangChain that makes some calls, one after the other, and answers."""
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Desk(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "desk"

        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self

        def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
            step = sum(message.type == "tool" for message in messages)
            sent, written = USAGE[step]
            message = AIMessage(
                content="" if step < len(calls) else answer,
                tool_calls=[
                    {"id": f"c{step + 1}", "name": name, "args": args} for name, args in calls[step : step + 1]
                ],
                usage_metadata={"input_tokens": sent, "output_tokens": written, "total_tokens": sent + written},
            )
            return ChatResult(generations=[ChatGeneration(message=message)])

    return Desk()


def pydantic_ai_model() -> Any:
    """Return a function model of pydantic-ai that does the same."""
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.usage import RequestUsage

    def desk(messages: list[Any], info: Any) -> ModelResponse:
        step = sum(part.part_kind in ("tool-return", "retry-prompt") for each in messages for part in each.parts)
        sent, written = USAGE[step]
        call = ToolCallPart("lookup", {"order_id": ORDERS[step]}, f"c{step + 1}") if step < len(ORDERS) else None
        usage = RequestUsage(input_tokens=sent, output_tokens=written)
        return ModelResponse(parts=[call or TextPart(ANSWER)], usage=usage)

    return FunctionModel(desk)


def strands_model() -> Any:
    """Return a model of Strands that does the same, as the stream of events that Strands reads."""
    from strands.models.model import Model

    class Desk(Model):
        def update_config(self, **model_config: Any) -> None:
            pass

        def get_config(self) -> dict[str, Any]:
            return {"model_id": "desk"}

        def structured_output(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

        async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[dict[str, Any]]:
            step = sum("toolResult" in block for message in messages for block in message["content"])
            sent, written = USAGE[step]
            yield {"messageStart": {"role": "assistant"}}
            if step < len(ORDERS):
                yield {"contentBlockStart": {"start": {"toolUse": {"name": "lookup", "toolUseId": f"c{step + 1}"}}}}
                yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps({"order_id": ORDERS[step]})}}}}
            else:
                yield {"contentBlockStart": {"start": {}}}
                yield {"contentBlockDelta": {"delta": {"text": ANSWER}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "tool_use" if step < len(ORDERS) else "end_turn"}}
            total = {"inputTokens": sent, "outputTokens": written, "totalTokens": sent + written}
            yield {"metadata": {"usage": total, "metrics": {"latencyMs": 1}}}

    return Desk()


def openai_client(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Return a client of OpenAI whose requests are answered by a function, in this process."""
    import httpx2
    from openai import AsyncOpenAI

    def respond(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json=answer(json.loads(request.content)))

    return AsyncOpenAI(api_key="-", http_client=httpx2.AsyncClient(transport=httpx2.MockTransport(respond)))


def openai_agents_model() -> Any:
    """Return a chat model of OpenAI Agents that does the same."""
    from agents import OpenAIChatCompletionsModel

    def desk(request: dict[str, Any]) -> dict[str, Any]:
        step = sum(message["role"] == "tool" for message in request["messages"])
        sent, written = USAGE[step]
        message: dict[str, Any] = {"role": "assistant", "content": ANSWER if step == len(ORDERS) else None}
        if step < len(ORDERS):
            function = {"name": "lookup", "arguments": json.dumps({"order_id": ORDERS[step]})}
            message["tool_calls"] = [{"id": f"c{step + 1}", "type": "function", "function": function}]
        return {
            "id": f"r{step}",
            "object": "chat.completion",
            "created": 0,
            "model": "desk",
            "choices": [
                {"index": 0, "finish_reason": "tool_calls" if step < len(ORDERS) else "stop", "message": message}
            ],
            "usage": {"prompt_tokens": sent, "completion_tokens": written, "total_tokens": sent + written},
        }

    return OpenAIChatCompletionsModel("desk", openai_client(desk))
