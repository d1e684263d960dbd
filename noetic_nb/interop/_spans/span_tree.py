"""Spans as trees: parents, conversations, calls and checks; and the events that our exporter stored on spans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from noetic_nb.events import ModelCalled, RunEvent, Where
from noetic_nb.interop._spans.calls import (
    ModelUse,
    ToolUse,
    conversation_of,
    first,
    kind_of,
    merged,
    model_use,
    tool_use,
)
from noetic_nb.interop._spans.dialect import History, Kind
from noetic_nb.interop._spans.openinference import nested
from noetic_nb.interop._spans.span_messages import parsed
from noetic_nb.interop._spans.span_record import LogRecord, Span
from noetic_nb.items._messages.message import money
from noetic_nb.redact import Redaction
from noetic_nb.runs._events.event_json import WireError, parse_event
from noetic_nb.runs._run import Run


def is_own(span: Span) -> bool:
    """Tell whether our exporter wrote a span."""
    return "noetic.event" in span.attributes or "noetic.started" in span.attributes


def run_of_own(spans: Sequence[Span], *, run_id: str, unmapped: Sequence[Mapping[str, Any]] = ()) -> Run:
    """Return the run that our own exporter wrote as spans (docs/behaviour/interop.md), events by time and number."""
    redaction = Redaction()
    found: list[tuple[float, int, RunEvent]] = []
    strange = list(unmapped)
    for span in spans:
        for entry in _entries(span):
            try:
                number, wire = entry
                event = parse_event(redaction.data(wire))
                found.append((float(event.t_ms), int(number), event))
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                what = "an event cannot be read" if isinstance(error, WireError) else "this is not an event"
                strange.append({"place": f"span {span.place}", "what": what, "value": str(error)[:2_000]})
    found.sort(key=lambda each: each[:2])
    events = [event for _, _, event in found]
    meta = {
        "source": "otel",
        "created_ms": found[0][0] if found else 0.0,
        "model": next((event.model for event in events if isinstance(event, ModelCalled)), None),
        "params": None,
        "policy": "",
        "outcome": None,
        "estimated": [],
        "unmapped": redaction.data(strange),
    }
    return Run(redaction.text(run_id), meta=meta, events=events)


def _entries(span: Span) -> Iterator[Any]:
    before = parsed(span.attributes.get("noetic.before"))
    if isinstance(before, list):
        yield from before
    for name in ("noetic.started", "noetic.event"):
        if name in span.attributes:
            yield parsed(span.attributes[name])


# The conventions define this kind of span but no field for its verdict; these names are in use.
_PASSED: Final = ("passed", "pass", "allowed", "valid", "is_safe", "safe")
_STOPPED: Final = ("blocked", "flagged", "triggered", "tripwire_triggered", "rejected", "denied", "failed")
_REASONS: Final = ("reason", "explanation", "message", "detail", "details", "guidance", "label")
_GOOD_WORDS: Final = ("pass", "allow", "ok", "safe", "true", "valid")
_BAD_WORDS: Final = ("fail", "block", "den", "flag", "reject", "unsafe", "false", "invalid")


@dataclass(slots=True)
class CheckUse:
    """A run of a guardrail or an evaluator, with the model calls that it made."""

    span: Span
    calls: list[ModelUse] = field(default_factory=list)

    @property
    def is_guardrail(self) -> bool:
        """Whether it decides on an action; otherwise it grades an answer."""
        return self.span.attributes.get("openinference.span.kind") == "GUARDRAIL"

    def _values(self) -> Iterator[tuple[str, Any]]:
        about = self.span.attributes
        for name, value in about.items():
            yield name.rpartition(".")[2], value
        for name in ("metadata", "output.value"):
            found = parsed(about.get(name))
            if isinstance(found, Mapping):
                yield from ((str(key), value) for key, value in found.items())

    def is_passed(self) -> bool | None:
        """Return whether a guardrail allowed the action, or None if its span does not say."""
        for name, value in self._values():
            if isinstance(value, bool) and name in (*_PASSED, *_STOPPED):
                return value if name in _PASSED else not value
        said = str(self.span.attributes.get("output.value", "")).strip().lower()
        if said.startswith(_BAD_WORDS):
            return False
        return True if said.startswith(_GOOD_WORDS) else None

    def reason(self) -> str | None:
        """Return the explanation of a verdict."""
        for name, value in self._values():
            if name in _REASONS and isinstance(value, str) and value:
                return value
        return self.span.text("output.value")

    def scores(self) -> list[tuple[str, float]]:
        """Return an evaluator's grades by name; a bool becomes 1 or 0."""
        found: list[tuple[str, float]] = []
        for each in nested(self.span, "evaluations.") or ():
            score = money(each.get("evaluation.score"))
            if score is not None:
                found.append((str(each.get("evaluation.name") or self.span.name), score))
        if found:
            return found
        for name, value in self._values():
            score = float(value) if isinstance(value, bool) and name in _PASSED else money(value)
            if score is not None and name in ("score", *_PASSED):
                return [(self.span.name, score)]
        return []


