"""Exports of tracing services: LangSmith, Langfuse, MLflow and Weave."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticError
from noetic_nb.items import item_text

ASK = {"role": "user", "content": "Is box 4 full?"}
SYSTEM = {"role": "system", "content": "You keep the store."}
CALL = {"id": "c1", "type": "function", "function": {"name": "weigh", "arguments": '{"box": 4}'}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "scale is off"}
ANSWER = {"role": "assistant", "content": "I cannot tell."}


def usage(read: int, written: int, cached: int, thought: int) -> dict[str, Any]:
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": thought},
    }


def completion(message: Mapping[str, Any], finish: str, *counts: int) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"object": "chat.completion", "model": "m1", "choices": [choice], "usage": usage(*counts)}


FIRST = completion(CALLS, "tool_calls", 50, 9, 0, 4)
SECOND = completion(ANSWER, "stop", 70, 5, 48, 0)


def at(second: float) -> str:
    return f"2026-03-01T10:00:{second:06.3f}Z"


def model_calls(run: nn.Run, depth: int = 0) -> list[tuple[Any, ...]]:
    found = [event for event in run.events if event.kind == "model_called" and event.where.depth == depth]
    return [
        (
            *(call.model, call.input_tokens, call.output_tokens),
            *(call.cached_tokens, call.cache_write_tokens, call.reasoning_tokens, call.cost),
        )
        for call in found
    ]


def tool_calls(run: nn.Run, depth: int = 0) -> list[tuple[Any, ...]]:
    found = [event for event in run.events if event.kind == "tool_called" and event.where.depth == depth]
    return [(call.name, call.call_id, dict(call.args or {}), call.status, call.output, call.error) for call in found]


def read(source: Any, **options: Any) -> list[nn.Run]:
    found = list(nn.import_runs(source, progress=False, **options))
    for each in found:
        assert isinstance(each, nn.Run), each.error
    return [each for each in found if isinstance(each, nn.Run)]


def unmapped(run: nn.Run) -> dict[str, Any]:
    return {entry["what"]: entry["value"] for entry in run.meta["unmapped"]}


def written(path: Path, records: Iterable[Any]) -> Path:
    path.write_text("".join([json.dumps(each) + "\n" for each in records]), encoding="utf-8")
    return path


THE_CALLS = [("m1", 50, 9, 0, None, 4, 0.25), ("m1", 70, 5, 48, None, 0, 0.5)]
THE_TOOL = [("weigh", "c1", {"box": 4}, "error", "scale is off", "scale is off")]


# LangSmith


def langsmith(id: str, run_type: str, second: float, parent: str | None = "r0", **fields: Any) -> dict[str, Any]:
    start, end = at(second), at(second + 1)
    about = {"id": id, "name": id, "run_type": run_type, "trace_id": "r0", "parent_run_id": parent, "inputs": {}}
    return {**about, "start_time": start, "end_time": end, "error": None, "status": "success", **fields}


def langsmith_trace() -> list[dict[str, Any]]:
    about = {"metadata": {"thread_id": "t7", "team": "blue", "ls_model_name": "m1"}, "runtime": {"sdk": "langsmith-py"}}
    stack = "ScaleError('scale is off')Traceback (most recent call last):\n  File \"a.py\", line 1\nScaleError: scale is off"
    return [
        langsmith(
            *("r0", "chain", 0, None),
            extra=about,
            inputs={"messages": [ASK]},
            outputs={"messages": [ANSWER]},
            end_time=at(9),
            tags=["seq:step:1", "store"],
            feedback_stats={"correct": {"n": 1, "avg": 1.0}},
            reference_example_id="e5",
        ),
        langsmith(
            "r1",
            "llm",
            1,
            extra=about,
            inputs={"messages": [SYSTEM, ASK]},
            outputs=FIRST,
            prompt_cost="0.2",
            completion_cost="0.05",
        ),
        langsmith(
            "r2", "tool", 3, name="weigh", inputs={"input": '{"box": 4}'}, outputs={}, error=stack, status="error"
        ),
        langsmith(
            *("r3", "llm", 5),
            extra=about,
            inputs={"messages": [SYSTEM, ASK, CALLS, RESULT]},
            outputs=SECOND,
            total_cost="0.5",
            prompt_tokens=70,
            completion_tokens=5,
        ),
    ]


def test_runs_of_langsmith_are_read_in_the_order_of_their_times(tmp_path: Path) -> None:
    run = nn.import_run(written(tmp_path / "runs.jsonl", reversed(langsmith_trace())))

    assert run.meta["source"] == "langsmith"
    assert [(turn.query, turn.text, turn.outcome) for turn in run.turns] == [
        ("Is box 4 full?", "I cannot tell.", "success")
    ]
    assert model_calls(run) == THE_CALLS
    assert tool_calls(run) == [("weigh", "c1", {"box": 4}, "error", "scale is off", "ScaleError('scale is off')")]
    assert run.meta["tags"] == ["store"]
    assert run.meta["metadata"] == {"team": "blue"}
    assert (run.meta["agent"], run.meta["traces"]) == ("r0", ["r0"])
    assert run.meta["scores"] == [{"name": "correct", "run": "r0", "n": 1, "avg": 1.0}]
    assert unmapped(run) == {"no place in a run: reference_example_id": "e5"}
    assert [event.duration_ms for event in run.events if event.kind == "tool_called"] == [1_000.0]


def test_runs_of_langsmith_may_be_nested_objects_a_page_or_rows_of_texts() -> None:
    flat = langsmith_trace()
    root = {**flat[0], "child_runs": [{**each, "parent_run_id": None, "trace_id": None} for each in flat[1:]]}
    rows = [
        {**each, **{key: json.dumps(each[key]) for key in ("inputs", "outputs", "extra") if key in each}}
        for each in flat
    ]
    sources = [[root], {"runs": flat}, rows, iter([SimpleNamespace(model_dump=lambda **_: root)])]

    for source in sources:
        [run] = read(source)
        assert (model_calls(run), [call[:4] for call in tool_calls(run)]) == (
            THE_CALLS,
            [call[:4] for call in THE_TOOL],
        )


def test_a_function_that_a_model_called_is_a_tool_and_a_chain_below_it_a_child() -> None:
    flat = langsmith_trace()
    flat[2] |= {
        "run_type": "chain",
        "outputs": {"output": "full"},
        "inputs": {"box": 4},
        "error": None,
        "status": "success",
    }
    inner = langsmith(
        "r5", "llm", 3.4, "r4", inputs={"messages": [ASK]}, outputs=completion(ANSWER, "stop", 8, 2, 0, 0)
    )
    middle = langsmith("r4", "chain", 3.2, "r2", name="keeper", inputs={"messages": [ASK]})
    [run] = read([*flat, middle, inner])

    assert model_calls(run, 1) == [("m1", 8, 2, 0, None, 0, None)]
    assert [(event.step_id, event.where.depth) for event in run.events if event.kind == "child_started"] == [
        ("keeper", 1)
    ]
    assert tool_calls(run) == [("weigh", "c1", {"box": 4}, "ok", "full", None)]
    assert len(run.turns) == 1


def test_an_agent_that_names_itself_one_is_a_child_without_a_tool() -> None:
    flat = langsmith_trace()
    for each in flat:
        each["extra"] = {"metadata": {"ls_agent_type": "root", "thread_id": "t7", "ls_model_name": "m1"}}
    below = {"metadata": {"ls_agent_type": "subagent", "ls_model_name": "m2"}}
    agent = langsmith("r4", "chain", 4, "r0", name="mover", extra=below, inputs={"messages": [ASK]})
    step = langsmith("r5", "chain", 4.1, "r4", name="model", extra=below)
    inner = langsmith("r6", "llm", 4.2, "r5", extra=below, inputs={"messages": [ASK]}, outputs=SECOND)
    [run] = read([*flat, agent, step, inner])

    assert [event.step_id for event in run.events if event.kind == "child_started"] == ["mover"]
    assert (model_calls(run), model_calls(run, 1)) == (THE_CALLS, [("m2", 70, 5, 48, None, 0, None)])


def test_messages_of_langchain_and_a_model_that_failed() -> None:
    def message(kind: str, **kwargs: Any) -> dict[str, Any]:
        return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": kwargs}

    called = {"name": "weigh", "args": {"box": 4}, "id": "c1", "type": "tool_call"}
    counted = {
        "input_tokens": 90,
        "output_tokens": 6,
        "input_token_details": {"flex_cache_read": 30, "ephemeral_5m_input_tokens": 8, "ephemeral_1h_input_tokens": 2},
        "output_token_details": {"flex_reasoning": 3},
    }
    asked = [message("SystemMessage", content="You keep the store."), message("HumanMessage", content="Is box 4 full?")]
    answer = message("AIMessage", content="", tool_calls=[called], usage_metadata=counted)
    generation = {"text": "", "generation_info": {"finish_reason": "tool_calls"}, "message": answer}
    tool = {"type": "tool", "content": "broken", "tool_call_id": "c1", "status": "error"}
    records = [
        langsmith("r1", "llm", 0, None, inputs={"messages": [asked]}, outputs={"generations": [[generation]]}),
        langsmith("r2", "tool", 2, None, name="weigh", inputs={"box": 4}, outputs={"output": tool}),
        langsmith(
            *("r3", "llm", 4, None),
            inputs={"messages": [[*asked, answer, message("ToolMessage", content="broken", tool_call_id="c1")]]},
            error="RateLimitError: slow down\n\nTraceback (most recent call last):\n  ...",
        ),
    ]
    [run] = read(records)

    assert model_calls(run)[0] == ("unknown", 90, 6, 30, 10, 3, None)
    assert tool_calls(run) == [("weigh", "c1", {"box": 4}, "error", "broken", "broken")]
    assert [(call.status, call.error) for call in run.events if call.kind == "model_called"] == [
        ("ok", None),
        ("error", "RateLimitError: slow down"),
    ]
    assert run.meta["policy"] == "You keep the store."


def test_calls_and_thoughts_beside_a_message_and_other_choices_are_kept() -> None:
    beside = {"tool_calls": [CALL], "reasoning_content": "hm"}
    invalid = [{"name": "weigh", "args": "{4", "id": "c2", "type": "invalid_tool_call"}]
    message = {
        "type": "ai",
        "content": "",
        "tool_calls": [],
        "invalid_tool_calls": invalid,
        "additional_kwargs": beside,
    }
    answers = {"generations": [[{"message": message}, {"text": "No."}]]}
    asked = {"messages": [["system", "You keep the store."], ["human", "Is box 4 full?"]]}
    [run] = read([langsmith("r0", "llm", 0, None, inputs=asked, outputs=answers)])
    items = run.log(run.threads[0])

    assert [item["arguments"] for item in items if item["type"] == "function_call"] == ['{"box": 4}', "{4"]
    assert [item["content"][0]["text"] for item in items if item["type"] == "reasoning"] == ["hm"]
    assert unmapped(run) == {"other choices of an answer": [{"text": "No."}]}
    assert (run.turns[0].query, run.meta["policy"]) == ("Is box 4 full?", "You keep the store.")


def test_answers_of_anthropic_responses_and_gemini_are_read() -> None:
    anthropic = {
        "role": "assistant",
        "stop_reason": "tool_use",
        "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "c1", "name": "weigh", "input": {"box": 4}},
        ],
        "usage": {
            "input_tokens": 10,
            "output_tokens": 4,
            "cache_read_input_tokens": 30,
            "cache_creation_input_tokens": 5,
        },
    }
    responses = {
        "output": [
            {"type": "reasoning", "id": "rs1", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "function_call", "id": "fc1", "call_id": "c1", "name": "weigh", "arguments": '{"box": 4}'},
        ],
        "usage": {"input_tokens": 45, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 30}},
    }
    gemini = {
        "candidates": [
            {
                "content": {"role": "model", "parts": [{"functionCall": {"name": "weigh", "args": {"box": 4}}}]},
                "finishReason": "STOP",
            }
        ],
        "usage_metadata": {"prompt_token_count": 45, "candidates_token_count": 3, "thoughts_token_count": 1},
    }
    for output, request, expected in [
        (anthropic, {"system": "You keep the store.", "messages": [ASK]}, (45, 4, 30, 5, None)),
        (responses, {"instructions": "You keep the store.", "input": "Is box 4 full?"}, (45, 4, 30, None, None)),
        (gemini, {"contents": [{"role": "user", "parts": [{"text": "Is box 4 full?"}]}]}, (45, 4, None, None, 1)),
    ]:
        [run] = read([langsmith("r0", "llm", 0, None, inputs=request, outputs=output)])
        assert model_calls(run)[0][1:6] == expected
        assert [turn.query for turn in run.turns] == ["Is box 4 full?"]
        calls = [item for item in run.log(run.threads[0]) if item["type"] == "function_call"]
        assert [(item["name"], json.loads(item["arguments"])) for item in calls] == [("weigh", {"box": 4})]


# Langfuse


def observation(id: str, kind: str, second: float, parent: str | None = "o0", **fields: Any) -> dict[str, Any]:
    about = {"id": id, "traceId": "k1", "type": kind, "name": id, "startTime": at(second), "endTime": at(second + 1)}
    return {**about, "parentObservationId": parent, "level": "DEFAULT", "metadata": {}, **fields}


def langfuse_trace() -> dict[str, Any]:
    first = {"input": 50, "output": 5, "output_reasoning_tokens": 4, "input_cached_tokens": 0, "total": 59}
    second = {"input": 22, "output": 5, "output_reasoning_tokens": 0, "input_cached_tokens": 48, "total": 75}
    found = [
        observation(
            "o0", "AGENT", 0, None, name="keeper", endTime=at(9), input=ASK["content"], output="I cannot tell."
        ),
        observation(
            *("o1", "GENERATION", 1),
            model="m1",
            input=[SYSTEM, ASK],
            output=CALLS,
            usageDetails=first,
            costDetails={"total": 0.25},
            modelParameters={"temperature": "0.5"},
        ),
        observation(
            *("o2", "TOOL", 3),
            name="weigh",
            input={"box": 4},
            level="ERROR",
            statusMessage="scale is off",
            metadata={"tool_call_id": "c1", "shelf": 3},
        ),
        observation(
            *("o3", "GENERATION", 5),
            model="m1",
            input=[SYSTEM, ASK, CALLS, RESULT],
            output=ANSWER,
            usageDetails=second,
            costDetails={"input": 0.125, "output": 0.375},
        ),
        observation("o4", "EVENT", 7, name="note", input="closed", endTime=None),
    ]
    scores = [{"id": "s", "name": "right", "value": 1, "dataType": "NUMERIC", "comment": "seen"}]
    about = {"id": "k1", "timestamp": at(0), "name": "store", "sessionId": "s3", "userId": "ann", "tags": ["night"]}
    return {**about, "metadata": {"shop": "Graz"}, "release": "r4", "scores": scores, "observations": found}


def snake(value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "".join([f"_{sign.lower()}" if sign.isupper() else sign for sign in key]): each for key, each in value.items()
    }


def test_traces_of_langfuse_are_read_one_or_many_in_every_form(tmp_path: Path) -> None:
    trace = langfuse_trace()
    found = trace["observations"]
    bare = {key: value for key, value in trace.items() if key != "observations"}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace), encoding="utf-8")
    texts = [
        {**each, "sessionId": "s3", **{key: json.dumps(each[key]) for key in ("input", "output") if key in each}}
        for each in reversed(found)
    ]
    objects = [SimpleNamespace(dict=lambda: snake({**trace, "observations": [snake(each) for each in found]}))]
    for source in (path, {"data": [trace]}, {"trace": bare, "observations": found}, objects, {"data": texts}, texts):
        [run] = read(source)
        assert run.meta["source"] == "langfuse"
        assert run.threads == ("s3",)
        assert model_calls(run) == THE_CALLS
        assert tool_calls(run) == THE_TOOL
        assert [(turn.query, turn.text) for turn in run.turns] == [("Is box 4 full?", "I cannot tell.")]
        assert run.meta["params"] == {"temperature": 0.5}
        assert unmapped(run)["no place in a run: metadata.shelf"] == 3
        assert unmapped(run)["no place in a run: EVENT"]["input"] in ("closed", '"closed"')

    run = nn.import_run(trace)
    assert (run.meta["tags"], run.meta["user"], run.meta["release"]) == (["night"], "ann", "r4")
    assert run.meta["metadata"] == {"shop": "Graz"}
    assert run.meta["scores"] == trace["scores"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # Beside one another, as written by the integrations.
        (
            {"input": 10, "input_cache_read": 30, "input_cache_creation": 5, "output": 7, "total": 52},
            (45, 7, 30, 5, None),
        ),
        (
            {"input": 10, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 5, "output": 7},
            (45, 7, 30, 5, None),
        ),
        ({"input": 10, "input_ephemeral_5m_input_tokens": 5, "output": 4, "output_reasoning": 3}, (15, 7, None, 5, 3)),
        # Nested, as the total shows.
        (
            {"input": 45, "input_cached_tokens": 30, "output": 7, "output_reasoning_tokens": 3, "total": 52},
            (45, 7, 30, None, 3),
        ),
        (usage(45, 7, 30, 3), (45, 7, 30, None, 3)),
        ({"promptTokens": 45, "completionTokens": 7, "totalTokens": 52}, (45, 7, None, None, None)),
    ],
)
def test_tokens_of_langfuse_add_up(given: dict[str, Any], expected: tuple[Any, ...]) -> None:
    [run] = read([observation("o1", "GENERATION", 1, None, model="m1", input=[ASK], output=ANSWER, usageDetails=given)])

    assert model_calls(run) == [("m1", *expected, None)]
    assert run.meta["estimated"] == []


def test_tokens_and_costs_that_langfuse_does_not_know_are_none_or_estimated() -> None:
    zeros = {"usage": {"input": 0, "output": 0, "total": 0, "unit": "TOKENS"}, "calculatedTotalCost": 0.0}
    [run] = read([observation("o1", "GENERATION", 1, None, model="m1", input=[ASK], output=ANSWER, **zeros)])

    assert model_calls(run)[0][3:] == (None, None, None, None)
    assert run.meta["estimated"] == ["input_tokens", "output_tokens"]


@pytest.mark.parametrize("odd", ["30", -1, 2.5, True, 2**70])
def test_a_sum_with_a_part_that_is_no_number_is_estimated(odd: Any) -> None:
    sides = {"input_tokens": {"input": 10, "input_cache_read": odd, "output": 7}}
    sides["output_tokens"] = {"input": 10, "output": 7, "output_reasoning": odd}
    for side, given in sides.items():
        [run] = read(
            [observation("o1", "GENERATION", 1, None, model="m1", input=[ASK], output=ANSWER, usageDetails=given)]
        )
        assert run.meta["estimated"] == [side]

    counted = {"input_tokens": 10, "output_tokens": 7, "cache_read_input_tokens": odd}
    [run] = read([langsmith("r0", "llm", 0, None, inputs={"messages": [ASK]}, outputs={**ANSWER, "usage": counted})])
    assert run.meta["estimated"] == ["input_tokens"]


def test_a_trace_of_langfuse_without_its_observations_says_so() -> None:
    with pytest.raises(NoeticError, match="full observations") as caught:
        nn.import_run({**langfuse_trace(), "observations": ["o0", "o1"]})

    assert caught.value.kind == "invalid_run_file"


# MLflow


def mlflow_span(id: str, kind: str, second: int, parent: str | None = "MDAwMDAwMDA=", **fields: Any) -> dict[str, Any]:
    attributes = {f"mlflow.{key}": json.dumps(value) for key, value in fields.pop("attributes", {}).items()}
    start = 1_800_000_000_000_000_000 + second * 10**9
    return {
        "trace_id": "MDAwMDAwMDAwMDAwMDAwMA==",
        "span_id": id,
        "parent_span_id": parent,
        "name": fields.pop("name", "Completions"),
        "start_time_unix_nano": start,
        "end_time_unix_nano": start + 10**9,
        "events": [],
        "status": {"code": "STATUS_CODE_OK", "message": ""},
        "attributes": {"mlflow.traceRequestId": '"tr-1"', "mlflow.spanType": f'"{kind}"', **attributes},
        **fields,
    }


def mlflow_trace() -> dict[str, Any]:
    counted = [
        {"input_tokens": 50, "output_tokens": 9, "total_tokens": 59},
        {"input_tokens": 70, "output_tokens": 5, "total_tokens": 75},
    ]
    tools = [{"type": "function", "function": {"name": "weigh"}}]
    spans = [
        mlflow_span("MDAwMDAwMDA=", "AGENT", 0, None, name="keeper", attributes={"spanInputs": {"messages": [ASK]}}),
        mlflow_span(
            *("MDAwMDAwMDE=", "CHAT_MODEL", 1),
            attributes={
                "spanInputs": {"messages": [SYSTEM, ASK], "temperature": 0.5},
                "spanOutputs": FIRST,
                "chat.tokenUsage": counted[0],
                "llm.cost": {"input_cost": 0.125, "output_cost": 0.125, "total_cost": 0.25},
                "chat.tools": tools,
            },
        ),
        mlflow_span(
            *("MDAwMDAwMDI=", "TOOL", 3),
            name="weigh",
            status={"code": "STATUS_CODE_ERROR", "message": "scale is off"},
            events=[
                {
                    "name": "exception",
                    "attributes": {"exception.message": "scale is off", "exception.type": "ScaleError"},
                }
            ],
            attributes={"spanInputs": {"box": 4}},
        ),
        mlflow_span(
            *("MDAwMDAwMDM=", "CHAT_MODEL", 5),
            attributes={
                "spanInputs": {"messages": [SYSTEM, ASK, CALLS, RESULT]},
                "spanOutputs": SECOND,
                "chat.tokenUsage": counted[1],
                "llm.cost": {"total_cost": 0.5},
                "llm.region": "eu",
            },
        ),
    ]
    said = {"mlflow.trace.session": "s4", "mlflow.trace.user": "bo", "shop": "Graz", "mlflow.trace.sizeBytes": "9"}
    marks = [
        {"assessment_name": "right", "feedback": {"value": True}, "rationale": "seen", "trace_id": "tr-1"},
        {"assessment_name": "answer", "expectation": {"value": "No."}},
    ]
    info = {
        "trace_id": "tr-1",
        "state": "OK",
        "trace_metadata": said,
        "tags": {"mlflow.traceName": "a", "kind": "demo"},
    }
    return {"info": {**info, "assessments": marks}, "data": {"spans": spans}}


def of_before(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trace in MLflow's second form."""
    spans = []
    for span in trace["data"]["spans"]:
        failed = span["status"]["code"].endswith("ERROR")
        spans.append(
            {
                "name": span["name"],
                "context": {"trace_id": "0xab", "span_id": f"0x{span['span_id'][-3:-1].encode().hex()}"},
                "parent_id": span["parent_span_id"] and "0x4441",
                "start_time": span["start_time_unix_nano"],
                "end_time": span["end_time_unix_nano"],
                "status_code": "ERROR" if failed else "OK",
                "status_message": span["status"]["message"],
                "attributes": span["attributes"],
                "events": span["events"],
            }
        )
    info = trace["info"]
    pairs = [{"key": key, "value": value} for key, value in info["tags"].items()]
    return {
        "info": {"request_id": "ab", "request_metadata": info["trace_metadata"], "tags": pairs},
        "data": {"spans": spans},
    }


