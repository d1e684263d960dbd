"""The context of a model call: the part of the log that was sent, the texts in place of the rest, and the unknown part.

Runs of this library contain their requests. In other runs a call was sent its log, except compacted parts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from noetic_nb.items import Item, item_text
from noetic_nb.redact import redact_text
from noetic_nb.runs import Run
from noetic_nb.runs._events.selected import appended, compacted
from noetic_nb.runs._requests.item_lives import Context, context_of
from noetic_nb.runs._requests.recorded_requests import requests_of
from noetic_nb.runs._requests.sent_request import RecordedRequest, sent_positions

IN_PLACE = "compaction"
"""The origin of a text that a compaction put in place of a part of the log."""


class SentText(NamedTuple):
    """One text of a request; `origin` as in `SentItem`, or `IN_PLACE`."""

    origin: str
    item: Item


class SentContext(NamedTuple):
    """The known part of a call's context."""

    first: int
    """Where the recorded part of the log begins."""
    log: Sequence[Item]
    """From there to the call."""
    absent: tuple[int, ...]
    """Indices in `log` that were not sent."""
    sent: tuple[SentText, ...]
    instructions: str
    unknown: int
    """The number of compactions whose content cannot be read."""

    @property
    def texts(self) -> list[str]:
        """All sent texts, redacted."""
        return [redact_text(self.instructions), *[fact_text(one.item) for one in self.sent]]


class _Point(NamedTuple):
    seq: int
    length: int
    event: Any


def fact_text(item: Item) -> str:
    """Return the text of an item in which facts are searched, redacted; for a call its arguments, not its tool."""
    if item["type"] == "function_call":
        arguments = item.get("arguments")
        return redact_text(arguments) if isinstance(arguments, str) else ""
    return redact_text(item_text(item))


class ContextIndex:
    """The requests and compactions of a run."""

    def __init__(self, run: Run) -> None:
        self.requests = requests_of(run)
        self.points: dict[Context, list[_Point]] = {}
        lengths: dict[Context, list[tuple[int, int]]] = {}
        for seq, added in appended(run):
            lengths.setdefault(context_of(added.where), []).append((seq, added.start + len(added.items)))
        for seq, event in compacted(run):
            key = context_of(event.where)
            before = bisect_left(lengths.get(key, []), (seq,))
            length = lengths[key][before - 1][1] if before else 0
            self.points.setdefault(key, []).append(_Point(seq, length, event))
        self._systems = {
            key: frozenset([at for at, item in enumerate(self.log_of(key)) if item.get("role") == "system"])
            for key in self.points
        }

    def log_of(self, key: Context) -> Sequence[Item]:
        return self.requests.log_of(self.points[key][-1].event.where)

    def knows(self, request: RecordedRequest) -> bool:
        """Tell whether a call's context is known, from its request or from a run that reports its compactions."""
        return request.view is not None or context_of(request.where) in self.points

    def _before(self, request: RecordedRequest) -> list[_Point]:
        return [one for one in self.points.get(context_of(request.where), ()) if one.seq < request.seq]

    def context(self, request: RecordedRequest) -> SentContext:
        """Return the known context of a call."""
        log, view = request.known or (), request.view
        if view is None:
            return _kept(request.first, log, self._before(request), self._systems[context_of(request.where)])
        # Without planning the call again, which takes time proportional to the log: a long run has hundreds of compactions.
        shown = [at for at in sent_positions(view) if 0 <= at - request.first < len(log)]
        sent = [SentText(f"layer:{layer_id}", item) for layer_id, item in view.layer_items]
        sent += [SentText("projection", item) for item in _written(request)]
        sent += [SentText("history", log[at - request.first]) for at in shown]
        sent += [SentText("appended", item) for item in view.appended]
        absent = sorted(set(range(len(log))).difference([at - request.first for at in shown]))
        return SentContext(request.first, log, tuple(absent), tuple(sent), request.instructions or "", 0)

    def replaced(self, request: RecordedRequest) -> frozenset[int]:
        """Return the positions in the log that compactions before a call replaced."""
        points = self._before(request)
        if request.view is None:
            return frozenset(range(max([one.length for one in points], default=0)))
        stretches = {stretch for one in points for stretch in one.event.replaced}
        whole = max([stop for start, stop in stretches if not start], default=0)
        return frozenset([*range(whole), *[at for start, stop in stretches if start for at in range(start, stop)]])

    def after_compactions(self) -> Iterator[tuple[Context, SentContext]]:
        """Yield each log with its context after each compaction, at the next call if requests were recorded."""
        calls: dict[Context, list[RecordedRequest]] = {}
        for request in self.requests.requests:
            calls.setdefault(context_of(request.where), []).append(request)
        for key, points in self.points.items():
            those = calls.get(key, [])
            for place, point in enumerate(points):
                at = bisect_left(those, point.seq, key=lambda one: one.seq)
                if at < len(those) and those[at].view is not None:
                    if place + 1 == len(points) or those[at].seq < points[place + 1].seq:
                        yield key, self.context(those[at])
                else:
                    first = those[-1].first if those else 0
                    until = self.log_of(key)[: max(0, point.length - first)]
                    yield key, _kept(first, until, points[: place + 1], self._systems[key])


def _written(request: RecordedRequest) -> Iterator[Item]:
    """Yield the texts that layers wrote in place of history."""
    view = request.view
    assert view is not None
    after = view.window[0]
    for part in view.projection or ():
        if part.written and after >= view.window[0]:
            yield from part.written
        after = part.stop if not part.written else after


def _kept(first: int, log: Sequence[Item], points: Sequence[_Point], system: frozenset[int]) -> SentContext:
    """Return the context of another program's call: its log with its compactions. `system` is always sent."""
    events = [one.event for one in points]
    whole = [at for at, one in enumerate(events) if one.items and not (one.opaque or one.replaced)]
    gone: set[int] = set()
    hidden: set[int] = set()
    beside: tuple[Item, ...] = ()
    unknown = 0
    # Everything before the last readable one is in its text, or gone.
    for point in points[whole[-1] if whole else 0 :]:
        event, before = point.event, set(range(min(point.length - first, len(log))))
        if event.opaque:
            hidden, beside, unknown = before - gone, tuple(item for item in event.items if item_text(item)), unknown + 1
        elif event.replaced:
            gone.update([at - first for start, stop in event.replaced for at in range(start, stop)])
            beside += event.items
        elif event.items:
            gone, beside = before, event.items
        else:  # unknown items were left out
            unknown += 1
    gone = {at for at in gone if 0 <= at < len(log)} - system
    left = gone | (hidden - system)
    sent = [SentText(IN_PLACE, item) for item in beside]
    sent += [SentText("history", item) for at, item in enumerate(log) if at not in left]
    return SentContext(first, log, tuple(sorted(gone)), tuple(sent), "", unknown)
