"""Learning from usage: finds the factors that produced it, reproducibly, and learns nothing from too few calls."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb import NoeticConfigError
from noetic_nb.items import assistant_message, function_call, function_call_output, input_message
from noetic_nb.lab.datasets import retail, telecom
from noetic_nb.runs import Run
from noetic_nb.runs.token_calibration import token_calibration
from noetic_nb.tokenizers import Factors, Tally, TokenCalibration, as_tokenizer
from noetic_nb.tokenizers._factors import LEAST_CALLS
from noetic_nb.tokenizers._learning import MAX_CALLS, counter_of
from noetic_nb.tokenizers._named import FallbackTokenizer
from noetic_nb.tokenizers._reconciling import as_percent, percent, reconciled
from noetic_nb.tokens import estimate_tokens, known_error

FACTORS = st.floats(0.4, 3.0)


def told(calibration: TokenCalibration, sizes: Sequence[tuple[int, int]], user: float, tool: float) -> None:
    """Observe calls of one conversation: each adds a question and an output, billed by the model with these factors."""
    tally, reported = Tally({"instructions": 300}, 7), 300 + 7
    calibration.observe("m", tally, reported)
    for asked, answered in sizes:
        before = tally, reported
        tally = tally + Tally({"user": asked, "tool": answered}, 10)
        reported += round(user * asked + tool * answered) + 10
        calibration.observe("m", tally, reported, before=before)
    calibration.learn()


@given(seed=st.integers(0, 10_000), calls=st.integers(20, 40), user=FACTORS, tool=FACTORS)
def test_the_factors_that_made_the_usage_are_found(seed: int, calls: int, user: float, tool: float) -> None:
    rng = random.Random(seed)
    calibration = TokenCalibration()
    told(calibration, [(rng.randint(20, 400), rng.randint(20, 2_000)) for _ in range(calls)], user, tool)

    found = calibration.factors("m")

    assert found.of("tool") == pytest.approx(tool, rel=0.05)
    assert found.of("user") == pytest.approx(user, abs=0.2)
    assert found.known_error is not None
    assert found.known_error < 0.05


def test_one_wild_call_in_twenty_teaches_nothing() -> None:
    sizes = [(100 + 7 * n, 500 + 31 * n % 400) for n in range(40)]
    calm, wild = TokenCalibration(), TokenCalibration()
    told(calm, sizes, 0.9, 1.4)
    tally, reported = Tally({"instructions": 300}, 7), 307
    wild.observe("m", tally, reported)
    for n, (asked, answered) in enumerate(sizes):
        before = tally, reported
        tally = tally + Tally({"user": asked, "tool": answered}, 10)
        reported += round(0.9 * asked + 1.4 * answered) + 10 + (3_000 if n % 20 == 5 else 0)
        wild.observe("m", tally, reported, before=before)
    wild.learn()

    for kind in ("user", "tool"):
        assert wild.factors("m").of(kind) == pytest.approx(calm.factors("m").of(kind), rel=0.02)


def test_the_same_calls_give_the_same_factors() -> None:
    one, other = token_calibration(retail(12)), token_calibration(retail(12))

    assert one.factors("gpt-4.1") == other.factors("gpt-4.1")


def test_too_few_calls_are_said_and_change_nothing() -> None:
    calibration = TokenCalibration()
    for _ in range(LEAST_CALLS - 1):
        calibration.observe("m", Tally({"user": 100}, 4), 304)

    counter = calibration.tokenizer("m")

    assert f"{LEAST_CALLS - 1} of {LEAST_CALLS} calls of m seen" in counter.name
    assert counter("x" * 400) == estimate_tokens("x" * 400)
    calibration.observe("m", Tally({"user": 100}, 4), 304)
    assert calibration.tokenizer("m")("x" * 400) == 300
    assert counter("x" * 400) == 100  # an existing counter never changes
    assert "0 of 8 calls of other seen" in calibration.tokenizer("other").name


def test_factors_are_learned_anew_by_doubling() -> None:
    calibration, changes, counter = TokenCalibration(), [], None
    for call in range(1, 65):
        calibration.observe("m", Tally({"user": 100}, 4), 104 + call)
        if call >= LEAST_CALLS and calibration.tokenizer("m") is not counter:
            counter = calibration.tokenizer("m")
            changes.append(call)

    assert changes == [8, 16, 32, 64]


@pytest.mark.parametrize(
    ("reported", "before"), [(0, None), (-4, None), (90, 100)], ids=["missing", "negative", "backwards"]
)
def test_usage_that_cannot_be_teaches_nothing(reported: int, before: int | None) -> None:
    calibration = TokenCalibration()
    tally = Tally({"user": 100}, 4)

    assert calibration.observe("m", tally, reported, before=None if before is None else (tally, before)) is None
    assert calibration.calls("m") == 0


def test_only_the_newest_calls_are_kept() -> None:
    calibration = TokenCalibration()
    for _ in range(MAX_CALLS):
        calibration.observe("m", Tally({"user": 100}, 4), 304)
    for _ in range(MAX_CALLS):
        calibration.observe("m", Tally({"user": 100}, 4), 104)

    assert calibration.calls("m") == 2 * MAX_CALLS
    assert calibration.factors("m").of("user") == pytest.approx(1.0, abs=0.01)


def test_a_saved_calibration_goes_on_as_if_it_had_never_been_saved(tmp_path: Path) -> None:
    def teach(calibration: TokenCalibration, first: int, stop: int) -> None:
        before = None
        for at in range(first, stop):
            tally = Tally({"user": 10 + 7 * (at % 5), "tool": 30 * (at % 7)}, 4)
            reported = 4 + 2 * tally.counts["user"] + tally.counts["tool"] + at % 3
            calibration.observe("m", tally, reported, before=before if at % 2 else None)
            before = tally, reported

    never, once = TokenCalibration(), TokenCalibration()
    teach(never, 0, 12)
    teach(once, 0, 12)
    again = TokenCalibration.load(once.save(tmp_path / "counts.json"))

    assert again.tokenizer("m").name == never.tokenizer("m").name
    assert again.factors("m") == never.factors("m")
    teach(never, 12, 20)
    teach(again, 12, 20)
    assert again.factors("m").calls == 16
    assert again.factors("m") == never.factors("m")


def test_a_saved_calibration_on_top_of_ones_own_function_needs_it(tmp_path: Path) -> None:
    calibration = TokenCalibration(len)
    told(calibration, [(10 * n, 7 * n) for n in range(1, 12)], 2.0, 1.5)
    path = calibration.save(tmp_path / "counts.json")

    assert TokenCalibration.load(path, base=len).factors("m") == calibration.factors("m")
    for base in (None, estimate_tokens):
        with pytest.raises(NoeticConfigError, match="learned on top of"):
            TokenCalibration.load(path, base=base)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"form": "other"}, "the form is"),
        ({"base": 3}, "learned on top of 3"),
        ({"models": {"m": {}}}, "observed"),
        ({"models": {"m": {"seen": -1, "observed": [], **Factors().as_data()}}}, "whole number"),
        ({"models": {"m": {"seen": 8, "observed": [], **Factors().as_data(), "others": 99}}}, "a factor must be from"),
        ({"models": {"m": {"seen": 8, "observed": [], **Factors().as_data(), "knownError": -1}}}, "known error"),
        ({"models": {"m": {"seen": 8, "observed": [[{"user": 1.5}, 4, 9, None]], **Factors().as_data()}}}, "1.5"),
        (None, "JSONDecodeError"),
    ],
    ids=["form", "base", "nothing", "seen", "factor", "error", "count", "no-json"],
)
def test_a_file_that_is_no_calibration_is_refused(tmp_path: Path, change: dict[str, Any] | None, words: str) -> None:
    path = TokenCalibration().save(tmp_path / "counts.json")
    known = json.loads(path.read_text(encoding="utf-8"))
    path.write_text("{" if change is None else json.dumps(known | change), encoding="utf-8")

    with pytest.raises(NoeticConfigError, match=words) as caught:
        TokenCalibration.load(path)
    assert caught.value.code == "INVALID_CALIBRATION"


def test_an_item_is_its_text_and_what_is_around_it() -> None:
    counter = TokenCalibration().tokenizer("gpt-4.1")

    items = [
        input_message("x" * 40),
        assistant_message("x" * 8),
        function_call("go", "{}", "c"),
        function_call_output("c", "x" * 20),
    ]
    assert [counter.count_item(item) for item in items] == [10 + 4, 2 + 4, 1 + 10, 5 + 6]
    assert [counter.count_content(item) for item in items] == [10, 2, 1, 5]
    tally = counter.tally(items, instructions="x" * 100)
    assert tally == Tally({"user": 10, "assistant": 2, "call": 1, "tool": 5, "instructions": 25}, 24 + 7)


def test_learned_on_some_tasks_it_counts_others_better() -> None:
    runs = [run for run in retail() if run.meta["model"] == "gpt-4.1"]
    learned = token_calibration(runs[::2]).tokenizer("gpt-4.1")
    fresh = TokenCalibration().tokenizer("gpt-4.1")

    def error(counter: nn.tokenizers.CalibratedTokenizer, some: list[Run]) -> float:
        from noetic_nb.runs.token_calibration import counted_calls

        calls = [call for run in some for call in counted_calls(run, TokenCalibration()) if call.before]
        grown = [(sum(map(counter.count_item, c.new)), c.reported - c.before[1]) for c in calls if c.before]
        return abs(sum(count for count, _ in grown) / sum(true for _, true in grown) - 1)

    assert error(learned, runs[1::2]) < 0.03 < 0.12 < error(fresh, runs[1::2])


def test_runs_without_usage_teach_nothing_and_what_is_no_run_is_refused() -> None:
    assert token_calibration([]).models == ()
    assert token_calibration(telecom(1)[0]).models == ("gpt-4.1",)
    with pytest.raises(NoeticConfigError, match="needs runs"):
        token_calibration([3])  # type: ignore[list-item]


def test_a_counter_that_fails_is_replaced_by_the_estimate() -> None:
    def broken(text: str) -> int:
        raise RuntimeError("no vocabulary")

    counter = as_tokenizer(broken)

    assert isinstance(counter, FallbackTokenizer)
    assert (counter.fault, known_error(counter)) == (None, None)
    assert counter("eight ch") == 2
    assert counter.fault == "RuntimeError: no vocabulary"
    assert known_error(counter) == known_error(estimate_tokens)


@pytest.mark.parametrize("answer", [-1, float("nan"), float("inf"), None, True, "4"])
def test_an_answer_that_is_no_count_is_replaced_by_the_estimate(answer: object) -> None:
    counter = FallbackTokenizer(lambda text: answer)  # type: ignore[arg-type,return-value]

    assert (counter("eight ch"), counter.fault) == (2, f"it answered {answer!r}")


def test_a_counter_is_made_again_from_its_record() -> None:
    learned = TokenCalibration().tokenizer("m")

    assert counter_of(learned.recorded).name == learned.name


def test_reported_tokens_that_cannot_be_are_named() -> None:
    assert (reconciled(90, 100).unexplained, reconciled(90, 100).problem) == (10, None)
    assert [reconciled(90, tokens, before=95).problem for tokens in (0, -5, 60, 200)] == [
        "missing",
        "negative",
        "backwards",
        "disagrees",
    ]


def test_errors_are_said_in_two_digits() -> None:
    assert (percent(0.034), percent(None)) == ("known error 3.4 %", "error not measured")
    assert [as_percent(share) for share in (0.034, 1.875, 12.0)] == ["3.4 %", "188 %", "1,200 %"]
