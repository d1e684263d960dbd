"""Compact JSON is identical to the output of ECMAScript, because token counts depend on it."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.items import (
    assistant_message,
    dump_item,
    freeze,
    function_call,
    function_call_output,
    input_message,
    item_tokens,
    parse_item,
)
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.items._json_text import compact_json, number_text, plain_text
from noetic_nb.tokens import estimate_tokens, utf16_units
from tests.items.strategies import ITEMS_WITH_EXTRA, JSON

# Values from ECMA-262, section 6.1.6.1.20, and the output of V8's `JSON.stringify` for them.
KNOWN = {
    0.0: "0",
    1.0: "1",
    0.1: "0.1",
    1e-6: "0.000001",
    1e-7: "1e-7",
    1.5e-5: "0.000015",
    123456.789: "123456.789",
    1e20: "100000000000000000000",
    1e21: "1e+21",
    1.5e21: "1.5e+21",
    5e-324: "5e-324",
    1.7976931348623157e308: "1.7976931348623157e+308",
    -2.5e-10: "-2.5e-10",
    -1e-5: "-0.00001",
}


@pytest.mark.parametrize(("value", "text"), KNOWN.items())
def test_numbers_are_printed_as_ecmascript_prints_them(value: float, text: str) -> None:
    assert number_text(value) == text
    assert compact_json({"n": [value]}) == compact_json(freeze({"n": [value]})) == f'{{"n":[{text}]}}'


def test_negative_zero_is_printed_without_its_sign() -> None:
    assert compact_json([-0.0]) == "[0]"


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_printed_number_reads_back_as_itself(value: float) -> None:
    assert float(number_text(value)) == value


@given(JSON)
def test_compact_json_reads_back_as_the_value(value: Any) -> None:
    assert json.loads(compact_json(value)) == value


@pytest.mark.parametrize("bad", [math.nan, math.inf, {"a": -math.inf}, FrozenDict(a=(math.nan,))])
def test_a_number_that_is_not_finite_has_no_text(bad: Any) -> None:
    with pytest.raises((ValueError, OverflowError)):
        compact_json(bad)


def test_data_that_holds_itself_is_named_and_the_next_is_written() -> None:
    circle: list[Any] = []
    circle.append(circle)

    with pytest.raises(ValueError, match="Circular"):
        compact_json(circle)

    assert compact_json([[]]) == "[[]]"


@given(JSON)
def test_compact_json_is_the_text_of_the_standard_encoder_where_no_number_is_fractional(value: Any) -> None:
    text = json.dumps({"value": value}, ensure_ascii=False, separators=(",", ":"))
    if not re.search(r"\d[.e]|[\ud800-\udfff]", text):
        assert compact_json({"value": value}) == text


@given(JSON)
def test_frozen_data_has_the_text_of_plain_data(value: Any) -> None:
    assert compact_json(freeze({"value": value})) == compact_json({"value": value})


def test_lone_surrogates_are_written_as_escapes_and_pairs_are_not() -> None:
    assert compact_json("\ud83d") == '"\\ud83d"'
    assert compact_json("\U0001f600") == '"\U0001f600"'
    assert compact_json(FrozenDict(a="\ud83d\U0001f600")) == '{"a":"\\ud83d\U0001f600"}'


@given(ITEMS_WITH_EXTRA)
def test_an_item_counts_as_its_compact_json(plain: dict[str, Any]) -> None:
    text = compact_json(plain)

    assert item_tokens(plain) == item_tokens(parse_item(plain)) == estimate_tokens(text)
    assert estimate_tokens(text) == -(-utf16_units(text) // 4)


@given(st.text(st.characters()))
def test_utf16_units_are_those_of_the_encoding(text: str) -> None:
    assert utf16_units(text) == len(text.encode("utf-16-le", "surrogatepass")) // 2


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_node_writes_the_same_letters() -> None:
    texts = ["", "é", "\u2028", "\U0001f600", "\x00\x1f\x7f", '"\\/', "\ud800x", "x\udfff", "tab\tnew\n"]
    numbers = [*KNOWN, 0.1 + 0.2, 1 / 3, 2**53 + 0.0, 1e-5 / 3, 123456789012345680.0, 9.999999999999999e22]
    values: list[Any] = [*texts, *numbers, {"a": texts, "b": {"c": numbers}}, [None, True, False, 12, [], {}]]
    script = (
        "const v=JSON.parse(require('fs').readFileSync(0,'utf8'));"
        "process.stdout.write(JSON.stringify(v.map(x=>JSON.stringify(x))))"
    )

    done = subprocess.run(["node", "-e", script], input=json.dumps(values).encode(), capture_output=True, check=True)

    assert [compact_json(value) for value in values] == json.loads(done.stdout)


@given(text=st.text(max_size=60), item_id=st.text(max_size=8))
def test_builders_count_an_item_as_its_json_says(text: str, item_id: str) -> None:
    for item in (input_message(text, item_id=item_id), input_message(text, "developer", item_id=item_id),
                 assistant_message(text, item_id=item_id), function_call(item_id, text, text, item_id=item_id),
                 function_call_output(item_id, text, item_id=item_id)):  # fmt: skip
        assert item_tokens(item) == item_tokens(dump_item(item))


@pytest.mark.parametrize("call_id", [None, 7, ["c"]])
def test_a_call_id_that_is_no_text_is_counted_as_its_json_says(call_id: Any) -> None:
    for item in (function_call("lookup", "{}", call_id, item_id="i"), function_call_output(call_id, "ok", item_id="i")):
        assert item_tokens(item) == item_tokens(dict(item))


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
))  # fmt: skip
def test_plain_text_reads_back_as_the_value_half_characters_and_all(value: Any) -> None:
    assert json.loads(plain_text({"value": value})) == {"value": value}
    assert json.loads(plain_text([value, "\ud800"])) == [value, "\ud800"]
