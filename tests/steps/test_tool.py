"""What the model reads of a tool's result."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.items._json_text import compact_json

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@nn.tool
def anything() -> Any:
    """Return anything."""


@given(JSON.filter(lambda value: not isinstance(value, str)))
@example({"at": 1e22, "small": 1e-7, "whole": 2.0, "text": "1.5 e-3"})
@example(["\ud800", "\u2028", "\x00\x7f", "\U0001f600"])
@example({"nothing": None, "n": -0.0})
def test_a_result_reads_as_its_compact_json(value: Any) -> None:
    assert anything.render(value) == compact_json(value)


def test_a_number_json_does_not_have_reads_as_null() -> None:
    assert anything.render([float("nan"), float("inf")]) == "[null,null]"
