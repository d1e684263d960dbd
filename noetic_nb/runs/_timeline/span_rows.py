"""The rows of a timeline: nothing overlaps in a row, so that parallel spans are drawn side by side.

Spans of one execution are in rows by how deep they are nested. A child execution has rows of its own below those of its parent;
children that run at the same time have different ones, and a later child takes the rows of one that is over.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from math import inf
from typing import Any, Final

# An end is read off the clock a moment after the duration was: ends and beginnings that meet may overlap by that much.
OVERLAP_MS: Final = 0.5
# Beyond so many rows beside each other spans are drawn over one another.
MOST_BESIDE: Final = 64


class Row:
    """Spans that do not overlap, by their start; `starts` and `orders` are where they begin, in time and in the order of events.

    `problems` are the places of those that did not go well.
    """

    __slots__ = ("block", "level", "orders", "problems", "spans", "starts", "until")

    def __init__(self, block: Block, level: int) -> None:
        self.block = block
        self.level = level
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

    def place(self, span: Any, level: int) -> bool:
        """Put a span into the first row of a level that is free; returns whether it is the first there."""
        while len(self.levels) <= level:
            self.levels.append([])
        rows = self.levels[level]
        for row in rows:
            if row.until <= span.start_ms + OVERLAP_MS:
                row.add(span)
                span.row = row
                return len(row.spans) == 1
        if len(rows) < MOST_BESIDE:
            rows.append(Row(self, level))
        span.row = rows[-1]
        span.row.add(span)
        return len(rows[-1].spans) == 1

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
    """Return the first block in which nothing runs, a new one where there is none."""
    for block in blocks:
        if not block.open and block.until <= start_ms + OVERLAP_MS:
            return block
    if len(blocks) < MOST_BESIDE:
        blocks.append(Block(depth, name))
    return blocks[-1]
