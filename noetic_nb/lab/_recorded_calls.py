"""The calls of recorded runs at which rules are evaluated: tool calls before they ran, model calls with their response.

The recorded past is not changed: a call that a rule would have prevented remains in the history of later calls. The
history is that of the whole execution tree in the order of decision, as the rules saw it.
"""

from __future__ import annotations

import itertools
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from noetic_nb import events as ev
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._checks import each_run
from noetic_nb.memory import PastCall
from noetic_nb.memory._enforcement import PENDING
from noetic_nb.memory._steering_decision import SteeringAction, SteeringDecision, allow
from noetic_nb.memory.params import AfterModelCallParams, BeforeToolCallParams
from noetic_nb.models._client import CUT_OFF
from noetic_nb.runs import Run
from noetic_nb.runs._cause import places_of_decisions
from noetic_nb.runs._recorded_origins import CallParams, RecordedOrigins
from noetic_nb.steering._rules.rule import Point
from noetic_nb.steps._function_tools import make_tool

# Experiments use the same runs repeatedly; the calls of a thousand short runs take about 20 MB.
MAX_KEPT_RUNS: Final = 4_096
# Calls that never reached the rules: the tool was unknown, or the arguments did not fit.
_NOT_EVALUATED: Final = frozenset({"unknown", "invalid_args"})


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """The position of a call in its run, and the parameters passed to a rule."""

    run_id: str
    seq: int
    t_ms: float
    where: ev.Where
    point: Point
    params: BeforeToolCallParams | AfterModelCallParams
    succeeded: bool = False
    """Whether it is a tool call that succeeded."""

    @property
    def tool_name(self) -> str | None:
        """The tool, or None for a response; asking a response for one would make an error that names the closest field."""
        return self.params.tool_name if isinstance(self.params, BeforeToolCallParams) else None


def call_outside(params: BeforeToolCallParams, seq: int = 0) -> RecordedCall:
    """Return a call outside any run, for evaluating rules."""
    return RecordedCall("", seq, 0.0, ev.Where("", "", 1), "before_tool_call", params)


def calls_of(runs: Run | Iterable[Run]) -> tuple[RecordedCall, ...]:
    """Return every call at which rules are evaluated, in order; the runs may be recorded, loaded or still growing."""
    found: list[RecordedCall] = []
    for run in each_run(runs, "Rules are tried on runs."):
        found += _kept_calls(run)
    return tuple(found)


def tools_of(runs: Run | Iterable[Run], *, called: bool = True) -> dict[str, Any]:
    """Return the tools of some runs with their argument schemas: as offered, or inferred from the arguments of calls."""
    offered: dict[str, Any] = {}
    used: dict[str, Any] = {}
    for run in [runs] if isinstance(runs, Run) else runs:
        for event in run.select(ev.RequestPrepared, ev.ToolCalled):
            if isinstance(event, ev.RequestPrepared):
                offered |= {tool.name: tool.parameters for tool in event.tools}
            elif called and event.status != "unknown":
                known = used.setdefault(event.name, {"properties": {}})
                known["properties"] |= {key: {} for key in event.args or ()}
    return used | offered


def schemas_of(tools: Any) -> dict[str, Any]:
    """Return the schemas of tools given as functions, records, specs, schemas by name, or names."""
    if isinstance(tools, Mapping):
        return {str(name): _schema(schema) for name, schema in tools.items()}
    found: dict[str, Any] = {}
    # An iterable holds tools; any other value is a single tool, or invalid.
    for tool in [tools] if isinstance(tools, str) or not isinstance(tools, Iterable) else tools:
        if isinstance(tool, str) and tool.strip():
            found[tool] = None
            continue
        spec: Any = getattr(tool, "spec", tool)
        if not isinstance(getattr(spec, "name", None), str):
            spec = make_tool(tool).spec if callable(tool) else spec
        if not isinstance(getattr(spec, "name", None), str):
            hint = "Pass functions, tools, names, or a mapping of names to JSON Schemas."
            raise NoeticConfigError("INVALID_TOOL", "This is not a tool.", given=tool, hint=hint)
        found[spec.name] = _schema(getattr(spec, "parameters", None))
    return found


def _schema(given: Any) -> Any:
    """Return a JSON Schema, also for arguments that are only listed."""
    if given is None or isinstance(given, Mapping):
        return given
    if not isinstance(given, Iterable) or isinstance(given, str):
        hint = "Pass a JSON Schema of the arguments, their names in a list, or None where they are not known."
        raise NoeticConfigError("INVALID_TOOL", "This is no schema.", given=given, hint=hint)
    return {"properties": {str(name): {} for name in given}}


def decisions_acted_on(run: Run) -> list[SteeringDecision]:
    """Return the decision applied at each call of a run; without a recorded one, the call was allowed."""
    calls, events = _kept_calls(run), tuple(run.events)
    if not run.select(ev.SteeringDecided):
        return [allow()] * len(calls)
    about = places_of_decisions(events)
    found = []
    for call in calls:
        event: Any = events[about[call.seq]] if call.seq in about else None
        is_acted_on = event is not None and event.enforced
        action = SteeringAction(event.action) if is_acted_on else None
        found.append(SteeringDecision(action, event.guidance, event.rule_ids) if action is not None else allow())
    return found


# By the id of a living run: its size and last event when it was read, and its calls.
_kept: dict[int, tuple[weakref.ref[Run], int, ev.RunEvent | None, tuple[RecordedCall, ...]]] = {}


