"""A truth value where a number is wanted is a mistake, and said to be one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.runtime import Checkpoints
from noetic_nb.steps import fork, load_step, loop, spawn, step, until

ONE = step.run("one", lambda value, ctx: 1)
ASK = {"kind": "llm", "id": "a", "model": "m"}


@pytest.mark.parametrize(
    "made",
    [
        lambda value: nn.Limits(max_steps=value),
        lambda value: nn.Limits(maxDuration=value),
        lambda value: nn.AgentConfig(name="a", stream_idle_timeout_ms=value),
        lambda value: nn.ProjectionPolicy(token_budget=value),
        lambda value: nn.ProjectionPolicy(responseReserve=value),
        lambda value: nn.ProjectionPolicy(window_size=value),
        lambda value: Checkpoints(max_entries=value),
        lambda value: until.max_steps(value),
        lambda value: until.max_cost(value),
        lambda value: until.converged(value),
        lambda value: loop("l", ONE, until=until.never(), max_iterations=value),
        lambda value: fork("f", mode="race", paths=[ONE], concurrency=value),
        lambda value: spawn("s", ONE, timeout_ms=value),
        lambda value: step.run("r", lambda v, c: 1, retry={"max_attempts": value}),
        lambda value: step.llm("a", model="m", tool_rounds=value),
        lambda value: load_step({**ASK, "toolRounds": value}),
        lambda value: load_step({"kind": "loop", "id": "l", "steps": [ASK], "until": {"kind": "maxSteps", "n": value}}),
    ],
)
@pytest.mark.parametrize("truth", [True, False])
def test_a_truth_value_is_no_number(made: Callable[[Any], Any], truth: bool) -> None:
    made(1)
    with pytest.raises(nn.NoeticConfigError, match=f"not {truth}"):
        made(truth)


def test_a_truth_value_is_welcome_where_one_is_wanted() -> None:
    assert nn.AgentConfig(name="a", force_atomic_recall=True).force_atomic_recall
    assert not step.llm("a", model="m", emit=False).emit
