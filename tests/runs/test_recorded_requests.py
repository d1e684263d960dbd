"""A recorded call is planned again: exactly as it was, or with other numbers."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.items import assistant_message, input_message
from noetic_nb.memory import MemoryHooks, MemoryLayer, ProjectionPolicy
from noetic_nb.runs.recorded_requests import RequestIndex
from noetic_nb.testing import SeededIds


@nn.tool
def search(query: str, password: str = "none") -> str:
    """Find orders."""
    return f"found {query} " * (len(query) % 7)


def text_layer(rng: random.Random, layer_id: str, budget: Any) -> MemoryLayer:
    size = rng.choice([0, 3, 40, 400])

    def recall(p: Any) -> str:
        return "".join([f"{layer_id} knows {place}. " for place in range(size)])

    return MemoryLayer(
        id=layer_id, slot=rng.randrange(3), scope="thread", budget=budget, hooks=MemoryHooks(recall=recall)
    )


def item_layer(rng: random.Random, layer_id: str, budget: Any) -> MemoryLayer:
    sizes = [rng.randrange(1, 120) for _ in range(rng.randrange(6))]

    def recall(p: Any) -> dict[str, Any]:
        return {
            "items": [
                input_message(f"{layer_id} {n} " * n, "developer", item_id=f"{layer_id}{at}")
                for at, n in enumerate(sizes)
            ]
        }

    return MemoryLayer(
        id=layer_id, slot=rng.randrange(3), scope="thread", budget=budget, hooks=MemoryHooks(recall=recall)
    )


def choosing_layer(rng: random.Random) -> MemoryLayer:
    seed = rng.random()

    def project_history(p: Any) -> dict[str, Any]:
        own = random.Random(seed + len(p.items))
        kept = [item for item in p.items if own.random() < 0.7]
        if own.random() < 0.5:
            kept.insert(own.randrange(len(kept) + 1), input_message("what came before", "developer", item_id="gist"))
        if own.random() < 0.2:
            kept.reverse()
        return {"items": kept}

    return MemoryLayer(id="choosing", slot=9, scope="thread", hooks=MemoryHooks(project_history=project_history))


def random_agent(seed: int) -> tuple[nn.AgentHarness, nn.ScriptedModel, random.Random]:
    rng = random.Random(seed)
    budgets: list[Any] = [None, "auto", 0, 30, 200, {"min": 20, "max": 300}, {"min": 100, "max": 100}]
    layers = [
        rng.choice([text_layer, item_layer])(rng, f"layer{at}", rng.choice(budgets)) for at in range(rng.randrange(4))
    ]
    if rng.random() < 0.3:
        layers.append(choosing_layer(rng))
    overflow = rng.choice(["truncate", "sliding_window", "sliding_window", "summarize"])
    window = None if overflow == "truncate" else rng.choice([None, 0, 3, 8])
    policy = ProjectionPolicy(
        token_budget=rng.choice([150, 400, 900, 2_000, 128_000, float("inf")]),
        response_reserve=rng.choice([0, 50, 100]),
        overflow=overflow,
        window_size=window,
    )

    def answer(request: Any) -> Any:
        if request.purpose != "agent":
            return "A summary of it."
        draw = rng.random()
        if draw < 0.3:
            return nn.CallTool("search", query="q" * rng.randrange(9))
        return nn.Reply(text="so it is " * rng.randrange(1, 40)) if draw < 0.95 else nn.Reply(text="")

    model = nn.ScriptedModel(answer)
    instructions = rng.choice([None, "Be brief.", "Be brief and kind. " * 20, lambda ctx: f"Turn {ctx.turn}."])
    step = nn.react(model="m", instructions=instructions, tools=rng.choice([(), (search,)]), max_steps=4)
    config = nn.AgentConfig(name="random", step=step, memory=layers, projection=policy)
    return nn.AgentHarness(config, model=model, ids=SeededIds()), model, rng


async def converse(seed: int) -> tuple[nn.Run, nn.ScriptedModel]:
    harness, model, rng = random_agent(seed)
    run = nn.record(harness)
    if rng.random() < 0.4:
        role = rng.choice(["system", "developer"])
        await_me = harness.seed(
            "t0", [input_message("Old rules.", role), input_message("hi"), assistant_message("yes")]
        )
        assert await_me is not None
    for turn in range(rng.randrange(1, 5)):
        with contextlib.suppress(nn.NoeticError):  # of an answer without items; its calls are recorded all the same
            await harness.execute(f"word{turn} " * rng.choice([1, 5, 60]), thread_id=rng.choice(["t0", "t0", "t1"]))
    return run, model


def check(run: nn.Run, model: nn.ScriptedModel) -> int:
    index = RequestIndex()
    for event in run.events:
        index.take(event)
    asked = [request for request in model.requests if request.purpose == "agent"]
    assert len(asked) == len(index.places)
    for at, request in zip(index.places, asked, strict=True):
        found = index.requests[at]
        view = found.view
        assert view is not None
        plan = found.replan()
        assert plan.as_event(view.where, view.t_ms, view.step, view.projection, view.appended) == view
        assert [sent.item for sent in found.items] == list(request.items)
        assert (found.instructions or None, found.tools and found.tools[0].name) == (
            request.instructions,
            request.tools[0].name if request.tools else (),
        )
    return len(asked)


@pytest.mark.parametrize("seed", range(60))
def test_a_plan_with_nothing_changed_is_the_recorded_one(seed: int, tmp_path: Path) -> None:
    run, model = asyncio.run(converse(seed))

    assert check(run, model) > 0
    run.save(tmp_path / "run.jsonl.gz")
    check(nn.load_run(tmp_path / "run.jsonl.gz"), model)
