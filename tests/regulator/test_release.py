"""The tables of the specification as tests: cost, quality, tools, confidence, corrections, ordering."""

from __future__ import annotations

import math
from typing import Any

import pytest

from noetic_nb.regulator import Regulator
from noetic_nb.regulator._measures.tool_history import trailing_cycles
from noetic_nb.regulator._measures.topics import RANKED_TOPICS, RELEASE_TOPICS
from noetic_nb.regulator.decisions import (
    CircuitBreak,
    Continue,
    CostCapReached,
    ProceduralWarning,
    QualityDeclineNoRecovery,
    RepeatedToolCallLoop,
    ScopeDriftWarn,
)
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

NAN, INF = math.nan, math.inf


def fed(*events: Any, regulator: Regulator | None = None) -> Regulator:
    regulator = Regulator.for_user("ann") if regulator is None else regulator
    for event in events:
        regulator.on_event(event)
    return regulator


def reason(regulator: Regulator) -> Any:
    decision = regulator.decide()
    assert isinstance(decision, CircuitBreak), decision
    assert len(decision.suggestion) > 20
    return decision.reason


DECLINES = [
    ((0.5, 0.35, 0.2), 0.3),
    ((0.5, 0.4, 0.35), 0.15000000000000002),
    ((0.45, 0.4, 0.3), 0.15000000000000002),
    ((0.40, 0.3, 0.25), 0.15000000000000002),
    ((0.35, 0.3, 0.2), None),
    ((0.9, 0.3, 0.3), None),
    ((0.9, 0.1, 0.49), 0.41000000000000003),
    ((0.6, 0.5, 0.4), None),
    ((0.65, 0.5, 0.34), 0.31),
    ((0.2, 0.2, 0.2), None),
    ((0.7, 0.4, 0.2), 0.49999999999999994),
    ((0.7, 0.4, 0.2, 0.9), None),
    ((7.0, -3.0, 0.0), 1.0),
    ((0.6, NAN, 0.4, INF, 0.2), 0.39999999999999997),
    ((0.5, 0.2), None),
]


@pytest.mark.parametrize(("qualities", "delta"), DECLINES, ids=str)
def test_quality_decline_breaks_as_specified(qualities: tuple[float, ...], delta: float | None) -> None:
    regulator = fed(*map(QualityFeedback, qualities))

    if delta is None:
        assert regulator.decide() == Continue()
    else:
        assert reason(regulator) == QualityDeclineNoRecovery(3, delta)
        assert reason(regulator).delta == delta


CAPS: list[tuple[int, list[tuple[int, float | None]], CostCapReached | None]] = [
    (1000, [(400, 0.5), (400, 0.35), (200, 0.2)], CostCapReached(1000, 1000, 0.35000000000000003)),
    (1000, [(400, 0.5), (400, 0.36), (199, 0.36)], None),
    (1000, [(400, 0.5), (400, 0.5), (200, 0.5)], None),
    (1000, [(400, 0.5), (400, 0.5), (200, 0.49)], CostCapReached(1000, 1000, 0.49666666666666665)),
    (1000, [(1000, 0.0), (0, 0.0)], None),
    (100, [(1000, None), (1000, None), (1000, None)], None),
    (0, [(0, 0.1), (0, 0.1), (0, 0.1)], CostCapReached(0, 0, 0.10000000000000002)),
    (1000, [(400, 0.5), (400, 0.35), (400, 0.2)], CostCapReached(1200, 1000, 0.35000000000000003)),
    (4294967295, [(4294967295, 0.1), (5, 0.1), (0, 0.1)], CostCapReached(4294967295, 4294967295, 0.10000000000000002)),
]


