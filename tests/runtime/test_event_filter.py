"""The events that an llm step shows to subscribers, and those that it cannot hide."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.runtime._context.event_hub import HIDEABLE_EVENTS
from noetic_nb.steps import Registry, dump_step, load_step, step
from tests.runtime.factories import Events, make_harness, record_events


@nn.tool
def lookup(order_id: str) -> Iterator[str]:
    """Find one order."""
    yield "looking"
    return "packed"


SCRIPT = [nn.CallTool("lookup", order_id="A"), "done"]
HOOKS = nn.MemoryHooks(
    init=lambda p: {"state": 0},
    recall=lambda p: "note",
    store=lambda p: {"state": p.state + 1},
    before_tool_call=lambda p: {"decision": nn.SteeringDecision("allow")},
)
LAYER = nn.MemoryLayer(id="l", slot=1, scope="thread", hooks=HOOKS)


async def followed(emit: Any, replies: Any = SCRIPT, **more: Any) -> tuple[Any, Events, list[Any]]:
    reports: list[Any] = []
    ask = step.llm("ask", model="m", tools=[lookup], emit=emit)
    harness = make_harness(
        list(replies), step=ask, memory=[LAYER], diagnostic=lambda *told: reports.append(told), **more
    )
    events = record_events(harness)
    try:
        reply: Any = await harness.execute("go")
    except nn.NoeticError as exc:
        reply = exc
    return reply, events, reports


def kinds(events: Events) -> Counter[str]:
    return Counter(event.kind for event in events)


async def test_a_step_that_hides_everything_hides_nothing_a_conversation_is_rebuilt_from() -> None:
    told, (reply, quiet, _) = kinds((await followed(True))[1]), await followed(False)

    assert {kind for kind in told if told[kind] != kinds(quiet)[kind]} == HIDEABLE_EVENTS
    assert not HIDEABLE_EVENTS & set(kinds(quiet))
    assert [item for event in quiet.of("items_appended") for item in event.items] == list(reply.items)
    assert {"turn_started", "view_assembled", "budgets_allocated", "layer_state_changed", "turn_completed"} <= set(told)


async def test_a_filter_is_asked_with_the_kind_and_the_data_of_each() -> None:
    asked: list[Any] = []

    def emit(kind: str, data: Any) -> bool:
        asked.append((kind, dict(data)))
        with pytest.raises(TypeError):
            data["step_id"] = "other"
        return kind == "tool_called" and bool(data["name"] == "lookup")

    _, events, _ = await followed(emit)

    assert [kind for kind, _ in asked] == [
        "step_started",
        "model_called",
        "tool_progress",
        "tool_called",
        "model_called",
    ]
    assert asked[0][1]["path"] == "/ask#1"
    assert asked[3][1]["args"] == {"order_id": "A"}
    assert {kind: n for kind, n in kinds(events).items() if kind in HIDEABLE_EVENTS} == {"tool_called": 1}


@given(st.fixed_dictionaries({kind: st.booleans() for kind in sorted(HIDEABLE_EVENTS)}))
def test_every_kind_is_shown_or_hidden_as_the_filter_says(wanted: dict[str, bool]) -> None:
    async def both() -> Any:
        told = (await followed(True))[1]
        return told, (await followed(lambda kind, data: wanted[kind]))[1]

    told, shown = asyncio.run(both())

    # An end event is hidden with its beginning.
    decides = {**wanted, "step_ended": wanted["step_started"]}
    assert kinds(shown) == {kind: n for kind, n in kinds(told).items() if decides.get(kind, True)}


async def test_what_is_hidden_is_only_what_the_step_does() -> None:
    inner = step.llm("inner", model="m")

    @nn.tool
    async def think(ctx: Any) -> str:
        """Think."""
        return str(await ctx.run(inner, "what?"))

    outer = step.llm("outer", model="m", tools=[think], emit=False)
    harness = make_harness([nn.CallTool("think"), "thought", "done"], step=outer)
    events = record_events(harness)

    await harness.execute("go")

    assert [event.step_id for event in events.of("step_started")] == ["inner"]
    assert len(events.of("model_called")) == 1


async def test_what_judges_ask_for_the_step_is_hidden_with_it() -> None:
    async def judge(p: Any) -> Any:
        await p.ctx.call_model({"model": "judge", "items": ()})
        return {"decision": nn.SteeringDecision("allow", rule_ids=("fair",))}

    judging = nn.MemoryLayer(id="j", slot=1, scope="execution", hooks=nn.MemoryHooks(after_model_call=judge))
    model = nn.ScriptedModel({"m": ["done"], "judge": ["ALLOW"]})
    harness = make_harness(model, step=step.llm("ask", model="m", emit=False), memory=[judging])
    events = record_events(harness)

    reply = await harness.execute("go")

    assert events.of("model_called") == []
    assert reply.usage.total_tokens > 0
    assert events.of("turn_completed")[0].model_calls == 2, "what it costs is not hidden"


async def test_a_filter_that_raises_is_reported_and_hides_nothing() -> None:
    def emit(kind: str, data: Any) -> bool:
        raise KeyError(kind)

    told, (reply, events, reports) = kinds((await followed(True))[1]), await followed(emit)

    assert reply.text == "done"
    hidden = kinds(events)
    assert hidden.pop("warning_raised") == len(reply.warnings) == 4, "once for the same words"
    assert hidden == told
    wanted = ("step_started", "model_called", "tool_progress", "tool_called", "model_called")
    assert [(who, hook, str(error)) for who, hook, error in reports] == [
        ("ask", "emit", f"'{kind}'") for kind in wanted
    ]


async def test_a_filter_must_answer_at_once() -> None:
    async def emit(kind: str, data: Any) -> bool:
        return False

    told, (_, events, reports) = kinds((await followed(True))[1]), await followed(emit)

    hidden = kinds(events)
    assert hidden.pop("warning_raised") == 1
    assert hidden == told
    assert all(isinstance(error, TypeError) for _, _, error in reports)
    assert len(reports) == 5


async def test_an_error_is_never_hidden() -> None:
    _, events, _ = await followed(False, replies=[])

    assert [event.error_kind for event in events.of("error_raised")] == ["llm_failed"]


async def test_nobody_is_asked_where_nobody_listens() -> None:
    asked: list[str] = []
    harness = make_harness(["x"], step=step.llm("ask", model="m", emit=lambda kind, data: asked.append(kind)))

    await harness.execute("go")

    assert asked == []


async def test_whoever_begins_to_listen_during_the_step_hears_the_rest() -> None:
    late = Events()

    @nn.tool
    def begin() -> str:
        """Begin to listen."""
        harness.subscribe(late)
        return "ok"

    harness = make_harness([nn.CallTool("begin"), "done"], step=step.llm("ask", model="m", tools=[begin], emit=False))

    await harness.execute("go")

    assert not HIDEABLE_EVENTS & set(kinds(late))
    assert kinds(late)["items_appended"] == 2, "the tool's answer and the model's"


async def test_steps_side_by_side_have_filters_of_their_own() -> None:
    asks = [step.llm(name, model="m", emit=name == "loud") for name in ("quiet", "loud")]
    both = nn.fork("f", mode="all", paths=asks, merge="last")
    harness = make_harness(["1", "2"], step=both)
    events = record_events(harness)

    await harness.execute("go")

    assert [event.step_id for event in events.of("step_started")] == ["f", "loud"]
    assert len(events.of("model_called")) == 1


def only_tools(kind: str, data: Any, *, name: str = "") -> bool:
    return kind == "tool_called"


def test_a_filter_is_kept_by_name() -> None:
    registry = Registry([only_tools])
    one = step.llm("ask", model="m", emit=only_tools)

    data = dump_step(one, registry)

    assert data == {"kind": "llm", "id": "ask", "model": "m", "emit": {"$ref": "fn:only_tools"}}
    assert load_step(data, registry).emit is only_tools
    assert (
        load_step({**data, "emit": {"$ref": "fn:only_tools", "args": {"name": "x"}}}, registry).emit("x", {}) is False
    )
    with pytest.raises(nn.NoeticConfigError) as caught:
        dump_step(one)
    assert (caught.value.code, caught.value.where) == ("UNREGISTERED_FUNCTION", "ask.emit")
    with pytest.raises(nn.NoeticConfigError):
        step.llm("ask", model="m", emit="never mind")  # type: ignore[arg-type]
