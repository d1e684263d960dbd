"""The inputs of a planned call, so that it can be planned again with other numbers.

`allocate_budgets` and `plan_turn` always make the plan. The offers of layers are the recorded ones: if a layer's
allocation changes, its offer is limited to the new one as recall does it, without asking the layer again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RequestPrepared, UnsentOffer, ViewAssembled
from noetic_nb.items import Item, freeze
from noetic_nb.items._build import content_tokens
from noetic_nb.items._log import ItemView
from noetic_nb.memory import BudgetPlan, MemoryLayer, ProjectionPolicy, allocate_budgets
from noetic_nb.memory._budget import Order, Overflow
from noetic_nb.memory._hooks.recall import RecallEntry, places_that_fit, text_that_fits
from noetic_nb.memory._layer import budget_range
from noetic_nb.runtime._planning.make_plan import plan_turn
from noetic_nb.runtime._planning.turn_plan import TurnPlan, leaves_out, of_stretches
from noetic_nb.tokens import Tokenizer


class _Recorded:
    """Marks a number that keeps its recorded value, because None is a valid window."""

    def __repr__(self) -> str:
        return "as recorded"


RECORDED: Final = _Recorded()
_Limits: TypeAlias = tuple[tuple[str, float, float], ...]


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """The inputs of `plan_turn` for one recorded call; `summary` replaces history that is left out."""

    log: ItemView
    limits: _Limits
    suffixes: tuple[str, ...]
    policy: ProjectionPolicy
    offers: tuple[RecallEntry, ...]
    summary: RecallEntry | None
    instructions: str
    system_tokens: int
    tool_tokens: int
    projected: Sequence[Item] | None
    allocated: Mapping[str, float]
    tokenizer: Tokenizer

    def replan(
        self,
        *,
        budgets: Mapping[str, Any] | None = None,
        total: float | None = None,
        reserve: float | None = None,
        overflow: Overflow | None = None,
        window: int | _Recorded | None = RECORDED,
        order: Order | None = None,
    ) -> TurnPlan:
        """Plan the call again; omitted arguments keep their recorded values.

        See docs/behaviour/runtime.md, "Planning a call again".

        Parameters
        ----------
        budgets : mapping, optional
            By layer id, a budget as for `MemoryLayer`, or a pair of the minimum and the maximum tokens.
        total, reserve : float, optional
            Tokens of the whole request with its answer, and of the answer alone.
        overflow : {"truncate", "sliding_window", "summarize"}, optional
            How to handle items that do not fit. A summary is sent only if one was recorded.
        window : int or None, optional
            Number of items that the policy keeps; None means no window.
        order : {"slot", "cache"}, optional
            Position of the layers' items; the same items are sent.

        Returns
        -------
        TurnPlan
            A plan as from `plan_turn`. Without arguments, the recorded plan.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_LAYER_REFERENCE``, ``INVALID_BUDGET``, ``INVALID_PROJECTION``, ``INVALID_BUDGET_INPUT``.
        """
        limits = self._limits({} if budgets is None else _as_budgets(budgets))
        policy = self._policy(total, reserve, overflow, window, order)
        layers, split = self._split(limits, policy)
        offers = tuple([self._held(entry, split) for entry in self.offers])
        plan = self._plan(layers, policy, offers, split)
        if self.summary is not None and self.projected is None and leaves_out(plan):
            return self._plan(layers, policy, (*offers, self.summary), split)
        return plan

    def _split(self, limits: _Limits, policy: ProjectionPolicy) -> tuple[tuple[MemoryLayer, ...], BudgetPlan]:
        return _split(limits, self.suffixes, policy.token_budget, policy.response_reserve, self.system_tokens)

    def _plan(
        self, layers: Sequence[MemoryLayer], policy: ProjectionPolicy, offers: Sequence[RecallEntry], split: BudgetPlan
    ) -> TurnPlan:
        return plan_turn(
            self.log,
            layers,
            policy,
            offers,
            instructions=self.instructions,
            tool_tokens=self.tool_tokens,
            tokenizer=self.tokenizer,
            projected=self.projected,
            budgets=split,
            system_tokens=self.system_tokens,
        )

    def _limits(self, budgets: Mapping[str, Any]) -> _Limits:
        known = {layer_id for layer_id, _, _ in self.limits}
        for layer_id in budgets:
            if layer_id not in known:
                what = "The call has no such layer."
                hint = f"It has {', '.join(map(repr, sorted(known))) or 'none'}."
                raise NoeticConfigError("UNKNOWN_LAYER_REFERENCE", what, given=layer_id, hint=hint)
        if not budgets:
            return self.limits
        return tuple(
            [
                (layer_id, *_range(budgets[layer_id], layer_id)) if layer_id in budgets else (layer_id, low, high)
                for layer_id, low, high in self.limits
            ]
        )

    def _policy(
        self,
        total: float | None,
        reserve: float | None,
        overflow: Overflow | None,
        window: int | _Recorded | None,
        order: Order | None,
    ) -> ProjectionPolicy:
        given = {
            "token_budget": _as_tokens(total, "total"),
            "response_reserve": _as_tokens(reserve, "reserve"),
            "overflow": overflow,
            "order": order,
        }
        changed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if not isinstance(window, _Recorded):
            changed["window_size"] = window
        elif overflow == "truncate":
            changed["window_size"] = None  # it has no meaning there
        return _changed(self.policy, tuple(changed.items())) if changed else self.policy

    def _held(self, entry: RecallEntry, split: BudgetPlan) -> RecallEntry:
        """Limit an offer to a layer's allocation if that differs from the recorded one."""
        given = next((share.allocated for share in split.allocations if share.layer_id == entry.layer_id), math.inf)
        if given == self.allocated.get(entry.layer_id, math.inf):
            return entry
        if entry.text is not None:
            (item,) = (*entry.items, *entry.dropped)
            text = text_that_fits(entry.text, given, self.tokenizer)
            if not text:
                return entry._replace(items=(), dropped=(_with_text(item, entry.text),), places=(0,))
            return entry._replace(items=(_with_text(item, text),), dropped=(), places=())
        items = all_items(entry)
        kept = places_that_fit([content_tokens(item, self.tokenizer) for item in items], given)
        left = tuple(sorted({*range(len(items))}.difference(kept)))
        return entry._replace(
            items=tuple([items[place] for place in kept]), dropped=tuple([items[place] for place in left]), places=left
        )


