"""Records made without a schema are those that pydantic makes, and what it refuses is refused in the same words."""

import inspect
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

import noetic_nb as nn
from noetic_nb import quick_fields
from noetic_nb.memory.projection import ProjectionPolicy
from noetic_nb.quick_fields import made_quickly
from noetic_nb.runtime.config.config import AgentConfig
from noetic_nb.runtime.durability.checkpoints import Checkpoints
from noetic_nb.steering import SteeringRule
from noetic_nb.steps import records
from noetic_nb.steps.base import Frozen
from noetic_nb.steps.loop_predicates import Any_, MaxCost, MaxSteps
from noetic_nb.steps.retry_policy import RetryPolicy


@nn.tool
def lookup(order_id: str) -> str:
    """Find an order."""
    return order_id


KINDS = [
    records.RunStep, records.LLMStep, records.ToolStep, records.BranchStep, records.ForkStep, records.SpawnStep,
    records.LoopStep, records.Route, RetryPolicy, AgentConfig, Checkpoints, ProjectionPolicy, MaxSteps, MaxCost, Any_,
]  # fmt: skip
ASK = nn.step.llm("ask", model="m")
VALUES = [
    None, "", "x", "\ud800", "llm", "all", "raise", 0, 1, -1, 2**70, 0.0, 1.5, -2.0, math.inf, True, (), ("a",), ["a"], {},
    {"kind": "llm", "id": "a", "model": "m"}, {"a": 1}, (ASK,), [ASK], ASK, lookup, (lookup,), [lookup], len,
    lambda value, ctx: value, nn.until.max_steps(2), (nn.until.max_steps(2),), ProjectionPolicy(), nn.channel("c"), int,
]  # fmt: skip


def outcome(kind, data, *, quickly):
    """Return what a record of some data is, or in what words it is refused, and whether it was made without its schema."""
    made = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "__pydantic_complete__", not quickly)
        patch.setattr(quick_fields._known(kind), "left", 1)
        for module in ("noetic_nb.steps.base", "noetic_nb.memory.projection"):
            patch.setattr(f"{module}.made_quickly", lambda *given: made.append(made_quickly(*given)) or made[-1])
        try:
            record = kind(**data)
        except Exception as exc:
            return (type(exc), str(exc)), any(made)
    shown = [(name, type(value), repr(value)) for name, value in vars(record).items()]
    # A schema of an output is made anew of what is given; it shows what it is.
    return (shown, record.model_fields_set, record.__pydantic_private__), any(made)


@pytest.fixture(autouse=True, scope="module")
def schemas():
    """Build the schemas of all kinds, so that both ways are there."""
    for kind in KINDS:
        kind.model_rebuild()


@st.composite
def data_of(draw):
    kind = draw(st.sampled_from(KINDS))
    fields = kind.model_fields
    names = [name for name, field in fields.items() if field.is_required()]
    names += draw(st.lists(st.sampled_from([*fields, "unknown"]), max_size=3))
    return kind, {name: draw(st.sampled_from(["id", *VALUES]) if name != "id" else st.just("one")) for name in names}


@given(data_of())
def test_a_record_is_the_same_with_and_without_its_schema(given_data):
    kind, data = given_data
    by_schema, _ = outcome(kind, data, quickly=False)
    assert outcome(kind, data, quickly=True)[0] == by_schema


LEAST = {
    records.RunStep: {"execute": len}, records.LLMStep: {"model": "m"}, records.ToolStep: {"tool": lookup},
    records.BranchStep: {"default": ASK}, records.ForkStep: {"mode": "race", "each": ASK}, records.SpawnStep: {"child": ASK},
    records.LoopStep: {"steps": (ASK,), "until": nn.until.max_steps(2)}, records.Route: {"match": "a", "target": ASK},
    AgentConfig: {"name": "a"}, MaxSteps: {"n": 2}, MaxCost: {"usd": 1.0}, Any_: {"predicates": (nn.until.max_steps(2),)},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=[kind.__name__ for kind in KINDS])
def test_every_field_is_the_same_with_and_without_its_schema(kind):
    quick = 0
    for name in kind.model_fields:
        for value in VALUES:
            data = {**({"id": "one"} if "id" in kind.model_fields else {}), **LEAST.get(kind, {}), name: value}
            found, was_quick = outcome(kind, data, quickly=True)
            assert found == outcome(kind, data, quickly=False)[0], (name, value)
            quick += was_quick
    assert quick


