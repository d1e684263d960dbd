"""The decisions of a run's own or other rules at every recorded call and response, with the ledger that they read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, get_args

from msgspec import structs

from noetic_nb import events as ev
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import thaw
from noetic_nb.lab._recorded_calls import RecordedCall, calls_of
from noetic_nb.lab._replaying.replay_report import Kept
from noetic_nb.lab._rule_trial import TrialResult, as_snapshot, try_rules
from noetic_nb.memory import MemoryLayer, PastCall, SteeringDecision
from noetic_nb.memory.scope import MemoryScope
from noetic_nb.models._client import CUT_OFF, ModelClient
from noetic_nb.runs import Run
from noetic_nb.runs._cause import places_of_decisions
from noetic_nb.steering import RuleBook, parse_rules
from noetic_nb.steering._evaluation.evaluate import Policy, RuleSnapshot
from noetic_nb.steering._evaluation.judging import LAYER_ID
from noetic_nb.steering._layer import policy_of, rulebook_of
from noetic_nb.steering._ledger import ThreadHistory, appended, decision_entry, rows_of
from noetic_nb.steering._rulebook.rulebook import RuleChange

# The steering layer's default.
MAX_ENTRIES: Final = 100
_POINTS: Final = frozenset({"before_tool_call", "after_model_call"})


def _owner(event: ev.TurnStarted, scope: str) -> str:
    """Return the owner of layer memory that outlives a turn."""
    if scope == "global":
        return ""
    thread_id = event.where.thread_id
    return thread_id if scope == "thread" or event.resource_id is None else event.resource_id


def _with_state(call: RecordedCall, state: Any) -> RecordedCall:
    """Return a call at which rules find a copy of this state, which they may modify."""
    params: Any = call.params
    return replace(call, params=params._replace(state=state))


def _states(events: Sequence[ev.RunEvent]) -> dict[int, Any]:
    """Return the steering state before each of its recorded decisions, by event index; each is a separate copy."""
    now: dict[tuple[str, str], Any] = {}
    before: dict[tuple[str, str], Any] = {}
    found: dict[int, Any] = {}
    for seq, event in enumerate(events):
        key = event.where.thread_id, event.where.execution_id
        match event:
            case ev.LayerStateChanged(layer_id=layer_id) if layer_id == LAYER_ID:
                if event.hook in _POINTS:
                    before[key] = now.get(key)
                now[key] = event.state
            case ev.SteeringDecided(layer_id=layer_id) if layer_id == LAYER_ID and before.get(key) is not None:
                found[seq] = thaw(before[key])
    return found


@dataclass(slots=True)
class WrittenLedger:
    """A ledger that is written while rules are evaluated; decisions in `stay` stay, with recorded `durations` by call."""

    events: Sequence[ev.RunEvent]
    scope: str
    max_entries: int
    durations: Mapping[int, float] = field(default_factory=dict)
    stay: frozenset[int] = frozenset()
    _read: int = 0
    _entries: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    _owners: dict[tuple[str, str], str] = field(default_factory=dict)
    _left: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def given(self, call: RecordedCall) -> RecordedCall:
        while self._read < call.seq:
            self._take(self._read, self.events[self._read])
            self._read += 1
        return _with_state(call, {"ledger": [{**entry} for entry in self._of(call)], "pendingAsync": []})

    def took(self, call: RecordedCall, decision: SteeringDecision) -> None:
        entry = decision_entry(call.params, decision, self.durations.get(call.seq, 0.0))
        self._write((call.where.thread_id, call.where.execution_id), entry)

    def _of(self, call: RecordedCall) -> list[dict[str, Any]]:
        return self._entries.get((call.where.thread_id, call.where.execution_id), [])

    def _write(self, key: tuple[str, str], entry: dict[str, Any]) -> None:
        entries = [*self._entries.get(key, ()), entry]
        self._entries[key] = entries[-self.max_entries :] if self.max_entries else []

    def _take(self, seq: int, event: ev.RunEvent) -> None:
        key = event.where.thread_id, event.where.execution_id
        match event:
            case ev.TurnStarted() if self.scope != "execution":
                self._owners[key] = _owner(event, self.scope)
                self._entries[key] = self._left.get(self._owners[key], [])
            case ev.SteeringDecided() if seq in self.stay:
                self._write(key, _entry(event))
            case ev.ChildStarted():
                self._entries[key] = self._entries.get((key[0], event.parent_id), [])
            case ev.TurnCompleted() if key in self._owners:
                outcome = {"kind": "custom", "timestamp": event.t_ms, "custom": {"outcome": event.outcome}}
                self._write(key, outcome)
                self._left[self._owners[key]] = self._entries[key]


def _entry(event: ev.SteeringDecided) -> dict[str, Any]:
    about = {"kind": "model_turn"}
    if event.tool_name is not None:
        about = {"kind": "tool_call", "toolName": event.tool_name, "toolArgs": thaw(event.args or {})}
    entry: dict[str, Any] = {"timestamp": event.t_ms, **about, "action": event.action, "durationMs": event.duration_ms}
    if event.guidance is not None:
        entry["guidance"] = event.guidance
    if event.rule_ids:
        entry |= {"ruleId": event.rule_ids[0], "ruleIds": list(event.rule_ids)}
    return entry


@dataclass(frozen=True)
class RulesInForce:
    """The `versions` of rules by the index at which they begin, None for unknown ones, and their layer's policy."""

    versions: tuple[tuple[int, RuleSnapshot | None], ...]
    policy: Policy
    scope: str
    max_entries: int = MAX_ENTRIES

    def at(self, seq: int) -> RuleSnapshot | None:
        found = None
        for start, rules in self.versions:
            if start > seq:
                break
            found = rules
        return found


