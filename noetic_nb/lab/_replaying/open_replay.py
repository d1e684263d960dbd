"""The points of an open replay: decisions of the ledger made again, calls planned again, and their horizon.

Every recorded point is judged in its recorded context: no decision changes the past.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from noetic_nb import events as ev
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._checks import check_run
from noetic_nb.lab._replaying.plan_replay import PlanChanges, offers_of, plan_again, plan_changes, unknown_requests
from noetic_nb.lab._replaying.replay_report import Kept, Unknown, summary
from noetic_nb.lab._replaying.rules_replay import ledger_of
from noetic_nb.layers._regulator_layer import BUDGET, is_regulation
from noetic_nb.layers._regulator_layer import LAYER_ID as REGULATION_ID
from noetic_nb.memory import MemoryLayer
from noetic_nb.memory.scope import SCOPES
from noetic_nb.models._client import ModelClient
from noetic_nb.runs import Run
from noetic_nb.runs._labelled import with_labels_of
from noetic_nb.steering._evaluation.judging import LAYER_ID
from noetic_nb.steering._layer import RECALL_BUDGET, rulebook_of
from noetic_nb.sync import run_sync
from noetic_nb.tokens import Tokenizer, estimate_tokens

# Hooks by which a layer does more than recall, store and project the history.
_MORE: Final = frozenset({"on_item_append", "before_tool_call", "after_model_call"})
_OF_REGULATOR: Final = (ev.RegulatorSaw, ev.RegulatorDecided, ev.MemoryTraceSpan, ev.LayerStateChanged)
# Stand-ins for the layers of rules and of a regulator, sufficient for sharing out tokens.
_RULES: Final = MemoryLayer(id=LAYER_ID, slot=0, scope="execution", budget=RECALL_BUDGET)
_REGULATOR: Final = MemoryLayer(id=REGULATION_ID, slot=0, scope="resource", budget=BUDGET)


class OpenPoints:
    """The points of a run under other rules, budgets, projection or layers; a regulator does not affect them.

    The arguments and errors are those of `replay`; `layers_in` checks `layers`. In `run`, the regulator's decisions are
    as recorded, `kept` is the unchanged part, `places` maps recorded events to their new indices, and `decided` has the
    indices of decisions made again by rules.
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
        given = [layer for layer in layers or () if not isinstance(layer, str)]
        others = tuple([layer for layer in given if rulebook_of(layer) is None and not is_regulation(layer)])
        names = None
        if layers is not None:
            own = {layer.id for layer in others}
            names = (frozenset([layer for layer in layers if isinstance(layer, str)]) | _always(run)) - own
        changes = plan_changes(run, budgets, projection, names)
        if names is not None and names <= _always(run):
            changes = dataclasses.replace(changes, alone=True)
        if others:
            along = offers_of(run, others, self.kept, _judge(model), tokenizer or estimate_tokens, alone=changes.alone)
            offers, chosen = run_sync(along)
            changes = dataclasses.replace(changes, others=others, offers=offers, chosen=chosen)
        ledger = ledger_of(run, rules, _judge(model), self.kept)
        planned, self._plans = plan_again(run, changes, self.kept, tokenizer)
        self._changes, self._rules = changes, rules
        instead: dict[int, Any] = {**planned, **ledger.instead}
        self.places: list[int] = []
        events: list[ev.RunEvent] = []
        recorded = tuple(run.events)
        before: dict[int, list[ev.SteeringDecided]] = {}
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
        with_labels_of(self.run, run)
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
        """Return the unknown parts of the replay; `regulator` tells whether a regulator is given."""
        if regulator not in self._unknown:
            self._unknown[regulator] = self._not_known(regulator)
        return self._unknown[regulator]

    def _not_known(self, regulator: bool) -> Unknown:
        run, changes, rules = self._recorded, self._changes, self._rules
        events = tuple(run.events)
        own = {event.layer_id for event in events if isinstance(event, ev.RegulatorDecided)}
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
                if isinstance(event, ev.ViewAssembled | ev.ModelCalled):
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


