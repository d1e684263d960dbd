"""Rules judge the values that run: no serializer hides a value, and nothing changes between check and use."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import json
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import (
    Base64Bytes,
    BaseModel,
    ByteSize,
    Field,
    GetCoreSchemaHandler,
    IPvAnyAddress,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    RootModel,
    SecretStr,
    WrapSerializer,
    field_serializer,
    model_serializer,
)
from pydantic_core import core_schema

import noetic_nb as nn
from noetic_nb.errors import NoeticError
from noetic_nb.items._bound_values import copied, may_change
from noetic_nb.steps import step
from tests.runtime.factories import make_harness, outputs

HIDDEN = 0


class Plain(BaseModel):
    amount: int
    to: str = "bank"


class ModelSerialized(Plain):
    @model_serializer
    def shown(self) -> dict[str, Any]:
        return {"amount": HIDDEN, "to": "bank"}


class FieldSerialized(Plain):
    @field_serializer("amount")
    def shown(self, value: int) -> int:
        return HIDDEN


class Holder(BaseModel):
    inner: Plain


class Root(RootModel[Annotated[int, PlainSerializer(lambda value: HIDDEN)]]):
    pass


@dataclasses.dataclass
class Serialized:
    amount: Annotated[int, PlainSerializer(lambda value: HIDDEN)]


class Amount(int):
    """A number whose class defines how pydantic serialises it."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return core_schema.no_info_after_validator_function(
            cls, handler(int), serialization=core_schema.plain_serializer_function_ser_schema(lambda value: HIDDEN)
        )


BLINDING: dict[str, tuple[Any, Any]] = {
    "plain": (Annotated[int, PlainSerializer(lambda value: HIDDEN)], 1_000),
    "wrap": (Annotated[int, WrapSerializer(lambda value, handler: handler(HIDDEN))], 1_000),
    "model": (ModelSerialized, {"amount": 1_000}),
    "field": (FieldSerialized, {"amount": 1_000}),
    "root": (Root, 1_000),
    "dataclass": (Serialized, {"amount": 1_000}),
    "list": (list[Annotated[int, PlainSerializer(lambda value: HIDDEN)]], [1_000]),
    "inside a model": (list[ModelSerialized], [{"amount": 1_000}]),
    "whole list": (Annotated[list[int], PlainSerializer(lambda value: [])], [1_000]),
    "union": (FieldSerialized | None, {"amount": 1_000}),
    "class of its own": (Amount, 1_000),
    "format": (Annotated[float, PlainSerializer(lambda value: round(value, -4))], 1_000.0),
    "text": (Annotated[int, PlainSerializer(str)], 1_000),
    "instance of a subclass": (Plain, FieldSerialized(amount=1_000)),
    "instance anywhere": (Any, {"orders": [ModelSerialized(amount=1_000)]}),
    "instance of a dataclass": (Any, Serialized(1_000)),
    "in a field of a subclass": (Holder, {"inner": ModelSerialized(amount=1_000)}),
}


def tool_of(annotation: Any, ran: list[Any]) -> nn.Tool:
    def act(x: Any) -> str:
        ran.append(x)
        return "done"

    act.__annotations__ = {"x": annotation, "return": str}
    return nn.tool(act)


def run_tool(tool: nn.Tool, x: Any, *rules: Any, **more: Any) -> Any:
    """Call a tool as a step, which accepts any Python value; return its output, or the error."""
    harness = make_harness([], step=step.tool("act", tool, {"x": x}, takes_input=False), memory=list(rules), **more)
    try:
        return nn.run_sync(harness.execute("go")).output
    except NoeticError as exc:
        return exc


def watching(seen: list[Any]) -> nn.MemoryLayer:
    def watch(call: Any) -> None:
        seen.append((call.tool_args["x"], call.tool_values["x"]))

    return nn.steering(rules=[nn.SteeringRule(id="watch", applies_to="before_tool_call", predicate=watch)])


@pytest.mark.parametrize("kind", BLINDING)
def test_a_call_whose_serializer_shows_something_else_is_refused(kind: str) -> None:
    annotation, value = BLINDING[kind]
    ran: list[Any] = []
    seen: list[Any] = []

    error = run_tool(tool_of(annotation, ran), value, watching(seen))

    assert isinstance(error, NoeticError)
    assert "serializer" in error.what
    assert (ran, seen) == ([], [])


