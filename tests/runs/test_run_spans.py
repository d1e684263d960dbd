"""Events become spans: nested, parallel, in rows without overlaps, and drawn one window at a time."""

from __future__ import annotations

import random
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.events import (
    ChildEnded,
    ChildStarted,
    ContextCompacted,
    MemoryTraceSpan,
    ModelCalled,
    RunEvent,
    StepEnded,
    StepStarted,
    ToolCalled,
    TurnCompleted,
    TurnStarted,
    Where,
)
from noetic_nb.runs._timeline.run_spans import Timeline
from noetic_nb.runs._timeline.span import KINDS, MOST_BESIDE, OVERLAP_MS, DrawnTime
from noetic_nb.runs._timeline.span_window import WHOLE, Wanted, Windows
from tests.widgets.timeline_scenes import TURN, branches, many_turns


def grown(events: list[RunEvent], *, is_timed: bool = True) -> Timeline:
    timeline, calls = Timeline(is_timed=is_timed), 0
    for seq, event in enumerate(events):
        is_call = isinstance(event, ModelCalled) and event.purpose == "agent"
        timeline.take(event, seq, calls if is_call else None)
        calls += is_call
    return timeline


def around(timeline: Timeline) -> dict[str, str | None]:
    return {span.name: None if span.parent is None else span.parent.name for span in timeline.spans}


def test_spans_are_nested_as_they_ran() -> None:
    found = around(grown(list(branches())))

    assert found["notes.init"] == "turn 1"  # written before its turn
    assert found["agent"] == "turn 1"
    assert found["notes.recall"] == found["fast"] == found["refund"] == found["approval of refund"] == "agent"
    assert found["judge (judge)"] == "steering.before_tool_call"
    assert found["path_1"] == "ask_three"
    assert found["model_2"] == "path_2"


def test_starts_are_counted_back_from_ends_and_a_turn_begins_with_its_first_hook() -> None:
    spans = {span.name: span for span in grown(list(branches())).spans}

    assert (spans["fast"].start_ms, spans["fast"].end_ms) == (1_060.0, 1_460.0)
    assert spans["turn 1"].start_ms == spans["notes.init"].start_ms == 1_000.0
    assert spans["turn 1"].duration_ms == 2_920.0


def test_what_ran_side_by_side_is_in_rows_of_its_own() -> None:
    rows = grown(list(branches())).rows
    kids = [row for row in rows if row.spans[0].kind == "child"]

    assert [row.block.depth for row in kids] == [1, 1, 1]
    assert len({id(row.block) for row in kids}) == 3
    assert [len(row.spans) for row in kids] == [1, 1, 1]


def test_a_later_child_takes_the_rows_of_one_that_is_over() -> None:
    events = [*branches(), *branches(Where("t1", "e2", 2), begin=9_000.0)]

    assert len(grown(events).rows) == len(grown(list(branches())).rows)


def test_statuses_are_told_apart_and_what_went_well_has_no_sign() -> None:
    timeline = grown(list(branches()))

    severities = {span.name: span.severity for span in timeline.spans if span.severity}
    assert severities == {"notes.recall": 2, "refund": 3, "ask_three": 3, "path_1": 3, "model_1": 3}
    assert [timeline.spans[at].name for at in timeline.problems] == ["notes.recall", "refund", "model_1"]
    assert timeline.severities == [0, 0, 1, 2]
    assert timeline.waited_ms == 1_200.0


def test_a_tool_holds_what_ran_in_it() -> None:
    kid = Where("t1", "e2", 1, 1)
    timeline = grown(
        [
            TurnStarted(TURN, 0.0, "u1", 0, 1, "Hi"),
            StepStarted(TURN, 1.0, "agent", "llm", "/agent#1"),
            MemoryTraceSpan(TURN, 5.0, "steering", "before_tool_call", 3.0, "ok"),
            StepStarted(TURN, 12.0, "inner", "llm", "/agent#1/inner#1"),
            ModelCalled(TURN, 40.0, 1, "m", "agent", 20.0, "ok"),
            StepEnded(TURN, 41.0, "inner", "llm", "/agent#1/inner#1", 29.0, "ok"),
            ChildStarted(kid, 42.0, "e1", "agent", "spawn", 0, (), {}),
            ChildEnded(kid, 60.0, "e1", "agent", "success", 18.0, "", (), 0, 0, 0.0),
            ToolCalled(TURN, 70.0, "look", "c1", {}, "", 60.0, "ok"),
            StepEnded(TURN, 71.0, "agent", "llm", "/agent#1", 70.0, "ok"),
        ]
    )

    assert around(timeline) == {
        "turn 1": None, "agent": "agent", "steering.before_tool_call": "agent", "inner": "look", "m": "inner", "look": "agent",
    } | {"agent": "look"}  # fmt: skip
    levels = {span.name: span.level for span in timeline.spans if span.kind != "child"}
    assert levels == {"turn 1": 0, "agent": 1, "steering.before_tool_call": 2, "look": 2, "inner": 3, "m": 4}
    assert_rows_are_sound(timeline)


