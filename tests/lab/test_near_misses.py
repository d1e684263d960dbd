"""Near misses: with the change in a row the item is sent, with less it is not."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb import lab
from noetic_nb.items import input_message, item_text
from noetic_nb.runs._requests.recorded_requests import recorded_request
from noetic_nb.runs._requests.sent_request import RecordedRequest
from noetic_nb.testing import FakeClock
from tests.matrix import several

WORDS = [
    "tent",
    "lens",
    "bicycle",
    "table",
    "kettle",
    "atlas",
    "garden",
    "river",
    "cloud",
    "copper",
    "maple",
    "violin",
    "harbour",
    "candle",
]


def talk(
    texts: Sequence[str],
    memory: Sequence[Any],
    total: float = math.inf,
    window: int | None = None,
    tokenizer: Any = None,
) -> nn.Run:
    policy = nn.ProjectionPolicy(
        token_budget=total,
        response_reserve=0,
        overflow="truncate" if window is None else "sliding_window",
        window_size=window,
    )
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), memory=list(memory), projection=policy)
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Noted."] * len(texts)), clock=FakeClock())
    run = nn.record(harness)

    async def play() -> None:
        for text in texts:
            await harness.execute(text, thread_id="t")

    asyncio.run(play())
    return run


def said(rng: random.Random, count: int) -> list[str]:
    return [
        f"{at}: the {rng.choice(WORDS)} and the {rng.choice(WORDS)} {'x' * rng.randint(0, 120)}" for at in range(count)
    ]


def offering(sizes: Sequence[int], budget: Any) -> nn.MemoryLayer:
    """A layer that offers some notes as items."""
    notes = [input_message(f"note {at} " + "y" * size, "developer", item_id=f"n{at}") for at, size in enumerate(sizes)]
    hooks = nn.memory.MemoryHooks(recall=lambda p: {"items": notes})
    return nn.MemoryLayer(id="notes", slot=100, scope="thread", budget=budget, hooks=hooks)


def given_of(row: Any, name: str) -> int | None:
    value = getattr(row, name)
    return None if pandas.isna(value) else int(value)


def admits(request: RecordedRequest, row: Any, less: str | None = None) -> bool:
    """Plan the call again with the changes in a row, and with one of them reduced by one."""
    changes: dict[str, Any] = {}
    for name in ("total", "window", "layer_tokens"):
        value = given_of(row, name)
        if value is None:
            continue
        value -= name == less
        if name == "layer_tokens":
            low = next(low for layer_id, low, _ in request.inputs.limits if f"layer:{layer_id}" == row.origin)
            changes["budgets"] = {row.origin.removeprefix("layer:"): (low, value)}
        else:
            changes[name] = value
    plan = request.replan(**changes)
    if row.origin == "history":
        return plan.sends(int(row.position))
    return any(item_text(item).startswith(row.text[:40]) for _, item in plan.layer_items)


@settings(max_examples=several(6, 120))
@given(
    seed=st.integers(0, 10**6),
    total=st.integers(60, 700),
    window=st.one_of(st.none(), st.integers(2, 8)),
    high=st.integers(0, 90),
)
def test_every_item_is_admitted_by_what_its_row_names(seed: int, total: int, window: int | None, high: int) -> None:
    rng = random.Random(seed)
    layer = offering([rng.randint(0, 150) for _ in range(3)], {"min": 0, "max": high})
    run = talk(said(rng, rng.randint(1, 7)), [layer], total, window)
    request = recorded_request(run, -1)

    table = lab.near_misses(run, -1)

    items = table[table.what == "item"]
    assert len(items) == len([one for one in request.absent if one.reason != "forced"])
    for row in items.itertuples():
        named = [name for name in ("total", "window", "layer_tokens") if given_of(row, name) is not None]
        assert named, row
        assert admits(request, row), row
        # Of two changes named together, the first is the smallest that works with the second.
        assert not admits(request, row, less=named[0]), row


def recalled_with(layer: nn.MemoryLayer, texts: Sequence[str], row: Any, less: str | None = None) -> bool:
    """Record the conversation again with a layer changed as in a row, and check whether it recalls the memory."""
    made = layer.made_by
    assert made is not None
    options: dict[str, Any] = dict(made.options)
    top_k, tokens, score = given_of(row, "top_k"), given_of(row, "layer_tokens"), row.min_score
    if top_k is not None:
        options["top_k"] = top_k - (less == "top_k")
    if score == score:
        options["min_score"] = math.nextafter(score, 2) if less == "min_score" else score
    options["budget"] = {"min": 10_000, "max": 10_000}
    if tokens is not None:
        options["budget"] = dict.fromkeys(("min", "max"), tokens - (less == "layer_tokens"))
    elif less is None:
        options["budget"] = layer.budget
    if options.get("top_k", 1) < 1:
        return False
    request = recorded_request(talk(texts, [made.make(**options)]), -1)
    told = [item_text(one.item) for one in request.items if one.item is not None and one.origin == f"layer:{layer.id}"]
    return any(f"\n{row.text}\n" in text for text in told)


@settings(max_examples=several(6, 120))
@given(
    seed=st.integers(0, 10**6),
    top_k=st.integers(1, 6),
    min_score=st.sampled_from([-1.0, 0.05, 0.2, 0.5]),
    neighbours=st.integers(0, 2),
    tokens=st.integers(5, 200),
    make=st.sampled_from([nn.semantic_recall, nn.hybrid_recall]),
)
def test_every_memory_is_recalled_with_what_its_row_names(
    seed: int, top_k: int, min_score: float, neighbours: int, tokens: int, make: Any
) -> None:
    rng = random.Random(seed)
    texts = [
        *[text.strip() for text in said(rng, 7)],
        f"Where is the {rng.choice(WORDS)} near the {rng.choice(WORDS)}?",
    ]
    layer = make(
        top_k=top_k,
        min_score=min_score,
        neighbours=neighbours,
        skip_recent=2,
        budget={"min": tokens, "max": tokens},
    )
    run = talk(texts, [layer])

    table = lab.near_misses(run, -1)

    memories = table[table.what == "memory"]
    assert table.attrs["not_asked"] == ()
    for row in memories.sample(min(3, len(memories)), random_state=seed % 1000).itertuples():
        named = [name for name in ("top_k", "layer_tokens") if given_of(row, name) is not None]
        named += ["min_score"] if row.min_score == row.min_score else []
        assert named, row
        assert recalled_with(layer, texts, row), row
        # An answer that was given many times may be present as another item.
        if [*texts, *["Noted."] * len(texts)].count(row.text.partition(": ")[2]) == 1:
            assert not any(recalled_with(layer, texts, row, less=name) for name in named), row


def test_a_memory_of_another_thread_counts_where_the_layer_reaches_there() -> None:
    config = nn.AgentConfig(
        name="desk", step=nn.react(model="scripted"), memory=[nn.semantic_recall(top_k=1, min_score=0.9)]
    )
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Noted."] * 3))
    run = nn.record(harness)

    async def play() -> None:
        await harness.execute("The copper kettle is in the harbour.", thread_id="a", resource_id="r")
        await harness.execute("Where is the copper kettle?", thread_id="b", resource_id="r")

    asyncio.run(play())
    table = lab.near_misses(run, -1)

    row = table[table.text == "user: The copper kettle is in the harbour."].iloc[0]
    assert row.reason == "below_threshold"
    assert row["rank"] == 1
    assert row.min_score == row.score < 0.9


@pytest.mark.parametrize(
    ("layer", "kept"),
    [
        (nn.observational_memory(buffer_threshold=1, budget={"min": 20, "max": 20}), 3),
        (
            nn.entity_memory(lambda text: {text.split()[0]: [text]}, budget={"min": 20, "max": 20}),
            3,
        ),
        (nn.episodic_memory(budget={"min": 40, "max": 40}), 3),
        (
            nn.temporal_memory(
                extract=lambda texts, now: {"2026-01-01": list(texts)},
                buffer_threshold=1,
                inject_ledger=True,
                budget={"min": 110, "max": 110},
            ),
            3,
        ),
    ],
    ids=["observational", "entity", "episodic", "temporal"],
)
def test_memories_with_an_order_name_the_tokens_of_their_layer(layer: nn.MemoryLayer, kept: int) -> None:
    texts = [f"Guest{at} booked room {at}{at} by the river side." for at in range(5)]
    run = talk(texts, [layer])

    table = lab.near_misses(run, -1)

    memories = table[table.what == "memory"]
    assert len(memories) >= kept
    assert set(memories.reason) == {"over_allocation"}
    assert memories.score.isna().all()
    assert memories.layer_tokens.is_monotonic_increasing
    for row in memories.itertuples():
        assert recalled_with(layer, texts, row), row
        if sum(memories.text == row.text) == 1:
            assert not recalled_with(layer, texts, row, less="layer_tokens"), row


def test_a_procedure_names_its_score() -> None:
    layer = nn.procedural_memory(min_score=0.99)
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), memory=[layer])
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Noted."] * 2))
    run = nn.record(harness)

    async def play() -> None:
        await harness.execute("Hello.", thread_id="t")
        known = {"refund": {"when": "a refund is wanted", "steps": ["ask"], "learned": 0.0}}
        await harness.memory("t").edit("procedural-memory", {"procedures": known})
        await harness.execute("I want a refund please", thread_id="t")

    asyncio.run(play())
    [row] = lab.near_misses(run, -1).itertuples()

    assert row.reason == "below_threshold"
    assert 0 < row.min_score < 0.99


def test_the_agent_is_not_touched() -> None:
    layer = nn.semantic_recall(skip_recent=0)
    run = talk(["The copper kettle.", "The kettle?"], [layer])
    before = len(run.events)

    lab.near_misses(run, -1)

    assert len(run.events) == before
    assert layer.hooks.recall is not None


def test_layers_that_say_nothing_are_named() -> None:
    own = offering([5], {"min": 0, "max": 1000})
    run = talk(["Hello."], [own])
    loaded = nn.Run(events=run.events, meta=run.meta)

    assert lab.near_misses(run, -1).attrs["not_asked"] == ("notes",)
    assert lab.near_misses(loaded, -1).attrs["not_asked"] == ("notes",)
    assert lab.near_misses(loaded, -1, layers=[replace(own, id="other")]).attrs["not_asked"] == ("other",)


def test_a_call_that_cannot_be_planned_again_is_refused() -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        lab.near_misses(lab.datasets.airline(1)[0], 0)
    assert caught.value.code == "NOT_RECORDED"
    with pytest.raises(nn.NoeticConfigError) as caught:
        lab.near_misses([], 0)  # type: ignore[arg-type]
    assert caught.value.code == "INVALID_RUN"


def test_hybrid_recall_names_what_is_not_near_with_its_place_among_the_others() -> None:
    texts = ["The kettle is copper.", "A river in a garden.", "The harbour at night.", "Where is the kettle?"]
    layer = nn.hybrid_recall(top_k=1, min_score=0.95, skip_recent=1, budget={"min": 500, "max": 500})
    run = talk(texts, [layer])

    table = lab.near_misses(run, -1)

    assert "user: The kettle is copper." not in set(table.text)
    far = table[table.text == "user: A river in a garden."].iloc[0]
    assert (far.reason, far["rank"]) == ("below_threshold", far.top_k)
    assert far.min_score == far.score < 0.95
    assert recalled_with(layer, texts, far)
    assert not recalled_with(layer, texts, far, less="min_score")
    assert not recalled_with(layer, texts, far, less="top_k")


def test_hybrid_recall_without_vectors_has_words_alone_and_no_scores() -> None:
    def fails(texts: Sequence[str]) -> list[list[float]]:
        if "kettle?" in texts[0]:
            raise RuntimeError("no network")
        return [[1.0, 0.0] for _ in texts]

    texts = ["The kettle is copper.", "The kettle is old.", "A river.", "Where is the kettle?"]
    run = talk(texts, [nn.hybrid_recall(fails, top_k=1, skip_recent=1)])

    [row] = lab.near_misses(run, -1).itertuples()

    assert (row.reason, row.rank, row.top_k) == ("beyond_top_k", 2, 2)
    assert math.isnan(row.score)


def test_a_smaller_threshold_moves_what_stood_before() -> None:
    near = {"The kettle is copper.": 0.1, "A river in a garden.": 0.3, "Noted.": -0.5}

    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[near.get(text, 1.0), math.sqrt(1 - near.get(text, 1.0) ** 2)] for text in texts]

    texts = ["The kettle is copper.", "A river in a garden.", "Where is my kettle?"]
    layer = nn.hybrid_recall(embed, top_k=1, min_score=0.9, skip_recent=1, budget={"min": 500, "max": 500})
    table = lab.near_misses(talk(texts, [layer]), -1)

    [row] = table[table.text == "user: A river in a garden."].itertuples()
    # The most similar with that threshold, and so before the one message that shares a word.
    assert (row.rank, given_of(row, "top_k")) == (1, None)
    assert recalled_with(layer, texts, row)
    assert not recalled_with(layer, texts, row, less="min_score")
