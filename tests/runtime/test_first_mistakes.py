"""Common beginners' mistakes lead to an error or a warning that says what to do, never to silence."""

from __future__ import annotations

import asyncio
import gc
import logging
from pathlib import Path
from typing import Any

import pandas
import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError


def lookup(order_id: str = "A17") -> dict[str, str]:
    """Find an order."""
    return {"order": order_id}


def other_lookup() -> str:
    """Do something else."""
    return "other"


other_lookup.__name__ = "lookup"


def broken() -> str:
    """Fail."""
    orders: dict[str, str] = {}
    return orders["A17"]


async def broken_later() -> str:
    """Fail after a while."""
    await asyncio.sleep(0)
    raise ValueError("password=hunter22 was wrong")


def frame() -> Any:
    """Return a value that no model can read."""
    return pandas.DataFrame({"a": [1]})


def wrong() -> int:
    """Return a value of another type than annotated."""
    return "three"  # type: ignore[return-value]


def desk(*tools: Any, calls: tuple[str, ...] = (), **more: Any) -> nn.AgentHarness:
    config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=list(tools)))
    script = [*[nn.CallTool(name) for name in calls], *["Hi."] * 5]
    return nn.AgentHarness(config, model=nn.ScriptedModel(script), **more)


# Tools.


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.react(model="m", tools=[lookup, other_lookup]),
        lambda: nn.react(model="m", tools=[nn.tool(lookup), nn.tool(other_lookup, name="lookup")]),
        lambda: nn.AgentConfig(name="desk", tools=[lookup, other_lookup]),
        lambda: nn.step.llm("ask", model="m", tools=[lookup, other_lookup]),
        lambda: nn.run_sync(_both_ways().execute("Hi.")),
        lambda: nn.run_sync(_chosen().execute("Hi.")),
    ],
)
def test_two_tools_of_one_name_are_refused(make: Any) -> None:
    with pytest.raises(NoeticConfigError, match="Two tools are called 'lookup'") as caught:
        make()
    assert caught.value.code == "TOOL_NAME_COLLISION"


def _both_ways() -> nn.AgentHarness:
    steps = [nn.react(model="m", tools=[other_lookup]), nn.react(model="m")]
    config = nn.AgentConfig(
        name="desk", step=nn.loop(id="both", steps=steps, until=nn.until.max_steps(1)), tools=[lookup]
    )
    return nn.AgentHarness(config, model=nn.ScriptedModel(["Hi."] * 5))


def _chosen() -> nn.AgentHarness:
    config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=lambda ctx: [lookup, other_lookup]))
    return nn.AgentHarness(config, model=nn.ScriptedModel(["Hi."]))


def test_the_same_function_twice_is_one_tool() -> None:
    assert nn.run_sync(desk(lookup, nn.tool(lookup)).execute("Hi.")).warnings == ()


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        (broken, ("in broken, line", "'A17' (KeyError)", Path(__file__).name)),
        (broken_later, ("in broken_later, line", "ValueError")),
        (frame, ("DataFrame", "frame.to_dict('records')")),
        (wrong, ("does not fit its annotation",)),
    ],
)
async def test_a_tool_that_fails_is_a_warning_for_its_author(tool: Any, words: tuple[str, ...], caplog: Any) -> None:
    harness = desk(tool, calls=(tool.__name__,))
    run = nn.record(harness)
    with caplog.at_level(logging.WARNING, "noetic_nb.tools"):
        reply = await harness.execute("Hi.")

    (warning,) = reply.warnings
    assert warning.code == "tool_failed"
    assert all(word in warning.text for word in (*words, tool.__name__)), warning.text
    assert "hunter22" not in warning.text + caplog.text
    assert list(run.to_frame("warnings").code) == ["tool_failed"]
    if tool in (broken, broken_later):
        assert f"in {tool.__name__}" in caplog.text
    assert reply.text == "Hi."


async def test_what_a_tool_says_by_design_and_a_refused_call_are_no_warning() -> None:
    rules = nn.RuleBook()
    rules.at_most(0, "lookup")
    guarded = nn.guard(nn.tool(lookup), rules)

    assert (await desk(guarded, calls=("lookup",)).execute("Hi.")).warnings == ()
    assert (await desk(lookup, calls=("lookup", "unknown")).execute("Hi.")).warnings == ()


def test_a_tool_that_tells_the_model_nothing_is_a_finding() -> None:
    def silent(a, b: int = 1):  # type: ignore[no-untyped-def]
        return a

    findings = [finding for finding in desk(silent, lookup).check() if finding.code == "UNDESCRIBED_TOOL"]

    assert [finding.level for finding in findings] == ["warning"]
    assert all(word in str(findings[0]) for word in ("'silent'", "no description", "'a'", "docstring"))
    assert "no description" in nn.tool(silent)._repr_html_()


# Storage, threads, recordings.


