"""A run grows, is read in several ways, and never changes what it holds."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import QualityGiven, RegulatorSaw, RunEvent, TurnCompleted, TurnStarted
from noetic_nb.runs import Run
from noetic_nb.testing import FakeClock, SeededIds
from tests.runs.factories import EVENTS, conversation, where


def made(turns: int = 2) -> Run:
    return Run("r1", meta={"created_ms": 0.0}, events=conversation(turns))


def test_events_grow_with_the_run_and_slice_to_tuples() -> None:
    run = Run("r1")
    events = run.events

    run.append(QualityGiven(where(), 1.0, 0.5, "person"))

    assert len(events) == 1
    assert events[:1] == (run.events[0],)
    assert events == [run.events[0]]
    assert events != []


def test_meta_says_when_by_what_and_in_which_version() -> None:
    run = Run(clock=FakeClock(5_000), ids=SeededIds(3), meta={"source": "test", "config": {"names": ("a",)}})

    assert run.run_id == "run_3_1"
    assert run.meta["created_ms"] == 5_000
    assert run.meta["schema_version"] == 2
    assert run.meta["library_version"]
    assert run.meta["source"] == "test"
    assert run.meta["config"] == {"names": ["a"]}
    assert run.meta["models"] is None


def test_select_keeps_order_and_takes_several_types() -> None:
    run = made(2)

    found = run.select(TurnStarted, TurnCompleted)

    assert [event.kind for event in found] == ["turn_started", "turn_completed"] * 2
    assert run.select() == tuple(run.events)


def test_select_refuses_what_is_no_event_type() -> None:
    with pytest.raises(NoeticConfigError, match="TurnStarted"):
        made().select(str)


def test_a_turn_summary_gathers_what_happened_in_its_turn() -> None:
    first, second = made(2).turns

    assert (first.where, first.turn_id, first.query, first.text) == (where(1), "turn1", "question 1", "answer 1")
    assert (first.outcome, first.stopped, first.resource_id, first.seq) == ("success", None, "ann", 0)
    assert (first.input_tokens, first.output_tokens, first.cost) == (220, 25, 0.25)
    assert (len(first.views), len(first.model_calls), len(first.tool_calls)) == (1, 2, 1)
    assert (len(first.decisions), len(first.steering), first.qualities) == (1, 1, (0.5,))
    assert second.query == "question 2"


def test_a_running_turn_counts_the_tokens_spent_so_far_and_has_no_outcome() -> None:
    run = Run("r1", events=conversation(1)[:6])

    (turn,) = run.turns

    assert (turn.outcome, turn.text, turn.input_tokens, turn.output_tokens, turn.cost) == (None, "", 100, 10, 0.25)


def test_a_grade_given_outside_any_turn_belongs_to_the_last_turn_of_its_thread() -> None:
    run = made(2)

    run.append(QualityGiven(where(0), 9_000.0, 0.9, "person"))

    assert [turn.qualities for turn in run.turns] == [(0.5,), (0.5, 0.9)]


def test_a_turn_whose_start_was_not_recorded_still_appears() -> None:
    run = Run("r1", events=conversation(1)[4:])

    (turn,) = run.turns

    assert (turn.turn_id, turn.query, turn.text) == ("turn1", "", "answer 1")


def test_a_turn_whose_first_items_were_logged_before_its_start_is_one_turn() -> None:
    started, logged, *rest = conversation(1)

    (turn,) = Run("r1", events=[logged, started, *rest]).turns

    assert (turn.turn_id, turn.query, turn.resource_id, turn.seq) == ("turn1", "question 1", "ann", 1)
    assert turn.outcome == "success"


def saw(quality: float) -> RegulatorSaw:
    return RegulatorSaw(where(), 1.0, "regulation", {"kind": "quality_feedback", "quality": quality})


def test_a_grade_that_was_given_and_told_counts_once() -> None:
    run = Run("r1", events=[QualityGiven(where(), 1.0, 0.5, "person"), saw(0.5), saw(0.25), saw(0.25)])

    assert run.turns[0].qualities == (0.5, 0.25, 0.25)


def test_the_same_turn_number_in_two_threads_is_two_turns() -> None:
    run = Run("r1", events=[*conversation(1), *conversation(1, thread="t2")])

    assert run.threads == ("t1", "t2")
    assert [turn.where.thread_id for turn in run.turns] == ["t1", "t2"]
    assert len(run.turns[0].tool_calls) == 1


@given(st.lists(EVENTS, max_size=12), st.integers(0, 12))
def test_turns_read_on_the_way_equal_turns_read_at_the_end(events: list[RunEvent], pause: int) -> None:
    whole = Run("r1", events=events)
    grown = Run("r1", events=events[:pause])
    grown.turns  # remembered, and must not go stale

    for event in events[pause:]:
        grown.append(event)

    assert grown.turns == whole.turns


def test_runs_are_equal_by_content() -> None:
    run = made()
    changed = run.copy()
    changed.append(QualityGiven(where(), 1.0, 0.5, "person"))

    assert run == made()
    assert run.copy() == run
    assert changed != run
    assert run != Run("r2", meta=run.meta, events=run.events)
    assert run != "r1"


def test_a_copy_shares_nothing_that_changes() -> None:
    run = made()
    twin = run.copy()

    twin.meta["note"] = "mine"
    twin.append(QualityGiven(where(), 1.0, 0.5, "person"))

    assert "note" not in run.meta
    assert len(run.events) == 30


def test_a_run_can_be_sent_to_another_process() -> None:
    run = made()
    run.subscribe(lambda event: None)

    assert pickle.loads(pickle.dumps(run)) == run


def test_repr_is_short() -> None:
    assert repr(made()) == "<Run 'r1': 30 events, 2 turns, 1 thread>"


def test_html_escapes_what_people_and_models_said_and_holds_no_script() -> None:
    events = conversation(1)
    events[0] = replace(events[0], query="<script>alert(1)</script>")  # type: ignore[type-var]
    page = Run("<b>", events=events)._repr_html_()

    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "<b>" not in page


def test_html_names_the_reason_of_a_stop_and_hides_secrets() -> None:
    events = conversation(1)
    stopped = {"kind": "circuit_break", "reason": {"kind": "cost_cap_reached"}, "suggestion": "narrow it"}
    events[0] = replace(events[0], query="my key is sk-abcdefghijklmnopqrstuvwx")  # type: ignore[type-var]
    events[-2] = replace(events[-2], outcome="aborted", stopped=stopped)  # type: ignore[type-var]
    page = Run("r1", events=events)._repr_html_()

    assert "stopped: cost_cap_reached" in page
    assert "sk-abc" not in page


def test_html_of_a_long_run_shows_the_first_hundred_turns_and_says_so() -> None:
    page = made(101)._repr_html_()

    assert page.count("<tr>") == 101
    assert "101 turns, the first 100 of them below" in page


def test_importing_runs_loads_nothing_heavy() -> None:
    code = "import sys, noetic_nb.runs; print(sorted({'pandas', 'numpy', 'matplotlib', 'IPython'} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
