"""Impossible requests cause one clear error that names the alternatives: cycles, depth, unknown names, nonsense."""

from __future__ import annotations

import json
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.steps import Registry, branch, dump_step, fork, load_step, load_workflow, loop, spawn, step, until
from tests.runtime.factories import lookup, make_harness

ASK: dict[str, Any] = {"kind": "llm", "id": "q", "instructions": "x"}
KNOWN = Registry(
    tools=[lookup],
    layers=[nn.working_memory()],
    workflows={
        "a": {"version": 1, "root": {"kind": "subflow", "id": "x", "ref": "b"}},
        "b": {"version": 1, "root": {"kind": "subflow", "id": "x", "ref": "a"}},
    },
)


async def ran(one: Any, value: Any = None) -> Any:
    harness = make_harness(["ok"] * 9, step=one)
    async with harness.execution() as ctx:
        return await harness.run(one, value, ctx)


def calls_itself(wrap: Any) -> Any:
    """Return a step that runs itself through a function."""

    async def again(value: Any, ctx: Any) -> Any:
        return await ctx.run(whole, value)

    whole = wrap(step.run("again", again))
    return whole


def paths_to_itself() -> Any:
    whole: Any = fork("f", mode="all", paths=lambda value, ctx: [whole], merge="first")
    return whole


def holds_itself() -> Any:
    """Return a record that no builder makes: a loop whose body is the loop itself."""
    whole = loop("round", step.run("a", lambda value, ctx: 1), until=until.never())
    object.__setattr__(whole, "steps", (whole,))
    return whole


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: calls_itself(lambda body: loop("l", body, until=until.never())), "nested more than 64 deep"),
        (lambda: calls_itself(lambda body: spawn("s", body)), "nested 64 deep"),
        (lambda: calls_itself(lambda body: branch("b", lambda value, ctx: body)), "nested more than 64 deep"),
        (paths_to_itself, "nested 64 deep"),
        (holds_itself, "nested more than 64 deep"),
    ],
)
async def test_a_step_that_leads_back_to_itself_ends_in_one_clear_error(make: Any, says: str) -> None:
    with pytest.raises(nn.NoeticError, match=says) as caught:
        await ran(make())

    assert len(str(caught.value)) < 400, "no level repeats the message of the one below"


def test_a_step_that_holds_itself_can_be_looked_at_and_not_written() -> None:
    whole = holds_itself()
    harness = make_harness([], step=whole)

    assert [finding for finding in harness.check() if finding.level == "error"] == []
    assert json.loads(json.dumps(harness.describe()))["config"]["step"]["steps"] == [{"kind": "loop", "id": "round"}]
    with pytest.raises(nn.NoeticConfigError, match="contains itself") as caught:
        dump_step(whole)
    assert caught.value.code == "INVALID_STEP"


@pytest.mark.parametrize("nonsense", [{"kind": "dance", "id": "x"}, {"kind": None, "id": "x"}, {"kind": 3}])
@pytest.mark.parametrize(
    "where",
    [
        lambda value: branch("b", lambda v, ctx: value),
        lambda value: fork("f", mode="all", paths=lambda v, ctx: [value], merge="first"),
        lambda value: step.run("r", lambda v, ctx: ctx.run(value)),
    ],
    ids=["route", "path", "run"],
)
async def test_a_record_of_a_kind_there_is_not_names_the_kinds_there_are(where: Any, nonsense: Any) -> None:
    with pytest.raises((nn.NoeticConfigError, nn.NoeticError)) as caught:
        await ran(where(nonsense))

    error: Any = caught.value if isinstance(caught.value, nn.NoeticConfigError) else caught.value.__cause__
    assert error.code == "NOT_A_STEP"
    assert "run, llm, tool, branch, fork, spawn and loop" in str(error)


@pytest.mark.parametrize(
    ("make", "code", "names"),
    [
        (lambda: flow({"kind": "dance", "id": "d"}), "UNKNOWN_NODE_KIND", "subflow"),
        (lambda: flow({"kind": "tool", "id": "t", "toolName": "n"}), "UNKNOWN_TOOL_REFERENCE", "'lookup'"),
        (lambda: flow({"kind": "spawn", "id": "s", "child": ASK, "layers": ["x"]}), "UNKNOWN_LAYER_REFERENCE",
         "'working-memory'"),
        (lambda: flow({"kind": "loop", "id": "l", "body": ASK, "until": {"kind": "x"}}), "UNKNOWN_UNTIL_PREDICATE",
         "noToolCalls"),
        (lambda: flow({"kind": "subflow", "id": "w", "ref": "c"}), "UNKNOWN_WORKFLOW_REFERENCE", "'a', 'b'"),
        (lambda: flow({"kind": "subflow", "id": "w", "ref": "a"}), "WORKFLOW_CYCLE", "a -> b -> a"),
        (lambda: flow({**ASK, "kind": "fork", "mode": "all", "paths": [ASK], "concurrency": 0}), "", "concurrency"),
        (lambda: load_step({"kind": "dance", "id": "d"}), "INVALID_STEP", "run, llm, tool"),
        (lambda: load_step({"kind": "run", "id": "r", "execute": {"$ref": "fn:x"}}), "UNKNOWN_FUNCTION_REFERENCE", "none"),
        (lambda: step.run("r", print, retry={"max_attempts": 0}), "INVALID_RETRY", "max_attempts"),
        (lambda: fork("f", mode="race", paths=[], concurrency=0), "INVALID_STEP", "concurrency"),
    ],
)  # fmt: skip
def test_what_does_not_exist_or_cannot_be_names_what_can(make: Any, code: str, names: str) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        make()

    assert code in ("", caught.value.code)
    assert names in str(caught.value)


def flow(root: dict[str, Any]) -> Any:
    return load_workflow({"version": 1, "root": root}, KNOWN)


async def test_a_model_nobody_answers_names_those_somebody_does() -> None:
    models = {"m": nn.ScriptedModel([]), "n": nn.ScriptedModel([])}
    harness = nn.AgentHarness(nn.AgentConfig(name="x", step=step.llm("ask", model="z")), model=models)

    with pytest.raises(nn.NoeticConfigError, match="'m', 'n'") as caught:
        await harness.execute("hi")

    assert caught.value.code == "UNKNOWN_MODEL"
