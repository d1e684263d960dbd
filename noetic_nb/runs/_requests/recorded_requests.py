"""The requests of a run: a growing index of its model calls, and each call with its outcome."""

from __future__ import annotations

from array import array
from typing import Any, ClassVar, Final, TypeAlias

from msgspec import Struct, structs

from noetic_nb import events as ev
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import ItemLog
from noetic_nb.items._log import ItemView
from noetic_nb.items._registry import ANY_ITEMS
from noetic_nb.runs._events.run_log import placed
from noetic_nb.runs._regulation.decision_words import DecisionRedaction
from noetic_nb.runs._requests.sent_request import RecordedRequest
from noetic_nb.tokenizers._named import asked_tokenizer
from noetic_nb.tokens import Tokenizer


class _KnownLog:
    """The recorded part of a log: `items` from place `first` on."""

    __slots__ = ("first", "guidance", "items")

    def __init__(self, first: int = 0, items: ItemLog | None = None, guidance: frozenset[int] = frozenset()) -> None:
        self.first = first
        self.items = ItemLog(registry=ANY_ITEMS) if items is None else items
        self.guidance = guidance

    def take(self, event: ev.ItemsAppended) -> None:
        # Recording began, or continued, after other items were logged.
        if not 0 <= event.start - self.first <= len(self.items):
            self.first, self.items = event.start, ItemLog(registry=ANY_ITEMS)
        elif event.start - self.first < len(self.items):
            self.items = self.items.until(event.start - self.first)
        if event.origin == "guidance":
            self.guidance |= {event.start + place for place in range(len(event.items))}
        self.items.extend(event.items)


class RequestIndex:
    """The agent's model calls in a run so far; grows with `take`."""

    reads: ClassVar = frozenset(
        {ev.ItemsAppended, ev.ChildStarted, ev.RequestPrepared, ev.ViewAssembled, ev.ModelCalled}
    )
    """The event types that it reads."""

    def __init__(self, tokenizer: Tokenizer | None = None) -> None:
        self._tokenizer = tokenizer
        self.requests: list[RecordedRequest] = []
        """In starting order."""
        self.places: list[int] = []
        """The index in `requests` of each of the agent's model calls, in order."""
        self._logs: dict[tuple[str, str], _KnownLog] = {}
        self._prepared: dict[tuple[str, str], ev.RequestPrepared] = {}
        self._open: dict[tuple[str, str], int] = {}
        self._seq = -1

    @property
    def under_way(self) -> int:
        """How many requests are unanswered."""
        return len(self._open)

    def log_of(self, where: ev.Where) -> ItemView:
        """Return the recorded part of an execution's log."""
        return self._log(where).items.items

    def take(self, event: ev.RunEvent, *, seq: int | None = None, call: int | None = None) -> int | None:
        """Read one event; returns the index in `requests` of the one that began or ended with it.

        If not all events are read, `seq` and `call` are its number in the run and among the agent's model calls.
        """
        self._seq = self._seq + 1 if seq is None else seq
        if type(event) not in self.reads:  # true for most events
            return None
        # The most frequent type first: patterns would try each class in turn.
        if isinstance(event, ev.ViewAssembled):
            key = event.where.thread_id, event.where.execution_id
            log = self._log(event.where)
            at = self._open[key] = len(self.requests)
            known = log.first, log.items.items, log.guidance
            self.requests.append(
                RecordedRequest(None, self._seq, None, event, self._prepared.get(key), *known, self._tokenizer)
            )
            return at
        if isinstance(event, ev.ModelCalled):
            return self._called(event, len(self.places) if call is None else call) if event.purpose == "agent" else None
        if isinstance(event, ev.ItemsAppended):
            self._log(event.where).take(event)
        elif isinstance(event, ev.ChildStarted):
            self._child(event)
        elif isinstance(event, ev.RequestPrepared):
            self._prepared[event.where.thread_id, event.where.execution_id] = event
        return None

    def _called(self, event: ev.ModelCalled, place: int) -> int:
        at = self._open.pop((event.where.thread_id, event.where.execution_id), None)
        if at is None:
            at = len(self.requests)
            log = self._log(event.where)
            self.requests.append(
                RecordedRequest(
                    *(place, self._seq, event, None, None, log.first, log.items.items, log.guidance), self._tokenizer
                )
            )
        else:
            self.requests[at].place, self.requests[at].called = place, event
        self.places.append(at)
        return at

    def _log(self, where: Any) -> _KnownLog:
        key = (where.thread_id, "" if where.depth == 0 else where.execution_id)
        log = self._logs.get(key)
        if log is None:
            log = self._logs[key] = _KnownLog()
        return log

    def _child(self, event: ev.ChildStarted) -> None:
        thread = event.where.thread_id
        parent = self._logs.get((thread, event.parent_id)) or self._logs.get((thread, "")) or _KnownLog()
        kept = event.inherited - parent.first
        if 0 <= kept <= len(parent.items):
            log = _KnownLog(parent.first, parent.items.until(kept), parent.guidance)
        else:
            log = _KnownLog(event.inherited)
        log.items.extend(event.items)
        self._logs[thread, event.where.execution_id] = log

    def find(self, call: int | ev.ModelCalled, *, thread_id: str | None = None) -> RecordedRequest:
        places = self.places
        if thread_id is not None:
            places = [at for at in places if self.requests[at].where.thread_id == thread_id]
        if isinstance(call, ev.ModelCalled):
            # Compare by identity first: two calls may be equal.
            for same in (lambda one: one is call, lambda one: one == call):
                for at in places:
                    if same(self.requests[at].called):
                        return self.requests[at]
        elif isinstance(call, int) and not isinstance(call, bool) and -len(places) <= call < len(places):
            return self.requests[places[call]]
        of = "The run" if thread_id is None else f"Thread {thread_id!r} of the run"
        hint = f"There are {len(places)}: name one by its place, from 0, or pass its ModelCalled event."
        raise NoeticConfigError("UNKNOWN_CALL", f"{of} has no such model call of the agent.", given=call, hint=hint)


