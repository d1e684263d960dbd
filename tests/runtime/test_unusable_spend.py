"""Usage and costs of a model client that cannot be added up end the turn with a typed error; nothing of them is counted."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticError
from noetic_nb.items import assistant_message


class Client:
    """Answers with a usage and a cost."""

    def __init__(self, usage: Any, cost: Any = None) -> None:
        self.usage, self.cost = usage, cost

    async def complete(self, request: nn.ModelRequest) -> nn.ModelResponse:
        return nn.ModelResponse((assistant_message("Hello.", item_id="a"),), self.usage, self.cost)


def agent(usage: Any, cost: Any = None) -> tuple[nn.AgentHarness, nn.Run]:
    """Return an agent on such a client, and its run."""
    config = nn.AgentConfig(name="desk", step=nn.react(model="m"), limits=nn.Limits(max_cost=1.0))
    harness = nn.AgentHarness(config, model=Client(usage, cost))
    return harness, nn.record(harness)


@pytest.mark.parametrize(
    "usage",
    [
        *[nn.Usage(count, 2) for count in (math.nan, math.inf, "5", None, True, [1])],  # type: ignore[arg-type]
        *[nn.Usage(1, count) for count in (-1, math.nan, None)],  # type: ignore[arg-type]
        *[nn.Usage(1, 2, *counts) for counts in ((-1,), (0, "5"), (0, 0, math.nan))],  # type: ignore[arg-type]
        "text",
        5,
        {"input_tokens": -1, "output_tokens": 2},
        {"tokens": 5},
    ],
    ids=repr,
)
def test_usage_that_is_no_count_ends_the_turn(usage: Any) -> None:
    harness, run = agent(usage)

    with pytest.raises(NoeticError) as caught:
        asyncio.run(harness.execute("Hi"))

    assert caught.value.kind == "llm_failed"
    assert "usage" in str(caught.value) or "Usage" in str(caught.value) or "items" in str(caught.value)
    assert run.to_frame("turns")[["input_tokens", "output_tokens"]].sum().sum() == 0
    assert len(harness.log("default")) == 1  # the user's message is kept


@pytest.mark.parametrize("cost", [-0.5, math.nan, math.inf, "5", True, [1]])
def test_a_cost_that_is_no_amount_ends_the_turn(cost: Any) -> None:
    harness, run = agent(nn.Usage(1, 2), cost)

    with pytest.raises(NoeticError, match="cost must be US dollars"):
        asyncio.run(harness.execute("Hi"))

    assert not math.isnan(run.cost() or 0.0)


@pytest.mark.parametrize("usage", [None, {}, {"input_tokens": 5, "outputTokens": 2}, nn.Usage(5, 2, None, None, 1)])
def test_unknown_usage_counts_as_nothing(usage: Any) -> None:
    harness, _ = agent(usage, 0.25)

    reply = asyncio.run(harness.execute("Hi"))

    assert reply.text == "Hello."
    assert (reply.usage.input_tokens, reply.cost) == (5 if usage else 0, 0.25)


def test_a_negative_count_of_input_tokens_counts_as_nothing() -> None:
    harness, run = agent(nn.Usage(-100, 2), 0.25)

    reply = asyncio.run(harness.execute("Hi"))

    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (0, 2)
    assert {*run.to_frame("tokens").problem} == {"negative"}
