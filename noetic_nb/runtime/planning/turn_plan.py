"""Plan a model call: what is sent, where every token of it came from, and why something was left out.

Pure: the harness executes a plan, `preview` shows one, and what-if questions call it again with other numbers. There is no
second implementation of any of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from noetic_nb.events import ItemFate, LayerTokens
from noetic_nb.items import Item, ItemLog, ItemView, content_tokens, item_tokens
from noetic_nb.memory import (
    BudgetPlan,
    MemoryLayer,
    ProjectedHistory,
    ProjectionPolicy,
    RecallEntry,
    allocate_budgets,
    project_tail,
)
from noetic_nb.memory.projection import latest_user, must_send
from noetic_nb.runtime.planning.sent import SentItems
from noetic_nb.tokens import Tokenizer, estimate_tokens

__all__ = ["TurnPlan", "plan_turn"]


class TurnPlan(NamedTuple):
    """One planned model call. All amounts in tokens.

    `items` is exactly what is sent, after the instructions: system items, layers' items, history. Tokens by origin add up:
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

    @property
    def total_tokens(self) -> int:
        """Tokens of everything that is sent."""
        return self.system + self.tools + self.framing + self.history + sum(layer.used for layer in self.layers)

    def left_out(self) -> dict[int, str]:
        """Return why each log item that is not sent is not: its position and a reason of `ItemFate`."""
        reasons = dict.fromkeys(range(min(self.floor, self.window[0])), "outside_window")
        reasons |= dict.fromkeys(range(self.floor, self.window[0]), "over_budget")
        for fate in self.fates:
            if fate.origin == "history" and fate.reason == "forced":
                reasons.pop(fate.position, None)
            elif fate.origin == "history":
                reasons[fate.position] = fate.reason
        return reasons

    @property
    def free_tokens(self) -> float:
        """Tokens neither used nor reserved; negative where what must be sent does not fit."""
        return self.policy.token_budget - self.policy.response_reserve - self.total_tokens


def plan_turn(
    log: ItemLog | Sequence[Item],
    layers: Iterable[MemoryLayer],
    policy: ProjectionPolicy,
    recalled: Iterable[RecallEntry] = (),
    *,
    instructions: str = "",
    tool_tokens: int = 0,
    tokenizer: Tokenizer = estimate_tokens,
    projected: Sequence[Item] | None = None,
    budgets: BudgetPlan | None = None,
    system_tokens: int | None = None,
) -> TurnPlan:
    """Decide what a model call sends.

    Parameters
    ----------
    log : ItemLog or sequence of Item
        The whole conversation.
    layers : iterable of MemoryLayer
        Whose budgets share the total.
    policy : ProjectionPolicy
        How much may be sent, and what goes first when it is too much.
    recalled : iterable of RecallEntry
        What the layers offer, in slot order.
    instructions : str
        System text.
    tool_tokens : int
        Tokens the tools' descriptions take up; they come off what is left for items.
    tokenizer : callable
        From text to tokens.
    projected : sequence of Item, optional
        What layers made of the history, instead of the log itself.
    budgets : BudgetPlan, optional
        An allocation made before with the same numbers.
    system_tokens : int, optional
        Tokens of the instructions, where they were counted before.

    Returns
    -------
    TurnPlan
        The request's items, tokens by origin, and the fate of every item that was left out.

    References
    ----------
    .. [1] Runtime specification, sections 7.2 (budgets), 7.3 (view assembly), 7.5 (layer usage).

    Examples
    --------
    >>> from noetic_nb.items import input_message
    >>> log = ItemLog([input_message("hello", item_id="id-1")])
    >>> plan = plan_turn(log, [], ProjectionPolicy(token_budget=100, response_reserve=20), instructions="Be brief.")
    >>> plan.system, plan.history, plan.total_tokens, plan.free_tokens
    (3, 29, 32, 48.0)
    """
    if system_tokens is None:
        system_tokens = tokenizer(instructions) if instructions else 0
    system = system_tokens
    if budgets is None:
        budgets = allocate_budgets(
            layers,
            total_budget=policy.token_budget,
            system_prompt_tokens=system,
            response_reserve=policy.response_reserve,
        )
    view: Sequence[Item] = log.items if isinstance(log, ItemLog) else log
    window = policy.window_size if policy.overflow == "sliding_window" else None
    if (
        projected is None
        and window is None
        and not recalled
        and isinstance(view, ItemView)
        and view.tokenizer is tokenizer
        and view.is_whole_within(policy.view_budget(system + tool_tokens))
    ):
        size = len(view)
        shares = budgets.allocations
        unused = tuple([LayerTokens(s.layer_id, s.allocated, 0, s.allocated) for s in shares]) if shares else ()
        return TurnPlan(view, policy, budgets, unused, (), system, tool_tokens, 0, view.tokens, size, (0, size), ())
    source = view if projected is None else _with_question(projected, view)
    head, history = _split_system(source)
    head_tokens = sum([item_tokens(item, tokenizer) for item in head])
    left = policy.view_budget(system + tool_tokens) - head_tokens
    offers = _Offers(budgets, tokenizer)
    # The latest user message is sent whatever happens, so the layers share what it leaves.
    must = must_send(history, tokenizer)
    left = must + offers.take(recalled, left - must)
    tail = project_tail(history, left, window=window, tokenizer=tokenizer)
    front = (*head, *[item for _, item in offers.items]) if head or offers.items else ()
    chosen = _sent(history, tail)
    sent: Sequence[Item] = SentItems(front, chosen) if front else chosen
    if history is view:
        span, fates, floor = (tail.start, tail.stop), (*offers.fates, *tail.fates), tail.floor
    else:
        span, floor = (0, len(view)), 0
        fates = (*offers.fates, *_hidden(view, sent, tokenizer))
    return TurnPlan(
        sent,
        policy,
        budgets,
        offers.usage(),
        tuple(offers.items),
        system,
        tool_tokens,
        offers.framing,
        tail.tokens + head_tokens,
        len(sent) - len(offers.items),
        span,
        fates,
        floor,
    )