def test_a_step_whose_end_was_not_reported_ends_with_its_turn() -> None:
    timeline = grown(
        [
            TurnStarted(TURN, 0.0, "u1", 0, 1, "Hi"),
            StepStarted(TURN, 1.0, "agent", "llm", "/agent#1"),
            TurnCompleted(TURN, 9.0, "u1", "aborted", 9.0, "", 0, 0, 0.0, 0, 0),
        ]
    )

    assert [(span.status, span.duration_ms) for span in timeline.spans] == [("aborted", 9.0), ("unfinished", None)]


def test_without_a_clock_there_is_the_order_and_no_time() -> None:
    events = [
        TurnStarted(TURN, 5.0, "u1", 0, 1, "Hi"),
        ModelCalled(TURN, 5.0, 1, "m", "agent", None, "ok"),
        ToolCalled(TURN, 5.0, "look", "c1", {}, "", None, "ok"),
        TurnCompleted(TURN, 5.0, "u1", "success", None, "", None, None, None, 1, 1),
    ]
    timeline = grown(events, is_timed=False)

    assert [(span.first, span.last) for span in timeline.spans] == [(0, 3), (1, 2), (2, 3)]
    assert [len(row.spans) for row in timeline.rows] == [1, 2]
    assert {span.duration_ms for span in timeline.spans} == {None}


def entries(run: nn.Run) -> tuple[list[str], list[str]]:
    """Return the names and outcomes of failed spans, and of those that were held back."""
    timeline = grown(list(run.events))
    problems, held = (
        [f"{timeline.spans[at].name}: {timeline.spans[at].status}" for at in numbers]
        for numbers in (timeline.problems, timeline.held)
    )
    assert sum(timeline.severities) == len(problems) + len(held)
    return problems, held


def agent(answers: Any, *memory: Any, **tools: Any) -> tuple[nn.AgentHarness, nn.Run]:
    made = [nn.tool(run, name=name, description=name) for name, run in tools.items()]
    config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=made), memory=list(memory))
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(answers))
    return harness, nn.record(harness)


async def test_each_denial_is_one_entry_among_those_held_back() -> None:
    book = nn.RuleBook()
    book.when('tool.name == "pay"', id="no_pay", guidance="Do not pay.")
    answers = [nn.CallTool("pay", amount=number) for number in range(3)]
    harness, run = agent([*answers, "Sorry."], nn.steering(book), pay=lambda amount: "paid")

    await harness.execute("Pay three times")

    assert entries(run) == ([], ["steering.before_tool_call: deny"] * 3)


async def test_two_calls_of_one_answer_are_an_entry_each_and_a_failure_beside_them_too() -> None:
    def fail(amount: int) -> str:
        raise ValueError("no")

    book = nn.RuleBook()
    book.when('tool.name == "pay"', id="no_pay", guidance="Do not pay.")
    calls = [nn.CallTool("pay", amount=1), nn.CallTool("look", amount=2), nn.CallTool("pay", amount=3)]
    harness, run = agent([calls, "Sorry."], nn.steering(book), pay=lambda amount: "paid", look=fail)

    await harness.execute("Pay twice")

    assert entries(run) == (["look: error"], ["steering.before_tool_call: deny"] * 2)


@pytest.mark.parametrize("loops", [True, False])
async def test_a_circuit_break_is_one_entry_a_turn(loops: bool) -> None:
    regulator, marks = nn.Regulator.for_user("ann"), iter([0.5, 0.3, 0.1])
    grader = None if loops else (lambda reply: next(marks))
    answers: Any = (lambda request: nn.CallTool("look", q="x")) if loops else ["one", "two", "three"]
    harness, run = agent(answers, nn.regulation(regulator, grader=grader), look=lambda q: "nothing")

    for _ in range(1 if loops else 3):
        reply = await harness.execute("Look")

    assert reply.stopped is not None
    assert entries(run) == ([], ["circuit_break: stopped"])
    stop = next(span for span in grown(list(run.events)).spans if span.status == "stopped" and span.kind == "regulator")
    assert stop.error == reply.stopped["suggestion"]


