"""A tool's result as the model reads it."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.items._json_text import compact_json
from noetic_nb.models import ToolSpec
from noetic_nb.steps._function_tools import chooses_tools
from noetic_nb.steps._loops import flowing_text, output_text
from noetic_nb.steps._tools import drained, lacking, spec_tokens, wire_name

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


def test_a_generator_is_run_to_its_value_and_reports_its_pieces() -> None:
    def count() -> Any:
        yield 1
        return "done"

    pieces: list[int] = []

    assert asyncio.run(drained(count(), pieces.append)) == "done"
    assert pieces == [1]


def test_a_function_of_the_context_alone_chooses_tools() -> None:
    def lookup(order_id: str) -> None: ...

    assert (chooses_tools(lookup), chooses_tools(lambda ctx: [lookup])) == (False, True)


def test_a_tool_says_which_facts_it_lacks_and_counts_as_it_is_sent() -> None:
    bare = nn.tool(lambda order_id: order_id, name="lookup")

    assert lacking(bare) == "has no description; the types of 'order_id' are not known"
    assert spec_tokens(ToolSpec("noop", "Does nothing.", {"type": "object", "properties": {}})) == 23
    assert wire_name("plan/update") == "plan_update"


def test_text_flows_as_it_is_and_data_as_json() -> None:
    assert [flowing_text(value) for value in ("done", None, {"text": "hi"})] == ["done", "", '{"text":"hi"}']
    assert [output_text(value) for value in ("done", {"text": "hi"}, [1, "two"], None)] == [
        "done",
        "hi",
        '[1,"two"]',
        "",
    ]
