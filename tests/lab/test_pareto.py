"""Rows of a sweep that no other row dominates, and the labels of their values."""

from __future__ import annotations

from math import nan
from typing import Any

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab import pareto
from noetic_nb.lab._sweeping.space import code_of, digest_of, labels_in

FRAME = pandas.DataFrame(
    {"cap": [1, 2, 3, 4], "gain": [1.0, 2.0, 2.0, nan], "loss": [0.1, 0.5, 0.6, 0.0], "word": list("abcd")}
)


def test_a_row_stays_unless_another_is_as_good_and_better_in_one() -> None:
    FRAME.attrs["seed"] = 7
    front = pareto(FRAME, maximise="gain", minimise=["loss"])
    assert front["cap"].tolist() == [1, 2]
    assert front.attrs == {"seed": 7, "left_out": 1}
    equal = pandas.DataFrame({"gain": [1, 1], "loss": [2, 2]})
    assert len(pareto(equal, maximise=("gain",), minimise=("loss",))) == 2


@given(st.lists(st.tuples(*[st.integers(0, 5)] * 3), max_size=20))
def test_the_front_is_what_the_definition_says(rows: list[tuple[int, int, int]]) -> None:
    frame = pandas.DataFrame(rows, columns=["a", "b", "c"], dtype=float)

    def beats(one: Any, other: Any) -> bool:
        gains = [one[0] - other[0], one[1] - other[1], other[2] - one[2]]
        return min(gains) >= 0 and max(gains) > 0

    expected = [at for at, row in enumerate(rows) if not any(beats(other, row) for other in rows)]
    assert pareto(frame, maximise=["a", "b"], minimise="c").index.tolist() == expected


@pytest.mark.parametrize(
    ("frame", "options", "code"),
    [
        ([], {"maximise": "gain"}, "INVALID_FRAME"),
        (FRAME, {}, "INVALID_OBJECTIVES"),
        (FRAME, {"maximise": "gain", "minimise": "gain"}, "INVALID_OBJECTIVES"),
        (FRAME, {"maximise": "word"}, "INVALID_OBJECTIVES"),
        (FRAME, {"maximise": "gian"}, "UNKNOWN_COLUMN"),
    ],
)
def test_what_has_no_front_is_refused(frame: Any, options: dict[str, Any], code: str) -> None:
    with pytest.raises(NoeticConfigError) as refused:
        pareto(frame, **options)
    assert refused.value.code == code


def test_values_that_differ_have_labels_and_digests_of_their_own() -> None:
    assert labels_in([1, 0.5, None, "low", {"facts": 200}]) == [1, 0.5, None, "low", '{"facts":200}']
    assert digest_of("a", 1) == digest_of("a", 1) != digest_of("a", 2)
    assert code_of(lambda run: 1) == code_of(lambda run: 1) != code_of(lambda run: 2)