def _never_made(events: Sequence[ev.RunEvent]) -> Iterator[int]:
    """Yield the indices where the decisions begin about calls that a layer stopped, so that rules may not have seen them."""
    waiting: dict[tuple[str, str], set[str]] = {}
    begins: dict[tuple[str, str], int] = {}
    for seq, event in enumerate(events):
        key = event.where.thread_id, event.where.execution_id
        if key in waiting:
            begins.setdefault(key, seq)
        match event:
            case ev.ItemsAppended(origin="model"):
                waiting[key] = {str(item.get("callId")) for item in event.items if item["type"] == "function_call"}
                begins.pop(key, None)
            case ev.ToolCalled() if key in waiting:
                waiting[key].discard(event.call_id)
                begins.pop(key, None)
            case ev.TurnCompleted():
                ended = [known for known in waiting if known[0] == event.where.thread_id]
                for known in ended:
                    if waiting.pop(known) and event.stopped is not None:
                        yield begins.get(known, seq)


def _described(run: Run) -> list[Mapping[str, Any]]:
    match run.meta.get("config"):
        case {"memory": list() as layers}:
            return [layer for layer in layers if isinstance(layer, Mapping) and layer.get("scope") in SCOPES]
    return []


def _do_more(run: Run, changes: PlanChanges) -> bool:
    """Tell whether an added or removed layer does more than recall, store and project the history."""
    stay = changes.layers or frozenset()
    gone = [layer for layer in _described(run) if layer.get("id") not in stay]
    hooks = {hook for layer in gone for hook in layer.get("hooks", ())}
    for layer in changes.others:
        hooks |= {hook for hook in _MORE if getattr(layer.hooks, hook) is not None}
    known = [*changes.others, *[layer for layer in getattr(run._config, "memory", ()) if layer.id not in stay]]
    return bool(hooks & _MORE) or any(layer.provides is not None for layer in known)


def _judged_from(events: Sequence[ev.RunEvent], seq: int) -> int:
    """Return the index where the decisions about a call begin: rules decide before a regulator does."""
    where, found = events[seq].where, seq
    for place in range(seq - 1, -1, -1):
        event = events[place]
        if event.where != where or isinstance(event, ev.ToolProgress):  # of an execution at the same time, or the tool
            continue
        if not isinstance(event, _OF_REGULATOR) and getattr(event, "hook", None) != "before_tool_call":
            break
        found = place
    return found


def layers_in(layers: Any) -> list[Any]:
    listed = None if isinstance(layers, str | Mapping) or not isinstance(layers, Iterable) else list(layers)
    if listed is None or not all(isinstance(layer, str | MemoryLayer) for layer in listed):
        what = "Layers must be a list of layers, or of the ids of recorded layers."
        raise NoeticConfigError("INVALID_LAYER", what, given=layers, hint='For example: layers=["facts"].')
    return listed


def _always(run: Run) -> frozenset[str]:
    """Return the layers of rules and regulators, which have their own arguments."""
    known = {limit[0] for event in run.events if isinstance(event, ev.RequestPrepared) for limit in event.limits}
    own = {event.layer_id for event in run.events if isinstance(event, ev.RegulatorDecided)} | {LAYER_ID}
    return frozenset(known & own)


def _judge(model: Any) -> ModelClient | None:
    return _Routed(model) if isinstance(model, Mapping) else model


class _Routed:
    """Answers each request with the client for its model name."""

    def __init__(self, clients: Mapping[str, ModelClient]) -> None:
        self._clients = clients

    async def complete(self, request: Any) -> Any:
        client = self._clients.get(request.model)
        if client is None:
            what = "There is no client for this model."
            hint = f"There are {', '.join(map(repr, self._clients))}."
            raise NoeticConfigError("UNKNOWN_MODEL", what, given=request.model, hint=hint)
        return await client.complete(request)


def checked_run(run: object) -> Run:
    """Return a run that can be replayed: complete, and without a turn in progress."""
    run = check_run(run, "A replay needs a run.")
    dropped = run.meta.get("dropped")
    if isinstance(dropped, list) and any(isinstance(part, dict) and "last" in part for part in dropped):
        gone = {str(part.get("thread_id")): f"{part.get('first')} to {part['last']}" for part in dropped}
        what = "The oldest turns of this run were dropped, so later states cannot be computed again."
        hint = "Record with nn.record(harness, max_bytes=None)."
        raise NoeticConfigError("RUN_INCOMPLETE", what, given=gone, hint=hint)
    running = [turn.where for turn in run.turns if turn.outcome is None]
    if running and run.is_recording:
        raise NoeticConfigError(
            "RUN_NOT_ENDED",
            "A turn of this run is still being recorded.",
            given={"thread_id": running[-1].thread_id, "turn": running[-1].turn},
            hint="Wait for its reply, or replay run.copy().",
        )
    return run
