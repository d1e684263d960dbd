"""Our own compactions: the run records the replaced part of the context, the mechanism, and the cost."""

from __future__ import annotations

from typing import Any

import noetic_nb as nn
from noetic_nb.events import ContextCompacted
from noetic_nb.runs import Run


async def compacted(model: Any, *, memory: Any = (), tools: Any = (), turns: int = 4, **policy: Any) -> Run:
    config = nn.AgentConfig(
        name="desk",
        step=nn.react(model="m", tools=list(tools)),
        memory=list(memory),
        projection=nn.ProjectionPolicy(**{"token_budget": 100_000, **policy}),
    )
    scripted = model if isinstance(model, nn.ScriptedModel) else nn.ScriptedModel(model)
    harness = nn.AgentHarness(config, model=scripted)
    run = nn.record(harness)
    for number in range(turns):
        await harness.execute(f"question {number}: " + "word " * 60, thread_id="t1")
    return run


async def test_a_summary_of_the_projection_is_recorded_once_for_each_that_is_written() -> None:
    def answer(request: nn.ModelRequest) -> str:
        return "They asked many questions." if request.purpose == "summary" else "Yes. " * 40

    run = await compacted(answer, turns=6, token_budget=900, response_reserve=100, overflow="summarize")

    events = run.select(ContextCompacted)
    assert events
    assert {event.by for event in events} == {"summary"}
    for event in events:
        assert event.replaced == ((0, event.items_removed),)
        assert event.tokens_before > event.tokens_after > 0
        assert nn.items.item_text(event.items[0]) == "They asked many questions."
    frame = run.to_frame("compactions")
    assert list(frame["by"]) == ["summary"] * len(events)
    assert not frame["opaque"].any()


async def test_results_that_are_cleared_are_named_once() -> None:
    @nn.tool
    def read(name: str) -> str:
        """Read."""
        return f"{name}: " + "line " * 300

    def answer(request: nn.ModelRequest) -> Any:
        is_new = request.items[-1]["type"] == "message"
        return nn.CallTool("read", name="a") if is_new else "Read."

    layer = nn.layers.tool_result_clearing(200, clear_at_least=100, keep=1)
    run = await compacted(answer, memory=[layer], tools=[read], turns=4)

    events = run.select(ContextCompacted)
    assert events
    log = run.log("t1")
    places = [start for event in events for start, stop in event.replaced if stop == start + 1]
    assert len(places) == len(set(places)) == sum(event.items_removed for event in events)
    assert {log[place]["type"] for place in places} == {"function_call_output"}
    assert all(event.tokens_before > event.tokens_after for event in events)
    assert {event.by for event in events} == {"tool-result-clearing"}


async def test_observations_stand_for_the_texts_they_were_made_of() -> None:
    layer = nn.layers.observational_memory(lambda texts: [f"{len(texts)} texts"], buffer_threshold=60)
    run = await compacted(nn.ScriptedModel(lambda request: "Yes."), memory=[layer], turns=3)

    events = run.select(ContextCompacted)
    assert events
    for event in events:
        assert nn.items.item_text(event.items[0]) == f"{event.items_removed} texts"
        assert event.by == "observational-memory"


async def test_a_run_without_compaction_has_an_empty_table() -> None:
    run = await compacted(nn.ScriptedModel(lambda request: "Yes."), turns=1)
    assert run.select(ContextCompacted) == ()
    assert len(run.to_frame("compactions")) == 0