def requests_of(run: Any, tokenizer: Tokenizer | None = None) -> RequestIndex:
    """Return the requests of a run so far; `tokenizer` is the counter, if recorded names are not enough to find it."""
    index = RequestIndex(tokenizer)
    for seq, event in placed(run, *RequestIndex.reads):
        index.take(event, seq=seq)
    return index


def recorded_request(
    run: Any, call: int | ev.ModelCalled, *, thread_id: str | None = None, tokenizer: str | Tokenizer | None = None
) -> RecordedRequest:
    """Return the request of a model call in a run, with the inputs of its plan.

    `call` is its event, or its index among the agent's model calls of the run or of a thread (negative from the end).
    """
    return requests_of(run, asked_tokenizer(tokenizer)).find(call, thread_id=thread_id)


Outcome: TypeAlias = (
    ev.SteeringDecided | ev.RegulatorDecided | ev.ToolCalled | ev.ErrorRaised | ev.WarningRaised | ev.ContextCompacted
)
_OUTCOMES: Final = (ev.SteeringDecided, ev.RegulatorDecided, ev.ToolCalled, ev.ErrorRaised, ev.WarningRaised)


class Call(Struct, gc=False, eq=False):
    """One model call of the agent. Without reference cycles and `gc=False`, because a long run has many."""

    number: int
    """Its index among the agent's model calls of the run."""
    seq: int
    """The index of `event` among the run's events."""
    in_turn: int
    """Its number in its turn, from 1."""
    event: ev.ModelCalled
    view: ev.ViewAssembled | None
    """The sent view; None if the run does not have it."""

    @property
    def where(self) -> ev.Where:
        """Thread, execution and turn."""
        return self.event.where


class CallRecord(Call):
    """One model call of the agent, with the decisions around it."""

    before: list[tuple[int, Outcome]]
    """Decisions since the previous call or the start of the execution, each with its ``seq``, and compactions of the
    context since the previous call of the thread."""
    after: list[tuple[int, Outcome]]
    """Its tool calls, and the decisions before the next call of the execution."""


