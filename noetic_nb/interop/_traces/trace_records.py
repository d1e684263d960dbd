"""Records of a tracing service as spans, and the runs made from them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, Final

from noetic_nb._core.long_work import counted
from noetic_nb.errors import NoeticError
from noetic_nb.interop._formats.sources import NOTHING, WRONG, Document, record, refused
from noetic_nb.interop._spans.import_spans import runs_of
from noetic_nb.interop._spans.span_messages import parsed
from noetic_nb.interop._spans.span_record import Span, SpanEvent
from noetic_nb.interop._spans.span_tree import Conversation
from noetic_nb.interop._traces import payloads
from noetic_nb.items._messages.message import mapping, shown, time_ms
from noetic_nb.runs import Run

_PARAMS: Final = ("temperature", "top_p", "max_tokens", "seed")
_RAISED: Final = re.compile(r"([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Timeout|Warning))\b(?::\s*)?")
# LangChain steps that only wrap others and do not represent an agent.
_WRAPPERS: Final = ("Runnable", "Channel", "__")
_SUMMARY: Final = "SummarizationMiddleware"  # the graph node in which LangChain summarises
# Kinds whose inputs and outputs are kept as text.
_TEXTS: Final = ("execute_tool", "retrieval", "embeddings", "evaluator", "guardrail", "rerank", "search_memory")
# A header line or a damaged one may precede the first record.
_LOOKED_AT: Final = 10
_TRACE: Final = "Traceback (most recent call last)"


@dataclass(slots=True)
class Record:
    """One record of a trace; `kind` is an operation of OpenTelemetry's conventions, "other" for structure around calls."""

    trace: str
    id: str
    parent: str | None
    name: str
    kind: str
    start: Any = None
    end: Any = None
    inputs: Any = None
    outputs: Any = None
    error: str | None = None
    thread: str | None = None
    call_id: str | None = None
    model: str | None = None
    usage: Mapping[str, int] | None = None
    cost: float | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    events: list[SpanEvent] = field(default_factory=list)
    origin: str | None = None  # the part of LangChain that made a call, if not the agent itself
    role: str | None = None  # the role of an agent, repeated by the records below it


