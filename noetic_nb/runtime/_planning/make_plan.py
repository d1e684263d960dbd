"""Plan a model call: the sent items in order, and the items left out.

Pure functions: the harness executes a plan, `preview` shows one, and what-if questions call it with other numbers. This
is the only implementation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from msgspec import structs

from noetic_nb.events import ItemFate, LayerTokens, UnsentOffer
from noetic_nb.items import Item, ItemLog, input_message, item_tokens
from noetic_nb.items._build import content_tokens
from noetic_nb.items._log import ItemView
from noetic_nb.memory import BudgetPlan, MemoryLayer, ProjectionPolicy, allocate_budgets
from noetic_nb.memory._budget import ProjectedHistory, latest_user, must_send, project_tail
from noetic_nb.memory._hooks.recall import RecallEntry
from noetic_nb.runtime._planning.turn_plan import SentItems, TurnPlan
from noetic_nb.tokens import Tokenizer, estimate_tokens
from noetic_nb.tokens import system_tokens as tokens_of_system

# Up to this number, adjacent items left out by layers are listed one by one, as views show them; beyond it, each turn
# of a long conversation would record most of it again.
MAX_FATES: Final = 100

FateReason: TypeAlias = Literal["over_budget", "outside_window", "unresolved_call", "forced", "hidden"]
UnsentReason: TypeAlias = Literal["over_budget", "over_allocation", "trimmed"]


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
    """Select the items that a model call sends.

    See docs/behaviour/runtime.md, "Planning a model call".

    Parameters
    ----------
    log : ItemLog or sequence of Item
        The whole conversation.
    layers : iterable of MemoryLayer
        Layers whose budgets share the total.
    policy : ProjectionPolicy
        How much may be sent, which items are dropped first, and the order of the request.
    recalled : iterable of RecallEntry
        Offers of the layers, in slot order.
    instructions : str
        System text.
    tool_tokens : int
        Tokens of the tools' descriptions, which reduce the room for items.
    tokenizer : callable
        Function from a text to its number of tokens.
    projected : sequence of Item, optional
        The history as layers changed it, used in place of the log.
    budgets : BudgetPlan, optional
        An allocation computed earlier from the same numbers.
    system_tokens : int, optional
        Tokens of the instructions, if already counted.

    Returns
    -------
    TurnPlan
        The request's items, tokens by origin, and the fate of every item left out.

    Examples
    --------
    >>> from noetic_nb.items import input_message
    >>> log = ItemLog([input_message("hello", item_id="id-1")])
    >>> plan = plan_turn(log, [], ProjectionPolicy(token_budget=100, response_reserve=20), instructions="Be brief.")
    >>> plan.system, plan.history, plan.total_tokens
    (3, 29, 32)
    """
    if system_tokens is None:
        system_tokens = tokens_of_system(tokenizer, instructions)
    system = system_tokens
    layers = tuple(layers)
    if budgets is None:
        budgets = allocate_budgets(
            layers,
            total_budget=policy.token_budget,
            system_prompt_tokens=system,
            response_reserve=policy.response_reserve,
        )
    view: Sequence[Item] = log.items if isinstance(log, ItemLog) else log
    window = policy.window_size if policy.overflow == "sliding_window" else None
    head, history = split_history(view, projected)
    head_tokens = sum([item_tokens(item, tokenizer) for item in head])
    left = policy.view_budget(system + tool_tokens) - head_tokens
    offers = _Offers(budgets, tokenizer)
    if recalled:  # the latest user message is always sent, so the layers share the rest
        must = must_send(history, tokenizer)
        left = must + offers.take(recalled, left - must)
    tail = project_tail(history, left, window=window, tokenizer=tokenizer)
    chosen = _sent(history, tail)
    sent = chosen
    if offers.items and policy.order == "cache":
        sent = arranged(head, offers.items, chosen, [layer.id for layer in layers if layer.placement == "suffix"])
    elif head or offers.items:
        sent = SentItems((*head, *[item for _, item in offers.items]), chosen)
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
        tokenizer,
    )


def arranged(
    head: Sequence[Item], offered: Iterable[tuple[str, Item]], history: Sequence[Item], last: Iterable[str]
) -> Sequence[Item]:
    """Return items in an order that keeps requests' beginnings alike: offers of `last` come before the latest question."""
    late = frozenset(last)
    front = (*head, *[item for layer_id, item in offered if layer_id not in late])
    behind = tuple([item for layer_id, item in offered if layer_id in late])
    if not behind:
        return SentItems(front, history)
    user = latest_user(history)
    place = len(history) if user is None else user
    return SentItems(front, history[:place], behind, history[place:])


def split_history(view: Sequence[Item], projected: Sequence[Item] | None) -> tuple[Sequence[Item], Sequence[Item]]:
    """Return the system messages, which are always sent, and the history, whose newest part is sent."""
    items = view if projected is None else _with_question(projected, view)
    if isinstance(items, ItemView) and not items.has_system:
        return (), items
    system = [item for item in items if item.get("role") == "system"]
    return (system, [item for item in items if item.get("role") != "system"]) if system else ((), items)


