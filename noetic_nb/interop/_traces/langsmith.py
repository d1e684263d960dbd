"""LangSmith runs: as listed by its API, one per line, nested in their parents, or as rows of a bulk export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetic_nb._core.names import keys
from noetic_nb.interop._formats.sources import EVERYTHING
from noetic_nb.interop._spans.span_messages import parsed
from noetic_nb.interop._traces.payloads import first_of, number, tokens
from noetic_nb.interop._traces.trace_records import Record, Trace, readers, text_of
from noetic_nb.items._messages.message import mapping

FORMATS: Final = ("langsmith",)
READS: Final = EVERYTHING
_KINDS: Final = {"llm": "chat", "tool": "execute_tool", "retriever": "retrieval", "embedding": "embeddings"}
_THREAD: Final = ("thread_id", "session_id", "conversation_id")
_COSTS: Final = ("total_cost", "prompt_cost", "completion_cost")
# Keys read here, derived sums, and numbers of the service's own tables.
_KNOWN: Final = keys(
    "id name run_type start_time end_time inputs outputs error extra parent_run_id tags trace_id dotted_order",
    "status child_runs prompt_tokens completion_tokens total_tokens prompt_token_details completion_token_details",
    "total_cost feedback_stats metadata thread_id prompt_cost completion_cost prompt_cost_details",
    "completion_cost_details in_dataset session_id child_run_ids direct_child_run_ids parent_run_ids app_path",
    "manifest_id is_root execution_order tenant_id inputs_preview outputs_preview latency url last_queued_at",
    "session_name dangerously_allow_filesystem parent_dotted_order first_token_time",
)
_EXTRA: Final = keys("metadata invocation_params runtime tool_call_id options batch_size _non_serializable_keys")
# Tags that LangChain adds to the steps of its chains and graphs.
_STEPS: Final = ("seq:step:", "graph:step:", "map:key:", "langsmith:")
_DEEPEST: Final = 200


def _is_run(entry: Mapping[str, Any]) -> bool:
    return "run_type" in entry and ("dotted_order" in entry or "start_time" in entry or "trace_id" in entry)


def _add(trace: Trace, entry: Mapping[str, Any], trace_id: str | None = None, depth: int = 0) -> None:
    run_id = text_of(entry["id"])
    if run_id is None or depth > _DEEPEST:
        raise ValueError("a run needs an id, and must not contain itself")
    trace_id = text_of(entry.get("trace_id")) or trace_id or run_id
    extra = mapping(parsed(entry.get("extra")))
    metadata = {**mapping(parsed(entry.get("metadata"))), **mapping(extra.get("metadata"))}
    params = mapping(extra.get("invocation_params"))
    run_type = str(entry.get("run_type"))
    name = text_of(entry.get("name")) or run_type
    made = trace.add(
        Record(
            trace_id,
            run_id,
            text_of(entry.get("parent_run_id")),
            name,
            _KINDS.get(run_type, "other"),
            entry.get("start_time"),
            entry.get("end_time"),
            parsed(entry.get("inputs")),
            parsed(entry.get("outputs")),
            text_of(entry.get("error")) or ("failed" if entry.get("status") == "error" else None),
            text_of(first_of(metadata, *_THREAD) or entry.get("thread_id")),
            text_of(metadata.get("tool_call_id") or extra.get("tool_call_id")),
            origin=text_of(metadata.get("lc_source")),
            role=text_of(metadata.get("ls_agent_type")),
        )
    )
    if made.kind == "chat":
        made.model = text_of(metadata.get("ls_model_name") or params.get("model") or params.get("model_name"))
        made.usage = {**(tokens(metadata.get("usage_metadata")) or {}), **(tokens(entry) or {})}
        total, *parts = [number(entry.get(name)) for name in _COSTS]
        known = [cost for cost in parts if cost is not None]
        made.cost = total if total is not None or not known else sum(known)
        made.params = {**params, **{key[3:]: value for key, value in metadata.items() if key.startswith("ls_")}}
        trace.tell(trace_id, "tools", params.get("tools"))
    trace.tell(trace_id, "runtime", extra.get("runtime"))
    tags = entry.get("tags")
    own = [tag for tag in tags if not str(tag).startswith(_STEPS)] if isinstance(tags, list) else None
    trace.tell(trace_id, "tags", own)
    trace.tell(trace_id, "project", entry.get("session_name"))
    about = {k: v for k, v in metadata.items() if k not in (*_THREAD, "tool_call_id") and not str(k).startswith("ls_")}
    trace.tell(trace_id, "metadata", about)
    stats = mapping(parsed(entry.get("feedback_stats")))
    scores = [
        {"name": key, "run": name, **(value if isinstance(value, Mapping) else {"value": value})}
        for key, value in stats.items()
    ]
    trace.tell(trace_id, "scores", scores)
    said = [each for each in entry.get("events") or () if mapping(each).get("name") not in ("start", "end")]
    trace.rest(made, {**entry, "events": said}, _KNOWN)
    trace.rest(made, extra, _EXTRA, "extra.")
    trace.payload(made, params, "extra.invocation_params.")
    for part in ("prompt_token_details", "completion_token_details"):
        trace.payload(made, {part: entry.get(part)}, "")
    for place, inner in enumerate(entry.get("child_runs") or ()):
        trace.attempt(f"child_runs[{place}]", inner, _below, run_id, trace_id, depth + 1)


def _below(trace: Trace, entry: Mapping[str, Any], parent: str, trace_id: str, depth: int) -> None:
    _add(trace, {"parent_run_id": parent, **{k: v for k, v in entry.items() if v is not None}}, trace_id, depth)


looks_like, read = readers("langsmith", _is_run, _add, "runs")
