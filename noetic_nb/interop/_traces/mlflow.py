"""MLflow traces in their third and second form: one, a list, one per line, or a table from `search_traces`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetic_nb._core.names import keys, meanings
from noetic_nb.interop._formats.sources import EVERYTHING
from noetic_nb.interop._spans.span_messages import parsed
from noetic_nb.interop._spans.span_record import span_record
from noetic_nb.interop._traces.payloads import first_of, number, plain, tokens
from noetic_nb.interop._traces.trace_records import Record, Trace, readers, text_of
from noetic_nb.items._messages.message import mapping

FORMATS: Final = ("mlflow",)
READS: Final = EVERYTHING
_KINDS: Final = meanings(
    chat="LLM CHAT_MODEL",
    execute_tool="TOOL",
    invoke_agent="AGENT",
    retrieval="RETRIEVER",
    embeddings="EMBEDDING",
    rerank="RERANKER",
    guardrail="GUARDRAIL",
    evaluator="EVALUATOR",
    search_memory="MEMORY",
)
_TYPE: Final = "mlflow.spanType"
_SESSIONS: Final = ("mlflow.trace.session", "session.id")
# Keys read here, copies and sums, and numbers of the service's own tables.
_INFO: Final = keys(
    "trace_id request_id trace_location experiment_id request_time timestamp_ms state status trace_metadata",
    "request_metadata tags assessments request_preview response_preview execution_duration execution_duration_ms",
    "execution_time_ms client_request_id",
)
_RAISED: Final = frozenset(f"exception.{name}" for name in ("message", "type", "stacktrace", "escaped"))
_SPAN: Final = keys(
    "trace_id traceId span_id spanId parent_span_id parentSpanId parent_id name context events",
    "start_time_unix_nano end_time_unix_nano startTimeUnixNano endTimeUnixNano start_time end_time status",
    "status_code status_message attributes kind",
)
_OF_MLFLOW: Final = keys(
    "traceRequestId spanType spanInputs spanOutputs spanLogLevel spanFunctionName spanStartTimeNs chat.tools",
    "chat.tokenUsage llm.cost llm.model llm.provider message.format experimentId",
)
_RAW: Final = keys("invocation_params metadata options batch_size name model user.id tool_call_id")


def _is_ours(entry: Mapping[str, Any]) -> bool:
    entry = _whole(entry)
    if isinstance(entry.get("info"), Mapping) and isinstance(entry.get("data"), Mapping):
        return isinstance(entry["data"].get("spans"), list)
    return any(str(key).startswith("mlflow.") for key in mapping(entry.get("attributes")))


def _whole(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a trace, which a table row holds in a column of its own."""
    inner = plain(entry.get("trace"))
    entry = inner if isinstance(inner, Mapping) else entry
    return {**entry, "info": plain(entry.get("info")), "data": plain(entry.get("data"))} if "info" in entry else entry


def _add(trace: Trace, entry: Mapping[str, Any]) -> None:
    entry = _whole(entry)
    if "info" not in entry:
        _span(trace, entry, None)
        return
    info, spans = entry["info"], mapping(entry["data"]).get("spans")
    if not isinstance(info, Mapping) or not isinstance(spans, list):
        raise ValueError("a trace needs `info`, and `data` with its spans")
    metadata = mapping(info.get("trace_metadata", info.get("request_metadata")))
    session = text_of(metadata.get("mlflow.trace.session"))
    found = [trace.attempt(f"spans[{place}]", each, _span, session) for place, each in enumerate(spans)]
    made = [each for each in found if each is not None]
    if not made:
        return
    top = made[0]
    tags = info.get("tags")
    if isinstance(tags, list):  # the second form: pairs
        tags = {str(mapping(each).get("key")): mapping(each).get("value") for each in tags}
    own = {str(key): value for key, value in mapping(tags).items() if not str(key).startswith("mlflow.")}
    trace.tell(top.trace, "tags", [f"{key}={value}" if value else key for key, value in own.items()])
    trace.tell(top.trace, "user", metadata.get("mlflow.trace.user"))
    trace.tell(top.trace, "metadata", {k: v for k, v in metadata.items() if not str(k).startswith("mlflow.trace")})
    trace.tell(top.trace, "scores", [_score(plain(each)) for each in info.get("assessments") or ()])
    trace.rest(top, info, _INFO)
    trace.rest(top, entry, keys("info data"))
    trace.rest(top, mapping(entry["data"]), keys("spans"), "data.")
    trace.rest(top, mapping(info.get("trace_location")), keys("type mlflow_experiment"), "trace_location.")


def _score(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a feedback or an expectation, with its value beside its name."""
    said = mapping(given.get("feedback") or given.get("expectation"))
    value = said.get("value", mapping(said.get("serialized_value")).get("value"))
    kind = "expectation" if "expectation" in given else "feedback"
    rest = {key: inner for key, inner in given.items() if key not in ("assessment_name", "name", "trace_id", kind)}
    if beside := {key: inner for key, inner in said.items() if key not in ("value", "serialized_value")}:
        rest[kind] = beside
    return {"name": given.get("assessment_name", given.get("name")), "value": value, "type": kind, **rest}


def _span(trace: Trace, entry: Mapping[str, Any], session: str | None) -> Record:
    base = span_record(entry, len(trace.records))
    if base is None:
        raise ValueError("a span needs its own id and the id of its trace")
    about = {key: parsed(value) for key, value in base.attributes.items()}
    inputs = about.get("mlflow.spanInputs")
    given = mapping(about.get("invocation_params"))
    request = mapping(inputs)
    failed = base.failed or entry.get("status_code") == "ERROR"
    raised = (event.attributes.get("exception.message") for event in base.events if event.name == "exception")
    message = base.problem or text_of(entry.get("status_message")) or text_of(next(raised, None))
    kind = _KINDS.get(str(about.get(_TYPE)), "other")
    made = trace.add(
        Record(
            base.trace_id,
            base.span_id,
            base.parent_id,
            base.name,
            kind,
            base.start_ns,
            base.end_ns,
            inputs,
            about.get("mlflow.spanOutputs"),
            message or "failed" if failed else None,
            session or text_of(first_of(about, *_SESSIONS) or mapping(about.get("metadata")).get("thread_id")),
            text_of(first_of(about, "tool_call_id", "gen_ai.tool.call.id")),
            text_of(about.get("mlflow.llm.model") or request.get("model")),
            tokens(about.get("mlflow.chat.tokenUsage")),
            number(mapping(about.get("mlflow.llm.cost")).get("total_cost")),
            {**given, **request},
            {key: value for key, value in about.items() if not key.startswith("mlflow.")},
            base.events,
            text_of(mapping(about.get("metadata")).get("lc_source")),
        )
    )
    trace.tell(base.trace_id, "tools", about.get("mlflow.chat.tools"))
    rest = {key.removeprefix("mlflow."): value for key, value in about.items()}
    trace.rest(made, entry, _SPAN)
    for event in entry.get("events") or ():
        trace.rest(made, mapping(event), keys("name time_unix_nano timestamp attributes"), "event ")
        trace.rest(made, mapping(mapping(event).get("attributes")), _RAISED, "event attribute ")
    trace.rest(made, mapping(entry.get("status")), keys("code message status_code description"), "status.")
    trace.rest(made, rest, _OF_MLFLOW | _RAW | frozenset(_SESSIONS), "attribute ")
    return made


looks_like, read = readers("mlflow", _is_ours, _add, "traces", "spans")
