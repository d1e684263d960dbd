"""Tasks and persons, strict turns, invalid events, threads."""

from __future__ import annotations

import json
import math
import re
import sys
import threading
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from noetic_nb.regulator import Regulator, ThreadSafeRegulator, decisions, events
from noetic_nb.regulator._state import Person
from noetic_nb.regulator.events import (
    Cost,
    QualityFeedback,
    Token,
    ToolCall,
    ToolResult,
    TurnComplete,
    TurnStart,
    UserCorrection,
)


def feed(regulator: Regulator, *several: Any) -> Regulator:
    for event in several:
        regulator.on_event(event)
    return regulator


def busy() -> Regulator:
    regulator = Regulator.for_user("ann").with_cost_cap(7).with_scope_drift_threshold(0.9)
    return feed(
        regulator,
        TurnStart("async auth"),
        *[UserCorrection(f"c{i}", True) for i in range(4)],
        ToolCall("a"),
        TurnComplete("other words"),
        Cost(1, 9, 3),
        *map(QualityFeedback, (0.5, 0.3, 0.1)),
    )


def test_a_fork_has_the_settings_a_fresh_task_and_a_copy_of_the_memory() -> None:
    template = busy()

    fork = template.fork(user_id="ben")

    assert fork.settings == template.settings
    assert (fork.total_tokens_out(), fork.qualities, fork.tool_total_calls(), fork.cluster) == (0, (), 0, "")
    assert fork.user_id() == "ben"
    assert fork.person.corrections.count("async+auth") == 4
    feed(fork, TurnStart("async auth"), UserCorrection("mine", True), TurnComplete("x"), QualityFeedback(0.9))
    assert template.person.corrections.count("async+auth") == 4
    assert template.export().learned.response_success["async+auth"].count == 1


def test_tasks_that_share_a_person_learn_together() -> None:
    template = Regulator.for_user("template")
    person = Person("ann")
    one, two = template.fork(person=person), template.fork(person=person)
    feed(one, TurnStart("async auth"), UserCorrection("a", True), UserCorrection("b", True))
    feed(two, TurnStart("auth async"))
    assert two.decide().kind == "continue"

    feed(one, UserCorrection("c", True))

    assert two.decide().kind == "procedural_warning"
    assert one.person is two.person is person


def test_a_grade_teaches_about_its_own_tasks_topic_even_if_another_task_spoke_since() -> None:
    template, person = Regulator.for_user("template"), Person("ann")
    one, two = template.fork(person=person), template.fork(person=person)

    feed(one, TurnStart("alpha beta"), TurnComplete("fine"))
    feed(two, TurnStart("gamma delta"))
    feed(one, QualityFeedback(0.9))

    assert list(person.session.learned.response_success) == ["alpha+beta"]


def test_a_template_given_a_person_is_not_fed_by_its_forks() -> None:
    template = Regulator.for_user("template")

    feed(template.fork(person=Person("ann")), TurnStart("async auth"), UserCorrection("a", True))

    assert template.person.corrections.count("async+auth") == 0


def test_reset_task_keeps_settings_and_memory() -> None:
    regulator = busy()
    assert regulator.decide().kind == "circuit_break"

    regulator.reset_task()

    assert regulator.decide().kind == "continue"
    assert (regulator.total_tokens_out(), regulator.qualities, regulator.cost_cap_tokens()) == (0, (), 7)
    assert regulator.person.corrections.count("async+auth") == 4
    regulator.reset_task(keep_corrections=False)
    assert regulator.person.corrections.count("async+auth") == 0


def test_forgetting_in_one_task_shows_in_every_task_of_that_person() -> None:
    template, person = Regulator.for_user("template"), Person("ann")
    one, two = template.fork(person=person), template.fork(person=person)
    feed(one, TurnStart("async auth"), *[UserCorrection(f"c{i}", True) for i in range(3)])
    feed(two, TurnStart("async auth"))
    assert two.decide().kind == "procedural_warning"

    one.reset_task(keep_corrections=False)

    assert two.decide().kind == "continue"


def test_strict_turns_forget_an_ungraded_reply() -> None:
    regulator = Regulator.for_user("ann").with_turns("strict")

    feed(regulator, TurnStart("alpha beta"), TurnComplete("x" * 60), TurnStart("gamma delta"), QualityFeedback(0.9))

    assert regulator.confidence() == 0.5
    assert regulator.export().learned.response_success == {}


