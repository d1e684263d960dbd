"""Other versions of the dialects, conversations of several turns, children, and invalid spans."""

from __future__ import annotations

import gzip
import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import ChildEnded, ChildStarted, MemoryTraceSpan, ModelCalled, ToolCalled
from noetic_nb.interop import runs_from_spans
from noetic_nb.runs import Run
from tests.matrix import sampled

TRACE = "a" * 32


def span(name: str, number: int, parent: int | None = None, *, at: int = 0, to: int | None = None, trace: str = TRACE,
         events: Any = (), error: str | None = None, **about: Any) -> dict[str, Any]:  # fmt: skip
    """Return a span in OTLP's form, with times in milliseconds; `about` are attributes, with `__` for a dot."""
    start = 1_700_000_000_000 + (at or number)
    end = start + 1 if to is None else 1_700_000_000_000 + to
    return {
        "traceId": trace,
        "spanId": f"{number:016x}",
        "parentSpanId": "" if parent is None else f"{parent:016x}",
        "name": name,
        "startTimeUnixNano": str(start * 1_000_000),
        "endTimeUnixNano": str(end * 1_000_000),
        "attributes": {key.replace("__", "."): value for key, value in about.items()},
        "events": [
            {"name": each, "timeUnixNano": str(start * 1_000_000), "attributes": given} for each, given in events
        ],
        "status": {"code": 2, "message": error} if error is not None else {},
    }


def chat(number: int, parent: int | None = None, *, sent: Any = (), answer: Any = None, **more: Any) -> dict[str, Any]:
    about = {"gen_ai__operation__name": "chat", "gen_ai__request__model": "m", "gen_ai__usage__input_tokens": 10}
    about |= {"gen_ai__usage__output_tokens": 2}
    if sent:
        about["gen_ai__input__messages"] = json.dumps(sent)
    if answer is not None:
        about["gen_ai__output__messages"] = json.dumps([answer])
    return span("chat m", number, parent, **{**about, **more})


def tool(number: int, parent: int | None = None, **more: Any) -> dict[str, Any]:
    about = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": "lookup"}
    return span("execute_tool lookup", number, parent, **{**about, **more})


def agent(number: int, parent: int | None = None, name: str = "desk", **more: Any) -> dict[str, Any]:
    about = {"gen_ai__operation__name": "invoke_agent", "gen_ai__agent__name": name}
    return span(f"invoke_agent {name}", number, parent, to=number + 900, **{**about, **more})