def max_entries_of(layer: MemoryLayer) -> int:
    """Return the number of entries that the ledger of a layer keeps."""
    options = {} if layer.made_by is None else layer.made_by.options
    most: int = options.get("max_ledger_entries", MAX_ENTRIES)
    return most


def recorded_rules(run: Run) -> RulesInForce | None:
    """Return the rules of a run, from its agent in this process or from its bundle; None if there are none."""
    edits = [(seq, event) for seq, event in enumerate(run.events) if isinstance(event, ev.RuleChanged)]
    for layer in getattr(run._config, "memory", ()):
        book = rulebook_of(layer)
        if book is not None:
            return RulesInForce(
                _versions(book, edits), policy_of(layer) or Policy(), layer.scope, max_entries_of(layer)
            )
    bundle = run.bundle
    if bundle is None or not bundle.get("rules"):
        return None
    try:
        rules: RuleSnapshot | None = parse_rules(json.dumps(bundle["rules"]), format="json").snapshot
    except (NoeticConfigError, TypeError, ValueError):
        return None  # rules that are code of another process
    options = _options(bundle.get("config"))
    known = {name: options[name] for name in ("on_error", "on_unparseable", "max_retries") if name in options}
    scope = options.get("scope", "execution")
    versions = ((0, None), (edits[-1][0] + 1, rules)) if edits else ((0, rules),)
    scope = scope if scope in get_args(MemoryScope) else "execution"
    return RulesInForce(versions, Policy(**known), scope, options.get("max_ledger_entries", MAX_ENTRIES))


def _options(config: Any) -> dict[str, Any]:
    match config:
        case {"memory": list() | tuple() as layers}:
            for layer in layers:
                match layer:
                    case {"kind": "steering", "options": dict() as options}:
                        return {key: value for key, value in options.items() if isinstance(value, str | int)}
    return {}


def _versions(
    book: RuleBook, edits: Iterable[tuple[int, ev.RuleChanged]]
) -> tuple[tuple[int, RuleSnapshot | None], ...]:
    """Undo recorded changes one by one, starting from the current rules."""
    places = {event.version: seq for seq, event in edits}
    if not places:
        return ((0, book.snapshot),)
    rules: tuple[Any, ...] | None = book.snapshot.rules
    found: list[tuple[int, RuleSnapshot | None]] = []
    for change in reversed(book.changes):
        if change.version in places:
            known = None if rules is None else RuleSnapshot(change.version, rules)
            found.append((places[change.version] + 1, known))
        if change.version < min(places):
            break
        rules = None if rules is None else _before(rules, change)
    first = None if rules is None else RuleSnapshot(min(places) - 1, rules)
    return ((0, first), *reversed(found))