def test_the_model_reads_why_a_call_was_not_made() -> None:
    ran: list[Any] = []
    tool = tool_of(BLINDING["plain"][0], ran)

    reply = nn.run_sync(make_harness([nn.CallTool("act", x=5), "ok"], tools=[tool]).execute("go"))

    assert ran == []
    assert "serializer" in outputs(reply.items)[0]


class Money:
    """A class whose only JSON form comes from a user's serializer."""

    def __init__(self, amount: int) -> None:
        self.amount = amount


MONEY = Annotated[Money, PlainValidator(Money), PlainSerializer(lambda value: {"amount": value.amount})]

FAITHFUL: dict[str, tuple[Any, Any, Any]] = {
    "same": (Annotated[int, PlainSerializer(lambda value: value)], 7, 7),
    "same model": (Annotated[Plain, WrapSerializer(lambda value, handler: handler(value))], {"amount": 7}, None),
    "only in JSON": (Annotated[int, PlainSerializer(lambda value: HIDDEN, when_used="json")], 7, 7),
    "no other form": (MONEY, 7, {"amount": 7}),
    "no other form, in a list": (list[MONEY], [7], ({"amount": 7},)),
    "secret": (SecretStr, "abc", "**********"),
    "base64": (Base64Bytes, "YWJj", "YWJj"),
    "size": (ByteSize, "1KiB", 1024),
    "address": (IPvAnyAddress, "127.0.0.1", "127.0.0.1"),
}


@pytest.mark.parametrize("kind", FAITHFUL)
def test_a_serializer_that_hides_nothing_is_let_through(kind: str) -> None:
    annotation, value, form = FAITHFUL[kind]
    ran: list[Any] = []
    seen: list[Any] = []

    assert run_tool(tool_of(annotation, ran), value, watching(seen)) == "done"

    ((args, values),) = seen
    assert args == ({"amount": 7, "to": "bank"} if form is None else form)
    assert type(values) is type(ran[0])


def test_rules_get_python_values_and_copies_of_them() -> None:
    ran: list[Any] = []
    book = nn.RuleBook()

    @book.rule(on="before_tool_call")
    def look(call: Any) -> Any:
        order = call.tool_values["x"]
        order.amount = 0
        assert call.tool_values["x"].amount == 7
        return None

    @book.rule(on="before_tool_call")
    def no_more(call: Any) -> Any:
        return nn.deny("Too much.") if call.tool_values["x"].amount > 6 else None

    error = run_tool(tool_of(Plain, ran), Plain(amount=7), nn.steering(book))

    assert error.kind == "steering_denied"
    assert ran == []


def test_a_secret_can_be_judged_by_its_value_and_is_masked_everywhere_else() -> None:
    ran: list[Any] = []
    book = nn.RuleBook()

    @book.rule(on="before_tool_call")
    def known(call: Any) -> Any:
        return nn.deny("Weak.") if call.tool_values["x"].get_secret_value() == "1234" else None

    assert run_tool(tool_of(SecretStr, ran), "1234", nn.steering(book)).kind == "steering_denied"
    assert run_tool(tool_of(SecretStr, ran), "good", nn.steering(book)) == "done"
    assert [value.get_secret_value() for value in ran] == ["good"]


def test_recorded_calls_have_their_json_data_as_values() -> None:
    from noetic_nb.lab._recorded_calls import calls_of

    harness = make_harness([nn.CallTool("act", x={"amount": 7}), "ok"], tools=[tool_of(Plain, [])])
    run = nn.record(harness)
    nn.run_sync(harness.execute("go"))

    (call,) = [call.params for call in calls_of(run) if hasattr(call.params, "tool_args")]
    assert call.tool_values == call.tool_args == {"x": {"amount": 7, "to": "bank"}}


numbers = st.integers(-(10**6), 10**6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=numbers, shown=numbers, depth=st.integers(0, 3), in_model=st.booleans())
def test_no_serializer_gets_a_hidden_value_past_a_rule(value: int, shown: int, depth: int, in_model: bool) -> None:
    annotation: Any = Annotated[int, PlainSerializer(lambda _: shown)]
    x: Any = value
    if in_model:
        annotation, x = _model(annotation), {"amount": value}
    for _ in range(depth):
        annotation, x = list[annotation], [x]  # type: ignore[valid-type]
    ran: list[Any] = []
    seen: list[Any] = []

    ended = run_tool(tool_of(annotation, ran), x, watching(seen))

    assert (ended == "done") == (value == shown)
    assert bool(ran) == bool(seen) == (value == shown)


