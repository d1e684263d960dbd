"""The plans of a run, made again by the runtime's planner over the recorded log with other layers' offers.

Offers of recorded layers are cut to their new allocation as recall does it; a removed layer offers nothing, and the
others share its tokens. An added layer is initialised at each turn, recalls when the agent did, stores after each model
step and completes with the turn; its changes to logged items are not repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final, NamedTuple

from msgspec import structs

from noetic_nb import events as ev
from noetic_nb._core.arguments import closest
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import ItemLog
from noetic_nb.items._build import content_tokens
from noetic_nb.items._log import ItemView
from noetic_nb.lab._replaying.replay_report import Kept, contents
from noetic_nb.memory import ExecutionContext, LayerStack, MemoryLayer, ProjectionPolicy
from noetic_nb.memory._hooks.recall import RecallEntry
from noetic_nb.memory._layer import budget_range
from noetic_nb.models._client import ModelRequest, ModelResponse, Usage
from noetic_nb.runs import Run
from noetic_nb.runs._recorded_origins import RecordedClock
from noetic_nb.runs._requests.recorded_requests import RequestIndex
from noetic_nb.runtime._context.messages import query_of
from noetic_nb.runtime._planning.plan_inputs import RECORDED, PlanInputs
from noetic_nb.runtime._planning.turn_plan import TurnPlan, budgets_event, log_stretches, of_stretches
from noetic_nb.tokens import Tokenizer, estimate_tokens

_POLICY = frozenset(ProjectionPolicy.model_fields)
# An allocation below this multiple of a layer's offer, or of few tokens, may have limited the offer.
_NEAR: Final = 2
_LITTLE: Final = 256


@dataclass(frozen=True)
class PlanChanges:
    """The changes to the plans, none by default. `layers` are the ids of remaining layers, None for all."""

    budgets: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)
    layers: frozenset[str] | None = None
    others: tuple[MemoryLayer, ...] = ()
    """Layers that are added, or replace recorded ones."""
    offers: Mapping[int, Mapping[str, RecallEntry]] = field(default_factory=dict)
    """Their offers, by the index of the request."""
    chosen: Mapping[int, tuple[ev.LogStretch, ...] | None] = field(default_factory=dict)
    """Their projections of the history, by request, where they are called; None is the whole history."""
    alone: bool = False
    """Whether no recorded layer remains, so that their projections of the history are gone too."""

    def __bool__(self) -> bool:
        return bool(self.budgets or self.policy) or self.layers is not None

    def inputs_of(self, inputs: PlanInputs, seq: int) -> PlanInputs:
        """Return the inputs of the plan for the call at an index of the run; other layers follow the recorded ones."""
        if self.layers is None:
            return inputs
        others = self.others if seq in self.offers else ()
        # A child's request keeps its recorded offers, also those of a layer that runs again elsewhere.
        stay = self.layers if others else self.layers | {layer.id for layer in self.others}
        kept = [limit for limit in inputs.limits if limit[0] in stay]
        chosen = self.chosen_of(seq, RECORDED)
        offers = [entry for entry in inputs.offers if entry.layer_id in stay]
        known = self.offers.get(seq, {})
        return replace(
            inputs,
            limits=(*kept, *[_limit(layer) for layer in others]),
            suffixes=(
                *[layer_id for layer_id in inputs.suffixes if layer_id in stay],
                *[each.id for each in others if each.placement == "suffix"],
            ),
            offers=(*offers, *[known[layer.id] for layer in others if layer.id in known]),
            projected=(
                inputs.projected if chosen is RECORDED else None if chosen is None else of_stretches(chosen, inputs.log)
            ),
            allocated={name: given for name, given in inputs.allocated.items() if name in stay},
        )

    def chosen_of(self, seq: int, recorded: Any) -> Any:
        """Return the layers' projection of the history for the call at an index of the run, or `recorded` if unchanged."""
        if seq in self.chosen:
            return self.chosen[seq]
        return None if self.alone and (not self.others or seq in self.offers) else recorded

    def replan(self, inputs: PlanInputs) -> TurnPlan:
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

    def prepared(self, event: ev.RequestPrepared, plan: TurnPlan, inputs: PlanInputs) -> ev.RequestPrepared:
        """Return the new shared parts of an execution's requests."""
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


