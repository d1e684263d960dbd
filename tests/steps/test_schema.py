"""JSON Schemas: accepted values, schemas rejected on creation, and round trips of pydantic's schemas."""

from __future__ import annotations

import copy
import datetime as dt
import enum
import json
import pickle
import subprocess
import sys
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal, NotRequired

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

import noetic_nb as nn
from noetic_nb.steps import dump_step, load_step, step
from noetic_nb.steps._schema import OutputSchema


@pytest.mark.parametrize(
    ("schema", "good", "bad", "says"),
    [
        ({"type": "integer", "minimum": 1}, 1, 0, "^value: minimum 1$"),
        ({"type": "integer"}, 1.0, True, "type integer"),
        ({"type": "number"}, 1, True, "type number"),
        ({"type": ["integer", "null"]}, None, 1.5, "type integer or null"),
        ({"enum": ["a", 1]}, 1, True, "not one of 'a', 1"),
        ({"enum": [[1]]}, [1.0], [True], "not one of"),
        ({"const": None}, None, 0, "not None"),
        ({"const": 1}, 1.0, True, "not 1"),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, ["a"], ["a", 1], "^1: not of type string"),
        ({"type": "array", "uniqueItems": True}, [1, True], [1, 1.0], "different"),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a"], ["a", 1], "."),
        ({"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}, {"n": 1}, {}, "n: missing"),
        ({"properties": {"a": {"required": ("b", "c")}}}, {"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, "^a.c: missing$"),
        ({"type": "object", "properties": {}, "additionalProperties": False}, {}, {"x": 1}, "^x: not expected$"),
        ({"patternProperties": {"^a": True}, "additionalProperties": False}, {"ab": 1}, {"ab": 1, "b": 1}, "^b: not"),
        ({"properties": {"a": False}}, {"b": 1}, {"a": 1}, "nothing is allowed"),
        ({"propertyNames": {"enum": ["a", "b"]}}, {"a": 1}, {"c": 1}, "not one of 'a', 'b'"),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 1}, {"a": 1}, "b"),
        ({"contains": {"type": "string"}}, [1, "a"], [1], "value: "),
        ({"if": {"type": "string"}, "then": {"maxLength": 1}, "else": {"minimum": 0}}, "a", -1, "minimum 0"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, None, 1, "^value: no form fits .*string.*; .*null"),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, 1.5, 1, "more than one"),
        ({"allOf": [{"minLength": 2}, {"pattern": "^a"}]}, "ab", "bb", "pattern"),
        ({"not": {"type": "string"}}, 1, "a", "excluded"),
        ({"$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n"}, 1, "1", "type integer"),
        ({"$defs": {"n": {"$anchor": "n", "type": "integer"}}, "items": {"$ref": "#n"}}, [1], ["1"], "0: not of type"),
        ({"$id": "https://example.org/a", "$defs": {"n": {"type": "null"}}, "$ref": "#/$defs/n"}, None, 1, "null"),
        ({"x-parts": {"n": {"type": "null"}}, "$ref": "#/x-parts/n"}, None, 1, "null"),
    ],
)
def test_a_json_schema_is_checked(schema: Any, good: Any, bad: Any, says: str) -> None:
    checked = OutputSchema(schema)

    assert checked.check(good) == good
    with pytest.raises(ValueError, match=says):
        checked.check(bad)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"multipleOf": 0}, "multipleOf"),
        ({"minimum": "1"}, "minimum"),
        ({"type": "text"}, "type"),
        ({"pattern": "("}, "pattern"),
        ({"patternProperties": {"(": {}}}, "regex"),
        ({"required": "name"}, "required"),
        ({"items": 3}, "items"),
        ({"properties": {"a": 3}}, "properties/a"),
        ({"properties": {"a": {"items": {"minLength": -1}}}}, "properties/a/items/minLength"),
        ({"exclusiveMinimum": True}, "exclusiveMinimum"),
        ({"$ref": "#/$defs/none"}, "'#/\\$defs/none', which it does not have, at its root"),
        ({"items": {"$ref": "#none"}}, "'#none', which it does not have, at /items"),
        ({"prefixItems": [{}], "$ref": "#/prefixItems/x"}, "which it does not have"),
        ({"$ref": "schema:order"}, "which it does not have"),
        ({"$ref": "https://example.org/schema.json"}, "which it does not have"),
        ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, "which it does not have"),
        ({"x-parts": {"n": {"type": 3}}, "$ref": "#/x-parts/n"}, "#/x-parts/n/type"),
        ({"x-parts": 3, "$ref": "#/x-parts"}, "3"),
        ({"$ref": "#"}, "refers to itself without end"),
        ({"anyOf": [{"type": "string"}, {"not": {"$ref": "#"}}]}, "refers to itself without end"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "refers to itself without end"),
        ({"dependencies": {"a": ["b"]}}, "'dependencies', which is not checked"),
        ({"minimun": 3}, "'minimun', which is not checked here, at its root"),
        ({"items": {"maxlength": 3}}, "'maxlength', which is not checked here, at /items"),
    ],
)
def test_a_schema_that_cannot_be_checked_is_refused_when_it_is_made(schema: Any, says: str) -> None:
    with pytest.raises(nn.NoeticConfigError, match=says) as caught:
        OutputSchema(schema)

    assert caught.value.code == "INVALID_SCHEMA"
    assert caught.value.hint
    if not str(schema.get("$ref")).startswith("schema:"):  # a name in the registry
        with pytest.raises(nn.NoeticConfigError, match="INVALID_SCHEMA"):
            load_step({"kind": "llm", "id": "a", "model": "m", "output": schema})