def test_traces_of_mlflow_are_read_in_both_forms_as_files_rows_and_spans(tmp_path: Path) -> None:
    trace = mlflow_trace()
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace, indent=1), encoding="utf-8")
    rows = [{"trace_id": "tr-1", "trace": json.dumps(trace), "state": "OK"}]
    spans = trace["data"]["spans"]
    for source in (
        path,
        [trace],
        written(tmp_path / "traces.jsonl", [trace]),
        rows,
        of_before(trace),
        {"spans": spans},
        spans,
    ):
        [run] = read(source)
        assert run.meta["source"] == "mlflow"
        assert model_calls(run) == THE_CALLS
        assert tool_calls(run) == THE_TOOL
        assert [(turn.query, turn.text) for turn in run.turns] == [("Is box 4 full?", "I cannot tell.")]
        assert unmapped(run) == {"no place in a run: attribute llm.region": "eu"}

    run = nn.import_run(trace)
    assert (run.threads, run.meta["user"], run.meta["tags"]) == (("s4",), "bo", ["kind=demo"])
    assert run.meta["metadata"] == {"shop": "Graz"}
    assert run.meta["params"] == {"temperature": 0.5}
    assert [tool["function"]["name"] for tool in run.meta["tools"]] == ["weigh"]
    assert [(mark["name"], mark["value"], mark["type"]) for mark in run.meta["scores"]] == [
        ("right", True, "feedback"),
        ("answer", "No.", "expectation"),
    ]
    assert run.meta["scores"][0]["rationale"] == "seen"


