"""Newer message features of Anthropic and OpenAI: compactions, context edits, memory, items of hosted tools."""

from __future__ import annotations

from typing import Any

import pytest

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ContextCompacted, MemoryTraceSpan, ModelCalled, ToolCalled
from noetic_nb.items import input_message, parse_item
from noetic_nb.items._messages import encode_messages
from noetic_nb.items._messages.openai_chat import encode as chat
from noetic_nb.items._messages.openai_responses import encode as responses
from noetic_nb.runs import Run

ASKED = {"role": "user", "content": "Where is the ladder?"}
BLOCK = {"type": "compaction", "content": "The ladder is in the shed."}


def claude(*content: dict[str, Any], **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 2, "output_tokens": 4}
    about = {
        "role": "assistant",
        "model": "claude-x",
        "stop_reason": "end_turn",
        "usage": {**usage, **more.pop("usage", {})},
    }
    return {**about, "content": list(content), **more}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


# Anthropic


def test_a_summary_of_the_server_is_a_compaction_whose_tokens_no_call_counts() -> None:
    iterations = [
        {"type": "compaction", "input_tokens": 100, "cache_read_input_tokens": 50, "output_tokens": 9},
        {"type": "message", "input_tokens": 10, "output_tokens": 4},
        {"type": "advisor_message", "model": "claude-y", "input_tokens": 7, "output_tokens": 1},
    ]
    answer = claude(BLOCK, text("In the shed."), usage={"iterations": iterations})

    run = Run.from_messages([ASKED, answer])

    assert run.meta["unmapped"] == []
    compacted = run.select(ContextCompacted)[0]
    assert (compacted.by, compacted.model, compacted.opaque) == ("anthropic", "claude-x", False)
    assert compacted.usage == {"input_tokens": 150, "output_tokens": 9, "cached_tokens": 50}
    assert run.to_frame("compactions")["summary"].tolist() == [BLOCK["content"]]
    assert [(call.model, call.input_tokens) for call in run.select(ModelCalled)] == [("claude-y", 7), ("claude-x", 42)]
    assert run.to_messages("anthropic")[1]["content"] == [BLOCK, text("In the shed.")]


@pytest.mark.parametrize(
    ("block", "opaque"), [({"content": None, "encrypted_content": "e"}, True), ({"content": None}, None)]
)
def test_a_sealed_compaction_is_opaque_and_a_failed_one_is_listed(block: dict[str, Any], opaque: bool | None) -> None:
    block = {"type": "compaction", **block}

    run = Run.from_messages([ASKED, claude(block, text("Hm."))])

    assert [each.opaque for each in run.select(ContextCompacted)] == ([] if opaque is None else [opaque])
    assert [each["what"] for each in run.meta["unmapped"]] == (["a compaction that failed"] if opaque is None else [])
    assert run.to_messages("anthropic")[1]["content"][0] == block


def test_cleared_results_and_thoughts_are_one_compaction() -> None:
    edits = [
        {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 3, "cleared_input_tokens": 500},
        {"type": "clear_thinking_20251015", "cleared_thinking_turns": 1, "cleared_input_tokens": 60},
    ]
    talk = [ASKED, claude(text("Hm."), context_management={"applied_edits": edits}), ASKED]

    run = Run.from_messages([*talk, claude(text("Shed."), context_management={"applied_edits": []})])

    (compacted,) = run.select(ContextCompacted)
    assert (compacted.items_removed, compacted.tokens_before, compacted.tokens_after) == (4, 602, 42)
    assert compacted.trigger == "clear_tool_uses_20250919, clear_thinking_20251015"
    assert run.meta["unmapped"] == []


