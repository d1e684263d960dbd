"""A planned model call as a record: the sent items, the origin of every token, and the reason for each item left out.

A history that layers changed is stored as stretches of the log and new items. Plans are made by
`noetic_nb.runtime._planning.make_plan`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, overload

from noetic_nb._core.cards import Card, Table, with_card
from noetic_nb.events import BudgetsAllocated, ItemFate, LayerTokens, LogStretch, UnsentOffer, ViewAssembled, Where
from noetic_nb.items import Item
from noetic_nb.items._item import tokens_of
from noetic_nb.items._log import ItemSequence, ItemView
from noetic_nb.memory import BudgetPlan, ProjectionPolicy
from noetic_nb.tokens import Tokenizer, estimate_tokens, known_error, tokenizer_name


class SentItems(ItemSequence):
    """The items of one request: stretches of the log and items between them, without copying a long history."""

    def __init__(self, *parts: Sequence[Item]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[Item]:
        return chain.from_iterable(self._parts)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        if isinstance(index, slice):
            return tuple(self)[index]
        if index < 0:
            last = self._parts[-1]
            if index >= -len(last):  # the newest items are read most
                return last[index]
            index += len(self)
        position = index
        for part in self._parts:
            if 0 <= position < len(part):
                return part[position]
            position -= len(part)
        raise IndexError(f"Item {index} of {len(self)}.")

    @property
    def tokens(self) -> int:
        """Tokens of all items by the default count; from running sums for a view of a log."""
        # By exact type: `isinstance` with an abstract class is several times slower for non-instances.
        return sum([part.tokens if type(part) is ItemView else tokens_of(part) for part in self._parts])


@with_card
class TurnPlan(NamedTuple):
    """One planned model call. All amounts are in tokens.

    `items` is exactly what is sent after the instructions: system items, layers' items and history, or with
    ``policy.order="cache"`` the order described in `plan_turn`. Tokens by origin add up:
    ``total_tokens == system + tools + framing + sum(layer.used for layer in layers) + history``. `framing` is the JSON
    around the layers' texts, which no layer controls.
    """

    items: Sequence[Item]
    policy: ProjectionPolicy
    budgets: BudgetPlan
    layers: tuple[LayerTokens, ...]
    layer_items: tuple[tuple[str, Item], ...]
    system: int
    tools: int
    framing: int
    history: int
    history_items: int
    window: tuple[int, int]
    fates: tuple[ItemFate, ...]
    floor: int = 0
    hidden: tuple[tuple[int, int, int], ...] = ()
    unsent: tuple[UnsentOffer, ...] = ()
    texts: tuple[str, ...] = ()
    """Layers that offer a single text, which may be truncated."""
    kept: tuple[int, ...] = ()
    """Positions of system messages before the window, which are sent all the same."""
    tokenizer: Tokenizer = estimate_tokens
    """The tokenizer that counted."""

    @property
    def counter(self) -> str:
        """Name of the tokenizer."""
        return tokenizer_name(self.tokenizer)

    @property
    def known_error(self) -> float | None:
        """Average relative error of this tokenizer against reported usage; None if it was never measured."""
        return known_error(self.tokenizer)

    def _card(self) -> Card:
        facts = [
            ("tokens", self.total_tokens),
            ("budget", self.policy.token_budget),
            ("reserve", self.policy.response_reserve),
            ("items", len(self.items)),
            ("history", f"{self.history:,} tokens of {self.history_items:,} item{'s' * (self.history_items != 1)}"),
            ("left out", len(self.left_out())),
            ("counter", self.counter),
        ]
        system = [("system", self.system, None), ("tools", self.tools, None), ("framing", self.framing, None)]
        layers = [(f"layer {each.layer_id}", each.used, _whole(each.allocated)) for each in self.layers]
        rows = [*system, *layers, ("history", self.history, _whole(self.budgets.history_budget))]
        return Card("TurnPlan", facts=facts, table=Table(("what is sent", "tokens", "at most"), rows))

    @property
    def total_tokens(self) -> int:
        """Tokens of everything that is sent."""
        return self.system + self.tools + self.framing + self.history + sum([layer.used for layer in self.layers])

    def sends(self, position: int) -> bool:
        """Tell whether a log item is sent as part of the window, and not despite the budget."""
        if any(fate.position == position for fate in self.fates if fate.origin == "history"):
            return False
        if any(start <= position < stop for start, stop, _ in self.hidden):
            return False
        return position >= self.window[0] or position in self.kept

    def left_out(self, first: int = 0) -> dict[int, str]:
        """Return the position and reason (of `ItemFate`) of each log item that is not sent.

        Before the window, only positions from `first` on are included.
        """
        reasons = dict.fromkeys(range(first, min(self.floor, self.window[0])), "outside_window")
        reasons |= dict.fromkeys(range(max(first, self.floor), self.window[0]), "over_budget")
        for position in self.kept:
            reasons.pop(position, None)
        for start, stop, _ in self.hidden:
            reasons |= dict.fromkeys(range(start, stop), "hidden")
        for fate in self.fates:
            if fate.origin == "history" and fate.reason == "forced":
                reasons.pop(fate.position, None)
            elif fate.origin == "history":
                reasons[fate.position] = fate.reason
        return reasons

    def as_event(
        self,
        where: Where,
        now_ms: float,
        step_number: int,
        projection: tuple[LogStretch, ...] | None = None,
        appended: tuple[Item, ...] = (),
        duration_ms: float | None = None,
    ) -> ViewAssembled:
        """Return the run event that records this plan when it is sent.

        `projection` is the history as layers changed it, `appended` are unlogged items sent at the end, and
        `duration_ms` is the duration of planning.
        """
        _, policy, budgets, layers, items, system, tools, framing, history = self[:9]
        count, window, fates, floor, hidden, unsent, texts, kept, _ = self[9:]
        return ViewAssembled(
            where,
            now_ms,
            step_number,
            window,
            fates,
            layers,
            items,
            policy.token_budget,
            policy.response_reserve,
            system,
            tools,
            framing,
            history,
            budgets.history_budget,
            count,
            floor,
            hidden,
            unsent,
            projection,
            appended,
            texts,
            kept,
            duration_ms,
        )


def _whole(tokens: float) -> float:
    return round(tokens) if math.isfinite(tokens) else tokens


def leaves_out(plan: TurnPlan) -> bool:
    """Tell whether a plan leaves out history that its policy would have summarised; layers that project it decide themselves."""
    return plan.policy.overflow == "summarize" and plan.window[0] > 0


def budgets_event(
    where: Where, now_ms: float, policy: ProjectionPolicy, system_tokens: int, budgets: BudgetPlan
) -> BudgetsAllocated:
    """Return the run event that records how a budget was split."""
    pairs = tuple([(layer_id, allocated) for layer_id, allocated in budgets.allocations])
    numbers = policy.token_budget, system_tokens, policy.response_reserve
    return BudgetsAllocated(where, now_ms, *numbers, pairs, budgets.history_budget)


def log_stretches(items: Sequence[Item], log: ItemView) -> tuple[LogStretch, ...]:
    """Return items as stretches of a log, recognised by identity, and other items."""
    parts: list[LogStretch] = []
    start = stop = -1
    written: list[Item] = []

    def end() -> None:
        nonlocal start, stop
        if start >= 0:
            parts.append(LogStretch(start, stop))
        elif written:
            parts.append(LogStretch(0, 0, tuple(written)))
            written.clear()
        start = stop = -1

    for item in items:
        places = log.places_of((item,))
        if not places:
            if start >= 0:
                end()
            written.append(item)
            continue
        # The same object may be logged twice: prefer the position that continues the stretch.
        place = stop if stop in places else places[0]
        if place != stop or start < 0:
            end()
            start = place
        stop = place + 1
    end()
    return tuple(parts)


def of_stretches(parts: Iterable[LogStretch], log: Sequence[Item]) -> tuple[Item, ...]:
    return tuple([item for part in parts for item in (part.written or log[part.start : part.stop])])
