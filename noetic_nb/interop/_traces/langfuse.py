"""Langfuse traces with their observations, singly or in a list, or observations alone, as from its API and exports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from noetic_nb._core.names import keys, meanings
from noetic_nb.interop._formats.sources import EVERYTHING
from noetic_nb.interop._spans.span_messages import parsed
from noetic_nb.interop._traces.payloads import first_of, number, plain, tokens
from noetic_nb.interop._traces.trace_records import Record, Trace, readers, text_of
from noetic_nb.items._messages.message import count, mapping

FORMATS: Final = ("langfuse",)
READS: Final = EVERYTHING
_KINDS: Final = meanings(
    chat="GENERATION",
    execute_tool="TOOL",
    invoke_agent="AGENT",
    retrieval="RETRIEVER",
    embeddings="EMBEDDING",
    evaluator="EVALUATOR",
    guardrail="GUARDRAIL",
    other="CHAIN SPAN EVENT",
)
_OLD: Final = {"promptTokens": "input", "completionTokens": "output", "totalTokens": "total"}
_WHOLE: Final = (
    ("input", "input_tokens", "prompt", "prompt_tokens"),
    ("output", "output_tokens", "completion", "completion_tokens"),
)
_COUNTED: Final = ("input", "prompt", "cache", "output", "completion", "reason", "total", "unit")
_STORED: Final = ("creation", "write", "ephemeral")
_CALL_ID: Final = ("tool_call_id", "toolCallId", "gen_ai.tool.call.id")
# Keys read here, derived sums and prices, and numbers of the service's own tables.
_TRACE: Final = keys(
    "id timestamp name input output sessionId userId metadata tags environment release version observations",
    "scores latency totalCost htmlPath public bookmarked projectId createdAt updatedAt externalId",
)
_OBSERVATION: Final = keys(
    "id traceId type name startTime endTime parentObservationId input output metadata level statusMessage model",
    "providedModelName modelParameters usage usageDetails costDetails latency calculatedInputCost",
    "calculatedOutputCost calculatedTotalCost totalCost inputCost outputCost unit totalPrice inputPrice",
    "outputPrice promptTokens completionTokens totalTokens inputUsage outputUsage totalUsage environment userId",
    "sessionId traceName tags release version projectId isRootObservation modelId internalModelId createdAt",
    "updatedAt completionStartTime timeToFirstToken public bookmarked usagePricingTierId usagePricingTierName",
)


def _is_ours(entry: Mapping[str, Any]) -> bool:
    if isinstance(entry.get("observations"), list) and ("trace" in entry or "id" in entry):
        return True
    kind = entry.get("type")
    return (
        isinstance(kind, str)
        and kind in _KINDS
        and "spanId" not in entry
        and ("traceId" in entry or "trace_id" in entry)
    )


def _camel(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with the API's key names; the SDK's objects and exports use others."""
    return {re.sub(r"_([a-z])", lambda match: match[1].upper(), str(key)): value for key, value in entry.items()}


def _add(trace: Trace, entry: Mapping[str, Any]) -> None:
    entry = _camel(entry)
    if "observations" not in entry:
        _observe(trace, entry, None)
        return
    about = _camel(plain(entry["trace"])) | {"observations": entry["observations"]} if "trace" in entry else entry
    given = [each for each in map(plain, about["observations"]) if not isinstance(each, str)]
    found = [_camel(each) for each in given if isinstance(each, Mapping)]
    trace_id = text_of(about["id"])
    if trace_id is None or (about["observations"] and not given):
        raise ValueError("a trace needs its id and its full observations: fetch it with GET /api/public/traces/{id}")
    tops = [each for each in found if not each.get("parentObservationId")]
    top = trace.add(
        Record(
            trace_id,
            f"trace-{trace_id}",
            None,
            text_of(about.get("name")) or "trace",
            "other",
            min([str(each["startTime"]) for each in found if each.get("startTime")], default=about.get("timestamp")),
            max([str(each["endTime"]) for each in found if each.get("endTime")], default=None),
            parsed(about.get("input")),
            parsed(about.get("output")),
            next((problem for each in tops if (problem := _error(each)) is not None), None),
            text_of(about.get("sessionId")),
        )
    )
    _tell(trace, trace_id, about)
    trace.tell(trace_id, "metadata", parsed(about.get("metadata")))
    trace.tell(trace_id, "scores", [plain(each) for each in about.get("scores") or ()])
    trace.rest(top, about, _TRACE)
    for place, each in enumerate(given):
        entry = {"traceId": trace_id, **_camel(each)} if isinstance(each, Mapping) else each
        trace.attempt(f"observations[{place}]", entry, _observe, top.id)


def _tell(trace: Trace, trace_id: str, entry: Mapping[str, Any]) -> None:
    trace.tell(trace_id, "tags", entry.get("tags"))
    trace.tell(trace_id, "user", entry.get("userId"))
    for name in ("environment", "release", "version"):
        trace.tell(trace_id, name, entry.get(name))


def _error(entry: Mapping[str, Any]) -> str | None:
    return text_of(entry.get("statusMessage")) or "failed" if entry.get("level") == "ERROR" else None