def test_spans_of_opentelemetry_stay_spans(tmp_path: Path) -> None:
    pairs = [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
        {"key": "mlflow.spanType", "value": {"stringValue": "CHAT_MODEL"}},
        {"key": "gen_ai.input.messages", "value": {"stringValue": json.dumps([ASK])}},
        {"key": "gen_ai.output.messages", "value": {"stringValue": json.dumps([ANSWER])}},
    ]
    span = {"traceId": "0a", "spanId": "0b", "name": "chat", "attributes": pairs, "endTimeUnixNano": "5"}
    path = tmp_path / "spans.json"
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}), encoding="utf-8")

    assert nn.import_run(path).meta["source"] == "otel"


# Weave


def weave(id: str, op: str, second: float, parent: str | None = "w0", **fields: Any) -> dict[str, Any]:
    about = {
        "id": id,
        "op_name": f"weave:///team/p/op/{op}:v3",
        "project_id": "team/p",
        "trace_id": "w0",
        "parent_id": parent,
    }
    times = {"started_at": at(second), "ended_at": at(second + 1)}
    return {
        **about,
        **times,
        "inputs": {},
        "output": None,
        "summary": {},
        "attributes": {},
        "exception": None,
        **fields,
    }


def weave_trace() -> list[dict[str, Any]]:
    def costs(part: float) -> dict[str, Any]:
        return {"weave": {"costs": {"m1": {"prompt_tokens_total_cost": part, "completion_tokens_total_cost": part}}}}

    stack = 'Traceback (most recent call last):\n  File "a.py", line 1\nScaleError: scale is off'
    create = "openai.chat.completions.create"
    return [
        weave(
            *("w0", "keeper", 0, None),
            inputs={"self": "weave:///team/p/object/Keeper:v1", "message": ASK["content"]},
            output=ANSWER["content"],
            thread_id="t2",
            wb_user_id="u5",
            feedback=[{"feedback_type": "wandb.reaction.1", "payload": {"emoji": "+1"}}],
            ended_at=at(9),
            summary={"usage": {"m1": {"prompt_tokens": 120, "completion_tokens": 14}}},
        ),
        weave("w1", create, 1, inputs={"model": "m1", "messages": [SYSTEM, ASK]}, output=FIRST, summary=costs(0.125)),
        weave("w2", "weigh", 3, inputs={"box": 4}, exception=stack),
        weave(
            "w3",
            create,
            5,
            inputs={"model": "m1", "messages": [SYSTEM, ASK, CALLS, RESULT]},
            output=SECOND,
            summary=costs(0.25),
        ),
        weave("w4", "log_it", 7, wb_run_step=6),
    ]