def text(role: str, words: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": words}]}


def called(call_id: str, order: str = "A17") -> dict[str, Any]:
    part = {"type": "tool_call", "id": call_id, "name": "lookup", "arguments": {"order": order}}
    return {"role": "assistant", "parts": [part]}


def result(call_id: str, output: str = "packed") -> dict[str, Any]:
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": call_id, "response": output}]}


def only(spans: list[Any], **options: Any) -> Run:
    runs = runs_from_spans(spans, **options)
    assert len(runs) == 1
    return runs[0]


def talk(run: Run) -> list[tuple[str, str]]:
    return [(turn.query, turn.text) for turn in run.turns]


LOOP = [
    agent(1),
    chat(2, 1, sent=[text("user", "Where?")], answer=called("c1")),
    tool(3, 1, gen_ai__tool__call__id="c1", gen_ai__tool__call__result="packed"),
    chat(4, 1, sent=[text("user", "Where?"), called("c1"), result("c1")], answer=text("assistant", "Packed.")),
]


def check_loop(run: Run) -> None:
    assert talk(run) == [("Where?", "Packed.")]
    assert len(run.select(ModelCalled)) == 2
    assert [(call.name, call.args, call.output, call.status) for call in run.select(ToolCalled)] == [
        ("lookup", {"order": "A17"}, "packed", "ok")
    ]


# Dialects


def test_prompts_and_completions_with_numbers() -> None:
    use = {"llm__request__type": "chat", "gen_ai__request__model": "m", "gen_ai__usage__prompt_tokens": 10}
    use |= {"gen_ai__usage__completion_tokens": 2, "gen_ai__prompt__0__role": "system"}
    use |= {"gen_ai__prompt__0__content": "Be kind.", "gen_ai__prompt__1__role": "user"}
    use |= {"gen_ai__prompt__1__content": "Where?"}
    asked = {"gen_ai__completion__0__role": "assistant", "gen_ai__completion__0__finish_reason": "tool_calls"}
    made = {"tool_calls__0__id": "c1", "tool_calls__0__name": "lookup", "tool_calls__0__arguments": '{"order": "A17"}'}
    asked |= {f"gen_ai__completion__0__{key}": value for key, value in made.items()}
    later = {f"gen_ai__prompt__2__{key}": value for key, value in made.items()} | {
        "gen_ai__prompt__2__role": "assistant"
    }
    later |= {"gen_ai__prompt__3__role": "tool", "gen_ai__prompt__3__content": "packed"}
    later |= {"gen_ai__prompt__3__tool_call_id": "c1", "gen_ai__completion__0__content": "Packed."}
    later |= {"gen_ai__completion__0__role": "assistant"}
    entity = {"traceloop__span__kind": "tool", "traceloop__entity__name": "lookup"}
    entity |= {
        "traceloop__entity__input": '{"args": [], "kwargs": {"order": "A17"}}',
        "traceloop__entity__output": "packed",
    }
    spans = [
        span("desk.workflow", 1, traceloop__span__kind="workflow", traceloop__entity__name="desk"),
        span("openai.chat", 2, 1, **use, **asked),
        span("lookup.tool", 3, 1, **entity),
        span("openai.chat", 4, 1, **use, **later),
    ]

    run = only(spans)

    check_loop(run)
    assert run.meta["policy"] == "Be kind."
    assert [call.finish_reason for call in run.select(ModelCalled)] == ["tool_calls", None]
    assert (run.turns[0].input_tokens, run.turns[0].output_tokens) == (20, 4)


@pytest.mark.parametrize("where", ["events", "content", "attribute", "logs"])
def test_events_of_before(where: str) -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "lookup", "arguments": '{"order": "A17"}'}}]
    user = ("gen_ai.user.message", {"role": "user", "content": "Where?"})
    asked = ("gen_ai.choice", {"index": 0, "finish_reason": "tool_calls", "message": {"tool_calls": calls}})
    again = [
        user,
        ("gen_ai.assistant.message", {"role": "assistant", "tool_calls": calls}),
        ("gen_ai.tool.message", {"role": "tool", "id": "c1", "content": "packed"}),
        (
            "gen_ai.choice",
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Packed."}},
        ),
    ]
    system = ("gen_ai.system.message", {"content": "Be kind.", "role": "system"})
    logs = []
    spans = [agent(1)]
    for number, events in ((2, [system, user, asked]), (4, [system, *again])):
        made = chat(number, 1)
        if where == "events":
            made["events"] = [{"name": name, "attributes": {**about, "gen_ai.system": "x"}} for name, about in events]
            for event in made["events"]:
                if isinstance(event["attributes"].get("message"), dict):
                    event["attributes"]["message"] = json.dumps(event["attributes"]["message"])
        elif where == "content":
            made["events"] = [
                {"name": name, "attributes": {"gen_ai.event.content": json.dumps(about)}} for name, about in events
            ]
        elif where == "attribute":
            listed = [{**about, "event.name": name, "gen_ai.message.index": 0} for name, about in events]
            made["attributes"]["events"] = json.dumps(listed)
        else:
            logs += [
                {"traceId": TRACE, "spanId": f"{number:016x}", "eventName": name, "body": about}
                for name, about in events
            ]
        spans.append(made)
    spans.append(tool(3, 1, gen_ai__tool__call__id="c1"))

    run = only(spans, logs=logs)

    check_loop(run)
    assert run.meta["policy"] == "Be kind."


def test_early_names_of_pydantic_ai() -> None:
    spans = [
        span("agent run", 1, model_name="m", agent_name="desk", final_result="Packed.", to=900,
             gen_ai__usage__input_tokens=20, gen_ai__usage__output_tokens=4),
        LOOP[1],
        span("running 1 tool", 30, 1, to=31, tools=["lookup"]),
        span("running tool", 3, 30, gen_ai__tool__name="lookup", gen_ai__tool__call__id="c1",
             tool_arguments='{"order": "A17"}', tool_response="packed"),
        LOOP[3],
    ]  # fmt: skip

    check_loop(only(spans))


