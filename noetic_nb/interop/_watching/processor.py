"""A span processor that fills a run while an agent works.

The agent pays only for reading its spans. The processor never raises or waits, and writes each span once. A call is written
when its span has ended and no earlier span can still end before it; a nested agent is written when it has ended.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ErrorRaised, RunEvent, Where
from noetic_nb.interop._spans.calls import first, model_use, tool_use
from noetic_nb.interop._spans.span_record import Span, log_record
from noetic_nb.interop._spans.span_tree import CheckUse, Execution, executions
from noetic_nb.interop._spans.span_turns import ESTIMATED
from noetic_nb.interop._watching.open_spans import CALLS, MOST_PENDING, Around, LiveWriter, Node, Trace, Unit, around
from noetic_nb.interop._watching.watched_rules import Judging
from noetic_nb.redact import Redaction, redact_text, safe_logger
from noetic_nb.runs import Run

_LOG: Final = safe_logger("noetic_nb.interop")
# Bounds the memory of a process whose spans never end.
MOST_TRACES: Final = 10_000
MOST_OPEN: Final = 10_000
MOST_ERRORS: Final = 100
_OUTSIDE: Final = Where("", "", 0)
MARKED: Final = "noetic_nb.written"
MARK: Final = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": MARKED}


def watch(*, run: Run | None = None, rules: Any = None, regulator: Any = None) -> RunSpanProcessor:
    """Make a span processor that fills a run while another framework's agent works.

    Parameters
    ----------
    run : Run, optional
        The run that receives the events; a new run by default.
    rules : RuleBook or iterable of rules, optional
        Evaluated on every call after it was made; a rule book in its state at that moment. Nothing is prevented.
    regulator : Regulator, optional
        Observes every conversation, also after the fact; forked for each. Its learned user profile is used where no
        other user is known.

    Returns
    -------
    RunSpanProcessor
        With ``.run``. Add it to a tracer provider, and to a logger provider if messages are sent as log records.

    Raises
    ------
    NoeticConfigError
        ``INVALID_RUN``, ``INVALID_RULE`` or ``INVALID_REGULATION``.

    References
    ----------
    .. [1] docs/behaviour/interop.md, "Watching".

    Examples
    --------
    >>> watching = watch()
    >>> watching.run.threads
    ()
    """
    if run is not None and not isinstance(run, Run):
        raise NoeticConfigError("INVALID_RUN", "The spans must be written to a Run.", given=run, hint="Use nn.Run().")
    return RunSpanProcessor(run, rules=rules, regulator=regulator)


class RunSpanProcessor:
    """Fills a run with the data of spans as they end; made by `watch`.

    It has the methods of OpenTelemetry's span and log record processors.

    Parameters
    ----------
    run : Run, optional
        The run that receives the events; a new run by default.
    rules, regulator : optional
        As for `watch`.
    """

    def __init__(self, run: Run | None = None, *, rules: Any = None, regulator: Any = None) -> None:
        self.run: Run = Run(meta={"source": "otel", "estimated": [], "unmapped": []}) if run is None else run
        """The run so far."""
        # A new run takes the time of its first event, and is undated until then.
        self._is_undated = run is None
        is_judged = rules is not None or regulator is not None
        self._add = Judging(self.run, rules, regulator).extend if is_judged else self.run.extend
        self._redaction = Redaction()
        # The thread that ends a span writes the queue, unless another thread is writing: no agent waits for another.
        self._queue: deque[tuple[Any, Any]] = deque()
        self._writing = threading.Lock()
        self._traces: dict[int, Trace] = {}
        self._writers: dict[str, LiveWriter] = {}
        self._taken = set(self.run.threads)
        self._unnamed = self._place = self._errors = 0
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<RunSpanProcessor {self.run!r}>"

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """Register a span that begins."""
        self._queue.append((self._started, span))

    def _on_ending(self, span: Any) -> None:
        """Do nothing: a span is read after it has ended."""

    def on_end(self, span: Any) -> None:
        """Read an ended span, and write the calls that are complete."""
        self._queue.append((self._ended, span))
        self._drain()

    def on_emit(self, log_record: Any) -> None:
        """Take a log record; some dialects send messages in it."""
        self._queue.append((self._logged, log_record))

    # The method's name in log record processors before OpenTelemetry 1.35.
    emit = on_emit

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Write the calls that wait to be read; open spans stay open."""
        self._drain()
        return True

    def shutdown(self) -> None:
        """Write the calls that wait for open spans, and accept no more."""
        self._queue.append((self._closed, None))
        self._drain()

    # The rest runs in one thread at a time.

    def _drain(self) -> None:
        # Checked again after the lock is released, because another thread may have queued a span meanwhile.
        queue = self._queue
        while queue and self._writing.acquire(False):
            try:
                while queue:
                    take, value = queue.popleft()
                    if self._is_closed:
                        continue
                    try:
                        take(value)
                    except Exception as error:
                        self._failed(error)
            finally:
                self._writing.release()

    def _failed(self, error: Exception) -> None:
        """Report an internal error in the log and the run, so that the agent continues."""
        self._errors += 1
        if self._errors > MOST_ERRORS:
            return
        _LOG.warning("A span could not be read; the agent continues.", exc_info=error)
        message = redact_text(f"{type(error).__name__}: {error}")[:2_000]
        at = self.run.events[-1].t_ms if self.run.events else 0.0
        self.run.append(ErrorRaised(_OUTSIDE, at, "watch_failed", message))

    def _started(self, live: Any) -> None:
        context = live.get_span_context()
        trace = self._traces.get(context.trace_id)
        if trace is None:
            if len(self._traces) >= MOST_TRACES:
                self._close_trace(next(iter(self._traces)))
            trace = self._traces[context.trace_id] = Trace()
        elif len(trace.open) >= MOST_OPEN:
            del trace.open[next(iter(trace.open))]
        parent = live.parent
        trace.open[context.span_id] = Node(live, None if parent is None else trace.open.get(parent.span_id))

    def _logged(self, value: Any) -> None:
        found = log_record(value)
        if found is None:
            return
        trace = self._traces.get(int(found.trace_id, 16))
        node = None if trace is None else trace.open.get(int(found.span_id, 16))
        if node is not None:
            node.logs.append(found.event)

    def _ended(self, live: Any) -> None:
        context, parent = live.get_span_context(), live.parent
        is_root: bool = parent is None or parent.is_remote
        trace = self._traces.get(context.trace_id)
        if trace is None:
            trace = self._traces[context.trace_id] = Trace()
        node = trace.open.pop(context.span_id, None)
        if node is None:  # it began before this processor was added
            node = Node(live, None if parent is None else trace.open.get(parent.span_id))
            if not is_root and node.parent is None:
                trace.orphans.append(node.end(live, self._place))
                self._place += 1
                return
        span, kind = node.end(live, self._place), node.kind
        self._place += 1
        if kind != "other":
            trace.scopes.add(node.scope)
        is_alone = not (node.is_around or trace.orphans)
        if kind == "plan":
            self._take(trace, Unit(span.end_ns or node.start_ns, span.place, node, [span], around(node)))
        elif is_alone and kind in CALLS:
            self._take(trace, Unit(node.start_ns, span.place, node, [span], around(node)))
        elif kind in CALLS or node.held or trace.orphans:
            self._keep(trace, node, span, is_root)
        elif node.parent is not None:
            holder = next((outer for outer in node.above() if outer.held), None)
            if holder is not None:  # between a waiting call and the span it waits for
                holder.held.append(span)
        if kind == "agent" and (is_root or node.is_flat):
            trace.agents.append(span)
        if trace.pending:
            self._advance(trace, None)
        if not is_alone:
            for writer in [each for each in trace.writers if each.turn is not None and each.turn.invocation is span]:
                self._advance(trace, node)
                self._write_events(writer, writer.finish_turn(trace.agents))
        if is_root:
            trace.is_over = True
        if trace.is_over and not trace.open:
            self._close_trace(context.trace_id)

    def _keep(self, trace: Trace, node: Node, span: Span, is_root: bool) -> None:
        """Keep an ended call until its place in the run is known."""
        spans = [*node.held, span]
        if is_root and trace.orphans:
            spans = [*trace.orphans, *spans]
            trace.orphans = []
        starts = [each.start_ns or 0 for each in spans if each is not span] if node.held else []
        start_ns = node.start_ns if node.kind == "tool" or not starts else min(starts)
        self._take(trace, Unit(start_ns, span.place, node, spans, around(node)))

    def _take(self, trace: Trace, unit: Unit) -> None:
        """Write an ended call, unless another span has to end before it."""
        holder = unit.around.holder
        if holder is not None:
            holder.first_ns = min(unit.start_ns, holder.first_ns) if holder.held else unit.start_ns
            holder.held += unit.spans
        elif trace.pending or trace.is_blocked(unit) or self._waits_for_result(trace, unit):
            trace.add(unit)
        elif len(unit.spans) == 1 and unit.node.kind in (*CALLS, "plan"):  # the usual case
            self._write_call(trace, unit)
        else:
            self._write(trace, [unit])

    def _advance(self, trace: Trace, within: Node | None, *, everything: bool = False) -> None:
        """Write the calls that nothing can precede; with `everything` all, or those within an ended span."""
        if within is not None:
            inside = [unit for unit in trace.pending if within is unit.node or within in unit.around.nodes]
            if inside:
                trace.pending = [unit for unit in trace.pending if unit not in inside]
                self._write(trace, inside)
            return
        while trace.pending:
            size = len(trace.pending)
            if everything or size > MOST_PENDING:
                units, trace.pending = trace.pending, []
                self._write(trace, units)
                return
            stop = 1
            if trace.is_blocked(trace.pending[0]):
                return
            trace.pending[0].around.read_again()
            if self._waits_for_result(trace, trace.pending[0]):
                # A tool's answer is in the next model call, so both are written together.
                found = (place for place, unit in enumerate(trace.pending) if unit.node.kind == "model")
                stop = next(found, size) + 1
                if stop > size or trace.is_blocked(trace.pending[stop - 1]):
                    return
            units = trace.pending[:stop]
            del trace.pending[:stop]
            self._write(trace, units)

    def _waits_for_result(self, trace: Trace, unit: Unit) -> bool:
        span = unit.spans[-1]
        if unit.node.kind != "tool" or first("tool_output", span) is not None:
            return False
        return self._writer_of(trace, unit).is_waiting

    def _writer_of(self, trace: Trace, unit: Unit) -> LiveWriter:
        """Return the writer of a conversation, by the outermost span that names one, or else by trace."""
        around = unit.around
        if around.writer is not None:
            return around.writer
        found = around.conversation or unit.node.conversation
        if found:
            trace.conversation = trace.conversation or found
        name = found or trace.conversation
        writer = self._writer(f"trace {unit.spans[-1].trace_id}" if name is None else f"named {name}")
        if writer not in trace.writers:
            trace.writers.append(writer)
        if around.conversation:  # otherwise the next call may name one
            around.writer = writer
        return writer

    def _writer(self, key: str) -> LiveWriter:
        writer = self._writers.get(key)
        if writer is None:
            kind, _, name = key.partition(" ")
            if kind == "trace":
                name = "t1" if not self._unnamed else f"t{self._unnamed}"
                while name in self._taken:
                    self._unnamed += 1
                    name = f"t{self._unnamed}"
            given = self._redaction.text(name)
            thread_id, number = given, 1
            while thread_id in self._taken:  # a given run may already have a thread of this name
                number += 1
                thread_id = f"{given}~{number}"
            self._taken.add(thread_id)
            writer = self._writers[key] = LiveWriter(thread_id, self._redaction)
        return writer

    def _write(self, trace: Trace, units: list[Unit]) -> None:
        unit = units[0]
        unit.around.read_again()
        if len(units) == 1 and len(unit.spans) == 1 and unit.node.kind in (*CALLS, "plan"):
            self._write_call(trace, unit)
        else:
            writer = self._writer_of(trace, unit)
            self._write_events(writer, writer.take(_among(units)))

    def _write_call(self, trace: Trace, unit: Unit) -> None:
        """Write a call that contains no other spans."""
        writer, around, span, kind = self._writer_of(trace, unit), unit.around, unit.spans[0], unit.node.kind
        use: Any = span
        if kind == "model":
            span.before = trace.sent
            use = model_use(span)
            span.before, trace.sent = None, use.inputs
        elif kind == "tool":
            use = tool_use(span)
        elif kind == "check":
            use = CheckUse(span)
        around.execution.invocations = {id(use): around.invocation}
        self._write_events(writer, writer.call(use, around.execution))

    def _write_events(self, writer: LiveWriter, events: list[RunEvent]) -> None:
        if events and self._is_undated:
            self._is_undated = False
            if not self.run.events:
                self.run.meta["created_ms"] = events[0].t_ms
        if (about := writer.news()) is not None:
            meta = self.run.meta
            for name in ("model", "params", "policy", "outcome", "counter"):
                if not meta.get(name):
                    meta[name] = about[name]
            known = {*(meta.get("estimated") or ()), *about["estimated"]}
            meta["estimated"] = [name for name in ESTIMATED if name in known]
            meta["unmapped"] = [*(meta.get("unmapped") or ()), *about["unmapped"]]
        self._add(events)

    def _close_trace(self, trace_id: int) -> None:
        """Write the waiting calls of a trace, and end the turns that only the trace can end."""
        trace = self._traces.pop(trace_id)
        for node in trace.open.values():
            if node.held:
                trace.add(Unit(node.first_ns, self._place, node, [*node.held, node.record], Around([*node.above()])))
        self._advance(trace, None, everything=True)
        of_trace = f"trace {trace_id:032x}"
        unnamed = self._writers.pop(of_trace, None)
        for writer in trace.writers:
            if writer is unnamed or writer.is_answered:
                self._write_events(writer, writer.finish_turn(trace.agents))

    def _closed(self, _: None) -> None:
        for trace_id in list(self._traces):
            self._close_trace(trace_id)
        for writer in self._writers.values():
            self._write_events(writer, writer.finish_turn(()))
        self._is_closed = True


def _among(units: list[Unit]) -> Execution:
    """Return calls together with the calls inside them."""
    spans: dict[int, Span] = {}
    for unit in units:
        for node in unit.around.nodes:
            spans[id(node.record)] = node.record
            if node.is_busy and len(unit.spans) > 1:
                # The agent's own calls are already written, so a span inside it is its child.
                mark = Span(
                    node.record.trace_id, f"~{node.record.span_id}", node.record.span_id, "", 0, 0, False, "", MARK
                )
                spans[id(mark)] = mark
        spans.update([(id(span), span) for span in unit.spans])
    root = executions(sorted(spans.values(), key=lambda span: (span.start_ns or span.end_ns or 0, span.place)))
    root.entries = [each for each in root.entries if getattr(each, "name", "") != MARKED]
    return root
