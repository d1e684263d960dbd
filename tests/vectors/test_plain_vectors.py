"""Golden vectors of the pure functions: budgets, tokens, projection, aggregation of decisions."""

from __future__ import annotations

from typing import Any

import pytest

from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import ItemLog, item_tokens, strip_unresolved
from noetic_nb.memory import MemoryLayer, ProjectionPolicy, allocate_budgets, assemble_view
from noetic_nb.steering import SteeringDecision, most_restrictive
from noetic_nb.tokens import estimate_tokens, utf16_units
from tests.vectors.cases import camel, close, load, number


def budget_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: number(inner) for key, inner in value.items()}
    return value if value == "auto" else number(value)


@pytest.mark.parametrize("case", load("budgets"))
def test_budgets_are_split_as_recorded(case: dict[str, Any]) -> None:
    given, expect = case["given"], case["expect"]
    layers = [
        MemoryLayer(id=layer["id"], slot=100, scope="thread", budget=budget_of(layer.get("budget")))
        for layer in given["layers"]
    ]

    def split() -> Any:
        return allocate_budgets(
            layers,
            total_budget=number(given["totalBudget"]),
            system_prompt_tokens=number(given["systemPromptTokens"]),
            response_reserve=number(given["responseReserve"]),
        )

    if "error" in expect:
        with pytest.raises(NoeticConfigError) as caught:
            split()
        assert (caught.value.code, camel(caught.value.field)) == (expect["error"], expect["field"])
        return
    plan = split()
    assert [share.layer_id for share in plan.allocations] == [share["layerId"] for share in expect["allocations"]]
    for share, wanted in zip(plan.allocations, expect["allocations"], strict=True):
        assert close(share.allocated, wanted["allocated"])
    assert close(plan.history_budget, expect["historyBudget"])


@pytest.mark.parametrize("case", load("tokens"))
def test_tokens_are_estimated_as_recorded(case: dict[str, Any]) -> None:
    given, expect = case["given"], case["expect"]
    if given["op"] == "itemTokens":
        item = given["item"]
        assert {"tokens": item_tokens(item), "units": item_tokens(item, utf16_units)} == expect
        return
    text = given["text"] if "text" in given else given["repeat"]["text"] * given["repeat"]["times"]
    assert {"tokens": estimate_tokens(text), "units": utf16_units(text)} == expect


@pytest.mark.parametrize("case", load("projection"))
def test_views_keep_the_recorded_items(case: dict[str, Any]) -> None:
    given = case["given"]
    if given["op"] == "stripUnresolved":
        kept = strip_unresolved(given["items"])
    else:
        policy = ProjectionPolicy(**given["policy"]) if given.get("policy") else None
        lists = given["systemPromptItems"], given["layerOutputItems"], given["historyItems"]
        kept = assemble_view(*lists, policy)
        assert assemble_view(*lists[:2], ItemLog(lists[2]).items, policy) == kept, "a log is searched by its sums"
    assert [item["id"] for item in kept] == case["expect"]["keptIds"]


@pytest.mark.parametrize("case", load("restrictive"))
def test_the_most_restrictive_decision_wins(case: dict[str, Any]) -> None:
    decisions = [SteeringDecision(d["action"], d.get("guidance")) for d in case["given"]["decisions"]]
    assert most_restrictive(decisions).to_dict() == case["expect"]