def _observe(trace: Trace, entry: Mapping[str, Any], top: str | None) -> None:
    trace_id = text_of(entry.get("traceId")) or text_of(entry["id"])
    name, kind = text_of(entry.get("name")) or str(entry["type"]).lower(), _KINDS.get(str(entry["type"]), "other")
    metadata = mapping(parsed(entry.get("metadata")))
    attributes = mapping(parsed(metadata.get("attributes")))  # of OpenTelemetry spans
    output = entry.get("output")
    made = trace.add(
        Record(
            str(trace_id),
            str(entry["id"]),
            text_of(entry.get("parentObservationId")) or top,
            name,
            kind,
            entry.get("startTime"),
            entry.get("endTime"),
            parsed(entry.get("input")),
            # JSON text is a tool's result as the model read it, unless it is a JSON string.
            parsed(output) if kind != "execute_tool" or str(output)[:1] == '"' else output,
            _error(entry),
            text_of(entry.get("sessionId")),
            text_of(first_of(metadata, *_CALL_ID) or first_of(attributes, *_CALL_ID)),
            text_of(entry.get("model") or entry.get("providedModelName")),
            _usage(entry),
            _cost(entry),
            {key: number(value) for key, value in mapping(parsed(entry.get("modelParameters"))).items()},
            origin=text_of(metadata.get("lc_source")),
        )
    )
    _tell(trace, str(trace_id), entry)
    trace.tell(str(trace_id), "tools", parsed(mapping(parsed(entry.get("modelParameters"))).get("tools")))
    trace.rest(
        made, metadata, frozenset([*_CALL_ID, "attributes", "resourceAttributes", "scope", "lc_source"]), "metadata."
    )
    trace.rest(made, entry, _OBSERVATION)
    if _unit(usage := mapping(parsed(entry.get("usage")))) != "TOKENS":
        trace.rest(made, {"usage": usage}, frozenset())
    counted = {**mapping(parsed(entry.get("usage"))), **mapping(parsed(entry.get("usageDetails")))}
    others = {key: value for key, value in counted.items() if not _is(str(key).lower(), *_COUNTED)}
    trace.payload(made, others, "usageDetails.")
    trace.payload(made, parsed(entry.get("modelParameters")), "modelParameters.")
    costs = mapping(parsed(entry.get("costDetails")))
    trace.rest(made, {key: value for key, value in costs.items() if number(value) is None}, frozenset(), "costDetails.")
    if entry["type"] == "EVENT" or (made.error is None and entry.get("statusMessage")):
        said = {key: entry.get(key) for key in ("name", "input", "output", "level", "statusMessage")}
        trace.rest(made, {entry["type"]: said}, frozenset())


def _usage(entry: Mapping[str, Any]) -> dict[str, int] | None:
    """Return a generation's tokens: all names containing "input" or "output" are summed, as the service does."""
    given = mapping(parsed(entry.get("usageDetails"))) or mapping(parsed(entry.get("usage")))
    given = given or {key: entry[key] for key in _OLD if entry.get(key) is not None}
    given = {_OLD.get(str(key), str(key)): value for key, value in given.items()} if "promptTokens" in given else given
    if _unit(given) != "TOKENS":
        return None
    if any(isinstance(value, Mapping) for value in given.values()):
        return tokens(given)
    given = {str(key).lower(): value for key, value in given.items() if value is not None}
    total = count(given.get("total", given.get("total_tokens"))) or 0
    # Tokens that a service tier bills separately are already included.
    given = {key: value for key, value in given.items() if not key.endswith(("priority", "flex", "cost"))}
    sent = [key for key in given if _is(key, "input", "prompt", "cache")]
    written = [key for key in given if key not in sent and _is(key, "output", "completion", "reason")]
    numbers = {key: known for key, value in given.items() if (known := count(value)) is not None}
    read = {key: numbers[key] for key in sent if key in numbers}
    made = {key: numbers[key] for key in written if key in numbers}
    if not any([total, *read.values(), *made.values()]):
        return None
    whole = [sum([numbers.get(name, 0) for name in names]) for names in _WHOLE]
    # The parts come in addition to the rest, unless the total shows that they are included in it.
    is_inside = total == sum(whole) != sum(read.values()) + sum(made.values())
    found = dict(zip(("input_tokens", "output_tokens"), whole, strict=True))
    if not is_inside:
        found = {"input_tokens": sum(read.values()), "output_tokens": sum(made.values())}
    parts = {
        "cache_write_tokens": [value for key, value in read.items() if _is(key, *_STORED)],
        "cached_tokens": [value for key, value in read.items() if "cache" in key and not _is(key, *_STORED)],
        "reasoning_tokens": [value for key, value in made.items() if _is(key, "reason", "thought", "thinking")],
    }
    found |= {name: sum(values) for name, values in parts.items() if values}
    # A sum with a part that is no number is not known.
    sides = {"input_tokens": sent, "output_tokens": written}
    return {name: number for name, number in found.items() if numbers.keys() >= set(sides.get(name, ()))}


def _unit(usage: Mapping[str, Any]) -> str:
    """Return the unit in which a generation was counted; older ones may be counted in characters."""
    return str(usage.get("unit") or "TOKENS")


def _is(key: str, *words: str) -> bool:
    return any(word in key for word in words)


def _cost(entry: Mapping[str, Any]) -> float | None:
    details = mapping(parsed(entry.get("costDetails")))
    known = {key: found for key, value in details.items() if (found := number(value)) is not None}
    if known:
        return known.get("total", sum(known.values()))
    # A cost of 0 without its parts means that the price is unknown.
    return number(first_of(entry, "calculatedTotalCost", "totalCost", "totalPrice")) or None


looks_like, read = readers("langfuse", _is_ours, _add, "data", "traces")
