"""A turn's summary matches its events, whenever it is read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.events import QualityGiven, RegulatorSaw, RunEvent
from noetic_nb.runs import Run
from tests.runs.factories import EVENTS, conversation, where


def test_a_turn_summary_gathers_what_happened_in_its_turn() -> None:
    first, second = Run(events=conversation(2)).turns

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
    run = Run(events=conversation(2))

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