def _limit(layer: MemoryLayer) -> tuple[str, float, float]:
    return (layer.id, *budget_range(layer.budget, layer_id=layer.id))


def plan_changes(run: Run, budgets: Any, projection: Any, layers: frozenset[str] | None) -> PlanChanges:
    """Return validated changes; raises ``INVALID_BUDGET``, ``INVALID_PROJECTION`` or ``UNKNOWN_LAYER_REFERENCE``."""
    planned = [event for event in run.events if isinstance(event, ev.RequestPrepared)]
    known = {limit[0] for event in planned for limit in event.limits}
    if budgets is not None and not isinstance(budgets, Mapping):
        what = "Budgets must be a mapping of layer ids."
        hint = 'For example: budgets={"facts": 300}; the total is projection={"token_budget": 4_000}.'
        raise NoeticConfigError("INVALID_BUDGET", what, given=budgets, hint=hint)
    if planned:  # otherwise no request was planned here, which is reported elsewhere
        for layer_id in (*(budgets or {}), *(layers or ())):
            if layer_id not in known:
                raise NoeticConfigError(
                    "UNKNOWN_LAYER_REFERENCE",
                    "No call of the run has a layer of this name.",
                    given=layer_id,
                    hint=f"{closest(str(layer_id), known)} It has {', '.join(map(repr, sorted(known))) or 'none'}.".strip(),
                )
    policy: Mapping[str, Any] = {}
    if isinstance(projection, ProjectionPolicy):
        policy = projection.model_dump()
    elif isinstance(projection, Mapping) and projection.keys() <= _POLICY:
        policy = dict(projection)
    elif projection is not None:
        what = "A projection must be a ProjectionPolicy, or a mapping of its changed fields."
        hint = f"Its fields are {', '.join(sorted(_POLICY))}."
        raise NoeticConfigError("INVALID_PROJECTION", what, given=projection, hint=hint)
    # A replay asks no model: a summary is sent only where one was recorded.
    policy = {name: given for name, given in policy.items() if name != "overflow_model"}
    return PlanChanges(budgets or {}, policy, layers)


class Planned(NamedTuple):
    """One request, planned again."""

    seq: int
    recorded: PlanInputs
    inputs: PlanInputs
    plan: TurnPlan
    is_other: bool
    """Whether its plan differs from the recorded one."""


def plan_again(
    run: Run, changes: PlanChanges, kept: Kept, tokenizer: Tokenizer | None = None
) -> tuple[dict[int, Any], list[Planned]]:
    """Plan every call of a run; return events by the index of the events they replace, and the plans."""
    index = RequestIndex(tokenizer)
    allocated: dict[tuple[str, str], list[tuple[int, ev.BudgetsAllocated]]] = {}
    prepared: dict[tuple[str, str], tuple[int, ev.RequestPrepared]] = {}
    of_view: dict[int, tuple[list[tuple[int, ev.BudgetsAllocated]], tuple[int, ev.RequestPrepared] | None]] = {}
    for seq, event in enumerate(run.events):
        index.take(event)
        key = event.where.thread_id, event.where.execution_id
        match event:
            case ev.BudgetsAllocated():
                allocated.setdefault(key, []).append((seq, event))
            case ev.RequestPrepared():
                prepared[key] = (seq, event)
            case ev.ViewAssembled():
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
            kept.add("plans", "; ".join(request.missing) or error.hint or str(error), request.seq)
            continue
        assert view is not None
        inputs = changes.inputs_of(recorded, request.seq)
        plan = changes.replan(inputs)
        chosen = changes.chosen_of(request.seq, view.projection)
        event = plan.as_event(view.where, view.t_ms, view.step, chosen, view.appended, view.duration_ms)
        found[request.seq] = event
        is_other = bool(changes) and (event != view or plan.policy.order != recorded.policy.order)
        plans.append(Planned(request.seq, recorded, inputs, plan, is_other))
        if changes.layers is not None and chosen is not None and chosen is view.projection:
            kept.add("history", "what recorded layers chose of it", request.seq)
        splits, common = of_view[request.seq]
        for seq, event in splits:
            found[seq] = budgets_event(event.where, event.t_ms, plan.policy, event.system, plan.budgets)
        if common is not None and changes:
            found[common[0]] = changes.prepared(common[1], plan, inputs)
        for layer_id in dict.fromkeys(entry.layer_id for entry in inputs.offers):
            if layer_id in changes.offers.get(request.seq, {}):
                continue
            kept.add("offers", f"of layer {layer_id}", request.seq)
    if changes and failed is not None and not plans:
        raise failed
    if changes and not index.requests:
        what = "No call of this run can be planned again."
        hint = "The run has no model call; rules and regulator can be replayed."
        raise NoeticConfigError("NOT_RECORDED", what, given=run.run_id, hint=hint)
    for splits in allocated.values():  # the execution ended before a request
        for seq, event in splits:
            like = next((each.plan for each in plans if _is_split_as(each.recorded, event)), None)
            if like is None:
                kept.add("plans", "an allocation without a request", seq)
            else:
                found[seq] = budgets_event(event.where, event.t_ms, like.policy, event.system, like.budgets)
    return found, plans


