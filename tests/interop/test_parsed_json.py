"""JSON is read as by `json`, whichever parser is used."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.items._json_text import parsed_json

PIECES = [
    *'{}[],:"', "a", '"a"', "1", "0", "-", ".", "e", "E", "+", "null", "true", "NaN", "Infinity", " ", "\n", "\\",
    "\\u0061", "\\ud83d", "\\ude00", "\x01", "ä", "\U0001f600", "12345678901234567890", "1e400", "01",
]  # fmt: skip
TEXTS = [
    '"\\ud800"', "[NaN, -Infinity]", "-0", "-0.0", "9" * 30, "0.1e-320", "[" * 300 + "]" * 300, '{"a": 1, "a": 2}',
    '\ufeff{"a": 1}', "", "tru", "[1,]",
]  # fmt: skip


def outcome(read: Any, text: bytes) -> Any:
    """Return the parsed value of a text, with types and signs, or the kind of error."""

    def typed(value: Any) -> Any:
        if isinstance(value, dict):
            return [(key, typed(inner)) for key, inner in value.items()]
        if isinstance(value, list):
            return [list, *map(typed, value)]
        return type(value), repr(value), isinstance(value, float) and math.copysign(1, value)

    try:
        return typed(read(text))
    except (ValueError, RecursionError) as error:
        return type(error)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_any_text_is_read_as_json_reads_it(text: str) -> None:
    assert outcome(parsed_json, text.encode()) == outcome(json.loads, text.encode())


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.booleans(),
)
def test_any_data_is_read_as_json_reads_it(data: Any, ascii_only: bool) -> None:
    text = json.dumps(data, ensure_ascii=ascii_only).encode(errors="surrogatepass")

    assert outcome(parsed_json, text) == outcome(json.loads, text)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32", "latin-1"])
@pytest.mark.parametrize("text", [*TEXTS[:-5], '{"ä": "ö"}'])
def test_other_encodings_are_read_as_json_reads_them(text: str, encoding: str) -> None:
    assert outcome(parsed_json, text.encode(encoding)) == outcome(json.loads, text.encode(encoding))


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_odd_is_read_as_json_reads_it(text: str) -> None:
    assert outcome(parsed_json, text.encode()) == outcome(json.loads, text.encode())
