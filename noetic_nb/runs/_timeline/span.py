"""A span of a run, or a moment: its name, its time, its outcome, and its row: nothing overlaps in one.

Spans of one execution are in rows by how deep they are nested. A child execution has rows of its own below those of its parent;
children that run at the same time have different ones, and a later child takes the rows of one that is over. Long pauses in
which nothing runs are drawn short, or days between turns would leave no room for them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from math import inf
from typing import Any, Final

from msgspec import Struct

from noetic_nb.events import SteeringDecided, Where

# Shorter pauses are part of the picture.
LEAST_PAUSE_MS: Final = 1_000.0
# What stays of a pause, of the longest stretch without one so far: only of what was, so that a picture that grows keeps its form.
PAUSE_SHARE: Final = 0.1


class DrawnTime:
    """Times of the run's clock as milliseconds that are drawn, from 0, and back."""

    def __init__(self) -> None:
        self.origin: float | None = None
        self.until: float = 0.0
        self.pauses: list[tuple[float, float, float]] = []
        """Of every pause that is shortened: where it is drawn, from and to, and its length in ms."""
        self._begin = 0.0
        self._longest = 0.0
        self._times: list[float] = []
        self._places: list[float] = []

    def runs(self, start: float) -> None:
        """Take the start of something before which nothing ran."""
        if self.origin is None:
            self.origin = self.until = self._begin = start
            return
        pause = start - self.until
        kept = max(self._longest * PAUSE_SHARE, LEAST_PAUSE_MS / 10)
        if self._longest <= 0 or pause <= max(LEAST_PAUSE_MS, 2 * kept):
            return
        begin = self.drawn(self.until)
        self.pauses.append((begin, begin + kept, pause))
        self._times += [self.until, start]
        self._places += [begin, begin + kept]
        self._begin = self.until = start

    def began(self, start: float) -> None:
        """Note the start of a span, which may be before all others: its end is the recorded time."""
        if self.origin is not None and start < self.origin and not self.pauses:
            self.origin = self._begin = start

    def ran(self, end: float) -> None:
        """Take a moment until which something ran."""
        if self.origin is None:
            self.origin = self._begin = end
        if end > self.until:
            self.until = end
            self._longest = max(self._longest, end - self._begin)

    @property
    def end(self) -> float:
        """Where the newest moment is drawn."""
        return 0.0 if self.origin is None else self.drawn(self.until)

    def drawn(self, time: float) -> float:
        """Return where a time is drawn."""
        at = bisect_right(self._times, time)
        if not at:
            return max(0.0, time - (self.origin or 0.0))
        before, place = self._times[at - 1], self._places[at - 1]
        if at % 2:  # inside of a pause
            after, end = self._times[at], self._places[at]
            return place + (time - before) / (after - before) * (end - place)
        return place + time - before

    def clock(self, place: float) -> float:
        """Return the time that is drawn at a place."""
        at = bisect_right(self._places, place)
        if not at:
            return place + (self.origin or 0.0)
        before, time = self._places[at - 1], self._times[at - 1]
        if at % 2:
            after, end = self._places[at], self._times[at]
            return time + (place - before) / (after - before) * (end - time)
        return time + place - before


