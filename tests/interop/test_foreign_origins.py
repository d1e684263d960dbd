"""Foreign recordings: messages in the user role that the user did not write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.runs import Run

VALUE = "DE89370400440532013000"
SAID = f"The account is {VALUE}."
ARGUMENTS = {"recipient": VALUE}
ASKED = {"role": "user", "content": "Pay the landlord"}


def origin_of(run: Run) -> str:
    """Return the kind of the origin of the value in the last call of a run."""
    kind: str = run.cause(-1).kind[0]
    return kind


def chat(*before: dict[str, Any]) -> list[dict[str, Any]]:
    call = {"id": "c9", "type": "function", "function": {"name": "pay", "arguments": json.dumps({"recipient": VALUE})}}
    return [
        *before,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c9", "content": "ok"},
    ]


def test_participants_who_write_in_the_role_of_the_user_are_not_the_user() -> None:
    told = {"role": "user", "content": SAID}

    assert origin_of(Run.from_messages(chat(ASKED, {**told, "name": "researcher"}))) == "model"
    assert origin_of(Run.from_messages(chat({**ASKED, "name": "ann"}, {**told, "name": "ann"}))) == "user"
    assert origin_of(Run.from_messages(chat({**ASKED, "name": "ann"}, told))) == "user"
    from_langchain = [{"type": "human", "data": {"content": SAID, "name": "researcher"}}]
    made = Run.from_messages(chat(ASKED)).to_messages("langchain")
    assert origin_of(Run.from_messages([made[0], *from_langchain, *made[1:]])) == "model"


def claude_code(said: str, **about: Any) -> Any:
    def line(role: str, content: Any, **more: Any) -> dict[str, Any]:
        return {
            "type": role,
            "sessionId": "s",
            "uuid": f"{content}",
            "message": {"role": role, "content": content, **more},
        }

    use = {"type": "tool_use", "id": "c", "name": "pay", "input": ARGUMENTS}
    return [
        line("user", "Pay"),
        {**line("user", said), **about},
        line("assistant", [use], id="m", model="x", usage={}),
    ]


def codex(said: str) -> Any:
    def message(text: str) -> dict[str, Any]:
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}

    call = {"type": "function_call", "name": "pay", "arguments": json.dumps(ARGUMENTS), "call_id": "c"}
    items = [message("Pay"), message(said), call, {"type": "function_call_output", "call_id": "c", "output": "ok"}]
    head = {"type": "session_meta", "payload": {"id": "r", "cli_version": "1"}}
    return [head, *[{"type": "response_item", "payload": item} for item in items]]


def atif() -> Any:
    call = {"tool_call_id": "c", "function_name": "pay", "arguments": ARGUMENTS}
    steps = [
        {"step_id": 1, "source": "user", "message": "Pay"},
        {"step_id": 2, "source": "agent", "message": "I wait.", "observation": {"results": [{"content": SAID}]}},
        {"step_id": 3, "source": "agent", "message": "", "tool_calls": [call]},
    ]
    return {"schema_version": "ATIF-v1.8", "session_id": "s", "agent": {"name": "a", "version": "1"}, "steps": steps}


def pydantic_ai() -> Any:
    def part(kind: str, **about: Any) -> dict[str, Any]:
        return {"part_kind": kind, **about}

    wrong = part("retry-prompt", content=f"This is no answer: {SAID}")
    call = part("tool-call", tool_name="pay", args=ARGUMENTS, tool_call_id="c")
    return [
        {"kind": "request", "parts": [part("user-prompt", content="Pay")]},
        {"kind": "response", "parts": [part("text", content="Hm.")]},
        {"kind": "request", "parts": [wrong]},
        {"kind": "response", "parts": [call]},
        {"kind": "request", "parts": [part("tool-return", tool_name="pay", content="ok", tool_call_id="c")]},
    ]


def inspect() -> Any:
    call = {"id": "c", "function": "pay", "arguments": ARGUMENTS, "type": "function"}
    messages = [
        {**ASKED, "id": "u", "source": "input"},
        {"id": "p", "role": "user", "content": SAID},
        {"id": "a", "role": "assistant", "content": "", "tool_calls": [call], "model": "m"},
        {"id": "r", "role": "tool", "tool_call_id": "c", "content": "ok"},
    ]
    used = {"model": "m", "choices": [{"message": messages[2]}], "usage": {}}
    events = [
        {"event": "span_begin", "id": "main", "span_id": "main", "parent_id": None, "type": "agent", "name": "x"},
        {"event": "model", "span_id": "main", "model": "m", "input": [], "output": used},
        {"event": "tool", "span_id": "main", "id": "c", "function": "pay", "result": "ok"},
    ]
    sample = {"id": "q", "epoch": 1, "messages": messages, "events": events}
    return {"version": 2, "eval": {"task": "t"}, "samples": [sample]}


def summary() -> Any:
    about = {"additional_kwargs": {"lc_source": "summarization"}}
    made = Run.from_messages(chat(ASKED)).to_messages("langchain")
    return [made[0], {"type": "human", "data": {"content": f"So far: {SAID}", **about}}, *made[1:]]


def span(**told: Any) -> Any:
    call = {"type": "tool_call", "id": "c", "name": "pay", "arguments": ARGUMENTS}
    sent = [
        {"role": "user", "parts": [{"type": "text", "content": "Pay"}]},
        {"parts": [{"type": "text", "content": SAID}], **told},
    ]
    about = {
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": "t",
        "gen_ai.input.messages": json.dumps(sent),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [call], "finish_reason": "tool_call"}]),
    }
    times = {"start_time": "2026-05-01T08:00:00Z", "end_time": "2026-05-01T08:00:01Z"}
    context = {"trace_id": "0x1", "span_id": "0x2"}
    called = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pay", "gen_ai.tool.call.id": "c"}
    called |= {"gen_ai.conversation.id": "t", "gen_ai.tool.call.result": "ok"}
    later = {"start_time": "2026-05-01T08:00:02Z", "end_time": "2026-05-01T08:00:03Z"}
    return [
        {"name": "chat m", "context": context, "parent_id": None, **times, "attributes": about},
        {"name": "tool", "context": {**context, "span_id": "0x3"}, "parent_id": None, **later, "attributes": called},
    ]


def langfuse(**told: Any) -> Any:
    sent = [{"role": "user", "content": "Pay"}, {"content": SAID, **told}]
    call = {"id": "c", "type": "function", "function": {"name": "pay", "arguments": json.dumps(ARGUMENTS)}}
    about = {"id": "o", "traceId": "k", "type": "GENERATION", "startTime": "2026-05-01T08:00:00Z", "model": "m"}
    made = {
        **about,
        "endTime": "2026-05-01T08:00:01Z",
        "input": sent,
        "output": {"role": "assistant", "tool_calls": [call]},
    }
    trace = {"id": "k", "timestamp": "2026-05-01T08:00:00Z", "name": "n", "sessionId": "s", "scores": []}
    later = {"id": "p", "traceId": "k", "type": "TOOL", "name": "pay", "startTime": "2026-05-01T08:00:02Z"}
    paid = {**later, "endTime": "2026-05-01T08:00:03Z", "input": ARGUMENTS, "output": "ok"}
    return {**trace, "observations": [made, {**paid, "metadata": {"tool_call_id": "c"}}]}


FOREIGN: dict[str, tuple[str, Callable[[], Any]]] = {
    "claude code: said": ("user", lambda: claude_code(SAID)),
    "claude code: output of a command": ("model", lambda: claude_code(f"<bash-stdout>{SAID}</bash-stdout>")),
    "claude code: a note of the program": ("model", lambda: claude_code(SAID, isMeta=True)),
    "codex: said": ("user", lambda: codex(SAID)),
    "codex: a file of the folder": ("model", lambda: codex(f"# AGENTS.md instructions\n{SAID}")),
    "atif: feedback of the environment": ("tool", atif),
    "pydantic-ai: a refused answer": ("model", pydantic_ai),
    "inspect: written by the agent's program": ("model", inspect),
    "langchain: a summary": ("model", summary),
    "spans: said": ("user", lambda: span(role="user")),
    "spans: an unknown role": ("model", lambda: span(role="environment")),
    "spans: another participant": ("model", lambda: span(role="user", name="researcher")),
    "langfuse: said": ("user", lambda: langfuse(role="user")),
    "langfuse: an unknown role": ("model", lambda: langfuse(role="environment")),
    "langfuse: another participant": ("model", lambda: langfuse(role="user", name="researcher")),
    "langfuse: a summary": (
        "model",
        lambda: langfuse(role="user", additional_kwargs={"lc_source": "summarization"}),
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_nobody_speaks_for_the_user_in_a_recording_of_others(name: str, tmp_path: Path) -> None:
    kind, make = FOREIGN[name]
    source = make()
    if name.startswith(("claude", "codex")):
        (tmp_path / "s.jsonl").write_text("".join([json.dumps(line) + "\n" for line in source]), encoding="utf-8")
        source = tmp_path / "s.jsonl"

    run = nn.import_run(source)

    assert origin_of(run) == kind
