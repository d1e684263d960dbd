"""Imported conversations of other agents: turns, calls, usage, times, and unknown values."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import ModelCalled, ToolCalled
from noetic_nb.runs import Run

CALLS = [
    {"id": "c1", "type": "function", "function": {"name": "lookup", "arguments": '{"id": "A17"}'}},
    {"id": "c2", "type": "function", "function": {"name": "lookup", "arguments": '{"id": "B7"}'}},
]
TALK: list[Any] = [
    {"role": "system", "content": "You are a desk."},
    {"role": "user", "content": "Where are A17 and B7?"},
    {
        "role": "assistant",
        "content": "One moment.",
        "tool_calls": CALLS,
        "usage": {"prompt_tokens": 30, "completion_tokens": 9},
    },
    {"role": "tool", "tool_call_id": "c1", "content": "packed"},
    {"role": "tool", "tool_call_id": "c2", "content": "Error: there is no order B7"},
    {
        "role": "assistant",
        "content": "A17 is packed, B7 does not exist.",
        "usage": {"prompt_tokens": 60, "completion_tokens": 8},
    },
    {"role": "user", "content": "Thanks"},
    {"role": "assistant", "content": "You are welcome.", "usage": {"prompt_tokens": 70, "completion_tokens": 4}},
]


def test_turns_tools_and_usage_are_those_of_the_messages() -> None:
    run = nn.import_run(TALK)

    tools = run.to_frame("tools")
    assert [(turn.query, turn.text) for turn in run.turns] == [
        ("Where are A17 and B7?", "A17 is packed, B7 does not exist."),
        ("Thanks", "You are welcome."),
    ]
    assert [(call.name, call.args, call.status) for call in run.select(ToolCalled)] == [
        ("lookup", {"id": "A17"}, "ok"),
        ("lookup", {"id": "B7"}, "error"),
    ]
    assert [call.input_tokens for call in run.select(ModelCalled)] == [30, 60, 70]
    assert tools["duration_ms"].isna().all()
    assert run.meta["policy"] == "You are a desk."
    assert run.meta["estimated"] == ["t_ms", "status"]


def test_ids_that_are_used_again_name_calls_of_their_own() -> None:
    again = [{**message, "content": message["content"]} for message in TALK[1:6]]

    run = nn.import_run([*TALK[:6], *again])

    assert [call.call_id for call in run.select(ToolCalled)] == ["c1", "c2", "c1~2", "c2~2"]
    assert [call.status for call in run.select(ToolCalled)] == ["ok", "error", "ok", "error"]


def test_a_result_that_answers_no_call_stays_in_the_log_and_is_listed() -> None:
    run = nn.import_run([TALK[1], TALK[3]])

    assert [item["type"] for item in run.log("t1")] == ["message", "function_call_output"]
    assert [entry["what"] for entry in run.meta["unmapped"]] == ["a result that answers no call"]


def test_secrets_are_replaced_before_anything_is_kept(tmp_path: Path) -> None:
    key = "sk-proj-" + "aB3dE6gH9jK2mN5pQ8sT"
    talk = [
        {"role": "user", "content": f"My key is {key}"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": json.dumps({"api_key": key})}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": f"Error: {key}", "colour": key},
    ]

    run = nn.import_run(talk)

    assert key not in str(run.events[:]) + str(run.meta)


def test_a_greeting_belongs_to_no_turn() -> None:
    run = nn.import_run([{"role": "assistant", "content": "How can I help?"}, *TALK[1:]])

    assert len(run.turns) == 2
    assert len(run.log("t1")) == len(Run.from_messages(TALK[1:]).log("t1")) + 1


@pytest.mark.parametrize("form", ["list", "document", "lines", "text", "gzip"])
def test_files_and_texts_are_read(form: str, tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    document = {"model": "m-1", "messages": TALK, "temperature": 0.5, "seed": 3}
    texts = {
        "list": json.dumps(TALK),
        "document": json.dumps(document, indent=1),
        "lines": "\n".join(map(json.dumps, TALK)),
        "text": json.dumps(document),
        "gzip": json.dumps(TALK),
    }
    path.write_bytes(gzip.compress(texts[form].encode()) if form == "gzip" else texts[form].encode())

    run = nn.import_run(texts[form] if form == "text" else path)

    assert len(run.turns) == 2
    if form in ("document", "text"):
        assert (run.meta["model"], run.meta["params"]) == ("m-1", {"temperature": 0.5})
        assert [entry["place"] for entry in run.meta["unmapped"]] == ["seed"]


def test_several_runs_are_refused_or_read_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "talks.jsonl"
    path.write_text("\n".join([json.dumps({"messages": TALK}), "{broken", json.dumps({"messages": TALK[:2]})]))

    with pytest.raises(NoeticConfigError) as caught:
        nn.import_run(path)
    found = list(nn.import_runs(path))

    assert caught.value.code == "SEVERAL_RUNS"
    assert "import_runs" in str(caught.value)
    assert [type(run) for run in found] == [Run, nn.Failed, Run]
    assert isinstance(found[1], nn.Failed)
    assert found[1].path == str(path)
    assert "line 2" in str(found[1].error)


def test_our_own_file_is_known_also_where_its_head_is_long(tmp_path: Path) -> None:
    policy = " ".join(f"Rule {number}." for number in range(2_000))
    run = nn.import_run([{"role": "system", "content": policy}, *TALK[1:]])

    assert nn.import_run(run.save(tmp_path / "a.jsonl.gz")) == run


def test_our_own_files_and_folders_are_read(tmp_path: Path) -> None:
    run = nn.import_run(TALK)
    run.save(tmp_path / "a.jsonl.gz")
    (tmp_path / "b.json").write_text(json.dumps(TALK))
    (tmp_path / "c.json").write_text("no json")

    found = list(nn.import_runs(tmp_path))

    assert found[0] == run
    assert [type(each) for each in found] == [Run, Run, nn.Failed]
    assert nn.import_run(tmp_path / "a.jsonl.gz") == run


@pytest.mark.parametrize(
    "source", ["{broken", b"\xff\xfe", '{"a": 1}', "5", [{"a": 1}], "/no/such/file.json", object()]
)
def test_what_cannot_be_read_is_refused(source: Any) -> None:
    with pytest.raises(NoeticError) as caught:
        nn.import_run(source)
    assert caught.value.kind == "invalid_run_file"


def test_the_log_goes_on_in_a_harness_and_out_again() -> None:
    run = nn.import_run(TALK)

    assert run.to_messages("openai") == [
        {key: value for key, value in message.items() if key != "usage"} for message in TALK
    ]