@pytest.mark.parametrize(("cap", "turns", "expected"), CAPS, ids=str)
def test_the_cost_cap_breaks_as_specified(cap: int, turns: Any, expected: CostCapReached | None) -> None:
    regulator = Regulator.for_user("ann").with_cost_cap(cap)
    for tokens, quality in turns:
        fed(Cost(0, tokens, 0), regulator=regulator)
        if quality is not None:
            fed(QualityFeedback(quality), regulator=regulator)

    if expected is None:
        assert regulator.decide() == Continue()
    else:
        assert reason(regulator) == expected


LOOPS: list[tuple[str, tuple[str, int] | None]] = [
    ("aaaa", None),
    ("aaaaa", ("a", 5)),
    ("aaaaaaaa", ("a", 8)),
    ("aaaabaaaa", None),
    ("abaaaaa", ("a", 5)),
    ("aaaaab", None),
    ("aaaaabb", None),
    ("aaaaabaaaaa", ("a", 5)),
    ("ababababab", None),
    ("aaaaa|", None),
    ("aaa|aaa", None),
    ("aaRaaaR", ("a", 5)),
    ("aaTaPaa", ("a", 5)),
    ("AAAAa", None),
]


@pytest.mark.parametrize(("sequence", "expected"), LOOPS, ids=str)
def test_tool_loops_break_as_specified(sequence: str, expected: tuple[str, int] | None) -> None:
    special = {"R": ToolResult("a", False, 10), "T": Token("t", -0.1, 0), "P": TurnComplete(""), "|": TurnStart("the")}

    regulator = fed(*(special.get(letter, ToolCall(letter)) for letter in sequence))

    if expected is None:
        assert regulator.decide() == Continue()
    else:
        assert reason(regulator) == RepeatedToolCallLoop(*expected)


def test_tool_readings_count_this_turn_only() -> None:
    regulator = fed(
        ToolCall("a"), ToolCall("b"), ToolCall("a"), ToolResult("a", True, 2**63), ToolResult("b", False, 2**63)
    )

    assert (regulator.tool_total_calls(), regulator.tool_counts_by_name()) == (3, {"a": 2, "b": 1})
    assert (regulator.tool_total_duration_ms(), regulator.tool_failure_count()) == (2**64, 1)
    fed(TurnStart("next"), regulator=regulator)
    assert (regulator.tool_total_calls(), regulator.tool_total_duration_ms(), regulator.tool_failure_count()) == (
        0,
        0,
        0,
    )


LOGPROBS: list[tuple[list[float], float, float]] = [
    ([], 0.5, 0.0),
    ([0.0], 0.5, 0.0),
    ([-0.0], 0.5, 0.0),
    ([-INF], 0.5, 0.0),
    ([INF, 1.0], 0.5, 0.0),
    ([-1.0], 1.0, 1.0),
    ([-1e-9], 1.0, 1.0),
    ([-1.0, -2.0, -3.0], 0.8333333333333333, 1.0),
    ([-2.5] * 10, 0.75, 1.0),
    ([-3.3], 0.6166666666666667, 1.0),
    ([-1.2] * 100, 0.9666666666666663, 1.0),
    ([-4.0], 0.5, 1.0),
    ([-5.5, -6.1], 0.2, 1.0),
    ([-7.0], 0.0, 1.0),
    ([-9.0], 0.0, 1.0),
    ([-2.0, 0.0, -4.0, NAN], 0.6666666666666666, 0.5),
    ([-1.0] * 128 + [-6.0] * 128, 0.16666666666666669, 1.0),
    ([-1.0] * 192 + [-6.0] * 64, 0.5833333333333334, 1.0),
    ([-1.0] + [-6.0] * 127, 0.17317708333333331, 1.0),
]


@pytest.mark.parametrize(("logprobs", "confidence", "coverage"), LOGPROBS, ids=lambda value: repr(value)[:40])
def test_confidence_from_logprobs(logprobs: list[float], confidence: float, coverage: float) -> None:
    regulator = fed(*(Token("t", logprob, index) for index, logprob in enumerate(logprobs)))

    assert (regulator.confidence(), regulator.logprob_coverage()) == (confidence, coverage)


