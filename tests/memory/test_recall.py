"""Recall is limited to the allocation, by our own count."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.items import input_message, item_text
from noetic_nb.items._build import content_tokens
from noetic_nb.tokens import estimate_tokens
from tests.memory.stacks import CTX, Watched, layer, returning


def message(text: str) -> Any:
    return input_message(text, "developer")


@given(st.text(max_size=200), st.floats(0, 60))
def test_recalled_text_is_cut_to_the_longest_head_that_fits(text: str, budget: float) -> None:
    async def run() -> Any:
        return await Watched(layer("a", recall=returning(text))).recall(CTX, budgets={"a": budget})

    entries = asyncio.run(run())

    said = item_text(entries[0].items[0]) if entries else ""
    assert text.startswith(said)
    assert estimate_tokens(said) <= budget
    assert said == text or estimate_tokens(text[: len(said) + 1]) > budget
    assert not entries or entries[0].token_count == estimate_tokens(said)


@given(st.lists(st.text(max_size=60), max_size=6), st.integers(0, 40))
def test_recalled_items_never_say_more_than_the_allocation_and_the_rest_is_named(texts: list[str], budget: int) -> None:
    items = [message(text) for text in texts]

    async def run() -> Any:
        return await Watched(layer("a", recall=returning({"items": items}))).recall(CTX, budgets={"a": budget})

    (entry,) = asyncio.run(run())

    assert entry.token_count == sum(content_tokens(item) for item in entry.items) <= budget
    assert sorted(map(id, (*entry.items, *entry.dropped))) == sorted(map(id, items))


async def test_too_much_is_a_diagnostic_and_within_budget_is_none() -> None:
    stack = Watched(layer("a", recall=returning("x" * 400)), layer("b", recall=returning("fine")))

    await stack.recall(CTX, budgets={"a": 10, "b": 10})

    assert stack.told == [("a", "recall")]
    assert "100 tokens" in str(stack.notes[0][2])


async def test_a_layer_that_misreports_its_tokens_is_corrected_and_reported() -> None:
    wrong = layer("wrong", 1, recall=returning({"items": [message("x" * 400)], "tokenCount": 7}))
    right = layer("right", 2, recall=returning({"items": [message("x" * 400)], "token_count": 95}))
    stack = Watched(wrong, right)

    entries = await stack.recall(CTX, budgets={})

    assert [entry.token_count for entry in entries] == [100, 100]
    assert stack.told == [("wrong", "recall")]


async def test_ten_megabytes_of_recall_are_cut_and_not_sent() -> None:
    stack = Watched(layer("a", recall=returning("é" * 10_000_000)))

    (entry,) = await stack.recall(CTX, budgets={"a": 500})

    assert entry.token_count == 500


async def test_every_recall_leaves_a_span_with_its_budget() -> None:
    stack = Watched(layer("a", recall=returning("12345678")))

    await stack.recall(CTX, budgets={"a": 10})

    (span,) = stack.events
    assert (span.status, span.item_count) == ("ok", 1)
    assert (span.budget.allocated, span.budget.used, span.budget.yielded) == (10, 2, 8)
    assert span.duration_ms > 0


async def test_extension_items_are_recalled_by_the_layer_that_declares_them_only() -> None:
    thing = {"items": [{"type": "my:thing", "size": 3}]}
    schemas = {"items": [lambda value: isinstance(value["size"], int)]}
    stack = Watched(
        layer("knows", 1, recall=returning(thing), item_schemas=schemas), layer("other", 2, recall=returning(thing))
    )

    entries = await stack.recall(CTX, budgets={})

    assert [entry.layer_id for entry in entries] == ["knows"]
    assert stack.told == [("other", "recall")]
    assert stack.registry.parse(thing["items"][0])["size"] == 3
