"""The tables of a run. Each begins with run, thread, execution, turn, ``seq`` and ``t_ms``.

Secrets are replaced, as in a saved run. An unknown cost, duration, grade or number of tokens is missing, never 0.

=============  ==========================  ===========================================================================
table          a row is                    columns of its own
=============  ==========================  ===========================================================================
turns          a turn                      turn_id, query, text, outcome (None: running), stopped (kind of the
                                           decision), quality (newest grade), input_tokens, output_tokens, cost,
                                           duration_ms, model_calls, tool_calls, resource_id, finish_reason (why the
                                           last answer ended: stop, tool_calls, length, content_filter, None),
                                           cached_tokens, cache_write_tokens, reasoning_tokens (of the calls that
                                           report them; missing if none does), and how many do: each with _known
allocations    a layer in a sent view      layer_id, allocated, used, yielded, items, step; and of the whole view:
                                           system, tools, framing, history, history_budget, reserve, total (tokens),
                                           reported, unexplained, counter, known_error (as in the table tokens)
items          an item of the log          position, origin, item_id, type, role, name, call_id, tokens, text,
                                           counter (its token counter), sent_from, sent_until (the first and the last
                                           of the agent's model calls that sent it; missing if none did), fate (why
                                           the last call with it in its log did not send it: budget, window,
                                           summary, compaction, cleared; None if it did)
spans          a call of a layer's hook    layer_id, hook, duration_ms, status, allocated, used, yielded, item_count,
                                           error, depth
tools          a settled tool call         tool_name, call_id, args (of the tool), output, duration_ms, status,
                                           error, depth, raw_args (text of the model; None: unknown),
                                           error_type (its class, or its kind)
ledger         a decision of steering, or  hook, tool_name, args, action, guidance, rule_ids, duration_ms, outcome,
               a rule that may guard       layer_id, depth, enforced (False: judged after the fact)
               nothing (action "warn")
decisions      an answer of the regulator  layer_id, at, decision, reason, suggestion, confidence, tokens_out,
                                           cost_cap, stops, detail (the decision as plain data), enforced
regulator      an event the regulator saw  layer_id, event, quality, tokens_in, tokens_out, tool_name, success, detail
tokens         a request of the agent      model, step, counter, known_error (relative, of the counter),
                                           planned, reported (input tokens), unexplained (reported tokens that no part
                                           of the plan explains), error (planned against reported, relative), problem
                                           (missing, negative, backwards, disagrees), cached_tokens, output_tokens,
                                           cache_write_tokens, reasoning_tokens (missing: unknown), part (request),
                                           tokens (planned); then one row for each tool definition of each request:
                                           part (tool:<name>) and tokens
compactions    a part of the context was   call (number of earlier model calls of the execution), by, items_removed,
               replaced by a shorter one   tokens_before, tokens_after, opaque (only the provider reads it), trigger,
                                           summary, depth, and the tokens billed outside model calls: input_tokens,
                                           output_tokens, cached_tokens, cache_write_tokens, reasoning_tokens
warnings       a problem in a turn that    code, text, layer_id, depth
               did not end it
=============  ==========================  ===========================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from noetic_nb import events as ev
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import item_text, item_tokens, thaw
from noetic_nb.models._client import Usage
from noetic_nb.runs._events.event_kinds import kinds_of, places_of
from noetic_nb.runs._regulation.decision_words import DecisionRedaction
from noetic_nb.runs._requests.billing_differences import CallUsage, UsageIndex
from noetic_nb.runs._requests.item_lives import compactions_of, context_of, item_lives
from noetic_nb.runs._requests.recorded_requests import requests_of
from noetic_nb.runs._requests.sent_request import item_counter, tool_tokens
from noetic_nb.runs._turns import TurnSummary
from noetic_nb.tokens import tokenizer_name

if TYPE_CHECKING:
    import pandas

UNKNOWN_TARGET: Final = "unknown_rule_target"
"""Code of the warning about a rule whose tool or argument does not exist."""

FAULTY_OUTCOMES: Final = frozenset(
    {"error", "unparseable", "timeout", "cancelled", "uninitialised", "disabled", "late_fault"}
)
"""Outcomes in which a rule failed to do its work, whatever was decided because of it."""


def is_faulty(event: ev.SteeringDecided) -> bool:
    """Tell whether a rule, a judge or a whole layer failed."""
    return bool(event.faults) or event.outcome in FAULTY_OUTCOMES


def ledger_line(event: ev.SteeringDecided | ev.WarningRaised) -> ev.SteeringDecided | None:
    """Convert an event to a ledger row: decisions, and warnings about rules that may guard nothing; None for others."""
    if isinstance(event, ev.SteeringDecided):
        return event
    if event.code != UNKNOWN_TARGET:
        return None
    return ev.SteeringDecided(
        event.where,
        event.t_ms,
        event.layer_id or "",
        "init",
        None,
        None,
        "warn",  # type: ignore[arg-type]  # the row of a warning, not a real action
        event.text,
        (),
        0.0,
        event.code,
    )


_Row: TypeAlias = tuple[Any, ...]

# Text and data columns are objects, because None must stay None; numbers that may be missing are floats with NaN.
_COMMON: Final = "run_id:object thread_id:object execution_id:object turn:int64 seq:int64 t_ms:float64"


@dataclass(frozen=True, slots=True)
class Recorded:
    """The source of tables."""

    run_id: str
    events: Sequence[ev.RunEvent]
    turns: Sequence[TurnSummary]


@dataclass(frozen=True, slots=True)
class _Table:
    columns: str
    rows: Callable[[Recorded], Iterator[_Row]]

    @property
    def dtypes(self) -> dict[str, str]:
        named = f"{_COMMON} {self.columns}".split()
        return dict(column.split(":") for column in named)


def _events_of(run: Recorded, *kinds: type[Any]) -> Iterator[tuple[_Row, Any]]:
    for seq in places_of(kinds_of(run.events), kinds):
        event = run.events[seq]
        yield _head(run, event.where, seq, event.t_ms), event


def _head(run: Recorded, where: ev.Where, seq: int, t_ms: float) -> _Row:
    return run.run_id, where.thread_id, where.execution_id, where.turn, seq, t_ms


def _turns(run: Recorded) -> Iterator[_Row]:
    for turn in run.turns:
        yield (
            *_head(run, turn.where, turn.seq, turn.t_ms),
            *(turn.turn_id, turn.query, turn.text, turn.outcome, _kind(turn.stopped)),
            turn.qualities[-1] if turn.qualities else None,
            *(turn.input_tokens, turn.output_tokens, turn.cost, turn.duration_ms),
            *(len(turn.model_calls), len(turn.tool_calls), turn.resource_id, turn.finish_reason),
            *_known_sums(turn),
        )


def _known_sums(turn: TurnSummary) -> Iterator[int | None]:
    """Yield the sums of the counts that only some providers report, then for how many calls each is known."""
    known = [[count for call in turn.model_calls if (count := call.counts[at]) is not None] for at in range(2, 5)]
    yield from [sum(counts) if counts else None for counts in known]
    yield from map(len, known)


def _allocations(run: Recorded) -> Iterator[_Row]:
    billed = _billed(run)
    for head, view in _events_of(run, ev.ViewAssembled):
        usage = billed.get(id(view))
        counted: _Row = (None, None, None, None)
        if usage is not None:
            counted = (usage.reported, usage.unexplained, usage.counter, usage.known_error)
        for layer in view.layers:
            yield (
                *head,
                *(layer.layer_id, layer.allocated, layer.used, layer.yielded, layer.items, view.step),
                *(view.system, view.tools, view.framing, view.history, view.history_budget, view.reserve, view.total),
                *counted,
            )


def _billed(run: Recorded) -> dict[int, CallUsage]:
    """Return the usage of requests, by the ``id`` of the events that sent them."""
    index = UsageIndex()
    found = [billed for event in run.events if (billed := index.read(event)) is not None]
    return {id(billed.view): billed.usage for billed in found if billed.view is not None}


def _tokens(run: Recorded) -> Iterator[_Row]:
    index, tools = UsageIndex(), list[_Row]()
    for seq, event in enumerate(run.events):
        billed = index.read(event)
        if billed is None:
            continue
        usage, called = billed.usage, billed.called
        known = called.input_tokens > 0  # 0 means that the model reports no usage
        head = _head(run, called.where, seq, called.t_ms)
        named = called.model, called.step, usage.counter, usage.known_error
        yield (
            *(*head, *named, usage.planned, usage.reported, usage.unexplained, usage.error, usage.problem),
            *((called.cached_tokens, called.output_tokens) if known else (None, None)),
            *((called.cache_write_tokens, called.reasoning_tokens) if known else (None, None)),
            *("request", usage.planned),
        )
        offered = () if billed.view is None else tool_tokens(billed.prepared, billed.view.tools)
        tools += [(*head, *named, *[None] * 9, f"tool:{name}", tokens) for name, tokens in offered]
    # Tool rows follow all requests, so that a request's row number is that of its call.
    yield from tools


def _items(run: Recorded) -> Iterator[_Row]:
    counter = item_counter(run.events)
    counted_by = tokenizer_name(counter)
    requests = requests_of(run).requests
    places = [request.place for request in requests]
    lives = {(*life.context, life.position, id(life.item)): life for life in item_lives(requests, compactions_of(run))}
    for head, event in _events_of(run, ev.ItemsAppended):
        context = context_of(event.where)
        for place, item in enumerate(event.items):
            known = [item.get(key) for key in ("id", "type", "role", "name", "callId")]
            tokens = item_tokens(item, counter)
            life = lives.get((*context, event.start + place, id(item)))
            sent = (
                (None, None) if life is None or not life.sent else (places[life.sent[0][0]], places[life.sent[-1][1]])
            )
            fate = None if life is None else life.fate
            yield (
                *(*head, event.start + place, event.origin, *known, tokens, item_text(item), counted_by),
                *(*sent, fate),
            )


def _spans(run: Recorded) -> Iterator[_Row]:
    for head, span in _events_of(run, ev.MemoryTraceSpan):
        budget = span.budget
        tokens = (None, None, None) if budget is None else (budget.allocated, budget.used, budget.yielded)
        facts = (span.layer_id, span.hook, span.duration_ms, span.status)
        yield (*head, *facts, *tokens, span.item_count, span.error, span.where.depth)


def _tools(run: Recorded) -> Iterator[_Row]:
    for head, call in _events_of(run, ev.ToolCalled):
        result = (call.output, call.duration_ms, call.status, call.error)
        yield (
            *head,
            call.name,
            call.call_id,
            thaw(call.args),
            *result,
            call.where.depth,
            thaw(call.raw_args),
            call.error_type,
        )


def _ledger(run: Recorded) -> Iterator[_Row]:
    for head, event in _events_of(run, ev.SteeringDecided, ev.WarningRaised):
        entry = ledger_line(event)
        if entry is None:
            continue
        call = (entry.hook, entry.tool_name, thaw(entry.args))
        verdict = (entry.action, entry.guidance, entry.rule_ids, entry.duration_ms, entry.outcome)
        beside = (entry.layer_id, entry.where.depth, entry.enforced, entry.faults, entry.matched)
        yield (*head, *call, *verdict, *beside)


def _decisions(run: Recorded) -> Iterator[_Row]:
    for head, answer in _events_of(run, ev.RegulatorDecided):
        decision = answer.decision
        reason = decision.get("reason")
        named = (answer.layer_id, answer.at, _kind(decision), _kind(reason), answer.suggestion)
        readings = (answer.confidence, answer.tokens_out, answer.cost_cap, answer.stops)
        yield (*head, *named, *readings, thaw(decision), answer.enforced)


def _warnings(run: Recorded) -> Iterator[_Row]:
    for head, warning in _events_of(run, ev.WarningRaised):
        yield (*head, warning.code, warning.text, warning.layer_id, warning.where.depth)


def _compactions(run: Recorded) -> Iterator[_Row]:
    calls: dict[str, int] = {}
    for head, event in _events_of(run, ev.ContextCompacted, ev.ModelCalled):
        place = calls.get(event.where.execution_id, 0)
        if isinstance(event, ev.ModelCalled):
            calls[event.where.execution_id] = place + (event.purpose == "agent")
            continue
        counts = (event.items_removed, event.tokens_before, event.tokens_after, event.opaque)
        summary = "\n".join(map(item_text, event.items))
        billed = [(event.usage or {}).get(key) for key in Usage._fields]
        yield (*head, place, event.by, *counts, event.trigger, summary, event.where.depth, *billed)


def _regulator(run: Recorded) -> Iterator[_Row]:
    for head, saw in _events_of(run, ev.RegulatorSaw):
        event = saw.event
        facts = [event.get(key) for key in ("quality", "tokens_in", "tokens_out", "tool_name", "success")]
        yield (*head, saw.layer_id, _kind(event), *facts, thaw(event))


def _kind(data: Any) -> str | None:
    kind = data.get("kind") if isinstance(data, dict) else None
    return kind if isinstance(kind, str) else None


TABLES: Final[dict[str, _Table]] = {
    "turns": _Table(
        "turn_id:object query:object text:object outcome:object stopped:object quality:float64 input_tokens:float64 "
        "output_tokens:float64 cost:float64 duration_ms:float64 model_calls:int64 tool_calls:int64 resource_id:object "
        "finish_reason:object cached_tokens:float64 cache_write_tokens:float64 reasoning_tokens:float64 "
        "cached_tokens_known:int64 cache_write_tokens_known:int64 reasoning_tokens_known:int64",
        _turns,
    ),
    "allocations": _Table(
        "layer_id:object allocated:float64 used:int64 yielded:float64 items:int64 step:int64 system:int64 tools:int64 "
        "framing:int64 history:int64 history_budget:float64 reserve:float64 total:float64 "
        "reported:float64 unexplained:float64 counter:object known_error:float64",
        _allocations,
    ),
    "items": _Table(
        "position:int64 origin:object item_id:object type:object role:object name:object call_id:object tokens:int64 "
        "text:object counter:object sent_from:Int64 sent_until:Int64 fate:object",
        _items,
    ),
    "spans": _Table(
        "layer_id:object hook:object duration_ms:float64 status:object allocated:float64 used:float64 yielded:float64 "
        "item_count:float64 error:object depth:int64",
        _spans,
    ),
    "tools": _Table(
        "tool_name:object call_id:object args:object output:object duration_ms:float64 status:object error:object "
        "depth:int64 raw_args:object error_type:object",
        _tools,
    ),
    "ledger": _Table(
        "hook:object tool_name:object args:object action:object guidance:object rule_ids:object duration_ms:float64 "
        "outcome:object layer_id:object depth:int64 enforced:bool faults:object matched:object",
        _ledger,
    ),
    "decisions": _Table(
        "layer_id:object at:object decision:object reason:object suggestion:object confidence:float64 tokens_out:int64 "
        "cost_cap:float64 stops:bool detail:object enforced:bool",
        _decisions,
    ),
    "regulator": _Table(
        "layer_id:object event:object quality:float64 tokens_in:float64 tokens_out:float64 tool_name:object "
        "success:object detail:object",
        _regulator,
    ),
    "tokens": _Table(
        "model:object step:int64 counter:object known_error:float64 planned:float64 reported:float64 unexplained:float64 "
        "error:float64 problem:object cached_tokens:float64 output_tokens:float64 "
        "cache_write_tokens:float64 reasoning_tokens:float64 part:object tokens:float64",
        _tokens,
    ),
    "compactions": _Table(
        "call:int64 by:object items_removed:float64 tokens_before:float64 tokens_after:float64 opaque:bool "
        "trigger:object summary:object depth:int64 input_tokens:float64 output_tokens:float64 cached_tokens:float64 "
        "cache_write_tokens:float64 reasoning_tokens:float64",
        _compactions,
    ),
    "warnings": _Table("code:object text:object layer_id:object depth:int64", _warnings),
}


def frame(run: Recorded, name: str) -> pandas.DataFrame:
    """Return one table of `TABLES`, one row per recorded fact; raises ``UNKNOWN_TABLE`` for an unknown name."""
    table = TABLES.get(name) if isinstance(name, str) else None
    if table is None:
        raise NoeticConfigError(
            "UNKNOWN_TABLE", "A run has no such table.", given=name, hint=f"Ask for one of {', '.join(TABLES)}."
        )
    import pandas

    words = DecisionRedaction()
    if name == "decisions":
        for event in run.events:
            words.take(event)
    rule = words.rule
    rows = list(table.rows(run))
    return pandas.DataFrame(
        {
            column: pandas.Series(
                [rule.data(row[place]) if dtype == "object" else row[place] for row in rows], dtype=dtype
            )
            for place, (column, dtype) in enumerate(table.dtypes.items())
        }
    )