FITTING = [
    (records.RunStep, {"id": "a", "execute": lambda value, ctx: value}),
    (records.LLMStep, {"id": "a", "model": "m", "tools": [lookup], "tool_rounds": 1}),
    (records.ToolStep, {"id": "a", "tool": lookup}),
    (records.SpawnStep, {"id": "a", "child": ASK}),
    (records.LoopStep, {"id": "a", "steps": (ASK,), "until": nn.until.max_steps(2), "park_timeout_ms": 5.0}),
    (records.ForkStep, {"id": "a", "mode": "race", "paths": (ASK,)}),
    (AgentConfig, {"name": "a", "step": ASK, "memory": [], "projection": ProjectionPolicy()}),
    (ProjectionPolicy, {}),
    (MaxSteps, {"n": 2}),
]


@pytest.mark.parametrize(("kind", "data"), FITTING, ids=[kind.__name__ for kind, _ in FITTING])
def test_what_fits_needs_no_schema(kind, data):
    found, was_quick = outcome(kind, data, quickly=True)
    assert was_quick
    assert found == outcome(kind, data, quickly=False)[0]


def test_an_iterator_is_not_spent_before_the_schema_reads_it():
    (found, *_), was_quick = outcome(AgentConfig, {"name": "a", "tools": iter([lookup])}, quickly=True)
    assert not was_quick
    assert "lookup" in {name: shown for name, _, shown in found}["tools"]


def test_after_some_records_the_schema_is_built():
    class Point(Frozen):
        x: int

    points = [Point(x=n) for n in range(100)]
    assert Point.__pydantic_complete__
    assert [point.x for point in points] == list(range(100))
    assert points[0] == Point(x=0)


def test_a_first_agent_builds_no_schema():
    program = """
import noetic_nb as nn, asyncio
agent = nn.AgentHarness(nn.AgentConfig(name="a", step=nn.react(model="m")), model=nn.ScriptedModel(["hello"]))
assert asyncio.run(agent.execute("hi")).text == "hello"
from noetic_nb.steps.base import Frozen
from noetic_nb.steps.records import LLMStep, LoopStep
from noetic_nb.memory.projection import ProjectionPolicy
print([kind.__pydantic_complete__ for kind in (nn.AgentConfig, LLMStep, LoopStep, ProjectionPolicy)])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[False, False, False, False]"


class Odd(BaseModel):
    model_config = ConfigDict(defer_build=True, str_strip_whitespace=True)
    name: str


class Judged(BaseModel):
    model_config = ConfigDict(defer_build=True)
    name: str = Field(pattern="^a")
    size: int = 0

    @field_validator("size", mode="after")
    @classmethod
    def _doubled(cls, value):
        return 2 * value


@pytest.mark.parametrize("kind", [Odd, Judged], ids=["config", "validator"])
def test_a_class_that_changes_what_it_is_given_is_left_to_pydantic(kind):
    assert not made_quickly(kind.__new__(kind), {"name": "a"})


def test_a_limit_that_is_not_known_is_left_to_pydantic():
    class Named(BaseModel):
        model_config = ConfigDict(defer_build=True)
        name: str = Field(pattern="^a")

    assert not made_quickly(Named.__new__(Named), {"name": "b"})
    with pytest.raises(ValidationError):
        Named(name="b")


@pytest.mark.parametrize("kind", [*KINDS, nn.ModelParams, nn.Limits, SteeringRule])
def test_the_signature_of_a_record_lists_its_fields(kind: type[BaseModel]) -> None:
    def parameters() -> list[tuple[str, bool]]:
        return [(one.name, one.default is one.empty) for one in inspect.signature(kind).parameters.values()]

    fields = [(name, field.is_required()) for name, field in kind.model_fields.items()]
    assert parameters() == fields
    kind.model_rebuild(force=True)  # pydantic sets a signature of its own here

    assert parameters() == fields


def test_the_most_used_constructor_completes() -> None:
    shell = InteractiveShell()
    shell.run_cell("import noetic_nb as nn")

    with provisionalcompleter():
        found = [one.text for one in shell.Completer.completions("nn.AgentConfig(force", 20)]

    assert found == ["force_atomic_recall="]
