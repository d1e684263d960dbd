"""Events that a run makes when somebody reads it: the same as those that are made at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb import late_events
from noetic_nb.events import (
    LayerStateChanged,
    MemoryTraceSpan,
    QualityGiven,
    RunEvent,
    StepStarted,
    ToolCalled,
    TurnCompleted,
    TurnStarted,
    ViewAssembled,
    Where,
)
from noetic_nb.late_events import event_of, noting, own_note, place_of
from noetic_nb.memory import MemoryHooks, MemoryLayer
from noetic_nb.memory.idle_hook import IdleHook
from noetic_nb.runs import Recorder, Run, record
from noetic_nb.runs.events.event_sizes import EventSizes
from noetic_nb.runs.recording import kept_turns as kept
from noetic_nb.runs.recording.keeper import RunKeeper, bound
from noetic_nb.runs.recording.kept_turns import KeptTurns
from tests.runs.held_rows import held
from tests.runs.seeded_run import harness

PLACE = ("t1", "e1", 1, 0)


class Collected:
    """A sink that wants events."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []

    def emit(self, event: RunEvent) -> None:
        self.events.append(event)


def row(step: str, turn: int = 1) -> late_events.Row:
    return (StepStarted.kind, ("t1", "e1", turn, 0), 0.0, step, "run", f"/{step}#1")


def steps(run: Run) -> list[str]:
    return [event.step_id for event in run.select(StepStarted)]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[late_events.Row]]:
    """The rows that were made events."""
    rows: list[late_events.Row] = []

    def noticed(given: late_events.Row) -> RunEvent:
        rows.append(given)
        return event_of(given)

    monkeypatch.setattr("noetic_nb.runs.events.unread_events.event_of", noticed)
    return rows


async def converse(agent: nn.AgentHarness) -> None:
    for text in ("Where is order A17?", "Thanks!"):
        await agent.execute(text, thread_id="ann")
    await agent.feedback("ann", quality=0.9)


async def test_a_run_has_the_events_that_another_sink_is_sent_at_once() -> None:
    recorded, sent = harness(), harness()
    run, sink = record(recorded), Collected()
    sent.subscribe(sink)

    await converse(recorded)
    await converse(sent)

    assert list(run.events) == list(Run(events=sink.events).events)
    assert {event.kind for event in sink.events} >= set(late_events._MAKERS)
    assert set(late_events.ROW_LENGTHS) == set(late_events._MAKERS)


async def test_a_row_is_as_large_as_its_event() -> None:
    agent = harness()
    run = record(agent)
    await converse(agent)

    rows = [each for each in held(run) if isinstance(each, tuple)]
    assert {kind for kind, *_ in rows} == set(late_events._MAKERS)
    assert [EventSizes().of(each) for each in rows] == [EventSizes().of(event_of(each)) for each in rows]


async def test_two_sinks_are_sent_the_very_same_events() -> None:
    agent = harness()
    run, sink = record(agent), Collected()
    agent.subscribe(sink)

    await converse(agent)

    assert [id(event) for event in run.events if event.kind in late_events._MAKERS] == [
        id(event) for event in sink.events if event.kind in late_events._MAKERS
    ]


async def test_no_event_of_a_hook_is_made_before_somebody_reads(made: list[late_events.Row]) -> None:
    agent = harness()
    run = record(agent)
    await converse(agent)

    assert made == []
    assert run.select(MemoryTraceSpan)
    count = len(made)
    assert count > 20
    assert len(run.events) >= count
    assert len(made) == count  # each is made once


async def test_who_reads_meanwhile_finds_what_has_happened_until_then() -> None:
    agent = harness()
    run = record(agent)
    seen: list[int] = []

    class Reading:
        def emit(self, event: RunEvent) -> None:
            seen.append(len(run.events))

    agent.subscribe(Reading())

    await converse(agent)

    assert seen == list(range(1, len(run.events) + 1))


async def test_a_listener_is_called_with_each_event_as_it_comes() -> None:
    agent = harness()
    run = record(agent)
    told: list[RunEvent] = []
    run.subscribe(told.append)

    await converse(agent)

    assert told == list(run.events)
    assert [id(event) for event in told] == [id(event) for event in run.events]


