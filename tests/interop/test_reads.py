"""Readers read the facts that they declare: the same work in each format, and the table in the docs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.events import ChildStarted, ContextCompacted, ModelCalled, ToolCalled
from noetic_nb.interop import _importing
from noetic_nb.interop._formats import atif, claude_code, codex, message_files
from noetic_nb.interop._formats.sources import FACTS
from noetic_nb.interop._traces import langfuse, langsmith, mlflow, weave
from tests.interop import test_agent_sessions as sessions
from tests.interop.test_atif import PAID, call, step, trajectory
from tests.interop.test_trace_exports import ANSWER, ASK, CALL, RESULT, SYSTEM, at

READERS = {each.FORMATS[0]: each for each in (atif, claude_code, codex, langsmith, langfuse, mlflow, weave)}
BEHAVIOUR = Path(__file__).parent.parent.parent / "docs" / "behaviour" / "interop.md"

# A conversation as records of a service: id, parent, kind, name, input, output.
TOOLS = [{"type": "function", "function": {"name": "weigh", "parameters": {"type": "object"}}}]
HELP = {"id": "c2", "type": "function", "function": {"name": "ask_helper", "arguments": '{"task": "Count."}'}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL, HELP]}
RECORDS: list[tuple[str, str | None, str, str, Any, Any]] = [
    ("root", None, "chain", "store", {"messages": [ASK]}, {"messages": [ANSWER]}),
    ("m1", "root", "llm", "model", {"messages": [SYSTEM, ASK], "tools": TOOLS}, CALLS),
    ("w", "root", "tool", "weigh", {"box": 4}, "scale is off"),
    ("h", "root", "tool", "ask_helper", {"task": "Count."}, "Nine."),
    ("ha", "h", "chain", "helper", {"messages": [{"role": "user", "content": "Count."}]}, {}),
    (
        "hm",
        "ha",
        "llm",
        "model",
        {"messages": [{"role": "user", "content": "Count."}]},
        {"role": "assistant", "content": "Nine."},
    ),
    ("s", "root", "chain", "SummarizationMiddleware.before_model", {}, {}),
    (
        "sm",
        "s",
        "llm",
        "model",
        {"messages": [{"role": "user", "content": "Sum up."}]},
        {"role": "assistant", "content": "A box."},
    ),
    (
        *("m2", "root", "llm", "model"),
        {"messages": [SYSTEM, ASK, CALLS, RESULT, {"role": "tool", "tool_call_id": "c2", "content": "Nine."}]},
        ANSWER,
    ),
]
USAGE = {"input": 50, "output": 9, "cached": 16, "written": 8, "reasoning": 4}


def completion(message: Any) -> dict[str, Any]:
    usage = {
        "prompt_tokens": 50,
        "completion_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 16, "cache_write_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    return {"model": "m1", "choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}


def as_langsmith(place: int, record: Any) -> dict[str, Any]:
    id, parent, kind, name, given, made = record
    about = {"id": id, "trace_id": "root", "parent_run_id": parent, "run_type": kind, "name": name, "inputs": given}
    about |= {"start_time": at(place), "end_time": at(20 if kind == "chain" else place + 0.5)}
    about |= {"outputs": completion(made) if kind == "llm" else {"output": made} if kind == "tool" else made}
    about |= {"error": made if id == "w" else None, "extra": {"metadata": {"ls_model_name": "m1"}}}
    return (
        about
        | ({"total_cost": 0.25} if kind == "llm" else {})
        | ({"feedback_stats": {"good": {"avg": 1.0}}} if parent is None else {})
    )


def as_langfuse(place: int, record: Any) -> dict[str, Any]:
    id, parent, kind, name, given, made = record
    types = {"llm": "GENERATION", "tool": "TOOL", "chain": "CHAIN"}
    about = {"id": id, "traceId": "t", "type": types[kind], "name": name, "parentObservationId": parent}
    about |= {
        "startTime": at(place),
        "endTime": at(20 if kind == "chain" else place + 0.5),
        "input": given,
        "output": made,
    }
    if kind == "llm":
        details = {
            "input": 26,
            "input_cached_tokens": 16,
            "input_cache_creation": 8,
            "output": 5,
            "output_reasoning_tokens": 4,
        }
        about |= {"model": "m1", "usageDetails": details, "costDetails": {"total": 0.25}}
    return about | ({"level": "ERROR", "statusMessage": made} if id == "w" else {})


def as_mlflow(place: int, record: Any) -> dict[str, Any]:
    id, parent, kind, name, given, made = record
    number = {each[0]: f"{at:016x}" for at, each in enumerate(RECORDS, 1)}
    types = {"llm": "CHAT_MODEL", "tool": "TOOL", "chain": "CHAIN"}
    about = {"mlflow.spanType": types[kind], "mlflow.spanInputs": given, "mlflow.llm.model": "m1"}
    about["mlflow.spanOutputs"] = completion(made) if kind == "llm" else made
    if kind == "llm":
        about["mlflow.llm.cost"] = {"total_cost": 0.25}
    start = 1_772_359_200_000_000_000 + place * 10**9
    end = start + 5 * 10**8 if kind != "chain" else 1_772_359_220_000_000_000
    return {
        "trace_id": f"{1:032x}", "span_id": number[id], "parent_span_id": parent and number[parent], "name": name,
        "start_time_unix_nano": start, "end_time_unix_nano": end,
        "status": {"code": "STATUS_CODE_ERROR", "message": made} if id == "w" else {"code": "STATUS_CODE_OK"},
        "attributes": {key: json.dumps(value) for key, value in about.items()},
    }  # fmt: skip


def as_weave(place: int, record: Any) -> dict[str, Any]:
    id, parent, kind, name, given, made = record
    kinds = {"llm": "llm", "tool": "tool", "chain": "chain"}
    about = {"id": id, "trace_id": "t", "parent_id": parent, "project_id": "p", "op_name": f"weave:///a/b/op/{name}:1"}
    about |= {"started_at": at(place), "ended_at": at(20 if kind == "chain" else place + 0.5), "inputs": given}
    about |= {"output": completion(made) if kind == "llm" else made, "attributes": {"weave": {"kind": kinds[kind]}}}
    costs = {"weave": {"costs": {"m1": {"prompt_tokens_total_cost": 0.25}}}} if kind == "llm" else {}
    feedback = [{"feedback_type": "good", "payload": {"value": True}}] if parent is None else None
    return about | {"summary": costs, "exception": made if id == "w" else None, "feedback": feedback}


def made(name: str, folder: Path) -> Path:
    """Write the conversation in a format, as its program or service does."""
    if name == "claude-code":
        path = sessions.with_helper(folder)
        boundary = {
            "type": "system",
            "subtype": "compact_boundary",
            "sessionId": "s-1",
            "uuid": "b",
            "compactMetadata": {},
        }
        text = path.read_text()
        for known in ("m1", "m2", "c1"):  # ids that the other part of the session also has
            text = text.replace(f'"{known}"', f'"helper-{known}"')
        return sessions.written(path, [*map(json.loads, text.splitlines()), boundary, *sessions.SESSION])
    if name == "codex":
        inner = [
            sessions.line("session_meta", id="r-2", parent_thread_id="r-1"),
            *sessions.HEAD[3:],
            sessions.message("assistant", "Nine."),
        ]
        spawn = sessions.line("response_item", type="function_call", name="spawn_agent", arguments="{}", call_id="c1")
        lines = [
            *(*sessions.HEAD, spawn, sessions.exec_call("c2", "ls nowhere")),
            sessions.line("token_usage_record", usage={**sessions.counts(100, 9, 16), "cache_write_input_tokens": 8}),
            *(sessions.output("c1", '{"agent_id":"r-2"}'), sessions.output("c2", "Process exited with code 2")),
            *(sessions.line("compacted", message="Go on."), sessions.message("assistant", "Nine.")),
        ]
        sessions.written(folder / "inner.jsonl", inner)
        return sessions.written(folder / "main.jsonl", lines)
    if name == "atif":
        inside = trajectory(step(1, "user", "Count."), step(2, "agent", "Nine."), trajectory_id="t-in")
        results = [
            {"source_call_id": "c1", "content": "scale is off", "extra": {"is_error": True}},
            {"source_call_id": "c2", "content": "Nine.", "subagent_trajectory_ref": [{"trajectory_id": "t-in"}]},
        ]
        calls = [call("c1", "weigh", box=4), call("c2", "ask_helper")]
        whole = trajectory(
            step(1, "system", "You keep the store.", timestamp="2026-03-01T10:00:00Z"),
            step(2, "user", "Is box 4 full?", timestamp="2026-03-01T10:00:01Z"),
            step(
                3,
                "agent",
                "",
                tool_calls=calls,
                observation={"results": results},
                metrics=PAID,
                timestamp="2026-03-01T10:00:02Z",
            ),
            step(
                4, "system", "A box.", extra={"context_compacted": {"by": "harbor"}}, timestamp="2026-03-01T10:00:03Z"
            ),
            step(5, "agent", "I cannot tell.", timestamp="2026-03-01T10:00:04Z"),
            subagent_trajectories=[inside],
            extra={"outcome": True},
        )
        whole["agent"]["tool_definitions"] = TOOLS
        return sessions.written(folder / "runs.jsonl", [whole])
    write: dict[str, Callable[[int, Any], Any]] = {
        "langsmith": as_langsmith,
        "langfuse": as_langfuse,
        "mlflow": as_mlflow,
        "weave": as_weave,
    }
    records = [write[name](place, each) for place, each in enumerate(RECORDS)]
    if name == "langfuse":
        scores = [{"name": "good", "value": 1}]
        records = [{"id": "t", "timestamp": at(0), "name": "store", "observations": records, "scores": scores}]
    if name == "mlflow":
        scores = [{"assessment_name": "good", "feedback": {"value": True}}]
        records = [{"info": {"trace_id": "tr-1", "assessments": scores}, "data": {"spans": records}}]
    return sessions.written(folder / "records.jsonl", records)


def facts(run: nn.Run) -> set[str]:
    """Return the facts that a run contains."""
    calls = [each for each in run.select(ModelCalled) if each.where.depth == 0]
    found = {
        "turns": len(run.turns) > 0,
        "model calls": len(calls) > 1,
        "tool calls": any(dict(each.args or {}) for each in run.select(ToolCalled)),
        "tokens": "input_tokens" not in run.meta["estimated"]
        or any(each.input_tokens in (50, 90, 100, 1503) for each in calls),
        "cached": any(each.cached_tokens for each in calls),
        "written": any(each.cache_write_tokens for each in calls),
        "reasoning": any(each.reasoning_tokens for each in calls),
        "costs": any(each.cost for each in calls) or bool(run.meta.get("cost")),
        "errors": any(each.status == "error" and each.error for each in run.select(ToolCalled)),
        "times": run.events[0].t_ms > 1e12,
        "labels": bool(run.meta.get("scores")) or run.meta.get("outcome") is not None,
        "children": len(run.select(ChildStarted)) == 1,
        "compactions": len(run.select(ContextCompacted)) == 1,
        "system prompt": bool(run.meta["policy"]),
        "tool definitions": bool(run.meta.get("tools")),
    }
    return {name for name, is_there in found.items() if is_there}


@pytest.mark.parametrize("name", READERS)
def test_a_reader_reads_what_it_declares_and_nothing_else(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(name, tmp_path)
    run = nn.import_run(path)
    found = facts(run)
    monkeypatch.setattr(_importing, "MAX_BYTES", 100)
    monkeypatch.setattr(message_files, "_PIECE", 64)
    # More than one line, because a single line is not a list of records.
    if len(path.read_text().splitlines()) == 1:
        path.write_text("[" + path.read_text() + "]")
    found |= {"any size"} if nn.import_run(path).events[:] == run.events[:] else set()

    assert found == READERS[name].READS


def reads_table(formats: Iterable[tuple[str, frozenset[str]]]) -> str:
    """Return the facts of formats as a Markdown table."""
    known = list(formats)
    lines = [f"| Read | {' | '.join([f'`{name}`' for name, _ in known])} |", f"|---|{'---|' * len(known)}"]
    lines += [f"| {fact} | {' | '.join(['yes' if fact in read else 'no' for _, read in known])} |" for fact in FACTS]
    return "\n".join(lines)


def test_the_table_in_the_docs_is_the_one_that_the_readers_declare() -> None:
    table = reads_table([(name, reader.READS) for name, reader in READERS.items()])
    assert table in BEHAVIOUR.read_text(encoding="utf-8")
    assert set(FACTS) >= {fact for reader in READERS.values() for fact in reader.READS}