def _model(annotation: Any) -> Any:
    class Serialized(BaseModel):
        amount: annotation

    return Serialized


# -- no change between check and use --------------------------------------------------------------------------------------


class Point(NamedTuple):
    at: list[int]


@dataclasses.dataclass
class Order:
    lines: list[Any]
    to: str = "bank"


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    lines: list[Any]


class Letter(BaseModel):
    lines: list[Any] = Field(default_factory=list)
    to: str = "bank"
    _seen: list[Any] = PrivateAttr(default_factory=list)


class Open(BaseModel, extra="allow"):
    to: str = "bank"


def to_eve(value: Any) -> None:
    value["to"] = "Eve"


def line(value: Any) -> None:
    value.lines.append("Eve")


# kind -> (annotation, factory, mutation)
CHANGES: dict[str, tuple[Any, Callable[[], Any], Callable[[Any], Any]]] = {
    "mapping": (dict[str, Any], lambda: {"to": "bank"}, to_eve),
    "anything": (Any, lambda: {"to": "bank"}, to_eve),
    "nested mapping": (dict[str, Any], lambda: {"a": [{"to": "bank"}]}, lambda value: to_eve(value["a"][0])),
    "list": (list[Any], lambda: [["bank"]], lambda value: value[0].append("Eve")),
    "deque": (Any, lambda: deque([{"to": "bank"}]), lambda value: to_eve(value[0])),
    "tuple": (Any, lambda: ({"to": "bank"},), lambda value: to_eve(value[0])),
    "record": (Any, lambda: Point([1]), lambda value: value.at.append(2)),
    "ordered": (Any, lambda: OrderedDict(to="bank"), to_eve),
    "default": (Any, lambda: defaultdict(list, to="bank"), to_eve),
    "model": (Letter, Letter, lambda value: setattr(value, "to", "Eve")),
    "list in a model": (Letter, lambda: Letter(lines=[1]), line),
    "dict of a model": (Letter, Letter, lambda value: value.__dict__.update(to="Eve")),
    "extra of a model": (Open, lambda: Open(cc=["Ann"]), lambda value: value.cc.append("Eve")),
    "model in a list": (list[Any], lambda: [Letter()], lambda value: setattr(value[0], "to", "Eve")),
    "dataclass": (Order, lambda: Order([]), line),
    "frozen dataclass": (Frozen, lambda: Frozen([]), line),
    "dataclass anywhere": (Any, lambda: {"order": Order([])}, lambda value: setattr(value["order"], "to", "Eve")),
    "bytes": (Any, lambda: bytearray(b"bank"), lambda value: value.extend(b"Eve")),
}


def form(value: Any) -> str:
    return repr(value)


@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("during", ["rule", "approval"])
def test_what_is_changed_while_a_call_is_decided_on_runs_as_it_was(kind: str, during: str) -> None:
    annotation, make, change = CHANGES[kind]
    value, ran = make(), []

    def act(x: Any) -> str:
        ran.append(form(x))
        return "done"

    act.__annotations__ = {"x": annotation, "return": str}

    async def slow(*_: Any) -> Any:
        await asyncio.sleep(0)
        change(value)
        return during == "approval" or None

    book = nn.RuleBook()
    if during == "rule":
        book.rule(on="before_tool_call")(slow)
    needs_approval = during == "approval"
    tool = nn.tool(act, needs_approval=needs_approval)

    ended = run_tool(tool, value, nn.steering(book), approve=slow if needs_approval else None)

    assert ended == "done"
    assert ran == [form(make())]
    assert form(value) != form(make())


class Box:
    """A user's class, which may not be copyable."""

    def __init__(self, to: str) -> None:
        self.to = to


BOX = Annotated[Box, PlainValidator(lambda value: value), PlainSerializer(lambda value: value.to)]


@pytest.mark.parametrize("changes", [True, False])
def test_other_objects_are_compared_again_before_the_call(changes: bool) -> None:
    box, ran = Box("bank"), []
    book = nn.RuleBook()

    @book.rule(on="before_tool_call")
    async def slow(call: Any) -> None:
        await asyncio.sleep(0)
        if changes:
            box.to = "Eve"

    ended = run_tool(tool_of(BOX, ran), box, nn.steering(book))

    if changes:
        assert ended.kind == "steering_denied"
        assert "changed" in ended.guidance
        assert ran == []
    else:
        assert ended == "done"
        assert ran == [box], "the object itself, as it may be anything"