class CallBook:
    """The calls so far, collected as events arrive.

    Events that follow a call in its execution belong to it, until the next request is made. A child execution has its
    own calls.
    """

    reads: ClassVar = (
        frozenset({ev.ViewAssembled, ev.ModelCalled, ev.ContextCompacted, *_OUTCOMES}) | DecisionRedaction.reads
    )
    """The event types that it reads."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._views: dict[tuple[str, str], ev.ViewAssembled] = {}
        self._newest: dict[tuple[str, str], int] = {}
        # Outcomes, each with its number in the run and the index of the previous outcome around the same call.
        self._outcomes: list[Outcome] = []
        self._seqs: array[int] = array("q")
        self._older: array[int] = array("q")
        # Index of the newest outcome by call index (after it), -1 - call index (before it), or execution (before the next).
        self._last_around: dict[int | tuple[str, str], int] = {}
        # The same for the few compactions; those after a context's last call move to the next call.
        self._compacted: dict[tuple[str, str], list[tuple[int, Outcome]]] = {}
        self._compacted_before: dict[int, list[tuple[int, Outcome]]] = {}
        self._last: dict[tuple[str, str], int] = {}
        self._in_turn: dict[tuple[str, int], int] = {}
        self._of_decision: dict[int, int] = {}
        self.words = DecisionRedaction(grows=False)
        """Redacts the texts of decisions; `grows` is set once the run is viewed page by page."""

    def take(self, event: ev.RunEvent, seq: int, number: int | None = None) -> int | None:
        """Read one event; returns the index in `calls` of the new or changed call, or None.

        `number` is the index among the agent's calls of the run, for a call of the agent.
        """
        kind = type(event)
        if kind is ev.ViewAssembled:
            assert isinstance(event, ev.ViewAssembled)
            self._views[event.where.thread_id, event.where.execution_id] = event
        elif kind is ev.ModelCalled:
            assert isinstance(event, ev.ModelCalled)
            return None if number is None else self._call(event, seq, number)
        elif isinstance(event, ev.ContextCompacted):
            return self._compaction(event, seq)
        elif isinstance(event, _OUTCOMES):
            return self._outcome(event, seq)
        else:
            self.words.take(event)
        return None

    def shown(self, at: int) -> CallRecord:
        """Return a call with the decisions around it, as displayed: without the secrets of any text read so far."""
        call, context = self.calls[at], _context(self.calls[at].where)
        before, after = [*self._around(-1 - at), *self._compacted_before.get(at, ())], self._around(at)
        if self._last[context] == at:
            after += self._compacted.get(context, ())
        found = [list(map(self._shown, sorted(each, key=lambda outcome: outcome[0]))) for each in (before, after)]
        return CallRecord(call.number, call.seq, call.in_turn, call.event, call.view, *found)

    def _around(self, key: int) -> list[tuple[int, Outcome]]:
        found, at = [], self._last_around.get(key, -1)
        while at >= 0:
            found.append((self._seqs[at], self._outcomes[at]))
            at = self._older[at]
        return found

    def _shown(self, outcome: tuple[int, Outcome]) -> tuple[int, Outcome]:
        seq, event = outcome
        if isinstance(event, ev.RegulatorDecided) and event.decision.get("kind") != "continue":
            return seq, structs.replace(event, decision=self.words.decision(event.decision))
        return outcome

    def of_decision(self, seq: int) -> int | None:
        """Return the index in `calls` of the call that a decision belongs to, or None."""
        return self._of_decision.get(seq)

    def _call(self, event: ev.ModelCalled, seq: int, number: int) -> int:
        where = event.where
        key, turn = (where.thread_id, where.execution_id), (where.thread_id, where.turn)
        self._in_turn[turn] = self._in_turn.get(turn, 0) + 1
        at = len(self.calls)
        context = _context(where)
        self._last[context] = at
        if key in self._last_around:
            self._last_around[-1 - at] = self._last_around.pop(key)
        if context in self._compacted:
            self._compacted_before[at] = self._compacted.pop(context)
        for decided, _ in [*self._around(-1 - at), *self._compacted_before.get(at, ())]:
            self._of_decision[decided] = at
        self.calls.append(Call(number, seq, self._in_turn[turn], event, self._views.pop(key, None)))
        self._newest[key] = at
        return at

    def _compaction(self, event: ev.ContextCompacted, seq: int) -> int | None:
        """Keep a compaction for the next call of its context; until then, it is shown after the last call."""
        context = _context(event.where)
        self._compacted.setdefault(context, []).append((seq, event))
        return self._last.get(context)

    def _outcome(self, event: Outcome, seq: int) -> int | None:
        key = event.where.thread_id, event.where.execution_id
        at = self._newest.get(key)
        if at is not None and key in self._views:  # the next request is made, so the decision belongs to it
            at = None
        around = key if at is None else at
        self._older.append(self._last_around.get(around, -1))
        self._last_around[around] = len(self._outcomes)
        self._outcomes.append(event)
        self._seqs.append(seq)
        if at is not None:
            self._of_decision[seq] = at
        return at


def _context(where: ev.Where) -> tuple[str, str]:
    """Return the context of an execution: all turns of a thread share one, a child has its own."""
    return where.thread_id, where.execution_id if where.depth else ""
