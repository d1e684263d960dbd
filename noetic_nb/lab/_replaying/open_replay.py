"""The first pass of an open replay, before a regulator is asked: the ledger decided again, the calls planned again.

Every recorded point is judged as it was: the past stands, whatever the decisions would have done to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from msgspec import structs

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import (
    LayerStateChanged,
    MemoryTraceSpan,
    ModelCalled,
    RegulatorDecided,
    RegulatorSaw,
    RequestPrepared,
    RunEvent,
    SteeringDecided,
    ToolCalled,
    TurnCompleted,
    TurnStarted,
    ViewAssembled,
)
from noetic_nb.lab._recorded_calls import RecordedCall, calls_of
from noetic_nb.lab._replaying.ledger_replay import MAX_ENTRIES, WrittenLedger, owner_of, recorded_states, with_state
from noetic_nb.lab._replaying.plan_replay import PlanChanges, plan_again, plan_changes, unknown_requests
from noetic_nb.lab._replaying.replay_report import Kept, Unknown, summary
from noetic_nb.lab._replaying.rules_in_force import RulesInForce, recorded_rules
from noetic_nb.lab._rule_trial import TrialResult, as_snapshot, try_rules
from noetic_nb.layers._regulator_layer import BUDGET, regulator_of
from noetic_nb.layers._regulator_layer import LAYER_ID as REGULATION_ID
from noetic_nb.memory import MemoryLayer, PastCall
from noetic_nb.memory.scope import SCOPES
from noetic_nb.models._client import CUT_OFF, ModelClient
from noetic_nb.runs import Run
from noetic_nb.steering._evaluation.evaluate import Policy
from noetic_nb.steering._evaluation.rule_snapshot import RuleSnapshot
from noetic_nb.steering._layer import LAYER_ID, RECALL_BUDGET, rulebook_of
from noetic_nb.steering._past_calls import ThreadHistory, appended, rows_of
from noetic_nb.sync import run_sync
from noetic_nb.tokens import Tokenizer, estimate_tokens

__all__ = ["LedgerReplay", "OpenPoints", "decide_again", "layers_in"]

# What the machine did and not the rules: a clock, an end of the program, a layer that never began.
_NOT_OF_RULES: Final = frozenset({"timeout", "cancelled", "uninitialised", "disabled"})
# What a layer may do beside recalling, storing and choosing of the history.
_MORE: Final = frozenset({"on_item_append", "before_tool_call", "after_model_call"})
_OF_REGULATOR: Final = (RegulatorSaw, RegulatorDecided, MemoryTraceSpan, LayerStateChanged)
# As much of the layers of rules and of a regulator as it takes to share out tokens.
_RULES: Final = MemoryLayer(id=LAYER_ID, slot=0, scope="execution", budget=RECALL_BUDGET)
_REGULATOR: Final = MemoryLayer(id=REGULATION_ID, slot=0, scope="resource", budget=BUDGET)


@dataclass(slots=True)
class LedgerReplay:
    """Decisions in the place of recorded ones, by their place, and added ones, by that of the call or response."""

    instead: dict[int, SteeringDecided] = field(default_factory=dict)
    added: dict[int, SteeringDecided] = field(default_factory=dict)


def decide_again(
    run: Run,
    rules_at: Callable[[int], RuleSnapshot | None],
    policy: Policy,
    scope: str,
    kept: Kept,
    *,
    judge: ModelClient | None = None,
    is_new: bool = False,
    max_entries: int = MAX_ENTRIES,
) -> LedgerReplay:
    """Evaluate rules at every recorded call and response.

    Parameters
    ----------
    run : Run
        Any run.
    rules_at : callable
        The rules in force at a place of the run; None where they are not known.
    policy, scope
        Those of the layer.
    kept : Kept
        Takes note of decisions that stay as they were recorded.
    judge : ModelClient, optional
        Answers for judges.
    is_new : bool
        Whether the rules are others than the recorded ones: then there is a decision at every call, and rules whose judge is
        not there are left out, where they otherwise leave the recorded decision as it is.
    max_entries : int
        How many entries the ledger keeps.
    """
    events = tuple(run.events)
    calls, about = calls_of(run), _recorded(events)
    if scope != "execution":
        calls = _with_earlier(events, calls, scope)
    found = LedgerReplay()
    # A rule that raises is a row, whatever the policy: there is no turn here that it could end.
    policy = replace(policy, on_error="deny") if policy.on_error == "raise" else policy
    groups: dict[int, tuple[RuleSnapshot, list[tuple[RecordedCall, int | None]]]] = {}
    for call in calls:
        place = about.get(call.seq)
        if place is None and not is_new:
            continue
        recorded = None if place is None else events[place]
        rules = rules_at(call.seq if place is None else place)
        why = _not_again(events, call, recorded, rules, is_new)
        if why is not None:
            kept.add("rules", why, call.seq if place is None else place)
        elif rules is not None:
            groups.setdefault(id(rules), (rules, []))[1].append((call, place))
    evaluated = {place for _, members in groups.values() for _, place in members}
    others = [
        place
        for place, event in enumerate(events)
        if isinstance(event, SteeringDecided) and event.layer_id == LAYER_ID and place not in evaluated
    ]
    for place in sorted(set(others) - set(about.values())):
        if not _is_late(events[place]):
            kept.add("rules", "a call that was never made", place)
    stay = frozenset([place for place in others if not _is_late(events[place])])
    states: dict[int, Any] | None = None
    for rules, members in groups.values():
        asked = [call for call, _ in members]
        ledger: Callable[[], WrittenLedger] | None = None
        # Of all forms of rules only a function can read the ledger.
        if any(rule.enabled and rule.predicate is not None for rule in rules):
            if is_new:
                lasted = {call.seq: _duration(events, place) for call, place in members}
                ledger = partial(WrittenLedger, events, scope, max_entries, lasted, stay)
            else:
                states = recorded_states(events) if states is None else states
                asked = [call if place not in states else with_state(call, states[place]) for call, place in members]
        results = try_rules(rules, asked, policy=policy, judge=judge, ledger=ledger)
        for (call, place), result in zip(members, results, strict=True):
            recorded = None if place is None else events[place]
            if result.skipped:
                what = f"judges without a model: {', '.join(result.skipped)}"
                kept.add("rules", what if is_new else f"decisions of {what}", call.seq if place is None else place)
                if not is_new:
                    continue
            decided = _decided(call, result, recorded)
            if place is None:
                found.added[call.seq] = decided
            else:
                found.instead[place] = decided
    return found


def _is_late(event: Any) -> bool:
    """Tell whether this is a late verdict of a judge, about a decision that has a row of its own."""
    return event.outcome in ("late", "late_fault")


def _duration(events: Sequence[RunEvent], place: int | None) -> float:
    event = None if place is None else events[place]
    return event.duration_ms if isinstance(event, SteeringDecided) else 0.0


def _not_again(
    events: Sequence[RunEvent], call: RecordedCall, recorded: Any, rules: RuleSnapshot | None, is_new: bool
) -> str | None:
    """Return why a decision stays as it is."""
    if rules is None:
        return "rules of an earlier version, which the run does not have"
    if recorded is not None and recorded.outcome in _NOT_OF_RULES and not is_new:
        return f"no decision of rules: {recorded.outcome}"
    if call.point == "after_model_call" and _is_continued(events, call.seq):
        return "a response in several parts"
    return None


def _is_continued(events: Sequence[RunEvent], seq: int) -> bool:
    """Tell whether a response goes on with one that was cut off, and rules saw both as one."""
    key = events[seq].where.thread_id, events[seq].where.execution_id
    for at in range(seq - 1, -1, -1):
        event = events[at]
        if (event.where.thread_id, event.where.execution_id) != key:
            continue
        if isinstance(event, SteeringDecided) and event.hook == "after_model_call":
            return False
        if isinstance(event, ModelCalled) and event.purpose == "agent":
            return event.finish_reason in CUT_OFF
    return False


def _decided(call: RecordedCall, result: TrialResult, recorded: Any) -> SteeringDecided:
    decision = result.decision
    outcome = None
    if result.error is not None:
        outcome = "unparseable" if result.error.endswith("unreadable verdict") else "error"
        outcome = "timeout" if result.error.startswith("TimeoutError: no answer") else outcome
    if recorded is None:
        params: Any = call.params
        name, args = (params.tool_name, params.tool_args) if call.point == "before_tool_call" else (None, None)
        recorded = SteeringDecided(
            call.where, call.t_ms, LAYER_ID, call.point, name, args, "allow", None, (), 0.0, enforced=False
        )
    now: SteeringDecided = structs.replace(
        recorded,
        action=decision.action.value,
        guidance=decision.guidance,
        rule_ids=decision.rule_ids,
        outcome=outcome,
    )
    # Nobody acted on a decision that is not the recorded one.
    return now if now.action == recorded.action else structs.replace(now, enforced=False)


def _recorded(events: Sequence[RunEvent]) -> dict[int, int]:
    """Return where the decision about a call or response stands, by the place of the call or response."""
    about: dict[int, int] = {}
    waiting: dict[tuple[str, str], list[int]] = {}
    answered: dict[tuple[str, str], int] = {}
    for seq, event in enumerate(events):
        key = event.where.thread_id, event.where.execution_id
        match event:
            case SteeringDecided(layer_id=layer_id, hook="before_tool_call") if layer_id == LAYER_ID:
                waiting.setdefault(key, []).append(seq)
            case SteeringDecided(layer_id=layer_id, hook="after_model_call") if layer_id == LAYER_ID:
                if key in answered:
                    about[answered.pop(key)] = seq
            case ModelCalled(purpose="agent", status="ok"):
                answered[key] = seq
            case ToolCalled():
                before = waiting.get(key, [])
                # The newest first: one whose call was cancelled waits for ever.
                for place in reversed(before):
                    decided: Any = events[place]
                    if decided.tool_name == event.name and (decided.args or {}) == (event.args or {}):
                        about[seq] = place
                        before.remove(place)
                        break
    return about


def _with_earlier(events: Sequence[RunEvent], calls: Iterable[RecordedCall], scope: str) -> tuple[RecordedCall, ...]:
    """Let the history of each call begin with the calls of earlier turns, as a layer of a wider scope remembers them."""
    earlier: dict[str, str] = {}
    at_start: dict[tuple[str, int], str] = {}
    owners: dict[tuple[str, int], str] = {}
    made: dict[tuple[str, int], list[ToolCalled]] = {}
    for event in events:
        key = event.where.thread_id, event.where.turn
        match event:
            case TurnStarted():
                owners[key] = owner_of(event, scope)
                at_start[key] = earlier.get(owners[key], "")
            case ToolCalled():
                made.setdefault(key, []).append(event)
            case TurnCompleted() if key in owners:
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


class OpenPoints:
    """The points of a run under other rules, budgets, projection or layers; a regulator changes nothing about them.

    Parameters
    ----------
    run : Run
        One that can be replayed.
    rules, budgets, projection, layers, model, tokenizer
        As in `replay`; `layers` checked by `layers_in`.

    Raises
    ------
    NoeticConfigError
        What `replay` raises for these.

    Attributes
    ----------
    run : Run
        The run as it is now, with the decisions of its regulator as they were recorded, if any.
    kept : Kept
        What stays as it was recorded.
    places : list of int
        By the place of an event in the recorded run, its place in the new one.
    decided : frozenset of int
        Places in the recorded run of decisions that were made again by rules.
    """

    def __init__(
        self,
        run: Run,
        *,
        rules: Any = None,
        budgets: Mapping[str, Any] | None = None,
        projection: Any = None,
        layers: list[Any] | None = None,
        model: Any = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.kept = Kept()
        others = tuple([layer for layer in layers or () if not (isinstance(layer, str) or _enforces(layer))])
        names = None
        if layers is not None:
            own = {layer.id for layer in others}
            names = (frozenset([layer for layer in layers if isinstance(layer, str)]) | _always(run)) - own
        changes = plan_changes(run, budgets, projection, names)
        if names is not None and names <= _always(run):
            changes = dataclasses.replace(changes, alone=True)
        if others:
            from noetic_nb.lab._replaying.plan_replay import offers_of

            along = offers_of(run, others, self.kept, _judge(model), tokenizer or estimate_tokens, alone=changes.alone)
            offers, chosen = run_sync(along)
            changes = dataclasses.replace(changes, others=others, offers=offers, chosen=chosen)
        ledger = _ledger(run, rules, _judge(model), self.kept)
        planned, self._plans = plan_again(run, changes, self.kept, tokenizer)
        self._changes, self._rules = changes, rules
        instead: dict[int, Any] = {**planned, **ledger.instead}
        self.places: list[int] = []
        events: list[RunEvent] = []
        recorded = tuple(run.events)
        before: dict[int, list[SteeringDecided]] = {}
        for seq, added in sorted(ledger.added.items()):
            place = _judged_from(recorded, seq) if added.hook == "before_tool_call" else seq + 1
            before.setdefault(place, []).append(added)
        for seq, event in enumerate(recorded):
            events += before.get(seq, ())
            self.places.append(len(events))
            events.append(instead.get(seq, event))
        events += before.get(len(recorded), ())
        self.decided = frozenset(ledger.instead)
        self.run = Run(f"{run.run_id}-replay", meta={**run.meta, "source": "replay"}, events=events)
        self.run.meta["replay"] = {
            "of": run.run_id,
            "mode": "open",
            "changed": [],
            "kept": [],
            "stopped": None,
            "known_until": {},
            **summary(run, self.run, views_changed=bool(changes)),
        }
        self._recorded = run
        self._unknown: dict[bool, Unknown] = {}

    def unknown(self, *, regulator: bool) -> Unknown:
        """Return the parts of the replay that are not known; `regulator` tells whether one is given."""
        if regulator not in self._unknown:
            self._unknown[regulator] = self._not_known(regulator)
        return self._unknown[regulator]

    def _not_known(self, regulator: bool) -> Unknown:
        run, changes, rules = self._recorded, self._changes, self._rules
        events = tuple(run.events)
        own = {event.layer_id for event in events if isinstance(event, RegulatorDecided)}
        doubted = {*([] if rules is None else [LAYER_ID]), *(own if regulator else [])}
        joined = [*([] if rules is None else [_RULES]), *([_REGULATOR] if regulator and not own else [])]
        at: set[int | None] = set()
        after: set[int] = set()
        if changes or doubted or (joined and self._plans):
            requests, after = unknown_requests(
                self._plans, changes, joined, frozenset(doubted), _always(run) | {LAYER_ID, REGULATION_ID}
            )
            at = {*requests}
        if changes or (joined and self._plans):
            at |= {*self.kept.places("plans", *(["history", "layers"] if changes.layers is not None else []))}
        if rules is not None:
            at |= {*self.kept.places("rules"), *_never_made(events)}
        if changes.layers is not None and _do_more(run, changes):
            at.add(None)
        if None in at:  # everywhere: from the first request of each thread on
            first: dict[str, int] = {}
            for seq, event in enumerate(events):
                if isinstance(event, ViewAssembled | ModelCalled):
                    first.setdefault(event.where.thread_id, seq)
            at |= {*first.values()}
        scopes = {layer["scope"] for layer in _described(run)} | {layer.scope for layer in changes.others}
        if regulator or own:
            scopes.add("resource")
        return Unknown(
            frozenset([seq for seq in at if seq is not None]),
            frozenset(after),
            rules is not None or regulator,
            max(scopes, key=SCOPES.index, default="thread"),
        )


def _never_made(events: Sequence[RunEvent]) -> Iterator[int]:
    """Yield the places where the decisions about a call begin that a regulator stopped, so that rules never saw it."""
    stopped: dict[tuple[str, str], int] = {}
    for seq, event in enumerate(events):
        key = event.where.thread_id, event.where.execution_id
        if isinstance(event, RegulatorDecided) and event.at == "tool_call" and event.stops:
            stopped[key] = _judged_from(events, seq)
        elif isinstance(event, ToolCalled):
            stopped.pop(key, None)
        elif isinstance(event, TurnCompleted) and key in stopped:
            yield stopped.pop(key)
    yield from stopped.values()


def _described(run: Run) -> list[Mapping[str, Any]]:
    """Return the layers of a run as its meta data describe them."""
    match run.meta.get("config"):
        case {"memory": list() as layers}:
            return [layer for layer in layers if isinstance(layer, Mapping) and layer.get("scope") in SCOPES]
    return []


def _do_more(run: Run, changes: PlanChanges) -> bool:
    """Tell whether a layer that comes or goes does more than recall, store and choose of the history."""
    stay = changes.layers or frozenset()
    gone = [layer for layer in _described(run) if layer.get("id") not in stay]
    hooks = {hook for layer in gone for hook in layer.get("hooks", ())}
    for layer in changes.others:
        hooks |= {hook for hook in _MORE if getattr(layer.hooks, hook) is not None}
    known = [*changes.others, *[layer for layer in getattr(run._config, "memory", ()) if layer.id not in stay]]
    return bool(hooks & _MORE) or any(layer.provides is not None for layer in known)


def _judged_from(events: Sequence[RunEvent], seq: int) -> int:
    """Return where the decisions about a call begin: rules decide before a regulator does."""
    where = events[seq].where
    while seq and events[seq - 1].where == where:
        event = events[seq - 1]
        if not isinstance(event, _OF_REGULATOR) and getattr(event, "hook", None) != "before_tool_call":
            break
        seq -= 1
    return seq


def layers_in(layers: Any) -> list[Any]:
    """Return layers and ids of layers, checked."""
    listed = None if isinstance(layers, str | Mapping) or not isinstance(layers, Iterable) else list(layers)
    if listed is None or not all(isinstance(layer, str | MemoryLayer) for layer in listed):
        raise NoeticConfigError(
            "INVALID_LAYER",
            "Layers are a list of layers, or of the ids of recorded ones.",
            given=layers,
            hint='Such as layers=["facts"].',
        )
    return listed


def _enforces(layer: Any) -> bool:
    return rulebook_of(layer) is not None or regulator_of(layer) is not None


def _always(run: Run) -> frozenset[str]:
    """Return the layers of rules and regulators, which are arguments of their own."""
    known = {limit[0] for event in run.events if isinstance(event, RequestPrepared) for limit in event.limits}
    own = {event.layer_id for event in run.events if isinstance(event, RegulatorDecided)} | {LAYER_ID}
    return frozenset(known & own)


def _judge(model: Any) -> ModelClient | None:
    if not isinstance(model, Mapping):
        found: ModelClient | None = model
        return found
    return _Routed(model)


class _Routed:
    """Answers each request with the client of its model's name."""

    def __init__(self, clients: Mapping[str, ModelClient]) -> None:
        self._clients = clients

    async def complete(self, request: Any) -> Any:
        client = self._clients.get(request.model)
        if client is None:
            raise NoeticConfigError(
                "UNKNOWN_MODEL",
                "There is no client for this model.",
                given=request.model,
                hint=f"There are {', '.join(map(repr, self._clients))}.",
            )
        return await client.complete(request)


def _ledger(run: Run, rules: Any, model: ModelClient | None, kept: Kept) -> LedgerReplay:
    known = recorded_rules(run)
    if rules is not None:
        snapshot = as_snapshot(rules)
        known = RulesInForce((), Policy(), "execution") if known is None else known
        policy, scope, most = known.policy, known.scope, known.max_entries
        return decide_again(run, lambda seq: snapshot, policy, scope, kept, judge=model, is_new=True, max_entries=most)
    if known is None:
        for seq, event in enumerate(run.events):
            if isinstance(event, SteeringDecided) and event.layer_id == LAYER_ID:
                kept.add("rules", "the run does not have them", seq)
        return LedgerReplay()
    return decide_again(run, known.at, known.policy, known.scope, kept, judge=model)