def _with_question(projected: Sequence[Item], view: Sequence[Item]) -> Sequence[Item]:
    """Return what layers chose of the history, led by the latest user message where they left none."""
    if any(item.get("role") == "user" and item["type"] == "message" for item in projected):
        return projected
    asked = latest_user(view)
    return projected if asked is None else (view[asked], *projected)


def _split_system(items: Sequence[Item]) -> tuple[Sequence[Item], Sequence[Item]]:
    """Return system messages and the rest; the same object as the rest where there are none."""
    if isinstance(items, ItemView) and not items.has_system:
        return (), items
    system = [item for item in items if item.get("role") == "system"]
    return (system, [item for item in items if item.get("role") != "system"]) if system else ((), items)


def _sent(history: Sequence[Item], tail: ProjectedHistory) -> Sequence[Item]:
    if not tail.dropped and tail.forced is None:
        return history[tail.start :]
    return [history[position] for position in tail.positions()]


def _hidden(view: Sequence[Item], sent: Sequence[Item], tokenizer: Tokenizer) -> list[ItemFate]:
    """Return a fate for every logged item that a layer, or the budget after it, kept from being sent."""
    kept = {id(item) for item in sent}
    return [
        ItemFate("history", position, item_tokens(item, tokenizer), "hidden")
        for position, item in enumerate(view)
        if id(item) not in kept
    ]


class _Offers:
    """What of the layers' offers is taken, and how much each of them used."""

    def __init__(self, budgets: BudgetPlan, tokenizer: Tokenizer) -> None:
        self.items: list[tuple[str, Item]] = []
        self.fates: list[ItemFate] = []
        self.framing = 0
        self._budgets = budgets
        self._tokenizer = tokenizer
        self._used: dict[str, int] = {}
        self._count: dict[str, int] = {}

    def take(self, recalled: Iterable[RecallEntry], left: float) -> float:
        """Take what fits, item by item; a smaller one behind a larger one may still fit."""
        for entry in recalled:
            origin = f"layer:{entry.layer_id}"
            for position, item in enumerate(entry.items):
                whole = item_tokens(item, self._tokenizer)
                said = content_tokens(item, self._tokenizer)
                if whole > left:
                    self.fates.append(ItemFate(origin, position, said, "over_budget"))
                    continue
                left -= whole
                self.items.append((entry.layer_id, item))
                self.framing += whole - said
                self._used[entry.layer_id] = self._used.get(entry.layer_id, 0) + said
                self._count[entry.layer_id] = self._count.get(entry.layer_id, 0) + 1
            for position, item in enumerate(entry.dropped, start=len(entry.items)):
                tokens = content_tokens(item, self._tokenizer)
                self.fates.append(ItemFate(origin, position, tokens, "over_allocation"))
        return left

    def usage(self) -> tuple[LayerTokens, ...]:
        """Return what every layer was given, used and yielded."""
        allocated = {share.layer_id: share.allocated for share in self._budgets.allocations}
        rows: list[LayerTokens] = []
        for layer_id in (*allocated, *(used for used in self._used if used not in allocated)):
            given, used = allocated.get(layer_id, 0.0), self._used.get(layer_id, 0)
            rows.append(LayerTokens(layer_id, given, used, max(0.0, given - used), self._count.get(layer_id, 0)))
        return tuple(rows)
