"""One span or log record in any form: the SDK's JSON, OTLP JSON, or live SDK objects."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from noetic_nb._core.names import keys, meanings

Data: TypeAlias = Mapping[str, Any]
MAPPINGS: Final = (dict, Mapping)
"""For `isinstance`: nearly all are dictionaries, and checking for `Mapping` alone takes ten times as long."""

# Values that no reader uses and that may be large: stack traces, schemas, and a graph's state beside its messages.
_UNREAD: Final = keys(
    "exception.stacktrace logfire.json_schema model_request_parameters gen_ai.tool.definitions gen_ai.tool.json_schema"
    " gen_ai.task.input gen_ai.task.output llm.tools"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DEEPEST: Final = 64
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_ERROR_CODES: Final = frozenset(["ERROR", "STATUS_CODE_ERROR", 2])


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """An event of a span: its name, its time in nanoseconds since 1970, its attributes."""

    name: str
    time_ns: int | None
    attributes: Data


@dataclass(slots=True)
class Span:
    """A span: hex ids, times in nanoseconds since 1970, status, events and log records, and its source position."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    start_ns: int | None
    end_ns: int | None
    failed: bool
    problem: str
    attributes: Data
    events: list[SpanEvent] = field(default_factory=list)
    place: int = 0
    before: Any = None
    """The history sent by the previous model call, if known: most calls send the same messages and a few more."""

    def given(self, *names: str) -> Any:
        """Return the first of some attributes that is present."""
        for name in names:
            if name in self.attributes:
                return self.attributes[name]
        return None

    def text(self, *names: str) -> str | None:
        """Return the first of some attributes that is a non-empty text."""
        for name in names:
            value = self.attributes.get(name)
            if isinstance(value, str) and value:
                return value
        return None


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A log record of a span: one of its events, sent apart."""

    trace_id: str
    span_id: str
    event: SpanEvent


def span_record(value: Any, place: int) -> Span | None:
    """Return a span in our form, None if the object is not a span."""
    if isinstance(value, Mapping):
        if "spanId" in value or "span_id" in value or "traceId" in value:
            return _otlp(value, place)
        return _sdk(value, place) if isinstance(value.get("context"), Mapping) else None
    return live_record(value, place) if hasattr(value, "attributes") and hasattr(value, "get_span_context") else None


def _sdk(value: Data, place: int) -> Span:
    context = value["context"]
    status = value.get("status")
    code = status.get("status_code") if isinstance(status, Mapping) else None
    return Span(
        _hex_id(context.get("trace_id"), 32) or f"trace{place}",
        _hex_id(context.get("span_id"), 16) or f"span{place}",
        _hex_id(value.get("parent_id"), 16),
        _name(value.get("name")),
        _time_ns(value.get("start_time")),
        _time_ns(value.get("end_time")),
        isinstance(code, str) and code.rpartition(".")[2] == "ERROR",
        _name(status.get("description")) if isinstance(status, Mapping) else "",
        _attributes(value.get("attributes")),
        [_event(event, "timestamp") for event in _list(value.get("events"))],
        place,
    )


def _otlp(value: Data, place: int) -> Span:
    get = value.get
    status = get("status")
    code = status.get("code") if isinstance(status, Mapping) else None
    events = get("events")
    return Span(
        _hex_id(get("traceId", get("trace_id")), 32) or f"trace{place}",
        _hex_id(get("spanId", get("span_id")), 16) or f"span{place}",
        _hex_id(get("parentSpanId", get("parent_span_id")), 16),
        _name(get("name")),
        _time_ns(get("startTimeUnixNano", get("start_time_unix_nano"))),
        _time_ns(get("endTimeUnixNano", get("end_time_unix_nano"))),
        isinstance(code, str | int) and code in _ERROR_CODES,
        _name(status.get("message")) if isinstance(status, Mapping) else "",
        _attributes(get("attributes")),
        [_event(event, "timeUnixNano") for event in _list(events)] if events else [],
        place,
    )


def live_record(value: Any, place: int, around: Span | None = None) -> Span | None:
    """Return an SDK object in our form, None if it has no ids; `around` is the parent span, if known."""
    context = value.get_span_context()
    if context is None:
        return None
    parent_id: str | None
    if around is not None:
        trace_id, parent_id = around.trace_id, around.span_id
    else:
        parent = getattr(value, "parent", None)
        trace_id = f"{context.trace_id:032x}"
        parent_id = None if parent is None else f"{parent.span_id:016x}"
    status, failed, problem = getattr(value, "status", None), False, ""
    name = getattr(value, "name", "")
    # Nearly all are unset, and reading an enumeration's name takes as long as the rest of a status.
    if status is not None and not getattr(status, "is_unset", False):
        failed = getattr(getattr(status, "status_code", None), "name", None) == "ERROR"
        problem = _name(getattr(status, "description", None))
    return Span(
        trace_id,
        f"{context.span_id:016x}",
        parent_id,
        name if type(name) is str else _name(name),
        getattr(value, "start_time", None),
        getattr(value, "end_time", None),
        failed,
        problem,
        _attributes(value.attributes),
        # `events` returns a copy made under a lock; the internal list shows more cheaply whether there are any.
        [SpanEvent(_name(e.name), e.timestamp, _attributes(e.attributes)) for e in getattr(value, "events", ())]
        if getattr(value, "_events", True)
        else [],
        place,
    )


_RECORD: Final = ("trace_id", "span_id", "body", "attributes", "timestamp", "observed_timestamp", "event_name")


def log_record(value: Any) -> LogRecord | None:
    """Return a log record in our form; None if the object is not one, or belongs to no span."""
    if not isinstance(value, Mapping):
        record = getattr(value, "log_record", value)  # the SDK wraps records for its exporters
        if not hasattr(record, "attributes"):
            return None
        value = {name: getattr(record, name, None) for name in _RECORD}
    trace_id = _hex_id(value.get("trace_id", value.get("traceId")), 32)
    span_id = _hex_id(value.get("span_id", value.get("spanId")), 16)
    if trace_id is None or span_id is None or not span_id.strip("0"):
        return None
    about = dict(_attributes(value.get("attributes")))
    body = value.get("body")
    if isinstance(body, Mapping) and len(body) == 1 and next(iter(body)) in _VALUES:
        body = _value(body)
    if isinstance(body, Mapping):
        about = {**body, **about}
    elif body is not None:
        about.setdefault("content", body)
    name = value.get("event_name") or value.get("eventName") or about.get("event.name")
    times = ("timestamp", "timeUnixNano", "observed_timestamp", "observedTimeUnixNano")
    time = next((found for key in times if (found := _time_ns(value.get(key)))), None)
    return LogRecord(trace_id, span_id, SpanEvent(_name(name), time, about))


def _event(value: Any, time: str) -> SpanEvent:
    if not isinstance(value, Mapping):
        return SpanEvent("", None, {})
    return SpanEvent(
        _name(value.get("name")),
        _time_ns(value.get(time, value.get("time_unix_nano"))),
        _attributes(value.get("attributes")),
    )


def _list(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else ()


def _name(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _attributes(value: Any) -> Data:
    """Return attributes, a mapping or OTLP's list of pairs, as a mapping."""
    if isinstance(value, MAPPINGS):
        return {key: inner for key, inner in value.items() if key not in _UNREAD and isinstance(key, str)}
    found: dict[str, Any] = {}
    for pair in value if isinstance(value, list) else ():
        if not isinstance(pair, Mapping):
            continue
        key, inner = pair.get("key"), pair.get("value")
        if not isinstance(key, str) or key in _UNREAD:
            continue
        found[key] = _value(inner) if isinstance(inner, dict) else inner
    return found