def duration_text(ms: float | None) -> str:
    """Return a duration for people; one that nobody knows is empty."""
    if ms is None:
        return ""
    if ms < 999.5:
        return f"{ms:.2f}".rstrip("0").rstrip(".") + " ms" if ms < 1 else f"{ms:.2g} ms" if ms < 10 else f"{ms:.0f} ms"
    seconds = ms / 1_000
    if seconds < 59.995:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d} h" if hours < 24 else f"{hours // 24} d {hours % 24} h"


# An end is read off the clock a moment after the duration was: ends and beginnings that meet may overlap by that much.
OVERLAP_MS: Final = 0.5
# Beyond so many rows beside each other spans are drawn over one another.
MOST_BESIDE: Final = 64


class Row:
    """Spans that do not overlap; `starts` and `orders` are their beginnings, `problems` the places of those that failed."""

    __slots__ = ("at", "block", "level", "orders", "problems", "spans", "starts", "until")

    def __init__(self, block: Block, level: int, at: int) -> None:
        self.block = block
        self.level = level
        self.at = at
        self.spans: list[Any] = []
        self.starts: list[float] = []
        self.orders: list[int] = []
        self.problems: list[int] = []
        self.until = -inf

    def add(self, span: Any) -> None:
        """Add a span behind the others."""
        spans, start, first = self.spans, span.start_ms, span.first
        if span.severity:
            self.problems.append(len(spans))
        if spans:  # never before the one in front of it, or it could not be searched
            before, order = self.starts[-1], self.orders[-1]
            start, first = before if before > start else start, order if order > first else first
        spans.append(span)
        self.starts.append(start)
        self.orders.append(first)
        until = inf if span.is_open else span.end_ms
        if until > self.until:
            self.until = until

    def pop(self) -> Any:
        """Take the last span out."""
        span = self.spans.pop()
        self.starts.pop()
        self.orders.pop()
        if self.problems and self.problems[-1] == len(self.spans):
            self.problems.pop()
        self.until = self.spans[-1].end_ms if self.spans else -inf
        return span

    def closed(self, span: Any) -> None:
        """Take the end of a span, the last of the row."""
        self.until = max(self.starts[-1], span.end_ms)

    def has_problem(self, span: Any) -> None:
        """Note that a span has not gone well."""
        place = bisect_left(self.orders, span.first)
        while self.spans[place] is not span:
            place += 1
        at = bisect_left(self.problems, place)
        if self.problems[at : at + 1] != [place]:
            insort(self.problems, place)


class Block:
    """The rows of one execution after another, with those of their children below."""

    __slots__ = ("children", "depth", "levels", "name", "open", "until")

    def __init__(self, depth: int = 0, name: str | None = None) -> None:
        self.depth = depth
        self.name = name
        self.levels: list[list[Row]] = []
        self.children: list[Block] = []
        self.open = 0
        self.until = -inf

    def place(self, span: Any, made: list[Row]) -> bool:
        """Put a span into the first row of its level that is free, or a new one, also in `made`; tells whether it was empty."""
        while len(self.levels) <= span.level:
            self.levels.append([])
        rows, free = self.levels[span.level], span.start_ms + OVERLAP_MS
        for row in rows:
            if row.until <= free:
                break
        else:
            if len(rows) < MOST_BESIDE:
                rows.append(Row(self, span.level, len(made)))
                made.append(rows[-1])
            row = rows[-1]
        row.add(span)
        span.row = row.at
        return len(row.spans) == 1

    def beside(self, start_ms: float) -> Block:
        """Return the rows for a child that begins: the first in which none runs."""
        return free_block(self.children, start_ms, self.depth + 1)

    def rows(self) -> Iterator[Row]:
        """Return all rows from above."""
        for level in self.levels:
            yield from [row for row in level if row.spans]
        for child in self.children:
            yield from child.rows()


def free_block(blocks: list[Block], start_ms: float, depth: int, name: str | None = None) -> Block:
    """Return the first block in which nothing runs, a new one if there is none."""
    for block in blocks:
        if not block.open and block.until <= start_ms + OVERLAP_MS:
            return block
    if len(blocks) < MOST_BESIDE:
        blocks.append(Block(depth, name))
    return blocks[-1]


KINDS: Final = (
    "turn",
    "step",
    "child",
    "model",
    "tool",
    "hook",
    "decision",
    "wait",
    "compaction",
    "regulator",
    "error",
    "warning",
)
"""Kinds of spans."""
MOMENTS: Final = ("compaction", "regulator", "error", "warning")  # those that have no duration

SIGNS: Final = ("", "⊘", "◔", "✕")
"""What stands at a span beside its word: nothing, kept from going on, out of time, failed."""
_SEVERITY: Final = {
    **dict.fromkeys(("deny", "guide", "denied", "guided", "refused", "nobody"), 1),
    **dict.fromkeys(("aborted", "cancelled", "stopped", "unfinished"), 1),
    "timeout": 2,
    **dict.fromkeys(("error", "failure", "invalid_args", "invalid_result", "unknown"), 3),
}
CUT_OFF: Final = frozenset({"cancelled", "unfinished"})  # statuses of what something else ended


def severity_of(status: str) -> int:
    """Return which of `SIGNS` a status has: 0 went well, or runs."""
    return _SEVERITY.get(status, 0)


class Span(Struct, eq=False, gc=False):
    """Something that took time, or a moment; none is part of a circle, and the collector is spared the many of a long run.

    Attributes
    ----------
    at : int
        Its number among the spans of the timeline.
    seq : int
        The number of its event in the run; of what has two, the first that was seen.
    kind, name, status : str
        One of `KINDS`, what it is called, and how it ended: ``running`` while it has not.
    parent : Span or None
        What it is part of.
    start_ms, end_ms : float
        From where to where it is drawn, by the run's clock; without one in the order of events.
    duration_ms : float or None
        As measured; None if it is unknown, and while it runs.
    first, last : int
        The same in the order of events.
    follows : bool
        Whether it ended as it did because another span of the timeline did.
    call, item, decision : int or None
        The model call, the place in the log and the steering decision that it belongs to.
    decided : SteeringDecided or None
        That decision where this span made it.
    row : int
        The number of its row among those that were made.
    """

    at: int
    seq: int
    kind: str
    name: str
    where: Where
    parent: Span | None
    level: int
    start_ms: float = 0.0
    end_ms: float = 0.0
    first: int = 0
    last: int = 0
    duration_ms: float | None = None
    status: str = "running"
    severity: int = 0
    is_open: bool = True
    error: str | None = None
    follows: bool = False
    call: int | None = None
    item: int | None = None
    decision: int | None = None
    decided: SteeringDecided | None = None
    row: int = -1

    @property
    def look(self) -> tuple[str, str]:
        """Its kind and name in a picture: a hook that decided is that decision."""
        if self.decided is None or self.kind != "hook":
            return self.kind, self.name
        return "decision", self.decided.tool_name or "a response"

    @property
    def depth(self) -> int:
        """How many spans it is inside of."""
        depth, around = 0, self.parent
        while around is not None:
            depth, around = depth + 1, around.parent
        return depth

    @property
    def was_held(self) -> bool:
        """Whether a rule, a person or the regulator kept it from going on, which is no failure."""
        return self.severity == 1 and self.status != "unfinished"

    def holds(self, other: Span) -> bool:
        """Return whether another span is part of it."""
        around = other.parent
        while around is not None and around is not self:
            around = around.parent
        return around is self