def _kept_calls(run: Run) -> tuple[RecordedCall, ...]:
    """Return the calls of a run, which is read again if it has grown."""
    events = run.events
    size, last = len(events), events[-1] if len(events) else None
    kept = _kept.get(id(run))
    if kept is not None and kept[0]() is run and kept[1] == size and kept[2] is last:
        return kept[3]
    calls = tuple(_of_run(run))
    if len(_kept) >= MAX_KEPT_RUNS:
        _kept.pop(next(iter(_kept)), None)
    _kept[id(run)] = (weakref.ref(run, partial(_forget, id(run))), size, last, calls)
    return calls


def _forget(number: int, ended: weakref.ref[Run]) -> None:
    # By now, another run may have this id.
    if number in _kept and _kept[number][0] is ended:
        del _kept[number]


@dataclass(slots=True)
class _Tree:
    """The calls of an execution tree, ordered once complete: a call may be recorded after calls with a later decision."""

    calls: list[tuple[int, ev.ToolCalled]] = field(default_factory=list)
    """The event index at which each call ended, and its event."""
    past: tuple[PastCall, ...] = ()
    index: dict[int, int] = field(default_factory=dict)
    in_turn: bool = True
    """Whether the calls ended in the order of their decisions, as usual."""

    def order(self) -> None:
        """Sort the calls by decision; those of runs without this information stay in the order of their ends."""
        if all(event.place is not None for _, event in self.calls):
            self.calls.sort(key=lambda call: call[1].place or 0)
        self.past = tuple(
            [PastCall(e.name, e.args or {}, e.call_id, e.status, e.output, e.where.execution_id) for _, e in self.calls]
        )
        self.index = {seq: at for at, (seq, _) in enumerate(self.calls)}
        self.in_turn = all(a[0] < b[0] for a, b in itertools.pairwise(self.calls))

    def before(self, seq: int, event: ev.ToolCalled) -> tuple[PastCall, ...]:
        """Return the calls before one, in their state when its decision began."""
        past = self.past[: self.index[seq]]
        if not event.behind:
            return past
        return tuple(
            [
                _open(call) if made.place in event.behind else call
                for call, (_, made) in zip(past, self.calls, strict=False)
            ]
        )

    def at(self, seq: int, t_ms: float) -> tuple[PastCall, ...]:
        """Return the calls up to a moment; one that had begun but ended later is still open."""
        if self.in_turn:
            # The first call that had not begun ends it: the ones after it began later still.
            first = last = bisect_left(self.calls, seq, key=_end)
            while last < len(self.calls) and _began(self.calls[last][1]) < t_ms:
                last += 1
            return (*self.past[:first], *map(_open, self.past[first:last]))
        return tuple(
            [
                call if end < seq else _open(call)
                for call, (end, event) in zip(self.past, self.calls, strict=True)
                if end < seq or _began(event) < t_ms
            ]
        )


def _end(call: tuple[int, ev.ToolCalled]) -> int:
    return call[0]


def _began(event: ev.ToolCalled) -> float:
    return event.t_ms - (event.duration_ms or 0.0)


def _open(call: PastCall) -> PastCall:
    return call._replace(status=PENDING, output=None)


def _trees(events: Sequence[ev.RunEvent]) -> Callable[[ev.Where], _Tree]:
    """Collect the calls of each execution tree; return a function that gives the tree of an execution."""
    parents = {event.where.execution_id: event.parent_id for event in events if isinstance(event, ev.ChildStarted)}
    trees: dict[tuple[str, str], _Tree] = {}

    def tree_of(where: ev.Where) -> _Tree:
        root, seen = where.execution_id, set[str]()
        while root in parents and root not in seen:
            seen.add(root)
            root = parents[root]
        return trees.setdefault((where.thread_id, root), _Tree())

    for seq, event in enumerate(events):
        if isinstance(event, ev.ToolCalled):
            tree_of(event.where).calls.append((seq, event))
    for tree in trees.values():
        tree.order()
    return tree_of


def _is_reviewed(events: Sequence[ev.RunEvent], seq: int, called: ev.ModelCalled) -> bool:
    """Tell whether an answer is one for rules: not an empty or truncated one that was asked for again, or refused."""
    if called.finish_reason not in CUT_OFF:
        return bool(called.items)
    for event in events[seq + 1 :]:
        if event.where == called.where:
            match event:
                case ev.ItemsAppended(origin="model") | ev.SteeringDecided(hook="after_model_call"):
                    return True
                case ev.ModelCalled(purpose="agent") | ev.StepEnded() | ev.TurnCompleted():
                    return False
    return True


def _of_run(run: Run) -> Iterator[RecordedCall]:
    # Copied, because a run may grow while it is read.
    events = tuple(run.events)
    tree_of = _trees(events)
    origins = RecordedOrigins(events, run.meta)
    # In a harness, rules receive the sum of known prices, so they receive it here as well.
    params = CallParams(is_priced=run.meta.get("config") is not None)
    for seq, event in enumerate(events):
        where = event.where
        if isinstance(event, ev.TurnStarted):
            params.begin(event)
        elif isinstance(event, ev.ToolCalled):
            if event.status not in _NOT_EVALUATED:
                provenance = partial(origins.at, where, seq, event.name)
                call = params.of_tool(event, tree_of(where).before(seq, event), provenance)
                yield RecordedCall(run.run_id, seq, event.t_ms, where, "before_tool_call", call, event.status == "ok")
        elif isinstance(event, ev.ModelCalled):
            params.count(event)
            if event.purpose == "agent" and event.status == "ok" and _is_reviewed(events, seq, event):
                answer = params.of_response(event, tree_of(where).at(seq, event.t_ms))
                yield RecordedCall(run.run_id, seq, event.t_ms, where, "after_model_call", answer)