def test_strict_turns_keep_confidence_after_feedback_and_clamp_what_is_learned() -> None:
    regulator = Regulator.for_user("ann").with_turns("strict")

    feed(regulator, TurnStart("alpha beta"), TurnComplete("x" * 60), QualityFeedback(math.nan), QualityFeedback(50.0))

    assert regulator.confidence() == 0.7
    assert regulator.export().learned.response_success["alpha+beta"].success_rate == pytest.approx(0.85 * 0.5 + 0.15)
    assert feed(regulator, TurnStart("next topic")).confidence() == 0.5


def test_strict_turns_count_one_text_and_one_retry_once() -> None:
    regulator = (
        Regulator.for_user("ann", clock=lambda: 0.0).with_turns("strict").with_implicit_correction_window_secs(1)
    )

    feed(regulator, TurnStart("alpha beta"), *[UserCorrection("same", True)] * 3)
    assert regulator.person.corrections.texts("alpha+beta") == ("same",)
    feed(regulator, TurnComplete("x"), *[TurnStart("beta alpha")] * 3)

    assert regulator.implicit_corrections_count() == 1


def test_changing_settings_between_events_keeps_the_state() -> None:
    regulator = busy().with_cost_cap(10)

    assert regulator.total_tokens_out() == 9
    assert regulator.decide().reason.kind == "quality_decline_no_recovery"  # type: ignore[union-attr]


# Invalid input

numbers = st.one_of(st.integers(), st.floats(), st.booleans(), st.none(), st.just(10**5000), st.text(max_size=3))
anything = st.one_of(numbers, st.lists(st.integers(), max_size=2), st.just("\ud800"), st.binary(max_size=2))
wild_events = st.one_of(
    st.builds(TurnStart, anything),
    st.builds(Token, anything, anything, anything),
    st.builds(TurnComplete, anything),
    st.builds(Cost, numbers, numbers, numbers, anything, numbers),
    st.builds(QualityFeedback, anything, anything),
    st.builds(UserCorrection, anything, anything),
    st.builds(ToolCall, anything, anything),
    st.builds(ToolResult, anything, anything, numbers, anything, anything),
    anything,
    st.sampled_from([decisions.Continue(), TurnStart]),
)


@given(st.lists(wild_events, max_size=20))
def test_only_type_and_value_errors_escape_and_a_refused_event_changes_nothing(several: list[Any]) -> None:
    regulator = Regulator.recommended("ann")
    for event in several:
        before = observed(regulator)
        try:
            regulator.on_event(event)
        except (TypeError, ValueError):
            assert observed(regulator) == before
    regulator.explain()
    Regulator.from_json(regulator.export_json("everything"))


def observed(regulator: Regulator) -> Any:
    return (
        regulator.decide(),
        regulator.metrics_snapshot(),
        regulator.qualities,
        regulator.total_tokens_in(),
        regulator.tool_counts_by_name(),
        regulator.export_json("everything"),
    )


def pointless(event: Any) -> str:
    """Return the text of an event with whole numbers as on the wire: 0 for 0.0."""
    return re.sub(r"-?(\d)\.0\b", r"\1", repr(event))


@given(wild_events)
@example(Cost(0, 0, 0.0, None, 0))
@example(Cost(0, 0, -0.0))
@example(QualityFeedback(0, []))  # type: ignore[arg-type]
@example(QualityFeedback(0.5, [[1, 2]]))  # type: ignore[arg-type]
@example(Token("a", -1.0, 10**5000))
def test_a_checked_event_survives_both_wire_forms(event: Any) -> None:
    try:
        events.check(event)
    except (TypeError, ValueError):
        return
    for data in (events.to_dict(event), events.to_camel_dict(event)):
        assert pointless(events.from_dict(data)) == pointless(event)


HUGE = 10**5000
"""More digits than Python converts to text, and so than JSON can contain."""