def test_a_class_with_an_emit_of_its_own_wants_events() -> None:
    class Loud(Recorder):
        def emit(self, event: RunEvent) -> None:
            self.heard = event
            super().emit(event)

    loud, plain, sink = Loud(), Recorder(), Collected()

    for each in (loud, plain, sink):
        noting(each)(row("ask"))

    assert own_note(loud) is None
    assert own_note(sink) is None
    assert loud.heard == loud.run.events[0] == plain.run.events[0] == sink.events[0]


def test_what_follows_a_run_takes_each_event_once_however_many_are_made_at_a_time() -> None:
    run = Run()
    woken: list[int] = []
    taken: list[RunEvent] = []
    run.note_row(row("before"))
    leave = run.follow(lambda: woken.append(1), taken.extend)
    for step in "abcde":
        run.note_row(row(step))

    assert taken == []
    assert len(woken) == 1
    assert not run.make_events(2)
    assert [event.step_id for event in taken] == ["a", "b"]
    assert run.make_events()
    run.note_row(row("f"))
    run.append(event_of(row("g")))
    assert len(woken) == 2
    assert taken == list(run.events)[1:]
    leave()
    leave()
    run.note_row(row("after"))
    assert len(run.events) == len(taken) + 2


def test_rows_that_come_from_many_threads_are_all_there_each_threads_in_their_order() -> None:
    run, before = Run(), sys.getswitchinterval()
    bound(run, KeptTurns(max_bytes=2**27))
    sys.setswitchinterval(1e-6)

    def work(name: int) -> None:
        for number in range(300):
            run.note_row((StepStarted.kind, (f"t{name}", "e", 1, 0), 0.0, str(number), "run", ""))
            if number % 7 == name:
                len(run.events)

    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
    finally:
        sys.setswitchinterval(before)

    by_thread: dict[str, list[str]] = {}
    for event in run.select(StepStarted):
        by_thread.setdefault(event.where.thread_id, []).append(event.step_id)
    assert by_thread == {f"t{name}": [str(number) for number in range(300)] for name in range(4)}


def a_turn(run: Run, turn: int, text: str = "") -> None:
    where = Where("t1", "e1", turn)
    run.append(TurnStarted(where, 0.0, f"turn{turn}", 0, 0, text))
    run.note_row(row(f"s{turn}", turn))
    run.append(TurnCompleted(where, 0.0, f"turn{turn}", "success", 0.0, "", 0, 0, None, 0, 0, None))


def test_turns_are_dropped_without_being_made_and_numbers_stay(made: list[late_events.Row]) -> None:
    run = Run()
    bound(run, KeptTurns(max_turns=4))
    for turn in range(1, 6):
        a_turn(run, turn)

    assert made == []
    assert run.meta["dropped"] == [{"thread_id": "t1", "first": 1, "last": 2}]
    assert steps(run) == ["s3", "s4", "s5"]
    assert run.numbers is not None
    assert run.numbers.seqs == list(range(6, 15))
    run.note_row(row("late", 5))
    assert run.numbers.place_of(15) == 9
    assert steps(run)[-1] == "late"


@pytest.mark.parametrize("read_after", [1, 2, 3, 4])
def test_turns_are_dropped_whether_or_not_some_of_them_were_read(read_after: int) -> None:
    run = Run()
    bound(run, KeptTurns(max_turns=4))
    for turn in range(1, 6):
        a_turn(run, turn)
        if turn == read_after:
            assert steps(run) == [f"s{each}" for each in range(1, turn + 1)]

    assert steps(run) == ["s3", "s4", "s5"]
    assert run.numbers is not None
    assert run.numbers.seqs == list(range(6, 15))


