"""The spans of one trace that are open, and the calls that have ended and wait for their place in the run."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from noetic_nb.interop.spans.calls import conversation_of, kind_of
from noetic_nb.interop.spans.dialect import Kind
from noetic_nb.interop.spans.span_messages import History
from noetic_nb.interop.spans.span_record import Span, SpanEvent, live_record
from noetic_nb.interop.spans.span_tree import agent_name
from noetic_nb.interop.watching.live_writer import LiveWriter

__all__ = ["CALLS", "Node", "Trace", "Unit"]

CALLS: Final = ("model", "tool", "memory")
# Nothing of the agent ends so late that this many spans end before it: what waits longer is written as it is.
MOST_PENDING: Final = 1_000


class Node:
    """A span that began: what it says so far, and what ended inside of it and has to wait for its end.

    Its record is one object from beginning to end, since a turn is known by the record of the span around it.
    """

    __slots__ = (
        "_record",
        "_size",
        "conversation",
        "first_ns",
        "held",
        "is_busy",
        "is_child",
        "is_flat",
        "kind",
        "live",
        "logs",
        "parent",
        "scope",
        "start_ns",
    )

    def __init__(self, live: Any, parent: Node | None) -> None:
        self.live, self.parent = live, parent
        self.start_ns: int = live.start_time or 0
        scope = getattr(live, "instrumentation_scope", None)
        self.scope: str = getattr(scope, "name", None) or ""
        self.kind: Kind | None = None
        self.conversation: str | None = None
        self.held: list[Span] = []
        self.first_ns = 0
        self.logs: list[SpanEvent] = []
        self.is_busy = self.is_child = self.is_flat = False
        self._record: Span | None = None
        self._size = -1

    @property
    def record(self) -> Span:
        """What the span says, as it was last read."""
        if self._record is None:
            self.refresh()
            assert self._record is not None
        return self._record

    def refresh(self) -> None:
        """Read the span again where attributes have joined."""
        live = self.live
        if live is None:
            return
        about = live.attributes
        size = 0 if about is None else len(about)
        if size == self._size:
            return
        self._size = size
        found = live_record(live, 0)
        assert found is not None
        # These instrumentations set what a span is at its end only, and all their spans are of an agent.
        if self.scope.startswith("openinference.") and "openinference.span.kind" not in found.attributes:
            found.attributes = {**found.attributes, "openinference.span.kind": "CHAIN"}
        self._take(found)

    def _take(self, found: Span) -> None:
        known = self._record
        if known is None:
            self._record = known = found
        else:
            known.start_ns, known.end_ns, known.failed = found.start_ns, found.end_ns, found.failed
            known.problem, known.attributes, known.events = found.problem, found.attributes, found.events
            known.name, known.place = found.name, found.place
            known.kind = known.answers = None
        self.kind = kind_of(known)
        # The outermost span that names a conversation counts.
        if self.parent is not None and self.parent.conversation is not None:
            self.conversation = self.parent.conversation
        else:
            self.conversation = conversation_of(known)

    def end(self, ended: Any, place: int) -> Span:
        """Take the span as it ended."""
        found = live_record(ended, place)
        assert found is not None
        if self.logs:
            found.events.extend(self.logs)
        self.live = None
        self._take(found)
        assert self._record is not None
        return self._record

    def above(self) -> Iterator[Node]:
        """Yield the spans around, innermost first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent


@dataclass(slots=True)
class Unit:
    """What is written at once: a call, or an agent or tool with all that ended inside of it."""

    start_ns: int
    place: int
    node: Node
    spans: list[Span]
    around: list[Node]
    """The spans around it, innermost first."""

    def __lt__(self, other: Unit) -> bool:
        return (self.start_ns, self.place) < (other.start_ns, other.place)


@dataclass(slots=True)
class Trace:
    """The open spans of a trace by id, in the order they began."""

    open: dict[int, Node] = field(default_factory=dict)
    pending: list[Unit] = field(default_factory=list)
    scopes: set[str] = field(default_factory=set)
    """Who makes spans of agents in it."""
    conversation: str | None = None
    agents: list[Span] = field(default_factory=list)
    """Agents that have ended and are no children."""
    orphans: list[Span] = field(default_factory=list)
    """Spans that began unseen."""
    writers: list[LiveWriter] = field(default_factory=list)
    sent: History | None = None
    """What the last model call was sent, until the next one: a conversation is sent again with every call."""
    is_over: bool = False
    """Whether its outermost span has ended."""

    def add(self, unit: Unit) -> None:
        """Keep a unit until nothing can come before it."""
        insort(self.pending, unit)

    def container(self, chain: list[Node]) -> Node | None:
        """Return what has to end before a call inside of `chain` is written.

        That is a tool that uses models, or an agent inside of another.
        """
        agent: Node | None = None
        found: Node | None = None
        for outer in reversed(chain):
            outer.refresh()
            if outer.kind in ("model", "tool") or outer.is_child:
                found = outer
                break
            if outer.kind == "agent":
                is_inner = agent is not None and agent.is_busy and not outer.is_flat
                if is_inner and agent is not None and agent_name(agent.record) != agent_name(outer.record):
                    outer.is_child, found = True, outer
                    break
                agent = outer
        agents = [outer for outer in chain if outer.kind == "agent"]
        if agents:
            agents[0].is_busy = True
        if found is None:
            for outer in agents:
                outer.is_flat = True
        return found

    def is_blocked(self, unit: Unit) -> bool:
        """Tell whether a call may still end that began before this one, and is not around it."""
        for node in self.open.values():
            if node.start_ns > unit.start_ns:
                return False
            if node.held and node.first_ns <= unit.start_ns:
                return True
            if node in unit.around or node.scope not in self.scopes:
                continue
            node.refresh()
            if node.kind in CALLS or node.kind == "other":
                return True
        return False
