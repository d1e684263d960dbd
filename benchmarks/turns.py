"""What layers, rules, a recorder and views add to a turn: every line against the bare turn with one tool of the same run.

    python -m benchmarks.turns [--check] [--rounds 30]

Each turn asks once for a tool and then answers, with a model that answers at once, as one of a conversation of ten turns on a
thread of its own. Nothing is compared with other libraries here: what is asked is how far the turn that people run is
from the bare one. The kinds of turn take turns within each round, so that a slow moment hits all; a ratio is the median
over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import noetic_nb as nn
from noetic_nb.memory import MemoryHooks, MemoryLayer
from noetic_nb.runs import Run, record
from noetic_nb.widgets import Ledger, RunTimeline, TokenAllocation

ANSWER: Final = "Order A17 is packed."
CALL: Final = nn.CallTool("lookup", order_id="A17")
QUESTION: Final = "Where is order A17?"
TURNS: Final = 10

GOALS: Final = {
    "five layers and ten rules, all of it": 4.5,
    "ten rules add": 0.7,
    "five layers add": 1.8,
    "with recorder and three views / without": 1.5,
}


def lookup(order_id: str) -> dict[str, str]:
    """Find one order."""
    return {"order": order_id, "state": "packed"}


def answer(request: nn.ModelRequest) -> Any:
    """Ask for the tool first, then say what it said."""
    return CALL if request.items[-1]["type"] == "message" else ANSWER


def notes(number: int) -> MemoryLayer:
    """Return a layer of a conversation that recalls what it noted, and notes every response."""

    async def recall(p: Any) -> str | None:
        return None if p.state is None else f"Layer {number} has noted: {', '.join(p.state['notes'])}"

    async def store(p: Any) -> dict[str, Any]:
        known = [] if p.state is None else p.state["notes"]
        return {"state": {"notes": [*known, nn.items.item_text(p.response.items[-1])][-8:]}}

    hooks = MemoryHooks(recall=recall, store=store)
    return MemoryLayer(
        id=f"notes{number}", slot=200 + number, scope="thread", budget={"min": 0, "max": 200}, hooks=hooks
    )


def rule(number: int) -> nn.SteeringRule:
    """Return a rule that looks at an argument and has no opinion."""

    def predicate(call: Any) -> dict[str, str] | None:
        return {"action": "deny"} if call.tool_args["order_id"] == f"X{number}" else None

    return nn.SteeringRule(id=f"rule{number}", applies_to="before_tool_call", predicate=predicate)


def agent(*, layers: int = 0, rules: int = 0) -> tuple[nn.AgentHarness, nn.ScriptedModel]:
    """Return an agent with one tool, so many layers and so many rules; and its model."""
    memory = [notes(number) for number in range(layers)]
    if rules:
        memory.append(nn.steering(rules=[rule(number) for number in range(rules)]))
    step = nn.react(model="scripted", instructions="You answer questions about orders.", tools=[nn.tool(lookup)])
    config = nn.AgentConfig(name="desk", step=step, memory=memory)
    model = nn.ScriptedModel(answer)
    return nn.AgentHarness(config, model=model), model


Talk = Callable[[], Awaitable[None]]


def talk(harness: nn.AgentHarness, model: nn.ScriptedModel) -> Talk:
    """Return what runs one conversation of `TURNS` turns; `watched` records each and has three views follow it."""
    number = 0

    async def run() -> None:
        nonlocal number
        number += 1
        name = f"t{number}"
        for _ in range(TURNS):
            await harness.execute(QUESTION, thread_id=name)
        harness.close_thread(name)
        model.reset()  # it keeps its requests for tests to look at; a real client keeps none

    return run


if __name__ == "__main__":
    pass