async def test_a_model_that_fails_is_one_entry_and_a_tool_that_the_turn_survives_another() -> None:
    def fail(q: str) -> str:
        raise ValueError("no")

    def answer(request: Any) -> Any:
        if len(run.turns) == 2:
            raise RuntimeError("down")
        return "Sorry." if request.items[-1]["type"] == "function_call_output" else nn.CallTool("look", q="x")

    harness, run = agent(answer, look=fail)
    await harness.execute("Look")
    with pytest.raises(nn.NoeticError):
        await harness.execute("Look again")

    assert entries(run) == (["look: error", "m: error"], [])


def test_what_is_ended_with_its_turn_is_no_entry_of_its_own() -> None:
    kid = Where("t1", "e2", 1, 1)
    end = TurnCompleted(TURN, 9.0, "u1", "failure", 9.0, "", 0, 0, 0.0, 0, 0)
    begin = [TurnStarted(TURN, 0.0, "u1", 0, 1, "Hi"), StepStarted(TURN, 1.0, "agent", "llm", "/agent#1")]
    inside = [
        ChildStarted(kid, 2.0, "e1", "agent", "spawn", 0, (), {}),
        ModelCalled(kid, 5.0, 1, "m", "agent", 2.0, "error"),
        ChildEnded(kid, 6.0, "e1", "agent", "failure", 4.0, "", (), 0, 0, 0.0),
        ToolCalled(TURN, 7.0, "look", "c1", {}, "", 5.0, "error"),
    ]

    alone, caused = grown([*begin, end]), grown([*begin, *inside, end])

    assert [alone.spans[at].name for at in alone.problems] == ["turn 1"]
    assert [caused.spans[at].name for at in caused.problems] == ["m"]
    assert {span.name for span in caused.spans if span.follows} == {"turn 1", "agent", "look"}


def assert_rows_are_sound(timeline: Timeline) -> None:
    """Every span is in one row, rows are sorted, and nothing in them overlaps."""
    placed = [span for row in timeline.rows for span in row.spans]
    assert sorted(span.at for span in placed) == [span.at for span in timeline.spans]
    for row in timeline.rows:
        assert all(timeline.row_of(span) is row for span in row.spans)
        assert row.starts == sorted(row.starts)
        assert row.orders == sorted(row.orders)
        assert row.problems == [place for place, span in enumerate(row.spans) if span.severity]
        for one, other in zip(row.spans, row.spans[1:], strict=False):
            assert not one.is_open
            assert one.end_ms <= other.start_ms + OVERLAP_MS


STATUSES = ("ok", "ok", "ok", "error", "timeout")


def random_events(seed: int, turns: int, *, close: bool = True) -> list[RunEvent]:
    """Return two concurrent threads with nested steps, parallel children, and enclosing hooks and tools, with a moving clock."""
    rand = random.Random(seed)
    now = 0.0
    events: list[RunEvent] = []

    def tick() -> float:
        nonlocal now
        now += rand.choice((0.0, 0.01, 1.0, 30.0, 400.0))
        return now

    def leaf(where: Where, since: float) -> RunEvent:
        end = tick()
        took: float | None = min(end - since, rand.choice((0.0, 0.2, 25.0, 300.0, inf)))
        kind = rand.randrange(4)
        if kind == 0:
            return MemoryTraceSpan(where, end, "notes", "recall", took or 0.0, rand.choice(STATUSES))  # type: ignore[arg-type]
        took = took if rand.random() < 0.9 else None
        if kind == 1:
            return ToolCalled(where, end, "look", "c", {}, "", took, rand.choice(("ok", "error", "denied")))  # type: ignore[arg-type]
        purpose = rand.choice(("agent", "judge"))
        return ModelCalled(where, end, 1, "m", purpose, took, rand.choice(("ok", "error")))  # type: ignore[arg-type]

    def work(where: Where, path: str, depth: int) -> None:
        since = now
        for n in range(rand.randrange(4)):
            if depth < 3 and rand.random() < 0.4:
                step, begin = f"{path}/s{n}#1", tick()
                events.append(StepStarted(where, begin, f"s{n}", "llm", step))
                work(where, step, depth + 1)
                if rand.random() < 0.9:
                    end = tick()
                    events.append(StepEnded(where, end, f"s{n}", "llm", step, end - begin, "ok"))
            elif depth < 2 and rand.random() < 0.3:
                kids = [Where(where.thread_id, f"{where.execution_id}.{path}.{n}.{k}", where.turn, 1) for k in range(3)]
                for kid in kids:
                    events.append(ChildStarted(kid, tick(), where.execution_id, "s0", "fork", 0, (), {}))
                for kid in kids:
                    work(kid, "", depth + 2)
                for kid in rand.sample(kids, 3):
                    events.append(ChildEnded(kid, tick(), where.execution_id, "s0", "success", 1.0, "", (), 0, 0, 0.0))
            else:
                events.append(leaf(where, since))

    for n in range(1, turns + 1):
        where, begin = Where(rand.choice("ab"), f"e{n}", n), tick()
        if rand.random() < 0.3:
            events.append(leaf(where, begin))
        events.append(TurnStarted(where, tick(), f"u{n}", 0, 1, "Hi"))
        work(where, "", 0)
        if close or n < turns:
            end = tick()
            events.append(TurnCompleted(where, end, f"u{n}", "success", end - begin, "", 0, 0, 0.0, 1, 1))
        now += rand.choice((0.0, 5_000.0, 4_000_000.0))
    return events