_Key: TypeAlias = tuple[str, str]
# Operations that a run has no event for.
NO_PLACE: Final = frozenset(["embeddings", "embedding", "rerank", "reranker", "decision", "prompt"])
# No framework nests deeper; a hostile chain of parents must not cost quadratic time.
DEEPEST: Final = 512


def joined(spans: Iterable[Span], logs: Iterable[LogRecord]) -> tuple[list[Span], list[tuple[int, dict[str, Any]]]]:
    """Return unique spans, with their log records among their events, and the list of irregularities.

    If a span was sent twice, the later one is used: it has ended, or has more data. Two spans with the same id but
    different names are both kept. Log records of a model call whose span is missing replace it.
    """
    found: dict[_Key, Span] = {}
    unmapped: list[tuple[int, dict[str, Any]]] = []
    for span in spans:
        key = span.trace_id, span.span_id
        known = found.get(key)
        if known is None:
            found[key] = span
        elif known.name == span.name and (known.start_ns == span.start_ns or None in (known.start_ns, span.start_ns)):
            if (span.end_ns or 0, len(span.attributes)) > (known.end_ns or 0, len(known.attributes)):
                found[key] = span
        else:
            span.span_id = f"{span.span_id}~{span.place}"
            found[span.trace_id, span.span_id] = span
            what = "its id is that of another span"
            unmapped.append((span.place, {"place": f"span {span.place}", "what": what, "value": span.name[:200]}))
    for record in logs:
        key = record.trace_id, record.span_id
        if key not in found:
            about = {"gen_ai.operation.name": "chat", **record.event.attributes}
            found[key] = Span(*key, None, "chat", record.event.time_ns, record.event.time_ns, False, "", about)
        found[key].events.append(record.event)
    return list(found.values()), unmapped


@dataclass(slots=True)
class Conversation:
    """The spans of one run, ordered by start."""

    name: str | None
    spans: list[Span] = field(default_factory=list)


def _start(span: Span) -> tuple[int, int]:
    return span.start_ns or span.end_ns or 0, span.place


def conversations(spans: list[Span]) -> list[Conversation]:
    """Return the conversations that contain a call: by the outermost id named around a span, or else by trace."""
    by_key = {(span.trace_id, span.span_id): span for span in spans}
    names: dict[_Key, str | None] = {}
    own = {key: conversation_of(span) for key, span in by_key.items()}
    for key, span in by_key.items():
        chain = [key]
        seen = {key}
        while (parent := span.parent_id) is not None and (up := (span.trace_id, parent)) in by_key and up not in seen:
            if up in names:
                break
            chain.append(up)
            seen.add(up)
            span = by_key[up]
        above = (
            names.get((span.trace_id, span.parent_id or "")) if chain[-1] != (span.trace_id, span.parent_id) else None
        )
        for each in reversed(chain):
            above = names[each] = above or own[each]
    # Spans above or beside those that name a conversation belong to it if their trace names only one.
    of_trace: dict[str, dict[str, None]] = {}
    for (trace_id, _), name in names.items():
        if name is not None:
            of_trace.setdefault(trace_id, {})[name] = None
    groups: dict[tuple[str | None, str], Conversation] = {}
    for span in sorted(spans, key=_start):
        name = names[span.trace_id, span.span_id]
        if name is None:
            name = next(iter(of_trace.get(span.trace_id, ())), None)
        group = (name, "" if name is not None else span.trace_id)
        groups.setdefault(group, Conversation(name)).spans.append(span)
    return [
        group
        for group in groups.values()
        if any(is_own(span) or kind_of(span) in ("model", "tool") for span in group.spans)
    ]