def _as_budgets(given: object) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        hint = "Write budgets={'notes': (100, 400)}."
        raise NoeticConfigError("INVALID_BUDGET", "Budgets must map layers to budgets.", given=given, hint=hint)
    return given


def _as_tokens(given: object, field: str) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float):
        what = f"`{field}` must be a number of tokens."
        raise NoeticConfigError("INVALID_PROJECTION", what, given=given, hint="Leave it out to keep it.", field=field)
    return given


# A search, or a handle that is dragged, plans some hundred calls with the same numbers.
@lru_cache(maxsize=256)
def _changed(policy: ProjectionPolicy, values: tuple[tuple[str, Any], ...]) -> ProjectionPolicy:
    return ProjectionPolicy(**{**policy.model_dump(), **dict(values)})


@lru_cache(maxsize=256)
def _split(
    limits: _Limits, suffixes: tuple[str, ...], total: float, reserve: float, system: float
) -> tuple[tuple[MemoryLayer, ...], BudgetPlan]:
    layers = tuple(
        [
            MemoryLayer(
                id=layer_id,
                slot=0,
                scope="thread",
                budget={"min": low, "max": high},
                placement="suffix" if layer_id in suffixes else None,
            )
            for layer_id, low, high in limits
        ]
    )
    split = allocate_budgets(layers, total_budget=total, system_prompt_tokens=system, response_reserve=reserve)
    return layers, split


def _range(given: Any, layer_id: str) -> tuple[float, float]:
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2:
        given = {"min": given[0], "max": given[1]}
    return budget_range(given, layer_id=layer_id)


def all_items(entry: RecallEntry) -> list[Item]:
    """Return all items that a layer offered, in its order."""
    dropped, kept = dict(zip(entry.places, entry.dropped, strict=True)), iter(entry.items)
    return [dropped[at] if at in dropped else next(kept) for at in range(len(entry.items) + len(dropped))]


def _with_text(item: Item, text: str) -> Item:
    (part,) = item["content"]
    return item if part["text"] == text else Item({**item, "content": freeze([{**part, "text": text}])})


