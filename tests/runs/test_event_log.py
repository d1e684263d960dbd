"""One list of events: subscribers, readers and followers get the same events, each once, even when old turns are dropped."""

from __future__ import annotations

import copy
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import noetic_nb as nn
from noetic_nb.events import (
    MemoryTraceSpan,
    ModelCalled,
    QualityGiven,
    RunEvent,
    StepStarted,
    TurnCompleted,
    TurnStarted,
    ViewAssembled,
    Where,
)
from noetic_nb.memory import MemoryHooks, MemoryLayer
from noetic_nb.runs import Run, record
from noetic_nb.runs._events.event_json import EVENT_TYPES, dump_event, parse_event, size_of
from noetic_nb.runs._events.event_kinds import kinds_of
from noetic_nb.runs._recording.retained_turns import KeptTurns
from noetic_nb.runs._recording.retention import RunKeeper, bound
from tests.runs.factories import EVENTS, conversation
from tests.runs.seeded_run import harness

WHERE = Where("t1", "e1", 1)


class Collected:
    """A sink that keeps its events."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []

    def emit(self, event: RunEvent) -> None:
        self.events.append(event)


def step(name: str, turn: int = 1, thread: str = "t1") -> StepStarted:
    return StepStarted(Where(thread, "e1", turn), 0.0, name, "run", f"/{name}#1")


def call(purpose: Any, t_ms: float = 0.0, turn: int = 1) -> ModelCalled:
    return ModelCalled(Where("t1", "e1", turn), t_ms, 1, "m", purpose, 1.0, "ok")


def steps(events: Any) -> list[str]:
    return [event.step_id for event in events if isinstance(event, StepStarted)]


async def converse(agent: nn.AgentHarness) -> None:
    for text in ("Where is order A17?", "Thanks!"):
        await agent.execute(text, thread_id="ann")
    await agent.feedback("ann", quality=0.9)


# Events


@given(EVENTS)
def test_an_event_is_data_like_any_other(event: RunEvent) -> None:
    kept = Run(events=[event]).events[0]

    for again in (copy.copy(kept), copy.deepcopy(kept), pickle.loads(pickle.dumps(kept)), replace(kept)):
        assert again == kept
        assert repr(again) == repr(kept)
    with pytest.raises(AttributeError):
        kept.t_ms = 1.0  # type: ignore[misc]


@pytest.mark.parametrize("cls", EVENT_TYPES)
def test_the_kind_of_an_event_is_the_tag_of_its_json(cls: Any) -> None:
    event = next((each for each in conversation(1) if type(each) is cls), None)

    assert cls.kind == cls.__struct_config__.tag
    assert event is None or next(iter(dump_event(event).items())) == ("kind", cls.kind)


def test_a_word_that_is_not_known_and_a_whole_number_are_read_as_they_are_written() -> None:
    data = dump_event(MemoryTraceSpan(WHERE, 0.0, "notes", "recall", 1.5, "ok"))

    read = parse_event({**data, "status": "postponed", "hook": "on_moon", "tMs": 5})

    assert isinstance(read, MemoryTraceSpan)
    assert (read.status, read.hook, read.t_ms) == ("postponed", "on_moon", 5)
    assert type(read.t_ms) is int
    assert dump_event(read)["tMs"] == 5


@given(EVENTS)
def test_the_size_of_an_event_is_about_that_of_its_json(event: RunEvent) -> None:
    kept = Run(events=[event]).events[0]

    assert 0 < size_of([kept]) < 4 * len(repr(kept)) + 1_000


@pytest.mark.parametrize("text", ["a\ud800b", "x" * 1_000])
def test_an_event_that_utf_8_cannot_hold_has_a_size_all_the_same(text: str) -> None:
    assert size_of([TurnStarted(WHERE, 0.0, "turn1", 0, 0, text)]) > len(text)


# Subscribers and readers


async def test_a_run_has_the_events_that_another_sink_is_sent() -> None:
    agent = harness()
    run, sink, told, seen = record(agent), Collected(), list[RunEvent](), list[int]()
    run.subscribe(told.append)
    run.subscribe(lambda event: seen.append(len(run.events)))
    agent.subscribe(sink)

    await converse(agent)

    assert list(run.events) == told == list(Run(events=sink.events).events)
    assert [id(event) for event in told] == [id(event) for event in run.events]
    assert seen == list(range(1, len(run.events) + 1))


def test_a_cursor_reads_each_event_once_however_many_at_a_time() -> None:
    run, woken = Run(events=[step("before")]), list[int]()
    cursor = run._follow(lambda: woken.append(len(run.events)))
    for name in "abcde":
        run.append(step(name))

    assert woken == [2]
    assert steps(cursor.take(2)) == ["a", "b"]
    assert cursor.behind
    assert steps(cursor.take()) == ["c", "d", "e"]
    assert cursor.take() == []
    assert not cursor.behind
    run.append(step("f"))
    run.extend([step("g")])
    assert woken == [2, 7]
    assert steps(cursor.take()) == ["f", "g"]
    cursor.leave()
    cursor.leave()
    run.append(step("after"))
    assert woken == [2, 7]


def test_events_of_many_threads_are_all_there_each_threads_in_their_order() -> None:
    run, before = Run(), sys.getswitchinterval()
    bound(run, KeptTurns(max_bytes=2**27))
    cursor = run._follow(lambda: None)
    read: list[RunEvent] = []
    sys.setswitchinterval(1e-6)

    def work(name: int) -> None:
        for number in range(300):
            run.append(step(str(number), thread=f"t{name}"))
            if name == 0 and number % 7 == 0:
                read.extend(cursor.take(5))

    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
    finally:
        sys.setswitchinterval(before)

    read += cursor.take()
    assert [id(event) for event in read] == [id(event) for event in run.events]
    for name in range(4):
        assert steps([event for event in read if event.where.thread_id == f"t{name}"]) == [str(n) for n in range(300)]


# Retention


def a_turn(run: Run, turn: int, text: str = "") -> None:
    where = Where("t1", "e1", turn)
    run.append(TurnStarted(where, 0.0, f"turn{turn}", 0, 0, text))
    run.append(step(f"s{turn}", turn))
    run.append(call("judge", turn=turn))
    run.append(call("agent", turn=turn))
    run.append(TurnCompleted(where, 0.0, f"turn{turn}", "success", 0.0, "", 0, 0, None, 0, 0, None))


def test_turns_go_whole_and_numbers_stay() -> None:
    run = Run()
    bound(run, KeptTurns(max_turns=4))
    for turn in range(1, 6):
        a_turn(run, turn)

    assert run.meta["dropped"] == [{"thread_id": "t1", "first": 1, "last": 2}]
    assert steps(run.events) == ["s3", "s4", "s5"]
    assert run._numbers is not None
    assert run._numbers.seqs == list(range(10, 25))
    assert run.append(step("late", 5)) == 15
    assert run._numbers.place_of(25) == 15
    events, numbers, kinds = run._numbered()
    assert kinds == kinds_of(events)
    assert numbers is not None
    calls = [
        number
        for event, number in zip(events, numbers[1], strict=True)
        if event == call("agent", turn=event.where.turn)
    ]
    assert calls == [2, 3, 4]


@pytest.mark.parametrize("read_first", [0, 1, 7])
def test_a_reader_has_what_is_dropped_too(read_first: int) -> None:
    run = Run()
    bound(run, KeptTurns(max_turns=2))
    cursor = run._follow(lambda: None)
    read: list[RunEvent] = []
    for turn in range(1, 8):
        a_turn(run, turn)
        read += cursor.take(read_first)
    while cursor.behind:
        read += cursor.take(3)

    assert steps(read) == [f"s{turn}" for turn in range(1, 8)]
    assert len(read) == 35
    assert len(run.events) < 35


def test_a_run_is_kept_within_its_bytes_at_the_end_of_each_turn() -> None:
    run = Run()
    bound(run, KeptTurns(max_bytes=600_000))
    most = 0
    for turn in range(1, 400):
        a_turn(run, turn, "x" * 3_000)
        most = max(most, size_of(list(run.events)))

    assert 400_000 < most <= 600_000
    assert run.meta["dropped"]


@pytest.mark.parametrize("large", range(0, 1_200, 171))
def test_a_large_text_is_counted_wherever_it_comes(large: int) -> None:
    run = Run()
    bound(run, KeptTurns(max_bytes=2**27))
    assert isinstance(run._keeper, RunKeeper)
    run.append(TurnStarted(WHERE, 0.0, "turn1", 0, 0, ""))
    for number in range(1_200):
        run.append(step("x" * (10**6 if number == large else 10)))

    run._keeper.take()

    assert 2 * 10**6 < run._keeper.size < 3 * 10**6  # each event contains the name of its step twice


def test_turns_of_several_threads_go_whole() -> None:
    run = Run()
    bound(run, KeptTurns(max_bytes=200_000))
    for turn in range(1, 200):
        where = Where(f"t{turn % 3}", "e1", turn)
        run.append(TurnStarted(where, 0.0, f"turn{turn}", 0, 0, "x" * 1_000))
        # Also an event of the previous turn, which has ended.
        for each in (turn, max(1, turn - 1)):
            run.append(step(str(turn), each, f"t{each % 3}"))
        run.append(TurnCompleted(where, 0.0, f"turn{turn}", "success", 0.0, "", 0, 0, None, 0, 0, None))

    assert run.meta["dropped"]
    started = {event.where for event in run.select(TurnStarted)}
    assert 30 < len(started) < 199
    assert {event.where for event in run.events} == started
    assert {event.where for event in run.select(TurnCompleted)} == started


class Drops:
    """Drops the requested events when the next event arrives."""

    problem = None

    def __init__(self, run: Run) -> None:
        self.run = run
        self.pattern: list[bool] = []

    def begin(self, events: Any) -> None:
        pass

    def is_due(self, event: RunEvent, count: int) -> bool:
        return bool(self.pattern)

    def take(self) -> list[bool]:
        pattern, self.pattern = self.pattern, []
        return [pattern[min(at, len(pattern) - 1)] for at in range(len(self.run.events))]

    def close(self) -> None:
        pass


@given(
    st.lists(
        st.one_of(
            st.sampled_from(["event", "judge", "agent", "agent"]),
            st.integers(1, 30),
            st.lists(st.booleans(), min_size=1, max_size=6),
        ),
        max_size=40,
    )
)
def test_every_event_keeps_its_number_and_is_read_once_whatever_goes(actions: list[Any]) -> None:
    run = Run("r1")
    keeper = Drops(run)
    run._keep_with(keeper)
    cursor = run._follow(lambda: None)
    expected: list[tuple[int, int, float]] = []
    read: list[float] = []
    numbered = calls = 0
    for action in [*actions, [False, True]]:
        if isinstance(action, int):
            read += [event.t_ms for event in cursor.take(action)]
            continue
        expected.append((numbered, calls, float(numbered)))
        if action in ("judge", "agent"):
            run.append(call(action, float(numbered)))
            calls += action == "agent"
        else:
            keeper.pattern = [] if action == "event" else [*action]
            run.append(QualityGiven(WHERE, float(numbered), 0.5, "user"))
            if action != "event":
                stays = [action[min(at, len(action) - 1)] for at in range(len(expected))]
                expected = [each for each, stay in zip(expected, stays, strict=True) if stay]
        numbered += 1

    events, numbers, kinds = run._numbered()
    assert kinds == kinds_of(events)
    assert numbers is not None
    assert [*zip(*numbers, [event.t_ms for event in events], strict=True)] == expected
    assert read + [event.t_ms for event in cursor.take()] == [float(number) for number in range(numbered)]


# Incomplete turns


async def test_a_run_has_the_messages_that_recalled_texts_were_sent_as() -> None:
    hint = nn.items.input_message("Look it up.", "developer", item_id="h1") | {"note": "by a layer"}
    open_to: dict[str, Any] = {"scope": "thread", "budget": {"min": 0, "max": 200}}
    layers = [
        MemoryLayer(id="mood", slot=201, **open_to, hooks=MemoryHooks(recall=lambda p: "She is in a hurry.")),
        MemoryLayer(id="hint", slot=202, **open_to, hooks=MemoryHooks(recall=lambda p: {"items": [hint]})),
    ]
    model = nn.ScriptedModel(["Hello!"])
    agent = nn.AgentHarness(nn.AgentConfig(name="desk", step=nn.react(model="scripted"), memory=layers), model=model)
    run = record(agent)

    await agent.execute("Hi")

    sent = {item["id"]: item for item in model.requests[0].items}
    (mood, message), (other, same) = run.select(ViewAssembled)[0].layer_items
    assert (mood, message) == ("mood", sent[message["id"]])
    assert (other, same) == ("hint", sent["h1"])
    assert same["note"] == "by a layer"