def test_openinference_without_ids_and_with_parts() -> None:
    out = "llm__output_messages__0__message__"
    made = "tool_calls__0__tool_call__function__"
    inputs = {"llm__input_messages__0__message__role": "user"}
    inputs |= {"llm__input_messages__0__message__contents__0__message_content__type": "text"}
    inputs |= {"llm__input_messages__0__message__contents__0__message_content__text": "Where?"}
    use = {"openinference__span__kind": "LLM", "llm__model_name": "m", "llm__token_count__prompt": 10}
    use |= {"llm__token_count__completion": 2, "llm__token_count__prompt_details__cache_read": 4}
    later = {"llm__input_messages__1__message__role": "assistant"}
    later |= {f"llm__input_messages__1__message__{made}name": "lookup"}
    later |= {"llm__input_messages__2__message__role": "tool", "llm__input_messages__2__message__content": "packed"}
    spans = [
        span("run", 1, openinference__span__kind="AGENT", to=900),
        span(
            "call", 2, 1, **use, **inputs, **{f"{out}{made}name": "lookup", f"{out}{made}arguments": '{"order": "A17"}'}
        ),
        span("lookup", 3, 1, openinference__span__kind="TOOL", input__value="{'order': 'A17'}", output__value="packed"),
        span("call", 4, 1, **use, **inputs, **later, **{f"{out}role": "assistant", f"{out}content": "Packed."}),
    ]

    run = only(spans)

    check_loop(run)
    assert [call.cached_tokens for call in run.select(ModelCalled)] == [4, 4]


def test_arguments_by_place_get_the_names_of_the_parameters() -> None:
    value = '{"args": ["A17", 2], "kwargs": {"fast": true}}'
    entity = {"traceloop__span__kind": "tool", "traceloop__entity__name": "f", "traceloop__entity__input": value}
    own = {"openinference__span__kind": "TOOL", "tool__name": "f", "input__value": value}
    own |= {"tool__parameters": '{"order": {"type": "string"}}'}

    run = only([span("f", 1, **own), span("f.tool", 2, **entity)])

    assert [call.args for call in run.select(ToolCalled)] == [
        {"order": "A17", "arg1": 2, "fast": True},
        {"arg0": "A17", "arg1": 2, "fast": True},
    ]


def test_calls_without_spans_of_tools_are_read_from_the_messages() -> None:
    run = only([each for each in LOOP if not each["name"].startswith("execute")])

    check_loop(run)
    assert run.select(ToolCalled)[0].duration_ms is None
    assert run.meta["estimated"] == ["status"]


def test_log_records_without_their_span_stand_for_it() -> None:
    about = {"gen_ai.input.messages": [text("user", "hi")], "gen_ai.output.messages": [text("assistant", "Hello.")]}
    record = {"traceId": TRACE, "spanId": "1" * 16, "eventName": "gen_ai.client.inference.operation.details"}

    run = only([], logs=[{**record, "attributes": about}])

    assert talk(run) == [("hi", "Hello.")]


def test_live_log_records_of_the_sdk_join_their_spans() -> None:
    logs_sdk = pytest.importorskip("opentelemetry.sdk._logs")
    from opentelemetry._logs import LogRecord
    from opentelemetry.sdk._logs import export
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept_logs = getattr(export, "InMemoryLogRecordExporter", None) or export.InMemoryLogExporter
    records, spans = kept_logs(), InMemorySpanExporter()
    loggers, tracers = logs_sdk.LoggerProvider(), TracerProvider()
    loggers.add_log_record_processor(export.SimpleLogRecordProcessor(records))
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    logger = loggers.get_logger("x")
    with tracers.get_tracer("x").start_as_current_span("chat m", attributes={"gen_ai.operation.name": "chat"}):
        logger.emit(LogRecord(event_name="gen_ai.user.message", body={"content": "hi"}))
        answer = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello."}}
        logger.emit(LogRecord(event_name="gen_ai.choice", body=answer))

    for logs in (records.get_finished_logs(), [record.to_json() for record in records.get_finished_logs()]):
        run = only(list(spans.get_finished_spans()), logs=logs)
        assert talk(run) == [("hi", "Hello.")]
        assert run.meta["estimated"] == ["input_tokens", "output_tokens"]