def plan_inputs(view: ViewAssembled, prepared: RequestPrepared, log: ItemView, tokenizer: Tokenizer) -> PlanInputs:
    """Return the inputs of a recorded call's plan, from its view, the last `prepared` event, and the log at that moment."""
    layers = {layer_id for layer_id, _, _ in prepared.limits}
    offers = _recorded_offers(view)
    policy = ProjectionPolicy(
        token_budget=view.total,
        response_reserve=view.reserve,
        overflow=prepared.overflow,
        window_size=prepared.window_size,
        order=prepared.order,
    )
    return PlanInputs(
        log,
        prepared.limits,
        prepared.suffixes,
        policy,
        tuple([entry for entry in offers if entry.layer_id in layers]),
        next((entry for entry in offers if entry.layer_id not in layers), None),
        prepared.instructions,
        view.system,
        view.tools,
        None if view.projection is None else of_stretches(view.projection, log),
        {share.layer_id: share.allocated for share in view.layers},
        tokenizer,
    )


def _recorded_offers(view: ViewAssembled) -> list[RecallEntry]:
    """Return the offers of layers in their original order, with sent and unsent items in their places."""
    sent: dict[str, list[Item]] = {}
    left: dict[str, list[UnsentOffer]] = {}
    unsent = list(view.unsent)
    for place in range(len(view.layer_items) + 1):
        while unsent and unsent[0].before == place:
            offer = unsent.pop(0)
            sent.setdefault(offer.layer_id, [])
            left.setdefault(offer.layer_id, []).append(offer)
        if place < len(view.layer_items):
            layer_id, item = view.layer_items[place]
            sent.setdefault(layer_id, []).append(item)
    return [_entry(layer_id, items, left.get(layer_id, []), layer_id in view.texts) for layer_id, items in sent.items()]


def _entry(layer_id: str, sent: Sequence[Item], left: Sequence[UnsentOffer], is_text: bool) -> RecallEntry:
    rest = "".join([_text_of(offer.item) for offer in left if offer.reason == "trimmed"])
    whole = {offer.place: offer for offer in left if offer.reason != "trimmed"}
    kept: list[Item] = []
    dropped: dict[int, Item] = {}
    waiting = iter(sent)
    for place in range(len(sent) + len(whole)):
        offer = whole.get(place)
        if offer is None:
            kept.append(next(waiting))
        elif offer.reason == "over_budget":
            kept.append(offer.item)
        else:
            dropped[place] = offer.item
    text = _text_of((*kept, *dropped.values())[0]) + rest if is_text else None
    return RecallEntry(layer_id, tuple(kept), 0, tuple(dropped.values()), tuple(dropped), text)


def _text_of(item: Item) -> str:
    text: str = item["content"][0]["text"]
    return text


class ItemChange(NamedTuple):
    """An item, or part of a text, that only one of two plans sends: its index in the log or offer, and the `reason`."""

    origin: str
    position: int
    tokens: int
    reason: str
    item: Item


class PlanDifference(NamedTuple):
    """The items that a plan leaves out and another sends (`dropped`), and the reverse (`returned`)."""

    dropped: tuple[ItemChange, ...]
    returned: tuple[ItemChange, ...]


def plan_difference(inputs: PlanInputs, before: TurnPlan, after: TurnPlan) -> PlanDifference:
    return PlanDifference(_only(inputs, after, before), _only(inputs, before, after))


def _only(inputs: PlanInputs, without: TurnPlan, has: TurnPlan) -> tuple[ItemChange, ...]:
    """Return the items that one plan leaves out and the other does not."""
    gone: dict[tuple[str, int], tuple[int, str, Item]] = {}
    spared = Counter[tuple[str, int]]()
    for offer in without.unsent:
        tokens = content_tokens(offer.item, inputs.tokenizer)
        gone[f"layer:{offer.layer_id}", offer.place] = tokens, offer.reason, offer.item
    for offer in has.unsent:
        spared[f"layer:{offer.layer_id}", offer.place] += content_tokens(offer.item, inputs.tokenizer)
    changes = [
        ItemChange(*place, tokens - spared[place], reason, item)
        for place, (tokens, reason, item) in gone.items()
        if tokens > spared[place]
    ]
    # Before both windows, both plans send only system messages.
    first = min(without.window[0], has.window[0])
    reasons, others = without.left_out(first), has.left_out(first)
    log = inputs.log
    changes += [
        ItemChange("history", at, log.token_count(at), reasons[at], log[at]) for at in sorted(reasons.keys() - others)
    ]
    return tuple(changes)
