"""Plan a model call: what is sent, where every token of it came from, and why something was left out.

Pure: the harness executes a plan, `preview` shows one, and what-if questions call it again with other numbers. There is no
second implementation of any of this.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, NamedTuple, TypeAlias, overload

from noetic_nb.cards import Card, Table, with_card
from noetic_nb.events import (
    BudgetsAllocated,
    ItemFate,
    LayerTokens,
    LogStretch,
    UnsentOffer,
    ViewAssembled,
    Where,
)
from noetic_nb.items import Item, ItemLog, input_message, item_tokens
from noetic_nb.items.build import content_tokens
from noetic_nb.items.log import ItemSequence, ItemView
from noetic_nb.memory import BudgetPlan, MemoryLayer, ProjectionPolicy, allocate_budgets
from noetic_nb.memory.projection import ProjectedHistory, latest_user, must_send, project_tail
from noetic_nb.memory.recall import RecallEntry
from noetic_nb.tokens import Tokenizer, estimate_tokens

__all__ = ["SentItems", "TurnPlan", "budgets_allocated", "leaves_out", "plan_turn", "split_history"]

# Neighbours that layers left out are named one by one up to here, as views show them; beyond, a turn of a long
# conversation would write down most of it again.
MAX_FATES: Final = 100

FateReason: TypeAlias = Literal["over_budget", "outside_window", "unresolved_call", "forced", "hidden"]
UnsentReason: TypeAlias = Literal["over_budget", "over_allocation", "trimmed"]


class SentItems(ItemSequence):
    """The items of one request: a few in front, then a stretch of the log. Nothing is copied behind a long history.

    Examples
    --------
    >>> from noetic_nb.items import ItemLog, input_message
    >>> sent = SentItems((input_message("a note", "developer"),), ItemLog([input_message("hi")]).items)
    >>> len(sent), [item.role for item in sent], sent[-1].role
    (2, ['developer', 'user'], 'user')
    """

    __slots__ = ("_head", "_tail")

    def __init__(self, head: tuple[Item, ...], tail: Sequence[Item]) -> None:
        self._head = head
        self._tail = tail

    def __len__(self) -> int:
        return len(self._head) + len(self._tail)

    def __iter__(self) -> Iterator[Item]:
        yield from self._head
        yield from self._tail

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        if isinstance(index, slice):
            return tuple(self)[index]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"Item {index} of {len(self)}.")
        front = len(self._head)
        return self._head[position] if position < front else self._tail[position - front]

    @property
    def tokens(self) -> int:
        """Tokens of all items by the default count; from running sums for what is a view of a log."""
        tail = self._tail
        behind = tail.tokens if isinstance(tail, ItemView) else sum(map(item_tokens, tail))
        return behind + sum(map(item_tokens, self._head))


@with_card
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
    hidden: tuple[tuple[int, int, int], ...] = ()
    unsent: tuple[UnsentOffer, ...] = ()
    texts: tuple[str, ...] = ()
    """Layers whose offer is one text, which may be cut."""
    kept: tuple[int, ...] = ()
    """Places before the window that are sent all the same: system messages."""

    def _card(self) -> Card:
        facts = [
            ("tokens", self.total_tokens),
            ("budget", self.policy.token_budget),
            ("reserve", self.policy.response_reserve),
            ("items", len(self.items)),
            ("history", f"{self.history:,} tokens of {self.history_items:,} items"),
            ("left out", len(self.left_out())),
        ]
        system = [("system", self.system, None), ("tools", self.tools, None), ("framing", self.framing, None)]
        layers = [(f"layer {each.layer_id}", each.used, _whole(each.allocated)) for each in self.layers]
        rows = [*system, *layers, ("history", self.history, _whole(self.budgets.history_budget))]
        return Card("TurnPlan", facts=facts, table=Table(("what is sent", "tokens", "at most"), rows))

    @property
    def total_tokens(self) -> int:
        """Tokens of everything that is sent."""
        return self.system + self.tools + self.framing + self.history + sum(layer.used for layer in self.layers)

    def sends(self, position: int) -> bool:
        """Tell whether a log item is sent as part of the window, and not in spite of the budget."""
        if any(fate.position == position for fate in self.fates if fate.origin == "history"):
            return False
        if any(start <= position < stop for start, stop, _ in self.hidden):
            return False
        return position >= self.window[0] or position in self.kept

    def left_out(self, first: int = 0) -> dict[int, str]:
        """Return why each log item that is not sent is not: its position and a reason of `ItemFate`.

        Of what lies before the window only places from `first` on are named.
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
    ) -> ViewAssembled:
        """Return the event of a run that records this plan when it is sent.

        `projection` is what layers made of the history, `appended` what is sent behind it without being logged.
        """
        return ViewAssembled(
            where,
            now_ms,
            step_number,
            self.window,
            self.fates,
            self.layers,
            self.layer_items,
            self.policy.token_budget,
            self.policy.response_reserve,
            self.system,
            self.tools,
            self.framing,
            self.history,
            self.budgets.history_budget,
            self.history_items,
            self.floor,
            self.hidden,
            self.unsent,
            projection,
            appended,
            self.texts,
            self.kept,
        )