# Turns, conversations, calls


def test_a_call_that_two_instrumentations_saw_is_one() -> None:
    inner = chat(5, 2, at=2, gen_ai__response__model="m-1")
    del inner["attributes"]["gen_ai.request.model"]
    outer = {**LOOP[1], "attributes": {**LOOP[1]["attributes"]}}
    del outer["attributes"]["gen_ai.usage.input_tokens"]
    again = tool(6, 3, at=3, gen_ai__tool__call__arguments='{"order": "A17"}')

    run = only([LOOP[0], outer, inner, LOOP[2], again, LOOP[3]])

    check_loop(run)
    assert run.turns[0].input_tokens == 20


def test_a_model_span_around_several_is_a_total() -> None:
    whole = chat(2, 1, sent=[text("user", "Where?")], to=800, gen_ai__usage__input_tokens=20)
    spans = [LOOP[0], whole, chat(20, 2, sent=[text("user", "Where?")], answer=called("c1")), LOOP[2]]
    spans.append({**LOOP[3], "parentSpanId": f"{2:016x}", "startTimeUnixNano": str(1_700_000_000_030 * 10**6)})

    run = only(spans)

    assert len(run.select(ModelCalled)) == 2
    assert run.turns[0].input_tokens == 20


@pytest.mark.parametrize("content", [True, False])
def test_traces_of_one_conversation_are_its_turns(content: bool) -> None:
    spans, history = [], []
    for turn in range(3):
        trace = f"{turn + 1:032x}"
        history.append(text("user", "yes"))
        answer = text("assistant", f"Answer {turn}.")
        at = turn * 1_000 + 10
        spans.append(agent(at, trace=trace, gen_ai__conversation__id="talk"))
        messages = {"sent": [*history], "answer": answer} if content else {}
        spans.append(chat(at + 1, at, trace=trace, **messages))
        history.append(answer)

    run = only(spans)

    assert run.threads == ("talk",)
    assert talk(run) == ([("yes", f"Answer {turn}.") for turn in range(3)] if content else [("", "")] * 3)
    assert [len(turn.model_calls) for turn in run.turns] == [1, 1, 1]
    if content:
        assert len(run.log("talk")) == 6


def test_a_loop_without_an_agent_has_a_turn_for_each_message_of_the_user() -> None:
    history = [text("user", "one"), text("assistant", "1"), text("user", "two")]
    spans = [
        chat(1, sent=history[:1], answer=history[1]),
        chat(2, sent=history, answer=called("c1")),
        chat(3, sent=[*history, called("c1"), result("c1")], answer=text("assistant", "2")),
    ]

    run = only(spans)

    assert talk(run) == [("one", "1"), ("two", "2")]
    assert [len(turn.model_calls) for turn in run.turns] == [1, 2]


def test_traces_without_a_conversation_are_runs_and_those_without_calls_are_none() -> None:
    other = "b" * 32
    spans = [
        *LOOP,
        chat(9, trace=other, sent=[text("user", "ho")], answer=text("assistant", "Hi.")),
        span("GET", 8, trace="c" * 32),
    ]

    runs = runs_from_spans(spans)

    assert [talk(run) for run in runs] == [[("Where?", "Packed.")], [("ho", "Hi.")]]
    with pytest.raises(NoeticConfigError, match="import_runs"):
        nn.import_run(spans)
    assert [type(run) for run in nn.import_runs(spans)] == [Run, Run]


def test_a_conversation_that_was_recorded_from_its_middle_begins_with_what_was_before() -> None:
    before = [text("user", "one"), called("c0"), result("c0"), text("assistant", "1")]

    run = only([chat(1, sent=[*before, text("user", "two")], answer=text("assistant", "2"))])

    assert talk(run) == [("two", "2")]
    assert [item["type"] for item in run.log("t1")] == [
        "message", "function_call", "function_call_output", "message", "message", "message"]  # fmt: skip
    assert run.select(ToolCalled) == ()


