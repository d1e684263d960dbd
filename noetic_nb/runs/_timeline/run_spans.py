"""Builds nested spans from a run's events; most events come at the end of a span, so its start is computed backwards."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar, Final

from noetic_nb import events as ev
from noetic_nb.runs._events.run_log import placed
from noetic_nb.runs._plain_text import size_words
from noetic_nb.runs._timeline.span import Span, severity_of
from noetic_nb.runs._timeline.span_layout import PlacedSpans, Running

# Error kinds of timeouts.
_OUT_OF_TIME: Final = frozenset({"hook_timeout", "channel_timeout", "timeout"})


def has_clock(run: Any) -> bool:
    """Tell whether the times of a run were measured; imported messages often have only an order."""
    estimated = getattr(run, "meta", {}).get("estimated")
    return not isinstance(estimated, Collection) or "t_ms" not in estimated


class Timeline(PlacedSpans):
    """The spans of a run, grown with `take`; unless the clock `is_timed`, only the order of events is used.

    `problems` and `held` list the numbers of failed spans, and of those held back by a rule, a person or the regulator.
    Spans that only fail as a consequence, such as a turn after its failed step, are in neither. `shows` filters events
    by where they happened.
    """

    reads: ClassVar[frozenset[type[Any]]] = frozenset()  # the event types that it reads

    def __init__(self, *, is_timed: bool = True, shows: Callable[[ev.Where], bool] | None = None) -> None:
        super().__init__(is_timed=is_timed)
        self._shows = shows

    @classmethod
    def of(cls, run: Any, thread_id: str | None = None) -> Timeline:
        spans = cls(is_timed=has_clock(run), shows=lambda where: thread_id in (None, where.thread_id))
        for seq, event in placed(run, *cls.reads):
            spans.take(event, seq)
        return spans

    def take(self, event: ev.RunEvent, seq: int, call: int | None = None) -> bool:
        """Read one event, given its number in the run and among the agent's model calls; returns whether a span changed."""
        handler = _TAKES.get(type(event)) if self._shows is None or self._shows(event.where) else None
        return handler is not None and handler(self, event, seq, call) is not False

    def _turn_started(self, event: ev.TurnStarted, seq: int, _call: int | None) -> None:
        running = self._of(event.where, event.t_ms if self.is_timed else self.order)
        turn = self._turn(running, event, seq)
        if event.waited_ms is not None:
            self._queued(running, turn, event.waited_ms)

    def _queued(self, running: Running, turn: Span, waited_ms: float) -> None:
        """Place the time that a message waited for the previous turn, beside that turn."""
        span = Span(len(self.spans), turn.seq, "wait", f"queue for {turn.name}", turn.where, None, 0)
        span.first = self.order
        span.last = self.order = self.order + 1
        begin, end = turn.start_ms - waited_ms, turn.start_ms
        span.start_ms, span.end_ms = (begin, end) if self.is_timed else (span.first, span.last)
        span.duration_ms, span.is_open, span.status = waited_ms, False, "waited"
        self._add(running, span)

    def _turn(self, running: Running, event: ev.TurnStarted | ev.TurnCompleted, seq: int) -> Span:
        where = event.where
        span = Span(len(self.spans), seq, "turn", f"turn {where.turn}", where, None, 0)
        start = event.t_ms
        if isinstance(event, ev.TurnCompleted):
            start -= event.duration_ms or 0.0
        self._begin(running, span, start)
        for orphan in running.orphans.values():
            orphan.parent = span
        running.orphans.clear()
        running.base = span
        self._open_roots += 1
        self.by_turn[where.thread_id, where.turn] = span
        return span

    def _turn_completed(self, event: ev.TurnCompleted, seq: int, _call: int | None) -> None:
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
        running.cause = None

    def _over(self, running: Running, event: ev.TurnCompleted | ev.ChildEnded) -> None:
        is_cut_off = severity_of(event.outcome) > 0
        for step in reversed(running.steps.values()):  # their ends were not reported
            self._end(running, step, event.t_ms, None, "unfinished", follows=is_cut_off)
        # Keep the state: layers may still be disposed of, or the answer graded.
        running.steps.clear()
        running.asked.clear()

    def _step_started(self, event: ev.StepStarted, seq: int, _call: int | None) -> None:
        running = self._of(event.where, event.t_ms if self.is_timed else self.order)
        around = running.steps.get(event.path.rpartition("/")[0]) or running.base
        span = Span(
            len(self.spans), seq, "step", event.step_id, event.where, around, 1 if around is None else around.level + 1
        )
        if around is None:
            running.orphans[span.at] = span
        self._begin(running, span, event.t_ms)
        running.steps[event.path] = span

    def _step_ended(self, event: ev.StepEnded, seq: int, _call: int | None) -> None:
        running = self._of(event.where, event.t_ms if self.is_timed else self.order)
        span = running.steps.pop(event.path, None)
        if span is None:
            self._whole("step", event.step_id, event, seq, event.duration_ms, event.status, event.error)
            return
        span.error = event.error
        self._end(running, span, event.t_ms, event.duration_ms, event.status)

    def _child_started(self, event: ev.ChildStarted, seq: int, _call: int | None) -> None:
        where, start = event.where, event.t_ms if self.is_timed else self.order
        around = self._of(ev.Where(where.thread_id, event.parent_id, where.turn), start)
        parent = next((step for step in reversed(around.steps.values()) if step.name == event.step_id), around.inner)
        running = Running(around.block.beside(start))
        self._running[where.thread_id, where.execution_id] = running
        self._newest = where, running
        span = Span(len(self.spans), seq, "child", event.step_id or event.step_kind, where, parent, 0)
        self._begin(running, span, event.t_ms)
        running.base = span
        around.kids[span.at] = span

    def _child_ended(self, event: ev.ChildEnded, seq: int, _call: int | None) -> None:
        running = self._running.get((event.where.thread_id, event.where.execution_id))
        if running is None or running.base is None or not running.base.is_open:
            self._whole("child", event.step_id, event, seq, event.duration_ms, event.outcome)
            return
        self._over(running, event)
        self._end(running, running.base, event.t_ms, event.duration_ms, event.outcome)
        around = self._running.get((event.where.thread_id, event.parent_id))
        if around is not None and running.cause is not None:
            around.cause = running.cause

    def _model_called(self, event: ev.ModelCalled, seq: int, call: int | None) -> None:
        name = event.model if event.purpose == "agent" else f"{event.model} ({event.purpose})"
        span = self._whole("model", name, event, seq, event.duration_ms, event.status, event.error)
        if event.purpose == "agent":
            running = self._of(event.where, span.start_ms)
            running.answered, running.call, span.call = span, call, call
            if not span.severity:  # the execution continues
                running.cause = None
            if call is not None:
                self.by_call[call] = span

    def _items_appended(self, event: ev.ItemsAppended, _seq: int, _call: int | None) -> bool:
        # A child has its own log, which no view shows.
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

    def _tool_called(self, event: ev.ToolCalled, seq: int, _call: int | None) -> None:
        status = event.status
        if status == "error" and event.error_type in _OUT_OF_TIME:
            status = "timeout"  # type: ignore[assignment]
        running = self._of(event.where, event.t_ms - (event.duration_ms or 0.0) if self.is_timed else self.order)
        denials = running.denials.get(event.name, 0) if status in ("denied", "guided") else 0
        was_denied = denials > 0
        if was_denied:
            running.denials[event.name] = denials - 1
        span = self._whole("tool", event.name, event, seq, event.duration_ms, status, event.error, follows=was_denied)
        span.call = running.call
        span.item = running.asked.pop(event.call_id, None)
        if span.item is not None:
            self.by_item[event.where.thread_id, span.item] = span
        if running.decided is not None and running.decided[0] == event.name:
            span.decision = running.decided[1]
        running.decided = None

    def _hook_called(self, event: ev.MemoryTraceSpan, seq: int, _call: int | None) -> None:
        self._whole("hook", f"{event.layer_id}.{event.hook}", event, seq, event.duration_ms, event.status, event.error)

    def _decided(self, event: ev.SteeringDecided, seq: int, _call: int | None) -> None:
        is_wait = event.layer_id == "approval"
        status = (event.outcome or event.action) if is_wait else event.action
        span = None if is_wait else self._guard(event)
        running = self._of(event.where, event.t_ms - (event.duration_ms or 0.0) if self.is_timed else self.order)
        if event.tool_name is not None and severity_of(status):
            running.denials[event.tool_name] = running.denials.get(event.tool_name, 0) + 1
        # When a regulator stops a turn, it denies the call that it had to decide on.
        follows = (
            running.cause is not None and running.cause.kind == "regulator" and running.stopped_by == event.layer_id
        )
        if span is None:
            name = f"{'approval of ' if is_wait else ''}{event.tool_name or 'a response'}"
            kind = "wait" if is_wait else "decision"
            span = self._whole(kind, name, event, seq, event.duration_ms, status, follows=follows)
        else:
            self.counts["hook"] -= 1
            self.counts["decision"] += 1
            if status != "allow" and not span.severity:
                self._ended(running, span, status, follows=follows)
        span.decision, span.decided = seq, event
        self.by_decision[seq] = span
        span.call = running.call
        if event.tool_name is not None:
            running.decided = event.tool_name, seq

    def _guard(self, event: ev.SteeringDecided) -> Span | None:
        """Return the span of the hook that made the decision; it was reported just before."""
        last = self.spans[-1] if self.spans else None
        is_it = (
            last is not None
            and last.kind == "hook"
            and last.decision is None
            and last.where == event.where
            and last.name == f"{event.layer_id}.{event.hook}"
        )
        return last if is_it else None

    def _regulator_decided(self, event: ev.RegulatorDecided, seq: int, _call: int | None) -> bool:
        kind = event.decision.get("kind")
        if kind == "continue":
            return False
        if not event.stops:
            self._whole("regulator", str(kind), event, seq, None, "warned")
        else:
            self._whole("regulator", str(kind), event, seq, None, "stopped", event.suggestion)
            self._of(event.where, event.t_ms).stopped_by = event.layer_id
        return True

    def _compacted(self, event: ev.ContextCompacted, seq: int, _call: int | None) -> None:
        self._whole("compaction", event.by, event, seq, None, size_words(event) or "compacted")

    def _error_raised(self, event: ev.ErrorRaised, seq: int, _call: int | None) -> None:
        status = "timeout" if event.error_kind in _OUT_OF_TIME else "error"
        self._whole("error", event.error_kind, event, seq, None, status, event.message)

    def _warning_raised(self, event: ev.WarningRaised, seq: int, _call: int | None) -> None:
        self._whole("warning", event.code, event, seq, None, "warned", event.text)


_TAKES: Final[dict[type[Any], Callable[[Timeline, Any, int, int | None], Any]]] = {
    ev.TurnStarted: Timeline._turn_started,
    ev.TurnCompleted: Timeline._turn_completed,
    ev.StepStarted: Timeline._step_started,
    ev.StepEnded: Timeline._step_ended,
    ev.ChildStarted: Timeline._child_started,
    ev.ChildEnded: Timeline._child_ended,
    ev.ModelCalled: Timeline._model_called,
    ev.ItemsAppended: Timeline._items_appended,
    ev.ToolCalled: Timeline._tool_called,
    ev.MemoryTraceSpan: Timeline._hook_called,
    ev.SteeringDecided: Timeline._decided,
    ev.RegulatorDecided: Timeline._regulator_decided,
    ev.ContextCompacted: Timeline._compacted,
    ev.ErrorRaised: Timeline._error_raised,
    ev.WarningRaised: Timeline._warning_raised,
}
Timeline.reads = frozenset(_TAKES)
