"""The same spans in other forms: OTLP JSON as written by a collector, and live SDK objects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any


def _nanoseconds(text: str | None) -> int | None:
    if text is None:
        return None
    found = datetime.fromisoformat(text)
    return int(found.timestamp()) * 1_000_000_000 + found.microsecond * 1_000


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [_value(each) for each in value]}}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": _pairs(value)}}
    return {"stringValue": value}


def _pairs(about: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in about.items() if value is not None]


def _span(span: Mapping[str, Any]) -> dict[str, Any]:
    code = {"OK": 1, "ERROR": 2}.get(span["status"]["status_code"], 0)
    status = {"code": code, "message": span["status"].get("description", "")}
    return {
        "traceId": span["context"]["trace_id"][2:],
        "spanId": span["context"]["span_id"][2:],
        "parentSpanId": (span["parent_id"] or "0x")[2:],
        "name": span["name"],
        "kind": 1,
        "startTimeUnixNano": str(_nanoseconds(span["start_time"])),
        **({} if span["end_time"] is None else {"endTimeUnixNano": str(_nanoseconds(span["end_time"]))}),
        "attributes": _pairs(span["attributes"]),
        "events": [
            {
                "timeUnixNano": str(_nanoseconds(event["timestamp"])),
                "name": event["name"],
                "attributes": _pairs(event["attributes"]),
            }
            for event in span["events"]
        ],
        "status": status,
    }


def _log(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "observedTimeUnixNano": str(_nanoseconds(record["observed_timestamp"])),
        "eventName": record["event_name"],
        "attributes": _pairs(record["attributes"]),
        "traceId": record["trace_id"][2:],
        "spanId": record["span_id"][2:],
    }


def as_otlp(spans: list[Any], logs: list[Any] | None = None) -> str:
    """Return spans as one document."""
    scopes = [{"scope": {"name": "x", "version": "1"}, "spans": [_span(span) for span in spans]}]
    document: dict[str, Any] = {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": scopes}]}
    if logs:
        document["resourceLogs"] = [{"scopeLogs": [{"logRecords": [_log(record) for record in logs]}]}]
    return json.dumps(document)


def as_otlp_lines(spans: list[Any], logs: list[Any] | None = None) -> str:
    """Return spans as documents, one per line, as a collector's file exporter does."""
    lines = [as_otlp([span]) for span in spans]
    return "\n".join(lines + ([as_otlp([], logs)] if logs else []))


def as_sdk_objects(spans: list[Any]) -> list[Any]:
    """Return spans as the SDK passes them to an exporter."""
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.trace import SpanContext, Status, StatusCode

    def context(trace_id: str, span_id: str) -> SpanContext:
        return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False)

    return [
        ReadableSpan(
            span["name"],
            context(span["context"]["trace_id"], span["context"]["span_id"]),
            parent=context(span["context"]["trace_id"], span["parent_id"]) if span["parent_id"] else None,
            attributes=span["attributes"],
            events=[Event(e["name"], e["attributes"], _nanoseconds(e["timestamp"])) for e in span["events"]],
            status=Status(StatusCode[span["status"]["status_code"]], span["status"].get("description")),
            start_time=_nanoseconds(span["start_time"]),
            end_time=_nanoseconds(span["end_time"]),
        )
        for span in spans
    ]
