"""Spans and moments of a run: name, time and outcome; and the rows in which spans never overlap.

Spans of one execution are in rows by nesting depth. A child execution has its own rows below its parent's; concurrent
children have different rows, and a later child reuses the rows of one that has ended. Long pauses are drawn short,
because days between turns would leave no room for the rest.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from math import inf
from typing import Any, Final

from msgspec import Struct

from noetic_nb.events import SteeringDecided, Where

# Shorter pauses are drawn in full.
LEAST_PAUSE_MS: Final = 1_000.0
# Drawn share of a pause, relative to the longest stretch without a pause so far; later events never change drawn pauses.
PAUSE_SHARE: Final = 0.1


class DrawnTime:
    """Maps times of the run's clock to drawn milliseconds, from 0, and back."""

    def __init__(self) -> None:
        self.origin: float | None = None
        self.until: float = 0.0
        self.pauses: list[tuple[float, float, float]] = []
        """Each shortened pause: where it is drawn (from, to), and its length in ms."""
        self._begin = 0.0
        self._longest = 0.0
        self._times: list[float] = []
        self._places: list[float] = []

    def runs(self, start: float) -> None:
        """Note a start at a time when nothing else is running."""
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
        """Note the start of a span; it may be the earliest, because starts are computed from recorded ends."""
        if self.origin is not None and start < self.origin and not self.pauses:
            self.origin = self._begin = start

    def ran(self, end: float) -> None:
        """Note that something ran until a time."""
        if self.origin is None:
            self.origin = self._begin = end
        if end > self.until:
            self.until = end
            self._longest = max(self._longest, end - self._begin)

    @property
    def end(self) -> float:
        """The drawn position of the newest moment."""
        return 0.0 if self.origin is None else self.drawn(self.until)

    def drawn(self, time: float) -> float:
        at = bisect_right(self._times, time)
        if not at:
            return max(0.0, time - (self.origin or 0.0))
        before, place = self._times[at - 1], self._places[at - 1]
        if at % 2:  # inside a pause
            after, end = self._times[at], self._places[at]
            return place + (time - before) / (after - before) * (end - place)
        return place + time - before

    def clock(self, place: float) -> float:
        at = bisect_right(self._places, place)
        if not at:
            return place + (self.origin or 0.0)
        before, time = self._places[at - 1], self._times[at - 1]
        if at % 2:
            after, end = self._places[at], self._times[at]
            return time + (place - before) / (after - before) * (end - time)
        return time + place - before


def duration_text(ms: float | None) -> str:
    """Format a duration; empty if unknown."""
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


# The end is read from the clock shortly after the duration, so adjacent spans may overlap by this much.
OVERLAP_MS: Final = 0.5
# With more concurrent rows than this, spans are drawn over each other.
MOST_BESIDE: Final = 64


class Row:
    """Spans that do not overlap; `starts` and `orders` are their beginnings, `problems` the places of failed ones."""

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
        spans, start, first = self.spans, span.start_ms, span.first
        if span.severity:
            self.problems.append(len(spans))
        if spans:  # keep the starts sorted for binary search
            before, order = self.starts[-1], self.orders[-1]
            start, first = before if before > start else start, order if order > first else first
        spans.append(span)
        self.starts.append(start)
        self.orders.append(first)
        until = inf if span.is_open else span.end_ms
        if until > self.until:
            self.until = until

    def pop(self) -> Any:
        span = self.spans.pop()
        self.starts.pop()
        self.orders.pop()
        if self.problems and self.problems[-1] == len(self.spans):
            self.problems.pop()
        self.until = self.spans[-1].end_ms if self.spans else -inf
        return span

    def closed(self, span: Any) -> None:
        """Note the end of the last span in the row."""
        self.until = max(self.starts[-1], span.end_ms)

    def has_problem(self, span: Any) -> None:
        """Note that a span has failed."""
        place = bisect_left(self.orders, span.first)
        while self.spans[place] is not span:
            place += 1
        at = bisect_left(self.problems, place)
        if self.problems[at : at + 1] != [place]:
            insort(self.problems, place)


class Block:
    """The rows of successive executions, with those of their children below."""

    __slots__ = ("children", "depth", "levels", "name", "open", "until")

    def __init__(self, depth: int = 0, name: str | None = None) -> None:
        self.depth = depth
        self.name = name
        self.levels: list[list[Row]] = []
        self.children: list[Block] = []
        self.open = 0
        self.until = -inf

    def place(self, span: Any, made: list[Row]) -> bool:
        """Put a span into the first free row of its level, or a new row (added to `made`); returns whether the row was empty."""
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
        """Return the rows for a new child: the first block in which nothing runs."""
        return free_block(self.children, start_ms, self.depth + 1)

    def rows(self) -> Iterator[Row]:
        """Yield all rows from top to bottom."""
        for level in self.levels:
            yield from [row for row in level if row.spans]
        for child in self.children:
            yield from child.rows()


def free_block(blocks: list[Block], start_ms: float, depth: int, name: str | None = None) -> Block:
    """Return the first block in which nothing runs, or a new one."""
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
MOMENTS: Final = ("compaction", "regulator", "error", "warning")  # spans without a duration

SIGNS: Final = ("", "⊘", "◔", "✕")
"""The sign of a span beside its name: none, held back, out of time, failed."""
_SEVERITY: Final = {
    **dict.fromkeys(("deny", "guide", "denied", "guided", "refused", "nobody"), 1),
    **dict.fromkeys(("aborted", "cancelled", "stopped", "unfinished"), 1),
    "timeout": 2,
    **dict.fromkeys(("error", "failure", "invalid_args", "invalid_result", "unknown"), 3),
}
CUT_OFF: Final = frozenset({"cancelled", "unfinished"})  # statuses of spans that ended because something else did


def severity_of(status: str) -> int:
    """Return the index in `SIGNS` for a status: 0 for success or running."""
    return _SEVERITY.get(status, 0)


class Span(Struct, eq=False, gc=False):
    """A span of time or a moment; without reference cycles and `gc=False`, because a long run has many.

    Attributes
    ----------
    at : int
        Its index among the spans of the timeline.
    seq : int
        The number of its event in the run; the first event if it has two.
    kind, name, status : str
        One of `KINDS`, its name, and its outcome: ``running`` until it ends.
    parent : Span or None
        The enclosing span.
    start_ms, end_ms : float
        Where it is drawn, by the run's clock; without a clock, by the order of events.
    duration_ms : float or None
        As measured; None if unknown, and while it runs.
    first, last : int
        Start and end in the order of events.
    follows : bool
        Whether its outcome is a consequence of another span's.
    call, item, decision : int or None
        The model call, the log place and the steering decision that it belongs to.
    decided : SteeringDecided or None
        The decision that this span made.
    row : int
        The index of its row, in order of creation.
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
        """Its kind and name in a picture: a hook with a decision is shown as the decision."""
        if self.decided is None or self.kind != "hook":
            return self.kind, self.name
        return "decision", self.decided.tool_name or "a response"

    @property
    def depth(self) -> int:
        """The number of enclosing spans."""
        depth, around = 0, self.parent
        while around is not None:
            depth, around = depth + 1, around.parent
        return depth

    @property
    def was_held(self) -> bool:
        """Whether a rule, a person or the regulator held it back, which is not a failure."""
        return self.severity == 1 and self.status != "unfinished"

    def holds(self, other: Span) -> bool:
        """Tell whether another span is inside this one."""
        around = other.parent
        while around is not None and around is not self:
            around = around.parent
        return around is self
