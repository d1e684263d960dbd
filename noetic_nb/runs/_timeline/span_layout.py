"""Places spans in rows: beginnings, ends, and spans whose enclosing span is reported only when it ends.

Spans without a recorded start are nested by time: a tool call encloses what ran in its execution meanwhile, and a hook
the model calls of its judges.
"""

from __future__ import annotations

from bisect import insort
from typing import Any, Final, TypeAlias

from noetic_nb.events import Where
from noetic_nb.runs._timeline.span import CUT_OFF, KINDS, SIGNS, Block, DrawnTime, Row, Span, free_block, severity_of

# Kinds that are reported at their end and may enclose other spans, and the kinds that a hook may enclose.
_HOLDS: Final = frozenset({"tool", "hook"})
_OF_HOOKS: Final = frozenset({"model", "warning", "error"})
# Kinds that fail because something inside them failed, or something just before.
_FOLLOWS: Final = frozenset({"turn", "step", "child", "error"})

_Execution: TypeAlias = tuple[str, str]


class Running:
    """The state of a running execution."""

    __slots__ = (
        "answered", "asked", "base", "block", "call", "cause", "decided", "denials", "kids", "orphans", "steps", "stopped_by",
    )  # fmt: skip

    def __init__(self, block: Block, base: Span | None = None) -> None:
        self.block = block
        self.base = base
        self.orphans: dict[int, Span] = {}
        """Spans that arrived before their enclosing span."""
        self.steps: dict[str, Span] = {}
        self.kids: dict[int, Span] = {}
        """The children, by number."""
        self.call: int | None = None
        self.answered: Span | None = None
        self.asked: dict[str, int] = {}
        self.decided: tuple[str, int] | None = None
        """The newest decision on a call: its tool name, and its number in the run."""
        self.denials: dict[str, int] = {}
        """By tool, how many calls were held back and are not reported yet."""
        self.cause: Span | None = None
        """The newest failed span, until the execution continues."""
        self.stopped_by = ""
        """The layer of the regulator that stopped it."""

    @property
    def inner(self) -> Span | None:
        return next(reversed(self.steps.values())) if self.steps else self.base