@pytest.mark.parametrize(
    ("text", "confidence"),
    [
        ("", 0.5),
        ("?", 0.2),
        ("x" * 39, 0.4),
        ("x" * 40, 0.7),
        ("é" * 40, 0.7),
        ("日" * 40, 0.7),
        ("x" * 39 + "?", 0.4),
        ("x" * 49 + "?", 0.4),
        ("x" * 50 + "?", 0.7),
        ("x" * 98 + "??", 0.4),
        ("x" * 10 + "?", 0.2),
    ],
)
def test_confidence_from_the_shape_of_the_reply(text: str, confidence: float) -> None:
    regulator = fed(TurnComplete(text))

    assert regulator.confidence() == confidence
    fed(Token("t", -1.5, 0), regulator=regulator)
    assert regulator.confidence() == 0.9166666666666667


def test_the_structural_value_ends_with_feedback_and_outlives_a_turn_start() -> None:
    regulator = fed(TurnComplete("x" * 50), TurnStart("next question"))
    assert regulator.confidence() == 0.7

    fed(QualityFeedback(0.5), regulator=regulator)

    assert regulator.confidence() == 0.5


def corrected(*texts: str, regulator: Regulator | None = None) -> Regulator:
    return fed(TurnStart("async auth"), *(UserCorrection(text, True) for text in texts), regulator=regulator)


@pytest.mark.parametrize(
    ("count", "learned", "confidence"),
    [(3, 3, 0.15), (4, 4, 0.2), (10, 10, 0.5), (19, 19, 0.95), (20, 20, 1.0), (21, 20, 1.0), (40, 20, 1.0)],
)
def test_corrections_make_a_pattern(count: int, learned: int, confidence: float) -> None:
    decision = corrected(*(f"c{i}" for i in range(1, count + 1))).decide()

    assert isinstance(decision, ProceduralWarning)
    (pattern,) = decision.patterns
    assert (pattern.learned_from_turns, pattern.confidence, pattern.user_id) == (learned, confidence, "ann")
    assert pattern.example_corrections == (f"c{count}", f"c{count - 1}", f"c{count - 2}")
    assert pattern.pattern_name == "corrections_on_async+auth"


def test_two_corrections_are_not_enough_and_the_warning_follows_the_topic() -> None:
    regulator = corrected("c1", "c2")
    assert regulator.decide() == Continue()

    corrected("c3", regulator=regulator)
    assert regulator.decide().kind == "procedural_warning"
    fed(TurnStart("another topic"), regulator=regulator)
    assert regulator.decide() == Continue()
    fed(TurnStart("auth async"), regulator=regulator)
    assert regulator.decide().kind == "procedural_warning"


def test_corrections_without_a_topic_or_about_nothing_are_dropped() -> None:
    early = fed(UserCorrection("a", True), UserCorrection("b", True), UserCorrection("c", True))
    new_question = fed(TurnStart("async auth"), *[UserCorrection("c", False)] * 5)

    assert early.decide() == new_question.decide() == Continue()


def test_the_prelude_shows_only_while_a_warning_decides() -> None:
    regulator = corrected("one", "two\nlines", "three")

    prelude = regulator.corrections_prelude()

    assert prelude == "User has previously corrected responses on this topic with:\n- three\n- two\nlines\n- one"
    assert regulator.inject_corrections("") == f"{prelude}\n\nCurrent request: "
    assert regulator.inject_corrections("go", header="Before:", label="Now: ").startswith("Before:\n- three")
    fed(TurnComplete("chocolate cake recipe"), regulator=regulator)
    assert isinstance(regulator.decide(), ScopeDriftWarn)
    assert (regulator.corrections_prelude(), regulator.inject_corrections("go")) == (None, "go")


class Seconds:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def quick(window: float = 0.5) -> tuple[Regulator, Seconds]:
    clock = Seconds()
    return Regulator.for_user("ann", clock=clock).with_implicit_correction_window_secs(window), clock