def test_calls_of_weave_are_read_without_their_kinds_as_lines_a_list_a_page_and_objects(tmp_path: Path) -> None:
    calls = weave_trace()
    objects = (SimpleNamespace(to_dict=lambda each=each: each) for each in calls)
    for source in (written(tmp_path / "calls.jsonl", calls), calls, {"calls": calls}, objects):
        [run] = read(source)
        assert run.meta["source"] == "weave"
        assert run.threads == ("t2",)
        assert model_calls(run) == THE_CALLS
        assert tool_calls(run) == [(*THE_TOOL[0][:5], "ScaleError: scale is off")]
        assert [(turn.query, turn.text, turn.outcome) for turn in run.turns] == [
            ("Is box 4 full?", "I cannot tell.", "success")
        ]
        assert run.meta["scores"] == [{"name": "wandb.reaction.1", "value": {"emoji": "+1"}, "call": "keeper"}]
        assert run.meta["user"] == "u5"
        assert unmapped(run) == {"no place in a run: wb_run_step": 6}


def test_a_kind_that_weave_names_counts_and_usage_may_stand_in_the_summary() -> None:
    counted = {"input_tokens": 10, "output_tokens": 4, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 5}
    calls = [
        weave("w0", "Agent", 0, None, attributes={"weave": {"kind": "agent"}}, inputs={"message": "Is box 4 full?"}),
        weave(
            *("w1", "anthropic.Messages.create", 1),
            attributes={"weave": {"kind": "llm"}},
            inputs={"messages": [ASK]},
            output={"role": "assistant", "content": [{"type": "text", "text": "No."}], "stop_reason": "end_turn"},
            summary={"usage": {"claude": {**counted, "requests": 1}}},
        ),
        weave("w2", "find", 3, attributes={"weave": {"kind": "search"}}, inputs={"q": "x"}, output=["a"]),
    ]
    [run] = read(calls)

    assert model_calls(run) == [("claude", 45, 4, 30, 5, None, None)]
    assert [turn.text for turn in run.turns] == ["No."]
    assert unmapped(run) == {}