@dataclass(slots=True)
class Execution:
    """A run of an agent: its calls, the invocation around each, and other spans; `where` is set when it is written."""

    name: str
    span: Span | None = None
    agents: list[Span] = field(default_factory=list)
    entries: list[Any] = field(default_factory=list)
    invocations: dict[int, tuple[Span | None, bool]] = field(default_factory=dict)
    nodes: list[tuple[Span, list[Span]]] = field(default_factory=list)
    where: Where | None = None


class _Tree:
    """The spans of one conversation, each with the spans around it."""

    def __init__(self, spans: list[Span]) -> None:
        self.by_key = {(span.trace_id, span.span_id): span for span in spans}
        self.kinds: dict[_Key, Kind] = {key: kind_of(span) for key, span in self.by_key.items()}

    def kind(self, span: Span) -> Kind:
        return self.kinds[span.trace_id, span.span_id]

    def above(self, span: Span) -> list[Span]:
        """Return the spans around a span, innermost first; a cycle of parents ends where it closes."""
        found: list[Span] = []
        seen = {span.span_id}
        while span.parent_id is not None and span.parent_id not in seen and len(found) < DEEPEST:
            parent = self.by_key.get((span.trace_id, span.parent_id))
            if parent is None:
                break
            seen.add(parent.span_id)
            found.append(parent)
            span = parent
        return found


def executions(spans: list[Span]) -> Execution:
    """Return the calls of a conversation, each once, in the agents that made them.

    An agent is a child if a tool of another agent called it, or if it is nested in an agent that has calls of its own.
    Agents that follow each other inside a mere wrapper share one execution, as in a handoff.
    """
    tree = _Tree(spans)
    uses: dict[_Key, Any] = {}
    chains: dict[_Key, list[Span]] = {}
    nested: dict[_Key, list[_Key]] = {}
    sent: History | None = None
    for span in spans:
        kind = tree.kind(span)
        if kind in ("agent", "other"):
            continue
        key = span.trace_id, span.span_id
        chains[key] = tree.above(span)
        if (check := _check_around(chains[key], uses, tree)) is not None:
            if kind == "model" and _same_call(kind, chains[key], tree) is None:
                check.calls.append(model_use(span))
            continue
        if kind == "model":
            span.before = sent
            use = uses[key] = model_use(span)
            span.before, sent = None, use.inputs
        else:
            uses[key] = tool_use(span) if kind == "tool" else CheckUse(span) if kind == "check" else span
        outer = _same_call(kind, chains[key], tree)
        if outer is not None:
            nested.setdefault((outer.trace_id, outer.span_id), []).append(key)
    # Innermost first, so that three spans of one call become one.
    for key, inner in sorted(nested.items(), key=lambda pair: -len(tree.above(tree.by_key[pair[0]]))):
        known = [each for each in inner if each in uses]
        if key not in uses:
            continue
        if isinstance(uses[key], ModelUse) and len(known) > 1:
            del uses[key]  # the total of several calls
            continue
        for each in known:
            if isinstance(uses[key], ModelUse) or _is_one_tool(uses[key], uses[each]):
                uses[key] = merged(uses[key], uses.pop(each))
    return _placed(tree, uses, chains)


def _same_call(kind: Kind, chain: list[Span], tree: _Tree) -> Span | None:
    for outer in chain:
        found = tree.kind(outer)
        if found == kind and kind in ("model", "tool"):
            return outer
        if found in ("model", "tool", "agent"):
            return None
    return None


def _check_around(chain: list[Span], uses: dict[_Key, Any], tree: _Tree) -> CheckUse | None:
    """Return the outermost guardrail or evaluator around a span: its calls are not part of the agent's work."""
    outer = next((span for span in reversed(chain) if tree.kind(span) == "check"), None)
    found = None if outer is None else uses.get((outer.trace_id, outer.span_id))
    return found if isinstance(found, CheckUse) else None


