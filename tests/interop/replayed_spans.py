"""Replays captured spans through the SDK: started and ended in the original order, with any span processor."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags, set_span_in_context

KNOWN_EARLY = (
    "gen_ai.operation.name",
    "gen_ai.agent.name",
    "gen_ai.conversation.id",
    "openinference.span.kind",
    "input.value",
)
"""The attributes that most instrumentations set when a span begins."""


class _Ids(IdGenerator):
    def __init__(self) -> None:
        self.span_id = self.trace_id = 0

    def generate_span_id(self) -> int:
        return self.span_id

    def generate_trace_id(self) -> int:
        return self.trace_id


def capture(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the spans and the log records of a file."""
    found = json.loads(path.read_text())
    return found["spans"], found.get("logs") or []


def nanoseconds(text: str) -> int:
    found = datetime.fromisoformat(text)
    return int(found.replace(microsecond=0).timestamp()) * 10**9 + found.microsecond * 1_000


def replay(
    spans: Iterable[Mapping[str, Any]], logs: Iterable[Mapping[str, Any]], processor: Any, *, early: bool
) -> None:
    """Replay spans; `early` attributes are set when a span begins, all others just before its end."""
    spans = list(spans)
    ids = _Ids()
    provider = TracerProvider(id_generator=ids)
    provider.add_span_processor(processor)
    live: dict[str, Any] = {}
    moments: list[tuple[int, int, int, str, Any]] = []
    parents = {each["context"]["span_id"]: each["parent_id"] for each in spans}

    def level(span_id: str | None) -> int:
        return 0 if span_id not in parents else 1 + level(parents[span_id])

    for place, each in enumerate(spans):
        inside = level(each["context"]["span_id"])
        moments.append((nanoseconds(each["start_time"]), 0, inside, "start", each))
        moments.append((nanoseconds(each["end_time"]), 1, place, "end", each))
    for kind, each in [(kind, each) for *_, kind, each in sorted(moments, key=lambda moment: moment[:3])]:
        own = each["context"]["span_id"]
        if kind == "start":
            ids.span_id, ids.trace_id = int(own, 16), int(each["context"]["trace_id"], 16)
            parent = live.get(each["parent_id"])
            if parent is None and each["parent_id"] is not None:
                known = SpanContext(ids.trace_id, int(each["parent_id"], 16), False, TraceFlags(1))
                parent = NonRecordingSpan(known)
            context = None if parent is None else set_span_in_context(parent)
            first = {key: value for key, value in each["attributes"].items() if early and key in KNOWN_EARLY}
            scope = "openinference.instrumentation" if "openinference.span.kind" in each["attributes"] else "other"
            started = provider.get_tracer(scope).start_span(
                each["name"], context, attributes=first, start_time=nanoseconds(each["start_time"])
            )
            live[own] = started
            continue
        span = live[own]
        span.set_attributes(each["attributes"])
        for event in each["events"]:
            span.add_event(event["name"], event["attributes"], nanoseconds(event["timestamp"]))
        code = StatusCode[each["status"]["status_code"].rpartition(".")[2]]
        span.set_status(Status(code, each["status"].get("description")))
        for record in logs:
            if record.get("span_id") == own:
                processor.on_emit(record)
        span.end(nanoseconds(each["end_time"]))
