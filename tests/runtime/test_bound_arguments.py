"""Rules, people and records get the same bound arguments as the tool, not the arguments as written."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import enum
import json
import uuid
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AliasChoices, BaseModel, Field, RootModel, SecretStr, WithJsonSchema
from typing_extensions import TypedDict

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import SteeringDecided, ToolCalled
from noetic_nb.items import thaw
from noetic_nb.lab import backtest
from noetic_nb.lab._recorded_calls import calls_of
from noetic_nb.memory import MemoryHooks, MemoryLayer, Slot, layer_fn
from noetic_nb.memory.params import PastCall
from noetic_nb.steps import step
from tests.matrix import several
from tests.runtime.factories import make_harness, outputs, record_events


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Word(enum.StrEnum):
    YES = "yes"
    NO = "no"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Address(BaseModel):
    street: str = Field(alias="streetName")
    since: dt.date = dt.date(2020, 1, 1)
    hidden: bool = Field(default=False, exclude=True)


class Order(BaseModel):
    total: Decimal = Field(validation_alias=AliasChoices("sum", "total"), serialization_alias="worth")
    address: Address | None = None


@dataclasses.dataclass
class Point:
    x: Annotated[float, Field(alias="left")]
    y: float = 2.5


class Options(TypedDict, total=False):
    until: Annotated[dt.date, Field(alias="validUntil")]
    limit: int


def make_tool(annotation: Any, received: list[Any], default: Any = ...) -> nn.Tool:
    """Return a tool with one parameter `x`."""
    if default is ...:

        def act(x: Any) -> str:
            received.append(x)
            return "done"
    else:

        def act(x: Any = default) -> str:
            received.append(x)
            return "done"

    act.__annotations__ = {"x": annotation, "return": str}
    return nn.tool(act)


def call_once(tool: nn.Tool, raw: dict[str, Any], *rules: Any, **more: Any) -> tuple[Any, list[Any]]:
    """Let a model call a tool once under some rules; return the reply and what happened."""

    async def main() -> tuple[Any, list[Any]]:
        harness = make_harness(
            [nn.CallTool(tool.name, **raw), "ok"], tools=[tool], memory=[nn.steering(rules=rules)], **more
        )
        events = record_events(harness)
        return await harness.execute("go"), events

    return asyncio.run(main())


def records_of(events: list[Any]) -> list[Any]:
    """Return the recorded decisions and outcomes of tool calls."""
    return [event for event in events if isinstance(event, ToolCalled | SteeringDecided) and event.args is not None]


def rule(check: Any, name: str = "watch") -> nn.SteeringRule:
    return nn.SteeringRule(id=name, applies_to="before_tool_call", predicate=check)


# -- attacks: other spellings of what a rule forbids ----------------------------------------------------------------------

SPELLINGS = [
    *[(int, 7, 7, raw) for raw in ("7", "7.0", " 7 ", "+7", 7.0)],
    *[(bool, True, True, raw) for raw in ("yes", 1, "on", "t", "TRUE", 1.0)],
    *[(dt.date, dt.date(2024, 1, 2), "2024-01-02", raw) for raw in (1704153600, "1704153600", "2024-01-02T00:00:00")],
    *[(Decimal, Decimal("7.5"), 7.5, raw) for raw in ("7.5", "7.50", " 7.5 ", "75e-1")],
    (uuid.UUID, uuid.UUID(int=1), str(uuid.UUID(int=1)), "{00000000-0000-0000-0000-000000000001}"),
    (uuid.UUID, uuid.UUID(int=1), str(uuid.UUID(int=1)), uuid.UUID(int=1).hex.upper()),
]


@pytest.mark.parametrize(("annotation", "value", "form", "raw"), SPELLINGS)
def test_another_spelling_does_not_get_past_a_rule(annotation: Any, value: Any, form: Any, raw: Any) -> None:
    received: list[Any] = []
    tool = make_tool(annotation, received)

    reply, _ = call_once(tool, {"x": raw}, rule(lambda call: nn.deny() if call.tool_args["x"] == form else None))

    assert received == []
    assert json.loads(outputs(reply.items)[0])["error"]["kind"] == "steering_denied"
    assert tool.bind({"x": raw}).values == {"x": value}


@pytest.mark.parametrize(
    ("annotation", "raw", "when"),
    [
        (bool, "yes", "tool.args.x == true"),
        (int, " 7 ", "tool.args.x == 7"),
        (dt.date, 1704153600, 'tool.args.x == "2024-01-02"'),
        (Decimal, "1000.5", "tool.args.x > 1000.0"),
        (Colour, "red", 'tool.args.x == "red"'),
    ],
)
def test_another_spelling_does_not_get_past_a_condition(annotation: Any, raw: Any, when: str) -> None:
    received: list[Any] = []

    call_once(
        make_tool(annotation, received), {"x": raw}, nn.SteeringRule(id="no", applies_to="before_tool_call", when=when)
    )

    assert received == []


def test_a_default_is_visible() -> None:
    received: list[Any] = []

    @nn.tool
    def remove(path: str, recursive: bool = True) -> str:
        """Remove."""
        received.append(path)
        return "gone"

    _, events = call_once(remove, {"path": "/"}, rule(lambda call: nn.deny() if call.tool_args["recursive"] else None))

    assert received == []
    (called,) = [event for event in events if isinstance(event, ToolCalled)]
    assert (called.args, called.raw_args) == ({"path": "/", "recursive": True}, {"path": "/"})


def test_a_field_that_its_class_hides_or_renames_is_visible() -> None:
    seen: list[Any] = []
    tool = make_tool(Order, [])

    call_once(
        tool,
        {"x": {"sum": "7.50", "address": {"streetName": "High", "hidden": "on"}}},
        rule(lambda call: seen.append(call.tool_args)),
    )

    assert thaw(seen[0]) == {
        "x": {"sum": 7.5, "address": {"streetName": "High", "since": "2020-01-01", "hidden": True}}
    }
    shown = tool.spec.parameters["$defs"]
    assert {*shown["Order"]["properties"]} == {"sum", "address"}
    assert {*shown["Address"]["properties"]} == {"streetName", "since", "hidden"}


def test_a_parameter_has_the_name_that_the_model_was_shown() -> None:
    received: list[Any] = []
    tool = make_tool(Annotated[str, Field(alias="from")], received)

    assert tool.bind({"from": "ann"}) == ({"x": "ann"}, {"from": "ann"})
    assert {*tool.spec.parameters["properties"]} == {"from"}


# -- one object each ------------------------------------------------------------------------------------------------------


def test_writing_into_what_a_rule_gets_reaches_nothing_else() -> None:
    received: list[Any] = []
    seen: list[Any] = []
    approved: list[Any] = []

    @nn.tool(needs_approval=True)
    def pay(amount: int, to: dict[str, Any]) -> str:
        """Pay."""
        received.append((amount, to))
        return "paid"

    def meddle(call: Any) -> None:
        for args in (call.tool_args, call.raw_args):
            dict.update(args, amount=1)
            dict.update(args["to"], name="Eve")
            dict.update(args["to"]["list"][0], n=5)
        for past in call.history:
            dict.update(past.args, amount=1)

    def look(call: Any) -> None:
        seen.append(thaw([call.tool_args, call.raw_args, [past.args for past in call.history]]))

    def approve(name: str, args: Any) -> bool:
        approved.append(thaw(args))
        meddle_with = args["to"]
        dict.update(meddle_with, name="Eve")
        dict.update(args, amount=1)
        return True

    raw = {"amount": "900", "to": {"name": "Ann", "list": [{"n": 1}]}}
    bound = {**raw, "amount": 900}
    watch = MemoryLayer(
        id="meddler",
        slot=Slot.WORKING_MEMORY,
        scope="execution",
        hooks=MemoryHooks(init=lambda p: {"state": {}}, before_tool_call=meddle),
    )

    async def main() -> Any:
        replies = [nn.CallTool("pay", **raw), nn.CallTool("pay", **raw), "ok"]
        guard = nn.steering(rules=[rule(meddle, "first"), rule(look, "second")])
        harness = make_harness(replies, tools=[pay], memory=[guard, watch], approve=approve)
        events = record_events(harness)
        await harness.execute("go")
        return events

    events = asyncio.run(main())

    assert received == [(900, bound["to"])] * 2
    assert seen == [[bound, raw, []], [bound, raw, [bound]]]
    assert approved == [bound] * 2
    assert [thaw(event.args) for event in records_of(events)] == [bound] * 6
    assert [thaw(event.raw_args) for event in events if isinstance(event, ToolCalled)] == [raw] * 2


def test_arguments_are_dictionaries_that_json_can_write() -> None:
    found: list[Any] = []

    def look(call: Any) -> None:
        args = call.tool_args
        found.append((isinstance(args, dict), dict(args)["x"]["a"][0], json.dumps(args)))

    call_once(make_tool(dict[str, list[int]], []), {"x": {"a": ["1"]}}, rule(look))

    assert found == [(True, 1, '{"x": {"a": [1]}}')]


def test_what_a_tool_changes_is_not_what_was_recorded() -> None:
    @nn.tool
    def act(names: list[str], more: Any) -> str:
        """Act."""
        names.append("x")
        more["a"].append("x")
        return "done"

    raw = {"names": ["a"], "more": {"a": []}}
    _, events = call_once(act, raw)

    (called,) = [event for event in events if isinstance(event, ToolCalled)]
    assert thaw(called.args) == thaw(called.raw_args) == raw


def test_an_old_call_in_the_history_is_a_copy_at_each_look() -> None:
    call = PastCall("pay", {"amount": 1}, "c1")

    call.args["amount"] = 2  # type: ignore[index]

    assert call == ("pay", {"amount": 1}, "c1", None, None, "")
    assert call.args == {"amount": 1}


# -- bound once -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("annotated", [True, False])
def test_a_default_factory_runs_once_a_call(annotated: bool) -> None:
    made: list[str] = []
    received: list[Any] = []
    seen: list[Any] = []

    def make() -> str:
        made.append(f"key-{len(made)}")
        return made[-1]

    if annotated:
        tool = make_tool(Annotated[str, Field(default_factory=make)], received)
    else:
        tool = make_tool(str, received, Field(default_factory=make))

    _, events = call_once(tool, {}, rule(lambda call: seen.append(call.tool_args["x"])))

    (called,) = [event for event in events if isinstance(event, ToolCalled)]
    assert made == received == seen == [called.args["x"]] == ["key-0"]
    assert called.raw_args == {}


def test_an_iterable_is_not_used_up_by_being_judged() -> None:
    received: list[Any] = []
    seen: list[Any] = []
    tool = make_tool(Iterable[int] | None, received)

    call_once(tool, {"x": ["1", 2]}, rule(lambda call: seen.append(call.tool_args["x"])))

    assert [[*each] for each in (*received, *seen)] == [[1, 2], [1, 2]]


class Opaque:
    """A class without a JSON form."""


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        (Annotated[Opaque, WithJsonSchema({"type": "string"})], ...),
        (list[Annotated[Opaque, WithJsonSchema({"type": "string"})]], ...),
        (type[int], ...),
        (Any, Opaque()),
        (float, float("inf")),
    ],
)
def test_a_parameter_without_a_json_form_is_refused(annotation: Any, default: Any) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        make_tool(annotation, [], default)

    assert caught.value.code == "INVALID_TOOL"


@pytest.mark.parametrize("annotation", [Opaque, type[int]])
def test_a_layer_function_without_a_json_form_is_refused(annotation: Any) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        layer_fn(
            description="",
            input=dict[str, annotation],
            output=int,
            execute=lambda args, state, ctx: {"result": 1},
        )

    assert caught.value.code == "INVALID_TOOL"


@pytest.mark.parametrize("raw", ["inf", "nan", "-Infinity"])
def test_a_number_that_json_lacks_is_not_run(raw: str) -> None:
    received: list[Any] = []

    reply, events = call_once(make_tool(float, received), {"x": raw})

    assert received == []
    assert "not finite" in outputs(reply.items)[0]
    (called,) = [event for event in events if isinstance(event, ToolCalled)]
    assert (called.status, called.args, called.raw_args) == ("invalid_args", None, {"x": raw})


def test_a_secret_is_masked_as_its_class_masks_it() -> None:
    received: list[Any] = []
    seen: list[Any] = []

    call_once(make_tool(SecretStr, received), {"x": "hunter2"}, rule(lambda call: seen.append(call.tool_args["x"])))

    assert (received[0].get_secret_value(), seen) == ("hunter2", ["**********"])


# -- every way to a tool --------------------------------------------------------------------------------------------------


async def test_a_tool_step_is_judged_by_what_its_tool_gets() -> None:
    received: list[Any] = []
    seen: list[Any] = []
    tool = make_tool(dt.date, received, dt.date(2020, 1, 1))
    steps = [
        step.tool("given", tool, {"x": dt.date(2024, 1, 2)}, takes_input=False),
        step.tool("none", tool, {}, takes_input=False),
    ]
    rules = [rule(lambda call: seen.append((call.tool_args["x"], call.raw_args)))]

    for one in steps:
        await make_harness([], step=one, memory=[nn.steering(rules=rules)]).execute("go")

    assert received == [dt.date(2024, 1, 2), dt.date(2020, 1, 1)]
    assert seen == [("2024-01-02", None), ("2020-01-01", {})]


async def test_a_layer_function_is_judged_by_what_it_gets() -> None:
    class Note(BaseModel):
        text: str = Field(alias="note")
        pinned: bool = True

    received: list[Any] = []
    seen: list[Any] = []
    add = layer_fn(
        description="Add.",
        input=Note,
        output=int,
        execute=lambda args, state, ctx: received.append(args) or {"result": 1},
    )
    notes = MemoryLayer(
        id="notes", slot=Slot.WORKING_MEMORY, scope="execution", hooks=MemoryHooks(), provides={"add": add}
    )
    guard = nn.steering(rules=[rule(lambda call: seen.append((call.tool_args, call.raw_args)))])

    async def by_code(value: Any, ctx: Any) -> str:
        await ctx.memory["notes"].add(note="b", pinned="no")
        return "done"

    await make_harness([nn.CallTool("notes_add", note="a", pinned="off"), "ok"], memory=[notes, guard]).execute("go")
    await make_harness([], step=step.run("code", by_code), memory=[notes, guard]).execute("go")

    assert [(note.text, note.pinned) for note in received] == [("a", False), ("b", False)]
    assert seen == [
        ({"note": "a", "pinned": False}, {"note": "a", "pinned": "off"}),
        ({"note": "b", "pinned": False}, {"note": "b", "pinned": "no"}),
    ]


def test_a_layer_function_of_a_single_value_has_a_name_for_it() -> None:
    tool = nn.Tool(
        name="one",
        description="",
        input=RootModel[list[int]],
        output=make_tool(int, []).output,
        execute=lambda root: "done",
        spec=make_tool(int, []).spec,
        tokens=1,
    )

    assert tool.bind(["1"]) == ({"root": [1]}, {"value": (1,)})


def test_the_regulator_gets_the_bound_arguments() -> None:
    regulation = nn.regulation(nn.Regulator.recommended("ann"))

    async def main() -> Any:
        harness = make_harness([nn.CallTool("act", x="yes"), "ok"], tools=[make_tool(bool, [])], memory=[regulation])
        events = record_events(harness)
        await harness.execute("go")
        return events

    saw = [event.event for event in asyncio.run(main()) if event.kind == "regulator_saw"]

    assert [event["args_json"] for event in saw if event["kind"] == "tool_call"] == ['{"x":true}']


# -- what a run keeps -----------------------------------------------------------------------------------------------------


async def test_a_run_keeps_both_and_recorded_calls_hand_both_on(tmp_path: Path) -> None:
    harness = make_harness([nn.CallTool("act", x="yes"), "ok"], tools=[make_tool(bool, [])])
    run = nn.record(harness)
    await harness.execute("go")

    loaded = nn.load_run(run.save(tmp_path / "run.jsonl.gz"))

    tools = loaded.to_frame("tools")
    assert [*tools[["args", "raw_args"]].itertuples(index=False, name=None)] == [({"x": True}, {"x": "yes"})]
    (call,) = [call.params for call in calls_of(loaded) if call.point == "before_tool_call"]
    assert (call.tool_args, call.raw_args) == ({"x": True}, {"x": "yes"})  # type: ignore[union-attr]
    spelled = rule(lambda call: nn.deny() if call.raw_args["x"] == "yes" and call.tool_args["x"] is True else None)
    assert backtest([], loaded, candidate=spelled).attrs["summary"]["newly_denied"] == 1


# -- the property ---------------------------------------------------------------------------------------------------------

WHOLE = st.integers(-(10**6), 10**6)
DATES = st.dates(dt.date(1970, 1, 2), dt.date(2200, 1, 1))


def spelled(number: int) -> list[Any]:
    return [number, str(number), f" {number} ", f"{number}.0", float(number), f"{number:+d}"]


CASES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int": (int, WHOLE.flatmap(lambda n: st.sampled_from(spelled(n)))),
    "float": (float, st.floats(-1e6, 1e6).flatmap(lambda n: st.sampled_from([n, repr(n), f" {n!r} "]))),
    "bool": (bool, st.sampled_from(["yes", "no", "on", "off", 1, 0, "1", "T", "False", True, 1.0])),
    "enum": (Colour, st.sampled_from(["red", "blue"])),
    "string enum": (Word, st.sampled_from(["yes", "no"])),
    "number enum": (Level, st.sampled_from([1, 2, 1.0])),
    "literal": (Literal["a", 1, None], st.sampled_from(["a", 1, None])),
    "date": (
        dt.date,
        DATES.flatmap(
            lambda d: st.sampled_from(
                [d.isoformat(), f"{d}T00:00:00", int(dt.datetime(d.year, d.month, d.day, tzinfo=dt.UTC).timestamp())]
            )
        ),
    ),
    "datetime": (
        dt.datetime,
        st.integers(10**8, 4 * 10**9).flatmap(
            lambda n: st.sampled_from([n, n + 0.5, str(n), dt.datetime.fromtimestamp(n, dt.UTC).isoformat()])
        ),
    ),
    "time": (dt.time, st.times().map(dt.time.isoformat) | st.integers(0, 86_399)),
    "timedelta": (dt.timedelta, st.integers(0, 10**6) | st.sampled_from(["P1D", "PT1H", "1:02:03", "3 days"])),
    "decimal": (
        Decimal,
        st.decimals(-(10**6), 10**6, places=3).flatmap(lambda n: st.sampled_from([str(n), f" {n}", float(n)])) | WHOLE,
    ),
    "large decimal": (Decimal, st.integers(10**20, 10**40).map(str)),
    "uuid": (uuid.UUID, st.uuids().flatmap(lambda u: st.sampled_from([str(u), u.hex, u.urn, str(u).upper()]))),
    "bytes": (bytes, st.text()),
    "optional": (int | None, st.none() | st.sampled_from(["7", 7.0])),
    "union": (int | bool | Decimal | str, st.sampled_from(["7", 7, True, "yes", "", 7.0, 1.5])),
    "union of classes": (Order | Point | None, st.sampled_from([{"sum": "1.50"}, {"left": "1"}, None])),
    "nested": (
        Order,
        st.fixed_dictionaries(
            {"sum": st.sampled_from(["1", "1.50", 2])},
            optional={
                "address": st.fixed_dictionaries(
                    {"streetName": st.text()},
                    optional={"hidden": st.sampled_from(["yes", 0]), "since": st.just(1704153600)},
                )
            },
        ),
    ),
    "other alias": (Order, st.just({"total": 3})),
    "dataclass": (Point, st.fixed_dictionaries({"left": st.sampled_from(["1", 1, 1.5])}, optional={"y": st.just("2")})),
    "typed dict": (
        Options,
        st.fixed_dictionaries({}, optional={"validUntil": st.just(1704153600), "limit": st.just("3")}),
    ),
    "list": (list[int], st.lists(st.sampled_from(["1", 2.0, 3]))),
    "list of classes": (list[Order], st.lists(st.just({"sum": "1.0"}), max_size=2)),
    "tuple": (tuple[int, bool], st.just(["1", "yes"])),
    "set": (set[int], st.lists(st.sampled_from(["1", 2.0, 3]))),
    "mapping": (dict[int, dt.date], st.dictionaries(st.sampled_from(["1", "2"]), st.just(1704153600))),
    "anything": (
        Any,
        st.recursive(
            st.none() | st.booleans() | st.text() | WHOLE,
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=5,
        ),
    ),
}


def form_of(value: Any) -> Any:
    """Return the JSON form of a tool's arguments, written by hand."""
    match value:
        case Order():
            return {"sum": form_of(value.total), "address": form_of(value.address)}
        case Address():
            return {"streetName": value.street, "since": value.since.isoformat(), "hidden": value.hidden}
        case Point():
            return {"left": value.x, "y": value.y}
        case enum.Enum():
            return value.value
        case bool() | None | str() | int() | float():
            return value
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat().replace("+00:00", "Z")
        case dt.timedelta():
            return value
        case Decimal():
            return int(value) if value == int(value) else float(value)
        case uuid.UUID():
            return str(value)
        case bytes():
            return value.decode()
        case dict() if "until" in value:
            return {"validUntil": form_of(value["until"]), **{k: v for k, v in value.items() if k != "until"}}
        case dict():
            return {str(key): form_of(inner) for key, inner in value.items()}
    return [form_of(inner) for inner in value]


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=several(8, 150))
@given(data=st.data())
def test_what_a_rule_sees_is_what_the_tool_gets(case: str, data: st.DataObject) -> None:
    annotation, raws = CASES[case]
    raw = data.draw(raws)
    received: list[Any] = []
    seen: list[Any] = []

    _, events = call_once(
        make_tool(annotation, received), {"x": raw}, rule(lambda call: seen.append((call.tool_args, call.raw_args)))
    )

    (called,) = [event for event in events if isinstance(event, ToolCalled)]
    assert called.status == "ok"
    form = form_of(received[0])
    if isinstance(form, dt.timedelta):
        form = seen[0][0]["x"]
        assert make_tool(dt.timedelta, []).bind({"x": form}).values["x"] == received[0]
    assert thaw(seen) == [[{"x": form}, {"x": raw}]]
    assert type(seen[0][0]["x"]) is type(form) or isinstance(form, dict | list)
    assert [event.args for event in records_of(events)] == [seen[0][0]] * 2
    assert json.loads(json.dumps(called.args)) == {"x": form}


@given(data=st.data())
def test_a_default_counts_as_if_it_had_been_written(data: st.DataObject) -> None:
    annotation, raws = CASES[data.draw(st.sampled_from(["decimal", "date", "enum", "list", "nested", "bool"]))]
    given_tool = make_tool(annotation, [])
    bound = given_tool.bind({"x": data.draw(raws)})

    assert make_tool(annotation, [], bound.values["x"]).bind({}) == bound


def test_what_fits_no_parameter_is_named() -> None:
    with pytest.raises(NoeticError, match="do not fit: x: "):
        make_tool(int, []).bind({"x": "seven"})