def test_a_quick_message_on_the_same_topic_counts_as_a_correction() -> None:
    regulator, clock = quick()
    fed(TurnStart("async auth"), TurnComplete("weak"), regulator=regulator)
    clock.now += 0.5

    fed(TurnStart("auth async please"), regulator=regulator)

    assert regulator.implicit_corrections_count() == 1
    assert regulator.person.corrections.texts("async+auth") == ("auth async please",)


@pytest.mark.parametrize(("later", "message"), [(0.50001, "auth async"), (0.1, "something else"), (0.1, "the")])
def test_a_late_message_or_another_topic_counts_as_none(later: float, message: str) -> None:
    regulator, clock = quick()
    fed(TurnStart("async auth"), TurnComplete("weak"), regulator=regulator)
    clock.now += later

    fed(TurnStart(message), regulator=regulator)

    assert regulator.implicit_corrections_count() == 0


def test_the_third_quick_retry_already_warns() -> None:
    regulator, _ = quick()
    fed(TurnStart("async auth"), TurnComplete("weak"), *[TurnStart("auth async")] * 3, regulator=regulator)

    assert regulator.decide().kind == "procedural_warning"
    assert regulator.implicit_corrections_count() == 3


def test_a_reply_before_the_window_was_set_starts_no_clock() -> None:
    regulator = fed(TurnStart("async auth"), TurnComplete("weak")).with_implicit_correction_window_secs(9)

    fed(TurnStart("async auth"), regulator=regulator)

    assert regulator.implicit_corrections_count() == 0


def test_decisions_keep_their_locked_priority() -> None:
    warned = [UserCorrection(f"c{i}", True) for i in range(3)]
    regulator = fed(TurnStart("async auth"), *warned)
    seen = [regulator.decide().kind]
    for event in (
        TurnComplete("chocolate cake"),
        *[ToolCall("a")] * 5,
        *map(QualityFeedback, (0.5, 0.3, 0.1)),
        Cost(0, 9, 0),
    ):
        fed(event, regulator=regulator)
        seen.append(getattr(regulator.decide(), "reason", regulator.decide()).kind)
    regulator.with_cost_cap(9)

    assert seen[0] == "procedural_warning"
    assert seen[1] == "scope_drift_warn"
    assert seen[6] == "repeated_tool_call_loop"
    assert seen[9] == "quality_decline_no_recovery"
    assert reason(regulator) == CostCapReached(9, 9, pytest.approx(0.3))
    assert [getattr(decision, "reason", decision).kind for decision in regulator.decide_all()] == [
        "cost_cap_reached",
        "quality_decline_no_recovery",
        "repeated_tool_call_loop",
        "scope_drift_warn",
        "procedural_warning",
    ]


def test_drift_warns_from_half_and_never_without_a_reply() -> None:
    regulator = fed(TurnStart("alpha beta"))
    assert regulator.decide() == Continue()

    fed(TurnComplete("alpha gamma"), regulator=regulator)

    assert regulator.decide() == ScopeDriftWarn(("gamma",), 0.5, ("alpha", "beta"))
    assert regulator.with_scope_drift_threshold(0.51).decide() == Continue()
    assert regulator.with_scope_drift_threshold(0.0).decide().kind == "scope_drift_warn"
    assert fed(TurnComplete("alpha"), regulator=regulator).decide() == ScopeDriftWarn((), 0.0, ("alpha", "beta"))


def test_a_grade_teaches_about_the_topic_of_the_current_message_once() -> None:
    regulator = fed(
        TurnStart("alpha beta"),
        TurnComplete("fine"),
        TurnStart("gamma delta"),
        QualityFeedback(0.9),
        QualityFeedback(0.9),
    )

    learned = regulator.export().learned.response_success

    assert {cluster: rate.count for cluster, rate in learned.items()} == {"delta+gamma": 1}