async def test_a_storage_without_checkpoints_is_said_once(tmp_path: Path) -> None:
    def harness(**more: Any) -> nn.AgentHarness:
        return desk(storage=nn.SQLiteStorage(tmp_path / "desk.db"), **more)

    told = harness()
    first, second = await told.execute("Hi."), await told.execute("Hi.", thread_id="another")

    assert [warning.code for warning in first.warnings] == ["conversation_not_kept"]
    assert "checkpoints=True" in first.warnings[0].text
    assert second.warnings == ()
    for checkpoints in (True, False):
        assert (await harness(checkpoints=checkpoints).execute("Hi.", thread_id=str(checkpoints))).warnings == ()
    assert (await desk(storage=nn.InMemoryStorage()).execute("Hi.")).warnings == ()


async def test_the_memory_of_a_thread_that_is_not_there() -> None:
    config = nn.AgentConfig(name="desk", step=nn.react(model="m"), memory=[nn.working_memory()])
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Hi."] * 3))
    assert await harness.memory("ann").state("working-memory") is None  # no message yet
    await harness.execute("Hi.", thread_id="anna")

    for ask in (
        lambda: harness.memory("ann").state("working-memory"),
        lambda: harness.memory("ann").layer("working-memory"),
        lambda: harness.memory("ann").layers(),
    ):
        with pytest.raises(NoeticConfigError, match="Did you mean 'anna'") as caught:
            await ask()
        assert caught.value.code == "UNKNOWN_THREAD"
    with pytest.raises(NoeticConfigError, match="UNKNOWN_THREAD"):
        harness.log("ann")
    assert await harness.memory("anna").state("working-memory") is None
    await harness.memory("ann").edit("working-memory", {"city": "Rome"})
    assert await harness.memory("ann").state("working-memory") == {"city": "Rome"}
    fork = await harness.memory("anna").rewind(0)
    assert await harness.memory(fork).state("working-memory") is None


async def test_the_memory_of_a_thread_in_storage_is_known() -> None:
    store = nn.InMemoryStorage()
    config = nn.AgentConfig(name="desk", step=nn.react(model="m"), memory=[nn.working_memory()])
    for name in ("anna", "bob"):
        harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Hi."]), storage=store, checkpoints=True)
        await harness.execute("Hi.", thread_id=name)

    assert await harness.memory("anna").state("working-memory") is None
    with pytest.raises(NoeticConfigError, match="UNKNOWN_THREAD"):
        await harness.memory("carl").state("working-memory")


async def test_recording_after_the_fact_is_a_warning() -> None:
    harness = desk()
    await harness.execute("Hi.")

    with pytest.warns(UserWarning, match="has had 1 turn.*before the first turn"):
        run = nn.record(harness)
    assert nn.record(harness, run=run) is run
    nn.record(harness)  # in parallel to another run, which has everything: no warning


# Hooks and scripts.


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize(
    "init", [lambda p: {"state": p.storage.get("state")}, lambda p: {"state": {"notes": [p.storage.get("state")]}}]
)
async def test_a_hook_that_forgets_to_await_is_told_so(init: Any) -> None:
    layer = nn.MemoryLayer(
        id="notes", slot=100, budget=100, scope="thread", hooks=nn.MemoryHooks(init=init, recall=lambda p: None)
    )
    config = nn.AgentConfig(name="desk", step=nn.react(model="m"), memory=[layer])

    with pytest.raises(nn.NoeticError, match="An `await` is missing: write `async def` for 'init'"):
        await nn.AgentHarness(config, model=nn.ScriptedModel(["Hi."])).execute("Hi.")
    gc.collect()  # collect the forgotten coroutine before the next test


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.CallTool("f", {"x": 1}), "CallTool('f', **args)"),  # type: ignore[arg-type, call-arg]
        (lambda: nn.CallTool(), "CallTool('f', x=1)"),  # type: ignore[call-arg]
        (lambda: nn.CallTool("f", {"x": 1}, y=2), "CallTool('f', x=1)"),  # type: ignore[call-arg]
    ],
)
def test_a_scripted_call_says_how_it_is_written(make: Any, words: str) -> None:
    with pytest.raises(TypeError) as caught:
        make()
    assert words in str(caught.value)


@pytest.mark.parametrize("more", [{}, {"name": "desk"}])
def test_a_misspelt_field_is_told_before_the_one_that_is_missing_by_it(more: dict[str, Any]) -> None:
    with pytest.raises(NoeticConfigError, match=r"has no field 'nmae'.*Did you mean 'name'"):
        nn.AgentConfig(**{"nmae": "desk", "step": nn.react(model="m"), **more})


async def test_a_request_over_a_budget_that_nothing_fits_says_what_to_change() -> None:
    policy = nn.ProjectionPolicy(token_budget=100, response_reserve=200)
    config = nn.AgentConfig(name="desk", step=nn.react(model="m"), projection=policy)
    (warning,) = (await nn.AgentHarness(config, model=nn.ScriptedModel(["Hi."])).execute("Hi.")).warnings
    assert warning.code == "over_budget"
    assert "Raise token_budget, or lower response_reserve" in warning.text
