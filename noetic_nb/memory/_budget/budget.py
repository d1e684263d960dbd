"""Split a token budget between memory layers and history.

Minimums come first; the rest is shared by headroom (``max - min``). Pure arithmetic: the text that will fill the space is
never read, and nothing is rounded except when not even the minimums fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from noetic_nb._core.cards import with_card
from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory._layer import MemoryLayer

# Most of what is left goes to the layers, the rest to history; layers with a maximum may take half of that at most where
# others have none, so that one wide range cannot starve them.
LAYER_SHARE: Final = 0.6
FINITE_SHARE_OF_POOL: Final = 0.5


class LayerAllocation(NamedTuple):
    """The tokens that one layer may spend on recall."""

    layer_id: str
    allocated: float


@with_card(shown="in cells")
class BudgetPlan(NamedTuple):
    """How a budget was split; allocations in the order of the layers."""

    allocations: tuple[LayerAllocation, ...]
    history_budget: float

    def by_layer(self) -> dict[str, float]:
        """Return the allocations by layer id."""
        return {share.layer_id: share.allocated for share in self.allocations}


def _refused(field: str, given: object) -> NoeticConfigError:
    return NoeticConfigError(
        "INVALID_BUDGET_INPUT",
        f"{field} is not a usable number of tokens.",
        given=given,
        hint="Use finite numbers; only the total may be infinite.",
        field=field,
    )


def _check(total: float, system: float, reserve: float) -> None:
    for field, value in (
        ("total_budget", total),
        ("system_prompt_tokens", system),
        ("response_reserve", reserve),
    ):
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise _refused(field, value)


def allocate_budgets(
    layers: Iterable[MemoryLayer],
    *,
    total_budget: float,
    system_prompt_tokens: float = 0,
    response_reserve: float = 0,
) -> BudgetPlan:
    """Split a total between the layers and the history.

    Parameters
    ----------
    layers : iterable of MemoryLayer, length n
        Only their ids and budgets are read.
    total_budget : float
        Tokens of the whole context; may be infinite.
    system_prompt_tokens, response_reserve : float
        Tokens that are spent already, and that are kept for the answer.

    Returns
    -------
    BudgetPlan
        `n` allocations in the order given, and what is left for history. Fractions of tokens are kept.

    Raises
    ------
    NoeticConfigError
        ``INVALID_BUDGET_INPUT`` for NaN, or where infinities cancel; its ``field`` says which number.

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
    return _split(tuple(layers), total_budget, system_prompt_tokens, response_reserve)


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
    # Only here are numbers rounded, and down: together the layers must not exceed what there is.
    if rest < 0:
        return _plan(ids, [math.floor(low * available / floor_sum) for low in minimums], 0.0)
    pool = LAYER_SHARE * rest
    headrooms = [high - low for low, high in ranges]  # never negative: a range is checked when a layer is made
    shares = _shares(headrooms, pool)
    granted = [low + min(share, room) for low, share, room in zip(minimums, shares, headrooms, strict=True)]
    return _plan(ids, granted, (1 - LAYER_SHARE) * rest)


def _shares(headrooms: Sequence[float], pool: float) -> list[float]:
    """Return each layer's share of the pool by headroom; a share clipped later goes to no layer."""
    finite = sum(room for room in headrooms if room != math.inf)
    unlimited = sum(1 for room in headrooms if room == math.inf)
    if pool == math.inf:
        if finite and 0.0 in headrooms:  # a share of nothing of everything has no value
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
