"""The drawn part of a timeline: neighbouring spans too narrow to tell apart share one bar; rows are binary-searched."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from math import floor, inf, log10
from typing import Any, Final, NamedTuple

from noetic_nb.runs._timeline.run_spans import Timeline
from noetic_nb.runs._timeline.span import Row, Span, duration_text

# How many spans of a shared bar to check for its most frequent kind, and how many failed ones for the worst.
_LOOKED_AT: Final = 16
# Milliseconds: floats resolve times since the epoch to less than a thousandth.
_LEAST: Final = 0.01
_TICKS: Final = 6


class Wanted(NamedTuple):
    """Filter for shown spans: by kinds, a text, and ``"problems"`` or ``"held"`` only; successful `hooks` on request."""

    kinds: frozenset[str] = frozenset()
    only: str = ""
    text: str = ""
    hooks: bool = True

    def takes(self, span: Span) -> bool:
        kind, _ = span.look
        if self.kinds and kind not in self.kinds:
            return False
        if kind == "hook" and not span.severity and not (self.hooks or self.kinds or self.text):
            return False
        if self.only and (not span.severity or span.follows or span.was_held != (self.only == "held")):
            return False
        return not self.text or self.text in span.name.lower() or self.text in (span.error or "").lower()


WHOLE: Final = Wanted()
QUIET: Final = Wanted(hooks=False)  # the default filter


class Bar(NamedTuple):
    """One span, or several that are too narrow to be told apart; from and to are fractions of the width."""

    start: float
    stop: float
    span: Span  # the first span
    size: int
    severity: int  # the worst severity
    kind: str  # "model" if it has a model call, otherwise the kind with the longest time


class Lane(NamedTuple):
    """A row of a window."""

    thread: str  # the thread's name, in its first row
    depth: int  # how many children enclose it
    level: int
    bars: list[Bar]


class Window(NamedTuple):
    """The drawn part of a timeline."""

    start: float
    stop: float
    lanes: list[Lane]
    first: int  # the index of the first lane among all non-empty ones
    total: int
    ticks: list[tuple[float, str]]
    pauses: list[tuple[float, str]]
    matched: int


class _Kept:
    """The rows of a timeline without filtered spans, extended as it grows."""

    def __init__(self, timeline: Timeline, wanted: Wanted) -> None:
        self.version, self.wanted = timeline.version, wanted
        self._of: dict[int, tuple[Row, list[int]]] = {}

    def of(self, row: Row) -> Row:
        """Return a copy of a row with only the wanted spans."""
        kept, read = self._of.setdefault(id(row), (Row(row.block, row.level, row.at), [0]))
        # Recheck the last span: it was open, so its status may have changed.
        begin = max(0, read[0] - 1)
        if kept.spans and read[0] and kept.spans[-1] is row.spans[begin]:
            kept.pop()
        for span in row.spans[begin:]:
            if self.wanted.takes(span):
                kept.add(span)
        read[0] = len(row.spans)
        return kept


class Windows:
    """Windows of one timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self._kept: _Kept | None = None

    def end(self, *, by_time: bool) -> float:
        """Return the end of the newest span."""
        return self.timeline.time.end if by_time and self.timeline.is_timed else float(self.timeline.order)

    def window(
        self,
        start: float = 0.0,
        stop: float = inf,
        *,
        by_time: bool = True,
        bins: int = 240,
        first: int = 0,
        lanes: int = 40,
        wanted: Wanted = WHOLE,
    ) -> Window:
        """Return the part between two positions, in at most `bins` bins and `lanes` rows, starting with row `first`."""
        by_time = by_time and self.timeline.is_timed
        end = self.end(by_time=by_time)
        start = max(0.0, min(start, end))
        stop = min(stop, end)
        if stop - start < _LEAST:
            start = max(0.0, min(start, end - _LEAST))
            stop = start + _LEAST
        rows = [row for row in self.rows(wanted) if row.spans]
        first = max(0, min(first, len(rows) - 1))
        scale = _Scale(self.timeline, start, stop, bins, by_time)
        if stop >= end:  # rounding must not lose the newest span
            scale.edges[-1] = inf
        shown, thread = [], rows[first - 1].spans[0].where.thread_id if first else None
        for row in rows[first : first + lanes]:
            name = row.spans[0].where.thread_id
            shown.append(Lane("" if name == thread else name, row.block.depth, row.level, list(scale.bars(row))))
            thread = name
        matched = len(self.timeline.spans) if wanted == WHOLE else sum([len(row.spans) for row in rows])
        pauses = [
            (scale.share((begin + till) / 2), f"pause of {duration_text(length)}")
            for begin, till, length in (self.timeline.time.pauses if by_time else ())
            if till > start and begin < stop
        ]
        return Window(start, stop, shown, first, len(rows), scale.ticks(), pauses[:_TICKS], matched)

    def rows(self, wanted: Wanted = WHOLE) -> Sequence[Row]:
        """Return the rows with the wanted spans, including empty ones."""
        rows = self.timeline.rows
        if wanted == WHOLE:
            return rows
        if self._kept is None or self._kept.wanted != wanted or self._kept.version != self.timeline.version:
            self._kept = _Kept(self.timeline, wanted)
        return [self._kept.of(row) for row in rows]

    def extent(self, span: Span, *, by_time: bool) -> tuple[float, float]:
        """Return the drawn start and end of a span."""
        if by_time and self.timeline.is_timed:
            time = self.timeline.time
            return time.drawn(span.start_ms), time.drawn(self.timeline.open_end(span))
        return span.first, max(span.first + 1, self.timeline.order if span.is_open else span.last)

    def lane_of(self, span: Span, wanted: Wanted = WHOLE) -> int | None:
        """Return the lane index of a span; None if it is filtered out."""
        if not wanted.takes(span):
            return None
        at = 0
        for row in self.rows(wanted):
            if row.at == span.row:
                return at
            at += bool(row.spans)
        return None


