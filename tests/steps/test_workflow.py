"""Workflow documents, the published schema, and configurations as JSON."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.steps import Registry, dump_step, load_workflow, step_json_schema
from noetic_nb.steps._json import workflow
from noetic_nb.steps._json.published_schema import published_schema
from noetic_nb.steps._json.workflow import workflow_depth
from noetic_nb.steps._loops import UntilPredicate
from noetic_nb.steps._records import steps_within
from noetic_nb.steps._schema import OutputSchema
from tests.steps.test_codec import NOTES, REGISTRY, Order, everything, lookup


def shout(value: Any, ctx: Any) -> str:
    return str(value).upper()


FLOWS = Registry(
    [shout],
    tools=[lookup],
    layers=[NOTES],
    workflows={
        "shout": {"version": 1, "root": {"kind": "run", "id": "s", "execute": {"$ref": "fn:shout"}}},
        "self": {"version": 1, "root": {"kind": "subflow", "id": "again", "ref": "self"}},
    },
)
SHOUT = {"kind": "run", "id": "s", "execute": {"$ref": "fn:shout"}}


def test_a_node_may_say_what_becomes_of_a_cut_off_answer() -> None:
    root = {"kind": "llm", "id": "a", "model": "m", "instructions": "Go.", "incomplete": "continue"}

    made = load_workflow({"version": 1, "root": root}, FLOWS)

    assert getattr(made, "incomplete", None) == "continue"
    with pytest.raises(nn.NoeticConfigError):
        load_workflow({"version": 1, "root": {**root, "incomplete": "maybe"}}, FLOWS)


async def outcome(root: dict[str, Any], value: Any, replies: Any = ()) -> Any:
    made = load_workflow({"version": 1, "root": root}, FLOWS)
    harness = nn.AgentHarness(nn.AgentConfig(name="w"), model=nn.ScriptedModel(list(replies)))
    async with harness.execution() as ctx:
        return await harness.run(made, value, ctx)


@pytest.mark.parametrize(
    ("root", "value", "expected"),
    [
        (SHOUT, "hi", "HI"),
        ({"kind": "tool", "id": "t", "toolName": "lookup", "args": {"order_id": "A"}}, "whatever", "A"),
        ({"kind": "branch", "id": "b", "routes": [{"match": "YES", "target": SHOUT}]}, " oh yes ", "OH YES".join("  ")),
        ({"kind": "branch", "id": "b", "routes": [{"match": "yes", "target": SHOUT}]}, "no", "no"),
        ({"kind": "branch", "id": "b", "routes": [{"match": "yes", "target": SHOUT}], "default": SHOUT}, "no", "NO"),
        ({"kind": "branch", "id": "b", "routes": [], "default": SHOUT}, "no", "NO"),
        ({"kind": "fork", "id": "f", "mode": "all", "each": SHOUT, "merge": "concat"}, '["a", {"b": 1}]', 'A\n{"B":1}'),
        ({"kind": "fork", "id": "f", "mode": "all", "each": SHOUT, "over": "list", "merge": "first"}, {"list": ["x"]}, "X"),
        ({"kind": "fork", "id": "f", "mode": "all", "paths": [SHOUT, {**SHOUT, "id": "u"}]}, "a", "A"),
        ({"kind": "sequence", "id": "q", "steps": [SHOUT, SHOUT]}, "a", "A"),
        ({"kind": "spawn", "id": "p", "child": SHOUT, "layers": ["notes"]}, "a", "A"),
        ({"kind": "loop", "id": "l", "body": SHOUT, "until": {"kind": "converged"}}, "a", "A"),
        (
            {"kind": "loop", "id": "l", "body": SHOUT, "until": {"kind": "any", "predicates": [
                {"kind": "never"}, {"kind": "maxSteps", "n": 2}]}},
            "a", "A",
        ),
        ({"kind": "subflow", "id": "w", "ref": "shout"}, "a", "A"),
        ({"kind": "subflow", "id": "w", "ref": "shout", "input": "b"}, "a", "B"),
    ],
)  # fmt: skip
async def test_every_kind_of_node_runs(root: Any, value: Any, expected: Any) -> None:
    assert await outcome(root, value) == expected


def remember(value: Any, ctx: Any) -> Any:
    ctx.state["seen"].append(value)
    return ctx.state["hand_on"].pop(0)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("as it is", "as it is"),
        (None, ""),
        ({"text": "hi", "n": 2.0}, '{"text":"hi","n":2}'),
        ([1, "two", None], '[1,"two",null]'),
        (Order(id="A"), '{"id":"A"}'),
        (True, "true"),
        ({"at": {1}}, '{"at":[1]}'),
    ],
)
async def test_what_flows_in_a_sequence_is_text(given: Any, read: str) -> None:
    node = {"kind": "run", "id": "r", "execute": {"$ref": "fn:remember"}}
    made = load_workflow(
        {"version": 1, "root": {"kind": "sequence", "id": "q", "steps": [node, node]}}, Registry([remember])
    )
    harness = nn.AgentHarness(nn.AgentConfig(name="w"))

    async with harness.execution() as ctx:
        ctx.state = {"seen": [], "hand_on": [given, {"last": 1}]}
        assert await harness.run(made, {"first": 1}, ctx) == {"last": 1}
        assert ctx.state["seen"] == [{"first": 1}, read], "what goes in and what comes out stays as it is"


@pytest.mark.parametrize("more", [{}, {"input": "a"}])
async def test_a_sequence_and_a_subflow_need_no_result(more: Any) -> None:
    node = {"kind": "run", "id": "r", "execute": {"$ref": "fn:nothing"}}
    inner = {"kind": "sequence", "id": "q", "steps": [node, node]}
    document = {"version": 1, "root": {"kind": "subflow", "id": "w", "document": {"version": 1, "root": inner}, **more}}
    made = load_workflow(document, Registry({"nothing": lambda value, ctx: None}))
    harness = nn.AgentHarness(nn.AgentConfig(name="w"))

    async with harness.execution() as ctx:
        assert await harness.run(made, "a", ctx) is None


async def test_text_flows_from_one_llm_node_to_the_next() -> None:
    root = {"kind": "sequence", "id": "q", "steps": [{"kind": "llm", "id": "a", "instructions": "Draft."},
                                                     {"kind": "llm", "id": "b", "instructions": "Check."}]}  # fmt: skip

    assert await outcome(root, "write", ["draft", "checked"]) == "checked"


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ("{", "INVALID_WORKFLOW_SOURCE"),
        ({"version": 1}, "INVALID_WORKFLOW_SOURCE"),
        ({"version": 2, "root": SHOUT}, "WORKFLOW_VALIDATION_FAILED"),
        ({"version": 1, "root": {"kind": "dance", "id": "d"}}, "UNKNOWN_NODE_KIND"),
        ({"version": 1, "root": {"kind": "every", "id": "d", "ms": 5}}, "UNKNOWN_NODE_KIND"),
        ({"version": 1, "root": {"kind": "llm", "id": "", "instructions": "x"}}, "WORKFLOW_VALIDATION_FAILED"),
        ({"version": 1, "root": {"kind": "llm", "id": "a"}}, "WORKFLOW_VALIDATION_FAILED"),
        ({"version": 1, "root": {"kind": "tool", "id": "t", "toolName": "nothing"}}, "UNKNOWN_TOOL_REFERENCE"),
        ({"version": 1, "root": {"kind": "run", "id": "r", "execute": "import os"}}, "UNKNOWN_SUBPROCESS_REFERENCE"),
        ({"version": 1, "root": {"kind": "spawn", "id": "s", "child": SHOUT, "layers": ["x"]}}, "UNKNOWN_LAYER_REFERENCE"),
        ({"version": 1, "root": {"kind": "loop", "id": "l", "body": SHOUT, "until": {"kind": "x"}}}, "UNKNOWN_UNTIL_PREDICATE"),
        ({"version": 1, "root": {"kind": "loop", "id": "l", "body": SHOUT, "until": {"kind": "maxCost"}}},
         "WORKFLOW_VALIDATION_FAILED"),
        ({"version": 1, "root": {"kind": "subflow", "id": "w", "ref": "nothing"}}, "UNKNOWN_WORKFLOW_REFERENCE"),
        ({"version": 1, "root": {"kind": "subflow", "id": "w", "ref": "self"}}, "WORKFLOW_CYCLE"),
        ({"version": 1, "root": {"kind": "fork", "id": "f", "paths": [SHOUT], "each": SHOUT}}, "WORKFLOW_VALIDATION_FAILED"),
    ],
)  # fmt: skip
def test_a_bad_document_says_which_rule_it_breaks(document: Any, code: str) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        load_workflow(document, FLOWS)

    assert caught.value.code == code


ASK = {"kind": "llm", "id": "a", "instructions": "x"}


@pytest.mark.parametrize(
    "root",
    [
        {"kind": "branch", "routes": ["x"]},
        {"kind": "branch", "routes": 5},
        {"kind": "branch", "routes": [{"match": "a", "target": "b"}]},
        {"kind": "branch", "routes": [], "default": 5},
        {"kind": "branch", "routes": []},
        {"kind": "sequence", "steps": 5},
        {"kind": "sequence", "steps": [SHOUT, 5]},
        {**ASK, "tools": 5},
        {**ASK, "tools": [5]},
        {**ASK, "params": 5},
        {**ASK, "params": {"zork": 1}},
        {**ASK, "params": {"maxTokens": 0}},
        {**ASK, "params": {3: 0}},
        {**ASK, "output": 5},
        {**ASK, "model": 5},
        {"kind": "tool", "toolName": "lookup", "args": 5},
        {**SHOUT, "retry": {"maxAttempts": 0}},
        {**SHOUT, "execute": {"$ref": "fn:shout", "args": 5}},
        {**SHOUT, "execute": {}},
        {"kind": "spawn", "child": SHOUT, "layers": 5},
        {"kind": "spawn", "child": SHOUT, "timeout": "soon"},
        {"kind": "spawn"},
        {"kind": "fork", "paths": [SHOUT], "mode": "some"},
        {"kind": "fork", "paths": [SHOUT], "merge": "best"},
        {"kind": "fork", "paths": [SHOUT], "concurrency": 0},
        {"kind": "fork", "paths": 5},
        {"kind": "loop", "body": SHOUT, "until": {"kind": "maxSteps", "n": "three"}},
        {"kind": "loop", "body": SHOUT, "until": {"kind": "any", "predicates": 5}},
        {"kind": "loop", "body": SHOUT, "until": {"kind": "maxSteps", "n": 1}, "maxIterations": 0},
        {"kind": "subflow", "document": '{"version": 1}'},
        {"kind": "subflow", "document": 5},
        {"kind": "subflow", "document": {"version": 2, "root": SHOUT}},
        {"kind": "subflow", "document": {"version": 1}},
        {"kind": "subflow", "ref": ["shout"]},
    ],
)  # fmt: skip
def test_a_node_that_is_not_as_it_must_be_is_named(root: Any) -> None:
    for whole in ({**root, "id": "here"}, {"kind": "sequence", "id": "q", "steps": [SHOUT, {**root, "id": "here"}]}):
        with pytest.raises(nn.NoeticConfigError) as caught:
            load_workflow({"version": 1, "root": whole}, FLOWS)

        assert caught.value.code == "WORKFLOW_VALIDATION_FAILED"
        assert "'here'" in str(caught.value)
        assert caught.value.hint


@pytest.mark.parametrize(
    "until", [{"kind": []}, {"kind": {}}, {}, 5, None, {"kind": "any", "predicates": [{"kind": []}]}]
)
def test_a_predicate_of_no_kind_is_not_known(until: Any) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        load_workflow({"version": 1, "root": {"kind": "loop", "id": "l", "body": SHOUT, "until": until}}, FLOWS)

    assert caught.value.code == "UNKNOWN_UNTIL_PREDICATE"
    assert "'l'" in str(caught.value)


def test_a_document_knows_every_predicate_that_needs_no_function() -> None:
    kinds = {cls.model_fields["kind"].default for cls in get_args(get_args(UntilPredicate)[0])}

    with pytest.raises(nn.NoeticConfigError) as caught:
        load_workflow(
            {"version": 1, "root": {"kind": "loop", "id": "l", "body": SHOUT, "until": {"kind": "soon"}}}, FLOWS
        )
    assert set(caught.value.hint.removeprefix("Predicates are ").rstrip(".").split(", ")) == kinds - {
        "verified",
        "custom",
    }
    for key in ("embed", "verify"):
        root = {"kind": "loop", "id": "l", "body": SHOUT, "until": {"kind": "converged", key: {"$ref": "fn:shout"}}}
        with pytest.raises(nn.NoeticConfigError, match=f"has no `{key}`"):
            load_workflow({"version": 1, "root": root}, FLOWS)


@pytest.mark.parametrize("extra", [{"steps": 5}, {"routes": 5}, {"paths": [5]}, {"child": 5}, {"colour": 1}])
def test_keys_a_saved_node_does_not_know_are_never_walked_into(extra: Any) -> None:
    assert load_workflow({"version": 1, "root": {**ASK, **extra}}, FLOWS, strict=False).id == "a"


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: {"kind": "subflow", "id": "w", "document": {"version": 1, "root": inner}},
        lambda inner: {"kind": "loop", "id": "l", "body": inner, "until": {"kind": "noToolCalls"}},
        lambda inner: {"kind": "branch", "id": "b", "routes": [{"match": "x", "target": inner}]},
        lambda inner: {"kind": "fork", "id": "f", "each": inner},
    ],
)  # fmt: skip
def test_a_document_of_any_kind_nested_without_end_is_refused(wrap: Any) -> None:
    node: dict[str, Any] = SHOUT
    for _ in range(3_000):
        node = wrap(node)

    with pytest.raises(nn.NoeticConfigError, match="nested"):
        load_workflow({"version": 1, "root": node}, FLOWS)


def test_a_predicate_nested_without_end_is_refused() -> None:
    until: dict[str, Any] = {"kind": "noToolCalls"}
    for _ in range(3_000):
        until = {"kind": "any", "predicates": [until]}

    with pytest.raises(nn.NoeticConfigError, match="nested"):
        load_workflow({"version": 1, "root": {"kind": "loop", "id": "l", "body": SHOUT, "until": until}}, FLOWS)


def test_every_node_of_nested_subflows_is_made_once() -> None:
    made: list[str] = []

    class Counting(Registry):
        def resolve(self, ref: str, args: Any = None) -> Any:
            made.append(ref)
            return super().resolve(ref, args)

    node: dict[str, Any] = SHOUT
    for _ in range(12):
        node = {"kind": "subflow", "id": "w", "document": {"version": 1, "root": node}}

    assert load_workflow({"version": 1, "root": node}, Counting([shout])).id == f"s{'-w' * 12}"
    assert made == ["fn:shout"]


def test_a_document_nested_without_end_is_refused() -> None:
    node: dict[str, Any] = SHOUT
    for _ in range(3_000):
        node = {"kind": "spawn", "id": "s", "child": node}

    with pytest.raises(nn.NoeticConfigError, match="nested"):
        load_workflow({"version": 1, "root": node}, FLOWS)
    assert workflow_depth({"kind": "spawn", "id": "s", "child": SHOUT}) == 1


async def test_each_over_an_input_without_an_array_is_an_error() -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        await outcome({"kind": "fork", "id": "f", "mode": "all", "each": SHOUT}, "no json")

    assert caught.value.code == "INVALID_FORK_INPUT"


def test_the_published_schema_is_the_generated_one() -> None:
    assert published_schema() == step_json_schema(), "run: python -m noetic_nb.steps._json.published_schema"


def test_what_is_dumped_fits_the_published_schema() -> None:
    schema = OutputSchema({"$defs": published_schema()["$defs"], "$ref": "#/$defs/LoopStep"})
    dumped = dump_step(everything(), REGISTRY)

    assert schema.check(dumped) == dumped
    with pytest.raises(ValueError, match="colour: not expected"):
        schema.check({**dumped, "colour": 1})


def test_a_configuration_comes_back_from_json() -> None:
    config = nn.AgentConfig(
        name="desk", step=everything(), memory=[NOTES], tools=[lookup], limits={"max_cost": 2.5}, force_atomic_recall=True,
        projection=nn.ProjectionPolicy(token_budget=500, response_reserve=50, overflow="sliding_window", window_size=4),
    )  # fmt: skip

    text = json.dumps(nn.dump_config(config, REGISTRY))
    back = nn.load_config(text, REGISTRY)

    assert json.dumps(nn.dump_config(back, REGISTRY)) == text
    assert (back.memory, back.tools, back.limits, back.projection) == (
        config.memory,
        config.tools,
        config.limits,
        config.projection,
    )


@pytest.mark.parametrize("data", ["{", "[]", 3, {"name": ""}, {"name": "x", "step": {"kind": "dance", "id": "d"}}])
def test_a_bad_configuration_is_one_clear_error(data: Any) -> None:
    with pytest.raises(nn.NoeticConfigError):
        nn.load_config(data)


UNKNOWN_KEYS: list[tuple[dict[str, Any], str]] = [
    ({"version": 1, "root": SHOUT, "rules": []}, "rules"),
    ({"version": 1, "root": {**SHOUT, "retries": 3}}, "retries"),
    ({"version": 1, "root": {"kind": "spawn", "id": "p", "child": SHOUT, "drop": ["steering"]}}, "drop"),
    ({"version": 1, "root": {"kind": "spawn", "id": "p", "child": SHOUT, "timeoutMs": 5}}, "timeoutMs"),
    ({"version": 1, "root": {"kind": "sequence", "id": "q", "steps": [SHOUT, {**SHOUT, "id": "u", "memory": []}]}}, "memory"),
    ({"version": 1, "root": {"kind": "branch", "id": "b", "routes": [{"match": "a", "target": SHOUT, "else": SHOUT}]}}, "else"),
    ({"version": 1, "root": {"kind": "loop", "id": "l", "body": SHOUT, "until": {"kind": "maxSteps", "n": 1, "max": 2}}}, "max"),
    ({"version": 1, "root": {"kind": "loop", "id": "l", "body": SHOUT, "until": {"kind": "noToolCalls", "n": 1}}}, "n"),
    (
        {"version": 1, "root": {**ASK, "tools": [{"type": "lookup", "needsApproval": True}]}},
        "needsApproval",
    ),
    ({"version": 1, "root": {"kind": "subflow", "id": "w", "document": {"version": 1, "root": SHOUT, "limits": {}}}}, "limits"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "key"), UNKNOWN_KEYS, ids=[key for _, key in UNKNOWN_KEYS])
def test_a_key_that_nobody_reads_is_refused_in_a_new_document_and_found_in_a_saved_one(document: Any, key: str) -> None:
    with pytest.raises(NoeticConfigError, match=f"`{key}`") as caught:
        load_workflow(document, FLOWS)
    assert caught.value.code == "WORKFLOW_VALIDATION_FAILED"

    saved = load_workflow(document, FLOWS, strict=False)

    found = nn.AgentHarness(nn.AgentConfig(name="w", step=saved)).check()
    assert [key in f.message for f in found if f.code == "UNKNOWN_WORKFLOW_KEY"] == [True]
    assert dump_step(saved, FLOWS) is not None


def test_a_misspelt_key_is_answered_with_the_right_one() -> None:
    with pytest.raises(NoeticConfigError, match="Did you mean 'timeout'"):
        load_workflow({"version": 1, "root": {"kind": "spawn", "id": "p", "child": SHOUT, "timeOut": 5}}, FLOWS)


class Counting(Registry):
    """Counts how often each workflow is looked up."""

    def resolve(self, ref: str, args: Any = None) -> Any:
        self.looks = [*getattr(self, "looks", ()), ref]
        return super().resolve(ref, args)


def doubling(levels: int) -> Counting:
    """Return workflows that each use the next one twice."""
    leaf = {"kind": "llm", "id": "leaf", "instructions": "Go."}
    twice = [{"kind": "subflow", "id": side, "ref": "{}"} for side in ("left", "right")]
    workflows = {
        f"w{n}": {
            "version": 1,
            "root": {"kind": "sequence", "id": "s", "steps": [{**one, "ref": f"w{n + 1}"} for one in twice]},
        }
        for n in range(levels)
    }
    return Counting(workflows={**workflows, f"w{levels}": {"version": 1, "root": leaf}})


START = {"version": 1, "root": {"kind": "subflow", "id": "start", "ref": "w0"}}


def test_a_workflow_that_is_used_twice_is_read_once_and_has_ids_of_its_own() -> None:
    registry = doubling(3)

    made = load_workflow(START, registry)

    assert registry.looks == [f"workflow:w{n}" for n in range(4)]
    ids = [found.id for found in steps_within(made)]
    assert len(ids) == len(set(ids)) == 2**3 + 2**3 - 1
    assert "leaf-left-right-left-start" in ids


def test_workflows_that_stand_for_too_many_steps_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "MAX_STEPS", 1_000)
    registry = doubling(40)

    with pytest.raises(NoeticConfigError, match="more than 1000 steps"):
        load_workflow(START, registry)
    assert len(registry.looks) == 41