def test_the_memory_tool_is_shown_as_memory() -> None:
    def use(call_id: str, **args: Any) -> dict[str, Any]:
        return {"type": "tool_use", "id": call_id, "name": "memory", "input": args}

    def got(call_id: str, **more: Any) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": call_id, "content": "x", **more}

    first = claude(
        use("m1", command="view", path="/memories"),
        use("m2", command="rename", old_path="/memories/a", new_path="/memories/b"),
        use("m3", command="create", path="/memories/c", file_text="t"),
        use("m4", command="create", path="/etc/c"),
    )
    results = {"role": "user", "content": [got("m1"), got("m2"), got("m3", is_error=True), got("m4")]}

    run = Run.from_messages([ASKED, first, results, claude(text("Done."))])

    spans = run.select(MemoryTraceSpan)
    assert [(span.layer_id, span.hook, span.status, span.error) for span in spans] == [
        ("memory", "recall", "ok", None),
        ("memory", "store", "ok", None),
        ("memory", "store", "error", "x"),
    ]
    assert spans[1].attributes == {"command": "rename", "path": "/memories/a", "new_path": "/memories/b"}
    assert len(run.select(ToolCalled)) == 4


# OpenAI


SEALED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}
SAID = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
    {"type": "output_text", "text": "Shed.", "annotations": []}
]}  # fmt: skip


def response(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 50, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 0}}
    return {"object": "response", "model": "gpt", "status": "completed", "output": list(output), "usage": usage, **more}


def test_a_compaction_inside_a_response_is_opaque_and_goes_back_in_its_place() -> None:
    run = Run.from_messages([ASKED, response(SEALED, SAID)])

    (compacted,) = run.select(ContextCompacted)
    assert (compacted.by, compacted.opaque, compacted.trigger) == ("openai", True, "server")
    assert len(run.select(ModelCalled)) == 1
    assert run.turns[0].text == "Shed."
    assert run.to_messages("openai-responses")[1] == SEALED


def test_the_compact_endpoint_is_a_call_and_no_turn() -> None:
    kept = {"type": "message", "id": "msg_0", "role": "user", "content": [{"type": "input_text", "text": "Where?"}]}
    compact = response(kept, SEALED, object="response.compaction")
    del compact["model"]

    run = Run.from_messages([ASKED, response(SAID), compact, ASKED, response(SAID)])

    assert [turn.text for turn in run.turns] == ["Shed.", "Shed."]
    assert [call.purpose for call in run.select(ModelCalled)] == ["agent", "summary", "agent"]
    (compacted,) = run.select(ContextCompacted)
    assert (compacted.tokens_before, [item["type"] for item in compacted.items]) == (50, ["message", "compaction"])
    assert [item["type"] for item in run.log("t1")] == ["message", "message", "compaction", "message", "message"]


def test_a_failed_response_is_a_failed_call() -> None:
    run = Run.from_messages([ASKED, response(status="failed", error={"code": "server_error", "message": "Busy."})])

    (call,) = run.select(ModelCalled)
    assert (call.status, call.error, call.finish_reason) == ("error", "Busy.", None)


def test_a_context_that_was_compacted_before_is_read_without_a_call() -> None:
    run = Run.from_messages([{"type": "message", **ASKED}, SEALED, {"type": "message", **ASKED}, SAID])

    assert [len(run.select(kind)) for kind in (ContextCompacted, ModelCalled)] == [1, 1]
    whole = Run.from_messages([{"type": "message", **ASKED}, SEALED, SAID])
    assert [len(whole.select(kind)) for kind in (ContextCompacted, ModelCalled)] == [1, 1]
    assert whole.turns[0].text == "Shed."