def _with_question(projected: Sequence[Item], view: Sequence[Item]) -> Sequence[Item]:
    """Return the history that layers selected, preceded by the latest user message if they dropped all of those."""
    if any(item.get("role") == "user" and item["type"] == "message" for item in projected):
        return projected
    question = latest_user(view)
    return projected if question is None else (view[question], *projected)


def _sent(history: Sequence[Item], tail: ProjectedHistory) -> Sequence[Item]:
    if not tail.dropped and tail.forced is None:
        return history[tail.start :] if tail.start else history
    return [history[position] for position in tail.positions()]


def _among_system(tail: ProjectedHistory, view: Sequence[Item]) -> tuple[ProjectedHistory, tuple[int, ...]]:
    """Return a tail of a history with positions in the log, and the preceding system messages, which are sent as well."""
    places = [at for at, item in enumerate(view) if item.get("role") != "system"]
    # If all of the history is sent, the part before its first item belongs to it, too.
    start = (places[tail.start] if tail.start < len(places) else len(view)) if tail.start else 0
    floor = places[tail.floor] if tail.floor else 0
    fates = tuple([structs.replace(fate, position=places[fate.position]) for fate in tail.fates])
    kept = tuple([at for at in range(start) if view[at].get("role") == "system"])
    return tail._replace(start=start, stop=len(view), fates=fates, floor=min(floor, start)), kept


def _reasons_of(history: Sequence[Item], tail: ProjectedHistory) -> dict[int, FateReason]:
    """Return why items that layers selected are not sent, by identity; includes a forced latest user message."""
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
    """Return the log items that a layer, or the budget after it, left out: fates, and long stretches as a whole."""
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
    """The accepted offers of layers, and the usage of each layer."""

    def __init__(self, budgets: BudgetPlan, tokenizer: Tokenizer) -> None:
        self.items: list[tuple[str, Item]] = []
        self.fates: list[ItemFate] = []
        self.unsent: list[UnsentOffer] = []
        self.texts: list[str] = []
        self.framing = 0
        self._budgets = budgets
        self.tokenizer = tokenizer
        self._used: dict[str, tuple[int, int]] = {}

    def take(self, recalled: Iterable[RecallEntry], left: float) -> float:
        """Accept the items that fit, one by one; a smaller item behind a larger one may still fit."""
        for entry in recalled:
            layer_id = entry.layer_id
            if entry.text is not None:
                self.texts.append(layer_id)
            origin = f"layer:{layer_id}"
            # Indices in the layer's original offer; usually nothing was dropped.
            places: Sequence[int] = range(len(entry.items))
            if entry.dropped:
                gone = frozenset(entry.places)
                places = [at for at in range(len(entry.items) + len(entry.dropped)) if at not in gone]
            for position, item in enumerate(entry.items):
                whole = item_tokens(item, self.tokenizer)
                content = content_tokens(item, self.tokenizer)
                if whole > left:
                    self.fates.append(ItemFate(origin, position, content, "over_budget"))
                    self._leave(layer_id, places[position], "over_budget", item)
                    continue
                left -= whole
                self.items.append((layer_id, item))
                self.framing += whole - content
                used, count = self._used.get(layer_id, (0, 0))
                self._used[layer_id] = used + content, count + 1
            for position, item in enumerate(entry.dropped, start=len(entry.items)):
                tokens = content_tokens(item, self.tokenizer)
                self.fates.append(ItemFate(origin, position, tokens, "over_allocation"))
                self._leave(layer_id, entry.places[position - len(entry.items)], "over_allocation", item)
            if entry.text is not None and entry.items:
                self._note_cut(entry, entry.text)
        return left

    def _leave(self, layer_id: str, place: int, reason: UnsentReason, item: Item) -> None:
        self.unsent.append(UnsentOffer(layer_id, place, len(self.items), reason, item))

    def _note_cut(self, entry: RecallEntry, text: str) -> None:
        """Note the part of a layer's text that its budget had no room for."""
        item = entry.items[0]
        kept = item["content"][0]["text"]
        if kept is text or len(kept) == len(text):
            return
        rest = input_message(text[len(kept) :], "developer", item_id=item["id"])
        self.fates.append(ItemFate(f"layer:{entry.layer_id}", 0, content_tokens(rest, self.tokenizer), "trimmed"))
        self._leave(entry.layer_id, 0, "trimmed", rest)

    def usage(self) -> tuple[LayerTokens, ...]:
        allocated = dict(self._budgets.allocations)
        rows: list[LayerTokens] = []
        for layer_id in dict.fromkeys([*allocated, *self._used]):
            given, (used, count) = allocated.get(layer_id, 0.0), self._used.get(layer_id, (0, 0))
            rows.append(LayerTokens(layer_id, given, used, max(0.0, given - used), count))
        return tuple(rows)
