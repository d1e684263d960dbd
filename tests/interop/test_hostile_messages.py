"""Arbitrary data in sources gives either a run with a list of unmapped parts, or an error with its position."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticError
from noetic_nb.events import ToolCalled
from noetic_nb.interop._formats import sources
from noetic_nb.runs import Run
from tests.matrix import matrix

FORMATS = ("openai", "openai-responses", "anthropic", "langchain")
USER = {"role": "user", "content": "x"}


def nested(depth: int) -> Any:
    found: Any = {}
    for _ in range(depth):
        found = {"a": [found]}
    return found


def cyclic() -> Any:
    found: dict[str, Any] = {}
    found["a"] = found
    return found


VALUES: dict[str, Any] = {
    "deep": nested(15_000),
    "rather deep": nested(120),
    "cyclic": cyclic(),
    "nan": {"a": float("nan")},
    "large": 10**400,
    "larger": {"a": 10**5_000},
    "surrogate": "\ud800",
    "object": object(),
    "function": len,
    "bytes": b"x",
    "true": True,
    "list": [None, 1, []],
}
PLACES: dict[str, Callable[[Any], Any]] = {
    "arguments": lambda v: {
        "role": "assistant",
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": v}}],
    },
    "content": lambda v: {"role": "assistant", "content": v},
    "parts": lambda v: {"role": "user", "content": [v, {"type": v}, {"type": "text", "text": v}]},
    "role": lambda v: {"role": v, "content": "x"},
    "output": lambda v: {"role": "tool", "tool_call_id": v, "content": v},
    "usage": lambda v: {"role": "assistant", "content": "x", "usage": {"prompt_tokens": v}, "cost": v, "timestamp": v},
    "extra": lambda v: {"role": "assistant", "content": "x", "k": v, "audio": v, "annotations": v, "tool_calls": v},
    "message": lambda v: v,
    "type": lambda v: {"type": v, "content": "x"},
    "choices": lambda v: {"choices": [v, {"message": v}]},
    "chunk": lambda v: {
        "object": "chat.completion.chunk",
        "id": v,
        "choices": [{"index": v, "delta": {"tool_calls": v}}],
    },
    "item": lambda v: {"type": "function_call", "call_id": "c", "name": "f", "arguments": v},
    "thought": lambda v: {"type": "reasoning", "id": v, "summary": v, "content": [v]},
    "computer": lambda v: {"type": "computer_call", "call_id": "c", "action": v, "output": v},
    "response": lambda v: {"object": "response", "output": [v], "usage": v, "instructions": v, "created_at": v},
    "blocks": lambda v: {
        "role": "assistant",
        "stop_reason": v,
        "content": [{"type": "tool_use", "id": "c", "name": "f", "input": v}, {"type": "thinking", "thinking": v}],
        "usage": v,
    },
    "results": lambda v: {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": v}]},
    "langchain": lambda v: {
        "type": "ai",
        "data": {
            "content": [v, {"type": v}],
            "tool_calls": [{"name": "f", "args": v, "id": v}],
            "response_metadata": v,
        },
    },
    "lc": lambda v: {"lc": 1, "id": [v], "kwargs": v},
    "pydantic": lambda v: {"kind": "response", "parts": [v, {"part_kind": v}], "usage": v, "timestamp": v},
    "prompt": lambda v: {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": v}], "instructions": v},
}


@matrix("place,value", product(PLACES, VALUES), keep=70)
def test_anything_anywhere_is_a_run_or_an_error_of_the_source(place: str, value: str, tmp_path: Path) -> None:
    try:
        run = nn.import_run([USER, PLACES[place](VALUES[value]), USER])
    except NoeticError as error:
        assert error.kind == "invalid_run_file"  # noqa: PT017  # either is right
        return
    run.to_frame("tools")
    path = tmp_path / "run.gz"
    run.save(path)
    nn.import_run(path)
    for name in FORMATS if run.threads else ():
        json.dumps(run.to_messages(name))


@pytest.mark.parametrize("value", VALUES)
def test_anything_in_a_log_of_inspect_is_a_run_or_an_error_of_the_source(value: str) -> None:
    given = VALUES[value]
    answer = {"role": "assistant", "content": [given], "tool_calls": given}
    event = {"event": "model", "output": given}
    sample = {
        "id": given,
        "messages": [USER, answer],
        "events": [given, event],
        "scores": {"a": given},
        "attachments": given,
    }

    found = list(nn.import_runs({"version": 2, "eval": {"task": given}, "samples": [sample, given]}))

    assert len(found) == 2
    assert isinstance(found[1], nn.Failed)


def test_arguments_that_are_no_json_stay_as_they_were_written() -> None:
    text = '{"a": NaN}'
    call = {"id": "c", "function": {"name": "f", "arguments": text}}

    run = Run.from_messages(
        [USER, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": ""}]
    )

    assert run.select(ToolCalled)[0].args is None
    assert run.log("t1")[1]["arguments"] == text


def test_a_run_with_a_long_list_is_recognised_as_our_own(tmp_path: Path) -> None:
    run = nn.import_run([USER, {"role": "assistant", "content": "x", "colour": "red" * 400}])
    run.save(tmp_path / "run.gz")

    assert nn.import_run(tmp_path / "run.gz") == run


def test_no_text_names_the_folder_of_the_process() -> None:
    with pytest.raises(NoeticError, match="not JSON"):
        nn.import_run("")


def test_lines_that_are_too_long_fail_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 1_000)
    path = tmp_path / "talks.jsonl"
    texts = [json.dumps({"messages": [{"role": "user", "content": text}]}) for text in ("a", "b" * 1_000, "c")]
    path.write_text("\n".join(texts))

    found = list(nn.import_runs(path))

    assert [type(each) for each in found] == [Run, nn.Failed, Run]
    assert isinstance(found[1], nn.Failed)
    assert "line 2" in str(found[1].error)


def test_times_that_run_backwards_keep_the_order_of_the_messages() -> None:
    talk = [{**USER, "timestamp": 100}, {"role": "assistant", "content": "y", "timestamp": 90}, USER]

    run = Run.from_messages(talk)

    times = [event.t_ms for event in run.events]
    assert times == sorted(times)
    assert times[0] == 100_000
    assert "t_ms" in run.meta["estimated"]


def test_progress_is_shown_where_it_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    talks = [{"messages": [USER]}, {"messages": 5}]

    quiet = list(nn.import_runs(talks))
    before = capsys.readouterr()
    seen: list[tuple[int, int | None]] = []
    loud = list(nn.import_runs(talks, progress=lambda done, of: seen.append((done, of))))

    assert [type(each) for each in loud] == [type(each) for each in quiet] == [Run, nn.Failed]
    assert before.out + before.err == ""
    assert seen == [(1, None), (2, None)]
