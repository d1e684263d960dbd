"""Events for the tests of runs: one explicit conversation, and strategies for events of every kind."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from noetic_nb.events import (
    EventSink,
    FreeData,
    ItemsAppended,
    LayerTokens,
    MemoryTraceSpan,
    ModelCalled,
    Number,
    QualityGiven,
    RegulatorDecided,
    RegulatorSaw,
    RunEvent,
    SteeringDecided,
    ToolCalled,
    TurnCompleted,
    TurnStarted,
    ViewAssembled,
    Where,
)
from noetic_nb.items import Item, assistant_message, freeze, function_call, function_call_output, input_message
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.redact import is_secret_name
from noetic_nb.runs._events.event_json import EVENT_TYPES
from noetic_nb.runs._regulation.regulator_signals import Signals
from noetic_nb.runs._regulation.thread_signals import ThreadSignals
from noetic_nb.testing import FakeClock, SeededIds

# A value under a secret name such as "pin" is redacted in a file, and not equal after loading.
NAMES = st.text(max_size=5).filter(lambda name: not is_secret_name(name))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
FINITE_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
ITEMS = st.one_of(
    st.builds(lambda text: input_message(text, item_id="i1"), st.text(max_size=8)),
    st.builds(lambda text: function_call("lookup", text, "c1", item_id="i2"), st.text(max_size=8)),
    st.builds(lambda data: freeze_item({"type": "openrouter:thing", "data": data}), FINITE_JSON),
)


def freeze_item(data: dict[str, Any]) -> Item:
    return Item(freeze(data))


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for the annotation of an event field."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is FreeData:
        return JSON
    if hint is Item:
        return ITEMS
    if hint is Number:
        return st.floats(allow_nan=False)
    if origin is Annotated and args[0] is int:  # as large as a table column allows
        return st.integers(-(2**63) + 1, 2**63 - 1)
    if origin is Annotated:  # a literal
        return st.sampled_from([word for words in args[1:] for word in get_args(words)])
    if origin in (types.UnionType, Union):
        return st.one_of(*[st.none() if arg is type(None) else values(arg) for arg in args])
    if origin is tuple:
        if args[-1] is Ellipsis:
            return st.lists(values(args[0]), max_size=3).map(tuple)
        return st.tuples(*map(values, args))
    if hint is FrozenDict:
        return st.dictionaries(NAMES, JSON, max_size=3)
    if hasattr(hint, "__struct_fields__"):
        return records(hint)
    return st.from_type(hint)


def records(cls: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(cls, include_extras=True)
    fields = {name: values(hints[name]) for name in cls.__struct_fields__}
    if cls is RegulatorDecided:  # names of settings, mapped to numbers
        names = st.text("abc", max_size=3)
        numbers = st.dictionaries(names, st.floats(allow_nan=False), max_size=3)
        fields["thresholds"] = st.dictionaries(names, numbers, max_size=3)
    return st.builds(cls, **fields)


EVENTS = st.one_of(*[records(cls) for cls in EVENT_TYPES])


def where(turn: int = 1, *, thread: str = "t1", depth: int = 0) -> Where:
    return Where(thread, f"e{turn}", turn, depth)


def conversation(turns: int = 2, *, thread: str = "t1") -> list[RunEvent]:
    """Return turns with one tool call each, as emitted by a harness with one layer, one rule and a regulator."""
    events: list[RunEvent] = []
    for turn in range(1, turns + 1):
        at, start, now = where(turn, thread=thread), (turn - 1) * 4, turn * 1_000.0
        query, reply = f"question {turn}", f"answer {turn}"
        call = function_call("lookup", '{"ids":[1,2]}', f"c{turn}", item_id=f"call{turn}")
        output = function_call_output(f"c{turn}", "found", item_id=f"output{turn}")
        layer = LayerTokens("notes", 100.0, 30, 70.0, 1)
        events += [
            TurnStarted(at, now, f"turn{turn}", start, start + 1, query, "ann"),
            ItemsAppended(at, now, start, (input_message(query, item_id=f"user{turn}"),), "user"),
            MemoryTraceSpan(at, now, "notes", "recall", 1.5, "ok", layer, 1),
            ViewAssembled(at, now, 0, (0, start + 1), (), (layer,), (), 900.0, 50.0, 20, 10, 0, 40, 700.0, start + 1),
            ModelCalled(at, now + 1, 0, "scripted", "agent", 5.0, "ok", (call,), 100, 10, cost=0.25),
            ItemsAppended(at, now + 1, start + 1, (call,), "model"),
            SteeringDecided(
                at, now + 2, "steering", "before_tool_call", "lookup", {"ids": [1, 2]}, "allow", None, ("r1",), 0.1
            ),
            RegulatorSaw(at, now + 2, "regulation", {"kind": "tool_call", "tool_name": "lookup", "args_json": None}),
            RegulatorDecided(
                at, now + 2, "regulation", "tool_call", {"kind": "continue"}, confidence=0.5, tokens_out=10
            ),
            ToolCalled(at, now + 3, "lookup", f"c{turn}", {"ids": [1, 2]}, "found", 2.0, "ok"),
            ItemsAppended(at, now + 3, start + 2, (output,), "tool"),
            ModelCalled(
                at, now + 4, 1, "scripted", "agent", 5.0, "ok", (assistant_message(reply, item_id=f"a{turn}"),), 120, 15
            ),
            ItemsAppended(at, now + 4, start + 3, (assistant_message(reply, item_id=f"a{turn}"),), "model"),
            TurnCompleted(at, now + 5, f"turn{turn}", "success", 5.0, reply, 220, 25, 0.25, 2, 1),
            QualityGiven(at, now + 6, 0.5, "grader"),
        ]
    return events


class Desk:
    """The part of a harness's interface that recording uses."""

    def __init__(self, name: str = "desk") -> None:
        self.sinks: list[EventSink] = []
        self.clock, self.ids = FakeClock(7_000), SeededIds(1)
        self.name = name

    def subscribe(self, sink: EventSink) -> Callable[[], None]:
        self.sinks.append(sink)
        return lambda: self.sinks.remove(sink)

    def describe(self) -> dict[str, object]:
        return {"config": {"name": self.name}, "models": ["scripted"]}

    def emit(self, *events: RunEvent) -> None:
        for event in events:
            for sink in tuple(self.sinks):
                sink.emit(event)


def signals_of(*events: Any) -> ThreadSignals:
    """Return the signals of one thread."""
    signals = Signals()
    for event in events:
        signals.take(event)
    return next(iter(signals.threads.values()))
