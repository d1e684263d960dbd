"""Five different token counts are the same in every file, table, export and view."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.events import ContextCompacted, ModelCalled, TurnCompleted
from noetic_nb.interop import OTelExporter, import_run, runs_from_spans
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.models import Usage
from noetic_nb.models._pricing import cost_of
from noetic_nb.runs import Run, load_run
from tests.runs.factories import where

SPECIAL = ("cached_tokens", "cache_write_tokens", "reasoning_tokens")
PARTS = st.integers(1, 10**6) | st.none()


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    """Return counts that all differ, and are nested as documented; the parts may be unknown."""
    read, written, thought = draw(st.tuples(PARTS, PARTS, PARTS))
    sent = (read or 0) + (written or 0) + draw(st.integers(1, 10**6))
    made = (thought or 0) + draw(st.integers(1, 10**6))
    known = [count for count in (sent, made, read, written, thought) if count is not None]
    return draw(st.just(Usage(sent, made, read, written, thought)).filter(lambda _: len({*known}) == len(known)))


def recorded(usages: list[Usage], *subscribers: Callable[[Any], Any]) -> Run:
    """Return a run of one turn for each usage."""
    config = nn.AgentConfig(name="desk", step=nn.react(model="claude-sonnet-4-5"))
    harness = nn.AgentHarness(config, model=nn.ScriptedModel([nn.Reply("Yes.", usage=usage) for usage in usages]))
    for subscriber in subscribers:
        harness.subscribe(subscriber)
    run = nn.record(harness)
    for _ in usages:
        nn.run_sync(harness.execute("And?", thread_id="t1"))
    return run


def counts(run: Run) -> list[Usage]:
    return [Usage(*call.counts) for call in run.select(ModelCalled)]


@given(given=st.lists(usages(), min_size=1, max_size=3))
@settings(max_examples=10)
def test_files_and_replays_keep_all_kinds(given: list[Usage], tmp_path_factory: pytest.TempPathFactory) -> None:
    run = recorded(given)

    assert counts(run) == given
    assert counts(load_run(run.save(tmp_path_factory.mktemp("run") / "run.jsonl.gz"))) == given
    assert counts(nn.lab.replay(run)) == given
    assert counts(import_run(run.to_atif())) == given


@given(given=st.lists(usages(), min_size=1, max_size=3))
@settings(max_examples=10)
def test_tables_have_all_kinds_and_say_for_how_many_calls_they_are_known(given: list[Usage]) -> None:
    run = recorded(given)
    # As a reader of the CSV file gets them.
    tokens, turns = [pandas.read_csv(io.StringIO(run.to_frame(name).to_csv())) for name in ("tokens", "turns")]

    assert tokens.reported.to_list() == [usage.input_tokens for usage in given]
    assert run.caching().groupby("call").reported.first().astype(object).to_list() == pytest.approx(
        [float("nan") if usage.cached_tokens is None else usage.cached_tokens for usage in given], nan_ok=True
    )
    for frame, names in ((tokens, ("output_tokens", *SPECIAL)), (turns, ("input_tokens", "output_tokens", *SPECIAL))):
        for name in names:
            expected = [getattr(usage, name) for usage in given]
            assert frame[name].astype(object).where(frame[name].notna(), None).to_list() == expected, name
    for name in SPECIAL:
        assert turns[f"{name}_known"].to_list() == [int(getattr(usage, name) is not None) for usage in given]


def test_a_sum_counts_what_is_known_and_its_calls() -> None:
    calls = [
        ModelCalled(where(1), 1.0, 0, "m", "agent", 1.0, "ok", (), 900, 40, cached_tokens=500, reasoning_tokens=7),
        ModelCalled(where(1), 2.0, 1, "m", "agent", 1.0, "ok", (), 950, 50, cached_tokens=0),
        ModelCalled(where(1), 3.0, 2, "m", "agent", 1.0, "ok", (), 990, 60),
    ]

    row = Run("r", events=calls).to_frame("turns").iloc[0]

    assert [row[f"{name}_known"] for name in SPECIAL] == [2, 0, 1]
    assert (row.cached_tokens, row.reasoning_tokens) == (500, 7)
    assert pandas.isna(row.cache_write_tokens)


@pytest.mark.parametrize("content", [False, True])
@given(given=st.lists(usages(), min_size=1, max_size=3))
@settings(max_examples=5)
def test_spans_carry_all_kinds_to_us_and_to_others(content: bool, given: list[Usage]) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    recorded(given, OTelExporter("desk", tracer_provider=provider, capture_content=content))
    spans = kept.get_finished_spans()

    (ours,) = runs_from_spans(spans)
    told = [json.loads(span.to_json()) for span in spans]
    for span in told:
        span["attributes"] = {key: value for key, value in span["attributes"].items() if not key.startswith("noetic.")}
    (theirs,) = runs_from_spans(told)

    assert counts(ours) == given
    assert counts(theirs) == given


def messages(format: str, usage: Usage) -> list[dict[str, Any]]:
    """Return a question and an answer with usage in the format of a provider or framework."""
    sent, made, read, written, thought = usage
    fresh = sent - (read or 0) - (written or 0)

    def told(**named: int | None) -> dict[str, int]:
        return {name: value for name, value in named.items() if value is not None}

    if format == "openai":
        about = {
            "prompt_tokens": sent,
            "completion_tokens": made,
            "prompt_tokens_details": told(cached_tokens=read, cache_write_tokens=written),
            "completion_tokens_details": told(reasoning_tokens=thought),
        }
        return [{"role": "user", "content": "And?"}, {"role": "assistant", "content": "Yes.", "usage": about}]
    if format == "anthropic":
        about = told(
            input_tokens=fresh,
            output_tokens=made,
            cache_read_input_tokens=read,
            cache_creation_input_tokens=written,
        )
        about = {**about, "output_tokens_details": told(thinking_tokens=thought)}
        text = [{"type": "text", "text": "Yes."}]
        return [{"role": "user", "content": "And?"}, {"role": "assistant", "content": text, "usage": about}]
    if format == "langchain":
        about = {
            "input_tokens": sent,
            "output_tokens": made,
            "total_tokens": sent + made,
            "input_token_details": told(cache_read=read, cache_creation=written),
            "output_token_details": told(reasoning=thought),
        }
        return [{"type": "human", "content": "And?"}, {"type": "ai", "content": "Yes.", "usage_metadata": about}]
    details = told(reasoning_tokens=thought)
    about = told(input_tokens=sent, output_tokens=made, cache_read_tokens=read, cache_write_tokens=written)
    parts = [{"part_kind": "text", "content": "Yes."}]
    return [
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "And?"}]},
        {"kind": "response", "parts": parts, "usage": {**about, "details": details}},
    ]


@pytest.mark.parametrize("format", ["openai", "anthropic", "langchain", "pydantic-ai"])
@given(usage=usages())
@settings(max_examples=10)
def test_messages_of_others_are_read_with_all_kinds(format: Any, usage: Usage) -> None:
    run = Run.from_messages(messages(format, usage), format=format)

    assert counts(run) == [usage]
    assert run.meta["estimated"] == [name for name in run.meta["estimated"] if not name.endswith("_tokens")]


@given(usage=usages())
@settings(max_examples=10)
def test_the_transcript_shows_every_known_count(usage: Usage) -> None:
    run = recorded([usage])

    with nn.widgets.Transcript(run) as shown:
        page = shown.to_html()

    assert all(f"{count:,}" in page for count in usage if count)


def test_prices_tell_the_kinds_apart() -> None:
    pytest.importorskip("genai_prices")

    def cost(*counts: int | None) -> float:
        found = cost_of(Usage(*counts), model="claude-sonnet-4-5")  # type: ignore[arg-type]
        assert found is not None
        return found

    assert cost(1_000, 100, 400) < cost(1_000, 100) < cost(1_000, 100, None, 400)
    assert cost(1_000, 100, 400) < cost(1_000, 100, 400, 300) < cost(1_000, 100, None, 300)
    # Reasoning is part of the output and has its price.
    assert cost(1_000, 100, None, None, 90) == cost(1_000, 100)


def test_compactions_show_all_kinds_of_what_they_were_billed_beside_the_calls() -> None:
    usage = Usage(1_009, 211, 307, 401, 103)
    event = ContextCompacted(where(1), 1.0, "summary", 4, (), 900, 80, model="m", usage=FrozenDict(usage._asdict()))

    row = Run("r", events=[event]).to_frame("compactions").iloc[0]

    assert [row[name] for name in Usage._fields] == list(usage)


def test_a_turn_of_which_nobody_counted_anything_has_no_sums() -> None:
    ended = TurnCompleted(where(1), 2.0, "turn-1", "success", 1.0, "Packed.", None, None, None, 0, 1)

    row = Run("r", events=[ended]).to_frame("turns").iloc[0]

    assert row[list(SPECIAL)].isna().all()
    assert [row[f"{name}_known"] for name in SPECIAL] == [0, 0, 0]
