"""The origins of values in recorded calls: the same index as in a running agent, filled from a run's events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any, Final

from noetic_nb import events as ev
from noetic_nb.items import Item, freeze, thaw
from noetic_nb.items._json_text import compact_json
from noetic_nb.items._origin_index import KEPT_KINDS, NOTHING_KEPT, KeptTexts, OriginIndex, Provenance
from noetic_nb.items._origins import Origin
from noetic_nb.memory import ExecutionContext, PastCall
from noetic_nb.memory._steering_decision import ALLOW
from noetic_nb.memory.params import AfterModelCallParams, BeforeToolCallParams
from noetic_nb.memory.scope import ScopeIds, resolve_scope_key
from noetic_nb.models._client import ModelResponse, Usage
from noetic_nb.runs._events.run_log import Numbering, origin_of_items, place_of
from noetic_nb.runs._run_source import RunLike

# Rules see an empty layer state, because the recorded ledger belongs to the rules of that time.
_STATE: Final = {"ledger": (), "pendingAsync": ()}
_NO_ARGS: Final = freeze({})


@dataclass(slots=True)
class RecordedClock:
    """A clock that is set by hand, for example to the time of a call."""

    t_ms: float = 0.0

    def now_ms(self) -> float:
        return self.t_ms

    def monotonic_ms(self) -> float:
        return self.t_ms


@dataclass(slots=True)
class _Execution:
    """The calls of one execution so far."""

    resource_id: str | None
    usage: Usage = field(default_factory=lambda: Usage(0, 0))
    cost: float = 0.0
    step: int = 0


class CallParams:
    """Reads calls in order; with `is_priced`, a call without a price is free, as in a harness."""

    def __init__(self, *, is_priced: bool) -> None:
        self._is_priced = is_priced
        self._executions: dict[tuple[str, str], _Execution] = {}
        self._resources: dict[tuple[str, int], str | None] = {}

    def begin(self, event: ev.TurnStarted) -> None:
        """Note the resource that a turn runs for."""
        self._resources[event.where.thread_id, event.where.turn] = event.resource_id

    def forget(self, where: ev.Where) -> None:
        """Drop an execution that has ended."""
        self._executions.pop((where.thread_id, where.execution_id), None)

    def _execution(self, where: ev.Where) -> _Execution:
        key = where.thread_id, where.execution_id
        found = self._executions.get(key)
        if found is None:
            found = self._executions[key] = _Execution(self._resources.get((where.thread_id, where.turn)))
        return found

    def _context(self, where: ev.Where, t_ms: float) -> ExecutionContext:
        known = self._execution(where)
        return ExecutionContext(
            execution_id=where.execution_id,
            thread_id=where.thread_id,
            resource_id=known.resource_id,
            depth=where.depth,
            step_number=known.step,
            token_usage=known.usage,
            cost=known.cost,
            turn=where.turn,
            clock=RecordedClock(t_ms),
        )

    def of_tool(
        self, event: ev.ToolCalled, history: tuple[PastCall, ...], provenance: Callable[[], Provenance]
    ) -> BeforeToolCallParams:
        """Return the parameters of a tool call, arguments frozen, with the calls before it."""
        args: Mapping[str, Any] = _NO_ARGS if event.args is None else event.args
        ctx, depth = self._context(event.where, event.t_ms), event.where.depth
        return BeforeToolCallParams(
            event.name, args, ctx, _STATE, event.call_id, history, depth, ALLOW, event.raw_args, provenance, None
        )

    def count(self, event: ev.ModelCalled) -> None:
        """Count a model call before its response is judged: in a live run, its own cost is included as well."""
        known = self._execution(event.where)
        known.usage = known.usage + Usage(*event.counts)
        if event.cost is not None:
            known.cost = event.cost + (0.0 if isnan(known.cost) else known.cost)
        elif event.status == "ok" and not known.cost and not self._is_priced:
            # NaN: comparing it with a limit is always false and raises no error.
            known.cost = nan
        known.step = event.step

    def of_response(self, event: ev.ModelCalled, history: tuple[PastCall, ...]) -> AfterModelCallParams:
        """Return the parameters of a response, with the calls before it."""
        usage = Usage(*event.counts)
        response = ModelResponse(event.items, usage, event.cost, finish_reason=event.finish_reason)
        return AfterModelCallParams(response, self._context(event.where, event.t_ms), _STATE, history)


# Meta keys of the text that every turn began with.
_POLICY: Final = ("policy", "instructions")
_RETURNED: Final = frozenset({"ok", "error", "invalid_result"})


class _Texts:
    """The texts of one log, shared by a thread's root executions, and each execution's texts outside the log."""

    __slots__ = ("_besides", "_told", "below", "calls", "kept", "log", "parent", "parent_id")

    def __init__(self, parent: _Texts | None = None, parent_id: str = "") -> None:
        self.log = OriginIndex()
        self._besides: dict[str, OriginIndex] = {}
        self.parent, self.parent_id = parent, parent_id
        self.calls: set[str] = set()
        self.kept: Mapping[str, KeptTexts] = NOTHING_KEPT if parent is None else parent.kept
        self.below: dict[str, KeptTexts] = {}
        """By id, the kept texts of layers of children that have ended."""
        self._told = 0

    def beside(self, execution_id: str) -> OriginIndex:
        """Return the texts outside the log for one execution; later turns only see the log."""
        return self._besides.setdefault(execution_id, OriginIndex())

    def add(self, items: Iterable[Item], seq: int, origin: Origin | None = None) -> None:
        for item in items:
            if item["type"] == "function_call":
                self.calls.add(item.get("callId") or "")
            self.log.add_item(item, seq, origin, is_child=self.parent is not None)
        self.tell()

    def tell(self) -> None:
        """Give new texts to the memory layers, because layers may store or rephrase them."""
        if not self.kept:
            return
        news = self.log.all()[self._told :]
        self._told += len(news)
        for kept in {id(one.index): one for one in self.kept.values()}.values():
            for source in news:
                if source.origin.kind in KEPT_KINDS:
                    kept.add(source.raw, source.origin, source.args, source.at)

    def provenance(self, before: OriginIndex, seq: int, execution_id: str) -> Provenance:
        above = None if self.parent is None else self.parent.provenance(before, seq, self.parent_id)
        found = Provenance(self.log, before, self.beside(execution_id), above, seq)
        found.kept = {**self.below, **self.kept}
        return found


class RecordedOrigins:
    """Origins of the values in a run's calls, computed on first use; the run's policy counts as system text."""

    def __init__(self, events: Sequence[ev.RunEvent], meta: Mapping[str, Any]) -> None:
        self._events = events
        self._meta = meta
        self._before = OriginIndex()
        self._texts: dict[tuple[str, str], _Texts] = {}
        self._schemas: dict[str, Mapping[str, Any]] = {}
        self._kept: dict[tuple[str, str], KeptTexts] = {}
        self._resources: dict[str, str | None] = {}
        self._read_to = -1

    def at(self, where: ev.Where, seq: int, tool: str) -> Provenance:
        """Return the provenance of values for a tool call at a place of the run."""
        if self._read_to < 0:
            self._read_to = 0
            for text in _instructions(self._meta):
                self._before.add(text, Origin("system"), at=-1)
        # A live run may have grown since.
        for place in range(self._read_to, len(self._events)):
            self._read(self._texts, place, self._events[place])
        self._read_to = len(self._events)
        found = _texts_of(self._texts, where).provenance(self._before, seq, where.execution_id)
        found.schema = self._schemas.get(tool)
        return found

    def _read(self, known: dict[tuple[str, str], _Texts], seq: int, event: ev.RunEvent) -> None:
        match event:
            case ev.TurnStarted(where, resource_id=resource_id):
                self._resources[where.thread_id] = resource_id
                self._remember(_texts_of(known, where), event, seq)
            case ev.ChildStarted(where, parent_id=parent_id):
                parent = known.get((where.thread_id, parent_id)) or known.setdefault((where.thread_id, ""), _Texts())
                texts = known[where.thread_id, where.execution_id] = _Texts(parent, parent_id)
                self._remember(texts, event, seq)
                texts.add(event.items, seq)
            case ev.ChildEnded(where):
                ended = known.get((where.thread_id, where.execution_id))
                if ended is not None and ended.parent is not None:
                    ended.parent.below |= {**ended.below, **ended.kept}
                    beside = ended.parent.beside(ended.parent_id)
                    for source in (*ended.log.all(), *ended.beside(where.execution_id).all()):
                        if source.origin.kind in ("tool", "layer"):
                            beside.add(source.raw, source.origin, at=seq, args=source.args)
            case ev.RequestPrepared():
                self._schemas |= {tool.name: tool.parameters for tool in event.tools}
            case ev.ItemsAppended(where):
                _texts_of(known, where).add(event.items, seq, origin_of_items(event))
            case ev.ViewAssembled(where):
                for layer_id, item in event.layer_items:
                    # The model itself words a summary.
                    if layer_id != "summary":
                        _texts_of(known, where).beside(where.execution_id).add_offered(layer_id, item, seq)
            case ev.ToolCalled(where):
                texts = _texts_of(known, where)
                if event.call_id not in texts.calls and event.output and event.status in _RETURNED:
                    args = compact_json(thaw(event.args or {}))
                    texts.beside(where.execution_id).add(event.output, Origin("tool", event.name), at=seq, args=args)
                    for kept in {id(one.index): one for one in texts.kept.values()}.values():
                        kept.add(event.output, Origin("tool", event.name), args, seq)

    def _remember(self, texts: _Texts, event: ev.TurnStarted | ev.ChildStarted, seq: int) -> None:
        if not event.memory:
            return
        # A child also has its parent's memories.
        found = {} if texts.parent is None else dict(texts.parent.kept)
        for memory in event.memory:
            ids = event.where.execution_id, event.where.thread_id, self._resources.get(event.where.thread_id)
            key = resolve_scope_key(memory.scope, ScopeIds(*ids))
            kept = self._kept.setdefault((memory.scope, key), KeptTexts())
            for kind, name, text, args in memory.texts:
                kept.add(text, Origin(kind, name), args, seq)
            found |= dict.fromkeys(memory.layer_ids, kept) | dict.fromkeys(memory.foreign, kept.of_others())
        texts.kept = found
        texts.tell()


class RunOrigins:
    """Explains the decisions of a run that may drop turns; after a drop it reads the events again."""

    def __init__(self, run: RunLike) -> None:
        self._run = run
        self._known: RecordedOrigins | None = None
        self._seqs: list[int] | None = None

    def at(self, event: ev.SteeringDecided | ev.ToolCalled, seq: int) -> Provenance | None:
        """Return the provenance of values for a decision or call, given its number; None if the run has dropped it."""
        place = place_of(self._run, seq, event)
        if place is None:
            return None
        numbers: Numbering | None = getattr(self._run, "_numbers", None)
        seqs = None if numbers is None else numbers.seqs
        if self._known is None or seqs is not self._seqs:  # turns were dropped, so all places have moved
            self._known, self._seqs = RecordedOrigins(self._run.events, getattr(self._run, "meta", {})), seqs
        tool = event.name if isinstance(event, ev.ToolCalled) else event.tool_name or ""
        return self._known.at(event.where, place, tool)


def _texts_of(known: dict[tuple[str, str], _Texts], where: ev.Where) -> _Texts:
    found = known.get((where.thread_id, where.execution_id))
    return found if found is not None else known.setdefault((where.thread_id, ""), _Texts())


def _instructions(meta: Mapping[str, Any]) -> Iterator[str]:
    """Yield the instructions at any depth of a run's meta."""
    waiting: list[Any] = [meta]
    while waiting:
        found = waiting.pop()
        if isinstance(found, Mapping):
            for key, value in found.items():
                if key in _POLICY and isinstance(value, str):
                    yield value
                elif isinstance(value, Mapping | list | tuple):
                    waiting.append(value)
        elif isinstance(found, list | tuple):
            waiting += found