def test_a_default_is_no_place_to_change_an_argument() -> None:
    lines: list[str] = []
    ran: list[Any] = []
    book = nn.RuleBook()

    def act(x: Order = Order(lines)) -> str:  # noqa: B008
        ran.append([*x.lines])
        return "done"

    @book.rule(on="before_tool_call")
    async def slow(call: Any) -> None:
        lines.append("Eve")

    harness = make_harness([nn.CallTool("act"), "ok"], tools=[nn.tool(act)], memory=[nn.steering(book)])
    nn.run_sync(harness.execute("go"))

    assert ran == [[]]


json_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def objects(data: Any, draw: Any) -> Any:
    """Return data in which some mappings and lists are models, dataclasses and other containers."""
    if isinstance(data, dict):
        inner = {key: objects(value, draw) for key, value in data.items()}
        return [inner, Order([inner]), Letter(lines=[inner]), OrderedDict(inner), Open(cc=inner)][
            draw(st.integers(0, 4))
        ]
    if isinstance(data, list):
        items = [objects(value, draw) for value in data]
        return [items, tuple(items), deque(items), Point(items), Frozen(items)][draw(st.integers(0, 4))]
    return data


def spoil(value: Any) -> int:
    """Mutate everything in a value that can be mutated; return the number of changes."""
    count = 0
    if isinstance(value, BaseModel):
        count += sum(map(spoil, {**vars(value), **(value.__pydantic_extra__ or {})}.values()))
        value.to = "Eve"  # type: ignore[attr-defined]
        return count + 1
    if isinstance(value, Order | Frozen):
        return spoil(value.lines)
    if isinstance(value, dict):
        count += sum(map(spoil, value.values()))
        value["spoiled"] = True
        return count + 1
    if isinstance(value, list | deque):
        count += sum(map(spoil, value))
        value.append("spoiled")
        return count + 1
    return sum(map(spoil, value)) if isinstance(value, tuple) else 0


@given(data=st.data(), plain=json_data)
def test_nothing_that_others_hold_reaches_a_call_that_was_judged(data: Any, plain: Any) -> None:
    value = objects(plain, data.draw)
    before, ran = form(value), []
    book = nn.RuleBook()

    @book.rule(on="before_tool_call")
    async def slow(call: Any) -> None:
        await asyncio.sleep(0)
        spoil(value)
        spoil(call.tool_values)

    def act(x: Any) -> str:
        ran.append(form(x))
        return "done"

    assert run_tool(nn.tool(act), value, nn.steering(book)) == "done"
    assert ran == [before]


@given(plain=json_data, data=st.data())
def test_a_copy_is_equal_and_shares_nothing_that_can_be_changed(plain: Any, data: Any) -> None:
    value = objects(plain, data.draw)
    twin = copied(value)

    assert form(twin) == form(value)
    assert type(twin) is type(value)
    before = form(twin)
    spoil(value)
    assert form(twin) == before


def test_copies_keep_circles_and_refuse_endless_nesting() -> None:
    circle: list[Any] = [1]
    circle.append(circle)
    twin = copied(circle)
    assert twin is not circle
    assert twin[1] is twin

    deep: Any = []
    for _ in range(5_000):
        deep = [deep]
    error = run_tool(nn.tool(lambda x: "done", name="act"), deep)
    assert error.kind == "step_failed"
    assert "nested" in error.what


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([1, "a", None, Decimal(1), dt.date(2024, 1, 1), b"x"], False),
        (Letter(lines=[Order([1])]), False),
        (Point([1]), False),
        (Box("bank"), True),
        ({"a": [Box("bank")]}, True),
        (Letter(lines=[Box("bank")]), True),
        (OrderedDict(), True),
    ],
)
def test_only_objects_that_were_not_copied_may_change(value: Any, expected: bool) -> None:
    assert may_change(value) is expected


def test_the_record_says_what_was_judged() -> None:
    box = Box("bank")
    book = nn.RuleBook()

    @book.rule(on="before_tool_call")
    def changes(call: Any) -> None:
        box.to = "Eve"

    harness = make_harness([], step=step.tool("act", tool_of(BOX, []), {"x": box}), memory=[nn.steering(book)])
    run = nn.record(harness)
    with pytest.raises(NoeticError):
        nn.run_sync(harness.execute("go"))

    (row,) = run.to_frame("tools").to_dict("records")
    assert (row["status"], json.loads(json.dumps(row["args"]))) == ("denied", {"x": "bank"})
