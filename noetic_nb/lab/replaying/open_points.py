"""The first pass of an open replay, before a regulator is asked: the ledger decided again, the calls planned again.

Every recorded point is judged as it was: the past stands, whatever the decisions would have done to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RegulatorDecided, RequestPrepared, RunEvent, SteeringDecided
from noetic_nb.lab.replaying.kept_decisions import Kept
from noetic_nb.lab.replaying.plan_replay import plan_again, plan_changes
from noetic_nb.lab.replaying.replay_summary import summary
from noetic_nb.lab.replaying.rule_replay import LedgerReplay, decide_again
from noetic_nb.lab.replaying.rules_in_force import RulesInForce, recorded_rules
from noetic_nb.lab.rule_trial import as_snapshot
from noetic_nb.layers.regulator_layer import regulator_of
from noetic_nb.models.client import ModelClient
from noetic_nb.runs import Run
from noetic_nb.steering.evaluation.evaluate import Policy
from noetic_nb.steering.layer import LAYER_ID, rulebook_of
from noetic_nb.sync import run_sync
from noetic_nb.tokens import Tokenizer, estimate_tokens

__all__ = ["OpenPoints", "layers_in"]


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
            from noetic_nb.lab.replaying.layer_replay import offers_of

            along = offers_of(run, others, self.kept, _judge(model), tokenizer or estimate_tokens, alone=changes.alone)
            offers, chosen = run_sync(along)
            changes = dataclasses.replace(changes, others=others, offers=offers, chosen=chosen)
        ledger = _ledger(run, rules, _judge(model), self.kept)
        instead: dict[int, Any] = {**plan_again(run, changes, self.kept, tokenizer), **ledger.instead}
        self.places: list[int] = []
        events: list[RunEvent] = []
        for seq, event in enumerate(tuple(run.events)):
            added = ledger.added.get(seq)
            if added is not None and added.hook == "before_tool_call":
                events.append(added)
            self.places.append(len(events))
            events.append(instead.get(seq, event))
            if added is not None and added.hook != "before_tool_call":
                events.append(added)
        self.decided = frozenset(ledger.instead)
        self.run = Run(f"{run.run_id}-replay", meta={**run.meta, "source": "replay"}, events=events)
        self.run.meta["replay"] = {
            "of": run.run_id,
            "mode": "open",
            "changed": [],
            "kept": [],
            "stopped": None,
            **summary(run, self.run, views_changed=bool(changes)),
        }


def layers_in(layers: Any) -> list[Any]:
    """Return layers and ids of layers, checked."""
    from noetic_nb.memory import MemoryLayer

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