class _Scale:
    """The bins of a window."""

    def __init__(self, timeline: Timeline, start: float, stop: float, bins: int, by_time: bool) -> None:
        self.timeline, self.start, self.stop, self.by_time = timeline, start, stop, by_time
        self.bins = max(1, bins)
        self.wide = (stop - start) / self.bins
        places = [start + n * self.wide for n in range(self.bins + 1)]
        places[-1] = stop
        self.edges = [timeline.time.clock(place) for place in places] if by_time else places

    def share(self, place: float) -> float:
        """Return the position within the window: 0 at its start, 1 at its end."""
        return (place - self.start) / (self.stop - self.start)

    def _extent(self, span: Span) -> tuple[float, float]:
        if self.by_time:
            time = self.timeline.time
            return time.drawn(span.start_ms), time.drawn(self.timeline.open_end(span))
        return span.first, self.timeline.order if span.is_open else span.last

    def _most(self, spans: list[Span]) -> str:
        took: dict[str, float] = {}
        for span in spans:
            kind, _ = span.look
            if kind == "model":  # the actual work, and often shorter than a hook in the same bar
                return kind
            took[kind] = took.get(kind, 0.0) + (span.end_ms - span.start_ms if self.by_time else 1.0)
        return max(took, key=lambda kind: took[kind])

    def bars(self, row: Row) -> Any:
        spans, starts = row.spans, row.starts if self.by_time else row.orders
        at = max(0, bisect_left(starts, self.edges[0]) - 1)
        stop = bisect_right(starts, self.edges[-1])
        while at < stop:
            span = spans[at]
            begin, end = self._extent(span)
            if end < self.start or begin > self.stop:
                at += 1
                continue
            left, right = max(begin, self.start), min(end, self.stop)
            if right - left >= self.wide:
                yield Bar(self.share(left), self.share(right), span, 1, span.severity, span.look[0])
                at += 1
                continue
            place = min(self.bins - 1, floor((left - self.start) / self.wide))
            # Advance by at least one, because a span at the edge of a bin may fall on either side.
            after = max(at + 1, bisect_left(starts, self.edges[place + 1], at + 1, stop))
            if place == self.bins - 1:
                after = max(after, stop)
            if after - at > 1:
                last_begin, last_end = self._extent(spans[after - 1])
                if min(last_end, self.stop) - max(last_begin, self.start) >= self.wide:
                    after -= 1
            if after - at == 1:
                yield Bar(self.share(left), self.share(right), span, 1, span.severity, span.look[0])
            else:
                until = min(self._extent(spans[after - 1])[1], self.stop)
                found = _worst(row, at, after), self._most(spans[at : min(after, at + _LOOKED_AT)])
                yield Bar(self.share(left), self.share(max(until, left)), span, after - at, *found)
            at = after

    def ticks(self) -> list[tuple[float, str]]:
        """Return the positions of axis ticks with labels: time since the start of the run, or numbers."""
        span = self.stop - self.start
        step = _round_up(span / _TICKS)
        if not self.by_time:
            step = max(1.0, step)
        found: list[tuple[float, str]] = []
        place = -(-self.start // step) * step
        while place <= self.stop and len(found) <= 2 * _TICKS:
            if self.by_time:
                since = self.timeline.time.clock(place) - (self.timeline.time.origin or 0.0)
                found.append((self.share(place), duration_text(max(0.0, since)) if since else "0"))
            else:
                found.append((self.share(place), f"{place:,.0f}"))
            place += step
        return found


def _worst(row: Row, at: int, after: int) -> int:
    first = bisect_left(row.problems, at)
    last = bisect_left(row.problems, after, first)
    return max([row.spans[place].severity for place in row.problems[first : min(last, first + _LOOKED_AT)]], default=0)


def _round_up(step: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    if step <= 0:
        return 1.0
    base: float = 10.0 ** floor(log10(step))
    return next((round(base * factor, 12) for factor in (1, 2, 5) if base * factor >= step * (1 - 1e-9)), base * 10)
