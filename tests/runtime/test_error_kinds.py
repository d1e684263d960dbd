"""Every kind of runtime error, triggered by an agent, with the fields of its kind."""

from __future__ import annotations

from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.steps import channel, fork, spawn, step
from noetic_nb.testing import drive_loop
from tests.runtime.factories import OddModel, make_harness


async def unknown_item(harness: nn.AgentHarness) -> Any:
    return await make_harness(OddModel()).execute("hi")


async def waits(harness: nn.AgentHarness) -> Any:
    async with harness.execution() as ctx:
        return await ctx.recv(channel("c"), timeout_ms=5)


async def closed(harness: nn.AgentHarness) -> Any:
    return harness.channel_handle(channel("c", external=True), "gone").send(1)


async def runs(harness: nn.AgentHarness, one: Any, value: Any = "go") -> Any:
    async with harness.execution() as ctx:
        return await harness.run(one, value, ctx)


def boom(value: Any, ctx: Any) -> Any:
    raise ValueError("boom")


async def cancelled(harness: nn.AgentHarness) -> Any:
    async with harness.execution() as ctx:
        ctx.abort("enough")
        return await harness.run(step.run("r", boom), None, ctx)


DENYING = nn.RuleBook()
DENYING.rule("no", on="after_model_call")(lambda response: nn.deny("No."))
SUMMARY = spawn("s", step.llm("a", model="m"), context_out="summary")
REACHED: dict[str, tuple[Any, Any]] = {
    "step_failed": (lambda: make_harness([]), lambda h: runs(h, step.run("r", boom))),
    "llm_refused": (lambda: make_harness([nn.Fault("refusal")]), lambda h: h.execute("hi")),
    "llm_parse_error": (lambda: make_harness(["x"]), lambda h: runs(h, step.llm("a", model="m", output=int))),
    "llm_rate_limit": (lambda: make_harness([nn.Fault("rate_limit")]), lambda h: h.execute("hi")),
    "llm_failed": (lambda: make_harness([nn.Fault("server_error")]), lambda h: h.execute("hi")),
    "fork_partial": (lambda: make_harness([]), lambda h: runs(h, fork("f", mode="race", paths=[step.run("r", boom)]))),
    "spawn_summary_failed": (
        lambda: make_harness(nn.ScriptedModel({"m": ["x", nn.Fault("server_error")]})),
        lambda h: runs(h, SUMMARY),
    ),
    "channel_timeout": (lambda: make_harness([]), waits),
    "channel_closed": (lambda: make_harness([]), closed),
    "cancelled": (lambda: make_harness([]), cancelled),
    "item_schema_mismatch": (lambda: make_harness([]), unknown_item),
    "budget_exceeded": (
        lambda: make_harness([nn.Reply("x", cost=2.0)]),
        lambda h: h.execute("hi", limits={"max_cost": 1}),
    ),
    "steering_denied": (lambda: make_harness(["x"], memory=[nn.steering(DENYING)]), lambda h: h.execute("hi")),
}


# Every kind of error that can end a turn; `handle_evicted` belongs to steps that run in parallel to an execution.
FIELDS: dict[str, set[str]] = {
    "step_failed": {"step_id", "cause", "retries_exhausted"},
    "llm_refused": {"step_id", "refusal"},
    "llm_parse_error": {"step_id", "raw", "schema"},
    "llm_rate_limit": {"step_id", "retry_after_ms"},
    "llm_failed": {"step_id", "reason"},
    "fork_partial": {"step_id", "succeeded", "failed"},
    "spawn_summary_failed": {"step_id", "child_output", "summary_cause"},
    "channel_timeout": {"channel_name", "timeout"},
    "channel_closed": {"channel_name"},
    "cancelled": {"reason"},
    "item_schema_mismatch": {"category", "item_type"},
    "budget_exceeded": {"field", "limit", "actual"},
    "steering_denied": {"guidance"},
}


def test_no_kind_of_the_specification_is_left_out() -> None:
    assert set(REACHED) == set(FIELDS)


@pytest.mark.parametrize("kind", REACHED)
def test_every_kind_of_error_can_be_reached_and_has_its_fields(kind: str) -> None:
    make, act = REACHED[kind]

    async def main() -> Any:
        return await act(make())

    with pytest.raises(nn.NoeticError) as caught:
        drive_loop(main())

    assert caught.value.kind == kind
    assert str(caught.value)
    missing = {name for name in FIELDS[kind] if not hasattr(caught.value, name)}
    assert not missing, f"{kind} has no {missing}: {sorted(caught.value.facts)}"