def test_agents_that_a_tool_calls_are_children() -> None:
    spans = [
        *LOOP[:2],
        tool(3, 1, gen_ai__tool__call__id="c1", gen_ai__tool__call__result="packed", to=300),
        agent(40, 3, "shelf", gen_ai__conversation__id="inner"),
        chat(41, 40, sent=[text("user", "Look.")], answer=called("c1", "B7")),
        tool(42, 40, gen_ai__tool__call__id="c1", gen_ai__tool__call__result="gone"),
        chat(
            43,
            40,
            sent=[text("user", "Look."), called("c1", "B7"), result("c1", "gone")],
            answer=text("assistant", "Gone."),
        ),
        {**LOOP[3], "startTimeUnixNano": str(1_700_000_000_500 * 10**6)},
    ]
    for each in spans:
        if each["name"] == "invoke_agent desk":
            each = each["attributes"].setdefault("gen_ai.conversation.id", "outer")

    run = only(spans)

    started, ended = run.select(ChildStarted)[0], run.select(ChildEnded)[0]
    assert talk(run) == [("Where?", "Packed.")]
    assert [call.where.depth for call in run.select(ToolCalled)] == [1, 0]
    assert [call.where.depth for call in run.select(ModelCalled)] == [0, 1, 1, 0]
    assert (started.step_id, ended.text, ended.outcome, ended.input_tokens) == ("shelf", "Gone.", "success", 20)
    assert (len(run.turns), run.turns[0].input_tokens, len(run.turns[0].tool_calls)) == (1, 40, 2)
    assert len(run.log("outer")) == 4
    LOOP[0]["attributes"].pop("gen_ai.conversation.id", None)


def test_an_agent_inside_of_one_with_calls_of_its_own_is_a_child_and_those_of_a_wrapper_are_not() -> None:
    inner = [agent(50, 1, "shelf"), chat(51, 50, sent=[text("user", "Look.")], answer=text("assistant", "Gone."))]

    child = only([*LOOP, *inner])
    asked = [text("user", "x"), called("c1"), result("c1")]
    first = [agent(2, 1, "a"), chat(3, 2, sent=asked[:1], answer=called("c1"))]
    second = [agent(5, 1, "b"), chat(6, 5, sent=asked, answer=text("assistant", "y"))]
    handoff = only([agent(1, name="team"), *first, *second])

    assert [event.step_id for event in child.select(ChildStarted)] == ["shelf"]
    assert talk(child) == [("Where?", "Packed.")]
    assert handoff.select(ChildStarted) == ()
    assert talk(handoff) == [("x", "y")]


def test_operations_of_memory_are_calls_of_a_layer() -> None:
    about = {"gen_ai__memory__store__id": "facts", "gen_ai__memory__record__count": 2}
    search = span("search_memory facts", 20, 1, gen_ai__operation__name="search_memory", **about)
    update = span("update_memory facts", 21, 1, gen_ai__operation__name="update_memory", error="full", **about)

    hooks = only([*LOOP, search, update]).select(MemoryTraceSpan)

    assert [(hook.layer_id, hook.hook, hook.status, hook.item_count) for hook in hooks] == [
        ("facts", "recall", "ok", 2),
        ("facts", "store", "error", 2),
    ]


# Bad input


def test_clocks_that_disagree_change_no_order_and_no_time_goes_back() -> None:
    spans = json.loads(json.dumps(LOOP))
    for key in ("startTimeUnixNano", "endTimeUnixNano"):  # the tools' machine is an hour behind
        spans[2][key] = str(int(spans[2][key]) - 3_600 * 10**9)
    spans[3]["endTimeUnixNano"] = str(int(spans[3]["startTimeUnixNano"]) - 5)

    run = only(spans)

    check_loop(run)
    times = [event.t_ms for event in run.events]
    assert times == sorted(times)
    assert [call.duration_ms for call in run.select(ModelCalled)] == [1.0, None]


