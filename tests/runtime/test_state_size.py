"""The estimated bytes of recorded states are close to the interpreter's figures, for any contents and size."""

from __future__ import annotations

from sys import getsizeof
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.runtime._threads import state_history as state_size
from noetic_nb.runtime._threads.state_history import size_of

DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=40,
)


def bytes_of(value: Any) -> int:
    """Add up the interpreter's size of every value."""
    inside = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list | tuple) else []
    return getsizeof(value) + sum(map(bytes_of, inside))


@given(DATA)
def test_the_estimate_is_close_to_what_the_interpreter_says(state: Any) -> None:
    # A number is assumed to have the most common size: four bytes more than a zero or a float, twelve more than None.
    assert 0.9 * bytes_of(state) <= size_of(state) <= 1.8 * bytes_of(state)


@pytest.mark.parametrize("text", ["x" * 5_000, "é" * 5_000, "語" * 5_000, "🙂" * 5_000], ids=["1", "1 wide", "2", "4"])
def test_texts_count_by_their_bytes_whatever_script_they_are_in(text: str) -> None:
    assert size_of([text]) == pytest.approx(getsizeof(text), rel=0.02)
    assert size_of({text: 1}) == pytest.approx(getsizeof(text), rel=0.06)


def test_what_is_there_twice_counts_once() -> None:
    notes = ["x" * 1_000]
    assert size_of([notes, notes, notes]) - size_of([notes]) == getsizeof([notes] * 3) - getsizeof([notes])


@pytest.mark.parametrize(
    "state",
    [
        [*range(50_000)],
        {str(n): "x" * 20 for n in range(50_000)},
        {"rows": [[n, str(n)] for n in range(50_000)]},
        {"a": ["x"] * 9_000, "b": ["x"] * 9_000, "c": [f"{n:0100}" for n in range(9_000)]},
    ],
    ids=["list", "dict", "rows", "several"],
)
def test_a_large_state_is_estimated_by_a_part_of_it(state: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []

    def counted(value: Any) -> int:
        looked.append(value)
        return getsizeof(value)

    monkeypatch.setattr(state_size, "getsizeof", counted)

    assert 0.3 < size_of(state) / bytes_of(state) < 3
    assert len(looked) <= 10_001