def test_calls_of_weave_by_its_integrations_of_frameworks() -> None:
    def run(kind: str, outputs: Any) -> dict[str, Any]:
        return {"run_type": kind, "outputs": outputs}

    message = {"type": "ai", "content": "", "tool_calls": [{"name": "weigh", "args": {"box": 4}, "id": "c1"}]}
    spent = {"usage_metadata": {"input_tokens": 50, "output_tokens": 9}}
    answer = {"generations": [[{"message": {**message, **spent}, "generation_info": {"finish_reason": "tool_calls"}}]]}
    human = {
        "messages": [
            [{"type": "system", "content": "You keep the store."}, {"type": "human", "content": "Is box 4 full?"}]
        ]
    }
    tool = {"output": {"type": "tool", "content": "full", "tool_call_id": "c1", "status": "success"}}
    langchain = [
        weave("w0", "langchain.Chain.RunnableSequence", 0, None, inputs={"input": "Is box 4 full?"}),
        weave(
            "w1",
            "langchain.Llm.ChatOpenAI",
            1,
            attributes={"weave": {"kind": "llm"}},
            inputs=human,
            output=run("llm", answer),
        ),
        weave(
            *("w2", "langchain.Tool.weigh", 3),
            attributes={"weave": {"kind": "tool"}, "lc_name": "weigh"},
            inputs={"input": "{'box': 4}"},
            output=run("tool", tool),
        ),
    ]
    about = {"metrics": {}, "metadata": {"handoffs": ["mover"]}, "error": None}
    agents = [
        weave("w0", "openai_agent_trace", 0, None, attributes={"type": "task"}, inputs={"name": "flow"}),
        weave(
            "w1",
            "openai_agent_agent",
            0.5,
            attributes={"type": "agent"},
            inputs={"name": "keeper"},
            output={"output": None, **about},
        ),
        weave(
            "w2",
            "openai.responses.create",
            1,
            "w1",
            inputs={"input": "Is box 4 full?"},
            output={
                "model": "m1",
                "output": [
                    {"type": "function_call", "id": "f", "call_id": "c1", "name": "weigh", "arguments": '{"box": 4}'}
                ],
                "usage": {"input_tokens": 50, "output_tokens": 9},
            },
        ),
        weave(
            *("w3", "openai_agent_function", 3, "w1"),
            attributes={"type": "function"},
            display_name="weigh",
            inputs={"name": "weigh"},
            output={"output": "full", **about},
        ),
    ]
    for calls in (langchain, agents):
        [run_] = read(calls)
        assert [call[1:3] for call in model_calls(run_)] == [(50, 9)]
        assert tool_calls(run_) == [("weigh", "c1", {"box": 4}, "ok", "full", None)]
        assert [turn.query for turn in run_.turns] == ["Is box 4 full?"]
    assert unmapped(run_) == {"no place in a run: output.metadata": {"handoffs": ["mover"]}}


