"""Additions of the predicates to release mode, and the correctness of their explanations."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from noetic_nb.regulator import (
    CallBudget,
    CostCap,
    Finding,
    LowConfidence,
    Predicate,
    ProceduralWarning,
    QualityDecline,
    Regulator,
    RepeatedFailure,
    ScopeDrift,
    ToolLoop,
)
from noetic_nb.regulator._measures.topics import Topics
from noetic_nb.regulator._settings import RECOMMENDED_SETTINGS
from noetic_nb.regulator.decisions import (
    CostCapReached,
    LowConfidenceSpans,
    RepeatedFailurePattern,
    RepeatedToolCallLoop,
    Span,
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
from noetic_nb.regulator.predicates.explanation import Condition, finding
from tests.regulator.sessions import reason


def regulator_with(*predicates: Predicate, events: Any = ()) -> Regulator:
    regulator = Regulator.for_user("ann").with_predicates(*predicates)
    for event in events:
        regulator.on_event(event)
    return regulator


def poor() -> list[QualityFeedback]:
    return [QualityFeedback(0.2)] * 3


@pytest.mark.parametrize(
    ("cap", "cost", "expected"),
    [
        (CostCap(tokens_out=None, tokens_in=100), Cost(100, 0, 0), CostCapReached(100, 100, 0.2, "tokens_in")),
        (CostCap(tokens_out=None, tokens_in=101), Cost(100, 0, 0), None),
        (CostCap(tokens_out=None, wallclock_ms=50), Cost(0, 0, 60), CostCapReached(60, 50, 0.2, "wallclock_ms")),
        (CostCap(tokens_out=None, usd=0.5), Cost(0, 0, 0, usd=0.5), CostCapReached(0.5, 0.5, 0.2, "usd")),
        (CostCap(tokens_out=None, usd=0.5), Cost(9**6, 9**6, 0), None),
        (CostCap(tokens_out=None), Cost(9**6, 9**6, 9**6), None),
    ],
    ids=str,
)
def test_a_budget_has_any_currency(cap: CostCap, cost: Cost, expected: CostCapReached | None) -> None:
    found = reason(regulator_with(cap, events=[cost, *poor()]))

    if expected is None:
        assert found is None
    else:
        assert (found.tokens_spent, found.tokens_cap, found.currency) == (
            expected.tokens_spent,
            expected.tokens_cap,
            expected.currency,
        )


def test_a_hard_cap_ignores_quality() -> None:
    good = [Cost(0, 10, 0), *[QualityFeedback(1.0)] * 3]

    assert reason(regulator_with(CostCap(tokens_out=10), events=good)) is None
    assert reason(regulator_with(CostCap(tokens_out=10, poor_mean=None), events=good)).tokens_spent == 10


def test_a_cap_may_look_at_the_newest_grade_alone() -> None:
    regulator = regulator_with(CostCap(tokens_out=10, window=1), events=[Cost(0, 10, 0), QualityFeedback(0.9)])
    assert reason(regulator) is None

    regulator.on_event(QualityFeedback(0.25))

    assert reason(regulator) == CostCapReached(10, 10, 0.25)


def calls(*keys: str) -> list[Any]:
    """Parse calls: `a1` is a call of a with arguments 1; `|` is a new turn."""
    return [TurnStart("the") if key == "|" else ToolCall(key[0], key[1:]) for key in keys]


@pytest.mark.parametrize(
    ("loop", "keys", "count"),
    [
        (ToolLoop(3, by="call"), ["a1", "a2", "a3"], None),
        (ToolLoop(3, by="call"), ["b1", "a1", "a1", "a1"], 3),
        (ToolLoop(3, by="call"), ["a1", "a1", "|", "a1"], None),
        (ToolLoop(3, by="call", across_turns=True), ["a1", "a1", "|", "a1"], 3),
        (ToolLoop(3, period=2), ["a1", "b1", "a2", "b2", "a3", "b3"], 3),
        (ToolLoop(3, period=2), ["a1", "b1", "a2", "b2", "a3"], None),
        (ToolLoop(3, period=2), ["a1", "a1", "a1", "a1", "a1", "a1"], None),
        (ToolLoop(2, period=3, by="call"), ["a1", "b1", "c1", "a1", "b1", "c1"], 2),
        (ToolLoop(2, period=3, by="call"), ["a1", "b1", "c1", "a1", "b2", "c1"], None),
        (ToolLoop(2, period=3), ["a1", "a1", "b1", "a1", "a1", "b1"], 2),
    ],
    ids=str,
)
def test_loops_by_call_in_cycles_and_across_turns(loop: ToolLoop, keys: list[str], count: int | None) -> None:
    found = reason(regulator_with(loop, events=calls(*keys)))

    assert found == (None if count is None else RepeatedToolCallLoop(keys[-1][0], count))


def results(*keys: str) -> list[Any]:
    """Parse outcomes: `a1!x` fails with error x, `a1` succeeds."""
    events: list[Any] = []
    for key in keys:
        call, _, error = key.partition("!")
        events += [ToolCall(call[0], call[1:]), ToolResult(call[0], not error, 1, error or None)]
    return events


@pytest.mark.parametrize(
    ("keys", "fires"),
    [
        (["a1!x", "a2!x", "a3!x"], True),
        (["a1!x", "a2!y", "a3!x"], False),
        (["a1", "a2", "a3"], False),
        (["a1", "a1", "a1"], True),
        (["a1!x", "b1!x", "a1!x"], False),
    ],
    ids=str,
)
def test_loops_by_result_need_the_same_ending(keys: list[str], fires: bool) -> None:
    found = reason(regulator_with(ToolLoop(3, by="result"), events=results(*keys)))

    assert (found == RepeatedToolCallLoop("a", 3)) is fires


def test_parallel_results_meet_their_calls_in_order() -> None:
    regulator = regulator_with(
        events=[
            *(ToolCall("a", "1"), ToolCall("b", "2"), ToolCall("a", "3")),
            *(ToolResult("a", True, 1), ToolResult("b", True, 1), ToolResult("a", False, 1), ToolResult("c", True, 1)),
        ]
    )

    outcomes = regulator.evidence.outcomes(across_turns=False)

    assert [(outcome.tool_name, outcome.args_json) for outcome in outcomes] == [
        ("a", "1"),
        ("b", "2"),
        ("a", "3"),
        ("c", None),
    ]


def test_repeated_failure_counts_per_topic_since_the_last_success() -> None:
    failed = ToolResult("a", False, 1, "x")
    regulator = regulator_with(RepeatedFailure(3), events=[TurnStart("async auth"), failed, ToolResult("a", True, 1)])
    for event in (failed, failed, TurnStart("other topic"), failed, TurnStart("auth async")):
        regulator.on_event(event)
    assert reason(regulator) is None

    regulator.on_event(failed)

    assert reason(regulator) == RepeatedFailurePattern("async+auth", 3)
    assert reason(regulator.with_predicates(RepeatedFailure(3, across_turns=False))) is None


def test_low_confidence_spans_point_into_the_reply() -> None:
    logprobs = [-0.1, -6.0, -5.0, -0.2, -7.0, 0.0, -6.0, -6.0]
    tokens = [
        Token(text, logprob, i)
        for i, (text, logprob) in enumerate(
            zip(["It", "may", "rain", "é", "on", "Monday", "or"], logprobs, strict=False)
        )
    ]

    decision = regulator_with(LowConfidence(threshold=0.4, min_tokens=2), events=tokens).decide()

    assert decision == LowConfidenceSpans((Span(2, 9, pytest.approx(0.25), -5.5),))
    single = regulator_with(LowConfidence(threshold=0.4, min_tokens=1), events=tokens).decide()
    assert isinstance(single, LowConfidenceSpans)
    assert [(span.start_char, span.end_char) for span in single.spans] == [(2, 9), (10, 12), (18, 20)]


def test_very_long_replies_keep_their_positions_but_not_all_tokens() -> None:
    regulator = regulator_with(LowConfidence(), events=[Token("ab", -0.1, i) for i in range(20_000)])

    regulator.on_event(Token("xy", -9.0, 20_000))
    regulator.on_event(Token("z", -9.0, 20_001))

    decision = regulator.decide()
    assert isinstance(decision, LowConfidenceSpans)
    assert decision.spans == (Span(40_000, 40_003, 0.0, -9.0),)
    assert len(regulator.evidence.streamed()[1]) < 17_000
    assert regulator.logprob_coverage() == 1.0


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: CostCap(tokens_out=-1), ValueError),
        (lambda: CostCap(tokens_out=1.5), TypeError),  # type: ignore[arg-type]
        (lambda: CostCap(usd=math.nan), ValueError),
        (lambda: CostCap(poor_mean=2), ValueError),
        (lambda: CostCap(window=0), ValueError),
        (lambda: QualityDecline(window=1), ValueError),
        (lambda: QualityDecline(window=21), ValueError),
        (lambda: QualityDecline(min_delta=math.inf), ValueError),
        (lambda: QualityDecline(poor_mean="x"), TypeError),  # type: ignore[arg-type]
        (lambda: ToolLoop(1), ValueError),
        (lambda: ToolLoop(by="args"), ValueError),  # type: ignore[arg-type]
        (lambda: ToolLoop(period=4), ValueError),
        (lambda: ToolLoop(across_turns=1), TypeError),  # type: ignore[arg-type]
        (lambda: ScopeDrift(threshold=1.01), ValueError),
        (lambda: ScopeDrift(threshold=math.nan), ValueError),
        (lambda: ScopeDrift(scorer=5), TypeError),  # type: ignore[arg-type]
        (lambda: ProceduralWarning(0), ValueError),
        (lambda: LowConfidence(min_tokens=0), ValueError),
        (lambda: LowConfidence(threshold=True), TypeError),
        (lambda: RepeatedFailure(0), ValueError),
        (lambda: CallBudget(-1), ValueError),
        (lambda: CallBudget(2.5), TypeError),  # type: ignore[arg-type]
        (lambda: CallBudget(per_tool=[("a", 1)]), TypeError),  # type: ignore[arg-type]
        (lambda: CallBudget(per_tool={"a": -1}), ValueError),
        (lambda: CallBudget(per_tool={"a": True}), TypeError),
        (lambda: CallBudget(per_tool={1: 1}), TypeError),  # type: ignore[dict-item]
        (lambda: ScopeDrift(min_words=-1), ValueError),
        (lambda: ScopeDrift(min_earlier=0.5), TypeError),  # type: ignore[arg-type]
        (lambda: Regulator.for_user("u").with_predicates("x"), TypeError),  # type: ignore[arg-type]
    ],
)
def test_thresholds_out_of_range_are_refused(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


# Explanations

grades = st.lists(st.integers(0, 20).map(lambda value: value / 20), max_size=6)
some_events = st.lists(
    st.one_of(
        st.builds(TurnStart, st.sampled_from(["alpha beta", "gamma delta", "the"])),
        st.builds(TurnComplete, st.sampled_from(["alpha beta", "alpha gamma", "delta omega pi", ""])),
        st.builds(Cost, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), usd=st.none() | st.just(0.5)),
        st.builds(QualityFeedback, st.integers(0, 20).map(lambda value: value / 20)),
        st.builds(UserCorrection, st.just("c"), st.just(True)),
        st.builds(ToolCall, st.sampled_from("ab"), st.sampled_from(["1", "2"])),
        st.builds(ToolResult, st.sampled_from("ab"), st.booleans(), st.just(1)),
        st.builds(Token, st.just("word"), st.sampled_from([-0.1, -5.0, -9.0, 0.0]), st.just(0)),
    ),
    max_size=25,
)
EVERY_PREDICATE: tuple[Predicate, ...] = (
    CallBudget(total=4),
    CallBudget(per_tool={"a": 2, "b": 1}),
    CostCap(tokens_out=20, tokens_in=25, usd=2.0, wallclock_ms=30),
    QualityDecline(),
    ToolLoop(threshold=3),
    ToolLoop(threshold=2, by="call", period=2, across_turns=True),
    ToolLoop(threshold=3, by="result"),
    RepeatedFailure(threshold=2),
    ScopeDrift(),
    ScopeDrift(threshold=0.1, min_words=2, min_earlier=1, min_tool_texts=1, min_drift_tokens=1),
    ProceduralWarning(),
    LowConfidence(),
)


@given(some_events)
def test_an_explanation_agrees_with_the_decision_it_explains(events: list[Any]) -> None:
    regulator = regulator_with(*EVERY_PREDICATE, events=events)

    explanation = regulator.explain()

    assert explanation.decision == regulator.decide()
    assert [found.decision for found in explanation.findings if found.holds] == list(regulator.decide_all())
    winner = explanation.deciding
    for place, found in enumerate(explanation.findings):
        assert found.holds == (found.decision is not None)
        every = all(condition.holds for condition in found.conditions)
        either = not found.any_of or any(condition.holds for condition in found.any_of)
        assert found.holds == (every and either)
        assert (found.distance == 0) == found.holds
        before = [other for other in explanation.findings[:place] if other.holds]
        assert found.masked_by == (winner.predicate if winner is not None and before and found.holds else None)
    assert len({found.predicate for found in explanation.findings}) == len(explanation.findings)
    assert [row["predicate"] for row in explanation.rows()] == [found.predicate for found in explanation.findings]
    assert len(repr(explanation).splitlines()) == 2 + len(explanation.findings)


def test_of_several_loops_a_finding_says_which() -> None:
    regulator = regulator_with(*RECOMMENDED_SETTINGS.predicates, events=[ToolCall("search", "{}")] * 3)

    explanation = regulator.explain()

    assert explanation.deciding is not None
    assert explanation.deciding.predicate == "tool_loop(by=call, across_turns)"
    assert [found.predicate for found in explanation.findings[2:7]] == [
        "call_budget",
        "tool_loop(by=call, across_turns)",
        "tool_loop(by=call, period=2, across_turns)",
        "tool_loop(by=call, period=3, across_turns)",
        "tool_loop(by=result, across_turns)",
    ]
    assert [name for name in explanation.thresholds if name == explanation.deciding.predicate]


def test_thresholds_windows_and_least_counts_are_read_off_the_settings() -> None:
    regulator = Regulator.for_user("ann").with_cost_cap(7).with_scope_drift_threshold(0.7)

    assert regulator.thresholds == {
        "cost_cap": {"tokens_out": 7, "window": 3, "poor_mean": 0.5},
        "quality_decline": {"window": 3, "min_delta": 0.15, "poor_mean": 0.5},
        "tool_loop": {"threshold": 5, "period": 1},
        "scope_drift": {"threshold": 0.7},
        "procedural_warning": {"min_corrections": 3},
    }
    assert regulator.explain().thresholds == regulator.thresholds


def test_thresholds_of_ones_own_predicate_are_its_numbers() -> None:
    @dataclass(frozen=True)
    class PerTool:
        kind = "per_tool"
        limits: dict[str, int]
        share: float = math.inf
        strict: bool = True

        def check(self, evidence: Any) -> None:
            return None

        def explain(self, evidence: Any) -> Finding:
            return finding("other", None, [Condition("calls<b>", 1, ">=", 2)], [])

    class Stated:
        kind, name, thresholds = "stated", "mine", {"most": 4, "text": "x"}
        check, explain = PerTool.check, PerTool.explain

    regulator = regulator_with(PerTool({"search": 3}), Stated())

    assert regulator.thresholds == {"per_tool": {"limits.search": 3}, "mine": {"most": 4}}
    assert [found.predicate for found in regulator.explain().findings] == ["per_tool", "mine"]
    assert "calls&lt;b&gt; 1 &gt;= 2 (no)" in regulator.explain().to_html()
    assert json.dumps(regulator.explain().rows())


def test_an_undefined_input_has_no_distance() -> None:
    (found,) = regulator_with(ScopeDrift()).explain().findings

    assert (found.distance, found.inputs, found.thresholds) == (None, {"drift_score": None}, {"drift_score": 0.5})
    assert found.notes


def test_least_numbers_of_drift_are_thresholds_only_where_there_are_any() -> None:
    assert ScopeDrift().thresholds == {"threshold": 0.5}
    assert ScopeDrift(min_earlier=1, min_words=20).thresholds == {"threshold": 0.5, "min_words": 20, "min_earlier": 1}


@given(st.text(st.characters(max_codepoint=127)))
@example("ALPHA/beta\x1cGamma\x0bdelta")
def test_topics_of_a_plain_text_are_those_of_one_with_other_letters_behind_it(text: str) -> None:
    ruled = Topics(limit=1_000)

    assert ruled(text) == ruled(f"{text}\u00a0\u00a0")  # non-ASCII white space


def only(regulator: Regulator) -> Finding:
    (found,) = regulator.explain().findings
    return found


def change(found: Finding, name: str) -> Any:
    return next((item for item in found.changes if item.field == name), None)


@given(st.lists(st.integers(0, 20).map(lambda value: value / 20), min_size=3, max_size=3))
def test_the_least_better_grade_is_that_of_brute_force(qualities: list[float]) -> None:
    def fires(last: float) -> bool:
        events = map(QualityFeedback, [*qualities[:2], last])
        return reason(regulator_with(QualityDecline(), events=events)) is not None

    found = change(only(regulator_with(QualityDecline(), events=map(QualityFeedback, qualities))), "newest_quality")

    if fires(qualities[2]):
        assert not fires(found.after)
        assert fires(math.nextafter(found.after, 0))
        tried = [step / 1000 for step in range(1001) if step / 1000 >= qualities[2]]
        brute = next(value for value in tried if not fires(value))
        assert brute - 0.001 <= found.after <= brute
    else:
        assert found is None


@given(grades, st.integers(0, 12))
def test_the_least_cap_is_that_of_brute_force(qualities: list[float], spent: int) -> None:
    events = [Cost(0, spent, 0), *map(QualityFeedback, qualities)]
    fires = lambda cap: reason(regulator_with(CostCap(tokens_out=cap), events=events)) is not None  # noqa: E731

    found = change(only(regulator_with(CostCap(tokens_out=6), events=events)), "tokens_out")

    brute = next((cap for cap in range(6, 20) if not fires(cap)), None)
    assert (found is None and brute == 6) or found.after == brute


@given(st.sets(st.sampled_from(["alpha", "beta", "gamma", "delta", "omega"]), min_size=1))
def test_the_least_words_to_anchor_are_those_of_brute_force(response: set[str]) -> None:
    task = "alpha zeta"

    def fires(task: str) -> bool:
        reply = TurnComplete(" ".join(response))
        return regulator_with(ScopeDrift(), events=[TurnStart(task), reply]).decide().kind == "scope_drift_warn"

    regulator = regulator_with(ScopeDrift(), events=[TurnStart(task), TurnComplete(" ".join(response))])
    found = change(only(regulator), "drift_tokens")
    if not fires(task):
        assert found is None
        return
    strays = sorted(response - {"alpha"})
    brute = next(
        len(anchored)
        for size in range(len(strays) + 1)
        for anchored in itertools.combinations(strays, size)
        if not fires(" ".join([task, *anchored]))
    )
    assert found.before - found.after == brute


@given(st.text("ab", max_size=9), st.integers(2, 4))
def test_the_least_repetitions_to_drop_are_those_of_brute_force(sequence: str, threshold: int) -> None:
    fires = lambda names: reason(regulator_with(ToolLoop(threshold), events=map(ToolCall, names))) is not None  # noqa: E731
    found = change(only(regulator_with(ToolLoop(threshold), events=map(ToolCall, sequence))), "repetitions")

    if fires(sequence):
        brute = next(dropped for dropped in range(len(sequence) + 1) if not fires(sequence[: len(sequence) - dropped]))
        assert found.before - found.after == brute
    else:
        assert found is None


@pytest.mark.parametrize("predicate", EVERY_PREDICATE, ids=lambda predicate: predicate.kind)
@given(events=some_events)
def test_every_change_of_a_threshold_unfires(predicate: Predicate, events: list[Any]) -> None:
    from dataclasses import replace

    regulator = regulator_with(predicate, events=events)

    for item in only(regulator).changes:
        if item.is_threshold:
            name, _, inside = item.field.partition(".")
            before = getattr(predicate, name)
            value: Any = int(item.after) if isinstance(before, int) and name != "threshold" else item.after
            if inside:
                value = {**before, inside: int(item.after)}
            moved = replace(predicate, **{name: value})  # type: ignore[type-var]
            assert moved.check(regulator.evidence) is None


def test_a_missing_price_is_noted() -> None:
    regulator = regulator_with(CostCap(usd=1.0), events=[Cost(1, 1, 1), Cost(1, 1, 1, usd=0.1)])

    assert only(regulator).notes == ("1 costs had no price and count as nothing.",)
    assert only(regulator).inputs["usd"] == 0.1


def test_a_token_cap_stops_whatever_the_grades_and_a_cost_cap_only_where_they_are_poor() -> None:
    spent, good = Cost(0, 20, 0), [QualityFeedback(0.9)] * 3
    for regulator, grades, breaks in (
        (Regulator.for_user("ann").with_token_cap(20), [], True),
        (Regulator.for_user("ann").with_token_cap(20), good, True),
        (Regulator.for_user("ann").with_token_cap(21), poor(), False),
        (Regulator.for_user("ann").with_cost_cap(20), [], False),
        (Regulator.for_user("ann").with_cost_cap(20), good, False),
        (Regulator.for_user("ann").with_cost_cap(20), poor(), True),
    ):
        for event in (spent, *grades):
            regulator.on_event(event)
        assert (regulator.decide().kind == "circuit_break") is breaks


def test_a_token_cap_replaces_an_earlier_one_and_leaves_other_caps() -> None:
    money = CostCap(tokens_out=None, usd=1.0, poor_mean=None)
    regulator = Regulator.for_user("ann").with_predicates(money, CostCap()).with_token_cap(5).with_token_cap(7)

    assert regulator.predicates == (CostCap(tokens_out=7, poor_mean=None), money, CostCap())
    assert regulator.cost_cap_tokens() == 7
