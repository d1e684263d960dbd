"""What ran when: the events of a run as nested spans, grown event by event.

Most events are written when something is over, with its duration: their start is counted back from there. What has no start of
its own is nested by time: a tool call holds what ran in its execution meanwhile, a hook the model calls of its judges.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeAlias

from noetic_nb.events import (
    ChildEnded,
    ChildStarted,
    ErrorRaised,
    ItemsAppended,
    MemoryTraceSpan,
    ModelCalled,
    RegulatorDecided,
    RunEvent,
    SteeringDecided,
    StepEnded,
    StepStarted,
    ToolCalled,
    TurnCompleted,
    TurnStarted,
    WarningRaised,
    Where,
)
from noetic_nb.runs.drawn_time import DrawnTime
from noetic_nb.runs.span_rows import Block, Row, free_block

__all__ = ["KINDS", "SIGNS", "Span", "Timeline", "has_clock", "severity_of"]

KINDS: Final = ("turn", "step", "child", "model", "tool", "hook", "decision", "wait", "regulator", "error", "warning")
"""Kinds of spans. The last three are moments: they have no duration."""

SIGNS: Final = ("", "⊘", "◔", "✕")
"""What stands at a span beside its word: nothing, kept from going on, out of time, failed."""
_SEVERITY: Final = {
    **dict.fromkeys(("deny", "guide", "denied", "guided", "refused", "nobody"), 1),
    **dict.fromkeys(("aborted", "cancelled", "stopped", "unfinished"), 1),
    "timeout": 2,
    **dict.fromkeys(("error", "failure", "invalid_args", "invalid_result", "unknown"), 3),
}
# Error kinds that say time was up.
_OUT_OF_TIME: Final = frozenset({"hook_timeout", "channel_timeout", "timeout"})

# What a hook may hold.
_OF_HOOKS: Final = frozenset({"model", "warning", "error"})

_Execution: TypeAlias = tuple[str, str]


def severity_of(status: str) -> int:
    """Return which of `SIGNS` a status has: 0 went well, or runs."""
    return _SEVERITY.get(status, 0)


def has_clock(run: Any) -> bool:
    """Return whether the times of a run were measured; of imported messages often only the order is known."""
    return "t_ms" not in (getattr(run, "meta", {}).get("estimated") or ())


class Span:
    """Something that took time, or a moment.

    Attributes
    ----------
    at : int
        Its number among the spans of the timeline.
    seq : int
        The number of its event in the run; of what has two, the first that was seen.
    kind, name, status : str
        One of `KINDS`, what it is called, and how it ended: ``running`` while it has not.
    start_ms, end_ms : float
        From where to where it is drawn, by the run's clock; without one in the order of events.
    duration_ms : float or None
        As measured; None where nobody knows it, and while it runs.
    first, last : int
        The same in the order of events.
    parent : Span or None
        What it is part of.
    call, item, decision : int or None
        The model call, the place in the log and the steering decision that it belongs to.
    """

    __slots__ = (
        "at", "call", "decision", "duration_ms", "end_ms", "error", "first", "is_open", "item", "kind", "last", "level",
        "name", "parent", "row", "seq", "severity", "start_ms", "status", "where",
    )  # fmt: skip

    row: Row

    def __init__(self, at: int, seq: int, kind: str, name: str, where: Where, parent: Span | None, level: int) -> None:
        self.at, self.seq, self.kind, self.name, self.where = at, seq, kind, name, where
        self.parent, self.level = parent, level
        self.start_ms = self.end_ms = 0.0
        self.first = self.last = 0
        self.duration_ms: float | None = None
        self.status, self.severity, self.is_open = "running", 0, True
        self.call: int | None = None
        self.item: int | None = None
        self.decision: int | None = None
        self.error: str | None = None

    @property
    def depth(self) -> int:
        """How many spans it is inside of."""
        depth, around = 0, self.parent
        while around is not None:
            depth, around = depth + 1, around.parent
        return depth


class _Running:
    """What is known of one execution while it runs."""

    __slots__ = ("answered", "asked", "base", "block", "call", "decided", "kids", "orphans", "steps")

    def __init__(self, block: Block, base: Span | None = None) -> None:
        self.block = block
        self.base = base
        self.orphans: list[Span] = []
        """Spans that came before what they are part of."""
        self.steps: dict[str, Span] = {}
        self.kids: list[Span] = []
        self.call: int | None = None
        self.answered: Span | None = None
        self.asked: dict[str, int] = {}
        self.decided: tuple[str, int] | None = None
        """The newest decision on a call: the name of its tool, and its number in the run."""

    @property
    def inner(self) -> Span | None:
        """What runs, the innermost."""
        return next(reversed(self.steps.values())) if self.steps else self.base


class Timeline:
    """The spans of a run, grown with `take`.

    Parameters
    ----------
    is_timed : bool, default True
        Whether the clock of the run is to be believed; without it the order of events is all there is.

    Attributes
    ----------
    spans : list of Span
        In the order in which they were seen.
    time : DrawnTime
        Where times are drawn.
    order : int
        How many moments there are in the order of events.
    version : int
        Grows when spans are moved to other rows.
    counts, severities : dict of str to int, list of int
        How many spans there are of each of `KINDS`, and with each of `SIGNS`.
    waited_ms : float
        How long people were waited for.

    Examples
    --------
    >>> timeline = Timeline()
    >>> where = Where("t1", "e1", 1)
    >>> for seq, event in enumerate([
    ...     TurnStarted(where, 100.0, "u1", 0, 1, "Hi"),
    ...     StepStarted(where, 101.0, "ask", "llm", "/ask#1"),
    ...     ModelCalled(where, 110.0, 1, "fast", "agent", 8.0, "ok"),
    ...     StepEnded(where, 111.0, "ask", "llm", "/ask#1", 10.0, "ok"),
    ...     TurnCompleted(where, 112.0, "u1", "success", 12.0, "Hello", 9, 2, 0.0, 1, 0),
    ... ]):
    ...     _ = timeline.take(event, seq)
    >>> [(span.kind, span.name, span.start_ms, span.duration_ms, span.depth) for span in timeline.spans]
    [('turn', 'turn 1', 100.0, 12.0, 0), ('step', 'ask', 101.0, 10.0, 1), ('model', 'fast', 102.0, 8.0, 2)]
    """

    reads: ClassVar[frozenset[type[Any]]] = frozenset()
    """The types of the events that it has a use for."""

    def __init__(self, *, is_timed: bool = True) -> None:
        self.is_timed = is_timed
        self.spans: list[Span] = []
        self.time = DrawnTime()
        self.order = 0
        self.version = 0
        self.problems: list[int] = []
        """Numbers of the spans that did not go well."""
        self.counts: dict[str, int] = dict.fromkeys(KINDS, 0)
        self.severities = [0] * len(SIGNS)
        self.waited_ms = 0.0
        self._blocks: dict[str, list[Block]] = {}
        self._running: dict[_Execution, _Running] = {}
        self._open_roots = 0
        self._rows: list[Row] | None = None
        # For the linked selection.
        self.by_call: dict[int, Span] = {}
        self.by_item: dict[tuple[str, int], Span] = {}
        self.by_decision: dict[int, Span] = {}
        self.by_turn: dict[tuple[str, int], Span] = {}

    def take(self, event: RunEvent, seq: int, call: int | None = None) -> bool:
        """Read one event, with its number in the run and among the agent's model calls; returns whether a span changed."""
        handler = _TAKES.get(type(event))
        return handler is not None and handler(self, event, seq, call) is not False

    @property
    def rows(self) -> list[Row]:
        """All rows, from above: threads in the order in which they began."""
        if self._rows is None:
            self._rows = [row for blocks in self._blocks.values() for block in blocks for row in block.rows()]
        return self._rows

    def place_of(self, fields: dict[str, Any]) -> Span | None:
        """Return the span that a choice of `Selection` names, the most exact that there is."""
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

    # How spans are made

    def _of(self, where: Where, start_ms: float) -> _Running:
        key = (where.thread_id, where.execution_id)
        running = self._running.get(key)
        if running is None:
            blocks = self._blocks.setdefault(where.thread_id, [])
            running = self._running[key] = _Running(free_block(blocks, start_ms, 0, where.thread_id))
        return running

    def _begin(self, running: _Running, span: Span, t_ms: float) -> None:
        """Place a span that goes on."""
        span.first = span.last = self.order
        self.order += 1
        span.start_ms = span.end_ms = t_ms if self.is_timed else span.first
        for orphan in running.orphans if span.kind == "turn" else ():
            span.start_ms, span.first = min(span.start_ms, orphan.start_ms), min(span.first, orphan.first)
        self._add(running, span)

    def _add(self, running: _Running, span: Span) -> None:
        if self.is_timed:
            if not self._open_roots:
                self.time.runs(span.start_ms)
            self.time.began(span.start_ms)
            self.time.ran(span.end_ms)
        self.spans.append(span)
        self.counts[span.kind] += 1
        if span.is_open:
            running.block.open += 1
        else:
            running.block.until = max(running.block.until, span.end_ms)
        if running.block.place(span, span.level):
            self._rows = None

    def _end(self, running: _Running, span: Span, t_ms: float, duration_ms: float | None, status: str) -> None:
        """Close a span that went on."""
        span.last = self.order
        self.order += 1
        span.end_ms = max(span.start_ms, t_ms) if self.is_timed else span.last + 1
        span.duration_ms, span.is_open = duration_ms, False
        if self.is_timed:
            self.time.ran(span.end_ms)
        span.row.closed(span)
        running.block.open -= 1
        running.block.until = max(running.block.until, span.end_ms)
        self._ended(span, status)

    def _ended(self, span: Span, status: str) -> None:
        span.status = status
        severity = severity_of(status)
        if severity and not span.severity:
            insort(self.problems, span.at)
            self.severities[severity] += 1
            span.severity = severity
            span.row.has_problem(span)

    def _whole(
        self,
        kind: str,
        name: str,
        event: Any,
        seq: int,
        duration_ms: float | None,
        status: str,
        error: str | None = None,
    ) -> Span:
        """Place a span that was reported when it was over."""
        start = event.t_ms - (duration_ms or 0.0)
        running = self._of(event.where, start if self.is_timed else self.order)
        parent = running.inner
        span = Span(len(self.spans), seq, kind, name, event.where, parent, 1 if parent is None else parent.level + 1)
        span.first = self.order
        span.last = self.order = self.order + 1
        span.start_ms, span.end_ms = (start, event.t_ms) if self.is_timed else (span.first, span.last)
        span.duration_ms, span.is_open, span.status, span.error = duration_ms, False, status, error
        span.severity = severity_of(status)
        if span.severity:
            self.problems.append(span.at)
            self.severities[span.severity] += 1
        if kind == "wait":  # not in a queue, which is no person
            self.waited_ms += duration_ms or 0.0
        if parent is None:
            running.orphans.append(span)
        held = self._held(running, span) if self.is_timed and duration_ms else ()
        self._add(running, span)
        for inside in held:
            if inside.parent is parent:
                inside.parent = span
            inside.level += 1
            if running.block.place(inside, inside.level):
                self._rows = None
        return span

    def _held(self, running: _Running, span: Span) -> list[Span]:
        """Take out of their rows what ran inside a span that is only now known."""
        if span.kind not in ("tool", "hook"):
            return []
        found: list[Span] = []
        levels = running.block.levels[span.level :] if span.kind == "tool" else running.block.levels[span.level :][:1]
        for level in levels:
            for row in level:
                while row.spans and row.spans[-1].start_ms >= span.start_ms and not row.spans[-1].is_open:
                    last = row.spans[-1]
                    # Layers are asked side by side, and a call of the agent is no call of a layer.
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
            for kid in reversed(running.kids):
                if kid.start_ms < span.start_ms:
                    break
                if kid.parent is span.parent:
                    kid.parent = span
        return found

    # Events

    def _turn_started(self, event: TurnStarted, seq: int, _call: int | None) -> None:
        running = self._of(event.where, event.t_ms if self.is_timed else self.order)
        turn = self._turn(running, event, seq)
        if event.waited_ms is not None:
            self._queued(running, turn, event.waited_ms)

    def _queued(self, running: _Running, turn: Span, waited_ms: float) -> None:
        """Place the wait of a message for the turn before its own, beside that."""
        span = Span(len(self.spans), turn.seq, "wait", f"queue for {turn.name}", turn.where, None, 0)
        span.first = self.order
        span.last = self.order = self.order + 1
        begin, end = turn.start_ms - waited_ms, turn.start_ms
        span.start_ms, span.end_ms = (begin, end) if self.is_timed else (span.first, span.last)
        span.duration_ms, span.is_open, span.status = waited_ms, False, "waited"
        self._add(running, span)

    def _turn(self, running: _Running, event: TurnStarted | TurnCompleted, seq: int) -> Span:
        where = event.where
        span = Span(len(self.spans), seq, "turn", f"turn {where.turn}", where, None, 0)
        start = event.t_ms
        if isinstance(event, TurnCompleted):
            start -= event.duration_ms or 0.0
        self._begin(running, span, start)
        for orphan in running.orphans:
            orphan.parent = span
        running.orphans.clear()
        running.base = span
        self._open_roots += 1
        self.by_turn[where.thread_id, where.turn] = span
        return span

    def _turn_completed(self, event: TurnCompleted, seq: int, _call: int | None) -> None:
        start = event.t_ms - (event.duration_ms or 0.0)
        running = self._of(event.where, start if self.is_timed else self.order)
        span = running.base
        if span is None or not span.is_open:
            span = self._turn(running, event, seq)
        self._over(running, event)
        self._open_roots -= 1
        if event.stopped is not None and span.error is None:
            kind = event.stopped.get("kind") if isinstance(event.stopped, dict) else None
            span.error = f"stopped: {kind}" if kind else None
        self._end(running, span, event.t_ms, event.duration_ms, event.outcome)

    def _over(self, running: _Running, event: TurnCompleted | ChildEnded) -> None:
        for step in reversed(running.steps.values()):  # their end was not reported
            self._end(running, step, event.t_ms, None, "unfinished")
        # Kept, as its layers are disposed of, or its answer graded, when it is over.
        running.steps.clear()
        running.asked.clear()

    def _step_started(self, event: StepStarted, seq: int, _call: int | None) -> None:
        running = self._of(event.where, event.t_ms if self.is_timed else self.order)
        around = running.steps.get(event.path.rpartition("/")[0]) or running.base
        span = Span(
            len(self.spans), seq, "step", event.step_id, event.where, around, 1 if around is None else around.level + 1
        )
        if around is None:
            running.orphans.append(span)
        self._begin(running, span, event.t_ms)
        running.steps[event.path] = span

    def _step_ended(self, event: StepEnded, seq: int, _call: int | None) -> None:
        running = self._of(event.where, event.t_ms if self.is_timed else self.order)
        span = running.steps.pop(event.path, None)
        if span is None:
            self._whole("step", event.step_id, event, seq, event.duration_ms, event.status, event.error)
            return
        span.error = event.error
        self._end(running, span, event.t_ms, event.duration_ms, event.status)

    def _child_started(self, event: ChildStarted, seq: int, _call: int | None) -> None:
        where, start = event.where, event.t_ms if self.is_timed else self.order
        around = self._of(Where(where.thread_id, event.parent_id, where.turn), start)
        parent = next((step for step in reversed(around.steps.values()) if step.name == event.step_id), around.inner)
        running = _Running(around.block.beside(start))
        self._running[where.thread_id, where.execution_id] = running
        span = Span(len(self.spans), seq, "child", event.step_id or event.step_kind, where, parent, 0)
        self._begin(running, span, event.t_ms)
        running.base = span
        around.kids.append(span)

    def _child_ended(self, event: ChildEnded, seq: int, _call: int | None) -> None:
        running = self._running.get((event.where.thread_id, event.where.execution_id))
        if running is None or running.base is None or not running.base.is_open:
            self._whole("child", event.step_id, event, seq, event.duration_ms, event.outcome)
            return
        self._over(running, event)
        self._end(running, running.base, event.t_ms, event.duration_ms, event.outcome)

    def _model_called(self, event: ModelCalled, seq: int, call: int | None) -> None:
        name = event.model if event.purpose == "agent" else f"{event.model} ({event.purpose})"
        span = self._whole("model", name, event, seq, event.duration_ms, event.status, event.error)
        if event.purpose == "agent":
            running = self._of(event.where, span.start_ms)
            running.answered, running.call, span.call = span, call, call
            if call is not None:
                self.by_call[call] = span

    def _items_appended(self, event: ItemsAppended, _seq: int, _call: int | None) -> bool:
        # A child has a log of its own, which no view shows.
        if event.origin != "model" or event.where.depth:
            return False
        running = self._running.get((event.where.thread_id, event.where.execution_id))
        if running is None:
            return False
        if running.answered is not None and event.items:
            running.answered.item = event.start
            self.by_item.setdefault((event.where.thread_id, event.start), running.answered)
            running.answered = None
        for place, item in enumerate(event.items, event.start):
            if item["type"] == "function_call":
                running.asked[str(item.get("callId"))] = place
        return False

    def _tool_called(self, event: ToolCalled, seq: int, _call: int | None) -> None:
        status = event.status
        if status == "error" and event.error_type in _OUT_OF_TIME:
            status = "timeout"  # type: ignore[assignment]
        span = self._whole("tool", event.name, event, seq, event.duration_ms, status, event.error)
        running = self._of(event.where, span.start_ms)
        span.call = running.call
        span.item = running.asked.pop(event.call_id, None)
        if span.item is not None:
            self.by_item[event.where.thread_id, span.item] = span
        if running.decided is not None and running.decided[0] == event.name:
            span.decision = running.decided[1]
        running.decided = None

    def _hook_called(self, event: MemoryTraceSpan, seq: int, _call: int | None) -> None:
        self._whole("hook", f"{event.layer_id}.{event.hook}", event, seq, event.duration_ms, event.status, event.error)

    def _decided(self, event: SteeringDecided, seq: int, _call: int | None) -> None:
        is_wait = event.layer_id == "approval"
        status = (event.outcome or event.action) if is_wait else event.action
        span = None if is_wait else self._guard(event)
        if span is None:
            name = f"{'approval of ' if is_wait else ''}{event.tool_name or 'a response'}"
            kind = "wait" if is_wait else "decision"
            span = self._whole(kind, name, event, seq, event.duration_ms, status)
        elif status != "allow" and not span.severity:
            self._ended(span, status)
        span.decision = seq
        self.by_decision[seq] = span
        running = self._of(event.where, span.start_ms)
        span.call = running.call
        if event.tool_name is not None:
            running.decided = event.tool_name, seq

    def _guard(self, event: SteeringDecided) -> Span | None:
        """Return the span of the hook that has decided: it was reported just before."""
        last = self.spans[-1] if self.spans else None
        is_it = (
            last is not None
            and last.kind == "hook"
            and last.decision is None
            and last.where == event.where
            and last.name == f"{event.layer_id}.{event.hook}"
        )
        return last if is_it else None

    def _regulator_decided(self, event: RegulatorDecided, seq: int, _call: int | None) -> bool:
        kind = event.decision.get("kind")
        if kind == "continue":
            return False
        self._whole("regulator", str(kind), event, seq, None, "stopped" if event.stops else "warned")
        return True

    def _error_raised(self, event: ErrorRaised, seq: int, _call: int | None) -> None:
        status = "timeout" if event.error_kind in _OUT_OF_TIME else "error"
        self._whole("error", event.error_kind, event, seq, None, status, event.message)

    def _warning_raised(self, event: WarningRaised, seq: int, _call: int | None) -> None:
        self._whole("warning", event.code, event, seq, None, "warned", event.text)

    def open_end(self, span: Span) -> float:
        """Return until where a span is drawn, by the clock."""
        if not span.is_open:
            return span.end_ms
        return max(span.start_ms, self.time.until) if self.is_timed else float(self.order)


_TAKES: Final[dict[type[Any], Callable[[Timeline, Any, int, int | None], Any]]] = {
    TurnStarted: Timeline._turn_started,
    TurnCompleted: Timeline._turn_completed,
    StepStarted: Timeline._step_started,
    StepEnded: Timeline._step_ended,
    ChildStarted: Timeline._child_started,
    ChildEnded: Timeline._child_ended,
    ModelCalled: Timeline._model_called,
    ItemsAppended: Timeline._items_appended,
    ToolCalled: Timeline._tool_called,
    MemoryTraceSpan: Timeline._hook_called,
    SteeringDecided: Timeline._decided,
    RegulatorDecided: Timeline._regulator_decided,
    ErrorRaised: Timeline._error_raised,
    WarningRaised: Timeline._warning_raised,
}
Timeline.reads = frozenset(_TAKES)
