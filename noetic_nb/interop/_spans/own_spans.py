"""Spans that our exporter wrote, read back: the events stand on them, each with its number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from noetic_nb.events import ModelCalled, RunEvent
from noetic_nb.interop._spans.span_messages import parsed
from noetic_nb.interop._spans.span_record import Span
from noetic_nb.redact import Redaction
from noetic_nb.runs._events.event_json import WireError, parse_event
from noetic_nb.runs._run import Run


def is_own(span: Span) -> bool:
    """Tell whether a span is one of ours."""
    return "noetic.event" in span.attributes or "noetic.started" in span.attributes


def run_of_own(spans: Sequence[Span], *, run_id: str, unmapped: Sequence[Mapping[str, Any]] = ()) -> Run:
    """Return the run that spans of ours were made of; without texts where they were left out (docs/behaviour/interop.md).

    Events are in the order of their times, those of one time by their numbers.
    """
    redaction = Redaction()
    found: list[tuple[float, int, RunEvent]] = []
    strange = list(unmapped)
    for span in spans:
        for entry in _entries(span):
            try:
                number, wire = entry
                event = parse_event(redaction.data(wire))
                found.append((float(event.t_ms), int(number), event))
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                what = "an event cannot be read" if isinstance(error, WireError) else "this is no event"
                strange.append({"place": f"span {span.place}", "what": what, "value": str(error)[:2_000]})
    found.sort(key=lambda each: each[:2])
    events = [event for _, _, event in found]
    meta = {
        "source": "otel",
        "created_ms": found[0][0] if found else 0.0,
        "model": next((event.model for event in events if isinstance(event, ModelCalled)), None),
        "params": None,
        "policy": "",
        "outcome": None,
        "estimated": [],
        "unmapped": redaction.data(strange),
    }
    return Run(redaction.text(run_id), meta=meta, events=events)


def _entries(span: Span) -> Iterator[Any]:
    before = parsed(span.attributes.get("noetic.before"))
    if isinstance(before, list):
        yield from before
    for name in ("noetic.started", "noetic.event"):
        if name in span.attributes:
            yield parsed(span.attributes[name])