@pytest.mark.parametrize("is_read", [False, True])
def test_model_calls_have_the_same_numbers_whether_or_not_they_were_read(is_read: bool) -> None:
    run = Run()
    bound(run, KeptTurns(max_turns=4))
    for turn in range(1, 7):
        where = Where("t1", "e1", turn)
        run.append(TurnStarted(where, 0.0, f"turn{turn}", 0, 0, ""))
        for purpose in ("judge", "agent"):
            usage = (0, 0, 0, None, (), None, None)
            run.note_row(("model_called", place_of(where), 0.0, 1, "m", purpose, 1.0, "ok", (), *usage))
        assert not is_read or len(run.events)
        run.append(TurnCompleted(where, 0.0, f"turn{turn}", "success", 0.0, "", 0, 0, None, 0, 0, None))

    events, numbers = run.numbered()
    assert numbers is not None
    calls = [call for event, call in zip(events, numbers[1], strict=True) if getattr(event, "purpose", "") == "agent"]
    assert calls == [2, 3, 4, 5]


def test_who_follows_has_what_is_dropped() -> None:
    run = Run()
    taken: list[RunEvent] = []
    bound(run, KeptTurns(max_turns=2))
    run.follow(lambda: None, taken.extend)
    for turn in range(1, 5):
        a_turn(run, turn)
    run.make_events()

    assert [event.step_id for event in taken if isinstance(event, StepStarted)] == ["s1", "s2", "s3", "s4"]
    assert len(run.events) < len(taken)


def test_a_run_far_from_its_bound_is_measured_later_and_kept_within_it_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept, "_FAR", 50_000)
    monkeypatch.setattr("noetic_nb.runs.recording.keeper._AT_ONCE", 500)
    run = Run()
    bound(run, KeptTurns(max_bytes=200_000))
    most = 0
    for turn in range(1, 600):
        a_turn(run, turn, "x" * 1_000)
        most = max(most, sum(len(event.query) for event in run.select(TurnStarted)))

    # Three events a turn: so many turns may come before it is looked at.
    assert most <= 200_000 + 1_000 * (500 // 3 + 1)
    assert run.meta["dropped"]


def test_a_run_of_large_turns_is_measured_at_the_end_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_FAR", 50_000)
    monkeypatch.setattr("noetic_nb.runs.recording.keeper._AT_ONCE", 500)
    run = Run()
    bound(run, KeptTurns(max_bytes=600_000))
    most = 0
    for turn in range(1, 400):
        a_turn(run, turn, "x" * 3_000)
        most = max(most, sum(len(event.query) for event in run.select(TurnStarted)))

    # 500 events would be 167 turns, of half a million bytes: after the first of them there is no room for as much once more.
    assert 300_000 < most <= 603_000
    assert run.meta["dropped"]


def measured(turns: KeptTurns, events: list[RunEvent | late_events.Row]) -> RunKeeper:
    """Return what keeps a run that has taken some events."""
    run = Run()
    bound(run, turns)
    for event in events:
        if isinstance(event, tuple):
            run.note_row(event)
        else:
            run.append(event)
    assert isinstance(run.keeper, RunKeeper)
    run.keeper.take()
    return run.keeper


async def test_turns_far_from_the_bound_are_measured_as_large_as_others_are_and_what_they_were_given_is_counted() -> (
    None
):
    hooks = MemoryHooks(
        recall=lambda p: "noted", store=lambda p: {"state": {"n": [*(p.state or {"n": []})["n"], "stored"]}}
    )
    layer = MemoryLayer(id="notes", slot=200, scope="thread", budget={"min": 0, "max": 200}, hooks=hooks)
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), memory=[layer])
    agent = nn.AgentHarness(config, model=nn.ScriptedModel(lambda request: "Done."))
    run = record(agent)
    for turn in range(24):
        await agent.execute("Where is order A17?" if turn != 9 else "x" * 500_000, thread_id="ann")
    events = held(run)

    near = KeptTurns(max_turns=1_000)
    exact = measured(near, events).size
    turns = KeptTurns(max_bytes=2**40)
    far = measured(turns, events)

    assert exact > 500_000
    assert far.size == pytest.approx(exact, rel=0.05)
    assert far.size != exact
    assert [turn.size for turn in turns.all] == pytest.approx([turn.size for turn in near.all], rel=0.2)
    assert far.size == sum(turn.size for turn in turns.all)


