"""Token budgets of layers, and the selection of items to send.

Minimums come first; the rest is shared by headroom (``max - min``). Pure arithmetic: it never reads the texts, and only
rounds if not even the minimums fit. System items are always sent, then layers' items, then as much of the newest
history as fits. Every omitted item has a reason. A call and its output are never separated, and the latest user message
always stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from noetic_nb._core.arguments import explained, is_number
from noetic_nb._core.cards import with_card
from noetic_nb._core.record_type import RecordType
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ItemFate
from noetic_nb.items import Item, item_tokens, parse_item
from noetic_nb.items._build import unresolved_positions
from noetic_nb.items._log import ItemView
from noetic_nb.memory._layer import MemoryLayer
from noetic_nb.tokens import Tokenizer, estimate_tokens

# Most of the remainder goes to the layers, the rest to history. If some layers have no maximum, those with one get at
# most half of that, so that one wide range cannot starve the others.
LAYER_SHARE: Final = 0.6
FINITE_SHARE_OF_POOL: Final = 0.5


class LayerAllocation(NamedTuple):
    """The tokens that a layer may use for recall."""

    layer_id: str
    allocated: float


@with_card(shown="in cells")
class BudgetPlan(NamedTuple):
    """The split of a budget; allocations are in the order of the layers."""

    allocations: tuple[LayerAllocation, ...]
    history_budget: float

    def by_layer(self) -> dict[str, float]:
        """Return the allocations by layer id."""
        return {share.layer_id: share.allocated for share in self.allocations}


def _refused(field: str, given: object) -> NoeticConfigError:
    what = f"{field} is not a valid number of tokens."
    hint = "Use finite numbers; only the total may be infinite."
    return NoeticConfigError("INVALID_BUDGET_INPUT", what, given=given, hint=hint, field=field)


def _check(total: float, system: float, reserve: float) -> None:
    for field, value in (("total_budget", total), ("system_prompt_tokens", system), ("response_reserve", reserve)):
        if not is_number(value) and not (isinstance(value, float) and math.isinf(value)):
            raise _refused(field, value)


def allocate_budgets(
    layers: Iterable[MemoryLayer], *, total_budget: float, system_prompt_tokens: float = 0, response_reserve: float = 0
) -> BudgetPlan:
    """Split a total between the layers and the history.

    Parameters
    ----------
    layers : iterable of MemoryLayer, length n
        Only their ids and budgets are read.
    total_budget : float
        Tokens of the whole context; may be infinite.
    system_prompt_tokens, response_reserve : float
        Tokens already used, and tokens kept for the answer.

    Returns
    -------
    BudgetPlan
        `n` allocations in the given order, and the remainder for history. Fractions of tokens are kept.

    Raises
    ------
    NoeticConfigError
        ``INVALID_BUDGET_INPUT`` for NaN, or if infinities cancel; its ``field`` names the number. ``INVALID_LAYER``.

    References
    ----------
    .. [1] docs/behaviour/memory.md, "Budgets".

    Examples
    --------
    >>> from noetic_nb.memory import MemoryLayer
    >>> notes = MemoryLayer(id="notes", slot=100, scope="thread", budget={"min": 200, "max": 1500})
    >>> facts = MemoryLayer(id="facts", slot=200, scope="thread", budget="auto")
    >>> plan = allocate_budgets([notes, facts], total_budget=10_000, response_reserve=1_000)
    >>> plan.by_layer(), plan.history_budget
    ({'notes': 1500.0, 'facts': 3980.0}, 3520.0)
    """
    _check(total_budget, system_prompt_tokens, response_reserve)
    given: Any = tuple(layers) if isinstance(layers, Iterable) else (layers,)
    for layer in given:
        if not isinstance(layer, MemoryLayer):
            hint = "Pass a list of layers, such as [working_memory()]."
            raise NoeticConfigError("INVALID_LAYER", "A budget is split between layers.", given=layer, hint=hint)
    return _split(given, total_budget, system_prompt_tokens, response_reserve)


def _split(layers: Sequence[MemoryLayer], total: float, system: float, reserve: float) -> BudgetPlan:
    available = total - reserve - system
    if math.isnan(available):
        raise _refused("total_budget", (total, system, reserve))
    ids = [layer.id for layer in layers]
    if available <= 0:
        return _plan(ids, [0.0] * len(ids), 0.0)
    ranges = [layer.limits for layer in layers]
    minimums = [low for low, _ in ranges]
    floor_sum = sum(minimums)
    rest = available - floor_sum
    # The only rounding, downwards: together the layers must not exceed the total.
    if rest < 0:
        return _plan(ids, [math.floor(low * available / floor_sum) for low in minimums], 0.0)
    pool = LAYER_SHARE * rest
    headrooms = [high - low for low, high in ranges]  # never negative: ranges are checked when a layer is created
    shares = _shares(headrooms, pool)
    granted = [low + min(share, room) for low, share, room in zip(minimums, shares, headrooms, strict=True)]
    return _plan(ids, granted, (1 - LAYER_SHARE) * rest)


def _shares(headrooms: Sequence[float], pool: float) -> list[float]:
    """Return each layer's share of the pool by headroom; the clipped part of a share goes to no other layer."""
    finite = sum(room for room in headrooms if room != math.inf)
    unlimited = sum(1 for room in headrooms if room == math.inf)
    if pool == math.inf:
        if finite and 0.0 in headrooms:  # zero times infinity would be NaN
            raise _refused("total_budget", pool)
        return [room if room != math.inf else pool for room in headrooms]
    if unlimited == 0:
        return [room / finite * pool if finite else 0.0 for room in headrooms]
    half = FINITE_SHARE_OF_POOL * pool
    shares = [min(room, room / finite * half) if finite and room != math.inf else 0.0 for room in headrooms]
    each = (pool - sum(shares)) / unlimited
    return [each if room == math.inf else share for room, share in zip(headrooms, shares, strict=True)]


