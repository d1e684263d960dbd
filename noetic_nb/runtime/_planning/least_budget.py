"""The items that a call did not send, the reasons, and the smallest budget that would have admitted each.

Found by planning the call again, so no rule of the planner is repeated here. More room does not always send more:
layers take their share first, and a larger item that now fits may displace items behind it. So budgets are tried one by
one where possible, upwards from the recorded one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from noetic_nb.items import Item, item_text, item_tokens
from noetic_nb.items._build import content_tokens
from noetic_nb.memory._budget import must_send
from noetic_nb.runtime._planning.make_plan import split_history
from noetic_nb.runtime._planning.plan_inputs import PlanInputs, all_items
from noetic_nb.runtime._planning.turn_plan import TurnPlan

# Number of budgets tried one by one, at about 0.1 ms each; longer ranges are bisected.
MOST_TRIED: Final = 2_048


class AbsentItem(NamedTuple):
    """An item that a request does not contain, or contains despite the budget (``forced``)."""

    origin: str
    """``history``, or ``layer:<id>``."""
    position: int
    """Its index in the log, or in the layer's offer."""
    tokens: int
    """Tokens of the whole item (history), of its text (a layer's offer), or of the removed rest (a truncated text)."""
    reason: str
    item: Item
    before: int | None = None
    """For a layer's offer: the number of layer items sent before it."""


class LeastBudget(NamedTuple):
    """The smallest change that would have admitted an item, in the terms of `PlanInputs.replan`."""

    total: int | None = None
    """Tokens of the whole request with its answer, if that has to be raised."""
    window: int | None = None
    """Items of history, if the window has to be raised."""
    layer_id: str | None = None
    maximum: int | None = None
    """Maximum tokens of the layer `layer_id`, if that has to be raised."""
    minimum: float = 0.0

    @property
    def changes(self) -> dict[str, Any]:
        """The change as keyword arguments."""
        found: dict[str, Any] = {}
        if self.total is not None:
            found["total"] = self.total
        if self.window is not None:
            found["window"] = self.window
        if self.layer_id is not None:
            found["budgets"] = {self.layer_id: (self.minimum, self.maximum)}
        return found


def absent_items(inputs: PlanInputs, plan: TurnPlan) -> tuple[AbsentItem, ...]:
    """Return the items that a plan leaves out: offers of layers, then history in its order."""
    tokenizer = inputs.tokenizer
    offered = [
        AbsentItem(
            f"layer:{offer.layer_id}",
            offer.place,
            content_tokens(offer.item, tokenizer),
            offer.reason,
            offer.item,
            offer.before,
        )
        for offer in plan.unsent
    ]
    reasons: dict[int, str] = plan.left_out()
    reasons |= {fate.position: "forced" for fate in plan.fates if (fate.origin, fate.reason) == ("history", "forced")}
    chosen: dict[int, str] = {}
    if plan.hidden:
        # Long stretches have no individual reasons: items in them that layers selected were left out for their size.
        _, history = split_history(inputs.log, inputs.projected)
        window = plan.policy.window_size if plan.policy.overflow == "sliding_window" else None
        floor = max(0, len(history) - window) if window else 0
        chosen = {id(item): "outside_window" if at < floor else "over_budget" for at, item in enumerate(history)}
    absent = []
    for at in sorted(reasons):
        item, reason = inputs.log[at], reasons[at]
        if reason == "hidden":
            reason = chosen.get(id(item), reason)
        absent.append(AbsentItem("history", at, inputs.log.token_count(at), reason, item))
    return (*offered, *absent)


def least_budget(inputs: PlanInputs, absent: AbsentItem) -> LeastBudget | None:
    """Return the smallest budget, window or layer maximum that would have admitted an item, or None if none would."""
    if absent.origin == "history":
        return _Search(inputs, _HistoryItem(inputs, absent.position)).of_history()
    layer_id = absent.origin.removeprefix("layer:")
    return _Search(inputs, _OfferedItem(inputs, layer_id, absent)).of_layer(layer_id, absent)


class _HistoryItem:
    """A log item: which budgets send it, and how much room it needs."""

    def __init__(self, inputs: PlanInputs, position: int) -> None:
        self.inputs, self.position = inputs, position
        _, self.history = split_history(inputs.log, inputs.projected)
        self.item = inputs.log[position]
        places = [at for at, item in enumerate(self.history) if item is self.item]
        self.at = places[-1] if places else None

    def is_sent(self, **changes: Any) -> bool:
        return self.inputs.replan(**changes).sends(self.position)

    @property
    def first(self) -> int:
        """The required first item of the history: the item itself, or the call that it answers."""
        assert self.at is not None
        if self.item["type"] != "function_call_output":
            return self.at
        call_id = self.item.get("callId")
        calls = [
            at
            for at, item in enumerate(self.history[: self.at])
            if item["type"] == "function_call" and item.get("callId") == call_id
        ]
        return calls[-1] if calls else self.at

    def needed(self) -> int:
        return _tokens(self.history[self.first :], self.inputs)

    def window(self) -> int:
        return len(self.history) - self.first