HOSTED: list[dict[str, Any]] = [
    {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "house", "tools": []},
    {
        "type": "tool_search_call",
        "id": "ts_1",
        "arguments": {"query": "ladder"},
        "execution": "server",
        "status": "completed",
    },
    {
        "type": "tool_search_output",
        "id": "tso_1",
        "tools": [{"type": "function", "name": "find"}],
        "execution": "server",
    },
    {"type": "program", "id": "p_1", "call_id": "c_p", "code": "find()", "fingerprint": "f"},
    {"type": "program_output", "id": "po_1", "call_id": "c_p", "result": "shed", "status": "incomplete"},
    {"type": "shell_call", "id": "sh_1", "call_id": "c_s", "action": {"commands": ["ls"], "timeout_ms": None}},
    {"type": "apply_patch_call", "id": "ap_1", "call_id": "c_a", "operation": {"type": "delete_file", "path": "a"}},
    {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "name": "sell",
        "arguments": '{"what": "ladder"}',
        "server_label": "house",
    },
]
ANSWERED: list[dict[str, Any]] = [
    {"type": "shell_call_output", "call_id": "c_s", "output": [
        {"stdout": "shed\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
        {"stdout": "", "stderr": "no", "outcome": {"type": "exit", "exit_code": 2}},
    ]},
    {"type": "apply_patch_call_output", "call_id": "c_a", "status": "failed", "output": "no such file"},
    {"type": "mcp_approval_response", "id": "mcpa_1", "approval_request_id": "mcpr_1", "approve": False, "reason": "Keep it."},
]  # fmt: skip


def test_items_of_hosted_tools_are_calls_and_go_out_as_they_came_in() -> None:
    run = Run.from_messages([ASKED, response(*HOSTED), *ANSWERED, response(SAID)])

    assert run.meta["unmapped"] == []
    calls = [(call.name, call.args, call.output, call.status, call.error) for call in run.select(ToolCalled)]
    assert [call[0] for call in calls] == ["tool_search", "program", "shell", "apply_patch", "sell"]
    assert calls[0][1:4] == ({"query": "ladder"}, '[{"type":"function","name":"find"}]', "ok")
    assert calls[1][1:] == ({"code": "find()"}, "shed", "error", "shed")
    assert calls[2][1:] == ({"commands": ("ls",)}, "shed\nno", "error", "exit code 2")
    assert calls[3][1:] == ({"type": "delete_file", "path": "a"}, "no such file", "error", "no such file")
    assert calls[4][1:] == ({"what": "ladder"}, "Keep it.", "error", "Keep it.")
    assert len(run.select(ModelCalled)) == 2
    assert run.to_messages("openai-responses")[1:-1] == [*HOSTED, *ANSWERED]


def test_an_approval_that_was_given_is_no_call_of_its_own() -> None:
    given = {**ANSWERED[2], "approve": True}
    called = {
        "type": "mcp_call",
        "id": "mcp_1",
        "name": "sell",
        "arguments": "{}",
        "output": "sold",
        "server_label": "house",
    }

    run = Run.from_messages(
        [ASKED, response(HOSTED[7]), given, response({**called, "approval_request_id": "mcpr_1"}, SAID)]
    )

    assert [(call.name, call.output) for call in run.select(ToolCalled)] == [("sell", "sold")]
    assert run.to_messages("openai-responses")[1:3] == [HOSTED[7], given]


# Requests


def test_a_sealed_compaction_goes_to_its_provider_alone() -> None:
    items = [input_message("hi"), parse_item({**SEALED, "created_by": "me"})]

    assert responses(items, to_wire=str)[1] == SEALED
    with pytest.raises(NoeticConfigError, match="only its provider"):
        chat(items, to_wire=str)
    assert encode_messages(items, "anthropic") == [{"role": "user", "content": [text("hi")]}]
    assert len(encode_messages(items, "openai")) == 1


def test_a_summary_in_words_goes_to_every_provider() -> None:
    items = Run.from_messages([ASKED, claude(BLOCK, text("Hm."))]).log("t1")

    assert chat(items, to_wire=str)[1] == {"role": "system", "content": BLOCK["content"]}
    assert responses(items, to_wire=str)[1] == {
        "role": "developer",
        "content": [{"type": "input_text", "text": BLOCK["content"]}],
    }
    assert encode_messages(items, "openai-responses")[1]["role"] == "developer"
