"""Reads OpenTelemetry GenAI spans as events: one span is one turn.

Events are always in this order: turn start, turn complete, cost, then tools. Unrecognised data is skipped; only text
that is not JSON is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NoReturn, TypeAlias

from noetic_nb.regulator import events

SpanReading: TypeAlias = Literal["original", "lenient"]

_NOTHING: Final = object()


def events_from_span(span: str | Mapping[str, Any], *, reading: SpanReading = "lenient") -> list[events.Event]:
    """Return the events of one span.

    Parameters
    ----------
    span : str or mapping
        JSON text of one span, or the span itself.
    reading : {"lenient", "original"}
        The original accepts attributes only as an object, and treats an ``error.type`` that is not text as success.
        Lenient reading also accepts OTLP's list of ``{"key", "value"}``, and treats any error that is not empty or
        false as failure. Numbers above 32 bits saturate in both, whereas the original wraps.

    Raises
    ------
    ValueError
        If the text is not JSON, or a text in the span contains a lone surrogate.

    References
    ----------
    .. [1] docs/behaviour/regulator.md, "OpenTelemetry spans".

    Examples
    --------
    >>> events_from_span('{"attributes": {"gen_ai.usage.output_tokens": 7}}')
    [Cost(tokens_in=0, tokens_out=7, wallclock_ms=0, provider=None, usd=None)]
    """
    if reading not in ("original", "lenient"):
        raise ValueError(f"reading must be 'original' or 'lenient'. Given: {reading!r}.")
    if isinstance(span, str):
        try:
            span = json.loads(span, parse_constant=_no_constant)
        except (json.JSONDecodeError, RecursionError) as exc:
            raise ValueError(f"The span is not valid JSON: {exc}. Given: {span!r:.80}.") from exc
    if not isinstance(span, Mapping):
        return []
    lenient = reading == "lenient"
    # The user's message starts the turn, even if an exporter wrote it last.
    happened = [event for event in _list(span.get("events")) if isinstance(event, Mapping)]
    found: list[events.Event] = []
    message = _first_content(happened, "gen_ai.user.message", lenient)
    if message is not None:
        found.append(events.TurnStart(message))
    reply = _first_content(happened, "gen_ai.assistant.message", lenient)
    if reply is not None:
        found.append(events.TurnComplete(reply))
    found.extend(_cost(span, _attributes(span, lenient)))
    for event in happened:
        if event.get("name") == "gen_ai.tool.message":
            found.extend(_tool(_attributes(event, lenient), lenient))
    # Spans are external data; a lone surrogate must fail here, where the span is known.
    for made in found:
        events.check(made)
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"The span holds {name}, which is not JSON.")


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _attributes(record: Mapping[str, Any], lenient: bool) -> Mapping[str, Any]:
    attributes = record.get("attributes")
    if isinstance(attributes, Mapping):
        return attributes
    if lenient and isinstance(attributes, list):
        return {
            pair["key"]: _otlp_value(pair.get("value"))
            for pair in attributes
            if isinstance(pair, Mapping) and isinstance(pair.get("key"), str)
        }
    return {}


def _otlp_value(value: object) -> Any:
    """Unwrap ``{"stringValue": "x"}``; OTLP writes 64-bit integers as text."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return value
    kind, inner = next(iter(value.items()))
    if kind == "intValue" and isinstance(inner, str) and inner.isascii() and inner.isdigit() and len(inner) <= 20:
        return int(inner)
    return inner


def _first_content(happened: list[Mapping[str, Any]], name: str, lenient: bool) -> str | None:
    for event in happened:
        content = _attributes(event, lenient).get("content") if event.get("name") == name else None
        if isinstance(content, str):
            return content
    return None


def _cost(span: Mapping[str, Any], attributes: Mapping[str, Any]) -> Iterator[events.Cost]:
    tokens_in = _whole(attributes.get("gen_ai.usage.input_tokens"))
    tokens_out = _whole(attributes.get("gen_ai.usage.output_tokens"))
    if tokens_in is None and tokens_out is None:
        return
    start, end = _whole(span.get("start_time_unix_nano")), _whole(span.get("end_time_unix_nano"))
    elapsed = 0 if start is None or end is None or end < start else (end - start) // 1_000_000
    provider = attributes.get("gen_ai.system")
    yield events.Cost(
        tokens_in=min(tokens_in or 0, events.U32_MAX),
        tokens_out=min(tokens_out or 0, events.U32_MAX),
        wallclock_ms=min(elapsed, events.U32_MAX),
        provider=provider if isinstance(provider, str) else None,
    )


def _tool(attributes: Mapping[str, Any], lenient: bool) -> Iterator[events.Event]:
    name = attributes.get("gen_ai.tool.name")
    if not isinstance(name, str):
        return
    arguments = attributes.get("gen_ai.tool.arguments", _NOTHING)
    if arguments is None or isinstance(arguments, str):
        yield events.ToolCall(name, arguments)
    elif arguments is not _NOTHING:
        yield events.ToolCall(name, json.dumps(arguments, ensure_ascii=False, separators=(",", ":"), sort_keys=True))
    duration = _whole(attributes.get("gen_ai.tool.duration_ms"))
    if duration is not None:
        # As in the original, `error.type` has priority even if it is not text and so counts as success.
        error = attributes.get("error.type", attributes.get("gen_ai.tool.error"))
        if lenient and not isinstance(error, str) and error:
            error = json.dumps(error, ensure_ascii=False, sort_keys=True)
        summary = error if isinstance(error, str) else None
        yield events.ToolResult(name, summary is None, min(duration, events.U64_MAX), summary)