class _OfferedItem:
    """An item that a layer offered: which budgets send it."""

    def __init__(self, inputs: PlanInputs, layer_id: str, absent: AbsentItem) -> None:
        entries = (*inputs.offers, *([] if inputs.summary is None else [inputs.summary]))
        entry = next(entry for entry in entries if entry.layer_id == layer_id)
        self.inputs, self.layer_id, self.reason = inputs, layer_id, absent.reason
        self.text = entry.text
        self.item = all_items(entry)[absent.position]

    def is_sent(self, **changes: Any) -> bool:
        plan = self.inputs.replan(**changes)
        return self._is_among([item for layer_id, item in plan.layer_items if layer_id == self.layer_id])

    def _is_among(self, sent: Sequence[Item]) -> bool:
        if self.text is None:
            return any(item is self.item for item in sent)
        # A text counts as sent if any of it is, or, if its allocation cut it, only if all of it is.
        return bool(sent) and (self.reason == "over_budget" or item_text(sent[0]) == self.text)

    def needed(self) -> int:
        _, history = split_history(self.inputs.log, self.inputs.projected)
        return int(must_send(history, self.inputs.tokenizer))


class _Search:
    """Tries budgets, upwards from those of a recorded call."""

    def __init__(self, inputs: PlanInputs, wanted: _HistoryItem | _OfferedItem) -> None:
        self.inputs, self.wanted = inputs, wanted
        head, _ = split_history(inputs.log, inputs.projected)
        # The fixed part of every request: no smaller total can admit anything.
        self.fixed = inputs.system_tokens + inputs.tool_tokens + inputs.policy.response_reserve + _tokens(head, inputs)
        entries = (*inputs.offers, *([] if inputs.summary is None else [inputs.summary]))
        self.offered = sum(
            [
                _tokens(all_items(entry), inputs) + (0 if entry.text is None else inputs.tokenizer(entry.text))
                for entry in entries
            ]
        )

    def of_history(self) -> LeastBudget | None:
        wanted, policy = self.wanted, self.inputs.policy
        assert isinstance(wanted, _HistoryItem)
        if wanted.at is None:  # hidden by a layer
            return None
        kept = policy.window_size if policy.overflow == "sliding_window" else None
        window = wanted.window() if kept and kept < wanted.window() else None
        if window is not None and self.wanted.is_sent(window=window):
            return LeastBudget(window=window)
        total = self._total(wanted.needed(), **({} if window is None else {"window": window}))
        return None if total is None else LeastBudget(total=total, window=window)

    def of_layer(self, layer_id: str, absent: AbsentItem) -> LeastBudget | None:
        wanted = self.wanted
        assert isinstance(wanted, _OfferedItem)
        low, high = next(((low, high) for name, low, high in self.inputs.limits if name == layer_id), (0.0, math.inf))
        most = 0 if high == math.inf else math.ceil(high) + math.ceil(self.offered)
        if absent.reason != "over_budget" and high != math.inf:
            found = self._smallest(
                lambda number: self.wanted.is_sent(budgets={layer_id: (low, number)}), math.floor(high) + 1, most
            )
            if found is not None:
                return LeastBudget(layer_id=layer_id, maximum=found, minimum=low)
        total = self._total(wanted.needed())
        if total is not None or high == math.inf:
            return None if total is None else LeastBudget(total=total)
        # One change is not enough, or with a larger total another item of the layer takes its place: find the maximum
        # that works with any total, and then the total.
        plenty = 1_000 * math.ceil(self.fixed + wanted.needed() + self.offered + 1)
        maximum = self._smallest(
            lambda number: self.wanted.is_sent(total=plenty, budgets={layer_id: (low, number)}),
            math.floor(high) + 1,
            most,
        )
        if maximum is None:
            return None
        total = self._total(wanted.needed(), budgets={layer_id: (low, maximum)})
        return None if total is None else LeastBudget(total, None, layer_id, maximum, low)

    def _total(self, needed: int, **changed: Any) -> int | None:
        now = self.inputs.policy.token_budget
        if now == math.inf:
            return None
        first = max(math.floor(now) + 1, math.ceil(self.fixed + needed))
        # Room for all offers sends everything, except that a layer's allocation may need more.
        last = first + math.ceil(self.offered) + 1
        while not self.wanted.is_sent(total=last, **changed):
            if last > 1_000 * (first + self.offered + 1):
                return None
            last *= 2
        return self._smallest(lambda number: self.wanted.is_sent(total=number, **changed), first, last)

    @staticmethod
    def _smallest(admits: Callable[[int], bool], first: int, last: int) -> int | None:
        """Return the smallest number that admits; in a long range, one that admits while the number before it does not."""
        if last - first <= MOST_TRIED:
            return next((number for number in range(first, last + 1) if admits(number)), None)
        if not admits(last):
            return None
        if admits(first):
            return first
        while last - first > 1:
            middle = (first + last) // 2
            if admits(middle):
                last = middle
            else:
                first = middle
        return last


def _tokens(items: Sequence[Item], inputs: PlanInputs) -> int:
    return sum([item_tokens(item, inputs.tokenizer) for item in items])
