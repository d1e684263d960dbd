"""The split of a budget: minimums first, never more than the total, deterministic."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory import MemoryLayer, allocate_budgets
from noetic_nb.memory._layer import budget_range

TOKENS = st.floats(0, 100_000, allow_nan=False) | st.integers(0, 100_000)
RANGES = st.tuples(TOKENS, TOKENS).map(lambda pair: {"min": min(pair), "max": max(pair)})
BUDGETS = st.lists(st.none() | st.just("auto") | TOKENS | RANGES, max_size=6)


def layers(budgets: list[Any]) -> list[MemoryLayer]:
    return [MemoryLayer(id=f"l{n}", slot=n, scope="thread", budget=budget) for n, budget in enumerate(budgets)]


def slack(*amounts: float) -> float:
    return 1e-9 * max(1.0, *amounts)


@given(BUDGETS, TOKENS, TOKENS, TOKENS)
def test_allocations_and_history_never_exceed_what_there_is(
    budgets: list[Any], total: float, system: float, reserve: float
) -> None:
    plan = allocate_budgets(layers(budgets), total_budget=total, system_prompt_tokens=system, response_reserve=reserve)
    shares = [share.allocated for share in plan.allocations]

    assert sum(shares) + plan.history_budget <= max(0.0, total - system - reserve) + slack(total)
    assert all(share >= 0 for share in shares)
    assert plan.history_budget >= 0


@given(BUDGETS, TOKENS)
def test_every_layer_gets_its_minimum_where_the_minimums_fit_and_never_more_than_its_maximum(
    budgets: list[Any], total: float
) -> None:
    ranges = [budget_range(budget, layer_id="x") for budget in budgets]
    fits = sum(low for low, _ in ranges) <= total
    assume(total > 0)

    plan = allocate_budgets(layers(budgets), total_budget=total)

    for share, (low, high) in zip(plan.allocations, ranges, strict=True):
        assert share.allocated <= high + slack(total)
        if fits:
            assert share.allocated >= low - slack(total)


@given(BUDGETS, TOKENS, TOKENS)
def test_more_budget_never_means_less_for_a_layer_once_the_minimums_fit(
    budgets: list[Any], total: float, more: float
) -> None:
    assume(sum(budget_range(budget, layer_id="x")[0] for budget in budgets) <= total)

    before = allocate_budgets(layers(budgets), total_budget=total)
    after = allocate_budgets(layers(budgets), total_budget=total + more)

    for old, new in zip(before.allocations, after.allocations, strict=True):
        assert new.allocated >= old.allocated - slack(total, more)
    assert after.history_budget >= before.history_budget - slack(total, more)


@given(BUDGETS, TOKENS)
def test_the_same_numbers_are_split_alike(budgets: list[Any], total: float) -> None:
    assert allocate_budgets(layers(budgets), total_budget=total) == allocate_budgets(
        layers(budgets), total_budget=total
    )


@pytest.mark.parametrize(
    ("numbers", "field"),
    [
        ({"total_budget": math.nan}, "total_budget"),
        ({"total_budget": 1, "system_prompt_tokens": math.nan}, "system_prompt_tokens"),
        ({"total_budget": 1, "response_reserve": math.nan}, "response_reserve"),
        ({"total_budget": math.inf, "response_reserve": math.inf}, "total_budget"),
        ({"total_budget": "many"}, "total_budget"),
        ({"total_budget": True}, "total_budget"),
    ],
)
def test_what_is_no_number_of_tokens_is_refused_by_name(numbers: dict[str, Any], field: str) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        allocate_budgets(layers(["auto"]), **numbers)

    assert (caught.value.code, caught.value.field) == ("INVALID_BUDGET_INPUT", field)