@pytest.mark.parametrize("large", range(0, 1_200, 171))
def test_a_large_output_is_counted_wherever_it_comes(large: int) -> None:
    run = Run()
    bound(run, KeptTurns(max_bytes=2**27))
    assert isinstance(run.keeper, RunKeeper)
    run.append(TurnStarted(Where("t1", "e1", 1), 0.0, "turn1", 0, 0, ""))
    for number in range(1_200):
        output = "x" * (10**6 if number == large else 10)
        run.note_row(
            (ToolCalled.kind, PLACE, 0.0, "find", f"c{number}", {}, output, 1.0, "ok", None, None, 0, None, None)
        )

    run.keeper.take()

    assert 10**6 < run.keeper.size < 2 * 10**6


def test_a_run_that_has_come_near_its_bound_knows_whose_each_event_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_FAR", 50_000)
    monkeypatch.setattr("noetic_nb.runs.recording.keeper._AT_ONCE", 100)
    run = Run()
    bound(run, KeptTurns(max_bytes=200_000))
    for turn in range(1, 200):
        where = Where(f"t{turn % 3}", "e1", turn)
        run.append(TurnStarted(where, 0.0, f"turn{turn}", 0, 0, "x" * 1_000))
        # Of the turn before, too, which has ended.
        for each in (turn, max(1, turn - 1)):
            run.note_row((StepStarted.kind, (f"t{each % 3}", "e1", each, 0), 0.0, str(turn), "run", ""))
        run.append(TurnCompleted(where, 0.0, f"turn{turn}", "success", 0.0, "", 0, 0, None, 0, 0, None))

    assert run.meta["dropped"]
    started = {event.where for event in run.select(TurnStarted)}
    assert 30 < len(started) < 199
    # Turns go whole.
    assert {event.where for event in run.events} == started
    assert {event.where for event in run.select(TurnCompleted)} == started


def test_a_place_of_an_event_is_that_of_its_row() -> None:
    event = event_of(row("ask"))

    assert place_of(event.where) == PLACE
    assert event == StepStarted(Where("t1", "e1", 1), 0.0, "ask", "run", "/ask#1")


async def test_a_state_that_is_changed_in_place_after_it_was_loaded_is_in_the_run_as_it_was_loaded() -> None:
    def recall(p: Any) -> None:
        if p.state is not None:
            p.state["n"].append("recalled")

    hooks = MemoryHooks(recall=recall, store=lambda p: {"state": {"n": ["stored"]}})
    layer = MemoryLayer(id="notes", slot=200, scope="thread", budget={"min": 0, "max": 200}, hooks=hooks)
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), memory=[layer])
    agent = nn.AgentHarness(config, model=nn.ScriptedModel(["Yes."] * 2))
    run = record(agent)
    for _ in range(2):
        await agent.execute("Hm?", thread_id="t1")

    states = [(event.hook, event.state) for event in run.select(LayerStateChanged)]
    assert states == [("store", {"n": ("stored",)}), ("init", {"n": ("stored",)}), ("store", {"n": ("stored",)})]


async def test_of_a_recalled_text_a_run_holds_the_text_until_the_message_is_read() -> None:
    hint = nn.items.input_message("Look it up.", "developer", item_id="h1") | {"note": "by a layer"}
    open_to: dict[str, Any] = {"scope": "thread", "budget": {"min": 0, "max": 200}}
    layers = [
        MemoryLayer(id="mood", slot=201, **open_to, hooks=MemoryHooks(recall=lambda p: "She is in a hurry.")),
        MemoryLayer(id="hint", slot=202, **open_to, hooks=MemoryHooks(recall=lambda p: {"items": [hint]})),
    ]
    model = nn.ScriptedModel(["Hello!"])
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), memory=layers)
    agent = nn.AgentHarness(config, model=model)
    run = record(agent)

    await agent.execute("Hi")

    parts = next(row[7] for row in held(run) if type(row) is tuple and row[0] == ViewAssembled.kind)
    sent = {item["id"]: item for item in model.requests[0].items}
    mood = parts[1]
    assert parts == ("mood", mood, "She is in a hurry.", "hint", None, sent["h1"])
    assert run.select(ViewAssembled)[0].layer_items == (("mood", sent[mood]), ("hint", sent["h1"]))
    assert sent["h1"]["note"] == "by a layer"