def _plan(ids: Sequence[str], amounts: Sequence[float], history: float) -> BudgetPlan:
    return BudgetPlan(tuple(map(LayerAllocation, ids, map(float, amounts))), float(history))


Overflow: TypeAlias = Literal["truncate", "sliding_window", "summarize"]
Order: TypeAlias = Literal["slot", "cache"]


@with_card
class ProjectionPolicy(BaseModel, metaclass=RecordType):
    """The size limit of a request, and the handling of items that do not fit.

    Raises
    ------
    NoeticConfigError
        ``INVALID_PROJECTION``: an unknown key or strategy, a budget that is not a number, a window without a meaning.

    Examples
    --------
    >>> ProjectionPolicy(token_budget=8_000, response_reserve=1_000, overflow="truncate").view_budget(500)
    6500.0
    >>> ProjectionPolicy(overflow="truncate", window_size=5)
    Traceback (most recent call last):
    ...
    noetic_nb.errors.NoeticConfigError: [INVALID_PROJECTION] window_size has no meaning under 'truncate'...
    """

    model_config = ConfigDict(
        defer_build=True,  # schemas are built on first use, not at import
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
    )

    token_budget: Annotated[float, Field(ge=0, allow_inf_nan=True)] = 128_000
    """Tokens of the whole request, including the answer."""
    response_reserve: Annotated[float, Field(ge=0, allow_inf_nan=True)] = 4_000
    """Tokens reserved for the answer."""
    overflow: Overflow = "sliding_window"
    """``truncate`` drops the oldest history; ``sliding_window`` first keeps the last `window_size` items; ``summarize``
    replaces the dropped history by a summary."""
    overflow_model: str | None = None
    """Model that writes summaries; None means the step's own model."""
    window_size: Annotated[int, Field(ge=0)] | None = None
    """Items kept under ``sliding_window`` (0 and None mean all); never summarised under ``summarize``."""

    order: Order = "slot"
    """Position of the layers' items: ``slot`` puts all of them before the history, by slot; ``cache`` puts those with
    ``placement="suffix"`` before the latest user message, so that changing items do not break the cached prefix. The
    same items are sent either way."""

    @field_validator("token_budget", "response_reserve", "window_size", mode="before")
    @classmethod
    def _is_a_number(cls, value: object) -> object:
        if isinstance(value, bool):  # pydantic would accept it as 1 or 0
            raise ValueError(f"expected a number, not {value}")
        return value

    @explained(positional="Write ProjectionPolicy(token_budget=4_000).")
    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as exc:
            first = exc.errors()[0]
            where = ".".join(map(str, first["loc"])) or "policy"
            raise NoeticConfigError(
                "INVALID_PROJECTION",
                f"{where}: {first['msg']}",
                given=first.get("input"),
                hint=f"Fields are {', '.join(ProjectionPolicy.model_fields)}.",
                field=where,
            ) from exc

    def model_post_init(self, context: object) -> None:
        """Check that the fields are consistent."""
        if math.isnan(self.token_budget) or math.isnan(self.response_reserve):
            raise NoeticConfigError("INVALID_PROJECTION", "A token budget is not a number.", given=math.nan)
        if self.window_size is not None and self.overflow == "truncate":
            what = "window_size has no meaning under 'truncate'"
            hint = "Use overflow='sliding_window', or leave window_size out."
            raise NoeticConfigError("INVALID_PROJECTION", what, given=self.window_size, hint=hint, field="window_size")

    def view_budget(self, fixed_tokens: float) -> float:
        """Return the tokens left for items after the fixed parts and the reserve.

        Parameters
        ----------
        fixed_tokens : float
            Tokens of instructions and tools.
        """
        left = self.token_budget - fixed_tokens
        left = (left if left > 0 else 0.0) - self.response_reserve
        return left if left > 0 else 0.0