def test_what_is_no_schema_at_all_is_refused() -> None:
    with pytest.raises(nn.NoeticConfigError, match="INVALID_SCHEMA"):
        OutputSchema(object())


@pytest.mark.parametrize("word", ["x-widget", "format", "title", "discriminator", "contentMediaType"])
def test_notes_are_taken_and_not_checked(word: str) -> None:
    assert OutputSchema({"type": "integer", word: "anything"}).check(3) == 3


def test_what_a_type_notes_for_itself_stays_out_of_json() -> None:
    class Slider(BaseModel):
        n: int = Field(ge=0, json_schema_extra={"widget": "slider", "x-unit": "m"})

    made = step.llm("a", model="m", output=list[Slider])
    back = load_step(json.dumps(dump_step(made))).output

    assert made.output.json_schema["$defs"]["Slider"]["properties"]["n"]["widget"] == "slider"
    assert back.json_schema["$defs"]["Slider"]["properties"]["n"] == {
        "minimum": 0, "title": "N", "type": "integer", "x-unit": "m"
    }  # fmt: skip
    assert back.check([{"n": 1}])


@pytest.mark.parametrize(
    ("schema", "text", "fits"),
    [
        ({"type": "number"}, "NaN", True),
        ({"type": "integer"}, "NaN", False),
        ({"type": "integer"}, "1e999", False),
        ({"minimum": 0}, "NaN", False),
        ({"maximum": 0}, "NaN", False),
        ({"exclusiveMinimum": 0}, "NaN", False),
        ({"exclusiveMaximum": 0}, "NaN", False),
        ({"minimum": 0}, "Infinity", True),
        ({"multipleOf": 2}, "Infinity", False),
        ({"multipleOf": 2}, "NaN", False),
        ({"multipleOf": 0.1}, "0.3", True),
        ({"multipleOf": 0.1}, "0.35", False),
        ({"multipleOf": 10}, "10000000001", False),
        ({"multipleOf": 0.5}, "1" + "0" * 400, True),
        ({"multipleOf": 1e-300}, "1e300", False),
    ],
)
def test_numbers_beyond_the_ordinary_are_judged_and_never_crash(schema: Any, text: str, fits: bool) -> None:
    checked = OutputSchema(schema)

    if fits:
        checked.parse(text, step_id="s")
    else:
        with pytest.raises(nn.NoeticError) as caught:
            checked.parse(text, step_id="s")
        assert caught.value.kind == "llm_parse_error"


