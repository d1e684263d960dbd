"""The life of each log item: the first call that knew it, the calls that sent it, and why others did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from msgspec import structs

from noetic_nb.events import ContextCompacted, ItemsAppended, ViewAssembled
from noetic_nb.items import Item
from noetic_nb.runs._events.run_log import placed
from noetic_nb.runs._events.selected import compacted
from noetic_nb.runs._requests.sent_request import RecordedRequest, sent_positions, sent_stretches

LEFT: Final = ("budget", "window", "summary", "compaction", "cleared")  # why items left the context
_REASONS: Final = {"over_budget": "budget", "outside_window": "window"}
Context = tuple[str, str]
Compactions = Sequence[tuple[int, ContextCompacted]]


def context_of(where: Any) -> Context:
    """Return the key of a log: a thread, and the execution of a child."""
    return where.thread_id, where.execution_id if where.depth else ""


def compactions_of(run: Any) -> Compactions:
    """Return the compactions with their places in the run; one with a new context, and no places, replaced the whole log."""
    found = compacted(run)
    if not any(event.items and not event.replaced for _, event in found):
        return found
    found, logs = [], dict[Context, list[Any]]()
    for seq, event in placed(run, ItemsAppended, ContextCompacted):
        log = logs.setdefault(context_of(event.where), [])
        if isinstance(event, ItemsAppended):
            log += [None] * (event.start - len(log))
            log[event.start :] = [item.get("role") for item in event.items]
            continue
        if event.items and not event.replaced:
            systems = [at for at, role in enumerate(log) if role == "system"]  # these are always sent
            edges = pairwise([-1, *systems, len(log)])
            whole = tuple([(before + 1, at) for before, at in edges if before + 1 < at])
            event = structs.replace(event, replaced=whole)
        found.append((seq, event))
    return found


def reason_of(event: ContextCompacted) -> str:
    return "cleared" if "clear" in f"{event.by} {event.trigger}".lower() else "compaction"


def sent_changes(before: ViewAssembled, view: ViewAssembled) -> tuple[dict[int, str], list[int]]:
    """Return the items that are no longer sent, with reasons, and the items that are newly sent."""
    was, now = sent_stretches(before), sent_stretches(view)
    return missed(view, only_in(was, now)), only_in(now, was)


def only_in(these: Sequence[range], others: Sequence[range]) -> list[int]:
    """Return the places of some stretches that others do not have; both must be in order."""
    found: list[int] = []
    at = 0
    for part in these:
        start = part.start
        while start < part.stop:
            while at < len(others) and others[at].stop <= start:
                at += 1
            other = others[at] if at < len(others) else range(part.stop, part.stop)
            found += range(start, min(part.stop, other.start))
            start = max(start, min(part.stop, other.stop))
    return found


def missed(view: ViewAssembled, places: Iterable[int]) -> dict[int, str]:
    """Return, by place, why a request lacks items."""
    fates = {fate.position: fate.reason for fate in view.fates if fate.origin == "history"}
    # A layer that leaves items out is a window, unless it writes a replacement.
    by_layer = "summary" if any(stretch.written for stretch in view.projection or ()) else "window"
    found = {}
    for at in places:
        if fates.get(at) == "hidden" or any(start <= at < stop for start, stop, _ in view.hidden):
            found[at] = by_layer
        elif at in fates:
            found[at] = _REASONS.get(fates[at], "budget")
        else:
            found[at] = "window" if at < view.floor else "budget"
    return found


@dataclass(slots=True)
class ItemLife:
    """One item of a log; calls are indices among all requests of the run."""

    item: Item
    context: Context
    position: int
    known: int  # the first call with it in the log
    last: int  # the last call with it in the log
    sent: list[tuple[int, int]] = field(default_factory=list)
    """The first and last call of each series of calls that sent it."""
    dropped: list[tuple[int, str]] = field(default_factory=list)
    """The calls that stopped sending it, and why."""

    @property
    def fate(self) -> str | None:
        """Why the last call that knew it did not send it; None if it did."""
        return None if self.sent and self.sent[-1][1] == self.last else self.dropped[-1][1] if self.dropped else None


@dataclass(slots=True)
class _Log:
    lives: list[ItemLife] = field(default_factory=list)
    first: int = 0
    view: ViewAssembled | None = None
    at: int = -1
    seq: int = -1
    # By place of an item that the last call sent, the first call of the series.
    open: dict[int, int] = field(default_factory=dict)


def item_lives(requests: Sequence[RecordedRequest], compactions: Compactions = ()) -> list[ItemLife]:
    """Return the lives of all items known to a call; unanswered requests do not count as calls."""
    logs: dict[Context, _Log] = {}
    found: list[ItemLife] = []
    by_context: dict[Context, list[tuple[int, ContextCompacted]]] = {}
    for seq, event in compactions:
        by_context.setdefault(context_of(event.where), []).append((seq, event))
    for at, request in enumerate(requests):
        if request.place is None:
            continue
        context = context_of(request.where)
        log = logs.setdefault(context, _Log())
        items = request.known or ()
        found += _forget(log, request, len(items))
        new = range(log.first + len(log.lives), request.first + len(items))
        log.lives += [ItemLife(items[place - request.first], context, place, at, at) for place in new]
        gone, come = _changes(log, request, new, by_context.get(context, ()))
        for place, reason in gone.items():
            _close(log, place)
            if log.first <= place < log.first + len(log.lives):
                log.lives[place - log.first].dropped.append((at, reason))
        for place in come:
            log.open.setdefault(place, at)
        log.view, log.at, log.seq = request.view, at, request.seq
    return [*found, *[life for log in logs.values() for life in _ended(log, 0)]]


def _changes(
    log: _Log, request: RecordedRequest, new: range, compactions: Compactions
) -> tuple[Mapping[int, str], Iterable[int]]:
    view = request.view
    if view is None:  # an imported run: all items that were not replaced
        recent = [event for seq, event in compactions if log.seq < seq < request.seq]
        replaced = {
            place: reason_of(event)
            for event in recent
            for start, stop in event.replaced
            for place in range(start, stop)
        }
        return {at: why for at, why in replaced.items() if at in log.open or at in new}, set(new) - replaced.keys()
    if log.view is None:  # the first request, or one whose log changed at an earlier place
        come = set(sent_positions(view))
        gone = missed(view, log.open.keys() - come)
    else:
        gone, more = sent_changes(log.view, view)
        come = set(more)
    return {**gone, **missed(view, [place for place in new if place not in come])}, come


def _forget(log: _Log, request: RecordedRequest, count: int) -> Iterator[ItemLife]:
    """End the items that the log no longer has, because it was restarted or rewritten from some place on."""
    if not log.lives:
        log.first = request.first
        return
    same = 0
    if request.first == log.first:
        low, high = 0, min(len(log.lives), count)
        while low < high:  # binary search, because logs share their beginnings
            middle = (low + high) // 2
            low, high = (
                (middle + 1, high) if request.log_item(log.first + middle) is log.lives[middle].item else (low, middle)
            )
        same = low
    if same < len(log.lives):
        yield from _ended(log, same)
        del log.lives[same:]
        log.first, log.view = request.first, None


def _ended(log: _Log, start: int) -> Iterator[ItemLife]:
    for life in log.lives[start:]:
        _close(log, life.position)
        life.last = max(log.at, life.known)
        yield life


def _close(log: _Log, place: int) -> None:
    since = log.open.pop(place, None)
    at = place - log.first
    if since is not None and 0 <= at < len(log.lives):
        log.lives[at].sent.append((since, log.at))


def counted(gone: Mapping[int, str]) -> dict[str, int]:
    """Count the items that left, by reason."""
    numbers = Counter(gone.values())
    return {reason: numbers[reason] for reason in LEFT if numbers[reason]}