def _whole(tokens: float) -> float:
    return round(tokens) if math.isfinite(tokens) else tokens


def leaves_out(plan: TurnPlan) -> bool:
    """Tell whether a plan leaves out history that its policy would have summarised; layers that project it decide themselves."""
    return plan.policy.overflow == "summarize" and plan.window[0] > 0


def budgets_allocated(
    where: Where, now_ms: float, policy: ProjectionPolicy, system_tokens: int, budgets: BudgetPlan
) -> BudgetsAllocated:
    """Return the event of a run that records how a budget was split."""
    return BudgetsAllocated(
        where,
        now_ms,
        policy.token_budget,
        system_tokens,
        policy.response_reserve,
        tuple([(share.layer_id, share.allocated) for share in budgets.allocations]),
        budgets.history_budget,
    )


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
    .. [1] docs/behaviour/runtime.md, "Planning a model call".

    Examples
    --------
    >>> from noetic_nb.items import input_message
    >>> log = ItemLog([input_message("hello", item_id="id-1")])
    >>> plan = plan_turn(log, [], ProjectionPolicy(token_budget=100, response_reserve=20), instructions="Be brief.")
    >>> plan.system, plan.history, plan.total_tokens
    (3, 29, 32)
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
    # The usual case, which must not take longer with a longer history: the log's running sums say that all of it fits.
    if (
        projected is None
        and window is None
        and not recalled
        and isinstance(view, ItemView)
        and view.tokenizer is tokenizer
        and view.is_whole_within(policy.view_budget(system + tool_tokens))
    ):
        return _whole(view, policy, budgets, system, tool_tokens)
    head, history = split_history(view, projected)
    head_tokens = sum([item_tokens(item, tokenizer) for item in head])
    left = policy.view_budget(system + tool_tokens) - head_tokens
    offers = _Offers(budgets, tokenizer)
    # The latest user message is always sent, so the layers share what it leaves.
    must = must_send(history, tokenizer)
    left = must + offers.take(recalled, left - must)
    tail = project_tail(history, left, window=window, tokenizer=tokenizer)
    front = (*head, *[item for _, item in offers.items]) if head or offers.items else ()
    chosen = _sent(history, tail)
    sent: Sequence[Item] = SentItems(front, chosen) if front else chosen
    hidden: tuple[tuple[int, int, int], ...] = ()
    kept: tuple[int, ...] = ()
    if history is view:
        span, fates, floor = (tail.start, tail.stop), (*offers.fates, *tail.fates), tail.floor
    elif projected is None:
        tail, kept = _among_system(tail, view)
        span, fates, floor = (tail.start, tail.stop), (*offers.fates, *tail.fates), tail.floor
    else:
        span, floor = (0, len(view)), 0
        left_out, hidden = _hidden(view, sent, tokenizer, _reasons_of(history, tail))
        fates = (*offers.fates, *left_out)
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
        hidden,
        tuple(offers.unsent),
        tuple(offers.texts),
        kept,
    )


def _whole(view: ItemView, policy: ProjectionPolicy, budgets: BudgetPlan, system: int, tool_tokens: int) -> TurnPlan:
    """Return the plan that sends a whole log and nothing else."""
    size, shares = len(view), budgets.allocations
    unused = tuple([LayerTokens(s.layer_id, s.allocated, 0, s.allocated) for s in shares]) if shares else ()
    return TurnPlan(view, policy, budgets, unused, (), system, tool_tokens, 0, view.tokens, size, (0, size), ())


def split_history(view: Sequence[Item], projected: Sequence[Item] | None) -> tuple[Sequence[Item], Sequence[Item]]:
    """Return the system messages, which are always sent, and the history of which the newest part is."""
    return _split_system(view if projected is None else _with_question(projected, view))


def _with_question(projected: Sequence[Item], view: Sequence[Item]) -> Sequence[Item]:
    """Return what layers chose of the history, led by the latest user message where they left none."""
    if any(item.get("role") == "user" and item["type"] == "message" for item in projected):
        return projected
    question = latest_user(view)
    return projected if question is None else (view[question], *projected)


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


def _among_system(tail: ProjectedHistory, view: Sequence[Item]) -> tuple[ProjectedHistory, tuple[int, ...]]:
    """Return a tail of a log's history by its places in the log, and the system messages before it, which are sent as well."""
    places = [at for at, item in enumerate(view) if item.get("role") != "system"]
    # All of the history: what is before its first item belongs to it, too.
    start = (places[tail.start] if tail.start < len(places) else len(view)) if tail.start else 0
    floor = places[tail.floor] if tail.floor else 0
    fates = tuple([replace(fate, position=places[fate.position]) for fate in tail.fates])
    kept = tuple([at for at in range(start) if view[at].get("role") == "system"])
    return tail._replace(start=start, stop=len(view), fates=fates, floor=min(floor, start)), kept


