"""The spans of a recording that are no calls, such as the nodes of a graph, as steps of its run."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from noetic_nb import events as ev
from noetic_nb.interop._spans.span_record import Span
from noetic_nb.interop._spans.span_tree import Execution
from noetic_nb.redact import Redaction

_NS_PER_MS: Final = 1_000_000


class _Part(NamedTuple):
    """The events of one turn, or of one child: those from `first` to before `last`, and their times."""

    where: ev.Where
    first: int
    last: int
    start_ms: float
    end_ms: float


def with_nodes(events: Sequence[ev.RunEvent], root: Execution, redaction: Redaction) -> list[ev.RunEvent]:
    """Return the events of a recording with a step for each of its nodes, at its times; calls stay in their order.

    A node whose times are not those of its turn is left out.
    """
    found: list[tuple[int, float, int, int, ev.RunEvent]] = []
    times = [event.t_ms for event in events]
    parts: dict[ev.Where | None, list[_Part]] = {}
    for part in _parts(events):
        parts.setdefault(part.where if part.where.depth else None, []).append(part)
    for execution in _all(root):
        own = parts.get(execution.where, [])
        begins = [part.start_ms for part in own]
        paths: dict[str, tuple[int, str]] = {}
        nodes = sorted(execution.nodes, key=lambda each: (each[0].start_ns or 0, len(each[1])))
        for number, (node, around) in enumerate(nodes, 1):
            start, end = (node.start_ns or 0) / _NS_PER_MS, (node.end_ns or 0) / _NS_PER_MS
            at = bisect_right(begins, start) - 1
            if at < 0 or not start <= end <= own[at].end_ms:
                continue
            part, name = own[at], redaction.text(_name(node))
            depth, outer = next((paths[span.span_id] for span in around if span.span_id in paths), (0, ""))
            path = f"{outer}/{name.replace('/', '_')}#{number}"
            paths[node.span_id] = depth + 1, path
            begun, done = (max(part.first, min(bisect_right(times, moment), part.last)) for moment in (start, end))
            error = redaction.text(node.problem or "failed") if node.failed else None
            took, status = ((node.end_ns or 0) - (node.start_ns or 0)) / _NS_PER_MS, "error" if node.failed else "ok"
            found.append((begun, start, 1, depth, ev.StepStarted(part.where, start, name, "node", path)))
            ended = ev.StepEnded(part.where, end, name, "node", path, took, status, error)  # type: ignore[arg-type]
            # What ends where another begins does so first, unless it began there itself.
            found.append((done, end, 0 if end > start else 2, -depth, ended))
    merged: list[ev.RunEvent] = []
    before = 0
    for place, *_, event in sorted(found, key=lambda each: each[:4]):
        merged += events[before:place]
        merged.append(event)
        before = place
    return [*merged, *events[before:]]


def _all(execution: Execution) -> Iterator[Execution]:
    yield execution
    for entry in execution.entries:
        for child in [entry] if isinstance(entry, Execution) else getattr(entry, "children", ()):
            yield from _all(child)


def _parts(events: Sequence[ev.RunEvent]) -> Iterator[_Part]:
    begun: dict[ev.Where, int] = {}
    for at, event in enumerate(events):
        where = event.where
        if isinstance(event, ev.TurnStarted | ev.ChildStarted):
            begun[where] = at + 1
        elif isinstance(event, ev.ItemsAppended) and event.origin == "user" and begun.get(where) == at:
            begun[where] = at + 1  # a message and its turn are not parted
        elif isinstance(event, ev.TurnCompleted | ev.ChildEnded) and where in begun:
            first = begun.pop(where)
            yield _Part(where, first, at, events[first - 1].t_ms, event.t_ms)


def _name(span: Span) -> str:
    """Return the name of a node, without the operation that stands in front of it."""
    operation = span.text("gen_ai.operation.name")
    name = span.name.removeprefix(f"{operation} ") if operation else span.name
    return name or "node"