def _before(rules: tuple[Any, ...], change: RuleChange) -> tuple[Any, ...] | None:
    """Return the rules before a change; None if their order, which decides the first denial, is unknown."""
    if change.old is None:
        return tuple([rule for rule in rules if rule.id != change.rule_id])
    if change.new is None and change.change == "undo":
        return (*rules, change.old)  # a removed rule had been added last
    if change.new is None or change.change == "move" or change.old == change.new:
        return None
    return tuple([change.old if rule.id == change.rule_id else rule for rule in rules])


# Caused by the machine, not by the rules: timeouts, cancellation, or a layer that was never initialised.
_NOT_OF_RULES: Final = frozenset({"timeout", "cancelled", "uninitialised", "disabled"})


@dataclass(slots=True)
class LedgerReplay:
    """Decisions that replace recorded ones, by index, and added decisions, by the index of the call or response."""

    instead: dict[int, ev.SteeringDecided] = field(default_factory=dict)
    added: dict[int, ev.SteeringDecided] = field(default_factory=dict)


def ledger_of(run: Run, rules: Any, judge: ModelClient | None, kept: Kept) -> LedgerReplay:
    """Evaluate other rules, or those of the run if available, at every recorded call and response."""
    known = recorded_rules(run)
    events = tuple(run.events)
    is_new = rules is not None
    if is_new:
        known = RulesInForce((), Policy(), "execution") if known is None else known
        known = replace(known, versions=((0, as_snapshot(rules)),))
    places = [
        seq for seq, event in enumerate(events) if isinstance(event, ev.SteeringDecided) and event.layer_id == LAYER_ID
    ]
    if known is None:
        for seq in places:
            kept.add("rules", "the run does not have them", seq)
        return LedgerReplay()
    calls, about = calls_of(run), places_of_decisions(events)
    if known.scope != "execution":
        calls = _with_earlier(events, calls, known.scope)
    found = LedgerReplay()
    # A rule that raises is a row whatever the policy, because there is no turn here to end.
    policy = replace(known.policy, on_error="deny") if known.policy.on_error == "raise" else known.policy
    groups: dict[int, tuple[RuleSnapshot, list[tuple[RecordedCall, int | None]]]] = {}
    for call in calls:
        place = about.get(call.seq)
        if place is None and not is_new:
            continue
        at = call.seq if place is None else place
        recorded = None if place is None else events[place]
        snapshot = known.at(at)
        why = _not_again(events, call, recorded, snapshot, is_new)
        if why is not None:
            kept.add("rules", why, at)
        elif snapshot is not None:
            groups.setdefault(id(snapshot), (snapshot, []))[1].append((call, place))
    evaluated = {place for _, members in groups.values() for _, place in members}
    # A judge's late verdict is about a decision with a row of its own.
    stay = [
        place
        for place in places
        if place not in evaluated and getattr(events[place], "outcome", None) not in ("late", "late_fault")
    ]
    for place in sorted(set(stay) - set(about.values())):
        kept.add("rules", "a call that was never made", place)
    states: dict[int, Any] | None = None
    for snapshot, members in groups.values():
        asked = [call for call, _ in members]
        ledger: Callable[[], WrittenLedger] | None = None
        # Only rules with a function can read the ledger.
        if any(rule.enabled and rule.predicate is not None for rule in snapshot):
            if is_new:
                lasted = {
                    call.seq: getattr(events[place], "duration_ms", 0.0) for call, place in members if place is not None
                }
                ledger = partial(WrittenLedger, events, known.scope, known.max_entries, lasted, frozenset(stay))
            else:
                states = _states(events) if states is None else states
                asked = [call if place not in states else _with_state(call, states[place]) for call, place in members]
        results = try_rules(snapshot, asked, policy=policy, judge=judge, ledger=ledger)
        for (call, place), result in zip(members, results, strict=True):
            if result.skipped:
                what = f"judges without a model: {', '.join(result.skipped)}"
                kept.add("rules", what if is_new else f"decisions of {what}", call.seq if place is None else place)
                if not is_new:
                    continue
            decided = _decided(call, result, None if place is None else events[place])
            if place is None:
                found.added[call.seq] = decided
            else:
                found.instead[place] = decided
    return found