_VALUES: Final[Mapping[str, str]] = meanings(
    text="stringValue boolValue bytesValue string_value bool_value bytes_value",
    int="intValue int_value",
    float="doubleValue double_value",
    array="arrayValue array_value",
    map="kvlistValue kvlist_value",
)
"""Kinds of OTLP values, by the names of JSON and of protobuf."""


def _value(value: Any, depth: int = 0) -> Any:
    if not isinstance(value, Mapping) or depth > _DEEPEST:
        return None
    for name, inner in value.items():
        kind = _VALUES.get(name)
        if kind == "int" or kind == "float":  # ints are written as text, because JSON numbers lose precision
            try:
                return int(inner) if kind == "int" else float(inner)
            except (ValueError, TypeError):
                return None
        if kind == "array":
            values = inner.get("values") if isinstance(inner, Mapping) else None
            return [_value(each, depth + 1) for each in _list(values)]
        if kind == "map":
            pairs = inner.get("values") if isinstance(inner, Mapping) else None
            return {
                str(pair.get("key")): _value(pair.get("value"), depth + 1)
                for pair in _list(pairs)
                if isinstance(pair, Mapping)
            }
        if kind is not None:
            return inner
    return None


def _hex_id(value: Any, digits: int) -> str | None:
    """Return an id as hex digits; the given id may have a prefix, be base64 as in protobuf's JSON, or be a number."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return f"{value:0{digits}x}"
    if not isinstance(value, str) or not value:
        return None
    text = value[2:] if value.startswith(("0x", "0X")) else value
    if len(text) <= digits and _HEX.issuperset(text):
        return text.lower().rjust(digits, "0")
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    # Any other format is fine as an id, as long as it is the same everywhere.
    return raw.hex() if len(raw) * 2 == digits else text[:64].encode("utf-8", "surrogatepass").hex()


def _time_ns(value: Any) -> int | None:
    if isinstance(value, str):
        if value.isdigit():
            value = int(value[:20])
        else:
            try:
                found = datetime.fromisoformat(value)
            except ValueError:
                return None
            since = (found if found.tzinfo else found.replace(tzinfo=UTC)) - _EPOCH
            # Integer arithmetic: a float of seconds since 1970 cannot resolve nanoseconds.
            return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**63:
        return None
    return value
