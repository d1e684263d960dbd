"""The open spans of a trace, and the ended calls that wait for their place in the run."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from noetic_nb.events import RunEvent, Where
from noetic_nb.interop._spans.calls import conversation_of, kind_of
from noetic_nb.interop._spans.dialect import History, Kind
from noetic_nb.interop._spans.span_record import Span, SpanEvent, live_record
from noetic_nb.interop._spans.span_run import RunWriter
from noetic_nb.interop._spans.span_tree import DEEPEST, Execution, agent_name, invocation_of
from noetic_nb.interop._spans.span_turns import Log
from noetic_nb.redact import Redaction
from noetic_nb.runs._conversation_texts import ContextTokens


class LiveWriter(RunWriter):
    """Writes a conversation as the reader of finished spans does, but a few calls at a time."""

    def __init__(self, thread_id: str, redaction: Redaction) -> None:
        super().__init__(thread_id, redaction)
        self.log = Log(Where(thread_id, f"{thread_id}/e0", 0), ContextTokens(self.counter))
        self._known: tuple[int, ...] = ()

    @property
    def is_waiting(self) -> bool:
        """Whether a model's call has no result yet."""
        return bool(self.log.waiting)

    def call(self, use: Any, root: Execution) -> list[RunEvent]:
        """Write an ended call that contains no other spans; return its events."""
        self.entry(self.log, use, root, True)  # nothing has to be read ahead
        self.log.done.clear()
        return self._new_events()

    @property
    def is_answered(self) -> bool:
        """Whether the open turn has its answer and no agent span whose end would end the turn."""
        turn = self.turn
        return turn is not None and turn.invocation is None and self.log.answer is not None and not self.log.waiting

    def take(self, root: Execution) -> list[RunEvent]:
        """Write calls that have ended; return their events."""
        log = self.log
        if len(root.entries) == 1 and not isinstance(root.entries[0], Execution):
            return self.call(root.entries[0], root)
        self.entries(log, root)
        # Data read ahead for these calls is useless for the next ones, and `id` values may be reused.
        for known in (log.results, log.by_id, log.issued, log.late, log.done):
            known.clear()
        return self._new_events()

    def finish_turn(self, agents: Iterable[Span]) -> list[RunEvent]:
        """Complete the open turn; if no call answered, the first of the ended `agents` with an output does."""
        self.release(self.log, None)
        self.end_turn(self.log, Execution("", agents=sorted(agents, key=lambda span: (span.start_ns or 0, span.place))))
        return self._new_events()

    def _new_events(self) -> list[RunEvent]:
        found, self.events = self.events, []
        return found

    def news(self) -> dict[str, Any] | None:
        """Return the meta of the conversation if it has changed since the last call."""
        known = len(self.unmapped), len(self.estimated), len(self.models), self.params is None, self.policy is None
        if known == self._known:
            return None
        new = self.unmapped[self._known[0] if self._known else 0 :]
        self._known = known
        return {**self.meta(), "unmapped": new}


CALLS: Final = ("model", "tool", "memory", "check")
# An agent's spans never end this far out of order: with more waiting, they are written in their current order.
MOST_PENDING: Final = 1_000


class Node:
    """A started span: its record, one object for its whole life, and the ended spans inside it that await its end."""

    kind: Kind | None = None
    conversation: str | None = None
    first_ns = 0
    is_around = False  # whether a span inside it has begun
    is_busy = is_child = is_flat = False
    within: Around | None = None  # the spans around the calls inside it, as of the last call
    size = -1  # the number of attributes at the last read
    _record: Span | None = None

    def __init__(self, live: Any, parent: Node | None) -> None:
        self.live, self.parent = live, parent
        self.start_ns: int = live.start_time or 0
        scope = getattr(live, "instrumentation_scope", None)
        self.scope: str = getattr(scope, "name", None) or ""
        self.held: list[Span] = []
        self.logs: list[SpanEvent] = []
        if parent is not None:
            parent.is_around = True

    @property
    def record(self) -> Span:
        """The data of the span, as last read."""
        if self._record is None:
            self.refresh()
            assert self._record is not None
        return self._record

    def refresh(self) -> None:
        """Read the span again if attributes were added."""
        live = self.live
        if live is None:
            return
        about = live.attributes
        size = 0 if about is None else len(about)
        if size == self.size:
            return
        self.size = size
        found = live_record(live, 0)
        assert found is not None
        # These instrumentations set a span's kind only at its end, and all their spans belong to an agent.
        if self.scope.startswith("openinference.") and "openinference.span.kind" not in found.attributes:
            found.attributes = {**found.attributes, "openinference.span.kind": "CHAIN"}
        self._take(found)

    def _take(self, found: Span) -> Span:
        known = self._record
        if known is None:
            self._record = known = found
        else:
            known.start_ns, known.end_ns, known.failed = found.start_ns, found.end_ns, found.failed
            known.problem, known.attributes, known.events = found.problem, found.attributes, found.events
            known.name, known.place = found.name, found.place
        self.kind = kind_of(known)
        parent = self.parent  # the outermost span that names a conversation decides
        if parent is None or (conversation := parent.conversation) is None:
            conversation = conversation_of(known)
        if conversation is not None:
            self.conversation = conversation
        return known

    def end(self, ended: Any, place: int) -> Span:
        parent = self.parent
        found = live_record(ended, place, None if parent is None else parent._record)
        assert found is not None
        if self.logs:
            found.events.extend(self.logs)
        self.live, self.size = None, -1
        self.within = None
        return self._take(found)

    def above(self) -> Iterator[Node]:
        """Yield the spans around this one, innermost first."""
        node, left = self.parent, DEEPEST
        while node is not None and left:
            yield node
            node, left = node.parent, left - 1