def _reasons_of(history: Sequence[Item], tail: ProjectedHistory) -> dict[int, FateReason]:
    """Return why items that layers did choose are not sent, by their identity; the latest user message is named, too."""
    reasons: dict[int, FateReason] = {}
    for at in (*range(tail.start), *sorted(tail.dropped)):
        outside: FateReason = "outside_window" if at < tail.floor else "over_budget"
        reasons[id(history[at])] = "unresolved_call" if at >= tail.start else outside
    if tail.forced is not None:
        reasons[id(history[tail.forced])] = "forced"
    return reasons


def _hidden(
    view: Sequence[Item], sent: Sequence[Item], tokenizer: Tokenizer, reasons: Mapping[int, FateReason]
) -> tuple[list[ItemFate], tuple[tuple[int, int, int], ...]]:
    """Return what of the log a layer, or the budget after it, kept from being sent: fates, and long stretches as a whole.

    What is sent is looked at and not what is left out, so that a window costs what is in it.
    """
    if isinstance(view, ItemView):
        places = view.places_of(sent)
    else:
        ids = {id(item) for item in sent}
        places = [at for at, item in enumerate(view) if id(item) in ids]
    fates: list[ItemFate] = []
    stretches: list[tuple[int, int, int]] = []
    start = 0
    for kept in (*places, len(view)):
        left_out = view[start:kept]
        if len(left_out) <= MAX_FATES:
            for at, item in enumerate(left_out, start):
                fates.append(ItemFate("history", at, item_tokens(item, tokenizer), reasons.get(id(item), "hidden")))
        elif isinstance(left_out, ItemView) and left_out.tokenizer is tokenizer:
            stretches.append((start, kept, left_out.tokens))
        else:
            stretches.append((start, kept, sum([item_tokens(item, tokenizer) for item in left_out])))
        if kept < len(view) and reasons.get(id(view[kept])) == "forced":
            fates.append(ItemFate("history", kept, item_tokens(view[kept], tokenizer), "forced"))
        start = kept + 1
    return fates, tuple(stretches)


class _Offers:
    """What of the layers' offers is taken, and how much each of them used."""

    def __init__(self, budgets: BudgetPlan, tokenizer: Tokenizer) -> None:
        self.items: list[tuple[str, Item]] = []
        self.fates: list[ItemFate] = []
        self.unsent: list[UnsentOffer] = []
        self.texts: list[str] = []
        self.framing = 0
        self._budgets = budgets
        self._tokenizer = tokenizer
        self._used: dict[str, int] = {}
        self._count: dict[str, int] = {}

    def take(self, recalled: Iterable[RecallEntry], left: float) -> float:
        """Take what fits, item by item; a smaller one behind a larger one may still fit."""
        for entry in recalled:
            layer_id = entry.layer_id
            origin = f"layer:{layer_id}"
            if entry.text is not None:
                self.texts.append(layer_id)
            # Where each stood among all that the layer returned; nearly always all of them are here.
            places: Sequence[int] = range(len(entry.items))
            if entry.dropped:
                dropped = frozenset(entry.places)
                places = [at for at in range(len(entry.items) + len(entry.dropped)) if at not in dropped]
            for position, item in enumerate(entry.items):
                whole = item_tokens(item, self._tokenizer)
                content = content_tokens(item, self._tokenizer)
                if whole > left:
                    self.fates.append(ItemFate(origin, position, content, "over_budget"))
                    self._leave(layer_id, places[position], "over_budget", item)
                    continue
                left -= whole
                self.items.append((layer_id, item))
                self.framing += whole - content
                self._used[layer_id] = self._used.get(layer_id, 0) + content
                self._count[layer_id] = self._count.get(layer_id, 0) + 1
            for position, item in enumerate(entry.dropped, start=len(entry.items)):
                tokens = content_tokens(item, self._tokenizer)
                self.fates.append(ItemFate(origin, position, tokens, "over_allocation"))
                self._leave(layer_id, entry.places[position - len(entry.items)], "over_allocation", item)
            if entry.text is not None and entry.items:
                self._note_cut(entry, entry.text)
        return left

    def _leave(self, layer_id: str, place: int, reason: UnsentReason, item: Item) -> None:
        self.unsent.append(UnsentOffer(layer_id, place, len(self.items), reason, item))

    def _note_cut(self, entry: RecallEntry, text: str) -> None:
        """Note the rest of a layer's text, which its budget had no room for."""
        item = entry.items[0]
        kept = item["content"][0]["text"]
        if kept is text or len(kept) == len(text):
            return
        rest = input_message(text[len(kept) :], "developer", item_id=item["id"])
        self.fates.append(ItemFate(f"layer:{entry.layer_id}", 0, content_tokens(rest, self._tokenizer), "trimmed"))
        self._leave(entry.layer_id, 0, "trimmed", rest)

    def usage(self) -> tuple[LayerTokens, ...]:
        """Return what every layer was given, used and yielded."""
        allocated = {share.layer_id: share.allocated for share in self._budgets.allocations}
        rows: list[LayerTokens] = []
        for layer_id in (*allocated, *(used for used in self._used if used not in allocated)):
            given, used = allocated.get(layer_id, 0.0), self._used.get(layer_id, 0)
            rows.append(LayerTokens(layer_id, given, used, max(0.0, given - used), self._count.get(layer_id, 0)))
        return tuple(rows)