def test_spans_that_are_still_open() -> None:
    spans = json.loads(json.dumps(LOOP[:3]))
    del spans[0]["endTimeUnixNano"], spans[2]["endTimeUnixNano"], spans[2]["attributes"]["gen_ai.tool.call.result"]

    run = only(spans)

    assert [(turn.query, turn.outcome) for turn in run.turns] == [("Where?", None)]
    assert run.select(ToolCalled) == ()
    assert [entry["what"] for entry in run.meta["unmapped"]] == ["a tool call that has not ended"]


def test_a_span_that_was_sent_open_and_then_ended_counts_once() -> None:
    early = json.loads(json.dumps(LOOP[3]))
    early["attributes"] = {"gen_ai.operation.name": "chat"}
    del early["endTimeUnixNano"]

    check_loop(only([early, *LOOP]))
    check_loop(only([*LOOP, early]))


def test_two_spans_of_one_id_are_both_kept_and_listed() -> None:
    other = tool(4, 1, gen_ai__tool__call__id="c9", gen_ai__tool__call__result="x", at=9)

    run = only([*LOOP, other])

    assert [call.call_id for call in run.select(ToolCalled)] == ["c1", "c9"]
    assert [entry["what"] for entry in run.meta["unmapped"]] == ["its id is that of another span"]


def test_what_a_run_has_no_event_for_is_listed_in_the_run_it_belongs_to() -> None:
    other = chat(9, trace="b" * 32, sent=[text("user", "ho")], answer=text("assistant", "Hi."))
    spans = [*LOOP, span("search", 5, 1, openinference__span__kind="RERANKER"), other]
    spans.append(span("embeddings m", 6, 1, gen_ai__operation__name="embeddings"))

    runs = runs_from_spans([*spans, tool(4, 1, gen_ai__tool__call__id="c9", gen_ai__tool__call__result="x", at=9)])

    assert [[entry["value"] for entry in run.meta["unmapped"]] for run in runs] == [
        ["execute_tool lookup", "search", "embeddings m"],
        [],
    ]


def test_a_circle_of_parents_ends() -> None:
    spans = [agent(1, 2), agent(2, 1), chat(3, 3, sent=[text("user", "hi")], answer=text("assistant", "Hello."))]

    assert [talk(run) for run in runs_from_spans(spans)] == [[("hi", "Hello.")]]


def test_call_ids_that_come_again_in_each_turn() -> None:
    first = [text("user", "Where?"), called("c1"), result("c1"), text("assistant", "Packed.")]
    asked = [*first, text("user", "And B7?")]
    last = [*asked, called("c1", "B7"), result("c1", "gone")]
    spans = [
        *LOOP,
        agent(1_001, trace="b" * 32),
        chat(1_002, 1_001, trace="b" * 32, sent=asked, answer=called("c1", "B7")),
        tool(1_003, 1_001, trace="b" * 32, gen_ai__tool__call__id="c1", gen_ai__tool__call__result="gone"),
        chat(
            1_004,
            1_001,
            trace="b" * 32,
            sent=last,
            answer=text("assistant", "Gone."),
        ),
    ]
    for each in spans:
        each["attributes"] = {**each["attributes"], "gen_ai.conversation.id": "talk"}

    run = only(spans)

    assert talk(run) == [("Where?", "Packed."), ("And B7?", "Gone.")]
    assert [(call.call_id, call.output) for call in run.select(ToolCalled)] == [("c1", "packed"), ("c1~2", "gone")]


HOSTILE: list[Any] = [
    None, 5, -1, True, "", "x" * 100_000, [], {}, [[]], {"a": {"b": [None]}}, float("nan"), float("inf"), "\ud800", "{", "[[[[",
    '{"role": 5}', '[{"role": "user", "parts": 5}]', [{"role": [], "parts": [{"type": {}}]}], {"stringValue": 5},
    {"arrayValue": {"values": 5}}, {"kvlistValue": 5}, {"intValue": "x"}, "0x", "9" * 400,
]  # fmt: skip
PLACES = ["name", "startTimeUnixNano", "endTimeUnixNano", "parentSpanId", "attributes", "events", "status", "traceId"]


