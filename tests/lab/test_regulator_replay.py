"""Replaying a recorded run through a regulator: its observations, decisions, and where it would have stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import (
    ModelCalled,
    QualityGiven,
    RegulatorDecided,
    RegulatorSaw,
    RunEvent,
    ToolCalled,
    TurnCompleted,
    TurnStarted,
    Where,
)
from noetic_nb.lab import datasets
from noetic_nb.lab._replaying.regulator_readings import first_stop, replay_regulator
from noetic_nb.regulator import Regulator, decisions, events
from noetic_nb.runs import Run, load_run


def told(run: Run) -> list[str]:
    return [str(event.event["kind"]) for event in run.select(RegulatorSaw)]


def asked(run: Run) -> list[tuple[str, str]]:
    return [(event.at, str(event.decision["kind"])) for event in run.select(RegulatorDecided)]


def stops(run: Run) -> list[str]:
    return [event.at for event in run.select(RegulatorDecided) if event.stops]


def turn(
    number: int,
    *,
    text: str = "an answer",
    calls: int = 0,
    grade: float | None = None,
    thread: str = "t1",
    person: str | None = None,
    tokens: int = 100,
    status: Any = "ok",
) -> list[RunEvent]:
    where, now = Where(thread, f"e{number}", number), number * 1_000.0
    made: list[RunEvent] = [TurnStarted(where, now, f"turn{number}", 0, 1, "book the same flight", person)]
    made += [ToolCalled(where, now, "search", f"c{n}", {"day": n}, "none", 1.0, status) for n in range(calls)]
    made += [
        ModelCalled(where, now, 0, "recorded", "agent", 5.0, "ok", (), 50, tokens),
        TurnCompleted(where, now, f"turn{number}", "success", 5.0, text, 50, tokens, 0.0, 1, calls),
    ]
    if grade is not None:
        made.append(QualityGiven(where, now, grade, "person"))
    return made


def run_of(*turns: list[RunEvent]) -> Run:
    return Run("r1", meta={"created_ms": 0.0}, events=[event for one in turns for event in one])


def regulator() -> Regulator:
    return Regulator.for_user("ann")


def test_events_are_observed_in_the_order_of_a_live_turn() -> None:
    replayed = replay_regulator(run_of(turn(1, calls=1, grade=0.5)), regulator())

    assert told(replayed) == ["turn_start", "tool_call", "tool_result", "cost", "turn_complete", "quality_feedback"]
    assert [at for at, _ in asked(replayed)] == ["turn_start", "tool_call", "turn_complete", "quality"]


def test_what_is_observed_carries_what_was_recorded() -> None:
    replayed = replay_regulator(run_of(turn(1, calls=1, grade=0.5)), regulator())
    saw = {event.event["kind"]: event.event for event in replayed.select(RegulatorSaw)}

    assert saw["turn_start"]["user_message"] == "book the same flight"
    assert (saw["tool_call"]["tool_name"], saw["tool_call"]["args_json"]) == ("search", '{"day":0}')
    assert (saw["tool_result"]["success"], saw["tool_result"]["duration_ms"]) == (True, 1)
    assert (saw["cost"]["tokens_in"], saw["cost"]["tokens_out"], saw["cost"]["wallclock_ms"]) == (50, 100, 5)
    assert saw["turn_complete"]["full_response"] == "an answer"
    assert saw["quality_feedback"]["quality"] == 0.5


@pytest.mark.parametrize("index", [3, 26, 75, 97])
def test_the_recorded_events_stay_in_their_order(index: int) -> None:
    run = datasets.airline_run(index)

    replayed = replay_regulator(run, regulator())

    assert [e for e in replayed.events if not isinstance(e, RegulatorSaw | RegulatorDecided)] == list(run.events)
    assert run == datasets.airline_run(index)


@pytest.mark.parametrize("index", [14, 26, 83])
def test_every_decision_is_that_of_a_regulator_that_observed_the_same(index: int) -> None:
    replayed, plain = replay_regulator(datasets.airline_run(index), regulator()), regulator()

    for event in replayed.select(RegulatorSaw, RegulatorDecided):
        if isinstance(event, RegulatorSaw):
            plain.on_event(events.from_dict(event.event))
        else:
            assert decisions.from_dict(event.decision) == decisions.from_dict(decisions.to_dict(plain.decide()))
            assert (event.tokens_out, event.confidence) == (plain.total_tokens_out(), plain.confidence())


def test_a_loop_stops_before_its_fifth_call_runs() -> None:
    replayed = replay_regulator(datasets.airline_run(26), regulator())

    stop = first_stop(replayed)

    assert stop is not None
    reason = {"kind": "repeated_tool_call_loop", "tool_name": "get_reservation_details", "consecutive_count": 5}
    assert (stop.turn, stop.decision["reason"]) == (4, reason)
    assert stop.suggestion == stop.decision["suggestion"] != ""
    assert replayed.events[stop.position].decision == stop.decision  # type: ignore[union-attr]
    before = [e for e in replayed.events[: stop.position] if isinstance(e, ToolCalled) and e.where.turn == 4]
    assert [call.name for call in before][-4:] == ["get_reservation_details"] * 4


@pytest.mark.parametrize(
    ("index", "is_stopped"), [(26, True), (80, True), (15, True), (83, True), (3, False), (4, False)]
)
def test_runs_with_loops_are_stopped_and_others_are_not(index: int, is_stopped: bool) -> None:
    assert (first_stop(replay_regulator(datasets.airline_run(index), regulator())) is not None) == is_stopped


def test_stopping_cuts_the_turn_and_what_came_after_it() -> None:
    run = run_of(turn(1), turn(2, calls=8), turn(3))

    replayed = replay_regulator(run, regulator(), stop=True)

    last = replayed.turns[-1]
    assert len(replayed.turns) == 2
    assert (last.outcome, last.text) == ("aborted", first_stop(replayed).suggestion)  # type: ignore[union-attr]
    assert last.stopped["reason"]["consecutive_count"] == 5  # type: ignore[index]
    assert len(last.tool_calls) == 4
    assert isinstance(replayed.events[-1], TurnCompleted)
    assert list(replayed.to_frame("turns")["stopped"]) == [None, "circuit_break"]


def test_stopping_one_thread_leaves_the_others_alone() -> None:
    run = run_of(turn(1, calls=8), turn(1, thread="t2"), turn(2), turn(2, thread="t2"))

    replayed = replay_regulator(run, regulator(), stop=True)

    assert [(t.where.thread_id, t.outcome) for t in replayed.turns] == [
        ("t1", "aborted"),
        ("t2", "success"),
        ("t2", "success"),
    ]


def test_without_stopping_the_run_goes_on_and_breaks_are_marked() -> None:
    replayed = replay_regulator(run_of(turn(1, calls=6)), regulator())

    assert stops(replayed) == ["tool_call", "tool_call", "turn_complete"]
    assert replayed.turns[0].outcome == "success"


def falling() -> Run:
    return run_of(turn(1, grade=0.6), turn(2, grade=0.4), turn(3, grade=0.2), turn(4))


def test_a_break_at_a_late_grade_stops_the_next_turn_at_its_start() -> None:
    replayed = replay_regulator(falling(), regulator(), stop=True)

    assert asked(replayed)[-2:] == [("quality", "circuit_break"), ("turn_start", "circuit_break")]
    assert stops(replayed) == ["turn_start"]
    assert first_stop(replayed).turn == 4  # type: ignore[union-attr]
    assert replayed.turns[-1].model_calls == ()


def test_a_better_grade_does_not_undo_a_break_before_the_next_turn() -> None:
    run = run_of(turn(1, grade=0.6), turn(2, grade=0.4), turn(3, grade=0.2))
    run.append(QualityGiven(Where("t1", "e3", 3), 3_500.0, 1.0, "person"))
    for event in (*turn(4), *turn(5)):
        run.append(event)

    replayed = replay_regulator(run, regulator())

    breaks = [(at, kind == "circuit_break") for at, kind in asked(replayed)]
    assert breaks[-5:] == [
        ("quality", False),
        ("turn_start", True),
        ("turn_complete", False),
        ("turn_start", False),
        ("turn_complete", False),
    ]


def test_the_suggestion_of_an_earlier_regulator_is_not_observed_as_a_reply() -> None:
    run = replay_regulator(run_of(turn(1, calls=6)), regulator(), stop=True)

    replayed = replay_regulator(run, regulator().with_predicates())

    assert run.turns[0].text != ""
    assert "turn_complete" not in told(replayed)


def test_a_break_at_the_last_grade_stops_nothing() -> None:
    replayed = replay_regulator(run_of(*[turn(n, grade=q) for n, q in ((1, 0.6), (2, 0.4), (3, 0.2))]), regulator())

    assert asked(replayed)[-1] == ("quality", "circuit_break")
    assert first_stop(replayed) is None


def test_a_grader_judges_inside_the_turn_and_takes_the_place_of_recorded_grades() -> None:
    grades = {"a": 0.6, "b": 0.4, "c": 0.2}
    run = run_of(*[turn(n, text=text, grade=1.0) for n, text in enumerate(grades, 1)])

    replayed = replay_regulator(run, regulator(), grader=grades.get, stop=True)

    assert [e.event["quality"] for e in replayed.select(RegulatorSaw) if e.event["kind"] == "quality_feedback"] == [
        0.6,
        0.4,
        0.2,
    ]
    assert stops(replayed) == ["quality_feedback"]
    assert (replayed.turns[2].outcome, replayed.turns[2].qualities) == ("aborted", (0.2,))


def test_a_grader_written_for_a_live_reply_works_as_it_is() -> None:
    seen: list[tuple[str, str, str]] = []

    def grader(reply: Any) -> float:
        seen.append((reply.text, reply.query, reply.thread_id))
        return len(reply) / 100

    replayed = replay_regulator(run_of(turn(1)), regulator(), grader=grader)

    assert seen == [("an answer", "book the same flight", "t1")]
    assert replayed.turns[0].qualities == (0.09,)


def test_an_asynchronous_grader_is_refused() -> None:
    async def grader(reply: str) -> float:
        return 0.5

    with pytest.raises(NoeticConfigError, match="plain function"):
        replay_regulator(run_of(turn(1)), regulator(), grader=grader)  # type: ignore[arg-type]


def test_a_grader_may_have_no_opinion() -> None:
    replayed = replay_regulator(run_of(turn(1)), regulator(), grader=lambda text: None)

    assert "quality_feedback" not in told(replayed)


@pytest.mark.parametrize("grade", ["good", True, float("nan"), [0.5]])
def test_a_grade_that_is_no_number_is_refused(grade: Any) -> None:
    with pytest.raises(NoeticConfigError, match="INVALID_GRADE"):
        replay_regulator(run_of(turn(1)), regulator(), grader=lambda text: grade)


def test_the_cost_cap_counts_recorded_tokens() -> None:
    run = run_of(*[turn(n, grade=0.4, tokens=400) for n in (1, 2, 3)], turn(4))

    replayed = replay_regulator(run, regulator().with_cost_cap(1_000))

    stop = first_stop(replayed)
    assert stop is not None
    assert (stop.turn, stop.decision["reason"]["kind"]) == (4, "cost_cap_reached")
    frame = replayed.to_frame("decisions")
    assert list(frame["cost_cap"].unique()) == [1_000.0]
    assert frame["tokens_out"].iloc[-1] == 1_300


@pytest.mark.parametrize("status", ["denied", "guided", "invalid_args", "unknown"])
def test_calls_that_never_ran_are_left_out(status: str) -> None:
    replayed = replay_regulator(run_of(turn(1, calls=8, status=status)), regulator())

    assert "tool_call" not in told(replayed)
    assert first_stop(replayed) is None


def test_a_failed_call_is_observed_as_a_failure() -> None:
    replayed = replay_regulator(run_of(turn(1, calls=1, status="error")), regulator())

    (result,) = [e.event for e in replayed.select(RegulatorSaw) if e.event["kind"] == "tool_result"]
    assert result["success"] is False


def test_calls_of_judges_and_failed_calls_cost_the_task_nothing() -> None:
    run = run_of(turn(1))
    call = run.select(ModelCalled)[0]
    run.append(replace(call, purpose="judge"))
    run.append(replace(call, status="error"))

    assert told(replay_regulator(run, regulator())).count("cost") == 1


def test_logprobs_are_observed_and_shape_the_confidence() -> None:
    where = Where("t1", "e1", 1)
    run = run_of(turn(1)[:1])
    run.append(ModelCalled(where, 0.0, 0, "m", "agent", 0.0, "ok", logprobs=(("sure", -0.1), ("ly", -0.2))))
    run.append(TurnCompleted(where, 0.0, "turn1", "success", 0.0, "surely", 0, 0, 0.0, 1, 0))
    plain = regulator()
    for event in (
        events.TurnStart("book the same flight"),
        events.Token("sure", -0.1, 0),
        events.Token("ly", -0.2, 1),
        events.TurnComplete("surely"),
    ):
        plain.on_event(event)

    replayed = replay_regulator(run, regulator())

    assert replayed.select(RegulatorDecided)[-1].confidence == plain.confidence()


def test_a_turn_without_a_reply_completes_nothing() -> None:
    replayed = replay_regulator(run_of(turn(1, text="")), regulator())

    assert "turn_complete" not in told(replayed)


def correction(text: str, thread: str = "t1") -> RegulatorSaw:
    event = events.to_dict(events.UserCorrection(text, True))
    return RegulatorSaw(Where(thread, "e1", 1), 1_500.0, "old", event)


def test_what_another_regulator_saw_and_decided_is_replaced_except_corrections() -> None:
    run = replay_regulator(run_of(turn(1, grade=0.5)), regulator(), layer_id="old")
    run.append(correction("no layovers please"))

    replayed = replay_regulator(run, regulator(), layer_id="new")

    assert {event.layer_id for event in replayed.select(RegulatorSaw, RegulatorDecided)} == {"new"}
    assert told(replayed)[-1] == "user_correction"
    assert [at for at, _ in asked(replayed)] == [*[at for at, _ in asked(run)], "correction"]


def test_a_correction_that_is_damaged_is_refused() -> None:
    run = run_of(turn(1))
    run.append(RegulatorSaw(Where("t1", "e1", 1), 1.0, "old", {"kind": "user_correction", "correction_message": 5}))

    with pytest.raises(NoeticError, match="correction"):
        replay_regulator(run, regulator())


def test_threads_have_tasks_of_their_own() -> None:
    run = run_of(turn(1, calls=4), turn(1, calls=4, thread="t2"))

    assert first_stop(replay_regulator(run, regulator())) is None


@pytest.mark.parametrize(("other", "warns"), [("ann", True), ("ben", False)])
def test_corrections_are_shared_by_the_threads_of_one_person(other: str, warns: bool) -> None:
    run = run_of(turn(1, person="ann"))
    for _ in range(3):
        run.append(correction("no layovers"))
    for event in turn(1, thread="t2", person=other):
        run.append(event)

    kinds = [
        e.decision["kind"]
        for e in replay_regulator(run, regulator()).select(RegulatorDecided)
        if e.where.thread_id == "t2"
    ]

    assert ("procedural_warning" in kinds) == warns


def test_the_regulator_that_is_passed_in_learns_nothing() -> None:
    mine = regulator()
    run = run_of(turn(1, calls=6, grade=0.2))
    run.append(correction("no layovers"))
    before = mine.export_json("everything")

    replay_regulator(run, mine)

    assert mine.export_json("everything") == before
    assert mine.total_tokens_out() == 0


@pytest.mark.parametrize(("pause", "warns"), [(1, True), (100, False)])
def test_seconds_between_messages_are_those_of_the_run(pause: int, warns: bool) -> None:
    run = run_of(*[turn(1 + n * pause) for n in range(6)])

    replayed = replay_regulator(run, regulator().with_implicit_correction_window_secs(10.0))

    assert (("turn_start", "procedural_warning") in asked(replayed)) == warns


def test_text_that_is_not_unicode_is_observed_with_replacements() -> None:
    run = run_of([replace(e, query="a\ud800b") if isinstance(e, TurnStarted) else e for e in turn(1)])

    replayed = replay_regulator(run, regulator())

    assert replayed.select(RegulatorSaw)[0].event["user_message"] == "a?b"
    assert replayed.turns[0].query == "a\ud800b"


def test_what_is_no_regulator_is_refused() -> None:
    with pytest.raises(NoeticConfigError, match="INVALID_REGULATOR"):
        replay_regulator(run_of(turn(1)), "strict")  # type: ignore[arg-type]


def test_a_replay_says_what_it_is_and_is_the_same_each_time(tmp_path: Path) -> None:
    run = datasets.airline_run(26)

    replayed = replay_regulator(run, regulator(), stop=True)

    assert replayed.run_id == "airline-26-replay"
    assert replayed.meta["source"] == "replay"
    about = {"of": "airline-26", "stop": True, "graded": False, "layer_id": "regulation"}
    assert about.items() <= replayed.meta["replay"].items()
    assert set(replayed.known_until) == set(run.threads)
    assert replayed.meta["reward"] == 0.0
    assert replay_regulator(run, regulator(), stop=True) == replayed
    assert load_run(replayed.save(tmp_path / "run.jsonl.gz")) == replayed


@given(
    st.lists(st.tuples(st.integers(0, 7), st.none() | st.floats(0, 1), st.sampled_from(["t1", "t2"])), max_size=6),
    st.none() | st.integers(1, 500),
)
def test_cutting_keeps_what_came_before_the_first_stop_of_each_thread(
    shapes: list[tuple[int, float | None, str]], cap: int | None
) -> None:
    run = run_of(*[turn(n, calls=calls, grade=grade, thread=t) for n, (calls, grade, t) in enumerate(shapes, 1)])
    template = regulator() if cap is None else regulator().with_cost_cap(cap)

    whole, cut = replay_regulator(run, template), replay_regulator(run, template, stop=True)

    assert first_stop(whole) == first_stop(cut)
    for thread in run.threads:
        marked = [e for e in whole.events if e.where.thread_id == thread]
        kept = [e for e in cut.events if e.where.thread_id == thread]
        stop = next((n for n, e in enumerate(marked) if isinstance(e, RegulatorDecided) and e.stops), None)
        assert (kept if stop is None else kept[:-1]) == marked[: len(marked) if stop is None else stop + 1]


@pytest.mark.parametrize(
    ("number", "whole"),
    [(7, 7), (2.5, 2), (3.5, 4), (-1.0, 0), (1e30, 2**32 - 1), (float("inf"), 0), (float("nan"), 0)],
)
def test_a_regulator_is_given_whole_numbers_whatever_was_recorded(number: float, whole: int) -> None:
    where = Where("t1", "e1", 1)
    recorded = [
        TurnStarted(where, 0.0, "turn1", 0, 1, "hi", None),
        ModelCalled(where, 0.0, 0, "recorded", "agent", number, "ok", (), number, number),
        TurnCompleted(where, 0.0, "turn1", "success", 5.0, "yes", 5, 5, 0.0, 1, 0),
    ]  # type: ignore[arg-type]
    run = Run(run_id="r")
    for event in recorded:
        run.append(event)

    seen = replay_regulator(run, Regulator.for_user("ann")).select(RegulatorSaw)

    (cost,) = [event.event for event in seen if event.event["kind"] == "cost"]
    assert (cost["tokens_in"], cost["tokens_out"], cost["wallclock_ms"]) == (whole,) * 3


@pytest.mark.parametrize("run", [None, 5, "run.jsonl", [Run("listed")]])
def test_what_is_no_run_is_refused(run: Any) -> None:
    with pytest.raises(NoeticConfigError, match="INVALID_RUN"):
        replay_regulator(run, regulator())


def test_a_grader_that_is_no_function_is_refused() -> None:
    with pytest.raises(NoeticConfigError, match="INVALID_GRADE"):
        replay_regulator(Run("empty"), regulator(), grader=0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("known", [{"t1": 3}, {"t1": {"turn": "x", "seq": 1}}, {"t1": {"turn": 1}}])
def test_a_damaged_horizon_is_an_error_of_the_file(known: Any) -> None:
    with pytest.raises(NoeticError, match="horizon"):
        _ = Run("damaged", meta={"replay": {"known_until": known}}).known_until