def test_depth_without_end_is_an_ordinary_refusal() -> None:
    nested: dict[str, Any] = {"type": "integer"}
    for _ in range(2_000):
        nested = {"items": nested}
    cyclic: dict[str, Any] = {"type": "object"}
    cyclic["properties"] = {"a": cyclic}
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]
    tree = OutputSchema({"type": "array", "items": {"$ref": "#"}})

    for schema in (nested, cyclic):
        with pytest.raises(nn.NoeticConfigError, match="INVALID_SCHEMA"):
            OutputSchema(schema)
    with pytest.raises(ValueError, match="deep"):
        tree.check(deep)
    with pytest.raises(nn.NoeticError, match="does not fit"):
        tree.parse("[" * 100_000, step_id="s")
    assert tree.check([[], [[]]]) == [[], [[]]]


def test_a_schema_may_refer_to_itself_from_inside() -> None:
    tree = OutputSchema({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["name"]})

    assert tree.check({"name": "a", "next": {"name": "b"}})
    with pytest.raises(ValueError, match=r"^next\.name: missing$"):
        tree.check({"name": "a", "next": {}})


def test_frozen_data_is_judged_as_the_json_it_stands_for() -> None:
    from noetic_nb.items import freeze

    schema = OutputSchema(freeze({"properties": {"list": {"type": "array", "items": {"type": "object"}}}}))

    assert schema.check(freeze({"list": [{"a": 1}]})) == {"list": ({"a": 1},)}
    with pytest.raises(ValueError, match=r"list.0: not of type object"):
        schema.check(freeze({"list": [[]]}))


@pytest.mark.parametrize(
    "given", [{"type": "integer"}, int, {"$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n"}]
)
def test_a_schema_is_copied_and_pickled(given: Any) -> None:
    schema = OutputSchema(given)

    for again in (pickle.loads(pickle.dumps(schema)), copy.deepcopy(schema), copy.copy(schema)):
        assert again == schema
        assert not fits(again, "a")


