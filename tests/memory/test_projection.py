"""The sent part of a history: within budget, complete pairs, the latest user message, a reason for each omitted item."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import ItemLog, dump_item, input_message, item_tokens, parse_item
from noetic_nb.items._build import unresolved_positions
from noetic_nb.memory import MemoryLayer, ProjectionPolicy, assemble_view
from noetic_nb.memory._budget import project_tail
from noetic_nb.memory._hooks.recall import RecallEntry
from noetic_nb.runtime import plan_turn
from tests.items.strategies import CONVERSATIONS, message

BUDGETS = st.integers(-50, 700) | st.just(math.inf)
WINDOWS = st.none() | st.integers(0, 12)


def latest_user(items: list[dict[str, Any]]) -> int | None:
    return max((p for p, item in enumerate(items) if item.get("role") == "user"), default=None)


@given(CONVERSATIONS, BUDGETS, WINDOWS)
def test_a_log_and_a_list_are_projected_alike(items: list[dict[str, Any]], budget: float, window: int | None) -> None:
    as_list = [parse_item(item) for item in items]

    assert project_tail(ItemLog(items).items, budget, window=window) == project_tail(as_list, budget, window=window)


@given(CONVERSATIONS, BUDGETS, WINDOWS)
def test_a_projection_stays_within_its_budget_but_for_a_user_message_that_is_too_long_by_itself(
    items: list[dict[str, Any]], budget: float, window: int | None
) -> None:
    shown = project_tail(ItemLog(items).items, budget, window=window)
    sent = [items[p] for p in shown.positions()]

    user = latest_user(items)
    least = 0 if user is None else item_tokens(items[user])
    assert shown.tokens == sum(item_tokens(item) for item in sent) <= max(budget, least, 0)


@given(CONVERSATIONS, BUDGETS, WINDOWS)
def test_the_latest_user_message_is_always_sent(items: list[dict[str, Any]], budget: float, window: int | None) -> None:
    shown = project_tail(ItemLog(items).items, budget, window=window)

    user = latest_user(items)
    assert user is None or user in shown.positions()


@given(CONVERSATIONS, BUDGETS, WINDOWS)
def test_no_call_is_sent_without_its_output_nor_an_output_without_its_call(
    items: list[dict[str, Any]], budget: float, window: int | None
) -> None:
    shown = project_tail(ItemLog(items).items, budget, window=window)

    assert unresolved_positions([items[p] for p in shown.positions()]) == set()


@given(CONVERSATIONS, BUDGETS, WINDOWS)
def test_what_is_sent_is_in_order_and_at_most_the_window_and_one(
    items: list[dict[str, Any]], budget: float, window: int | None
) -> None:
    positions = project_tail(ItemLog(items).items, budget, window=window).positions()

    assert positions == sorted(set(positions))
    assert not window or len(positions) <= window + 1


@given(CONVERSATIONS, BUDGETS, WINDOWS)
def test_every_position_left_out_of_the_window_has_a_fate(
    items: list[dict[str, Any]], budget: float, window: int | None
) -> None:
    shown = project_tail(ItemLog(items).items, budget, window=window)
    told = {fate.position: fate.reason for fate in shown.fates}

    for position in set(range(shown.start, shown.stop)) - set(shown.positions()):
        assert told[position] == "unresolved_call"
    if shown.forced is not None:
        assert told[shown.forced] == "forced"
        assert shown.forced < shown.start


@given(CONVERSATIONS, st.integers(0, 700), st.sampled_from(["truncate", "sliding_window"]), st.integers(0, 12))
def test_every_item_of_the_log_is_sent_or_left_out_for_a_reason(
    items: list[dict[str, Any]], budget: int, overflow: Any, window: int
) -> None:
    size = window if overflow == "sliding_window" else None
    policy = ProjectionPolicy(token_budget=budget, response_reserve=0, overflow=overflow, window_size=size)
    plan = plan_turn(ItemLog(item for item in items if item.get("role") != "system"), [], policy)
    log = [item for item in items if item.get("role") != "system"]

    reasons = plan.left_out()

    assert [dump_item(item) for item in plan.items] == [item for p, item in enumerate(log) if p not in reasons]
    for position, reason in reasons.items():
        assert (reason == "outside_window") == bool(size and position < len(log) - size)


@given(CONVERSATIONS, st.integers(0, 600))
def test_the_tail_could_not_have_begun_one_item_earlier(items: list[dict[str, Any]], budget: int) -> None:
    shown = project_tail(ItemLog(items).items, budget)
    forced = 0 if shown.forced is None else item_tokens(items[shown.forced])

    assert shown.start == 0 or sum(item_tokens(item) for item in items[shown.start - 1 :]) + forced > budget


def test_a_tool_loop_keeps_the_question_and_the_newest_outputs() -> None:
    turn = [message("user", "q" * 40)]
    for n in range(4):
        turn.append({"type": "function_call", "callId": f"c{n}", "name": "t", "arguments": "{}"})
        turn.append({"type": "function_call_output", "callId": f"c{n}", "output": "o" * 40})
    pair = item_tokens(turn[1]) + item_tokens(turn[2])

    shown = project_tail(ItemLog(turn).items, item_tokens(turn[0]) + 2 * pair)

    assert shown.positions() == [0, 5, 6, 7, 8]
    assert shown.tokens == item_tokens(turn[0]) + 2 * pair


def ids(items: Any) -> list[str]:
    return [item["id"] for item in items]


def said(name: str, size: int = 100, role: str = "user") -> dict[str, Any]:
    return message(role, "x" * size, id=name)


def test_a_policy_of_none_joins_the_lists() -> None:
    assert ids(assemble_view([said("s")], [said("l")], [said("h")], None)) == ["s", "l", "h"]


def test_system_items_stay_even_where_they_are_too_much() -> None:
    policy = ProjectionPolicy(token_budget=10, response_reserve=0)

    assert ids(assemble_view([said("s", role="system")], [said("l")], [said("h", role="assistant")], policy)) == ["s"]


def test_a_layer_item_that_does_not_fit_makes_way_for_smaller_ones_behind_it() -> None:
    policy = ProjectionPolicy(token_budget=120, response_reserve=0, overflow="truncate")

    kept = assemble_view([], [said("a", 40), said("b", 4_000), said("c", 40)], [], policy)

    assert ids(kept) == ["a", "c"]


@given(CONVERSATIONS, CONVERSATIONS, CONVERSATIONS, st.integers(0, 900))
def test_a_view_never_exceeds_its_budget_but_for_what_must_be_sent(
    system: list[dict[str, Any]], layers: list[dict[str, Any]], history: list[dict[str, Any]], budget: int
) -> None:
    policy = ProjectionPolicy(token_budget=budget, response_reserve=0, overflow="truncate")
    must = sum(item_tokens(item) for item in system)
    user = latest_user(history)

    view = assemble_view(system, layers, history, policy)

    least = must + (0 if user is None else item_tokens(history[user]))
    assert sum(item_tokens(item) for item in view) <= max(budget, least)
    assert [dump_item(item) for item in view[: len(system)]] == system


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"overflow": "shrink"}, "overflow"),
        ({"token_budget": -1}, "token_budget"),
        ({"token_budget": math.nan}, "token_budget"),
        ({"response_reserve": -1}, "response_reserve"),
        ({"response_reserve": "many"}, "response_reserve"),
        ({"overflow": "truncate", "window_size": 3}, "window_size"),
        ({"window_size": -1}, "window_size"),
        ({"tokens": 3}, "tokens"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(fields: dict[str, Any], what: str) -> None:
    with pytest.raises(NoeticConfigError, match=what) as caught:
        ProjectionPolicy(**fields)

    assert caught.value.code == "INVALID_PROJECTION"


def test_a_policy_reads_and_writes_the_wire_form() -> None:
    policy = ProjectionPolicy(tokenBudget=100, responseReserve=10, overflow="sliding_window", windowSize=4)

    assert policy.window_size == 4
    assert ProjectionPolicy(**policy.model_dump(by_alias=True)) == policy


OFFERS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.text(max_size=60), st.integers(0, 200), st.booleans()), max_size=4
)


@given(OFFERS, st.integers(0, 6), st.integers(60, 900), st.sampled_from(["slot", "cache"]))
def test_a_log_that_fits_is_planned_as_any_other_history(
    offers: list[tuple[str, str, int, bool]], length: int, budget: int, order: Any
) -> None:
    log = ItemLog([input_message(f"message {n}", item_id=f"m{n}") for n in range(length)])
    recalled = []
    for at, (name, text, size, is_text) in enumerate(offers):
        kept = text[:size] if is_text else text
        item = input_message(kept, "developer", item_id=f"o{at}")
        items, dropped, places = ((item,), (), ()) if kept or not is_text else ((), (item,), (0,))
        recalled.append(RecallEntry(name, items, 0, dropped, places, text if is_text else None))
    layers = [MemoryLayer(id=name, slot=100 + at, scope="thread") for at, name in enumerate("abc")]
    policy = ProjectionPolicy(token_budget=budget, response_reserve=10, order=order)

    quick = plan_turn(log, layers, policy, recalled, instructions="Be brief.")
    # A list has no running sums like a log, so it takes the slow path.
    slow = plan_turn(list(log), layers, policy, recalled, instructions="Be brief.")

    assert list(quick.items) == list(slow.items)
    assert quick._replace(items=(), budgets=None) == slow._replace(items=(), budgets=None)
