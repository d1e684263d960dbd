"""Spans of seven frameworks in five dialects as runs: their values are correct, and missing values are not made up."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticError
from noetic_nb.events import ModelCalled, ToolCalled
from noetic_nb.interop import runs_from_spans
from noetic_nb.interop._spans.import_spans import run_readers
from noetic_nb.runs import Run
from noetic_nb.runs._timeline.run_spans import Timeline
from tests.interop.replayed_spans import nanoseconds
from tests.interop.span_forms import as_otlp, as_otlp_lines, as_sdk_objects

CAPTURES = Path(__file__).parent.parent / "fixtures" / "spans"
BEHAVIOUR = Path(__file__).parents[2] / "docs" / "behaviour" / "interop.md"
ABSENT = "not in the dialect"
ASKED, ANSWERED = "Where are A17 and B7?", "A17 is packed, B7 does not exist."
A17, B7 = {"order_id": "A17"}, {"order_id": "B7"}
PACKED = '{"order": "A17", "state": "packed"}'
FIXED = "Error: ValueError('no such order')\n Please fix your mistakes."
ANONYMOUS = "An error occurred while running the tool. Please try again."

# capture: turns, model calls, tool calls, arguments, results, errors, usage (of the calls; of the turn).
TABLE: dict[str, tuple[Any, ...]] = {
    "pydantic-ai-vdefault": (
        (ASKED, ANSWERED),
        3,
        2,
        [A17, B7],
        ['{"order":"A17","state":"packed"}', "no such order"],
        "no such order",
        ([(55, 5), (61, 10), (67, 18)], (183, 33)),
    ),
    "langgraph-otel": (
        (ASKED, ANSWERED),
        3,
        2,
        [A17, B7],
        [PACKED, FIXED],
        "no such order",
        ([(120, 8)] * 3, (360, 24)),
    ),
    "langgraph-oi": (
        (ASKED, ANSWERED),
        3,
        2,
        [A17, B7],
        [PACKED, FIXED],
        "no such order",
        ([(120, 8)] * 3, (360, 24)),
    ),
    "smolagents-oi": (
        (ASKED, ANSWERED),
        ABSENT,
        3,
        [A17, B7, {"answer": ANSWERED}],
        [PACKED, "", ANSWERED],
        "no such order",
        ([], (360, 24)),
    ),
    "openai-agents-oi": (("", ""), ABSENT, 2, [A17, B7], [PACKED, ANONYMOUS], "Error running tool (non-fatal)", ABSENT),
    "strands-default": (
        (ASKED, ANSWERED),
        3,
        2,
        [A17, B7],
        [PACKED, "Error: no such order"],
        "no such order",
        ([(120, 8)] * 3, (360, 24)),
    ),
    "strands-gen_ai_latest_experimental": (
        (ASKED, ANSWERED),
        3,
        2,
        [A17, B7],
        [PACKED, "Error: no such order"],
        "no such order",
        ([(120, 8)] * 3, (360, 24)),
    ),
    "google-adk": (
        (ASKED, ANSWERED),
        3,
        2,
        [A17, B7],
        ['{"order":"A17","state":"packed"}', '{"error":"no such order"}'],
        '{"error":"no such order"}',
        ([(120, 8)] * 3, (360, 24)),
    ),
    "autogen": (("", ""), ABSENT, 2, ABSENT, ABSENT, "no such order", ABSENT),
}


def capture(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CAPTURES / f"{name}.json").read_text())
    return found


def only(runs: tuple[Run, ...]) -> Run:
    assert len(runs) == 1
    return runs[0]


def check(run: Run, name: str) -> None:
    turns, models, tools, arguments, results, error, usage = TABLE[name]
    calls, used = run.select(ToolCalled), run.select(ModelCalled)
    assert [(turn.query, turn.text, turn.outcome) for turn in run.turns] == [(*turns, "success")]
    assert len(run.threads) == 1
    assert len(used) == (0 if models is ABSENT else models)
    assert [call.name for call in calls[:2]] == ["lookup", "lookup"]
    assert len(calls) == tools == len({call.call_id for call in calls})
    assert [call.args for call in calls] == ([None] * tools if arguments is ABSENT else arguments)
    assert [call.output for call in calls] == ([""] * tools if results is ABSENT else results)
    assert [call.status for call in calls[:2]] == ["ok", "error"]
    assert (calls[1].error or "").startswith(error)
    assert all(call.duration_ms is not None and call.duration_ms > 0 for call in calls)
    each, total = ([], (None, None)) if usage is ABSENT else usage
    assert [(call.input_tokens, call.output_tokens) for call in used] == each
    assert (run.turns[0].input_tokens, run.turns[0].output_tokens) == total
    assert run.turns[0].cost is None or not used
    assert run.meta["source"] == "otel"
    assert run.meta["estimated"] == (["input_tokens", "output_tokens"] if usage is ABSENT else [])
    assert run.meta["unmapped"] == []


@pytest.mark.parametrize("name", TABLE)
def test_every_cell_of_the_table_is_right_or_not_in_the_dialect(name: str) -> None:
    check(only(runs_from_spans(CAPTURES / f"{name}.json")), name)


@pytest.mark.parametrize("name", TABLE)
def test_a_turn_and_its_timeline_take_as_long_as_the_agent_and_hold_its_spans(name: str) -> None:
    run, spans = only(runs_from_spans(CAPTURES / f"{name}.json")), capture(name)["spans"]
    timeline = Timeline()
    for seq, event in enumerate(run.events):
        timeline.take(event, seq)

    took = {
        each["context"]["span_id"]: nanoseconds(each["end_time"]) - nanoseconds(each["start_time"]) for each in spans
    }
    [turn] = run.to_frame("turns").duration_ms
    assert timeline.time.until - timeline.time.origin == pytest.approx(turn, abs=0.01)
    assert turn == max(took.values()) / 1e6
    durations = Counter(round((span.duration_ms or 0) * 1_000) for span in timeline.spans)
    assert durations <= Counter(each // 1_000 for each in took.values())
    kept = [each for each in spans if each["attributes"].get("gen_ai.operation.name") != "create_agent"]
    assert len(timeline.spans) == len(kept)


def test_nodes_are_inside_of_each_other_as_their_spans_are() -> None:
    timeline = Timeline()
    for seq, event in enumerate(only(runs_from_spans(CAPTURES / "langgraph-otel.json")).events):
        timeline.take(event, seq)

    first = [(span.depth, span.kind, span.name) for span in timeline.spans[:10]]
    assert first == [
        (0, "turn", "turn 1"),
        (1, "step", "LangGraph.workflow"),
        (2, "step", "agent"),
        (3, "step", "call_model"),
        (3, "step", "RunnableSequence"),
        (4, "step", "Prompt"),
        (4, "model", "unknown"),
        (3, "step", "should_continue"),
        (2, "step", "tools"),
        (3, "tool", "lookup"),
    ]


def test_every_capture_is_in_the_table() -> None:
    assert {path.stem for path in CAPTURES.iterdir()} == set(TABLE)


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("form", [as_otlp, as_otlp_lines, as_sdk_objects], ids=["otlp", "otlp lines", "objects"])
def test_the_form_that_spans_come_in_changes_nothing(name: str, form: Callable[[Any], Any]) -> None:
    found = capture(name)

    run = only(runs_from_spans(form(found["spans"]), logs=found["logs"]))

    check(run, name)
    assert run == only(runs_from_spans(found))


@pytest.mark.parametrize("name", TABLE)
def test_files_of_spans_are_recognised(name: str, tmp_path: Path) -> None:
    found = capture(name)
    documents = {
        "otlp.json": as_otlp(found["spans"], found["logs"]),
        "otlp.jsonl": as_otlp_lines(found["spans"], found["logs"]),
        "console.json": "\n".join([json.dumps(span, indent=4) for span in found["spans"]]),
        "list.json": json.dumps(found["spans"]),
    }
    for file, text in documents.items():
        (tmp_path / file).write_text(text)

    whole = nn.import_run(CAPTURES / f"{name}.json")

    assert whole == only(runs_from_spans(found)) == nn.import_run(found)
    for file in ("otlp.json", "otlp.jsonl"):
        assert nn.import_run(tmp_path / file) == nn.import_run(tmp_path / file, format="otel") == whole
    if not found["logs"]:
        assert nn.import_run(tmp_path / "console.json") == nn.import_run(tmp_path / "list.json") == whole


@pytest.mark.parametrize("name", TABLE)
def test_the_order_in_which_spans_come_and_their_copies_change_nothing(name: str) -> None:
    found = capture(name)
    spans = found["spans"]

    run = only(runs_from_spans([*spans[::-1], *spans], logs=found["logs"]))

    again = only(runs_from_spans(found))
    assert run.turns == again.turns
    assert run.events[:] == again.events[:]


@pytest.mark.parametrize("name", TABLE)
def test_a_run_of_spans_is_saved_shown_and_replayed_as_any_other(name: str, tmp_path: Path) -> None:
    run = only(runs_from_spans(CAPTURES / f"{name}.json"))

    run.save(tmp_path / "run.jsonl.gz")

    assert nn.load_run(tmp_path / "run.jsonl.gz") == run
    assert len(run.to_frame("tools")) == TABLE[name][2]
    assert run.to_messages("openai")


def test_a_file_that_is_too_large_says_how_to_split_it_and_its_parts_give_the_same_runs(tmp_path: Path) -> None:
    whole, parts = tmp_path / "spans.jsonl", tmp_path / "parts"
    parts.mkdir()
    spans = [
        {**span, "context": {**span["context"], "trace_id": f"0x{number:032x}"}}
        for number in (1, 2, 3)
        for span in capture("smolagents-oi")["spans"]
    ]
    random.Random(0).shuffle(spans)
    whole.write_text("".join([json.dumps(span) + "\n" for span in spans]))

    with pytest.raises(NoeticError) as caught:
        list(run_readers(whole, max_bytes=whole.stat().st_size - 1))
    assert "nn.import_runs" in caught.value.hint

    section = BEHAVIOUR.read_text().partition(re.search('"(.+)"', caught.value.hint)[1])[2]  # type: ignore[index]
    known: dict[str, Any] = {"re": re}
    exec(section.partition("```python")[2].partition("```")[0], known)
    known["split"](whole, parts)
    found = sorted(nn.import_runs(parts), key=lambda run: run.run_id)
    assert len(found) == 3
    assert [run.events for run in found] == [
        run.events for run in sorted(runs_from_spans(whole), key=lambda run: run.run_id)
    ]


@pytest.mark.parametrize("name", ["smolagents-oi", "google-adk"])
def test_a_damaged_line_of_spans_is_listed_and_the_others_are_read(name: str, tmp_path: Path) -> None:
    found = capture(name)
    lines = as_otlp_lines(found["spans"], found["logs"]).splitlines()
    whole, path = only(runs_from_spans(found)), tmp_path / "spans.jsonl"

    for at in range(len(lines) + 1):
        path.write_text("\n".join([*lines[:at], lines[0][:-30], *lines[at:]]))
        run = nn.import_run(path)
        noted = [each for each in run.meta["unmapped"] if "cannot be read" in each["what"]]
        assert (run.turns, len(noted)) == (whole.turns, 1)

    spans = [*found["spans"], {"name": "no span"}, 7]
    run = only(runs_from_spans(spans, logs=found["logs"]))
    assert run.turns == whole.turns
    assert [each["value"] for each in run.meta["unmapped"] if "cannot be read" in each["what"]] == [
        {"name": "no span"},
        7,
    ]
