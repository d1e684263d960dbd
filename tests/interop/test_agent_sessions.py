"""Claude Code sessions and Codex rollouts: turns, calls, repeated usage, sub-agents, compactions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticError
from noetic_nb.events import (
    ChildEnded,
    ChildStarted,
    ContextCompacted,
    ModelCalled,
    ToolCalled,
    TurnCompleted,
    TurnStarted,
)
from noetic_nb.items import item_text

USAGE = {
    "input_tokens": 3,
    "cache_creation_input_tokens": 500,
    "cache_read_input_tokens": 1_000,
    "output_tokens": 40,
    "output_tokens_details": {"thinking_tokens": 8},
}


def written(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


# Claude Code


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": role, "content": content, **more.pop("message", {})}
    line = {"type": role, "sessionId": "s-1", "uuid": f"u{id(content)}", "isSidechain": False, "version": "2.1"}
    return {**line, "timestamp": "2026-05-01T08:00:00Z", "message": message, **more}


def block(name: str, content: Any, **more: Any) -> dict[str, Any]:
    about = {"id": name, "model": "claude-x", "usage": USAGE, "stop_reason": "tool_use"}
    return said("assistant", [content], message=about, **more)


def result(call_id: str, text: str, *, failed: bool = False, **more: Any) -> dict[str, Any]:
    inside = {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": failed}
    return said("user", [inside], **more)


def use(call_id: str, name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


SESSION = [
    {"type": "mode", "sessionId": "s-1", "mode": "default"},
    said("user", "Count the chairs."),
    block("m1", {"type": "thinking", "thinking": "There is a list."}),
    block("m1", use("c1", "Read", path="chairs.txt")),
    result("c1", "4 chairs"),
    block("m1", use("c2", "Read", path="tables.txt")),
    result("c2", "no such file", failed=True),
    block("m2", {"type": "text", "text": "Four chairs."}),
    said("user", "<command-name>/clear-screen</command-name>"),
    said("user", "A note of the program.", isMeta=True),
    said("user", "And tables?"),
    block("m3", {"type": "text", "text": "No tables."}),
    {"type": "cost-state", "sessionId": "s-1", "totalCostUSD": 0.5, "modelUsage": {}},
]


def test_lines_of_one_answer_are_one_call_whose_usage_counts_once(tmp_path: Path) -> None:
    run = nn.import_run(written(tmp_path / "s.jsonl", SESSION))

    calls = run.select(ModelCalled)
    assert [call.counts for call in calls] == [(1_503, 40, 1_000, 500, 8)] * 3
    assert [(turn.query, turn.text) for turn in run.turns] == [
        ("Count the chairs.", "Four chairs."),
        ("And tables?", "No tables."),
    ]
    assert [(each.name, each.status) for each in run.select(ToolCalled)] == [("Read", "ok"), ("Read", "error")]
    assert run.meta["source"] == "claude-code"
    assert run.cost() == 0.5
    assert {each["place"] for each in run.meta["unmapped"]} >= {"mode"}


def test_a_compaction_is_no_turn(tmp_path: Path) -> None:
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "sessionId": "s-1",
        "uuid": "b",
        "compactMetadata": {"trigger": "manual", "preTokens": 9_000, "postTokens": 700},
    }
    summary = said("user", "The chairs were counted: four.", isCompactSummary=True)
    lines = [*SESSION[:8], boundary, summary, *SESSION[10:]]
    run = nn.import_run(written(tmp_path / "s.jsonl", lines))

    (event,) = run.select(ContextCompacted)
    assert (event.by, event.tokens_before, event.tokens_after, event.trigger) == ("claude-code", 9_000, 700, "manual")
    assert [turn.query for turn in run.turns] == ["Count the chairs.", "And tables?"]


def test_messages_that_a_compaction_preserves_stand_behind_its_summary(tmp_path: Path) -> None:
    answer = block("m9", {"type": "text", "text": "The order code is LX-2217."})
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "sessionId": "s-1",
        "uuid": "b",
        "compactMetadata": {"preservedMessages": {"uuids": [answer["uuid"], "gone"]}},
    }
    lines = [*SESSION[:8], answer, boundary, said("user", "Chairs were counted.", isCompactSummary=True), *SESSION[10:]]
    (event,) = nn.import_run(written(tmp_path / "s.jsonl", lines)).select(ContextCompacted)

    assert [(item["role"], item_text(item)) for item in event.items] == [
        ("user", "Chairs were counted."),
        ("assistant", "The order code is LX-2217."),
    ]


def test_a_turn_ends_with_its_answer_and_not_with_the_next_question(tmp_path: Path) -> None:
    def at(second: int, line: dict[str, Any]) -> dict[str, Any]:
        return {**line, "timestamp": f"2026-01-01T10:{second // 60:02}:{second % 60:02}.000Z"}

    lines = [
        at(0, said("user", "Count the chairs.")),
        at(5, block("m1", {"type": "text", "text": "Four."})),
        at(600, said("user", "And tables?")),
        at(603, block("m2", {"type": "text", "text": "One."})),
    ]
    run = nn.import_run(written(tmp_path / "s.jsonl", lines))

    assert [turn.duration_ms for turn in run.turns] == [5_000, 3_000]
    begun, ended = run.select(TurnStarted), run.select(TurnCompleted)
    assert [end.t_ms - begin.t_ms for begin, end in zip(begun, ended, strict=True)] == [5_000, 3_000]
    times = [event.t_ms for event in run.events]
    assert times == sorted(times)


def with_helper(folder: Path) -> Path:
    inner = [
        {**said("user", "Count."), "agentId": "a77", "isSidechain": True},
        {**block("k1", {"type": "text", "text": "Nine."}), "agentId": "a77", "isSidechain": True},
    ]
    about = {"agentId": "a77", "agentType": "counter", "status": "completed"}
    lines = [
        said("user", "Let a helper count."),
        block("m1", use("c1", "Task", prompt="Count.")),
        result("c1", "Nine.", toolUseResult=about),
        block("m2", {"type": "text", "text": "Nine."}),
    ]
    written(folder / "s" / "subagents" / "agent-a77.jsonl", inner)
    return written(folder / "s.jsonl", lines)


def test_a_helper_in_a_file_beside_the_session_is_a_child(tmp_path: Path) -> None:
    run = nn.import_run(with_helper(tmp_path))

    (started,), (ended,) = run.select(ChildStarted), run.select(ChildEnded)
    assert (started.step_id, ended.text, ended.outcome) == ("counter", "Nine.", "success")
    assert [call.where.depth for call in run.select(ModelCalled)] == [0, 1, 0]
    ((turn,), calls) = run.turns, run.select(ModelCalled)
    (done,) = run.select(TurnCompleted)
    assert turn.input_tokens == sum(call.input_tokens for call in calls)
    assert turn.output_tokens == sum(call.output_tokens for call in calls)
    assert (done.model_calls, done.tool_calls) == (len(turn.model_calls), len(turn.tool_calls)) == (3, 1)


def test_a_folder_is_read_without_reading_helpers_twice(tmp_path: Path) -> None:
    with_helper(tmp_path)
    assert len(list(nn.import_runs(tmp_path))) == 1


def test_a_helper_without_a_file_is_noted(tmp_path: Path) -> None:
    path = with_helper(tmp_path)
    (tmp_path / "s" / "subagents" / "agent-a77.jsonl").unlink()
    run = nn.import_run(path)
    assert not run.select(ChildStarted)
    assert [each["value"] for each in run.meta["unmapped"]] == ["a77"]


def test_a_session_that_was_cut_in_its_last_line_is_read_up_to_it(tmp_path: Path) -> None:
    path = written(tmp_path / "s.jsonl", SESSION)
    path.write_text(path.read_text()[:-30])
    run = nn.import_run(path)
    assert len(run.turns) == 2
    (note,) = [each for each in run.meta["unmapped"] if "cannot be read" in each["what"]]
    assert note["place"] == f"line {len(SESSION)}"
    assert note["value"].startswith("{")


@pytest.mark.parametrize("place", range(1, 6))
def test_a_broken_line_of_a_session_is_listed_and_the_rest_is_read(place: int, tmp_path: Path) -> None:
    path = written(tmp_path / "s.jsonl", SESSION)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:place], '{"type": "user", "mess', *lines[place:]]) + "\n")

    run, whole = nn.import_run(path), nn.import_run(written(tmp_path / "whole.jsonl", SESSION))

    assert run.turns == whole.turns
    assert run.events[:] == whole.events[:]
    assert [each["place"] for each in run.meta["unmapped"] if "cannot be read" in each["what"]] == [f"line {place + 1}"]


# Codex


def line(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-05-01T08:00:00Z", "type": kind, "payload": payload}


def message(role: str, text: str) -> dict[str, Any]:
    return line("response_item", type="message", role=role, content=[{"type": "input_text", "text": text}])


def counts(sent: int, made: int, cached: int = 0) -> dict[str, int]:
    return {"input_tokens": sent, "cached_input_tokens": cached, "output_tokens": made, "reasoning_output_tokens": 2}


def record(sent: int, made: int) -> dict[str, Any]:
    return line("token_usage_record", usage={**counts(sent, made), "cache_write_input_tokens": 7})


def count(total: dict[str, int], last: dict[str, int]) -> dict[str, Any]:
    return line("event_msg", type="token_count", info={"total_token_usage": total, "last_token_usage": last})


def exec_call(call_id: str, command: str) -> dict[str, Any]:
    arguments = json.dumps({"cmd": command})
    return line("response_item", type="function_call", name="exec", arguments=arguments, call_id=call_id)


def output(call_id: str, text: str) -> dict[str, Any]:
    return line("response_item", type="function_call_output", call_id=call_id, output=text)


HEAD = [
    line("session_meta", id="r-1", cli_version="0.9", base_instructions={"text": "Be brief."}),
    line("turn_context", model="gpt-x"),
    message("developer", "Rules of the house."),
    message("user", "<environment_context>a folder</environment_context>"),
    message("user", "Which files are there?"),
]


def test_items_of_a_rollout_are_calls_with_their_usage(tmp_path: Path) -> None:
    lines = [
        *HEAD,
        exec_call("c1", "ls"),
        exec_call("c2", "ls nowhere"),
        record(100, 9),
        output("c1", "Process exited with code 0\nOutput:\na.txt"),
        output("c2", "Process exited with code 2\nOutput:\nno such folder"),
        message("assistant", "One file."),
        record(140, 5),
    ]
    run = nn.import_run(written(tmp_path / "r.jsonl", lines))

    assert [call.counts for call in run.select(ModelCalled)] == [(100, 9, 0, 7, 2), (140, 5, 0, 7, 2)]
    assert [(each.name, each.status, each.error) for each in run.select(ToolCalled)] == [
        ("exec", "ok", None),
        ("exec", "error", "exit code 2"),
    ]
    assert [(turn.query, turn.text) for turn in run.turns] == [("Which files are there?", "One file.")]
    assert run.run_id == "r-1"
    assert "Be brief." in run.meta["policy"]


def test_totals_that_are_told_again_are_counted_once(tmp_path: Path) -> None:
    first, both = counts(100, 9), counts(240, 14)
    lines = [
        *HEAD,
        exec_call("c1", "ls"),
        output("c1", "a.txt"),
        count(first, counts(100, 9)),
        message("assistant", "One file."),
        count(both, counts(140, 5)),
        count(both, counts(140, 5)),
    ]
    run = nn.import_run(written(tmp_path / "r.jsonl", lines))
    assert [call.counts[:2] for call in run.select(ModelCalled)] == [(100, 9), (140, 5)]


def test_the_call_that_wrote_a_summary_is_one_of_its_own(tmp_path: Path) -> None:
    lines = [
        *HEAD,
        message("assistant", "One file."),
        record(100, 5),
        message("assistant", "Summary: there is one file."),
        record(200, 8),
        line("compacted", message="Go on from here. Summary: there is one file."),
        message("user", "Thanks."),
        message("assistant", "Welcome."),
        record(60, 3),
    ]
    run = nn.import_run(written(tmp_path / "r.jsonl", lines))

    assert [(call.purpose, call.input_tokens) for call in run.select(ModelCalled)] == [
        ("agent", 100),
        ("summary", 200),
        ("agent", 60),
    ]
    (event,) = run.select(ContextCompacted)
    assert (event.by, event.tokens_before, event.opaque) == ("codex", 200, False)
    assert [turn.text for turn in run.turns] == ["One file.", "Welcome."]


def test_messages_of_the_user_in_a_replaced_history_stand_before_the_summary(tmp_path: Path) -> None:
    parts = [{"type": "input_text", "text": "Count the files."}]
    told = [{"type": "input_text", "text": "Summary: one file."}]
    kept = [{"type": "message", "role": "user", "content": content} for content in (parts, told)]
    lines = [
        *HEAD,
        message("assistant", "One."),
        line("compacted", message="Summary: one file.", replacement_history=kept),
    ]
    (event,) = nn.import_run(written(tmp_path / "r.jsonl", lines)).select(ContextCompacted)

    assert [item_text(item) for item in event.items] == ["Count the files.", "Summary: one file."]


def test_a_summary_that_only_the_provider_reads_is_opaque(tmp_path: Path) -> None:
    kept = [{"type": "compaction", "encrypted_content": "b3BhcXVl"}]
    lines = [*HEAD, message("assistant", "One file."), line("compacted", replacement_history=kept)]
    (event,) = nn.import_run(written(tmp_path / "r.jsonl", lines)).select(ContextCompacted)
    assert event.opaque
    assert event.items == ()


def test_a_helper_is_found_among_the_rollouts_of_the_folder(tmp_path: Path) -> None:
    inner = [
        line("session_meta", id="r-2", parent_thread_id="r-1", agent_nickname="Ada"),
        line("turn_context", model="gpt-x"),
        message("user", "Count."),
        message("assistant", "Nine."),
        record(30, 2),
    ]
    spawn = line("response_item", type="function_call", name="spawn_agent", arguments="{}", call_id="c1")
    lines = [
        *HEAD,
        spawn,
        record(100, 9),
        output("c1", '{"agent_id":"r-2"}'),
        message("assistant", "Nine."),
        record(9, 1),
    ]
    path = written(tmp_path / "main.jsonl", lines)
    written(tmp_path / "other.jsonl", inner)

    run = nn.import_run(path)
    (started,) = run.select(ChildStarted)
    assert started.step_id == "Ada"
    assert [call.input_tokens for call in run.select(ModelCalled)] == [100, 30, 9]
    assert [each.run_id for each in nn.import_runs(tmp_path)] == ["r-1"]  # type: ignore[union-attr]
    assert nn.import_run(tmp_path / "other.jsonl").run_id == "r-2"


@pytest.mark.parametrize("broken", [{"type": "session_meta", "payload": 3}, {"type": "response_item"}])
def test_a_file_that_only_looks_like_a_rollout_is_refused(broken: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(NoeticError):
        nn.import_run(written(tmp_path / "r.jsonl", [broken, broken]))
