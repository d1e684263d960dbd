"""What every layer was given and used of a plan, as a record that plans of the same numbers share."""

from __future__ import annotations

from noetic_nb.items import ItemLog, input_message
from noetic_nb.memory import BudgetPlan, ProjectionPolicy
from noetic_nb.memory.budget import LayerAllocation
from noetic_nb.memory.recall import RecallEntry
from noetic_nb.runtime.planning.make_plan import plan_turn
from noetic_nb.runtime.planning.turn_plan import SentItems, TurnPlan
from noetic_nb.tokens import estimate_tokens


def entry(layer_id: str, text: str) -> RecallEntry:
    return RecallEntry(layer_id, (input_message(text, "developer"),), estimate_tokens(text), text=text)


def split(given: float) -> BudgetPlan:
    return BudgetPlan((LayerAllocation("notes", given), LayerAllocation("quiet", 10.0)), 1_000.0)


def planned(given: float, *offers: RecallEntry) -> TurnPlan:
    return planned_with(split(given), *offers)


def planned_with(budgets: BudgetPlan, *offers: RecallEntry) -> TurnPlan:
    log = ItemLog([input_message("hello")])
    return plan_turn(log, [], ProjectionPolicy(token_budget=10_000, response_reserve=0), offers, budgets=budgets)


def rows(plan: TurnPlan) -> list[tuple[str, float, int, float, int]]:
    return [(each.layer_id, each.allocated, each.used, each.yielded, each.items) for each in plan.layers]


def test_each_plan_says_what_its_own_offers_used() -> None:
    first, second = planned(200.0, entry("notes", "x" * 40)), planned(200.0, entry("notes", "x" * 80))

    assert rows(first) == [("notes", 200.0, 10, 190.0, 1), ("quiet", 10.0, 0, 10.0, 0)]
    assert rows(second) == [("notes", 200.0, 20, 180.0, 1), ("quiet", 10.0, 0, 10.0, 0)]
    assert rows(planned(200.0, entry("notes", "x" * 40))) == rows(first)


def test_plans_of_one_budget_share_what_their_offers_have_in_common_and_nothing_else() -> None:
    budgets = split(200.0)
    plans = [planned_with(budgets, entry("notes", "x" * 4 * size)) for size in (*range(1, 1_200), 1)]

    assert [plan.layers[0].used for plan in plans] == [*range(1, 1_200), 1]
    again = [planned_with(budgets, entry("notes", "x" * 4)) for _ in range(2)]
    assert again[0].layers is again[1].layers
    assert planned_with(budgets, entry("quiet", "x" * 4)).layers[0].used == 0


def test_equal_shares_of_another_type_stay_what_they_are() -> None:
    whole, fraction = planned(200, entry("notes", "x" * 40)), planned(200.0, entry("notes", "x" * 40))

    assert [type(plan.layers[0].allocated) for plan in (whole, fraction)] == [int, float]


def test_a_layer_that_offers_twice_or_without_an_allocation_is_counted_with_all_it_offered() -> None:
    plan = planned(200.0, entry("notes", "x" * 40), entry("other", "x" * 8), entry("notes", "x" * 80))

    assert rows(plan) == [("notes", 200.0, 30, 170.0, 2), ("quiet", 10.0, 0, 10.0, 0), ("other", 0.0, 2, 0.0, 1)]
    assert len(plan.layer_items) == 3


def test_the_last_items_of_a_request_are_found_behind_every_part() -> None:
    front, back = [input_message(text) for text in "ab"], [input_message(text) for text in "cd"]
    sent = SentItems(front, back, ())
    whole = [*front, *back]

    assert [sent[place] for place in range(-4, 4)] == [whole[place] for place in range(-4, 4)]