# All


def test_conversations_of_one_document_are_runs_of_their_own() -> None:
    def of(trace: str, thread: str) -> list[dict[str, Any]]:
        return [
            {
                **each,
                "id": f"{trace}{each['id']}",
                "trace_id": trace,
                "thread_id": thread,
                "parent_id": each["parent_id"] and f"{trace}w0",
            }
            for each in weave_trace()
        ]

    later = json.loads(json.dumps(of("c", "x")).replace("T10:", "T11:"))
    runs = read([*of("a", "x"), *of("b", "y"), *later])
    assert [(run.threads, len(run.turns)) for run in runs] == [(("x",), 2), (("y",), 1)]


HOSTILE: list[Any] = [
    [{**langsmith_trace()[0], "id": None}],
    [langsmith_trace()[0], 7],
    [{**langsmith_trace()[0], "child_runs": 7}],
    {**langfuse_trace(), "observations": [{"id": "o", "type": "CHAIN"}, 5]},
    {**mlflow_trace(), "data": {"spans": [{"name": "no ids"}]}},
    [weave_trace()[0], {"id": "w1", "op_name": "x"}],
]


@pytest.mark.parametrize("source", HOSTILE, ids=range(len(HOSTILE)))
def test_records_that_are_not_as_their_format_has_them_are_refused_with_their_place(source: Any) -> None:
    with pytest.raises(NoeticError) as caught:
        nn.import_run(source)

    assert caught.value.kind == "invalid_run_file"


