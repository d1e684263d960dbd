"""Our own runs as spans and back: the same turns, tools, usage and layers, with and without texts."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.events import ChildStarted, ModelCalled, StepEnded
from noetic_nb.interop import OTelExporter, runs_from_spans
from noetic_nb.runs import Run
from noetic_nb.steps import fork, step
from tests.interop.span_forms import as_otlp
from tests.runtime.factories import fails, lookup, make_harness

sdk = pytest.importorskip("opentelemetry.sdk.trace")

LAYERS = {
    "kind": lambda: nn.static_content("Be kind.", id="kind"),
    "working": lambda: nn.working_memory(scope="global"),
    "rules": lambda: nn.steering(rules()),
}
# For a run without its texts.
TEXTS = {"query", "text", "args", "raw_args", "output", "stopped"}


def rules() -> nn.RuleBook:
    book = nn.RuleBook()
    book.when('tool.args.order_id == "B"', id="no_b", guidance="Not B.")
    return book


ANSWERS = st.one_of(
    st.sampled_from(["A", "B", "né\"w\n'line"]).map(lambda order: nn.CallTool("lookup", order_id=order)),
    st.just(nn.CallTool("fails", reason="out of ink")),
    st.just(nn.CallTool("unknown_tool")),
    st.just(nn.CallTool("lookup", wrong="argument")),
)
LAST = st.one_of(
    st.text(min_size=1, max_size=20).filter(str.strip).map(nn.Reply),
    st.just(nn.Reply("Paid.", cost=0.25)),
    st.just(nn.Fault("server_error")),
)


def recorded(turns: list[list[Any]], layers: list[str], *, content: bool, **options: Any) -> tuple[Run, list[Any]]:
    """Return a run, and the spans exported from it."""
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    replies = [answer for turn in turns for answer in turn]
    harness = make_harness(replies, memory=[LAYERS[name]() for name in layers], tools=[lookup, fails], **options)
    harness.subscribe(OTelExporter("desk", tracer_provider=provider, capture_content=content))
    run = nn.record(harness)

    async def main() -> None:
        for number in range(len(turns)):
            with contextlib.suppress(nn.NoeticError):
                await harness.execute(f"question {number}", thread_id="t1")

    asyncio.run(main())
    return run, list(kept.get_finished_spans())


def rows(run: Run, table: str, *, content: bool) -> list[dict[str, Any]]:
    # The tokenizer is recorded with the other planning inputs, which spans do not carry.
    frame = run.to_frame(table).drop(columns=["run_id", "seq", "counter", "known_error"], errors="ignore")
    if not content:
        frame = frame.drop(columns=[name for name in frame.columns if name in TEXTS])
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


async def asked_before(storage: Any) -> None:
    """Give the caches a conversation that is in no run."""
    harness = make_harness(["An answer"], memory=[nn.working_memory(scope="global")], storage=storage)
    await harness.execute("An earlier question", thread_id="t0")


@given(
    st.lists(
        st.tuples(st.lists(ANSWERS, max_size=3), LAST).map(lambda turn: [*turn[0], turn[1]]), min_size=1, max_size=3
    ),
    st.lists(st.sampled_from(sorted(LAYERS)), unique=True),
    st.booleans(),
    st.sampled_from(["objects", "sdk json", "otlp"]),
)
def test_a_run_that_goes_out_as_spans_comes_back_the_same(
    turns: list[list[Any]], layers: list[str], content: bool, form: str
) -> None:
    asyncio.run(asked_before(storage := nn.InMemoryStorage()))
    run, spans = recorded(turns, layers, content=content, storage=storage)
    texts = [span.to_json() for span in spans]
    source = {"objects": spans, "sdk json": texts, "otlp": as_otlp([json.loads(text) for text in texts])}[form]

    found = runs_from_spans(source)

    assert len(found) == 1
    for table in ("turns", "tools", "spans", "allocations"):
        assert rows(found[0], table, content=content) == rows(run, table, content=content), table
    assert [(call.purpose, call.status, call.input_tokens, call.cost) for call in found[0].select(ModelCalled)] == [
        (call.purpose, call.status, call.input_tokens, call.cost) for call in run.select(ModelCalled)
    ]
    if content:
        assert found[0].log("t1") == run.log("t1")
    else:
        assert "question" not in "".join(texts)


def test_steps_and_children_come_back() -> None:
    both = fork("both", mode="all", paths=[step.llm("a", model="m"), step.llm("b", model="m")], merge="last")

    run, spans = recorded([[nn.Reply("1"), nn.Reply("2")]], [], content=True, step=both)
    again = runs_from_spans(spans)[0]

    assert [event.step_id for event in again.select(StepEnded)] == [event.step_id for event in run.select(StepEnded)]
    assert again.select(ChildStarted) == run.select(ChildStarted)
    assert again.turns[0].text == run.turns[0].text


def test_threads_are_runs_of_their_own() -> None:
    _, spans = recorded([[nn.Reply("1")]], [], content=True)
    _, more = recorded([[nn.Reply("2")]], [], content=True)
    for span in more:
        assert span.attributes["gen_ai.conversation.id"] == "t1"

    found = runs_from_spans([json.loads(span.to_json().replace('"t1"', '"t2"')) for span in more] + spans)

    assert sorted(run.run_id for run in found) == ["otel-t1", "otel-t2"]


def test_spans_of_ours_that_were_tampered_with_are_listed_and_the_rest_is_read() -> None:
    _, spans = recorded([[nn.CallTool("lookup", order_id="A"), nn.Reply("1")]], [], content=True)
    given = [json.loads(span.to_json()) for span in spans]
    tool = next(span for span in given if span["name"].startswith("execute_tool"))
    tool["attributes"]["noetic.event"] = '[1, {"kind": "tool_called", "name": 5}]'

    run = runs_from_spans(given)[0]

    assert len(run.turns) == 1
    assert [entry["what"] for entry in run.meta["unmapped"]] == ["an event cannot be read"]


def test_secrets_do_not_go_out_and_do_not_come_in() -> None:
    key = "sk-proj-" + "aB3dE6gH9jK2mN5pQ8sT"
    _, spans = recorded([[nn.CallTool("lookup", order_id=key), nn.Reply(f"It is {key}.")]], ["kind"], content=True)
    texts = [span.to_json() for span in spans]

    assert key not in "".join(texts)
    planted = [text.replace("[redacted]", key) for text in texts]
    run = runs_from_spans(planted)[0]
    assert key not in str(run.events[:]) + str(run.meta)