class Trace:
    """The records of a document, further facts of each trace, and the parts without a place in a run."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.records: list[Record] = []
        self.about: dict[str, dict[str, Any]] = {}
        self.notes: list[tuple[Record, str, Any]] = []
        # Unreadable records: the place, the number of records before it, the error, and the record.
        self.faults: list[tuple[str, int, Exception, Any]] = []
        self.place = ""

    def attempt(self, place: str, value: Any, read: Callable[..., Any], *more: Any) -> Any:
        """Read a record at a place relative to its parent's; a bad record is noted and does not affect others."""
        around, self.place = self.place, f"{self.place}.{place}" if self.place else place
        try:
            if isinstance(value, NoeticError):
                raise value
            value = payloads.plain(value)
            if not isinstance(value, Mapping):
                raise TypeError(f"a record must be a mapping, not {type(value).__name__}")
            return read(self, value, *more)
        except (*WRONG, NoeticError) as error:
            self.faults.append((self.place, len(self.records), error, value))
        finally:
            self.place = around
        return None

    def add(self, made: Record) -> Record:
        self.records.append(made)
        return made

    def tell(self, trace: str, name: str, value: Any) -> None:
        """Keep a fact of a trace for its run's meta: extend lists, merge mappings, keep the first of other values."""
        if value in NOTHING:
            return
        about = self.about.setdefault(trace, {})
        known = about.get(name)
        about[name] = _joined(known, value)
        if known is not None and not isinstance(known, list) and self.records:
            others = value if isinstance(value, Mapping) else {"": value}
            held = known if isinstance(known, Mapping) else {"": known}
            for key, inner in others.items():
                if held.get(key, inner) != inner:
                    self.notes.append(
                        (self.records[-1], f"another value than the first: {name}.{key}".rstrip("."), inner)
                    )

    def rest(self, made: Record, value: Mapping[str, Any], known: frozenset[str], where: str = "") -> None:
        """Note the keys of a record that no reader uses."""
        for key, inner in value.items():
            if key not in known and inner not in NOTHING:
                self.notes.append((made, f"no place in a run: {where}{key}", inner))

    def payload(self, made: Record, value: Any, where: str) -> None:
        """Note the parts of a request, an answer or its usage, at any depth, that no reader uses."""
        self.notes += [
            (made, f"no place in a run: {where}{path}", inner) for path, inner in payloads.PAYLOAD.unread(value)
        ]

    def runs(self) -> Iterator[Callable[[], Run]]:
        made = self.records
        # Services list the newest first; of records that began together the earlier one comes first.
        times = [time for each in made if (time := _ns(each.start)) is not None]
        if times and times[0] > times[-1]:
            made = made[::-1]
        spans = self._spans(made)
        places = {id(each): place for place, each in enumerate(made)}
        notes: list[tuple[int, dict[str, Any]]] = []
        seen = set()
        for each, what, value in self.notes:
            note = {"what": what, "value": shown(value)}
            # One note is enough for a constant that every record of a trace repeats.
            if (key := (each.trace, str(note))) not in seen:
                seen.add(key)
                place = places[id(each)]
                notes.append((place, {"place": f"span {place}", **note}))
        by_trace = {each.trace: each for each in reversed(self.records)}
        for where, behind, error, value in self.faults if made else ():
            about = value if isinstance(value, Mapping) else {}
            # In the trace that it names, if that exists, or else in the trace of the record before it.
            near = by_trace.get(str(about.get("trace_id", about.get("traceId")))) or self.records[max(behind - 1, 0)]
            what = f"a record that cannot be read ({fault(error)})"
            kept = None if value is error else shown(value)
            notes.append((places[id(near)], {"place": where, "what": what, "value": kept}))
        yield from runs_of(spans, about=self.meta, notes=notes)

    def _spans(self, made: list[Record]) -> list[Span]:
        known = {(each.trace, each.id): each for each in made}
        answers = {id(each): payloads.answered(each.outputs) for each in made if each.kind == "chat"}
        issued = {
            (each.trace, name)
            for each in made
            if id(each) in answers
            for name in payloads.called(answers[id(each)].messages)
        }
        for each in made:
            above = None if each.parent is None else known.get((each.trace, each.parent))
            # Functions are often recorded without being marked as tools.
            if each.kind == "other" and above is not None and (each.trace, each.name) in issued:
                each.kind = "execute_tool"
            # The root of a trace that has an input is one request.
            if each.kind == "other" and above is None and each.inputs not in NOTHING:
                each.kind = "invoke_workflow"
        for each in made:
            for name in ("inputs", "outputs") if each.kind not in _TEXTS else ():
                # Inputs and outputs between calls are not read, because the calls repeat them, except for unknown keys.
                rest = (payloads.PAYLOAD.unread if each.kind == "other" else payloads.unread)(getattr(each, name))
                self.notes += [(each, f"no place in a run: {name}.{path}", inner) for path, inner in rest]
            if each.kind == "chat":
                self.tell(each.trace, "tools", mapping(parsed(each.inputs)).get("tools"))
            above = None if each.parent is None else known.get((each.trace, each.parent))
            is_agent = each.role is not None and (above is None or each.role == "subagent" != above.role)
            if each.kind in ("other", "invoke_workflow") and is_agent:
                each.kind = "invoke_agent"
            elif each.kind == "other" and above is not None and above.kind == "execute_tool":
                each.kind = "other" if each.name.startswith(_WRAPPERS) else "invoke_agent"
            if above is None and each.kind in ("invoke_agent", "invoke_workflow"):
                self.tell(each.trace, "agent", each.name)
            if each.kind == "chat" and answers[id(each)].others:
                self.notes.append((each, "other choices of an answer", answers[id(each)].others))
        spans = []
        for place, each in enumerate(made):
            above = None if each.parent is None else known.get((each.trace, each.parent))
            if each.kind == "chat" and above is not None and above.name.startswith(_SUMMARY):
                each.origin = "summarization"
            try:
                spans.append(_span(each, answers.get(id(each)), place))
            except WRONG as error:
                where = self.records.index(each)
                self.faults.append((f"record {where}", where + 1, error, (each.inputs, each.outputs)))
        return spans

    def meta(self, conversation: Conversation) -> dict[str, Any]:
        found: dict[str, Any] = {}
        traces = list(dict.fromkeys(span.trace_id for span in conversation.spans))
        for trace in traces:
            for name, value in self.about.get(trace, {}).items():
                found[name] = _joined(found.get(name), value)
        return {"source": self.source, "traces": traces, **{name: _data(value) for name, value in found.items()}}