JUNK: list[Any] = [
    None,
    7,
    -1,
    float("nan"),
    10**400,
    "",
    "{",
    "\ud800",
    [],
    {},
    [[]],
    {"role": 3},
    {"type": []},
    {"lc": 1},
]


@pytest.mark.parametrize("trace", [langsmith_trace, lambda: langfuse_trace()["observations"], weave_trace])
def test_no_value_of_a_field_raises_an_unknown_error(trace: Any) -> None:
    read_whole = 0
    for place, record in enumerate(trace()):
        for number, key in enumerate(record):
            for junk in JUNK[number % 4 :: 4]:
                records = trace()
                records[place][key] = junk
                for found in nn.import_runs(records, progress=False):
                    if isinstance(found, nn.Run):
                        read_whole += 1
                    else:
                        assert isinstance(found.error, NoeticError)
                        assert found.error.kind == "invalid_run_file"
    assert read_whole > 40


@pytest.mark.parametrize(
    ("trace", "bad", "place"),
    [
        (langsmith_trace, {"run_type": "tool", "trace_id": "r0", "name": "no id"}, "record {}"),
        (langsmith_trace, 7, "record {}"),
        (lambda: [langfuse_trace()], {"id": None, "observations": [{}]}, "record {}"),
        (lambda: langfuse_trace()["observations"], {"type": "TOOL", "traceId": "t1"}, "record {}"),
        (lambda: [mlflow_trace()], {"info": 5, "data": 6}, "record {}"),
        (weave_trace, {"op_name": "x", "trace_id": "t"}, "record {}"),
    ],
)
def test_a_record_that_cannot_be_read_is_listed_and_spoils_no_other(trace: Any, bad: Any, place: str) -> None:
    whole = read(trace())
    for at in range(len(trace()) + 1):
        records = trace()
        records.insert(at, bad)
        runs = read(records)
        (note,) = [each for each in runs[0].meta["unmapped"] if each["what"].startswith("a record that cannot be read")]

        assert [model_calls(run) for run in runs] == [model_calls(run) for run in whole]
        assert [tool_calls(run) for run in runs] == [tool_calls(run) for run in whole]
        assert (note["place"], note["value"]) == (place.format(at), bad)