def test_a_first_agent_loads_no_schema_checker() -> None:
    code = """
import asyncio, sys
import noetic_nb as nn

@nn.tool
def look(order_id: str) -> dict[str, int]:
    "Find one order."
    return {"n": 1}

step = nn.react(model="scripted", tools=[look])
typed = nn.step.llm("count", model="scripted", output=dict[str, int])
model = nn.ScriptedModel([nn.CallTool("look", order_id="A17"), "Packed."])
asyncio.run(nn.AgentHarness(nn.AgentConfig(name="desk", step=step), model=model).execute("Where is it?"))
print({"jsonschema", "referencing"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"


# What pydantic makes


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Point(BaseModel):
    x: int
    y: int = 0


class Closed(BaseModel, extra="forbid"):
    a: str = Field(min_length=1)
    b: list[Point] = Field(default=[], max_length=2)


class Tree(BaseModel):
    a: int
    children: list[Tree] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    a: int


class Dog(BaseModel):
    kind: Literal["dog"]
    a: str


class Keyed(TypedDict):
    a: int
    b: NotRequired[str]


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]

EXACT: list[Any] = [
    int, float, bool, str, type(None), Any, Literal["a", "b"], Literal[7, "a", None], Colour, Level,
    int | None, int | str, str | list[int], list[int], dict[str, int], dict[Literal["a", "b"], int], dict[Colour, bool],
    tuple[int, str], tuple[int, ...], Point, Closed, Tree, Pet, list[Pet], Keyed,
    Annotated[int, Field(ge=0, lt=3)], Annotated[float, Field(gt=0, le=2.5)], Annotated[int, Field(multiple_of=2)],
    Annotated[float, Field(multiple_of=0.1)], Annotated[str, Field(min_length=1, max_length=2)],
    Annotated[str, Field(pattern="^a")], Annotated[list[int], Field(min_length=1, max_length=2)],
    dict[Annotated[str, Field(max_length=1)], int],
]  # fmt: skip
"""Types whose JSON Schema states everything that pydantic requires."""

BY_FORMAT: list[Any] = [
    dt.datetime, dt.date, dt.timedelta, Decimal, uuid.UUID, bytes, set[int], frozenset[str],
    dict[Annotated[str, Field(pattern="^a")], int],
]  # fmt: skip
"""Types that require more than their schema states: a date is a text there."""

LEAVES = st.sampled_from([None, True, False, 0, 1, 2, -1, 0.3, 0.35, 1.5, "", "a", "b", "ab", "cat", "dog", "red", "1"])
KEYS = st.sampled_from(["a", "b", "ab", "x", "y", "kind", "children", "red"])
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)
VALID: list[tuple[Any, Any]] = [
    (dt.datetime, "2026-01-02T03:04:05Z"), (dt.date, "2026-01-02"), (dt.timedelta, "P1D"), (Decimal, "1.50"),
    (Decimal, 1.5), (uuid.UUID, "12345678-1234-5678-1234-567812345678"), (bytes, "abc"), (set[int], [1, 2]),
    (Tree, {"a": 1, "children": [{"a": 2, "children": []}]}), (Pet, {"kind": "cat", "a": 1}), (Closed, {"a": "b"}),
    (tuple[int, str], [1, "a"]), (dict[Literal["a", "b"], int], {"a": 1, "b": 2}), (Level, 2), (Colour, "red"),
]  # fmt: skip


def came_back(kind: Any) -> OutputSchema:
    """Return the schema of a type after its step was dumped and loaded."""
    text = json.dumps(dump_step(step.llm("a", model="m", output=kind)))
    back = load_step(text)

    assert json.dumps(dump_step(back)) == text
    assert back == load_step(text)
    assert isinstance(back.output, OutputSchema)
    return back.output


def fits(schema: OutputSchema, value: Any) -> bool:
    try:
        schema.check(value)
    except ValueError:
        return False
    return True


def pydantic_takes(kind: Any, value: Any) -> bool:
    try:
        TypeAdapter(kind).validate_json(json.dumps(value), strict=True)
    except ValidationError:
        return False
    return True


BACK = {index: came_back(kind) for index, kind in enumerate(EXACT)}


@pytest.mark.parametrize("kind", [*EXACT, *BY_FORMAT], ids=str)
def test_what_pydantic_makes_comes_back(kind: Any) -> None:
    assert came_back(kind).json_schema == TypeAdapter(kind).json_schema()


@given(st.sampled_from(sorted(BACK)), JSON)
def test_a_schema_that_came_back_judges_as_pydantic_does(index: int, value: Any) -> None:
    assert fits(BACK[index], value) == pydantic_takes(EXACT[index], value)


@pytest.mark.parametrize(("kind", "value"), VALID)
def test_a_schema_that_came_back_takes_what_pydantic_takes(kind: Any, value: Any) -> None:
    assert pydantic_takes(kind, value)
    assert fits(came_back(kind), value)


BASES = st.sampled_from(EXACT)
TYPES = st.recursive(
    BASES,
    lambda inner: st.one_of(
        inner.map(lambda t: list[t]),  # type: ignore[valid-type]
        inner.map(lambda t: dict[str, t]),  # type: ignore[valid-type]
        inner.map(lambda t: t | None),
        st.tuples(inner, inner).map(lambda pair: tuple[pair[0], pair[1]]),  # type: ignore[valid-type]
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1] | None),
    ),
    max_leaves=3,
)


@given(TYPES, JSON)
def test_types_put_together_come_back_and_judge_as_pydantic_does(kind: Any, value: Any) -> None:
    assert fits(came_back(kind), value) == pydantic_takes(kind, value)