def unknown_requests(
    plans: Sequence[Planned],
    changes: PlanChanges,
    joined: Iterable[MemoryLayer],
    doubted: frozenset[str],
    enforcing: frozenset[str],
) -> tuple[set[int], set[int]]:
    """Return the indices of unknown requests, and of requests known to differ from the recorded ones.

    A layer that reads its allocation may offer something else under another one, unless both are far larger than its
    offers. `joined` are added layers of rules or a regulator, which take a share; the offers of `doubted` layers are
    unknown; `enforcing` are the layers of rules and regulators, whose offers do not depend on their share.
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
            # The run does not say where the others would be among the remaining layers.
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
            # What a new summary would say is unknown.
            (at if each.plan.policy.overflow == "summarize" else after).add(each.seq)
    return at, after


def _offered(entry: RecallEntry, tokenizer: Tokenizer) -> int:
    if entry.text is not None:
        return tokenizer(entry.text)
    return sum([content_tokens(item, tokenizer) for item in (*entry.items, *entry.dropped)])


def _is_split_as(recorded: PlanInputs, event: ev.BudgetsAllocated) -> bool:
    """Tell whether a call shared the same budget among the same layers."""
    policy = recorded.policy
    numbers = policy.token_budget, recorded.system_tokens, policy.response_reserve
    layers = tuple([(layer_id, recorded.allocated.get(layer_id)) for layer_id, _, _ in recorded.limits])
    return numbers == (event.total, event.system, event.reserve) and layers == event.allocations


# The hooks that `LayersAlong` calls, and those of children, whose requests stay as recorded.
_RUN: Final = frozenset(
    {"init", "recall", "project_history", "store", "on_complete", "dispose", "on_spawn", "delivered"}
)


class _Turn(NamedTuple):
    ctx: ExecutionContext
    query: str


class LayersAlong:
    """Layers that follow a recorded run: initialised, called and stored when the agent's were."""

    def __init__(self, layers: Sequence[MemoryLayer], model: Any, tokenizer: Tokenizer) -> None:
        self.stack = LayerStack(layers)
        self.budgets = dict.fromkeys([layer.id for layer in layers], inf)
        self.model = model
        self.tokenizer = tokenizer
        self.clock = RecordedClock()
        self.turns: dict[str, _Turn] = {}
        # The output of a model step so far, with its usage.
        self.answered: dict[str, ModelResponse] = {}

    async def take(self, event: ev.RunEvent, index: RequestIndex) -> None:
        """Process an event that `index` has already read: the start of a turn, answers, the end of a step or turn."""
        self.clock.t_ms = max(self.clock.t_ms, event.t_ms)
        match event:
            case ev.TurnStarted():
                await self._begin(event)
            case ev.ItemsAppended(origin="user" | "step") if event.where.execution_id in self.turns:
                turn = self.turns[event.where.execution_id]
                self.turns[event.where.execution_id] = turn._replace(query=query_of(event.items) or turn.query)
            case ev.ModelCalled(purpose="agent", status="ok"):
                before = self.answered.get(event.where.execution_id, ModelResponse((), Usage(0, 0)))
                cost = (before.cost or 0.0) + (event.cost or 0.0) or None
                usage = before.usage + Usage(*event.counts)
                self.answered[event.where.execution_id] = before._replace(usage=usage, cost=cost)
            case ev.ItemsAppended(origin="model"):
                if (known := self.answered.get(event.where.execution_id)) is not None:
                    self.answered[event.where.execution_id] = known._replace(items=(*known.items, *event.items))
            case ev.StepEnded(step_kind="llm", status="ok"):
                response = self.answered.pop(event.where.execution_id, None)
                if response is not None and (now := self.turns.get(event.where.execution_id)) is not None:
                    await self.stack.store(now.ctx, response=response, log=ItemLog(index.log_of(event.where)))
            case ev.TurnCompleted():
                self.answered.pop(event.where.execution_id, None)
                ended = self.turns.pop(event.where.execution_id, None)
                if ended is not None:
                    await self.stack.complete(ended.ctx, log=ItemLog(index.log_of(event.where)), outcome=event.outcome)
                    await self.stack.dispose(ended.ctx)

    async def _begin(self, event: ev.TurnStarted) -> None:
        where = event.where
        ctx = ExecutionContext(
            execution_id=where.execution_id,
            thread_id=where.thread_id,
            resource_id=event.resource_id,
            turn=where.turn,
            clock=self.clock,
            tokenize=self.tokenizer,
            call_model=None if self.model is None else self._ask,
        )
        self.turns[where.execution_id] = _Turn(ctx, event.query)
        await self.stack.init(ctx)

    async def _ask(self, request: Any) -> Any:
        return await self.model.complete(
            ModelRequest(request.model, request.items, request.instructions, purpose=request.purpose)
        )

    async def offer(self, execution_id: str, log: ItemLog) -> dict[str, RecallEntry] | None:
        """Return the items that the layers offer for a call, or None if its turn did not begin."""
        turn = self.turns.get(execution_id)
        if turn is None:
            return None
        found = await self.stack.recall(turn.ctx, query=turn.query, log=log, budgets=self.budgets)
        return {entry.layer_id: entry for entry in found}

    async def choose(self, execution_id: str, log: ItemView) -> tuple[ev.LogStretch, ...] | None:
        """Return the layers' projection of the history, or None for the whole history."""
        shown = await self.stack.project_history(self.turns[execution_id].ctx, log)
        return None if shown is log else log_stretches(shown, log)


