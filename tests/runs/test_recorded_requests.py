"""A recorded call is planned again: exactly as before, or with other numbers."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ModelCalled, RequestPrepared, Where
from noetic_nb.items import assistant_message, input_message
from noetic_nb.memory import MemoryHooks, MemoryLayer, ProjectionPolicy
from noetic_nb.runs._requests.recorded_requests import RequestIndex, recorded_request
from noetic_nb.testing import SeededIds
from tests.matrix import matrix


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
        with contextlib.suppress(nn.NoeticError):  # answers without items fail; their calls are recorded nevertheless
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
        assert plan.as_event(view.where, view.t_ms, view.step, view.projection, view.appended, view.duration_ms) == view
        assert [sent.item for sent in found.items] == list(request.items)
        assert (found.instructions or None, found.tools and found.tools[0].name) == (
            request.instructions,
            request.tools[0].name if request.tools else (),
        )
    return len(asked)


@matrix("seed", range(60), keep=15)
def test_a_plan_with_nothing_changed_is_the_recorded_one(seed: int, tmp_path: Path) -> None:
    run, model = asyncio.run(converse(seed))

    assert check(run, model) > 0
    run.save(tmp_path / "run.jsonl.gz")
    check(nn.load_run(tmp_path / "run.jsonl.gz"), model)


def desk(model: Any, **options: Any) -> nn.AgentHarness:
    step = nn.react(model="m", tools=[search], **options)
    return nn.AgentHarness(nn.AgentConfig(name="desk", step=step), model=model, ids=SeededIds())


def test_what_requests_have_in_common_is_recorded_once_an_execution_and_again_where_it_changed() -> None:
    moods = iter(["calm", "calm", "hasty", "calm"])
    answers = [nn.CallTool("search", query="a"), nn.CallTool("search", query="b"), "Done.", "Hello."]
    harness = desk(nn.ScriptedModel(answers), instructions=lambda ctx: f"Be {next(moods)}.")
    run = nn.record(harness)

    for _ in range(2):
        asyncio.run(harness.execute("Hi", thread_id="t"))

    found = run.select(RequestPrepared)
    assert [(event.where.turn, event.instructions) for event in found] == [
        (1, "Be calm."),
        (1, "Be hasty."),
        (2, "Be calm."),
    ]
    assert [recorded_request(run, call).instructions for call in range(4)] == [
        "Be calm.", "Be calm.", "Be hasty.", "Be calm.",
    ]  # fmt: skip
    assert found[0].tools[0].parameters["properties"]["password"]["default"] == "none"


def test_a_recording_that_begins_within_an_execution_has_what_it_needs_to_plan_the_calls_after_it() -> None:
    late = nn.Run()

    def answer(request: Any) -> Any:
        if len(model.requests) == 1:
            nn.record(harness, run=late)
            return nn.CallTool("search", query="a")
        return "Done."

    model = nn.ScriptedModel(answer)
    harness = desk(model, instructions="Be calm.")
    nn.record(harness)
    asyncio.run(harness.execute("Hi"))

    request = recorded_request(late, -1)
    assert request.instructions == "Be calm."
    with pytest.raises(NoeticConfigError, match="the first 1 items of the log") as caught:
        request.replan()
    assert caught.value.code == "NOT_RECORDED"
    assert [(sent.item is None, sent.position) for sent in request.items] == [(True, 0), (False, 1), (False, 2)]


def test_a_saved_run_has_no_secrets_in_what_requests_have_in_common_and_says_that_texts_are_gone(
    tmp_path: Path,
) -> None:
    secret = "sk-proj-" + "a1B2" * 8
    harness = desk(nn.ScriptedModel(["Done."]), instructions=f"Use {secret}.")
    run = nn.record(harness)
    asyncio.run(harness.execute(f"My key is {secret}, keep it."))

    run.save(tmp_path / "run.jsonl.gz")
    loaded = nn.load_run(tmp_path / "run.jsonl.gz")

    assert secret not in str(loaded.events[:])
    assert recorded_request(run, 0).replan().system > 0
    with pytest.raises(NoeticConfigError, match="secrets were removed") as caught:
        recorded_request(loaded, 0).replan()
    assert caught.value.code == "NOT_RECORDED"


def test_a_run_without_what_is_needed_says_what_it_lacks() -> None:
    harness = desk(nn.ScriptedModel(["Done."]))
    run = nn.record(harness)
    asyncio.run(harness.execute("Hi"))
    older = nn.Run(events=[event for event in run.events if not isinstance(event, RequestPrepared)])
    imported = nn.Run.from_messages([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}])

    for found, what in ((older, "instructions, tools and budgets"), (imported, "imported runs have none")):
        with pytest.raises(NoeticConfigError, match=what):
            recorded_request(found, 0).replan()


def test_a_call_is_found_by_its_event_and_in_its_thread() -> None:
    harness = desk(nn.ScriptedModel(["One.", "Two.", "Three."]))
    run = nn.record(harness)
    for thread in ("a", "b", "a"):
        asyncio.run(harness.execute("Hi", thread_id=thread))
    called = run.select(ModelCalled)

    assert recorded_request(run, called[1]).place == 1
    assert recorded_request(run, -1).called is called[2]
    assert recorded_request(run, 1, thread_id="a").called is called[2]
    for call in (3, -4, True, "0", None, 1.0, ModelCalled(Where("x", "e", 1), 0.0, 0, "m", "agent", 1.0, "ok")):
        with pytest.raises(NoeticConfigError) as caught:
            recorded_request(run, call)  # type: ignore[arg-type]
        assert caught.value.code == "UNKNOWN_CALL"


def test_another_tokenizer_is_named_and_can_be_given() -> None:
    def words(text: str) -> int:
        return len(text.split())

    config = nn.AgentConfig(name="desk", step=nn.react(model="m", instructions="Be calm."))
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Done."]), tokenizer=words)
    run = nn.record(harness)
    asyncio.run(harness.execute("Hi"))

    with pytest.raises(NoeticConfigError, match="pass it as tokenizer="):
        recorded_request(run, 0).replan()
    assert recorded_request(run, 0, tokenizer=words).replan(total=10).system == 2


def test_a_child_is_planned_from_its_own_log() -> None:
    child = nn.step.spawn("look", nn.step.llm("ask", model="m"))
    harness = nn.AgentHarness(
        nn.AgentConfig(name="desk", step=child), model=nn.ScriptedModel(["Found it."]), ids=SeededIds()
    )
    run = nn.record(harness)
    asyncio.run(harness.execute("Where is it?"))

    request = recorded_request(run, 0)

    assert request.where.depth == 1
    assert (
        request.replan().as_event(
            request.where, request.view.t_ms, request.view.step, duration_ms=request.view.duration_ms
        )
        == request.view
    )