def test_a_bad_record_inside_another_is_listed_with_its_place() -> None:
    root, *inner = langsmith_trace()
    langfuse, mlflow = langfuse_trace(), mlflow_trace()
    langfuse["observations"].insert(1, 5)
    mlflow["data"]["spans"].append({"name": "no ids"})
    sources = [{**root, "child_runs": [*inner, {"id": []}]}, langfuse, mlflow]
    places = [
        f"record 0.child_runs[{len(inner)}]",
        "record 0.observations[1]",
        f"record 0.spans[{len(mlflow['data']['spans']) - 1}]",
    ]

    for source, place in zip(sources, places, strict=True):
        [run] = read(source)
        assert model_calls(run) == THE_CALLS
        assert place in [each["place"] for each in run.meta["unmapped"]]


def test_a_line_that_is_cut_off_is_listed_and_the_others_are_read(tmp_path: Path) -> None:
    path = written(tmp_path / "runs.jsonl", langsmith_trace())
    path.write_text(path.read_text(encoding="utf-8")[:-40], encoding="utf-8")

    run = nn.import_run(path)

    assert [call[1:] for call in model_calls(run)] == [
        call[1:] for call in model_calls(read(langsmith_trace()[:-1])[0])
    ]
    assert [each["place"] for each in run.meta["unmapped"] if "cannot be read" in each["what"]] == ["line 4"]


def test_a_circle_of_parents_ends_and_secrets_are_replaced() -> None:
    calls = weave_trace()
    calls[0]["parent_id"], calls[4]["parent_id"] = "w4", "w0"
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    calls[3]["output"] = completion({"role": "assistant", "content": f"Use {key}"}, "stop", 70, 5, 48, 0)
    calls[0]["feedback"] = [{"feedback_type": "note", "payload": {"note": key}}]
    [run] = read(calls)

    assert model_calls(run) == THE_CALLS
    assert key not in str(run.events) + str(run.meta)


def test_the_answer_that_only_the_root_of_a_trace_tells_keeps_no_secret() -> None:
    secret = "sk-proj-Zq8vT3nLw0RkYb5Xd7Hf2Jm9Pc4Gs6Ae1Uu"
    said = {"messages": [{"role": "assistant", "content": f"The key is {secret}"}]}
    records = sorted(langsmith_trace(), key=lambda each: each["start_time"])
    asked = next(each for each in records if each["run_type"] == "llm")
    root = next(each for each in records if each["id"] == "r0")
    [run] = read([{**root, "outputs": said}, asked])

    assert run.turns[0].text.startswith("The key is ")
    assert secret not in repr([*run.events, run.meta])


def test_a_picture_is_listed_with_the_item_that_it_belongs_to() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://shop.example/box.png"}}
    for content, shown in (
        ([{"type": "text", "text": "Is it full?"}, picture], "Is it full?"),
        ([picture], "[image_url]"),
    ):
        trace = langsmith_trace()
        for record in trace:
            if record["run_type"] == "llm":
                record["inputs"] = {"messages": [SYSTEM, {"role": "user", "content": content}]}
        [run] = read(trace)
        (note,) = [each for each in run.meta["unmapped"] if each["what"] == "a part of a message cannot be read"]
        (item,) = [item for item in run.log("t7") if item["id"] == note["item"]]

        assert "box.png" in note["value"]
        assert (item["role"], item_text(item)) == ("user", shown)


@pytest.mark.parametrize("says", ["metadata", "name of the node"])
def test_a_summary_of_langchain_is_a_compaction_and_no_turn(says: str) -> None:
    prompt = {"role": "user", "content": "Summarise: the box was weighed."}
    about = {"lc_source": "summarization"} if says == "metadata" else {}
    node = "SummarizationMiddleware.before_model" if says != "metadata" else "node"
    summary = completion({"role": "assistant", "content": "Box 4 is full."}, "stop", 40, 6, 0, 0)
    extra = {"metadata": {"thread_id": "t7", "ls_model_name": "m2", **about}}
    sent = {"role": "human", "content": "Summary: Box 4 is full.", "additional_kwargs": {"lc_source": "summarization"}}
    first = langsmith_trace()
    later = {"trace_id": "q0", "extra": {"metadata": {"thread_id": "t7", "ls_model_name": "m1"}}}
    second = [
        langsmith("q0", "chain", 20, None, **later, inputs={"messages": [{"role": "user", "content": "And now?"}]}),
        langsmith("q1", "chain", 21, "q0", **{**later, "name": node}),
        langsmith("q2", "llm", 22, "q1", trace_id="q0", extra=extra, inputs={"messages": [[prompt]]}, outputs=summary),
        langsmith(
            *("q3", "llm", 24, "q0"),
            **later,
            inputs={"messages": [SYSTEM, sent, {"role": "user", "content": "And now?"}]},
            outputs=SECOND,
        ),
    ]
    [run] = read([*first, *second])

    assert [turn.query for turn in run.turns] == ["Is box 4 full?", "And now?"]
    purposes = [(event.purpose, event.model) for event in run.events if event.kind == "model_called"]
    assert purposes == [("agent", "m1"), ("agent", "m1"), ("summary", "m2"), ("agent", "m1")]
    (event,) = [event for event in run.events if event.kind == "context_compacted"]
    assert (event.by, [item_text(item) for item in event.items], event.where.turn) == (
        "SummarizationMiddleware",
        ["Box 4 is full."],
        2,
    )
