"""A replay takes a whole policy of projection as well as its fields, and plans what a live agent plans."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb import lab

POLICIES = [
    nn.ProjectionPolicy(token_budget=220, response_reserve=10, overflow="truncate"),
    nn.ProjectionPolicy(token_budget=4_000, response_reserve=10, overflow="sliding_window", window_size=2),
    nn.ProjectionPolicy(token_budget=220, response_reserve=10),
    nn.ProjectionPolicy(token_budget=400, response_reserve=10, overflow="summarize", overflow_model="m"),
    nn.ProjectionPolicy(token_budget=300, response_reserve=10, order="cache"),
]


def recorded(**settings: Any) -> nn.Run:
    """Return four turns of an agent with notes."""
    layers = [nn.working_memory(initial="Ann likes tea. " * 4)]
    config = nn.AgentConfig(name="desk", step=nn.react(model="m"), memory=layers, **settings)
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(lambda request: "Noted, and thank you."))
    run = nn.record(harness)
    for turn in range(4):
        asyncio.run(harness.execute(f"This is message {turn}, about an order."))
    return run


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: f"{policy.overflow}-{policy.order}")
def test_a_policy_is_taken_whole_or_by_its_fields(policy: nn.ProjectionPolicy) -> None:
    run = recorded()

    whole = lab.replay(run, projection=policy)
    fields = lab.replay(run, projection=policy.model_dump())
    live = recorded(projection=policy)

    for table in ("allocations", "items"):
        assert whole.to_frame(table).drop(columns="run_id").equals(fields.to_frame(table).drop(columns="run_id"))
    if policy.overflow != "summarize":  # a live agent asks for summaries, a replay does not
        columns = ["turn", "layer_id", "allocated", "used"]
        assert whole.to_frame("allocations")[columns].equals(live.to_frame("allocations")[columns])


def test_a_model_for_summaries_alone_changes_no_plan() -> None:
    run = recorded()

    again = lab.replay(run, projection={"overflow_model": "writer"})

    assert (
        again.to_frame("allocations").drop(columns="run_id").equals(run.to_frame("allocations").drop(columns="run_id"))
    )


def test_policies_are_swept() -> None:
    frame = lab.sweep(
        {"projection": POLICIES[:2]}, recorded(), metrics={"calls": lambda run: len(run.select())}, n_jobs=1
    )

    assert len(frame) == 2
    assert frame.failed.tolist() == [0, 0]
