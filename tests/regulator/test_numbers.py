"""Numbers from data frames and clocks are accepted, counted and written as plain ones."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from noetic_nb.regulator import Regulator, events
from noetic_nb.regulator._measures.confidence import confidence_of_nll, mean_nll, structural_confidence, usable_logprob
from noetic_nb.regulator._measures.corrections import CorrectionStore, inject, pattern_of, prelude
from noetic_nb.regulator._measures.topics import any_of, is_letter, trimmed
from noetic_nb.regulator.events import Cost, QualityFeedback, Token, ToolCall, ToolResult, TurnStart, UserCorrection

FRAME = pd.DataFrame({"tokens_in": [12], "tokens_out": [34], "ms": [2.5], "quality": [0.25], "ok": [False]})
FROM_FRAME: tuple[tuple[Any, Any], ...] = (
    (
        Cost(FRAME.tokens_in[0], FRAME.tokens_out.sum(), FRAME.ms[0], usd=np.float32(0.5)),
        Cost(12, 34, 2, usd=0.5),
    ),
    (QualityFeedback(FRAME.quality[0], ((np.int64(1), np.uint8(2)),)), QualityFeedback(0.25, ((1, 2),))),
    (QualityFeedback(Fraction(1, 4)), QualityFeedback(0.25)),
    (QualityFeedback(np.float16(0.5)), QualityFeedback(0.5)),
    (Token("a", np.float32(-0.5), np.int32(3)), Token("a", -0.5, 3)),
    (ToolResult("t", FRAME.ok[0], np.float64(3.5)), ToolResult("t", False, 4)),
    (UserCorrection("x", np.bool_(True)), UserCorrection("x", True)),
)


@pytest.mark.parametrize(("given", "meant"), FROM_FRAME, ids=lambda event: event.kind)
def test_numbers_of_a_data_frame_count_and_are_written_like_plain_ones(given: Any, meant: Any) -> None:
    usual, framed = Regulator.for_user("ann"), Regulator.for_user("ann")
    for regulator, event in ((usual, meant), (framed, given)):
        for fed in (TurnStart("alpha beta"), ToolCall("t"), event):
            regulator.on_event(fed)

    assert json.dumps(events.to_dict(given)) == json.dumps(events.to_dict(meant))
    assert json.dumps(events.to_camel_dict(given)) == json.dumps(events.to_camel_dict(meant))
    assert events.from_dict(events.to_dict(given)) == meant
    assert framed.explain() == usual.explain()
    assert framed.metrics_snapshot() == usual.metrics_snapshot()
    assert framed.export_json("everything") == usual.export_json("everything")
    for total in (framed.total_tokens_in(), framed.total_wallclock_ms(), framed.tool_total_duration_ms()):
        assert type(total) is int
    assert all(type(quality) is float for quality in framed.qualities)


@pytest.mark.parametrize(("given", "written"), [(0.5, 0), (1.5, 2), (2.5, 2), (2.51, 3), (7.0, 7)])
def test_durations_are_rounded_half_to_even(given: float, written: int) -> None:
    assert events.to_dict(Cost(1, 2, given))["wallclock_ms"] == written
    assert events.to_dict(ToolResult("t", True, given))["duration_ms"] == written
    assert type(events.to_dict(Cost(1, 2, given))["wallclock_ms"]) is int


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (Cost(1.0, 2, 3), TypeError),
        (Cost(np.float64(1), 2, 3), TypeError),
        (Cost(1, 2, Decimal(3)), TypeError),
        (Cost(1, 2, "3"), TypeError),
        (Cost(1, 2, 1j), TypeError),
        (Cost(1, 2, math.nan), ValueError),
        (Cost(1, 2, math.inf), ValueError),
        (Cost(1, 2, -0.6), ValueError),
        (Cost(1, 2, 2.0**32), ValueError),
        (ToolResult("t", True, 2.0**64), ValueError),
        (ToolResult("t", 1, 3), TypeError),
        (ToolResult("t", np.int64(1), 3), TypeError),
        (Cost(np.int64(-1), 2, 3), ValueError),
        (QualityFeedback(Decimal("0.5")), TypeError),
        (QualityFeedback(pd.NA), TypeError),
        (QualityFeedback(np.array(0.5)), TypeError),
        (Token("a", Decimal(-1), 0), TypeError),
    ],
    ids=repr,
)
def test_what_is_no_such_number_is_refused_and_changes_nothing(event: Any, error: type[Exception]) -> None:
    regulator = Regulator.for_user("ann")
    before = regulator.metrics_snapshot()

    for refuse in (regulator.on_event, events.check, events.to_dict):
        with pytest.raises(error):
            refuse(event)

    assert (regulator.metrics_snapshot(), regulator.qualities) == (before, ())


def test_a_plain_event_is_passed_on_as_it_is() -> None:
    for event in (Cost(1, 2, 3), QualityFeedback(1, ((1, 2),)), Token("a", -1.0, 0), ToolResult("t", True, 5)):
        assert events.plain(event) is event


def test_confidence_is_read_from_reported_logprobs_or_guessed_from_the_text() -> None:
    assert [usable_logprob(given) for given in (-0.1, 0.0, -math.inf)] == [True, False, False]
    assert (mean_nll([-1.0, -3.0]), confidence_of_nll(2.0), confidence_of_nll(9.0)) == (2.0, 0.8333333333333333, 0.0)
    assert [structural_confidence(text) for text in ("x" * 40, "x" * 39, "?")] == [0.7, 0.4, 0.2]


def test_words_are_trimmed_and_found_whole_or_at_their_start() -> None:
    assert [is_letter(char) for char in ("\u00e9", "\u093f", "-")] == [True, True, False]
    assert trimmed('--"foo-bar"--') == "foo-bar"
    assert re.search(any_of(["fail"], whole=False), "it failed")
    assert not re.search(any_of(["fail"], whole=True), "it failed")


def test_the_newest_three_corrections_are_the_examples_of_a_pattern() -> None:
    store = CorrectionStore()
    for text in ("one", "two", "three", "four"):
        store.add("async+auth", text)

    pattern = store.pattern("ann", "async+auth")

    assert pattern is not None
    assert pattern.example_corrections == ("four", "three", "two")
    assert pattern_of("ann", "a+b", ["one", "two"], 3) is None
    assert prelude([pattern], header="Before:") == "Before:\n- four\n- three\n- two"
    assert inject("Before:\n- new", "go") == "Before:\n- new\n\nCurrent request: go"
    assert inject(None, "go") == "go"