@pytest.mark.parametrize(
    ("event", "error", "message"),
    [
        (
            Token("a", -1.0, HUGE),
            ValueError,
            "index must be at least 0 and at most 18446744073709551615. Given: an integer",
        ),
        (
            Token("a", -1.0, 2**64),
            ValueError,
            "index must be at least 0 and at most 18446744073709551615. Given: an integer",
        ),
        (Token("a", HUGE, 0), ValueError, "logprob is too large for a double"),
        (QualityFeedback(0.5, ((0, HUGE),)), ValueError, "fragment_spans end must be at least 0 and at most"),
        (ToolResult("a", True, HUGE), ValueError, "duration_ms must be at least 0 and at most"),
        (TurnStart(HUGE), TypeError, "user_message must be a string. Given: int with a number of too many digits"),
        (ToolResult("a", HUGE, 0), TypeError, "success must be True or False. Given: int with a number"),
        (HUGE, TypeError, "A regulator only accepts events"),
    ],
    ids=lambda value: "" if isinstance(value, str) else value.__name__ if isinstance(value, type) else "event",
)
def test_a_number_that_json_cannot_write_is_refused_with_the_usual_error(
    event: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        events.check(event)


def test_the_largest_index_survives_json() -> None:
    event = Token("a", -1.0, 2**64 - 1)

    assert events.from_dict(json.loads(json.dumps(events.to_dict(event)))) == event


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ({}, ValueError),
        ({"kind": "unknown"}, ValueError),
        ({"kind": ["token"]}, ValueError),
        ({"kind": "cost", "tokens_in": 1}, ValueError),
        ({"kind": "cost", "tokens_in": 1, "tokens_out": 2, "wallclock_ms": "3"}, TypeError),
        ({"TurnStart": "x"}, TypeError),
        ({"TurnStart": {"user_message": "x"}, "Cost": {}}, ValueError),
        ({1: {}}, ValueError),
        ("TurnStart", TypeError),
        ({"kind": "quality_feedback", "quality": 1, "fragment_spans": [[1]]}, TypeError),
    ],
    ids=str,
)
def test_what_is_no_event_is_refused(data: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        events.from_dict(data)


EVERY_DECISION: list[decisions.Decision] = [
    decisions.Continue(),
    decisions.ScopeDriftWarn(("a",), 0.5, ("b", "c")),
    decisions.CircuitBreak(decisions.CostCapReached(1, 2, 0.3), "s"),
    decisions.CircuitBreak(decisions.CostCapReached(0.5, 0.4, 0.3, "usd"), "s"),
    decisions.CircuitBreak(decisions.QualityDeclineNoRecovery(3, 0.2), "s"),
    decisions.CircuitBreak(decisions.RepeatedToolCallLoop("t", 5), "s"),
    decisions.CircuitBreak(decisions.RepeatedFailurePattern("a+b", 5), "s"),
    decisions.CircuitBreak(decisions.CallBudgetExceeded(None, 21, 20), "s"),
    decisions.CircuitBreak(decisions.CallBudgetExceeded("t", 3, 2), "s"),
    decisions.ProceduralWarning((decisions.CorrectionPattern("u", "c", "n", 3, 0.15, ("x", "y")),)),
    decisions.LowConfidenceSpans((decisions.Span(0, 3, 0.1, -6.0),)),
]


@pytest.mark.parametrize("decision", EVERY_DECISION, ids=repr)
def test_a_decision_survives_both_wire_forms(decision: decisions.Decision) -> None:
    assert decisions.from_dict(decisions.to_dict(decision)) == decision
    assert decisions.from_dict(decisions.to_camel(decision)) == decision


@pytest.mark.parametrize(
    "data",
    ["Unknown", {}, {"kind": "unknown"}, {"kind": "circuit_break", "reason": {"kind": "x"}, "suggestion": ""}, 5],
)
def test_what_is_no_decision_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match=r"decision|kind|reason"):
        decisions.from_dict(data)


@pytest.mark.parametrize("user_id", ["\ud800", "a\udfff"])
def test_a_user_id_is_text(user_id: str) -> None:
    with pytest.raises(ValueError, match="surrogate"):
        Regulator.for_user(user_id)
    with pytest.raises(TypeError, match="user_id"):
        Regulator.for_user(5)  # type: ignore[arg-type]


# Threads


def test_thread_safe_regulators_count_every_event_of_every_thread() -> None:
    shared = ThreadSafeRegulator(Regulator.for_user("ann"))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work() -> None:
        for _ in range(300):
            shared.step(Cost(1, 1, 1))

    threads = [threading.Thread(target=work) for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)

    with shared as regulator:
        assert regulator.total_tokens_out() == 1200
    assert shared.decide() == shared.explain().decision