async def test_a_hook_that_would_do_nothing_is_recorded_without_a_call() -> None:
    called: list[str] = []
    idle = IdleHook(lambda p: called.append(p.query), lambda execution_id, state_of: execution_id is not None)
    hooks = MemoryHooks(recall=idle)
    layer = MemoryLayer(id="mood", slot=201, scope="thread", budget={"min": 0, "max": 200}, hooks=hooks)
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), memory=[layer])
    agent = nn.AgentHarness(config, model=nn.ScriptedModel(["Hello!"]))
    run = record(agent)

    await agent.execute("Hi")

    (span,) = run.select(MemoryTraceSpan)
    assert (span.layer_id, span.hook, span.status, span.item_count) == ("mood", "recall", "ok", 0)
    assert span.duration_ms >= 0.0
    assert called == []


class Looks:
    """Keeps everything, and looks when there are so many events."""

    problem = None
    middle = None
    has_room = True
    saves = False

    def __init__(self, run: Run, look_at: int) -> None:
        self.run, self.look_at = run, look_at
        self.looks: list[int] = []

    def begin(self, events: Any) -> None:
        pass

    def take(self) -> None:
        self.looks.append(sum(1 for _ in held(self.run)))

    def close(self) -> None:
        pass


class Drops(Looks):
    """Drops what it is asked to, when it looks the next time: at every event that is no row."""

    has_room = False

    def __init__(self, run: Run) -> None:
        super().__init__(run, 2**30)
        self.pattern: list[bool] = []

    def take(self) -> list[bool] | None:  # type: ignore[override]
        if not self.pattern:
            return None
        pattern, self.pattern = self.pattern, []
        return [pattern[min(at, len(pattern) - 1)] for at in range(len(list(held(self.run))))]


@given(
    st.lists(
        st.one_of(
            st.sampled_from(["row", "event", "judge", "agent", "agent", "ask"]),
            st.integers(1, 30),
            st.lists(st.booleans(), min_size=1, max_size=6),
        ),
        max_size=40,
    )
)
@example(["row", "agent", 2])  # some have been read, and of those not all need a number
def test_every_event_keeps_its_number_whatever_goes_and_whoever_reads_meanwhile(actions: list[Any]) -> None:
    run = Run("r1")
    keeper = Drops(run)
    run.keep_with(keeper)
    expected: list[tuple[int, int, float]] = []
    numbered = calls = 0
    has_dropped = False
    for action in [*actions, [False, True]]:
        if isinstance(action, int):
            run.make_events(action)
        elif action == "ask":
            assert (run.numbers is None) is not has_dropped
            if run.numbers is not None:
                assert run.numbers.seqs == [seq for seq, _, _ in expected]
        else:
            expected.append((numbered, calls, float(numbered)))
            if action == "row":
                run.note_row((StepStarted.kind, PLACE, float(numbered), "s", "run", "/s#1"))
            elif action in ("judge", "agent"):
                usage = (0, 0, 0, None, (), None, None)
                run.note_row(("model_called", PLACE, float(numbered), 1, "m", action, 1.0, "ok", (), *usage))
                calls += action == "agent"
            else:
                pattern = [] if action == "event" else action
                keeper.pattern = [*pattern]
                run.note_event(QualityGiven(Where("t1", "e1", 1), float(numbered), 0.5, "user"))
                if pattern:
                    stays = [pattern[min(at, len(pattern) - 1)] for at in range(len(expected))]
                    expected = [each for each, stay in zip(expected, stays, strict=True) if stay]
                    has_dropped = True
            numbered += 1

    events, numbers = run.numbered()
    assert numbers is not None
    assert [*zip(*numbers, [event.t_ms for event in events], strict=True)] == expected


@pytest.mark.parametrize("kinds", ["event", "row", "event row", "row row event"])
def test_a_keeper_looks_at_the_latest_when_there_are_as_many_events_as_it_said(kinds: str) -> None:
    run = Run("r1")
    keeper = Looks(run, look_at=20)
    run.keep_with(keeper)

    for number in range(40):
        if kinds.split()[number % len(kinds.split())] == "row":
            run.note_row(row(str(number)))
        else:
            run.note_event(QualityGiven(Where("t1", "e1", 1), float(number), 0.5, "user"))

    assert 15 <= keeper.looks[0] <= 20