runs = st.builds(random_events, st.integers(0, 10**6), st.integers(1, 6), close=st.booleans())


@given(runs, st.booleans())
def test_rows_are_sound_in_every_run(events: list[RunEvent], is_timed: bool) -> None:
    assert_rows_are_sound(grown(events, is_timed=is_timed))


@given(runs, st.booleans(), st.integers(1, 300))
def test_a_window_of_all_shows_every_span_once_and_every_problem(
    events: list[RunEvent], by_time: bool, bins: int
) -> None:
    timeline = grown(events)
    windows = Windows(timeline)

    window = windows.window(by_time=by_time, bins=bins, lanes=1_000)

    bars = [bar for lane in window.lanes for bar in lane.bars]
    assert sum(bar.size for bar in bars) == len(timeline.spans)
    for lane in window.lanes:
        assert len(lane.bars) <= 2 * bins + 1
        assert all(0 <= bar.start <= bar.stop <= 1 for bar in lane.bars)
        near = OVERLAP_MS / (window.stop - window.start)
        assert all(one.start <= other.start + near for one, other in zip(lane.bars, lane.bars[1:], strict=False))
    assert max((bar.severity for bar in bars), default=0) == max((span.severity for span in timeline.spans), default=0)


@given(
    runs,
    st.booleans(),
    st.sampled_from(KINDS),
    st.sampled_from(["", "problems", "held"]),
    st.sampled_from(["", "look", "s1"]),
)
def test_a_filter_that_grows_with_the_run_shows_what_it_would_show_of_the_whole(
    events: list[RunEvent], by_time: bool, kind: str, only: str, text: str
) -> None:
    wanted = Wanted(frozenset({kind, "tool"}), only, text)
    growing = Timeline()
    windows = Windows(growing)
    calls = 0
    for seq, event in enumerate(events):
        is_call = isinstance(event, ModelCalled) and event.purpose == "agent"
        growing.take(event, seq, calls if is_call else None)
        calls += is_call
        if seq % 3 == 0:
            windows.window(by_time=by_time, wanted=wanted)

    found = windows.window(by_time=by_time, wanted=wanted, lanes=1_000)

    # By number, because the spans of two timelines are different objects.
    expected = Windows(grown(events)).window(by_time=by_time, wanted=wanted, lanes=1_000)
    assert [[(bar.span.at, bar.size, bar.severity, bar.start) for bar in lane.bars] for lane in found.lanes] == [
        [(bar.span.at, bar.size, bar.severity, bar.start) for bar in lane.bars] for lane in expected.lanes
    ]
    assert found.matched == sum(wanted.takes(span) for span in growing.spans)


