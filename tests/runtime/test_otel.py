"""Turns as OpenTelemetry spans, read back from the SDK's in-memory exporter."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.interop._otel_export import OTelExporter
from noetic_nb.steps import fork, step
from noetic_nb.testing import drive_loop
from tests.runtime.factories import lookup, make_harness

sdk = pytest.importorskip("opentelemetry.sdk.trace")


def traced(harness: nn.AgentHarness, **options: Any) -> Any:
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    memory = InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    harness.subscribe(OTelExporter("desk", tracer_provider=provider, **options))
    return memory


def tree(spans: Any) -> dict[str, str | None]:
    names = {span.context.span_id: span.name for span in spans}
    return {span.name: names.get(span.parent.span_id) if span.parent else None for span in spans}


async def test_a_turn_is_a_tree_of_spans_in_the_words_of_the_conventions() -> None:
    harness = make_harness([nn.CallTool("lookup", order_id="A"), nn.Reply("Packed.", cost=0.5)], tools=[lookup],
                   memory=[nn.static_content("Be kind.", id="kind")])  # fmt: skip
    memory = traced(harness)

    await harness.execute("secret question")

    spans = {span.name: span for span in memory.get_finished_spans()}
    assert tree(memory.get_finished_spans()) == {
        "memory kind.init": None,  # the turn begins when its layers are ready
        "search_memory kind": "step react",
        "chat scripted": "step react",
        "execute_tool lookup": "step react",
        "step react": "step react-loop",
        "step react-loop": "invoke_agent desk",
        "invoke_agent desk": None,
    }
    turn, chat = spans["invoke_agent desk"].attributes, spans["chat scripted"].attributes
    assert turn["gen_ai.operation.name"] == "invoke_agent"
    assert turn["noetic.cost_usd"] == 0.5
    assert chat["gen_ai.usage.output_tokens"] > 0
    assert all(span.end_time >= span.start_time for span in spans.values())
    assert "secret" not in str([dict(span.attributes) for span in spans.values()])


async def test_a_hook_that_failed_shows_its_exception() -> None:
    def broken(params: Any) -> Any:
        raise ValueError("no such drawer")

    hooks = nn.MemoryHooks(recall=broken)
    harness = make_harness(["Hello!"], memory=[nn.MemoryLayer(id="notes", slot=1, scope="execution", hooks=hooks)])
    memory = traced(harness)

    await harness.execute("Hi")

    (span,) = [span for span in memory.get_finished_spans() if span.name == "search_memory notes"]
    (event,) = span.events
    assert (event.name, event.attributes["exception.type"]) == ("exception", "ValueError")
    assert event.attributes["exception.message"] == "no such drawer"
    assert "in broken" in event.attributes["exception.stacktrace"]


async def test_content_is_there_when_it_is_asked_for() -> None:
    harness = make_harness(["Hello!"])
    memory = traced(harness, capture_content=True)

    await harness.execute("Hi")

    turn = memory.get_finished_spans()[-1]
    assert [json.loads(turn.attributes[f"gen_ai.{way}.messages"]) for way in ("input", "output")] == [
        [{"role": "user", "parts": [{"type": "text", "content": "Hi"}]}],
        [{"role": "assistant", "parts": [{"type": "text", "content": "Hello!"}]}],
    ]


async def test_calls_and_memory_are_written_as_the_conventions_of_today_have_them() -> None:
    harness = make_harness([nn.CallTool("lookup", order_id="A"), "Packed."], tools=[lookup],
                   memory=[nn.static_content("Be kind.", id="kind"), nn.working_memory()])  # fmt: skip
    memory = traced(harness, capture_content=True)

    await harness.execute("Where is A?")

    spans = [dict(span.attributes) | {"name": span.name} for span in memory.get_finished_spans()]
    by_name = {span["name"]: span for span in spans}
    tool, recall = by_name["execute_tool lookup"], by_name["search_memory kind"]
    first, last = [span for span in spans if span["name"].startswith("chat")]
    assert json.loads(tool["gen_ai.tool.call.arguments"]) == {"order_id": "A"}
    assert json.loads(tool["gen_ai.tool.call.result"]) == {"order": "A", "state": "packed"}
    assert [part["type"] for message in json.loads(last["gen_ai.input.messages"]) for part in message["parts"]] == [
        "text",
        "tool_call",
        "tool_call_response",
    ]
    assert json.loads(first["gen_ai.output.messages"])[0]["finish_reason"] == "tool_calls"
    assert recall["gen_ai.operation.name"] == "search_memory"
    assert recall["gen_ai.memory.store.id"] == "kind"
    assert recall["gen_ai.memory.query.text"] == "Where is A?"
    assert ["Be kind." in record["content"] for record in json.loads(recall["gen_ai.memory.records"])] == [True]
    assert by_name["update_memory working-memory"]["gen_ai.operation.name"] == "update_memory"


async def test_children_hang_below_the_step_that_made_them() -> None:
    both = fork("both", mode="all", paths=[step.llm("a", model="m"), step.llm("b", model="m")], merge="last")
    harness = make_harness(lambda request: "ok", step=both)
    memory = traced(harness)

    await harness.execute("Hi")

    parents = tree(memory.get_finished_spans())
    assert (parents["step a"], parents["fork both"], parents["step both"]) == (
        "fork both",
        "step both",
        "invoke_agent desk",
    )


async def test_a_failure_is_an_error_of_its_span() -> None:
    harness = make_harness([nn.Fault("server_error")])
    memory = traced(harness)

    with pytest.raises(nn.NoeticError):
        await harness.execute("Hi")

    spans = {span.name: span for span in memory.get_finished_spans()}
    assert {name for name, span in spans.items() if not span.status.is_ok} == set(spans)
    assert not any(harness._hub._sinks[0]._open.values())


def test_steps_side_by_side_are_spans_side_by_side() -> None:
    harness = make_harness([])
    memory = traced(harness)

    async def later(value: Any, ctx: Any) -> None:
        await asyncio.sleep(value)

    async def both(value: Any, ctx: Any) -> None:
        await asyncio.gather(ctx.run(step.run("slow", later), 2), ctx.run(step.run("quick", later), 1))

    async def main() -> None:
        async with harness.execution() as ctx:
            await harness.run(step.run("outer", both), None, ctx)

    drive_loop(main())

    spans = {span.name: span for span in memory.get_finished_spans()}
    assert tree(spans.values()) == {"step quick": "step outer", "step slow": "step outer", "step outer": None}
    assert spans["step quick"].attributes["noetic.step.path"] == "/outer#1/quick#1"