async def offers_of(
    run: Run,
    layers: Sequence[MemoryLayer],
    kept: Kept,
    model: Any = None,
    tokenizer: Tokenizer = estimate_tokens,
    *,
    alone: bool = False,
) -> tuple[dict[int, dict[str, RecallEntry]], dict[int, tuple[ev.LogStretch, ...] | None]]:
    """Return by the index of each request the layers' offers, and their projections of the history.

    The layers project the history if no other layer did, or if they are `alone`.
    """
    for layer in layers:
        for hook in layer.hooks.names():
            if hook not in _RUN:
                kept.add("layers", f"hook {hook} of layer {layer.id} is not run")
    choosing = [layer.id for layer in layers if layer.hooks.project_history is not None]
    live = LayersAlong(layers, model, tokenizer)
    index = RequestIndex()
    due: set[str] = set()
    last: dict[str, dict[str, RecallEntry]] = {}
    offers: dict[int, dict[str, RecallEntry]] = {}
    projections: dict[int, tuple[ev.LogStretch, ...] | None] = {}
    # For each step: the length of the log and the projection at its start. Later items are added unchanged.
    begun: dict[str, tuple[int, tuple[ev.LogStretch, ...] | None]] = {}
    for seq, event in enumerate(tuple(run.events)):
        at = index.take(event)
        execution_id = event.where.execution_id
        await live.take(event, index)
        match event:
            case ev.BudgetsAllocated():
                due.add(execution_id)
            case ev.ViewAssembled() if at is not None:
                if execution_id in due:
                    due.discard(execution_id)
                    log = index.log_of(event.where)
                    offered = await live.offer(execution_id, ItemLog(log))
                    if offered is None:
                        kept.add("layers", "requests of children have what was offered then", seq)
                        continue
                    last[execution_id] = offered
                    if choosing:
                        begun[execution_id] = len(log), await live.choose(execution_id, log)
                if execution_id not in last:
                    continue
                offers[seq] = last[execution_id]
                if choosing and event.projection is not None and not alone:
                    for layer_id in choosing:
                        kept.add("layers", f"hook project_history of layer {layer_id} is not run", seq)
                elif choosing:
                    known, chosen = begun[execution_id]
                    size = len(index.log_of(event.where))
                    later = (ev.LogStretch(known, size),) if size > known else ()
                    projections[seq] = None if chosen is None else (*chosen, *later)
    return offers, projections