def _joined(known: Any, value: Any) -> Any:
    if known is None:
        return value
    if isinstance(known, list) and isinstance(value, list):
        return [*known, *[each for each in value if each not in known]]
    return {**value, **known} if isinstance(known, Mapping) and isinstance(value, Mapping) else known


def _data(value: Any) -> Any:
    """Return a fact as data, even if it contains objects."""
    try:
        return json.loads(json.dumps(value, default=str, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return shown(value)


def entries(document: Document, *lists: str, places: Iterable[int] | None = None) -> Iterator[Any]:
    """Yield the records of a document, or of its page below a key of `lists`; an unreadable line gives its error."""
    data = document.data
    for place in (range(len(data)) if places is None else places) if document.by_line else ():
        try:
            value = record(document, place)
        except NoeticError as error:
            yield error
        else:
            yield from _rows(value, lists)
    if not document.by_line:
        yield from _rows(data, lists)


def _rows(value: Any, lists: tuple[str, ...]) -> Iterator[Any]:
    value = value if isinstance(value, list | tuple) else payloads.plain(value)
    inner = (
        next((value[key] for key in lists if isinstance(value.get(key), list)), None)
        if isinstance(value, Mapping)
        else value
    )
    if isinstance(inner, list | tuple):
        for each in inner:
            yield payloads.plain(each)
    else:
        yield value


def readers(
    source: str, is_one: Callable[[Mapping[str, Any]], bool], add: Callable[..., Any], *lists: str
) -> tuple[Callable[[Document], bool], Callable[..., Iterator[Callable[[], Run]]]]:
    """Return `looks_like` and `read` of a format; `is_one` recognises its records, `add` puts them into traces."""

    def looks_like(document: Document) -> bool:
        first = islice(entries(document, *lists), _LOOKED_AT)
        return any(isinstance(each, Mapping) and is_one(each) for each in first)

    def read(document: Document, format: str | None = None) -> Iterator[Callable[[], Run]]:
        # A run's records may be anywhere in a file, so a large file is read conversation by conversation.
        for places in _conversations(document, source, add, lists) if document.is_large else (None,):
            yield from _read(document, source, add, lists, places)

    return looks_like, read


def _conversations(
    document: Document, source: str, add: Callable[..., None], lists: tuple[str, ...]
) -> list[list[int]]:
    """Return the line numbers of each conversation."""
    groups: list[list[int]] = []
    group_of: dict[tuple[str, str | None], list[int]] = {}
    for place in range(len(document.data)):
        trace = Trace(source)
        for entry in entries(document, *lists, places=[place]):
            trace.attempt("", entry, add)
        names = [("trace", each.trace) for each in trace.records]
        names += [("thread", each.thread) for each in trace.records if each.thread is not None]
        known = [group_of[name] for name in dict.fromkeys(names) if name in group_of]
        # Unreadable lines stay with the line before them.
        group = known[0] if known else groups[-1] if groups and not names else []
        if not any(group is each for each in groups[-1:]) and not known:
            groups.append(group)
        for other in known[1:]:
            if other is not group:
                group += other
                groups = [each for each in groups if each is not other]
                group_of = {name: group if each is other else each for name, each in group_of.items()}
        group.append(place)
        group_of |= dict.fromkeys(names, group)
    return [sorted(group) for group in groups]


def _read(
    document: Document,
    source: str,
    add: Callable[[Trace, Mapping[str, Any]], None],
    lists: tuple[str, ...],
    places: list[int] | None,
) -> Iterator[Callable[[], Run]]:
    trace = Trace(source)
    for number, entry in enumerate(counted(entries(document, *lists, places=places), "records")):
        place = number if places is None or number >= len(places) else places[number]
        trace.attempt(f"{'line' if document.by_line else 'record'} {place + document.by_line}", entry, add)
    try:
        found = list(trace.runs())
    except WRONG as error:
        raise refused(document, f"it does not follow its format ({fault(error)})", index=0) from error
    if not found and trace.faults:
        where, _, first, _ = trace.faults[0]
        if isinstance(first, NoeticError):
            raise first
        index = int(where.partition(".")[0].split()[1]) - document.by_line
        raise refused(document, f"it does not follow its format ({fault(first)})", index=index) from first
    yield from found


def fault(error: Exception) -> str:
    """Return an error as short text."""
    return f"{type(error).__name__}: {str(error)[:200]}"


def text_of(value: Any) -> str | None:
    """Return a text or id, None for an empty text and any other value."""
    if value in ("", None) or isinstance(value, list | tuple | Mapping | bool):
        return None
    return str(value)[:10_000]


def _ns(value: Any) -> int | None:
    """Return a time as nanoseconds since 1970; the unit of a number is inferred from its size."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        for most, scale in ((1e11, 10**9), (1e14, 10**6), (1e17, 10**3), (9e18, 1)):
            if 0 < value < most:
                return int(value * scale)
        return None
    if isinstance(value, str) and value.isdigit():
        return _ns(int(value[:20]))
    found = time_ms(value) if isinstance(value, str | datetime) else None
    return None if found is None or found <= 0 else round(found * 1_000) * 1_000


def problem(text: str | None) -> tuple[str, str | None]:
    """Return an error's message without its stack, and its class."""
    said, mark, stack = (text or "").partition(_TRACE)
    if mark and not said.strip():
        said = next((line for line in reversed(stack.splitlines()) if line.strip()), "")
    said = said.strip()
    match = _RAISED.match(said)
    return said, None if match is None else match[1]


def _span(made: Record, answer: payloads.Answer | None, place: int) -> Span:
    about: dict[str, Any] = {**made.attributes, "gen_ai.operation.name": made.kind}
    message, kind = problem(made.error)
    failed = made.error is not None
    if made.kind == "execute_tool":
        result = payloads.Outcome(None) if made.outputs is None else payloads.outcome(made.outputs)
        about |= {
            "gen_ai.tool.name": made.name,
            "gen_ai.tool.call.id": made.call_id or result.call_id,
            "gen_ai.tool.call.arguments": payloads.arguments(made.inputs),
            "gen_ai.tool.call.result": result.text,
            "gen_ai.tool.status": "error" if result.failed else None,
        }
    else:
        answer = answer or payloads.answered(made.outputs)
        about |= {
            "gen_ai.input.messages": payloads.sent(made.inputs) or None,
            "gen_ai.output.messages": answer.messages,
            "gen_ai.agent.name": made.name,
        }
    if made.kind == "chat":
        usage = {**payloads.usage_in(made.outputs), **(made.usage or {})}
        about |= {
            "lc_source": made.origin,
            "gen_ai.request.model": made.model or (None if answer is None else answer.model),
            "gen_ai.response.finish_reasons": None if answer is None or answer.finish is None else [answer.finish],
            **{f"gen_ai.request.{name}": made.params.get(name) for name in _PARAMS},
        }
    else:
        usage = dict(made.usage or {})
    about |= {
        "gen_ai.conversation.id": made.thread,
        "operation.cost": made.cost,
        "error.type": kind if failed else None,
        **{payloads.USAGE_ATTRIBUTES[name]: value for name, value in (usage or {}).items()},
    }
    return Span(
        made.trace,
        made.id,
        made.parent,
        made.name,
        _ns(made.start),
        _ns(made.end),
        failed,
        message or ("failed" if failed else ""),
        {name: value for name, value in about.items() if value is not None},
        made.events,
        place,
    )
