"""Recorded runs with other thresholds, log files, spans, scorers."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.regulator import (
    ContextScorer,
    CostCap,
    DriftInput,
    DriftScore,
    ProceduralWarning,
    QualityDecline,
    Regulator,
    ScopeDrift,
    ToolLoop,
    events_from_span,
    record_events,
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
from noetic_nb.regulator.predicates.context_scorer import CONTEXT_SCORER, FEATURES, drift_features
from noetic_nb.regulator.shadow import main, read_log, replay_log, score_statistics

some_events = st.lists(
    st.one_of(
        st.builds(TurnStart, st.sampled_from(["alpha beta", "gamma delta", "the"])),
        st.builds(TurnComplete, st.sampled_from(["alpha beta", "alpha gamma", "delta omega pi", ""])),
        st.builds(Cost, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
        st.builds(QualityFeedback, st.floats(0, 1)),
        st.builds(UserCorrection, st.just("c"), st.just(True)),
        st.builds(ToolCall, st.sampled_from("ab"), st.sampled_from(["1", "2"])),
        st.builds(
            ToolResult, st.sampled_from("ab"), st.booleans(), st.just(1), output=st.sampled_from([None, "alpha"])
        ),
        st.builds(Token, st.just("word"), st.sampled_from([-0.1, -9.0]), st.just(0)),
    ),
    max_size=30,
)


@given(some_events, st.integers(0, 30), st.floats(0, 1), st.integers(2, 6))
def test_a_recording_decides_like_a_regulator_that_had_these_thresholds(
    events: list[Any], cap: int, threshold: float, times: int
) -> None:
    predicates = (
        CostCap(tokens_out=cap),
        QualityDecline(min_delta=threshold / 2),
        ToolLoop(times, across_turns=True),
        ToolLoop(2, by="result"),
        ScopeDrift(threshold=threshold),
        ScopeDrift(scorer=CONTEXT_SCORER, threshold=threshold),
        ProceduralWarning(2),
    )
    live = Regulator.for_user("replay").with_predicates(*predicates)
    expected = []
    for event in events:
        live.on_event(event)
        expected.append(live.decide())

    run = record_events(events, include_tokens=True)

    assert run.decide(predicates) == tuple(expected)
    assert all(run.explain(place, predicates).decision == answer for place, answer in enumerate(expected))


def test_a_recording_scores_a_reply_once_per_scorer() -> None:
    asked: list[DriftInput] = []

    def scorer(given: DriftInput) -> DriftScore | None:
        asked.append(given)
        return DriftScore(0.6, (), ())

    run = record_events([TurnStart("alpha"), TurnComplete("beta"), Cost(1, 1, 1), QualityFeedback(0.9)])
    kinds = [[d.kind for d in run.decide([ScopeDrift(scorer=scorer, threshold=t)])] for t in (0.5, 0.6, 0.7)]

    assert len(asked) == 1
    assert kinds[0] == kinds[1] == ["continue", *["scope_drift_warn"] * 3]
    assert kinds[2] == ["continue"] * 4


def test_tokens_show_in_the_next_reading_unless_asked_for() -> None:
    events = [TurnStart("a"), Token("x", -1.0, 0), Token("y", -1.0, 1), TurnComplete("xy")]

    assert [(r.event_index, len(r.tokens)) for r in record_events(events).readings] == [(0, 0), (3, 2)]
    assert len(record_events(events, include_tokens=True).readings) == 4


def test_a_scorer_sees_earlier_turns_and_tool_outputs() -> None:
    seen: list[DriftInput] = []

    def scorer(given: DriftInput) -> DriftScore | None:
        seen.append(DriftInput(given.task, given.response, tuple(given.earlier), tuple(given.tool_texts)))
        return None

    regulator = Regulator.for_user("u").with_predicates(ScopeDrift(scorer=scorer))
    for event in (
        TurnStart("first"),
        TurnComplete("reply"),
        TurnStart("second"),
        ToolCall("search", '{"q": 1}'),
        ToolResult("search", True, 1, output="found it"),
        ToolResult("search", False, 1, "timeout"),
        TurnComplete("answer"),
    ):
        regulator.on_event(event)
    regulator.decide()
    regulator.decide_all()

    assert seen == [DriftInput("second", "answer", ("first", "reply"), ('{"q": 1}', "found it", "timeout"))]


# The context scorer

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)


@given(st.builds(DriftInput, texts, texts, st.lists(texts, max_size=3), st.lists(texts, max_size=3)))
def test_the_context_scorer_stays_within_bounds_on_any_text(given_input: DriftInput) -> None:
    features = drift_features(given_input)
    found = CONTEXT_SCORER(given_input)

    assert tuple(features) == FEATURES
    assert found is None or 0 <= found.score <= 1


def test_known_details_lower_the_context_score() -> None:
    unknown = DriftInput("Please cancel my flight.", "Flight HAT136 is cancelled.")
    known = DriftInput("Please cancel my flight.", "Flight HAT136 is cancelled.", tool_texts=("HAT136",))

    strays = CONTEXT_SCORER(unknown)

    assert strays is not None
    assert strays.drift_tokens == ("hat136",)
    assert CONTEXT_SCORER(known).score < strays.score  # type: ignore[union-attr]


def test_weights_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="weights"):
        ContextScorer(weights=(1.0,))
    with pytest.raises(ValueError, match="weights"):
        ContextScorer(bias=float("nan"))


# Log files


def line(turn: str, place: int, kind: str, **payload: Any) -> str:
    return json.dumps({"turn_id": turn, "event_idx": place, "event_type": kind, "payload": payload, "user_id": "ann"})


LOG = [
    line("t1", 1, "TurnComplete", full_response="alpha gamma"),
    line("t1", 0, "TurnStart", user_message="alpha beta"),
    "",
    "not json",
    line("t1", 2, "Cost", tokens_in=1, tokens_out=2, wallclock_ms=3),
    line("t1", 3, "Unknown"),
    line("t2", 0, "TurnStart", user_message="async auth"),
    line("t2", 1, "TurnComplete", full_response="async auth"),
    line("t2", 2, "Cost", tokens_in=-1, tokens_out=2, wallclock_ms=3),
    *(line("t3", i, "ToolCall", tool_name="a") for i in range(5)),
    '{"turn_id": 5, "event_idx": 0, "event_type": "TurnStart"}',
    "[]",
]


def test_a_log_is_replayed_turn_by_turn_with_fresh_regulators() -> None:
    skipped: list[int] = []

    rows = list(replay_log(read_log(LOG, lambda number, why: skipped.append(number)), Regulator.for_user))

    assert skipped == [4, 6, 9, 15, 16]
    assert [row["decision_kind"] for row in rows[:-1]] == [
        "Continue",
        "ScopeDriftWarn",
        "ScopeDriftWarn",
        *["Continue"] * 6,
        "CircuitBreak",
    ]
    assert rows[1]["decision"]["ScopeDriftWarn"]["drift_score"] == 0.5
    summary = rows[-1]["_summary"]
    assert (summary["turns"], summary["events"]) == (3, 10)
    assert summary["decisions"] == {"CircuitBreak": 1, "Continue": 7, "ScopeDriftWarn": 2}
    assert summary["circuit_break_reasons"] == {"RepeatedToolCallLoop": 1}
    assert (summary["turns_with_scope_drift"], summary["turns_with_circuit_break"]) == (1, 1)
    assert summary["drift_score_stats"]["count"] == 2
    assert summary["drift_score_stats_per_turn"]["count"] == 1
    assert summary["thresholds"]["scope_drift"] == {"threshold": 0.5}


def test_a_log_grouped_by_user_keeps_memory() -> None:
    log = [
        line(f"t{i}", place, kind, **payload)
        for i in range(4)
        for place, (kind, payload) in enumerate(
            [
                ("TurnStart", {"user_message": "async auth"}),
                ("UserCorrection", {"correction_message": "no", "corrects_last": True}),
            ]
        )
    ]

    def skip(number: int, why: str) -> None:
        raise AssertionError(why)

    for group, warned in (("turn", 0), ("user", 2)):
        *_, last = replay_log(read_log(log, skip), Regulator.for_user, group_by=group)
        assert last["_summary"]["turns_with_procedural_warning"] == warned
    with pytest.raises(ValueError, match="group_by"):
        list(replay_log([], Regulator.for_user, group_by="task"))


def test_score_statistics_are_those_of_the_specification() -> None:
    scores = [0.0, 0.25, 0.667, 0.0, 0.0, 0.25, 0.0, 0.0]

    found = score_statistics(scores)

    assert (found["count"], found["min"], found["max"], found["p50"], found["p95"]) == (8, 0.0, 0.667, 0.0, 0.667)
    assert found["mean"] == pytest.approx(sum(scores) / 8)
    assert found["histogram"] == [5, 0, 2, 0, 0, 0, 1, 0, 0, 0]
    assert found["threshold_sweep"] == [
        ["0.3", 1],
        ["0.4", 1],
        ["0.5", 1],
        ["0.6", 1],
        ["0.7", 0],
        ["0.8", 0],
        ["0.9", 0],
    ]


def shadow(*arguments: str, text: str = "\n".join(LOG)) -> tuple[int, list[dict[str, Any]], str]:
    out, problems = io.StringIO(), io.StringIO()
    code = main(arguments, io.StringIO(text), out, problems)
    return code, [json.loads(row) for row in out.getvalue().splitlines()], problems.getvalue()


@pytest.mark.parametrize("from_file", [True, False])
@pytest.mark.parametrize(
    ("options", "rows"), [((), 11), (("--summary-only", "--cost-cap=5", "--scope-threshold=0"), 1)]
)
def test_the_command_line_prints_one_object_per_event(
    tmp_path: Path, options: tuple[str, ...], rows: int, from_file: bool
) -> None:
    log = tmp_path / "events.jsonl"
    log.write_text("\n".join(LOG), encoding="utf-8")

    code, printed, problems = shadow(str(log), *options, text="") if from_file else shadow(*options)

    assert (code, len(printed), problems.count("skipped")) == (0, rows, 5)


def test_the_options_of_the_command_line_reach_the_regulator() -> None:
    spent = "\n".join(
        [line("t", 0, "Cost", tokens_in=1, tokens_out=9, wallclock_ms=1.5)]
        + [line("t", 1 + i, "QualityFeedback", quality=0.1) for i in range(3)]
        + [
            line("u", 0, "TurnStart", user_message="a\u2028b alpha"),
            line("u", 1, "TurnComplete", full_response="alpha"),
        ]
    )

    kinds = [row.get("decision_kind") for row in shadow("--cost-cap=9", "--scope-threshold=0.0", text=spent)[1]]

    assert kinds == [*["Continue"] * 3, "CircuitBreak", "Continue", "ScopeDriftWarn", None]


@pytest.mark.parametrize(
    "option",
    [
        "--scope-threshold=2",
        "--scope-threshold=nan",
        "--scope-threshold=x",
        "--cost-cap=-1",
        "--cost-cap=x",
        "--scope=0.7",
    ],
)
def test_an_option_that_cannot_be_used_is_reported_and_ignored(option: str) -> None:
    code, printed, problems = shadow(option)

    assert (code, printed) == (0, shadow()[1])
    assert "is ignored" in problems


def test_the_command_line_fails_where_its_input_cannot_be_read(tmp_path: Path) -> None:
    assert shadow(str(tmp_path / "missing.jsonl"))[0] == 1


def test_the_module_reads_utf8_from_standard_input_whatever_the_locale() -> None:
    given = line("t", 0, "TurnStart", user_message="naïve café").encode() + b"\r\n\n"
    command = [sys.executable, "-m", "noetic_nb.regulator.shadow", "--summary-only"]

    done = subprocess.run(command, input=given, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    broken = subprocess.run(command, input=b"\xff\n", capture_output=True)

    assert (done.returncode, json.loads(done.stdout)["_summary"]["events"], done.stderr) == (0, 1, b"")
    assert broken.returncode == 1


# Spans


def test_a_lenient_reading_takes_lists_of_attributes_and_any_error() -> None:
    span = {
        "attributes": [{"key": "gen_ai.usage.output_tokens", "value": {"intValue": "9"}}],
        "events": [
            {
                "name": "gen_ai.tool.message",
                "attributes": {"gen_ai.tool.name": "t", "gen_ai.tool.duration_ms": 5, "error.type": {"code": 500}},
            }
        ],
    }

    assert events_from_span(span) == [Cost(0, 9, 0), ToolResult("t", False, 5, '{"code": 500}')]
    assert events_from_span(json.dumps(span), reading="original") == [ToolResult("t", True, 5)]


def test_numbers_above_32_bits_saturate_and_time_is_in_whole_milliseconds() -> None:
    span = {
        "start_time_unix_nano": 1,
        "end_time_unix_nano": 2_999_999,
        "attributes": {"gen_ai.usage.input_tokens": 2**32 + 5, "gen_ai.usage.output_tokens": 1.5, "gen_ai.system": 5},
    }

    assert events_from_span(span) == [Cost(2**32 - 1, 0, 2)]
    assert events_from_span(span | {"end_time_unix_nano": 10**30}) == [Cost(2**32 - 1, 0, 2**32 - 1)]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "attributes": json_values,
            "events": st.lists(
                json_values
                | st.fixed_dictionaries(
                    {
                        "name": st.sampled_from(["gen_ai.tool.message", "gen_ai.user.message"]),
                        "attributes": st.fixed_dictionaries(
                            {},
                            optional={
                                "gen_ai.tool.name": json_values,
                                "gen_ai.tool.arguments": json_values,
                                "gen_ai.tool.duration_ms": json_values,
                                "error.type": json_values,
                                "content": json_values,
                            },
                        ),
                    }
                ),
                max_size=3,
            ),
            "start_time_unix_nano": json_values,
            "end_time_unix_nano": json_values,
        },
    )
)
def test_any_span_is_read_and_its_events_are_accepted(span: dict[str, Any]) -> None:
    for reading in ("original", "lenient"):
        regulator = Regulator.for_user("u")
        events = list(events_from_span(json.dumps(span), reading=reading))  # type: ignore[arg-type]
        for event in events:
            regulator.on_event(event)
        assert list(events_from_span(json.dumps(span), reading=reading)) == events  # type: ignore[arg-type]


def test_a_lone_surrogate_in_a_span_is_refused() -> None:
    span = {"events": [{"name": "gen_ai.user.message", "attributes": {"content": "\ud800"}}]}

    with pytest.raises(ValueError, match="surrogate"):
        events_from_span(json.dumps(span))


@pytest.mark.parametrize("text", ["", "{", "NaN", "[" * 100_000])
def test_a_span_that_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="JSON"):
        events_from_span(text)
    with pytest.raises(ValueError, match="reading"):
        events_from_span("{}", reading="strict")  # type: ignore[arg-type]
