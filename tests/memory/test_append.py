"""Items pass through the layers before they are logged; a layer may request another recall."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from noetic_nb.items import item_text
from noetic_nb.memory import RerenderRequest
from tests.items.strategies import message
from tests.memory.stacks import CTX, Watched, boom, layer, returning


def adding(text: str, **more: Any) -> Any:
    return lambda p: {"items": [*p.items, message("developer", text)], **more}


async def texts(stack: Watched, items: list[Any]) -> list[str]:
    return [item_text(item) for item in (await stack.append(CTX, items, log=())).items]


async def test_each_layer_sees_what_the_one_before_made_of_the_items() -> None:
    seen: list[int] = []

    def count(p: Any) -> None:
        seen.append(len(p.items))

    stack = Watched(
        layer("c", 300, on_item_append=count),
        layer("a", 100, on_item_append=adding("from a", rerender=True, timing="immediate", scope="all")),
        layer("b", 150, on_item_append=boom),
        layer("d", 400, on_item_append=lambda p: {"rerender": True}),
    )

    result = await stack.append(CTX, [message("user", "hi")], log=())

    assert ([item_text(item) for item in result.items], seen) == (["hi", "from a"], [2])
    assert result.rerender_requests == (
        RerenderRequest("a", 100, "immediate", "all"),
        RerenderRequest("d", 400, "batched", "slot-after"),
    )
    assert stack.told == [("b", "on_item_append")]


async def test_dropping_all_items_ends_the_pipeline() -> None:
    seen: list[str] = []
    stack = Watched(
        layer("a", 1, on_item_append=returning({"items": []})), layer("b", 2, on_item_append=lambda p: seen.append("b"))
    )

    assert await texts(stack, [message("user", "hi")]) == []
    assert seen == []


@pytest.mark.parametrize("more", [{"timing": "soon"}, {"scope": "everything"}])
async def test_a_request_that_does_not_exist_is_an_error_of_its_hook(more: dict[str, str]) -> None:
    stack = Watched(layer("a", on_item_append=adding("x", rerender=True, **more)))

    assert await texts(stack, [message("user", "hi")]) == ["hi"]
    assert stack.told == [("a", "on_item_append")]


async def test_a_layers_own_timing_is_the_default() -> None:
    stack = Watched(layer("a", on_item_append=returning({"rerender": True}), rerender_timing="immediate"))

    result = await stack.append(CTX, [message("user", "hi")], log=())

    assert result.rerender_requests[0].timing == "immediate"


async def rendered(stack: Watched, scope: str, depth: int = 0) -> list[tuple[str, str]]:
    current = await stack.recall(CTX, budgets={})
    request = RerenderRequest("b", 200, "immediate", scope)  # type: ignore[arg-type]
    entries = await stack.rerender(CTX, [request], current=current, query="", log=(), budgets={}, depth=depth)
    return [(entry.layer_id, item_text(entry.items[0])) for entry in entries]


def counting(id: str, slot: float, **more: Any) -> Any:
    count = [0]

    def recall(p: Any) -> Any:
        count[0] += 1
        text = f"{id}{count[0]}"
        return {"items": [message("developer", text)], **more} if more else text

    return layer(id, slot, recall=recall)


@pytest.mark.parametrize(
    ("scope", "expected"),
    [("self", ["a1", "b2", "c1"]), ("slot-after", ["a1", "b2", "c2"]), ("all", ["a2", "b2", "c2"])],
)
async def test_the_scope_says_which_layers_are_recalled_again(scope: str, expected: list[str]) -> None:
    stack = Watched(counting("c", 300), counting("a", 100), counting("b", 200))

    assert [text for _, text in await rendered(stack, scope)] == expected


async def test_a_re_render_that_yields_nothing_leaves_the_earlier_result() -> None:
    answers = iter(["first", None])
    stack = Watched(layer("b", 200, recall=lambda p: next(answers)))

    assert await rendered(stack, "self") == [("b", "first")]


async def test_defect_11_a_chain_of_re_renders_is_cut_at_depth_three(caplog: pytest.LogCaptureFixture) -> None:
    stack = Watched(counting("b", 200, rerender=True, scope="self"))

    with caplog.at_level(logging.WARNING, "noetic_nb"):
        entries = await rendered(stack, "self")

    assert entries == [("b", "b4")]  # the base recall and three re-renders
    assert "depth 3" in caplog.text


async def test_at_the_depth_cap_nothing_is_recalled(caplog: pytest.LogCaptureFixture) -> None:
    stack = Watched(counting("b", 200))

    assert await rendered(stack, "self", depth=3) == [("b", "b1")]
    assert "depth 3" in caplog.text


async def test_history_is_projected_by_each_layer_in_turn_and_the_log_stays() -> None:
    items = [message("user", str(n), id=str(n)) for n in range(5)]
    stack = Watched(
        layer("b", 200, project_history=lambda p: {"items": p.items[1:]}),
        layer("a", 100, project_history=lambda p: {"items": p.items[:4]}),
    )

    shown = await stack.project_history(CTX, items)

    assert [item["id"] for item in shown] == ["1", "2", "3"]
    assert len(items) == 5