class ProjectedHistory(NamedTuple):
    """The sent part of a history; items below `floor` are outside the window, those from there to `start` over budget."""

    start: int
    stop: int
    dropped: frozenset[int]
    tokens: int
    fates: tuple[ItemFate, ...]
    forced: int | None = None
    floor: int = 0

    def positions(self) -> list[int]:
        """Return the positions that are sent, in order."""
        kept = [p for p in range(self.start, self.stop) if p not in self.dropped]
        return kept if self.forced is None or self.forced >= self.start else [self.forced, *kept]


def latest_user(history: Sequence[Item]) -> int | None:
    """Return the position of the newest user message in a history, or None."""
    if isinstance(history, ItemView):
        return history.latest_user()
    for position in range(len(history) - 1, -1, -1):
        item = history[position]
        if item.get("role") == "user" and item.get("type") == "message":
            return position
    return None


def project_tail(
    history: Sequence[Item], budget: float, *, window: int | None = None, tokenizer: Tokenizer = estimate_tokens
) -> ProjectedHistory:
    """Choose the newest part of a history, oldest item first, that fits a token budget and a `window` of items.

    A view of an `ItemLog` is searched through its running sums, in O(log n). The result is a tail without incomplete
    call-output pairs. The latest user message is always kept: if it is older than the tail, it replaces the tail's
    oldest items, and it stays even if it alone exceeds the budget (fate ``forced``).
    """
    size = len(history)
    floor = max(0, size - window) if window else 0
    if floor == 0 and isinstance(history, ItemView) and history.tokenizer is tokenizer and history.tokens <= budget:
        lost = history.unresolved()
        if not lost:  # everything is sent unchanged: by far the most common case
            return ProjectedHistory(0, size, frozenset(), history.tokens, ())
    counts = _counts(history, tokenizer)
    start = _tail_start(history, budget, floor, counts, tokenizer)
    user = latest_user(history)
    forced = user if user is not None and user < start else None
    if forced is not None:  # it takes its room from the oldest items of the tail
        start = max(start, _tail_start(history, max(0.0, budget - counts(forced)), floor, counts, tokenizer))
    # Checked within the tail: every provider rejects a call without its output.
    tail = history[start:]
    lost = tail.unresolved() if isinstance(tail, ItemView) else unresolved_positions(tail)
    dropped = frozenset(start + position for position in lost)
    tokens = (
        tail.tokens
        if isinstance(tail, ItemView) and tail.tokenizer is tokenizer
        else sum(counts(position) for position in range(start, size))
    )
    tokens -= sum(counts(position) for position in dropped)
    fates = [ItemFate("history", p, counts(p), "unresolved_call") for p in sorted(dropped)]
    if forced is not None:
        tokens += counts(forced)
        fates.append(ItemFate("history", forced, counts(forced), "forced"))
    return ProjectedHistory(start, size, dropped, tokens, tuple(fates), forced, floor)