class Around:
    """The spans around a call, innermost first, and their data as last read."""

    __slots__ = ("conversation", "execution", "holder", "invocation", "nodes", "sizes", "writer")

    def __init__(self, nodes: list[Node], holder: Node | None = None) -> None:
        self.nodes, self.holder = nodes, holder
        """`holder` has to end before the call is written."""
        self.sizes: list[int] | None = None
        """The sizes of the spans when they were read; ending a span or adding attributes changes its size."""

    def read_again(self) -> None:
        """Read the data of the spans again if they have changed."""
        if self.sizes != [node.size for node in self.nodes]:
            self.read()

    def read(self) -> None:
        """Read the data of the spans: their agents, the span that invoked the call, and the outermost conversation."""
        nodes = self.nodes
        self.writer: LiveWriter | None = None
        self.execution = Execution("", agents=[node.record for node in reversed(nodes) if node.kind == "agent"])
        self.invocation = invocation_of([node.record for node in nodes])
        self.conversation: str | None = None
        for node in nodes:
            self.conversation = node.conversation or self.conversation
        self.sizes = [node.size for node in nodes]


@dataclass(slots=True)
class Unit:
    """A unit of writing: a call, or an agent or tool with everything that ended inside it."""

    start_ns: int
    place: int
    node: Node
    spans: list[Span]
    around: Around

    def __lt__(self, other: Unit) -> bool:
        return (self.start_ns, self.place) < (other.start_ns, other.place)


@dataclass(slots=True)
class Trace:
    """The open spans of a trace by id, in the order in which they began."""

    open: dict[int, Node] = field(default_factory=dict)
    pending: list[Unit] = field(default_factory=list)
    scopes: set[str] = field(default_factory=set)  # instrumentations that make spans of agents in it
    conversation: str | None = None
    agents: list[Span] = field(default_factory=list)  # ended agents that are not children
    orphans: list[Span] = field(default_factory=list)  # spans whose start was missed
    writers: list[LiveWriter] = field(default_factory=list)
    sent: History | None = None
    """The messages of the last model call; the next call sends them again."""
    is_over: bool = False  # whether its outermost span has ended

    def add(self, unit: Unit) -> None:
        """Keep a unit until nothing can come before it."""
        insort(self.pending, unit)

    def is_blocked(self, unit: Unit) -> bool:
        """Tell whether an earlier call that does not enclose this one is still open."""
        for node in self.open.values():
            if node.start_ns > unit.start_ns:
                return False
            if node.held and node.first_ns <= unit.start_ns:
                return True
            if node in unit.around.nodes or node.scope not in self.scopes:
                continue
            node.refresh()
            if node.kind in CALLS or node.kind == "other":
                return True
        return False


def around(node: Node) -> Around:
    """Return the spans around an ended call; reuses those of the previous call while they are open."""
    parent = node.parent
    if parent is None:
        alone = Around([])
        alone.read()
        return alone
    known = parent.within
    if known is not None and known.sizes is not None:
        for outer, size in zip(known.nodes, known.sizes, strict=True):
            outer.refresh()
            if outer.size != size:
                break
        else:
            return known
    nodes = [parent, *parent.above()]
    known = Around(nodes, _container(nodes))
    if known.holder is None:
        known.read()
        if parent.live is not None:  # an ended span keeps nothing
            parent.within = known
    return known


def _container(chain: list[Node]) -> Node | None:
    """Return the span that must end before a call inside `chain` is written: a tool using models, or an inner agent."""
    agent: Node | None = None
    found: Node | None = None
    for outer in reversed(chain):
        outer.refresh()
        if outer.kind in ("model", "tool", "check") or outer.is_child:
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
