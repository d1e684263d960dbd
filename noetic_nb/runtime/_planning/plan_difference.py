"""The items that one plan of a call sends and another does not."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from noetic_nb.items import Item
from noetic_nb.items._build import content_tokens
from noetic_nb.runtime._planning.plan_inputs import PlanInputs
from noetic_nb.runtime._planning.turn_plan import TurnPlan


class ItemChange(NamedTuple):
    """An item that only one of two plans sends, or of a text the part that only one of them sends.

    `position` is its place in the log, or among all that the layer ``layer:<id>`` offered; `reason` is why the other plan leaves
    it out.
    """

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
    """Return the changes from one plan of a call to another."""
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
    # Before both windows nothing is sent but system messages, by either.
    first = min(without.window[0], has.window[0])
    reasons, others = without.left_out(first), has.left_out(first)
    log = inputs.log
    changes += [
        ItemChange("history", at, log.token_count(at), reasons[at], log[at]) for at in sorted(reasons.keys() - others)
    ]
    return tuple(changes)
