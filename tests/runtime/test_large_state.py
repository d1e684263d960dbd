"""State beyond 10 MiB, which is copied for every child and written after every step, is reported once per step."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.runtime._context.size_warnings import LIMIT_BYTES, LargeState
from tests.runtime.factories import make_harness

MIB = 2**20


def says(text: str) -> Any:
    return nn.step.run(text, lambda value, ctx: text)


def reporting(**options: Any) -> tuple[nn.AgentHarness, list[Any]]:
    """Return a harness, and the list of its diagnostic calls."""
    reports: list[Any] = []
    return make_harness([], diagnostic=lambda *what: reports.append(what), **options), reports


def fan(name: str) -> Any:
    return nn.fork(name, mode="all", paths=[says("a"), says("b")], merge="first")


async def test_a_large_state_is_reported_once_for_every_step_that_copies_it() -> None:
    harness, reports = reporting()

    async with harness.execution(state={"text": "x" * 11 * MIB}) as ctx:
        for one in (fan("fan"), fan("fan"), nn.spawn("child", says("c"))):
            await harness.run(one, None, ctx)

    assert [(step_id, hook, error.size // MIB) for step_id, hook, error in reports] == [
        ("fan", "state", 11),
        ("child", "state", 11),
    ]
    assert all(isinstance(error, LargeState) for _, _, error in reports)
    assert "11.0 MiB as JSON at step 'fan'" in str(reports[0][2])


async def test_children_of_a_step_with_layers_of_its_own_do_not_tell_of_it_again() -> None:
    harness, reports = reporting(memory=[nn.working_memory()])
    nested = nn.spawn("own", fan("fan"), memory=[nn.working_memory()])

    async with harness.execution(state={"text": "x" * 11 * MIB}) as ctx:
        for one in (nested, nested, fan("fan")):
            await harness.run(one, None, ctx)

    assert [step_id for step_id, _, _ in reports] == ["own", "fan"]


@pytest.mark.parametrize("over", [0, 1])
async def test_the_limit_itself_is_still_fine(over: int) -> None:
    harness, reports = reporting()
    state = {"text": "é" * ((LIMIT_BYTES - len(json.dumps({"text": ""}, separators=(",", ":")))) // 2)}
    state["text"] += "x" * (
        LIMIT_BYTES + over - len(json.dumps(state, ensure_ascii=False, separators=(",", ":")).encode())
    )

    async with harness.execution(state=state) as ctx:
        await harness.run(fan("fan"), None, ctx)

    assert len(reports) == over


@pytest.mark.parametrize("value", [object(), {1, 2}, "\ud800"])
async def test_a_state_that_is_no_json_data_is_no_problem(value: Any) -> None:
    harness, reports = reporting()
    state: dict[str, Any] = {"value": value}
    state["self"] = state

    for one in (state, {"value": value}, {}):
        async with harness.execution(state=one) as ctx:
            assert await harness.run(fan("fan"), None, ctx) == "a"

    assert reports == []


async def test_a_large_checkpoint_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def grow(value: Any, ctx: Any) -> str:
        ctx.state["text"] = "x" * 11 * MIB
        return "grown"

    # The last end is not written, because the turn ends with it.
    steps = [nn.step.run("small", lambda value, ctx: "s"), nn.step.run("grow", grow), nn.step.run("last", grow)]
    whole = nn.loop("whole", steps, until=nn.until.max_steps(1))
    harness = nn.AgentHarness(nn.AgentConfig(name="a", step=whole), checkpoints=True)

    with caplog.at_level(logging.WARNING):
        await harness.execute("go")
        await harness.execute("go")

    assert [record.getMessage() for record in caplog.records] == [
        f"Layer {step_id!r}, hook 'checkpoint': LargeState: The checkpoint, which is written after every step, has 11.0 MiB "
        f"as JSON at step {step_id!r}. Look at `ctx.state`, the layers, and the turn's items."
        for step_id in ("grow",)
    ]