def _not_again(
    events: Sequence[ev.RunEvent], call: RecordedCall, recorded: Any, rules: RuleSnapshot | None, is_new: bool
) -> str | None:
    """Return why a decision is not made again."""
    if rules is None:
        return "rules of an earlier version, which the run does not have"
    if recorded is not None and recorded.outcome in _NOT_OF_RULES and not is_new:
        return f"no decision of rules: {recorded.outcome}"
    if call.point == "after_model_call" and _is_continued(events, call.seq):
        return "a response in several parts"
    return None


def _is_continued(events: Sequence[ev.RunEvent], seq: int) -> bool:
    """Tell whether a response continues a truncated one, and rules saw both as one."""
    key = events[seq].where.thread_id, events[seq].where.execution_id
    for at in range(seq - 1, -1, -1):
        event = events[at]
        if (event.where.thread_id, event.where.execution_id) != key:
            continue
        if isinstance(event, ev.SteeringDecided) and event.hook == "after_model_call":
            return False
        if isinstance(event, ev.ModelCalled) and event.purpose == "agent":
            return event.finish_reason in CUT_OFF
    return False


def _decided(call: RecordedCall, result: TrialResult, recorded: Any) -> ev.SteeringDecided:
    decision = result.decision
    outcome = None
    if result.error is not None:
        outcome = "unparseable" if result.error.endswith("unreadable verdict") else "error"
        outcome = "timeout" if result.error.startswith("TimeoutError: no answer") else outcome
    if recorded is None:
        params: Any = call.params
        name, args = (params.tool_name, params.tool_args) if call.point == "before_tool_call" else (None, None)
        recorded = ev.SteeringDecided(
            call.where, call.t_ms, LAYER_ID, call.point, name, args, "allow", None, (), 0.0, enforced=False
        )
    now: ev.SteeringDecided = structs.replace(
        recorded, action=decision.action.value, guidance=decision.guidance, rule_ids=decision.rule_ids, outcome=outcome
    )
    # Only recorded decisions were enforced.
    return now if now.action == recorded.action else structs.replace(now, enforced=False)


def _with_earlier(events: Sequence[ev.RunEvent], calls: Iterable[RecordedCall], scope: str) -> tuple[RecordedCall, ...]:
    """Prepend the calls of earlier turns to the history of each call, as a layer of a wider scope remembers them."""
    earlier: dict[str, str] = {}
    at_start: dict[tuple[str, int], str] = {}
    owners: dict[tuple[str, int], str] = {}
    made: dict[tuple[str, int], list[ev.ToolCalled]] = {}
    for event in events:
        key = event.where.thread_id, event.where.turn
        match event:
            case ev.TurnStarted():
                owners[key] = _owner(event, scope)
                at_start[key] = earlier.get(owners[key], "")
            case ev.ToolCalled():
                made.setdefault(key, []).append(event)
            case ev.TurnCompleted() if key in owners:
                ended = sorted(made.get(key, ()), key=lambda call: call.place or 0)
                rows = rows_of(
                    [PastCall(e.name, e.args or {}, e.call_id, e.status, e.output, e.where.execution_id) for e in ended]
                )
                earlier[owners[key]] = appended(earlier.get(owners[key], ""), rows)
    found = []
    for call in calls:
        text = at_start.get((call.where.thread_id, call.where.turn))
        params: Any = call.params
        if text:
            params = params._replace(history=ThreadHistory(text, params.history))
        found.append(replace(call, params=params))
    return tuple(found)
