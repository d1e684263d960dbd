"""The tokens that every layer was given and used in a plan."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.items import ItemLog, input_message, item_tokens
from noetic_nb.items._item import tokens_of
from noetic_nb.memory import BudgetPlan, ProjectionPolicy
from noetic_nb.memory._budget import LayerAllocation
from noetic_nb.memory._hooks.recall import RecallEntry
from noetic_nb.runtime._planning.make_plan import plan_turn
from noetic_nb.runtime._planning.turn_plan import SentItems, TurnPlan
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


def test_plans_of_one_budget_count_their_own_offers_only() -> None:
    budgets = split(200.0)
    plans = [planned_with(budgets, entry("notes", "x" * 4 * size)) for size in (*range(1, 1_200), 1)]

    assert [plan.layers[0].used for plan in plans] == [*range(1, 1_200), 1]
    assert planned_with(budgets, entry("quiet", "x" * 4)).layers[0].used == 0


def test_equal_shares_of_another_type_stay_what_they_are() -> None:
    whole, fraction = planned(200, entry("notes", "x" * 40)), planned(200.0, entry("notes", "x" * 40))

    assert [type(plan.layers[0].allocated) for plan in (whole, fraction)] == [int, float]


def test_a_layer_that_offers_twice_or_without_an_allocation_is_counted_with_all_it_offered() -> None:
    plan = planned(200.0, entry("notes", "x" * 40), entry("other", "x" * 8), entry("notes", "x" * 80))

    assert rows(plan) == [("notes", 200.0, 30, 170.0, 2), ("quiet", 10.0, 0, 10.0, 0), ("other", 0.0, 2, 0.0, 1)]
    assert len(plan.layer_items) == 3


def test_a_text_is_counted_by_the_tokenizer_of_the_plan() -> None:
    def letters(text: str) -> int:
        return len(text)

    log = ItemLog([input_message("hello")])
    policy = ProjectionPolicy(token_budget=10_000, response_reserve=0)
    plan = plan_turn(log, [], policy, [entry("notes", "x" * 40)], budgets=split(200.0), tokenizer=letters)

    assert plan.layers[0].used == 40


def test_items_are_added_up_whether_they_were_counted_before_or_not() -> None:
    counted, wide = input_message("hello"), input_message("h\u00e9llo")  # the second is counted on demand
    plain = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}

    for items in ((counted, counted), (counted, wide), (counted, plain), ()):
        assert tokens_of(items) == sum(map(item_tokens, items))


TEXTS = st.integers(0, 300).map(lambda size: "x" * size)


@given(
    talk=st.lists(st.tuples(st.sampled_from(["user", "developer", "system"]), TEXTS), max_size=6),
    offers=st.lists(TEXTS, max_size=4),
    budget=st.integers(0, 600),
    reserve=st.integers(0, 100),
    tools=st.integers(0, 100),
    overflow=st.sampled_from(["truncate", "sliding_window", "summarize"]),
    window=st.none() | st.integers(0, 4),
    chosen=st.none() | st.lists(st.integers(0, 5), max_size=4),
)
def test_a_request_that_is_too_large_would_be_so_without_what_layers_offer(
    talk: Any, offers: Any, budget: int, reserve: int, tools: int, overflow: Any, window: Any, chosen: Any
) -> None:
    log = ItemLog([input_message(text, role) for role, text in talk])
    window = None if overflow == "truncate" else window
    policy = ProjectionPolicy(token_budget=budget, response_reserve=reserve, overflow=overflow, window_size=window)
    entries = [entry(f"layer{place}", text) for place, text in enumerate(offers)]
    entries = [each if each.text else each._replace(items=()) for each in entries]
    projected = None if chosen is None else [log[at] for at in chosen if at < len(log)]
    plan = plan_turn(log, [], policy, entries, tool_tokens=tools, projected=projected)

    room = policy.token_budget - policy.response_reserve
    assert (plan.total_tokens > room) == (plan.history + plan.system + plan.tools > room)


def test_the_last_items_of_a_request_are_found_behind_every_part() -> None:
    front, back = [input_message(text) for text in "ab"], [input_message(text) for text in "cd"]
    sent = SentItems(front, back, ())
    whole = [*front, *back]

    assert [sent[place] for place in range(-4, 4)] == [whole[place] for place in range(-4, 4)]