@pytest.mark.matrix
@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_values_are_read_around(number: int) -> None:
    value = HOSTILE[number]
    names = ["gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result",
             "gen_ai.usage.input_tokens", "gen_ai.conversation.id", "gen_ai.system_instructions", "events",
             "llm.input_messages.0.message.content", "gen_ai.prompt.0.content", "input.value", "traceloop.entity.input",
             "gen_ai.tool.call.id", "gen_ai.tool.name", "error.type", "gen_ai.response.finish_reasons",
             "gen_ai.memory.store.id", "openinference.span.kind", "traceloop.span.kind", "noetic.before",
             "gcp.vertex.agent.llm_request", "pydantic_ai.all_messages", "final_result", "agent_name"]  # fmt: skip
    for name, place in sampled(product(names, range(4)), keep=32, start=number):
        spans = json.loads(json.dumps(LOOP))
        spans[place]["attributes"][name] = value
        for run in runs_from_spans(spans):
            assert run.turns is not None
    for name in PLACES:
        spans = json.loads(json.dumps(LOOP))
        spans[2][name] = value
        runs_from_spans(spans)
    spans = json.loads(json.dumps(LOOP))
    spans[1]["events"] = [value, {"name": value, "attributes": value}]
    runs_from_spans(spans, logs=[{"traceId": value, "spanId": value}, {"traceId": TRACE, "spanId": "1", "body": value}])


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_off_is_refused_with_the_place(cut: float, tmp_path: Path) -> None:
    whole = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": LOOP * 50}]}]})
    path = tmp_path / "cut.json"
    path.write_text(whole[: int(len(whole) * cut)])

    with pytest.raises(NoeticError, match="at record") as caught:
        runs_from_spans(path)

    assert caught.value.kind == "invalid_run_file"
    assert (caught.value.path, caught.value.index > 0) == (str(path), True)
    assert [type(each) for each in nn.import_runs(path)] == [nn.Failed]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[5]", b'[{"a": 1}]', b"\x1f\x8bnonsense", b"\xff\xfe\x00", b'{"resourceSpans": 5', b"[1,"],
)
def test_what_is_no_spans_is_refused_or_empty(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)

    if content == b"":
        assert runs_from_spans(path) == ()
    else:
        with pytest.raises(NoeticError, match=r"cannot be read|is not a span"):
            runs_from_spans(path)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(NoeticError, match="cannot be read"):
        runs_from_spans("/no/such/file.json")


def test_files_may_be_packed_and_must_not_unpack_to_more_than_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "spans.json.gz"
    path.write_bytes(gzip.compress(json.dumps(LOOP).encode()))

    check_loop(nn.import_run(path))

    bomb = tmp_path / "bomb.json.gz"
    with gzip.open(bomb, "wb", compresslevel=1) as file:
        file.write(b'[{"a": "')
        for _ in range(80):
            file.write(b"x" * 2**20)
    with pytest.raises(NoeticError, match="longer than"):
        runs_from_spans(bomb)


def test_pieces_of_a_file_may_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "spans.json"
    path.write_text(
        json.dumps({"resourceSpans": [{"resource": {"n": 12345}, "scopeSpans": [{"spans": LOOP}]}]}, indent=1)
    )

    for size in (1, 2, 3, 7, 64, 1000):
        monkeypatch.setattr("noetic_nb.interop._spans.import_spans._PIECE", size)
        check_loop(only(path))  # type: ignore[arg-type]


def test_secrets_are_replaced_before_anything_is_kept() -> None:
    key = "sk-proj-" + "aB3dE6gH9jK2mN5pQ8sT"
    spans = json.loads(
        json.dumps(LOOP).replace("Where?", f"Where is {key}?").replace("A17", key).replace("packed", key)
    )
    spans[2]["status"] = {"code": 2, "message": f"no {key}"}
    spans[1]["attributes"]["gen_ai.system_instructions"] = key
    spans.append(
        span("search_memory x", 9, 1, gen_ai__operation__name="search_memory", gen_ai__memory__query__text=key)
    )
    spans.append(chat(10, 1, sent=[{"role": "user", "parts": [{"type": key, "strange": key}]}], error=key))

    run = only(spans)

    assert key not in str(run.events[:]) + str(run.meta) + run.run_id