def test_a_nan_grade_drains_the_reply_without_teaching() -> None:
    regulator = fed(TurnStart("alpha beta"), TurnComplete("fine"), QualityFeedback(NAN), QualityFeedback(0.9))

    assert regulator.export().learned.response_success == {}


def test_the_window_keeps_twenty_grades() -> None:
    regulator = fed(*(QualityFeedback(i / 100) for i in range(25)))

    assert regulator.qualities == tuple(i / 100 for i in range(5, 25))


def test_metrics_are_floats_under_the_names_of_the_original() -> None:
    assert Regulator.for_user("ann").metrics_snapshot() == {
        "noos.confidence": 0.5,
        "noos.logprob_coverage": 0.0,
        "noos.total_tokens_out": 0.0,
        "noos.cost_cap_tokens": 10000.0,
        "noos.tool_total_calls": 0.0,
        "noos.tool_total_duration_ms": 0.0,
        "noos.tool_failure_count": 0.0,
        "noos.implicit_corrections_count": 0.0,
        "noos.scope_drift_threshold": 0.5,
    }


def test_deciding_changes_nothing() -> None:
    regulator = fed(TurnStart("alpha beta"), TurnComplete("gamma delta"))

    assert regulator.decide() == regulator.decide()
    assert regulator.decide() is regulator.decide()


AUDIT = [
    ("refactor this function to be async", "add logging and error handling", True),
    ("explain tokio runtime", "here is a recipe for chocolate cake with frosting", True),
    ("refactor async function", "refactor async function", False),
    ("refactor the async function", "refactored async function returned", False),
    ("tokio async runtime rust", "tokio async runtime rust futures scheduling", False),
    ("jwt token format explain", "jwt token format explain signature", False),
    ("sort the customer list by name", "quarterly revenue grew in europe", True),
    ("translate this letter into french", "kubernetes pods restart after eviction", True),
    ("write unit tests for the parser", "whales migrate across oceans", True),
    ("parse config file", "parsed config file", False),
]


@pytest.mark.parametrize(("preset", "most_errors"), [(Regulator.for_user, 2), (Regulator.newer, 0)])
def test_the_drift_audit_has_few_errors(preset: Any, most_errors: int) -> None:
    found = [fed(TurnStart(task), TurnComplete(reply), regulator=preset("u")).decide() for task, reply, _ in AUDIT]

    errors = sum(
        isinstance(decision, ScopeDriftWarn) != drifts for decision, (_, _, drifts) in zip(found, AUDIT, strict=True)
    )

    assert errors <= most_errors


def test_the_newest_original_files_corrections_under_ranked_topics_and_learns_under_alphabetical_ones() -> None:
    message = "aardvark bison authentication authorization " + " ".join(
        f"middleware{letter}" for letter in "abcdefghijklmnopqr"
    )
    release = fed(TurnStart(message), TurnComplete("fine"), QualityFeedback(0.9))
    newer = fed(TurnStart(message), TurnComplete("fine"), QualityFeedback(0.9), regulator=Regulator.newer("u"))

    assert release.cluster == "aardvark+authentication"
    assert newer.cluster == "authentication+authorization"
    assert list(newer.export().learned.response_success) == ["aardvark+authentication"]


def test_bags_hold_ten_topics_in_release_and_twenty_in_newer_mode() -> None:
    words = [f"topic{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]

    assert RELEASE_TOPICS(" ".join(reversed(words))) == tuple(words[:10])
    assert RANKED_TOPICS(" ".join(reversed(words))) == tuple(words[:20])


@pytest.mark.parametrize(
    ("keys", "period", "count"), [("", 1, 0), ("a", 1, 1), ("ab", 2, 1), ("ba", 3, 0), ("xabab", 2, 2)]
)
def test_cycles_are_counted_from_the_end(keys: str, period: int, count: int) -> None:
    assert trailing_cycles(keys, period) == count
