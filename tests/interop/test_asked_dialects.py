"""A span is asked of the dialects that its attributes belong to, and misses none that has an answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from noetic_nb.interop._spans.calls import DIALECTS, first
from noetic_nb.interop._spans.dialect import Dialect
from noetic_nb.interop._spans.span_record import span_record
from tests.interop.replayed_spans import capture

CAPTURES = sorted((Path(__file__).parent.parent / "fixtures" / "spans").glob("*.json"))
METHODS = [name for name, value in vars(Dialect).items() if callable(value) and not name.startswith("_")]
# What no capture has, one attribute of each prefix.
OTHERS: list[dict[str, Any]] = [
    {"llm.request.model": "m"},
    {"llm.usage.prompt_tokens": 3},
    {"gen_ai.prompt.0.content": "hi"},
    {"gen_ai.completion.0.content": "hello"},
    {"traceloop.span.kind": "tool"},
    {"embedding.model_name": "m"},
    {"tool_call.id": "c1"},
    {"session.id": "s"},
    {"graph.node.id": "desk"},
    {"events": '[{"event.name": "gen_ai.user.message", "content": "hi"}]'},
    {"all_messages_events": '[{"event.name": "gen_ai.user.message", "content": "hi"}]'},
]


def assert_asked_alike(attributes: dict[str, Any]) -> None:
    value = {"name": "x", "context": {"trace_id": "0x1", "span_id": "0x1"}, "attributes": attributes}
    span = span_record(value, 0)
    assert span is not None
    for method in METHODS:
        has_answer = any(getattr(dialect, method)(replace(span)) is not None for dialect in DIALECTS)
        assert (first(method, replace(span)) is not None) == has_answer, (method, list(attributes))


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_no_attribute_of_a_capture_is_overlooked(path: Path) -> None:
    for span in capture(path)[0]:
        assert_asked_alike(span["attributes"])
        for name, value in span["attributes"].items():
            assert_asked_alike({name: value})


@pytest.mark.parametrize("attributes", OTHERS, ids=lambda attributes: next(iter(attributes)))
def test_no_attribute_of_another_version_is_overlooked(attributes: dict[str, Any]) -> None:
    assert_asked_alike(attributes)
