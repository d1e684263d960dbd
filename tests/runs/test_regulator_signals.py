"""The reading behind the trends: every grade once, a single token count, decisions listed once per turn."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.events import ModelCalled, QualityGiven, RegulatorDecided, RegulatorSaw, Where
from noetic_nb.runs._regulation.regulator_signals import Signals
from noetic_nb.runs._regulation.thread_signals import rolling_mean
from tests.runs.factories import signals_of as read
from tests.widgets.scenes import demo_run, two_threads_run

T1 = Where("t1", "e1", 1)


def saw(kind: str, where: Where = T1, layer: str = "regulation", **fields: Any) -> RegulatorSaw:
    return RegulatorSaw(where, 0.0, layer, {"kind": kind, **fields})


def decided(decision: dict[str, Any], **fields: Any) -> RegulatorDecided:
    return RegulatorDecided(T1, 0.0, "regulation", "tool_call", decision, **fields)


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=8),
    st.booleans(),
)
def test_a_grade_from_two_sources_counts_once(qualities: list[float], seen_first: bool) -> None:
    events: list[Any] = []
    for quality in qualities:
        pair = [QualityGiven(T1, 0.0, quality, "user"), saw("quality_feedback", quality=quality)]
        events += reversed(pair) if seen_first else pair

    assert read(*events).qualities == qualities


def test_a_grade_only_the_regulator_saw_counts_too() -> None:
    thread = read(
        saw("quality_feedback", quality=0.9), QualityGiven(T1, 0.0, 0.2, "user"), saw("quality_feedback", quality=0.2)
    )

    assert thread.qualities == [0.9, 0.2]


def test_a_grade_outside_any_turn_belongs_to_the_last_turn() -> None:
    thread = read(*demo_run().events, QualityGiven(Where("t1", "e", 0), 9.0, 0.75, "user"))

    assert thread.turns[-1].turn == 6
    assert thread.turns[-1].qualities == (0.28, 0.75)


def test_grades_that_are_no_numbers_are_dropped_as_the_regulator_does() -> None:
    assert read(saw("quality_feedback", quality=float("nan")), saw("quality_feedback", quality="1")).qualities == []


@given(st.lists(st.floats(0, 1), max_size=10))
def test_rolling_mean_is_undefined_below_three_grades_and_stays_in_range(qualities: list[float]) -> None:
    mean = rolling_mean(qualities, 3)

    if len(qualities) < 3:
        assert mean is None
    else:
        assert mean is not None
        assert min(qualities[-3:]) - 1e-9 <= mean <= max(qualities[-3:]) + 1e-9


CONTINUE = {"kind": "continue"}


def given(*qualities: float) -> list[QualityGiven]:
    return [QualityGiven(T1, 0.0, quality, "user") for quality in qualities]


def test_what_counts_as_poor_is_read_off_the_decisions() -> None:
    cap = {"tokens_out": 9, "window": 2, "poor_mean": 0.3}
    decline = {"window": 4, "min_delta": 0.2, "poor_mean": 0.61}

    only_cap = read(decided(CONTINUE, thresholds={"cost_cap": cap}), *given(0.9, 0.5, 0.4, 0.3))
    both = read(decided(CONTINUE, thresholds={"cost_cap": cap, "quality_decline": decline}), *given(0.9, 0.5, 0.4, 0.3))

    assert (only_cap.poor, only_cap.window, only_cap.turns[0].mean) == (0.3, 2, 0.35)
    assert (both.poor, both.window, both.turns[0].mean) == (0.61, 4, 0.525)


def test_thresholds_that_come_after_the_grades_count_too() -> None:
    signals = Signals()
    for event in given(0.6, 0.5, 0.1):
        signals.take(event)

    changed = signals.take(decided(CONTINUE, thresholds={"quality_decline": {"window": 3, "poor_mean": 0.5}}))

    assert changed is not None
    assert (changed[0].poor, changed[1].mean) == (0.5, 0.4)


@pytest.mark.parametrize(
    "thresholds",
    [
        {},
        {"quality_decline": "[redacted]"},
        {"quality_decline": {"window": 3}},
        {"cost_cap": {"tokens_out": 5, "window": 3}},
        {"quality_decline": {"window": 0, "poor_mean": 0.5}},
        {"quality_decline": {"window": 3.0, "poor_mean": 0.5}},
        {"quality_decline": {"window": 3, "poor_mean": float("nan")}},
        {"quality_decline": {"window": 3, "poor_mean": 7}},
    ],
    ids=str,
)
def test_a_recording_without_a_threshold_of_quality_has_none(thresholds: dict[str, Any]) -> None:
    thread = read(*given(0.9, 0.5, 0.4), decided(CONTINUE, cost_cap=9.0, thresholds=thresholds), *given(0.1, 0.1))

    assert (thread.poor, thread.window, [turn.mean for turn in thread.turns]) == (None, None, [None])
    assert (thread.cap, thread.qualities) == (9.0, [0.9, 0.5, 0.4, 0.1, 0.1])


def test_a_second_regulators_thresholds_are_not_mixed_in() -> None:
    first = {"quality_decline": {"window": 3, "poor_mean": 0.5}}
    other = RegulatorDecided(
        T1, 0.0, "other", "quality", CONTINUE, cost_cap=5.0, thresholds={"cost_cap": {"window": 2, "poor_mean": 0.9}}
    )

    thread = read(decided(CONTINUE, cost_cap=9.0, thresholds=first), other)

    assert (thread.poor, thread.window, thread.cap) == (0.5, 3, 9.0)


@pytest.mark.parametrize(
    ("reason", "detail"),
    [
        ({"tokens_spent": 1200, "tokens_cap": 1000}, "1,200 of 1,000 output tokens. "),
        ({"tokens_spent": 0.256, "tokens_cap": 0.25, "currency": "usd"}, "0.256 of 0.25 USD. "),
        ({"tokens_spent": 61_000, "tokens_cap": 60_000, "currency": "wallclock_ms"}, "61,000 of 60,000 ms. "),
        ({"tokens_spent": 9, "tokens_cap": 8, "currency": "tokens_in"}, "9 of 8 input tokens. "),
    ],
)
def test_a_cap_is_in_the_currency_it_was_reached_in(reason: dict[str, Any], detail: str) -> None:
    stop = {"kind": "circuit_break", "reason": {"kind": "cost_cap_reached", **reason}}

    assert read(decided(stop, suggestion="Stop.")).turns[0].marks[0].detail == f"{detail}Stop."


def called(tokens: int, where: Where = T1) -> ModelCalled:
    return ModelCalled(where, 0.0, 0, "m", "agent", 1.0, "ok", output_tokens=tokens)


def test_tokens_are_the_regulators_count_where_there_is_one_and_the_models_otherwise() -> None:
    assert read(called(10), called(5)).spent == 15
    assert read(called(10), saw("cost", tokens_out=10), called(5), saw("cost", tokens_out=5)).spent == 15
    assert (
        read(called(10), saw("cost", tokens_out=10), decided({"kind": "continue"}, tokens_out=40, cost_cap=99.0)).spent
        == 40
    )


def test_a_second_regulator_does_not_count_the_same_tokens_again() -> None:
    assert read(saw("cost", tokens_out=7), saw("cost", layer="other", tokens_out=7)).spent == 7


def test_one_decision_made_several_times_in_a_turn_is_listed_once() -> None:
    drift = {"kind": "scope_drift_warn", "drift_tokens": ["a"], "drift_score": 0.6, "task_tokens": []}

    marks = read(decided(drift), decided({"kind": "continue"}), decided(drift)).turns[0].marks

    assert [(mark.label, mark.detail, mark.times) for mark in marks] == [
        ("scope drift", "a not in the task, drift 0.60", 2)
    ]


@pytest.mark.parametrize(
    ("decision", "label", "detail"),
    [
        (
            {
                "kind": "circuit_break",
                "reason": {"kind": "repeated_tool_call_loop", "tool_name": "s", "consecutive_count": 5},
            },
            "circuit break: tool loop",
            "s called 5 times. Try another way.",
        ),
        (
            {"kind": "circuit_break", "reason": {"kind": "quality_decline_no_recovery", "turns": 3, "mean_delta": 0.4}},
            "circuit break: quality decline",
            "Fell by 0.40. Try another way.",
        ),
        ({"kind": "scope_drift_warn", "drift_score": "no number"}, "scope drift", "Try another way."),
        ({"kind": "unknown_kind", "reason": 3}, "unknown_kind", "Try another way."),
        ({}, "None", "Try another way."),
    ],
)
def test_decisions_are_put_in_words_even_when_malformed(decision: dict[str, Any], label: str, detail: str) -> None:
    mark = read(decided(decision, suggestion="Try another way.")).turns[0].marks[0]

    assert (mark.label, mark.detail) == (label, detail)


def test_threads_are_kept_apart_and_can_be_chosen() -> None:
    signals, only = Signals(), Signals(thread_id="t2")
    for event in two_threads_run().events:
        signals.take(event)
        only.take(event)

    assert {name: thread.qualities for name, thread in signals.threads.items()} == {"t1": [0.9], "t2": [0.3]}
    assert list(only.threads) == ["t2"]


def test_a_grade_of_the_whole_conversation_is_that_of_no_turn() -> None:
    thread = read(*given(0.75), QualityGiven(Where("t1", "e2", 2), 0.0, 0.0, "reward"))

    assert [turn.qualities for turn in thread.turns] == [(0.75,), ()]
    assert (thread.qualities, thread.reward) == ([0.75], 0.0)
