"""A recorded run under another configuration: rules, budgets, projection, layers, regulator.

In the open form every recorded point is judged as it was: the past stands, whatever the decisions would have done to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RunEvent, SteeringDecided
from noetic_nb.lab.replaying.decisions_again import decide_moments, denied_calls, was_regulated
from noetic_nb.lab.replaying.kept_decisions import Kept
from noetic_nb.lab.replaying.plan_replay import PlanChanges, plan_again, plan_changes
from noetic_nb.lab.replaying.recorded_tape import checked_run, checked_tokenizer
from noetic_nb.lab.replaying.replay_summary import summary
from noetic_nb.lab.replaying.rule_replay import LedgerReplay, decide_again
from noetic_nb.lab.replaying.rules_in_force import RulesInForce, recorded_rules
from noetic_nb.lab.rule_trial import as_snapshot
from noetic_nb.layers.regulator_layer import regulator_of
from noetic_nb.models.client import ModelClient, check_clients
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Run
from noetic_nb.runs.regulator_feed import RegulatorFeed
from noetic_nb.steering.evaluation.evaluate import Policy
from noetic_nb.steering.layer import rulebook_of
from noetic_nb.sync import run_sync
from noetic_nb.tokens import Tokenizer, estimate_tokens

__all__ = ["open_replay", "replay"]


def replay(
    run: Run,
    *,
    rules: Any = None,
    budgets: Mapping[str, Any] | None = None,
    projection: Any = None,
    layers: Iterable[Any] | None = None,
    regulator: Regulator | None = None,
    model: ModelClient | Mapping[str, ModelClient] | None = None,
    tools: Iterable[Any] | None = None,
    mode: Literal["open", "closed"] = "open",
    tokenizer: Tokenizer | None = None,
) -> Run:
    """Work a recorded run out again, with nothing changed or under another configuration.

    Parameters
    ----------
    run : Run
        Any run that has all of its turns; it is not changed.
    rules : RuleBook or iterable of rules, optional
        In place of those that the run was made with.
    budgets : mapping, optional
        By layer id, what `MemoryLayer` takes as its budget, or a pair of the least and the most tokens.
    projection : ProjectionPolicy or mapping, optional
        A whole policy, or those of its fields that are to be others: ``{"token_budget": 4_000}``.
    layers : iterable of str or MemoryLayer, optional
        Layers in place of the recorded ones; a text names a recorded layer that stays. Rules and regulator stay where they
        are not among them. Open: a layer recalls and stores over the recorded log, behind the recorded ones.
    regulator : Regulator, optional
        In place of the recorded one; a template, which learns nothing.
    model : ModelClient or mapping, optional
        Open: answers for judges, such as a `CassetteModel`. Closed: goes on where the run is no longer the recorded one.
    tools : iterable of tools, optional
        Closed: what runs then. Without, a call has its recorded result where the same call was recorded.
    mode : {"open", "closed"}
        Judge every recorded point, or go on from the first that differs.
    tokenizer : callable, optional
        What the run was counted with, where it was not the default.

    Returns
    -------
    Run
        ``meta["replay"]`` has ``of``, ``mode``, ``changed``, ``kept`` (what could not be worked out and stays as it was recorded,
        and why), ``stopped`` (why a closed replay ended early) and, before and after, ``decisions``, ``regulator``, ``calls``,
        ``tokens``, ``drops`` and ``cost`` (US dollars).

    Raises
    ------
    NoeticConfigError
        ``RUN_INCOMPLETE``, ``RUN_NOT_ENDED``, ``INVALID_RUN``; ``NOT_RECORDED`` for budgets, projection or layers of a run
        that has no plans; ``OPEN_LOOP_ONLY``; ``INVALID_MODE``; what rules, budgets and projections raise.

    References
    ----------
    .. [1] docs/behaviour/lab.md, "Tape", "Counterfactuals".

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> run = datasets.airline_run(26)
    >>> rule = {"id": "once", "applies_to": "before_tool_call", "tools": "get_reservation_details", "when": "true"}
    >>> replay(run, rules=[rule]).meta["replay"]["decisions"]["after"]["deny"]
    6
    """
    if mode not in ("open", "closed"):
        raise NoeticConfigError(
            "INVALID_MODE", "A replay is open or closed.", given=mode, hint='Use mode="open" or mode="closed".'
        )
    checked_run(run)
    check_clients(model)
    checked_tokenizer(tokenizer)
    if regulator is not None and not isinstance(regulator, Regulator):
        raise NoeticConfigError(
            "INVALID_REGULATOR", "That is no regulator.", given=regulator, hint="Use Regulator.for_user(name)."
        )
    listed = None if layers is None else _listed(layers)
    if mode == "closed":
        from noetic_nb.lab.replaying.closed_replay import (
            closed_replay,  # with the runtime, which most replays never need
        )

        return closed_replay(
            run,
            rules=rules,
            budgets=budgets,
            projection=projection,
            layers=listed,
            regulator=regulator,
            model=model,
            tools=tools,
            tokenizer=tokenizer,
        )
    if tools is not None:
        raise NoeticConfigError("INVALID_MODE", "An open replay runs no tool.", given=mode, hint='Use mode="closed".')
    kept = Kept()
    others = tuple([layer for layer in listed or () if not isinstance(layer, str)])
    # What enforces is evaluated as rules and a regulator are, and offers what it did.
    for layer in others:
        book, template = rulebook_of(layer), regulator_of(layer)
        rules = book if rules is None and book is not None else rules
        regulator = template if regulator is None and template is not None else regulator
    others = tuple([layer for layer in others if rulebook_of(layer) is None and regulator_of(layer) is None])
    names = None
    if listed is not None:
        own = {layer.id for layer in others}
        names = (frozenset([layer for layer in listed if isinstance(layer, str)]) | _always(run)) - own
    changes = plan_changes(run, budgets, projection, names)
    if others:
        from noetic_nb.lab.replaying.layer_replay import offers_of

        changes = dataclasses.replace(
            changes,
            others=others,
            offers=run_sync(offers_of(run, others, kept, _judge(model), tokenizer or estimate_tokens)),
        )
    about = {
        "rules": rules,
        "budgets": budgets,
        "projection": projection,
        "layers": layers,
        "regulator": regulator,
        "model": model,
    }
    changed = [name for name, given in about.items() if given is not None]
    return open_replay(
        run,
        changes,
        rules=rules,
        regulator=regulator,
        model=_judge(model),
        changed=changed,
        kept=kept,
        tokenizer=tokenizer,
    )


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


def _listed(layers: Any) -> list[Any]:
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


def _always(run: Run) -> frozenset[str]:
    """Return the layers of rules and regulators, which are arguments of their own."""
    from noetic_nb.events import RegulatorDecided, RequestPrepared
    from noetic_nb.steering.layer import LAYER_ID

    known = {limit[0] for event in run.events if isinstance(event, RequestPrepared) for limit in event.limits}
    own = {event.layer_id for event in run.events if isinstance(event, RegulatorDecided)} | {LAYER_ID}
    return frozenset(known & own)


def open_replay(
    run: Run,
    changes: PlanChanges,
    *,
    rules: Any = None,
    regulator: Regulator | None = None,
    model: ModelClient | None = None,
    changed: Iterable[str] = (),
    kept: Kept,
    tokenizer: Tokenizer | None = None,
) -> Run:
    """Judge every recorded point; see `replay`."""
    ledger = _ledger(run, rules, model, kept)
    instead: dict[int, Any] = dict(plan_again(run, changes, kept, tokenizer))
    watched = was_regulated(run)
    denied: Mapping[int, SteeringDecided] = {}
    if watched:
        decided = decide_moments(run, regulator, kept)
        denied = denied_calls(run, decided)
        instead |= decided
    instead |= ledger.instead
    events: list[RunEvent] = []
    for seq, event in enumerate(tuple(run.events)):
        now = instead.get(seq, event)
        added = ledger.added.get(seq)
        if added is not None and added.hook == "before_tool_call":
            events.append(added)
        if seq in denied:
            events.append(denied[seq])
        if now is not None:
            events.append(now)
        if added is not None and added.hook != "before_tool_call":
            events.append(added)
    if regulator is not None and not watched:
        events = _regulated(events, regulator)
    into = Run(f"{run.run_id}-replay", meta={**run.meta, "source": "replay"}, events=events)
    if rules is None and regulator is None:
        into.made_with(run.made_by)
        if run.made_by is None:
            into.bundle = run.bundle
    into.meta["replay"] = {
        "of": run.run_id,
        "mode": "open",
        "changed": list(changed),
        "kept": kept.rows(),
        "stopped": None,
        **summary(run, into, views_changed=bool(changes)),
    }
    return into


def _ledger(run: Run, rules: Any, model: ModelClient | None, kept: Kept) -> LedgerReplay:
    known = recorded_rules(run)
    if rules is not None:
        snapshot = as_snapshot(rules)
        known = RulesInForce((), Policy(), "execution") if known is None else known
        policy, scope, most = known.policy, known.scope, known.max_entries
        return decide_again(run, lambda seq: snapshot, policy, scope, kept, judge=model, is_new=True, max_entries=most)
    if known is None:
        return _unknown(run, kept)
    return decide_again(run, known.at, known.policy, known.scope, kept, judge=model)


def _unknown(run: Run, kept: Kept) -> LedgerReplay:
    from noetic_nb.steering.layer import LAYER_ID

    for seq, event in enumerate(run.events):
        if isinstance(event, SteeringDecided) and event.layer_id == LAYER_ID:
            kept.add("rules", "the run does not have them", seq)
    return LedgerReplay()


def _regulated(events: list[RunEvent], regulator: Regulator) -> list[RunEvent]:
    """Let a regulator that was not there observe a run."""
    into: list[RunEvent] = []
    feed = RegulatorFeed(regulator, None, into, "regulation")
    for event in events:
        for _ in feed.take(event):
            pass
    return into