def _tail_start(
    history: Sequence[Item], budget: float, floor: int, counts: Callable[[int], int], tokenizer: Tokenizer
) -> int:
    """Return the start of the longest tail that fits and does not begin below `floor`."""
    if isinstance(history, ItemView) and history.tokenizer is tokenizer:
        return max(floor, history.tail_start(budget))
    start, left = len(history), budget
    while start > floor and counts(start - 1) <= left:
        start -= 1
        left -= counts(start)
    return start


def must_send(history: Sequence[Item], tokenizer: Tokenizer = estimate_tokens) -> int:
    """Return the tokens of the latest user message, which layers' items must not use; 0 if there is none."""
    user = latest_user(history)
    return 0 if user is None else _counts(history, tokenizer)(user)


def _counts(history: Sequence[Item], tokenizer: Tokenizer) -> Callable[[int], int]:
    if isinstance(history, ItemView) and history.tokenizer is tokenizer:
        return history.token_count
    return lambda position: item_tokens(history[position], tokenizer)


def _parsed(items: Any) -> list[Item]:
    return [parse_item(item) for item in (items if isinstance(items, Iterable) else (items,))]


def assemble_view(
    system_prompt_items: Sequence[Mapping[str, Any]],
    layer_output_items: Sequence[Mapping[str, Any]],
    history_items: Sequence[Mapping[str, Any]],
    policy: ProjectionPolicy | None = None,
    *,
    tokenizer: Tokenizer = estimate_tokens,
) -> list[Item]:
    """Choose the items to send, in order: system items, layers' items, history.

    Parameters
    ----------
    system_prompt_items : sequence of item
        Always kept, even over budget.
    layer_output_items : sequence of item
        In slot order; an item that does not fit is skipped, and later, smaller ones may still fit.
    history_items : sequence of item
        Oldest first.
    policy : ProjectionPolicy, optional
        None concatenates the three lists unchanged.
    tokenizer : callable, optional
        Function from a text to its number of tokens.

    Returns
    -------
    list of Item
        The kept items. For ``summarize`` they are those of ``truncate``; the harness adds the summary.

    References
    ----------
    .. [1] docs/behaviour/memory.md, "Projection".

    Examples
    --------
    >>> from noetic_nb.items import input_message
    >>> talk = [input_message("x" * 100, item_id=f"m{n}") for n in range(5)]
    >>> policy = ProjectionPolicy(token_budget=200, response_reserve=0, overflow="truncate")
    >>> [item.id for item in assemble_view([], [], talk, policy)]
    ['m2', 'm3', 'm4']
    """
    system, layers = _parsed(system_prompt_items), _parsed(layer_output_items)
    history: Sequence[Item] = history_items if isinstance(history_items, ItemView) else _parsed(history_items)
    if policy is None:
        return [*system, *layers, *history]
    given: Any = policy
    if not isinstance(given, ProjectionPolicy):
        hint = "Use nn.ProjectionPolicy(token_budget=8_000), or None."
        raise NoeticConfigError("INVALID_PROJECTION", "This is no policy.", given=policy, hint=hint)
    left = policy.view_budget(0) - sum(item_tokens(item, tokenizer) for item in system)
    kept = []
    must = must_send(history, tokenizer)
    for item in layers:
        tokens = item_tokens(item, tokenizer)
        # Room for the latest user message comes first, or a model would answer a question that it was not sent.
        if tokens <= left - must:
            kept.append(item)
            left -= tokens
    window = policy.window_size if policy.overflow == "sliding_window" else None
    projected = project_tail(history, left, window=window, tokenizer=tokenizer)
    return [*system, *kept, *(history[position] for position in projected.positions())]
