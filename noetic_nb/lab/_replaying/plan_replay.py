"""The plans of a run, made again by the planner of the runtime: allocations, and the items sent.

What layers offered is what was recorded, held to their new allocation as recall does it; a layer that is left out offers
nothing, and the others share what it leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final, NamedTuple

from msgspec import structs

from noetic_nb._core.arguments import closest
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import BudgetsAllocated, LogStretch, RequestPrepared, ViewAssembled
from noetic_nb.items._build import content_tokens
from noetic_nb.lab._replaying.kept_decisions import Kept
from noetic_nb.lab._replaying.tape_answers import contents
from noetic_nb.memory import BudgetPlan, MemoryLayer, ProjectionPolicy
from noetic_nb.memory._hooks.recall import RecallEntry
from noetic_nb.memory._layer import budget_range
from noetic_nb.runs import Run
from noetic_nb.runs._requests.recorded_requests import RequestIndex
from noetic_nb.runs._requests.sent_request import RecordedRequest
from noetic_nb.runtime._planning.log_stretches import of_stretches
from noetic_nb.runtime._planning.plan_inputs import RECORDED, PlanInputs
from noetic_nb.runtime._planning.turn_plan import TurnPlan, budgets_event
from noetic_nb.tokens import Tokenizer

__all__ = ["PlanChanges", "Planned", "plan_again", "plan_changes", "unknown_requests"]

_POLICY = frozenset(ProjectionPolicy.model_fields)
# An allocation of less than so many times what a layer offers, or of so few tokens, may have limited it.
_NEAR: Final = 2
_LITTLE: Final = 256


@dataclass(frozen=True)
class PlanChanges:
    """The changes to the plans: none by default.

    `layers` are the ids of those that stay, None for all.
    """

    budgets: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)
    layers: frozenset[str] | None = None
    others: tuple[MemoryLayer, ...] = ()
    """Layers that were not there, or in place of recorded ones."""
    offers: Mapping[int, Mapping[str, RecallEntry]] = field(default_factory=dict)
    """What they offer, by the place of the request."""
    chosen: Mapping[int, tuple[LogStretch, ...] | None] = field(default_factory=dict)
    """What they make of the history, where they are asked; None is all of it."""
    alone: bool = False
    """Whether no recorded layer stays: what those made of the history is gone with them."""

    def __bool__(self) -> bool:
        return bool(self.budgets or self.policy) or self.layers is not None

    def inputs_of(self, inputs: PlanInputs, seq: int) -> PlanInputs:
        """Return the inputs of the plan for the call at a place of the run: other layers come behind the recorded ones."""
        if self.layers is None:
            return inputs
        others = self.others if seq in self.offers else ()
        # A request of a child has what was offered then, also by a layer that is run elsewhere.
        stay = self.layers if others else self.layers | {layer.id for layer in self.others}
        kept = [limit for limit in inputs.limits if limit[0] in stay]
        chosen = self.chosen_of(seq, RECORDED)
        offers = [entry for entry in inputs.offers if entry.layer_id in stay]
        known = self.offers.get(seq, {})
        return replace(
            inputs,
            limits=(*kept, *[_limit(layer) for layer in others]),
            suffixes=(*[layer_id for layer_id in inputs.suffixes if layer_id in stay], *_last(others)),
            offers=(*offers, *[known[layer.id] for layer in others if layer.id in known]),
            projected=(
                inputs.projected if chosen is RECORDED else None if chosen is None else of_stretches(chosen, inputs.log)
            ),
            allocated={name: given for name, given in inputs.allocated.items() if name in stay},
        )

    def chosen_of(self, seq: int, recorded: Any) -> Any:
        """Return the history as layers project it for the call at a place of the run, `recorded` where that stays."""
        if seq in self.chosen:
            return self.chosen[seq]
        return None if self.alone and (not self.others or seq in self.offers) else recorded

    def replan(self, inputs: PlanInputs) -> TurnPlan:
        """Plan a call from the inputs that `inputs_of` gave."""
        known = {layer_id for layer_id, _, _ in inputs.limits}
        budgets = {layer_id: given for layer_id, given in self.budgets.items() if layer_id in known}
        named = {
            "token_budget": "total",
            "response_reserve": "reserve",
            "overflow": "overflow",
            "window_size": "window",
            "order": "order",
        }
        return inputs.replan(budgets=budgets, **{named[name]: given for name, given in self.policy.items()})

    def prepared(self, event: RequestPrepared, plan: TurnPlan, inputs: PlanInputs) -> RequestPrepared:
        """Return the shared parts of the requests of an execution, as they are now."""
        limits = []
        for layer_id, low, high in inputs.limits:
            given = self.budgets.get(layer_id, (low, high))
            if layer_id in self.budgets:
                pair = isinstance(given, Sequence) and not isinstance(given, str)
                given = budget_range({"min": given[0], "max": given[1]} if pair else given, layer_id=layer_id)
            limits.append((layer_id, *given))
        policy = plan.policy
        return structs.replace(
            event,
            overflow=policy.overflow,
            window_size=policy.window_size,
            limits=tuple(limits),
            order=policy.order,
            suffixes=tuple(inputs.suffixes),
        )


def _last(layers: Iterable[MemoryLayer]) -> list[str]:
    return [layer.id for layer in layers if layer.placement == "suffix"]


def _limit(layer: MemoryLayer) -> tuple[str, float, float]:
    return (layer.id, *budget_range(layer.budget, layer_id=layer.id))


def plan_changes(run: Run, budgets: Any, projection: Any, layers: frozenset[str] | None) -> PlanChanges:
    """Return changes, checked.

    Raises
    ------
    NoeticConfigError
        ``INVALID_BUDGET``, ``INVALID_PROJECTION``, ``UNKNOWN_LAYER_REFERENCE``.
    """
    planned = [event for event in run.events if isinstance(event, RequestPrepared)]
    known = {limit[0] for event in planned for limit in event.limits}
    if budgets is not None and not isinstance(budgets, Mapping):
        raise NoeticConfigError(
            "INVALID_BUDGET",
            "Budgets are a mapping from the ids of layers.",
            given=budgets,
            hint='Such as budgets={"facts": 300}; the total is projection={"token_budget": 4_000}.',
        )
    if planned:  # else nothing was planned here, which is said in its place
        for layer_id in (*(budgets or {}), *(layers or ())):
            if layer_id not in known:
                raise NoeticConfigError(
                    "UNKNOWN_LAYER_REFERENCE",
                    "No call of the run has such a layer.",
                    given=layer_id,
                    hint=f"{closest(str(layer_id), known)} It has {', '.join(map(repr, sorted(known))) or 'none'}.".strip(),
                )
    policy: Mapping[str, Any] = {}
    if isinstance(projection, ProjectionPolicy):
        policy = projection.model_dump()
    elif isinstance(projection, Mapping) and projection.keys() <= _POLICY:
        policy = dict(projection)
    elif projection is not None:
        raise NoeticConfigError(
            "INVALID_PROJECTION",
            "A projection is a ProjectionPolicy, or a mapping of what of it is to be another.",
            given=projection,
            hint=f"Its fields are {', '.join(sorted(_POLICY))}.",
        )
    return PlanChanges(budgets or {}, policy, layers)


class Planned(NamedTuple):
    """One request, planned again."""

    seq: int
    recorded: PlanInputs
    inputs: PlanInputs
    plan: TurnPlan
    is_other: bool
    """Whether its plan is another than the recorded one."""


def plan_again(
    run: Run, changes: PlanChanges, kept: Kept, tokenizer: Tokenizer | None = None
) -> tuple[dict[int, Any], list[Planned]]:
    """Plan every call of a run; returns events by the place of those they stand for, and the plans.

    Raises
    ------
    NoeticConfigError
        ``NOT_RECORDED`` where something is to be another and no call of the run can be planned again; what
        `PlanInputs.replan` raises.
    """
    index = RequestIndex(tokenizer)
    allocated: dict[tuple[str, str], list[tuple[int, BudgetsAllocated]]] = {}
    prepared: dict[tuple[str, str], tuple[int, RequestPrepared]] = {}
    of_view: dict[int, tuple[list[tuple[int, BudgetsAllocated]], tuple[int, RequestPrepared] | None]] = {}
    for seq, event in enumerate(run.events):
        index.take(event)
        key = event.where.thread_id, event.where.execution_id
        match event:
            case BudgetsAllocated():
                allocated.setdefault(key, []).append((seq, event))
            case RequestPrepared():
                prepared[key] = (seq, event)
            case ViewAssembled():
                of_view[seq] = (allocated.pop(key, []), prepared.get(key))
    found: dict[int, Any] = {}
    failed: NoeticConfigError | None = None
    plans: list[Planned] = []
    for request in index.requests:
        view = request.view
        try:
            recorded = request.inputs
        except NoeticConfigError as error:
            failed = failed or error
            kept.add("plans", _reason(request, error), request.seq)
            continue
        assert view is not None
        inputs = changes.inputs_of(recorded, request.seq)
        plan = changes.replan(inputs)
        chosen = changes.chosen_of(request.seq, view.projection)
        event = plan.as_event(view.where, view.t_ms, view.step, chosen, view.appended, view.duration_ms)
        found[request.seq] = event
        plans.append(Planned(request.seq, recorded, inputs, plan, bool(changes) and event != view))
        if changes.layers is not None and chosen is not None and chosen is view.projection:
            kept.add("history", "what recorded layers chose of it", request.seq)
        splits, common = of_view[request.seq]
        for seq, event in splits:
            found[seq] = _allocated(event, plan.policy, plan.budgets)
        if common is not None and changes:
            found[common[0]] = changes.prepared(common[1], plan, inputs)
        for layer_id in dict.fromkeys(entry.layer_id for entry in inputs.offers):
            if layer_id in changes.offers.get(request.seq, {}):
                continue
            kept.add("offers", f"of layer {layer_id}", request.seq)
    if changes and failed is not None and not plans:
        raise failed
    if changes and not index.requests:
        raise NoeticConfigError(
            "NOT_RECORDED",
            "No call of this run can be planned again.",
            given=run.run_id,
            hint="The run has no model call; rules and regulator can be replayed.",
        )
    for splits in allocated.values():  # the execution ended before a request
        for seq, event in splits:
            like = next((each.plan for each in plans if _is_split_as(each.recorded, event)), None)
            if like is None:
                kept.add("plans", "an allocation without a request", seq)
            else:
                found[seq] = _allocated(event, like.policy, like.budgets)
    return found, plans


def unknown_requests(
    plans: Sequence[Planned],
    changes: PlanChanges,
    joined: Iterable[MemoryLayer],
    doubted: frozenset[str],
    enforcing: frozenset[str],
) -> tuple[set[int], set[int]]:
    """Return the places of requests that are not known, and of those that are known to be others than they were.

    A layer that knows its allocation may offer something else under another, unless both are far more than it ever offers.

    Parameters
    ----------
    plans : sequence of Planned
        From `plan_again`.
    changes : PlanChanges
        What they were planned under.
    joined : iterable of MemoryLayer
        Layers of rules or a regulator that the run did not have: they take a share.
    doubted : frozenset of str
        Layers of which nobody knows what they would offer.
    enforcing : frozenset of str
        Layers of rules and of regulators, whose offers do not depend on their share.
    """
    at: set[int] = set()
    after: set[int] = set()
    most: dict[str, int] = {}
    for each in plans:
        for entry in each.recorded.offers:
            most[entry.layer_id] = max(_offered(entry, each.recorded.tokenizer), most.get(entry.layer_id, 0))
    for each in plans:
        own = {layer_id for layer_id, _, _ in each.inputs.limits}
        more = [_limit(layer) for layer in joined if layer.id not in own]
        plan = changes.replan(replace(each.inputs, limits=(*each.inputs.limits, *more))) if more else each.plan
        given, before = plan.budgets.by_layer(), each.recorded.allocated
        others = changes.offers.get(each.seq, {})
        stay = [entry for entry in each.inputs.offers if entry.layer_id not in others]
        if (
            any(entry.layer_id in doubted for entry in each.recorded.offers)
            # Where the others stand among those that stay is not in the run.
            or (stay and len(stay) < len(each.inputs.offers))
            or any(_offered(entry, each.inputs.tokenizer) > given.get(name, inf) for name, entry in others.items())
            or any(
                before[name] != now and min(before[name], now) < max(_LITTLE, _NEAR * most.get(name, 0))
                for name, now in given.items()
                if name in before and name not in others and name not in enforcing
            )
        ):
            at.add(each.seq)
        elif each.is_other and contents(each.plan.items, None) != contents(each.recorded.replan().items, None):
            after.add(each.seq)
    return at, after


def _offered(entry: RecallEntry, tokenizer: Tokenizer) -> int:
    """Return the tokens of all that a layer offered."""
    if entry.text is not None:
        return tokenizer(entry.text)
    return sum([content_tokens(item, tokenizer) for item in (*entry.items, *entry.dropped)])


def _is_split_as(recorded: PlanInputs, event: BudgetsAllocated) -> bool:
    """Tell whether a call shared the same budget among the same layers."""
    policy = recorded.policy
    numbers = policy.token_budget, recorded.system_tokens, policy.response_reserve
    layers = tuple([(layer_id, recorded.allocated.get(layer_id)) for layer_id, _, _ in recorded.limits])
    return numbers == (event.total, event.system, event.reserve) and layers == event.allocations


def _allocated(event: BudgetsAllocated, policy: ProjectionPolicy, budgets: BudgetPlan) -> BudgetsAllocated:
    return budgets_event(event.where, event.t_ms, policy, event.system, budgets)


def _reason(request: RecordedRequest, error: NoeticConfigError) -> str:
    return "; ".join(request.missing) or (error.hint or str(error))
