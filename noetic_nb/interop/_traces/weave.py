"""Weave calls from its API or client: one per line, a list, or a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetic_nb._core.names import keys, meanings
from noetic_nb.interop._formats.sources import EVERYTHING
from noetic_nb.interop._traces.payloads import first_of, number, tokens, usage_in
from noetic_nb.interop._traces.trace_records import Record, Trace, readers, text_of
from noetic_nb.items._messages.message import mapping, records

FORMATS: Final = ("weave",)
READS: Final = EVERYTHING
# Values of `attributes.weave.kind`, and of `attributes.type` in the OpenAI Agents SDK integration.
_KINDS: Final = meanings(
    chat="llm generation response",
    execute_tool="tool function",
    invoke_agent="agent",
    retrieval="search",
    embeddings="embedding",
    evaluator="scorer",
    guardrail="guardrail",
)
_OPS: Final = ("chat.completions", "completions.create", "responses.create", "messages.create", "messages.stream")
_ANSWERS: Final = ("choices", "candidates", "generations")
_KNOWN: Final = keys(
    "id op_name trace_id parent_id thread_id turn_id started_at ended_at inputs output summary attributes",
    "exception display_name project_id wb_user_id wb_username feedback func_name storage_size_bytes",
    "total_storage_size_bytes",
)
_ATTRIBUTES: Final = keys(
    "weave type tool_call_id call_id lc_id lc_name parent_run_id agent_trace_id agent_span_id parent_span_id",
    "lc_source",
)
_SUMMARY: Final = keys("usage status_counts weave")
_PRICES: Final = keys(
    "prompt_tokens completion_tokens requests prompt_token_cost completion_token_cost prompt_token_cost_unit",
    "completion_token_cost_unit effective_date provider_id pricing_level pricing_level_id created_at created_by",
)
_OF_WEAVE: Final = keys(
    "status trace_name latency_ms costs feedback display_name kind client_version source sys_version os_name",
    "os_version os_release",
)


def _is_ours(entry: Mapping[str, Any]) -> bool:
    return "op_name" in entry and "trace_id" in entry and ("started_at" in entry or "project_id" in entry)


def _add(trace: Trace, entry: Mapping[str, Any]) -> None:
    trace_id, call_id = text_of(entry["trace_id"]), text_of(entry["id"])
    if trace_id is None or call_id is None:
        raise ValueError("a call needs its own id and the id of its trace")
    attributes, summary = mapping(entry.get("attributes")), mapping(entry.get("summary"))
    own, server = mapping(attributes.get("weave")), mapping(summary.get("weave"))
    op = str(entry.get("op_name")).rpartition("/")[2].partition(":")[0]  # weave:///team/project/op/NAME:version
    inputs = {key: value for key, value in mapping(entry.get("inputs")).items() if key != "self"}
    output, error = entry.get("output"), text_of(entry.get("exception"))
    name = None
    if op.startswith("langchain."):  # langchain.Tool.NAME, whose output is a separate record
        name, output = (
            text_of(attributes.get("lc_name")) or op.rpartition(".")[2],
            mapping(output).get("outputs", output),
        )
    said = mapping(output)
    if op.startswith("openai_agent_"):  # the input is only a name, the output is among other facts
        name = text_of(entry.get("display_name"))
        inputs, output, error = {}, said.get("output"), error or text_of(said.get("error"))
    kind = _KINDS.get(str(own.get("kind") or attributes.get("type")).lower()) or _guessed(op, output)
    usage = mapping(summary.get("usage"))
    made = trace.add(
        Record(
            trace_id,
            call_id,
            text_of(entry.get("parent_id")),
            name or (None if kind == "execute_tool" else text_of(entry.get("display_name"))) or op,
            kind,
            entry.get("started_at"),
            entry.get("ended_at"),
            inputs or None,
            output,
            text_of(entry.get("exception"))
            or ("failed" if server.get("status") == "error" and kind != "other" else None),
            text_of(entry.get("thread_id")),
            text_of(first_of(attributes, "tool_call_id", "call_id") or first_of(own, "tool_call_id")),
            origin=text_of(attributes.get("lc_source") or mapping(attributes.get("metadata")).get("lc_source")),
        )
    )
    if kind == "chat":
        made.model = text_of(inputs.get("model")) or (str(next(iter(usage))) if usage else None)
        made.usage = usage_in(output) or _sum(usage)
        made.cost = _cost(server)
        made.params = inputs
    elif kind == "invoke_agent":
        made.usage = _sum(usage)
    trace.tell(trace_id, "user", entry.get("wb_username") or entry.get("wb_user_id"))
    trace.tell(
        trace_id,
        "scores",
        [_score(each, made.name) for each in records(entry.get("feedback") or server.get("feedback"))],
    )
    trace.rest(made, entry, _KNOWN)
    if op.startswith("openai_agent_"):
        trace.rest(made, said, keys("output error status"), "output.")
    trace.rest(made, attributes, _ATTRIBUTES, "attributes.")
    trace.rest(made, summary, _SUMMARY, "summary.")
    trace.rest(made, {**server, **own}, _OF_WEAVE, "weave.")
    for name, value in usage.items():
        trace.payload(made, value if isinstance(value, Mapping) else {"": value}, f"summary.usage.{name}.")
    for name, value in mapping(server.get("costs")).items():
        rest = value if isinstance(value, Mapping) else {"": value}
        rest = {key: each for key, each in rest.items() if not str(key).endswith("_total_cost")}
        trace.rest(made, rest, _PRICES, f"summary.weave.costs.{name}.")
    trace.rest(made, mapping(summary.get("status_counts")), keys("success error"), "summary.status_counts.")


def _guessed(op: str, output: Any) -> str:
    """Return the kind of a call without one, guessed from the name or the answer of known model packages."""
    said = mapping(output)
    is_answer = first_of(said, *_ANSWERS) is not None or ("usage" in said and "model" in said)
    return "chat" if is_answer or op.lower().endswith(_OPS) else "other"


def _sum(usage: Mapping[str, Any]) -> dict[str, int]:
    """Return a call's tokens, summed over all models."""
    found: dict[str, int] = {}
    for value in usage.values():
        for name, known in (tokens(value) or {}).items():
            found[name] = found.get(name, 0) + known
    return found


def _cost(server: Mapping[str, Any]) -> float | None:
    costs = [
        found
        for model in mapping(server.get("costs")).values()
        for name, value in mapping(model).items()
        if str(name).endswith("_total_cost") and (found := number(value)) is not None
    ]
    return sum(costs) if costs else None


def _score(given: Mapping[str, Any], call: str) -> dict[str, Any]:
    rest = {key: value for key, value in given.items() if key not in ("feedback_type", "payload", "project_id")}
    return {"name": given.get("feedback_type"), "value": given.get("payload"), "call": call, **rest}


looks_like, read = readers("weave", _is_ours, _add, "calls")