def _is_one_tool(outer: ToolUse, inner: ToolUse) -> bool:
    if outer.call_id is not None and inner.call_id is not None:
        return outer.call_id == inner.call_id
    return outer.name == inner.name


def _placed(tree: _Tree, uses: dict[_Key, Any], chains: dict[_Key, list[Span]]) -> Execution:
    root = Execution("")
    children: dict[tuple[int, _Key], Execution] = {}
    above_model: set[_Key] = set()
    busy: set[_Key] = set()
    for key, use in uses.items():
        above = [(span.trace_id, span.span_id) for span in chains[key]]
        if isinstance(use, ModelUse):
            above_model.update(above)
        busy.update([up for up in above if tree.kinds[up] == "agent"][:1])

    for key in sorted(uses, key=lambda key: _place(tree.by_key[key], tree)):
        use, place, agent = uses[key], root, None
        for span in reversed(chains[key]):
            up = span.trace_id, span.span_id
            kind = tree.kinds[up]
            is_child = kind == "tool" and up in above_model
            if kind == "agent":
                name = first("agent_name", span) or span.name
                is_child = agent is not None and (agent.trace_id, agent.span_id) in busy and agent_name(agent) != name
                agent = span
            if is_child:
                child = children.get((id(place), up))
                if child is None:
                    child = children[id(place), up] = Execution(agent_name(span), span)
                    outer = uses.get(up)
                    if isinstance(outer, ToolUse):
                        outer.children.append(child)
                    else:
                        place.entries.append(child)
                        place.invocations[id(child)] = invocation_of(chains[key])
                place = child
                if kind == "tool":
                    agent = None
            if kind == "agent" and span not in place.agents:
                place.agents.append(span)
                place.name = (
                    place.name if place.span is not None and tree.kind(place.span) == "agent" else agent_name(span)
                )
        place.entries.append(use)
        if place is root:
            place.invocations[id(use)] = invocation_of(chains[key])
    # An agent that ran without a recorded call still gave an answer.
    for span in tree.by_key.values():
        if tree.kind(span) == "agent" and span not in root.agents and not tree.above(span):
            root.agents.append(span)
    _place_nodes(tree, root, children)
    return root


def _place_nodes(tree: _Tree, root: Execution, children: Mapping[tuple[int, _Key], Execution]) -> None:
    """Assign spans that are not calls to their agents; spans inside a call or around a turn are left out."""
    for key, span in tree.by_key.items():
        operation = (span.text("gen_ai.operation.name", "openinference.span.kind", "llm.request.type") or "").lower()
        if tree.kinds[key] not in ("agent", "other") or span.end_ns is None or operation in NO_PLACE:
            continue
        place, chain = root, tree.above(span)
        for outer in reversed(chain):
            place = children.get((id(place), (outer.trace_id, outer.span_id)), place)
        # An agent in a tool that uses models is the child itself.
        is_child = (id(place), key) in children or (place is not root and span in place.agents[:1])
        is_inside = any(tree.kind(outer) in ("model", "check") for outer in chain)
        if not is_inside and not is_child and invocation_of(chain)[0] is not None:
            place.nodes.append((span, chain))


def _place(span: Span, tree: _Tree) -> tuple[int, int]:
    """Return the position of a span in time: a plan counts from its end, after the calls inside it."""
    return (span.end_ns or _start(span)[0], span.place) if tree.kind(span) == "plan" else _start(span)


def agent_name(span: Span) -> str:
    """Return the name of an agent, or of the span that represents one."""
    return first("agent_name", span) or first("tool_name", span) or span.name or "agent"


def invocation_of(chain: list[Span]) -> tuple[Span | None, bool]:
    """Return the outermost span of an agent, and whether it surely is one: graph nodes have such names too."""
    for span in reversed(chain):
        if kind_of(span) == "agent" or span.attributes.get("gen_ai.operation.name") == "invoke_workflow":
            return span, True
        if "openinference.span.kind" in span.attributes:
            return span, '"messages"' in str(span.attributes.get("input.value", ""))[:200]
    return None, False
