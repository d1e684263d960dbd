"""Steps survive JSON: every kind, nested, with functions, tools, layers and schemas by reference."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import noetic_nb as nn
from noetic_nb.steps import Registry, branch, channel, dump_step, fork, load_step, loop, spawn, step, until
from noetic_nb.steps._records import BranchStep, LLMStep, LoopStep, RunStep, SpawnStep, Step, ToolStep, steps_within
from noetic_nb.steps._schema import OutputSchema
from noetic_nb.testing import drive_loop


class Order(BaseModel):
    id: str


def add(value: Any, ctx: Any, *, n: int = 1) -> Any:
    return value + n


def double(value: Any, ctx: Any) -> Any:
    return 2 * value


def positive(value: Any, ctx: Any) -> Any:
    return None if value < 0 else step.run("neg", double)


def total(values: Any, ctx: Any) -> Any:
    return sum(values)


def select(items: Any, state: Any) -> Any:
    return items[-1:]


def next_input(output: Any, verdict: Any, ctx: Any) -> Any:
    return output


def big(output: Any) -> Any:
    return {"pass": output > 10, "feedback": "more"}


@nn.tool
def lookup(order_id: str) -> str:
    """Find one order."""
    return order_id


NOTES = nn.working_memory(id="notes")
REGISTRY = Registry(
    [add, double, positive, total, select, next_input, big],
    tools=[lookup],
    layers=[NOTES],
    schemas={"order": Order},
)


def everything() -> Any:
    """Return a step with every kind of step and every non-default option."""
    ask = step.llm(
        "ask",
        model="m",
        instructions="Be brief.",
        tools=[lookup],
        output=Order,
        params={"temperature": 0.5, "top_p": 0.9, "stop_sequences": ("END",)},
        projection=nn.ProjectionPolicy(token_budget=900, response_reserve=100, overflow="truncate"),
        tool_rounds=3,
        emit=False,
    )
    run = step.run(
        "add", functools.partial(add, n=3), retry={"max_attempts": 2, "backoff": "linear", "initial_delay_ms": 5}
    )
    find = step.tool("find", lookup, {"order_id": "A", "odd": {"$ref": "fn:nobody"}}, takes_input=False)
    way = branch("way", positive)
    words = branch("words", routes=[{"match": "yes", "target": run}], default=find)
    both = fork("both", mode="all", paths=[run, way], merge=total, concurrency=2)
    race = fork("race", mode="race", paths=[run, step.run("double", double)])
    each = fork("each", mode="settle", each=run, over="list", merge="concat")
    sub = spawn("sub", ask, context_in={"strategy": "subset", "select": select}, context_out="summary", memory=[NOTES],
                timeout_ms=500)  # fmt: skip
    typed = spawn("typed", run, context_in="inherit", context_out={"strategy": "schema", "schema": {"type": "integer"}})
    return loop(
        "all",
        [ask, run, find, way, words, both, race, each, sub, typed],
        until=until.any(until.all(until.verified(big), until.never()), until.converged(0.5), until.max_cost(1.5)),
        max_iterations=7,
        max_history_size=3,
        inbox=channel("inbox", schema=Order, capacity=4, external=True),
        park_timeout_ms=20,
        prepare_next=next_input,
        on_error="skip",
        feed_output=False,
    )


def test_a_step_with_everything_in_it_comes_back_from_json_text() -> None:
    text = json.dumps(dump_step(everything(), REGISTRY), allow_nan=False)

    back = load_step(text, REGISTRY)

    assert json.dumps(dump_step(back, REGISTRY)) == text
    kinds = {cls.model_fields["kind"].default for cls in get_args(get_args(Step)[0])}
    assert {inner.kind for inner in steps_within(back)} == kinds, "every kind is in it"
    assert [inner.kind for inner in back.steps] == [inner.kind for inner in everything().steps]
    assert back.steps[0].output.check({"id": "A"}) == Order(id="A"), "a registered type comes back as itself"
    assert back.steps[1].execute(1, None) == 4
    assert back.steps[2].args == {"order_id": "A", "odd": {"$ref": "fn:nobody"}}, "arguments are data"
    assert back.steps[8].memory == (NOTES,)
    assert back.inbox.checked(Order(id="A")) == Order(id="A")


@pytest.mark.parametrize(
    "make",
    [
        lambda: step.llm("a", model="m", output={"type": "object", "required": ("n",)}),
        lambda: step.llm("a", model="m", output=Order),
        lambda: step.llm("a", model="m", output=int),
        lambda: step.llm("a", model="m", output=dict[str, int | None]),
        lambda: step.llm("a", model="m", output=nn.steps.fenced_json()),
        lambda: spawn("s", step.run("d", double), context_out={"strategy": "schema", "schema": {"type": "string"}}),
        lambda: loop("l", step.run("d", double), until=until.never(), inbox=channel("c", schema=int)),
    ],
)  # fmt: skip
def test_a_step_that_came_back_is_equal_where_it_holds_a_schema(make: Any) -> None:
    one = make()

    assert one == make()
    assert hash(one) == hash(make())
    assert load_step(json.dumps(dump_step(one, REGISTRY)), REGISTRY) == one


def test_schemas_are_equal_where_they_ask_for_the_same_and_give_the_same() -> None:
    class Other(BaseModel):
        id: str

    Other.__name__ = "Order"
    asked = Order.model_json_schema()

    assert OutputSchema(int) == OutputSchema({"type": "integer"})
    assert OutputSchema(int) != OutputSchema(float)
    assert OutputSchema(Order) != OutputSchema(asked), "one gives an Order, the other a mapping"
    assert OutputSchema(Order) != OutputSchema(Other)
    assert OutputSchema(Order) != asked


@pytest.mark.parametrize(
    "options", [{"params_schema": {"type": "object"}}, {"item_schemas": {"items": [{"type": "object"}]}}]
)
def test_a_configuration_that_came_back_is_equal_where_it_holds_a_schema(options: Any) -> None:
    config = nn.AgentConfig(name="desk", **options)

    assert nn.load_config(json.dumps(nn.dump_config(config))) == config


class Desk:
    def __init__(self, name: str) -> None:
        self.name = name

    def answer(self, value: Any, ctx: Any) -> str:
        return f"{self.name}: {value}"


def test_methods_and_functions_with_arguments_set_have_names_of_their_own() -> None:
    mine, other = Desk("mine"), Desk("other")
    names = Registry({"mine": mine.answer, "more": functools.partial(add, n=3)})
    more = names.resolve("fn:more")
    names.fn(mine.answer, name="mine")

    method = dump_step(step.run("a", mine.answer), names)
    assert method["execute"] == {"$ref": "fn:mine"}
    assert load_step(method, names).execute("hi", None) == "mine: hi"
    assert dump_step(step.run("a", more), names)["execute"] == {"$ref": "fn:more"}
    with pytest.raises(nn.NoeticConfigError) as caught:
        dump_step(step.run("a", other.answer), names)
    assert caught.value.code == "UNREGISTERED_FUNCTION"


@pytest.mark.parametrize("args", [5, "n", [1], {3: 4}])
def test_the_arguments_of_a_reference_are_a_mapping(args: Any) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        load_step({"kind": "run", "id": "r", "execute": {"$ref": "fn:add", "args": args}}, REGISTRY)

    assert caught.value.code == "INVALID_REFERENCE"


def test_both_spellings_of_keys_are_read() -> None:
    camel = {"kind": "loop", "id": "l", "steps": [{"kind": "llm", "id": "a", "model": "m", "toolRounds": 2}],
             "until": {"kind": "maxSteps", "n": 1}, "maxIterations": 5}  # fmt: skip
    snake = {"kind": "loop", "id": "l", "steps": [{"kind": "llm", "id": "a", "model": "m", "tool_rounds": 2}],
             "until": {"kind": "maxSteps", "n": 1}, "max_iterations": 5}  # fmt: skip

    assert load_step(camel) == load_step(snake)


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (lambda: step.run("r", lambda value, ctx: value), "UNREGISTERED_FUNCTION"),
        (lambda: step.llm("a", model="m", tools=[make_other()]), "UNREGISTERED_TOOL"),
        (lambda: spawn("s", step.run("r", double), memory=[replace(NOTES, id="mine")]), "UNREGISTERED_LAYER"),
        (lambda: step.tool("t", lookup, {"order_id": {1, 2}}), "NOT_JSON"),
        (lambda: loop("l", step.run("r", double), until=until.custom(lambda s: True)), "UNREGISTERED_FUNCTION"),
    ],
)  # fmt: skip
def test_what_json_cannot_name_is_refused_saying_where(made: Any, code: str) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        dump_step(made(), REGISTRY)

    assert caught.value.code == code
    assert caught.value.where


LLM: dict[str, Any] = {"kind": "llm", "id": "a", "model": "m"}
STOP: dict[str, Any] = {"kind": "never"}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({"kind": "run"}, "MISSING_EXECUTE_FUNCTION"),
        ({"kind": "run", "execute": None}, "MISSING_EXECUTE_FUNCTION"),
        ({"kind": "run", "execute": "print"}, "MISSING_EXECUTE_FUNCTION"),
        ({"kind": "llm"}, "MISSING_MODEL"),
        ({"kind": "llm", "model": " "}, "MISSING_MODEL"),
        ({"kind": "tool"}, "MISSING_TOOL"),
        ({"kind": "branch"}, "MISSING_ROUTE_FUNCTION"),
        ({"kind": "spawn"}, "MISSING_CHILD_STEP"),
        ({"kind": "loop", "until": STOP}, "MISSING_LOOP_BODY"),
        ({"kind": "loop", "until": STOP, "steps": []}, "MISSING_LOOP_BODY"),
        ({"kind": "loop"}, "MISSING_LOOP_BODY"),
        ({"kind": "loop", "steps": [LLM]}, "MISSING_UNTIL_PREDICATE"),
    ],
)  # fmt: skip
def test_what_a_kind_of_step_cannot_do_without_is_missed_by_its_own_name(data: Any, code: str) -> None:
    kinds = {
        "run": RunStep,
        "llm": LLMStep,
        "tool": ToolStep,
        "branch": BranchStep,
        "spawn": SpawnStep,
        "loop": LoopStep,
    }
    fields = {key: value for key, value in data.items() if key != "kind"}

    for make in (lambda: load_step({"id": "x", **data}), lambda: kinds[data["kind"]](id="x", **fields)):
        with pytest.raises(nn.NoeticConfigError) as caught:
            make()
        assert caught.value.code == code
        assert "'x'" in str(caught.value)
        assert caught.value.hint

    with pytest.raises(nn.NoeticConfigError) as caught:
        load_step({"id": " ", **data})
    assert caught.value.code == "EMPTY_STEP_ID", "a step is named before anything is said of it"


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: loop("l", step.run("r", double)), "MISSING_UNTIL_PREDICATE"),
        (lambda: loop("l", until=until.never()), "MISSING_LOOP_BODY"),
        (lambda: loop("l", [], until=until.never()), "MISSING_LOOP_BODY"),
        (lambda: loop("", [], until=until.never()), "EMPTY_STEP_ID"),
        (lambda: spawn("s"), "MISSING_CHILD_STEP"),
        (lambda: spawn("", None), "EMPTY_STEP_ID"),
        (lambda: step.run("r", None), "MISSING_EXECUTE_FUNCTION"),
        (lambda: nn.tool(name=" ")(double), "EMPTY_TOOL_NAME"),
        (lambda: load_step([]), "INVALID_STEP"),
        (lambda: load_step({"kind": "run", "id": "r", "execute": {"$ref": "fn:add", "x": 1}}), "INVALID_REFERENCE"),
        (lambda: dump_step(step.tool("t", lookup, {"a": {1}}), REGISTRY), "NOT_JSON"),
        (lambda: OutputSchema({"items": 3}), "INVALID_SCHEMA"),
        (lambda: nn.steps.task_tree("{", {}), "INVALID_PLAN"),
        (lambda: nn.steps.recursive_llm(solve=step.run("r", double), decompose=list, max_depth=-1), "INVALID_STEP"),
        (lambda: nn.steps.adaptive_plan(planner=step.run("r", double), agents={}, max_revisions=0), "INVALID_STEP"),
    ],
)  # fmt: skip
def test_what_a_builder_refuses_comes_with_its_code_and_what_to_do(make: Any, code: str) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        make()

    assert caught.value.code == code
    assert caught.value.hint


def make_other() -> Any:
    @nn.tool
    def other() -> str:
        """Another."""
        return ""

    return other


@pytest.mark.parametrize(
    ("data", "code", "known"),
    [
        ({"kind": "run", "id": "r", "execute": {"$ref": "fn:nobody"}}, "UNKNOWN_FUNCTION_REFERENCE", "'double'"),
        ({"kind": "tool", "id": "t", "tool": {"$ref": "tool:nothing"}}, "UNKNOWN_TOOL_REFERENCE", "'lookup'"),
        ({"kind": "spawn", "id": "s", "child": {"kind": "llm", "id": "a", "model": "m"},
          "memory": [{"$ref": "layer:none"}]}, "UNKNOWN_LAYER_REFERENCE", "'notes'"),
        ({"kind": "llm", "id": "a", "model": "m", "output": {"$ref": "schema:none"}}, "UNKNOWN_SCHEMA_REFERENCE", "'order'"),
    ],
)  # fmt: skip
def test_an_unknown_reference_names_the_known_ones(data: Any, code: str, known: str) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        load_step(data, REGISTRY)

    assert caught.value.code == code
    assert known in str(caught.value)


def nested(depth: int) -> dict[str, Any]:
    data: dict[str, Any] = {"kind": "run", "id": "r", "execute": {"$ref": "fn:double"}}
    for _ in range(depth):
        data = {"kind": "spawn", "id": "s", "child": data}
    return data


@pytest.mark.parametrize(
    "data",
    [
        "", "{", "[]", "null", 3, None, [], {}, {"kind": "dance", "id": "d"}, {"id": "x"}, {"kind": "llm", "id": "a"},
        {"kind": "llm", "id": "", "model": "m"}, {"kind": "llm", "id": "a", "model": "m", "colour": 1},
        {"kind": "run", "id": "r", "execute": "print(1)"}, {"kind": "run", "id": "r", "execute": "fn:double"},
        {"kind": "run", "id": "r", "execute": {"$ref": "fn:double", "eval": "1"}},
        {"kind": "loop", "id": "l", "steps": [], "until": {"kind": "never"}},
        {"kind": "loop", "id": "l", "steps": [{"kind": "llm", "id": "a", "model": "m"}], "until": {"kind": "maybe"}},
        {"kind": "fork", "id": "f", "mode": "some", "paths": [], "merge": "last"},
        nested(5_000), "[" * 100_000,
    ],
)  # fmt: skip
def test_bad_data_is_one_clear_error(data: Any) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        load_step(data, REGISTRY)

    assert str(caught.value)


def test_data_nested_forty_deep_loads() -> None:
    assert dump_step(load_step(nested(40), REGISTRY), REGISTRY) == nested(40)


leaves = st.sampled_from([
    step.run("double", double), step.run("add", add), step.run("more", functools.partial(add, n=5)),
])  # fmt: skip


def grown(inner: Any) -> Any:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda p: fork("f", mode="all", paths=p, merge=total)),
        inner.map(lambda c: spawn("s", c, context_in="inherit")),
        st.tuples(st.lists(inner, min_size=1, max_size=2), st.integers(1, 3)).map(
            lambda t: loop("l", t[0], until=until.any(until.max_steps(t[1]), until.verified(big)))
        ),
        inner.map(lambda c: branch("b", routes=[{"match": "-", "target": c}], default=c)),
    )


@given(tree=st.recursive(leaves, grown, max_leaves=6), value=st.integers(-20, 20))
def test_a_loaded_step_behaves_as_the_one_that_was_dumped(tree: Any, value: int) -> None:
    async def run(one: Any) -> Any:
        harness = nn.AgentHarness(nn.AgentConfig(name="x"))
        async with harness.execution() as ctx:
            return await harness.run(one, value, ctx), ctx.step_count

    back = load_step(json.dumps(dump_step(tree, REGISTRY)), REGISTRY)

    assert drive_loop(run(back)) == drive_loop(run(tree))