@given(runs, st.floats(0, 1), st.floats(0.001, 1), st.integers(5, 200))
def test_a_part_shows_the_spans_that_reach_into_it(events: list[RunEvent], at: float, share: float, bins: int) -> None:
    timeline = grown(events)
    windows = Windows(timeline)
    end = windows.end(by_time=True)
    window = windows.window(at * end, (at + share) * end, bins=bins, lanes=1_000)
    wide = (window.stop - window.start) / bins

    shown = {bar.span.at for lane in window.lanes for bar in lane.bars if bar.size == 1}
    hidden = sum(bar.size for lane in window.lanes for bar in lane.bars if bar.size > 1)
    extents = {span.at: windows.extent(span, by_time=True) for span in timeline.spans}
    large = {
        number
        for number, (begin, stop) in extents.items()
        if min(stop, window.stop) - max(begin, window.start) > wide * 1.001 + OVERLAP_MS
    }
    inside = sum(begin <= window.stop and stop >= window.start for begin, stop in extents.values())
    assert large <= shown
    assert len(shown) + hidden <= inside + len(timeline.rows)


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(1, 10**5)), min_size=1, max_size=20))
def test_drawn_time_keeps_the_order_and_can_be_read_back(stretches: list[tuple[int, int]]) -> None:
    time, now = DrawnTime(), 0
    moments: list[int] = []
    for pause, took in stretches:
        time.runs(now + pause)
        now += pause + took
        time.ran(now)
        moments += [now - took, now]
    places = [time.drawn(moment) for moment in moments]

    assert places == sorted(places)
    assert time.end == places[-1]
    for moment, place in zip(moments, places, strict=True):
        assert time.clock(place) == pytest.approx(moment, rel=1e-6, abs=1e-3)
    assert all(length > till - begin for begin, till, length in time.pauses)


def test_a_night_between_turns_is_drawn_short() -> None:
    timeline = grown(list(many_turns(100).events))

    assert [round(length) for _, _, length in timeline.time.pauses] == [36_000_080]
    assert timeline.time.end < 120_000


def test_more_children_than_rows_beside_each_other_are_drawn_over_one_another() -> None:
    kids = [Where("t1", f"k{n}", 1, 1) for n in range(MOST_BESIDE + 20)]
    timeline = grown([ChildStarted(kid, 0.0, "e1", "s", "fork", 0, (), {}) for kid in kids])

    assert len(timeline.spans) == len(kids)
    assert sum(len(row.spans) for row in timeline.rows) == len(kids)


def test_a_row_is_searched_and_not_walked() -> None:
    timeline = grown(list(many_turns(3_000).events))
    windows = Windows(timeline)
    asked = 0
    place = timeline.time.drawn

    def counted(time: float) -> float:
        nonlocal asked
        asked += 1
        return place(time)

    timeline.time.drawn = counted  # type: ignore[method-assign]
    windows.window(bins=100)
    whole = asked
    asked = 0
    windows.window(1_000.0, 20_000.0, bins=100)

    assert asked < whole < 100 * 12 * len(timeline.rows)


def test_nothing_wanted_is_everything() -> None:
    timeline = grown(list(branches()))

    assert Windows(timeline).window(wanted=WHOLE).matched == len(timeline.spans)
    assert Windows(timeline).lane_of(timeline.spans[-1], Wanted(frozenset({"hook"}))) is None


def test_a_wait_in_the_queue_is_beside_the_turn_that_was_waited_for() -> None:
    second = Where("t1", "e2", 2)
    timeline = grown(
        [
            TurnStarted(TURN, 0.0, "u1", 0, 1, "Hi"),
            TurnCompleted(TURN, 100.0, "u1", "success", 100.0, "", 0, 0, 0.0, 0, 0),
            TurnStarted(second, 101.0, "u2", 1, 2, "And?", waited_ms=61.0),
            TurnCompleted(second, 150.0, "u2", "success", 49.0, "", 0, 0, 0.0, 0, 0),
        ]
    )

    wait = next(span for span in timeline.spans if span.kind == "wait")
    assert (wait.start_ms, wait.end_ms, wait.duration_ms, wait.status) == (40.0, 101.0, 61.0, "waited")
    assert [[span.name for span in row.spans] for row in timeline.rows] == [["turn 1", "turn 2"], ["queue for turn 2"]]
    assert timeline.waited_ms == 0.0
    assert_rows_are_sound(timeline)


def test_a_compaction_is_a_moment_with_its_sizes() -> None:
    event = ContextCompacted(TURN, 40.0, "codex", tokens_before=31_900, tokens_after=2_735)
    timeline = grown([TurnStarted(TURN, 0.0, "u1", 0, 1, "Hi"), event])
    (span,) = [span for span in timeline.spans if span.kind == "compaction"]

    assert (span.name, span.status, span.duration_ms, span.severity) == ("codex", "31,900 → 2,735 tokens", None, 0)
    assert span.parent is not None
    assert span.parent.kind == "turn"
    assert timeline.counts["compaction"] == 1
