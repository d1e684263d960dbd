"""Agents for the tests of the runtime."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import noetic_nb as nn
from noetic_nb.errors import NoeticError
from noetic_nb.events import RunEvent
from noetic_nb.items import assistant_message
from noetic_nb.models import ModelDelta, ModelRequest, ModelResponse
from noetic_nb.steps import step
from noetic_nb.testing import SeededIds


class Events(list[RunEvent]):
    """A sink that keeps its events."""

    def emit(self, event: RunEvent) -> None:
        self.append(event)

    def of(self, kind: str) -> list[Any]:
        return [event for event in self if event.kind == kind]


@nn.tool
def lookup(order_id: str) -> dict[str, str]:
    """Find one order."""
    return {"order": order_id, "state": "packed"}


@nn.tool
def fails(reason: str = "out of paper") -> str:
    """Fail."""
    raise RuntimeError(reason)


class WrittenInPieces:
    """A model that streams its answers in given pieces, each after some reasoning; the final response may differ."""

    def __init__(self, *answers: tuple[list[str], str], thought: str = "") -> None:
        self.answers = list(answers)
        self.thought = thought

    async def complete(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse((assistant_message(self.answers.pop(0)[1]),))

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        for piece in self.answers[0][0]:
            if self.thought:
                yield ModelDelta("reasoning", self.thought)
            yield ModelDelta("text", piece)
        yield await self.complete(request)


class OddModel:
    """A model that answers with an item of an unknown type."""

    async def complete(self, request: Any) -> ModelResponse:
        return ModelResponse((nn.Item(type="custom:thing"),))


def attempt(*steps: Any) -> Any:
    """Return a step that runs steps in order, even after failures, and returns how they ended."""

    async def run(value: Any, ctx: Any) -> list[str]:
        ends = []
        for inner in steps:
            try:
                await ctx.run(inner)
                ends.append("ok")
            except NoeticError as exc:
                ends.append(exc.kind)
        return ends

    return step.run("attempt", run)


def started(inner: Any) -> Any:
    """Return a step that starts another one and waits for its result."""

    async def begin(value: Any, ctx: Any) -> Any:
        return await ctx.start(inner).result()

    return step.run("begin", begin)


def make_harness(
    replies: Any,
    *,
    tools: Any = (lookup, fails),
    memory: Any = (),
    max_steps: int = 10,
    instructions: Any = None,
    step: Any = None,
    approve: Any = None,
    storage: Any = None,
    diagnostic: Any = None,
    **config: Any,
) -> nn.AgentHarness:
    """Return a harness around a scripted model."""
    if step is None:
        step = nn.react(model="scripted", instructions=instructions, tools=tools, max_steps=max_steps)
    model = replies if hasattr(replies, "complete") else nn.ScriptedModel(replies)
    options = {} if diagnostic is None else {"diagnostic": diagnostic}
    harness = nn.AgentHarness(
        nn.AgentConfig(name="desk", step=step, memory=memory, **config),
        model=model,
        ids=SeededIds(),
        approve=approve,
        storage=storage,
        **options,
    )
    MODELS[harness] = model
    return harness


MODELS: WeakKeyDictionary[nn.AgentHarness, Any] = WeakKeyDictionary()


def requests_of(harness: nn.AgentHarness) -> list[nn.ModelRequest]:
    """Return the requests that a harness of `make_harness` has sent to its scripted model."""
    requests: list[nn.ModelRequest] = MODELS[harness].requests
    return requests


def record_events(harness: nn.AgentHarness) -> Events:
    """Return the list of a harness's events from now on."""
    events = Events()
    harness.subscribe(events)
    return events


def outputs(items: Any) -> list[str]:
    """Return the answers of tools."""
    return [item["output"] for item in items if item["type"] == "function_call_output"]


def texts(items: Any) -> Iterator[str]:
    """Yield role and text of messages."""
    for item in items:
        if item["type"] == "message":
            yield f"{item['role']}: {''.join(part.get('text', '') for part in item['content'])}"
