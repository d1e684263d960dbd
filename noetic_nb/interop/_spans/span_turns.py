"""The turns of a run made from spans: bounds, items, clock and unmapped values; and its spans that are not calls."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from noetic_nb import events as ev
from noetic_nb.events import ItemsAppended, ModelCalled, RunEvent, TurnCompleted, TurnStarted, Where
from noetic_nb.interop._spans.calls import ModelUse, ToolUse, first
from noetic_nb.interop._spans.span_messages import Call, Other, Result, SpanMessage, Text
from noetic_nb.interop._spans.span_record import Span
from noetic_nb.interop._spans.span_tree import Execution
from noetic_nb.items import Item
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.items._json_text import compact_json
from noetic_nb.items._messages.message import call, call_output, input_text, output_text, text_message
from noetic_nb.items._origins import MODEL, Participants, with_origin
from noetic_nb.redact import Redaction
from noetic_nb.runs._conversation_texts import ChosenCounter, ContextTokens


class _Part(NamedTuple):
    """The events of one turn or child, from `first` up to but not including `last`, and their times."""

    where: ev.Where
    first: int
    last: int
    start_ms: float
    end_ms: float


def with_nodes(events: Sequence[ev.RunEvent], root: Execution, redaction: Redaction) -> list[ev.RunEvent]:
    """Return the events of a recording with a step for each node, except nodes with times outside their turn."""
    found: list[tuple[int, float, int, int, ev.RunEvent]] = []
    times = [event.t_ms for event in events]
    parts: dict[ev.Where | None, list[_Part]] = {}
    for part in _parts(events):
        parts.setdefault(part.where if part.where.depth else None, []).append(part)
    for execution in _all(root):
        own = parts.get(execution.where, [])
        begins = [part.start_ms for part in own]
        paths: dict[str, tuple[int, str]] = {}
        nodes = sorted(execution.nodes, key=lambda each: (each[0].start_ns or 0, len(each[1])))
        for number, (node, around) in enumerate(nodes, 1):
            start, end = (node.start_ns or 0) / _NS_PER_MS, (node.end_ns or 0) / _NS_PER_MS
            at = bisect_right(begins, start) - 1
            if at < 0 or not start <= end <= own[at].end_ms:
                continue
            part, name = own[at], redaction.text(_name(node))
            depth, outer = next((paths[span.span_id] for span in around if span.span_id in paths), (0, ""))
            path = f"{outer}/{name.replace('/', '_')}#{number}"
            paths[node.span_id] = depth + 1, path
            begun, done = (max(part.first, min(bisect_right(times, moment), part.last)) for moment in (start, end))
            error = redaction.text(node.problem or "failed") if node.failed else None
            took, status = ((node.end_ns or 0) - (node.start_ns or 0)) / _NS_PER_MS, "error" if node.failed else "ok"
            found.append((begun, start, 1, depth, ev.StepStarted(part.where, start, name, "node", path)))
            ended = ev.StepEnded(part.where, end, name, "node", path, took, status, error)  # type: ignore[arg-type]
            # A span that ends where another begins is ended first, unless it also began there.
            found.append((done, end, 0 if end > start else 2, -depth, ended))
    merged: list[ev.RunEvent] = []
    before = 0
    for place, *_, event in sorted(found, key=lambda each: each[:4]):
        merged += events[before:place]
        merged.append(event)
        before = place
    return [*merged, *events[before:]]


def _all(execution: Execution) -> Iterator[Execution]:
    yield execution
    for entry in execution.entries:
        for child in [entry] if isinstance(entry, Execution) else getattr(entry, "children", ()):
            yield from _all(child)


def _parts(events: Sequence[ev.RunEvent]) -> Iterator[_Part]:
    begun: dict[ev.Where, int] = {}
    for at, event in enumerate(events):
        where = event.where
        if isinstance(event, ev.TurnStarted | ev.ChildStarted):
            begun[where] = at + 1
        elif isinstance(event, ev.ItemsAppended) and event.origin == "user" and begun.get(where) == at:
            begun[where] = at + 1  # a message stays together with its turn
        elif isinstance(event, ev.TurnCompleted | ev.ChildEnded) and where in begun:
            first = begun.pop(where)
            yield _Part(where, first, at, events[first - 1].t_ms, event.t_ms)


def _name(span: Span) -> str:
    """Return the name of a node, without the operation before it."""
    operation = span.text("gen_ai.operation.name")
    name = span.name.removeprefix(f"{operation} ") if operation else span.name
    return name or "node"


_NS_PER_MS: Final = 1_000_000
ESTIMATED: Final = ("t_ms", "input_tokens", "output_tokens", "status")
# The limit of unmapped values listed per source; a hostile source may contain nothing else.
_MOST_UNMAPPED: Final = 1_000
_MOST_VALUE: Final = 2_000


@dataclass(slots=True)
class Log:
    """The log of one execution while it is being written."""

    where: Where
    context: ContextTokens
    length: int = 0
    steps: int = 0
    answer: str | None = None
    # Calls without a result, by the id on their spans; each with its own id, name and arguments.
    waiting: dict[str, Item] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    results: dict[str, deque[Result]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    by_id: dict[str, list[ToolUse]] = field(default_factory=dict)
    issued: dict[str, int] = field(default_factory=dict)
    late: dict[str, list[ToolUse]] = field(default_factory=dict)


@dataclass(slots=True)
class _Turn:
    started_ms: float
    trace_id: str
    invocation: Span | None
    roots: list[Span] = field(default_factory=list)
    query: str = ""
    users: int = 0
    calls: list[ModelCalled] = field(default_factory=list)
    has_usage: bool = False
    tools: int = 0
    end_ms: float = 0.0


class TurnWriter:
    """Writes executions as events; holds the clock, the open turn, and the unmapped values."""

    def __init__(self, thread_id: str, redaction: Redaction) -> None:
        self.thread_id, self.redaction = thread_id, redaction
        self.events: list[RunEvent] = []
        self.unmapped: list[Any] = []
        self.estimated: set[str] = set()
        self.counter = ChosenCounter()
        self.policy: str | None = None
        self.models: dict[str, None] = {}
        self.params: Mapping[str, Any] | None = None
        self.participants = Participants()
        self.turn: _Turn | None = None
        self.turns = self.calls = self.children = self.plans = 0
        self.held: list[tuple[Any, Execution]] = []
        """Entries, other than calls, that came before the call that begins their turn."""
        self.now = 0.0

    def meta(self) -> dict[str, Any]:
        """Return the meta of the run, apart from its events."""
        return {
            "created_ms": self.events[0].t_ms if self.events else 0.0,
            "model": next(iter(self.models), None),
            "params": None if self.params is None else self.redaction.data(dict(self.params)),
            "policy": self.policy or "",
            "outcome": None,
            "estimated": [name for name in ESTIMATED if name in self.estimated],
            "counter": self.counter.name,
            "unmapped": self.unmapped,
        }

    def note(self, entry: Mapping[str, Any]) -> None:
        """List a value that has no place in a run."""
        if len(self.unmapped) < _MOST_UNMAPPED:
            self.unmapped.append(self.redaction.data(dict(entry)))

    def skip(self, span: Span, what: str, value: object, **more: str) -> None:
        """List a part of a span that has no place in a run."""
        self.note({"place": f"span {span.place}", "what": what, "value": str(value)[:_MOST_VALUE], **more})

    def at(self, time_ns: int | None) -> float:
        """Return a time not before the last one: clocks of several machines disagree, but a run goes forward."""
        if time_ns is None or time_ns / _NS_PER_MS < self.now:
            if time_ns is None:
                self.estimated.add("t_ms")
            return self.now
        self.now = time_ns / _NS_PER_MS
        return self.now

    def duration(self, span: Span) -> float | None:
        """Return the duration of a span in milliseconds; None if its times are missing."""
        if span.start_ns is None or span.end_ns is None or span.end_ns < span.start_ns:
            return None
        return (span.end_ns - span.start_ns) / _NS_PER_MS

    def append(self, log: Log, items: Sequence[Item], origin: Any) -> tuple[Item, ...]:
        """Add redacted items to a log; return them with their ids."""
        if not items:
            return ()
        where, start = log.where, log.length
        at, made = start, []
        for item in items:
            made.append(Item({"id": f"{where.execution_id}/i{at}", **item}))
            at += 1
        log.length = at
        log.context.add(made)
        appended = tuple(made)
        self.events.append(ItemsAppended(where, self.now, start, appended, origin))
        return appended

    def call_item(self, log: Log, call_id: str | None, name: str, arguments: Any) -> Item:
        """Make a redacted call with an id that is unique in the log, and wait for its result."""
        self.calls += 1
        given = call_id or f"call_{self.calls}"
        own, number = given, 1
        while own in log.used:
            number += 1
            own = f"{given}~{number}"
        log.used.add(own)
        text = arguments
        if not isinstance(arguments, str):
            try:
                text = compact_json({} if arguments is None else arguments)
            except (ValueError, TypeError, RecursionError):
                text = str(arguments)
        clean = self.redaction.text
        item = call(clean(name), clean(text), clean(own))
        log.waiting[given if given not in log.waiting else own] = item
        return item

    def message_items(self, log: Log, messages: Iterable[SpanMessage], span: Span, before: int = 0) -> list[Item]:
        """Return messages as redacted items, to be placed `before` items after the log's end; calls await results."""
        items: list[Item] = []
        for msg in messages:
            items += self._items_of(log, msg, span, log.length + before + len(items))
        return items

    def _items_of(self, log: Log, msg: SpanMessage, span: Span, start: int) -> list[Item]:
        clean = self.redaction.text
        others: list[Other] = []
        items: list[Item] = []
        later: list[Item] = []
        parts: list[FrozenDict] = []
        for block in msg.blocks:
            if isinstance(block, Call):
                later.append(self.call_item(log, block.call_id, block.name, block.arguments))
            elif isinstance(block, Text):
                text = clean(block.text)
                if block.is_thought:
                    content = (FrozenDict(type="reasoning_text", text=text),)
                    items.append(Item(type="reasoning", summary=(), content=content))
                else:
                    parts.append(output_text(text) if msg.role == "assistant" else input_text(text))
            elif isinstance(block, Other):
                others.append(block)
            elif block.call_id in log.waiting:
                output = clean(block.output)
                later.append(call_output(log.waiting.pop(block.call_id)["callId"], output))
        if not parts and (label := "".join([each.label for each in others])):  # an image alone is a message too
            parts.append((output_text if msg.role == "assistant" else input_text)(clean(label)))
        where = {"item": f"{log.where.execution_id}/i{start + len(items)}"} if parts else {}
        for each in others:
            self.skip(span, "a part of a message cannot be read", each.value, **where)
        if parts:
            origin = msg.origin
            if origin is None and msg.role == "user" and not self.participants.is_user(msg.name):
                origin = MODEL
            item = text_message(msg.role, tuple(parts))
            items.append(item if origin is None or msg.role == "assistant" else with_origin(item, origin))
        items += later
        return items

    def open_turn(self, log: Log, execution: Execution, entry: Any, is_root: bool, use: ModelUse | None = None) -> None:
        """Begin a turn if this entry belongs to another turn than the last."""
        if not is_root:
            return
        asked = use.inputs.asked if use is not None and use.inputs is not None else []
        span: Span = entry if isinstance(entry, Span) else entry.span
        invocation, is_sure = execution.invocations.get(id(entry), (None, False))
        turn = self.turn
        if turn is not None:
            text = "".join([each.text for each in asked]) if asked else ""
            if invocation is None and turn.invocation is None:
                is_same = turn.trace_id == span.trace_id
            else:
                is_same = invocation is turn.invocation
            if use is None or use.inputs is None:
                begins = not is_same
            elif not asked or (is_same and is_sure and invocation is not None):
                begins = False
            elif text == turn.query and _users(use) <= turn.users:
                begins = span.trace_id != turn.trace_id
            else:
                begins = not is_same or not log.waiting
            if not begins:
                if asked and text and text != turn.query:
                    self.append(log, self.message_items(log, asked, span), "user")
                    turn.users = max(_users(use), turn.users)
                if invocation is not None and invocation not in turn.roots:
                    turn.roots.append(invocation)
                return
            self.end_turn(log, execution)
        self.begin_turn(log, span, invocation, asked, _users(use))

    def is_early(self, execution: Execution, entry: Any) -> bool:
        """Tell whether a turn begins here whose query only a later call can supply."""
        span: Span = entry if isinstance(entry, Span) else entry.span
        invocation, is_sure = execution.invocations.get(id(entry), (None, False))
        turn = self.turn
        if turn is not None and (invocation is not None or turn.invocation is not None):
            is_same = invocation is turn.invocation
        else:
            is_same = turn is not None and turn.trace_id == span.trace_id
        return not is_same and not (is_sure and invocation is not None)

    def begin_turn(self, log: Log, span: Span, invocation: Span | None, asked: list[SpanMessage], users: int) -> None:
        """Begin a turn with the user's message, or the input of the agent if no call has it."""
        self.turns += 1
        log.where = Where(self.thread_id, f"{self.thread_id}/e{self.turns}", self.turns)
        log.steps, log.answer = 0, None
        top = invocation or span
        started = self.at(top.start_ns if top.start_ns is not None else span.start_ns)
        if not asked and invocation is not None:
            asked = [each for each in asked_of(invocation) if each.role == "user" and each.text][-1:]
        turn = self.turn = _Turn(started, span.trace_id, invocation, [invocation] if invocation else [], users=users)
        items = self.message_items(log, asked, span)
        turn.query = "".join([each.text for each in asked])
        query = self.redaction.text(turn.query)
        turn_id = f"{self.thread_id}/t{self.turns}"
        self.events.append(TurnStarted(log.where, started, turn_id, log.length, log.length + len(items), query))
        self.append(log, items, "user")

    def end_turn(self, log: Log, execution: Execution) -> None:
        """End the open turn, unless its agent is still running."""
        turn = self.turn
        if turn is None:
            return
        self.turn = None
        agents = [span for span in execution.agents if span.trace_id == turn.trace_id]
        roots = turn.roots or agents[:1]
        # The spans around the agents of a workflow know neither their answer nor their totals.
        sources = [*roots, *agents] if len(roots) == 1 and roots[0] not in agents else roots
        answer = log.answer
        if answer is None:
            answer = next((text for root in sources if (text := _words(first("outputs", root)))), None)
            if answer is not None and not log.waiting:
                answer = self.redaction.text(answer)
                self.append(log, [text_message("assistant", (output_text(answer),))], "model")
        if any(root.end_ns is None for root in roots):
            return  # still running
        end_ns = max([root.end_ns or 0 for root in roots], default=0)
        failed = any(root.failed for root in roots)
        costs = [each.cost for each in turn.calls if each.cost is not None]
        sent: int | None = sum(each.input_tokens for each in turn.calls)
        made: int | None = sum(each.output_tokens for each in turn.calls)
        if not turn.has_usage:  # the totals of agents are used only if their calls have no usage
            totals = next((found for root in sources if (found := first("usage", root))), None) or {}
            if not turn.calls:  # not counted, which does not mean that nothing was spent
                sent = made = None
            sent, made = totals.get("input_tokens", sent), totals.get("output_tokens", made)
            if totals:
                self.estimated -= {"input_tokens", "output_tokens"}
            elif not turn.calls:
                self.estimated |= {"input_tokens", "output_tokens"}
        last = turn.calls[-1] if turn.calls else None
        is_done = answer is not None or (not failed and bool(roots) and not log.waiting)
        whole = [self.duration(root) for root in roots]
        duration = whole[0] if len(whole) == 1 else None
        done_ms = self.at(end_ns or None) if end_ns else self.now
        if duration is None and done_ms > turn.started_ms:
            duration = done_ms - turn.started_ms
        self.events.append(
            TurnCompleted(
                log.where,
                done_ms,
                f"{self.thread_id}/t{self.turns}",
                "failure" if failed and log.answer is None else "success" if is_done else "aborted",
                duration,
                self.redaction.text(answer or ""),
                sent,
                made,
                sum(costs) if costs else None,
                len(turn.calls),
                turn.tools,
                finish_reason=last.finish_reason if last is not None else None,
            )
        )


def _users(use: ModelUse | None) -> int:
    """Return the number of user messages that were sent."""
    messages = use.inputs.messages if use is not None and use.inputs is not None else []
    return sum(1 for msg in messages if msg.role == "user" and msg.text)


def asked_of(span: Span) -> list[SpanMessage]:
    """Return the input of an agent."""
    found = first("inputs", span)
    return [] if found is None else found.messages


def _words(messages: list[SpanMessage] | None) -> str:
    return "".join([msg.text for msg in messages or () if msg.role == "assistant"]).strip()