class PlacedSpans:
    """Spans placed as they are reported; `Timeline` describes its fields."""

    def __init__(self, *, is_timed: bool = True) -> None:
        self.is_timed = is_timed
        self.spans: list[Span] = []
        self.time = DrawnTime()
        self.order = 0
        self.version = 0
        self.problems: list[int] = []
        self.held: list[int] = []
        self.counts: dict[str, int] = dict.fromkeys(KINDS, 0)
        self.severities = [0] * len(SIGNS)
        self.waited_ms = 0.0
        self._blocks: dict[str, list[Block]] = {}
        self._running: dict[_Execution, Running] = {}
        # The location of the previous event: most events of a turn share it.
        self._newest: tuple[Where | None, Any] = (None, None)
        self._open_roots = 0
        self._made: list[Row] = []
        self._rows: list[Row] | None = None
        self.by_call: dict[int, Span] = {}  # for linked selections
        self.by_item: dict[tuple[str, int], Span] = {}
        self.by_decision: dict[int, Span] = {}
        self.by_turn: dict[tuple[str, int], Span] = {}

    @property
    def rows(self) -> list[Row]:
        """All rows from top to bottom, threads in starting order."""
        if self._rows is None:
            self._rows = [row for blocks in self._blocks.values() for block in blocks for row in block.rows()]
        return self._rows

    def place_of(self, fields: dict[str, Any]) -> Span | None:
        """Return the most specific span for the fields of a `Selection`."""
        thread, turn = fields.get("thread_id"), fields.get("turn")
        found = self.by_decision.get(fields["decision"]) if fields.get("decision") is not None else None
        if found is None and fields.get("item") is not None and thread is not None:
            found = self.by_item.get((thread, fields["item"]))
        if found is None and fields.get("call") is not None:
            found = self.by_call.get(fields["call"])
        if found is None and turn is not None:
            if thread is not None:
                return self.by_turn.get((thread, turn))
            found = next((span for (_, number), span in self.by_turn.items() if number == turn), None)
        return found

    # Creating spans

    def _of(self, where: Where, start_ms: float) -> Running:
        known, running = self._newest
        if where is known:
            return running  # type: ignore[no-any-return]
        key = (where.thread_id, where.execution_id)
        running = self._running.get(key)
        if running is None:
            blocks = self._blocks.setdefault(where.thread_id, [])
            running = self._running[key] = Running(free_block(blocks, start_ms, 0, where.thread_id))
        self._newest = where, running
        return running

    def _begin(self, running: Running, span: Span, t_ms: float) -> None:
        span.first = span.last = self.order
        self.order += 1
        span.start_ms = span.end_ms = t_ms if self.is_timed else span.first
        for orphan in running.orphans.values() if span.kind == "turn" else ():
            span.start_ms, span.first = min(span.start_ms, orphan.start_ms), min(span.first, orphan.first)
        self._add(running, span)

    def _add(self, running: Running, span: Span) -> None:
        if self.is_timed:
            if not self._open_roots:
                self.time.runs(span.start_ms)
            self.time.began(span.start_ms)
            self.time.ran(span.end_ms)
        self.spans.append(span)
        self.counts[span.kind] += 1
        block = running.block
        if span.is_open:
            block.open += 1
        elif span.end_ms > block.until:
            block.until = span.end_ms
        if block.place(span, self._made):
            self._rows = None

    def row_of(self, span: Span) -> Row:
        return self._made[span.row]

    def _end(
        self,
        running: Running,
        span: Span,
        t_ms: float,
        duration_ms: float | None,
        status: str,
        *,
        follows: bool = False,
    ) -> None:
        """End a running span; `follows` says that its outcome is a consequence of another span's."""
        span.last = self.order
        self.order += 1
        span.end_ms = max(span.start_ms, t_ms) if self.is_timed else span.last + 1
        span.duration_ms, span.is_open = duration_ms, False
        if self.is_timed:
            self.time.ran(span.end_ms)
        self.row_of(span).closed(span)
        running.block.open -= 1
        running.block.until = max(running.block.until, span.end_ms)
        self._ended(running, span, status, follows=follows)

    def _ended(self, running: Running, span: Span, status: str, *, follows: bool = False) -> None:
        span.status = status
        severity = severity_of(status)
        if severity and not span.severity:
            span.severity = severity
            self.row_of(span).has_problem(span)
            self._judge(running, span, follows=follows)
        if not severity and span.kind == "step":
            running.cause = None

    def _judge(self, running: Running, span: Span, *, follows: bool = False) -> None:
        """Record a failed span, as a problem of its own or as a consequence of another."""
        span.follows = follows or (running.cause is not None and _is_of(span, running.cause))
        if span.follows:
            return
        running.cause = span
        insort(self.held if span.was_held else self.problems, span.at)
        self.severities[span.severity] += 1

    def _whole(
        self,
        kind: str,
        name: str,
        event: Any,
        seq: int,
        duration_ms: float | None,
        status: str,
        error: str | None = None,
        *,
        follows: bool = False,
    ) -> Span:
        """Place a span that was reported at its end; `follows` says that its outcome is a consequence of another span's."""
        start = event.t_ms - (duration_ms or 0.0)
        running = self._of(event.where, start if self.is_timed else self.order)
        parent = running.inner
        span = Span(len(self.spans), seq, kind, name, event.where, parent, 1 if parent is None else parent.level + 1)
        span.first = self.order
        span.last = self.order = self.order + 1
        span.start_ms, span.end_ms = (start, event.t_ms) if self.is_timed else (span.first, span.last)
        span.duration_ms, span.is_open, span.status, span.error = duration_ms, False, status, error
        span.severity = severity_of(status)
        if kind == "wait":  # only waits for people, not in a queue
            self.waited_ms += duration_ms or 0.0
        if parent is None:
            running.orphans[span.at] = span
        held = self._held(running, span) if self.is_timed and duration_ms and kind in _HOLDS else ()
        self._add(running, span)
        for inside in held:
            if inside.parent is parent:
                inside.parent = span
            inside.level += 1
            if running.block.place(inside, self._made):
                self._rows = None
        if span.severity:
            self._judge(running, span, follows=follows)
        return span

    def _held(self, running: Running, span: Span) -> list[Span]:
        """Remove the spans inside an enclosing span from their rows."""
        found: list[Span] = []
        levels = running.block.levels[span.level :] if span.kind == "tool" else running.block.levels[span.level :][:1]
        for level in levels:
            for row in level:
                while row.spans and row.spans[-1].start_ms >= span.start_ms and not row.spans[-1].is_open:
                    last = row.spans[-1]
                    # Layers run concurrently, and a call of the agent is not a call of a layer.
                    is_of_hook = last.kind in _OF_HOOKS and last.call is None and last.parent is span.parent
                    if span.kind == "hook" and not is_of_hook:
                        break
                    found.append(row.pop())
                if not row.spans:
                    self._rows = None
        if found:
            self.version += 1
            found.sort(key=lambda inside: inside.first)
            span.first = min(span.first, found[0].first)
        if span.kind == "tool":
            for kid in reversed(running.kids.values()):
                if kid.start_ms < span.start_ms:
                    break
                if kid.parent is span.parent:
                    kid.parent = span
        return found

    def open_end(self, span: Span) -> float:
        """Return the drawn end of a span, by the clock."""
        if not span.is_open:
            return span.end_ms
        return max(span.start_ms, self.time.until) if self.is_timed else float(self.order)


def _is_of(span: Span, cause: Span) -> bool:
    """Tell whether a failed span is a consequence of an earlier one."""
    return (
        span.kind in _FOLLOWS
        or span.kind == cause.kind == "regulator"
        or (span.status in CUT_OFF and cause.status in CUT_OFF)
        or span.holds(cause)
    )
