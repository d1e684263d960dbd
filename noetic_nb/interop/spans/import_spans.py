"""Runs from spans: read, joined, grouped by conversation, and written one by one."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final

from noetic_nb.errors import NoeticError
from noetic_nb.interop.formats.sources import Document, record
from noetic_nb.interop.spans.own_spans import is_own, run_of_own
from noetic_nb.interop.spans.span_files import is_container, read_records, records_of
from noetic_nb.interop.spans.span_messages import parsed
from noetic_nb.interop.spans.span_record import LogRecord, Span, log_record, span_record
from noetic_nb.interop.spans.span_run import run_of_execution
from noetic_nb.interop.spans.span_tree import Conversation, conversations, executions, joined
from noetic_nb.long_work import counted
from noetic_nb.runs import Run
from noetic_nb.runs.load import MAX_BYTES
from noetic_nb.whole_files import regular_file

__all__ = ["FORMATS", "is_span_file", "looks_like", "read", "run_readers", "runs_from_spans"]

FORMATS: Final = ("otel",)
# What stands near the beginning of a file of spans, and of no other.
_SIGNS: Final = re.compile(
    rb'"resource_?(?:Spans|spans|Logs|logs)"\s*:|"spans"\s*:\s*\[\s*\{|"context"\s*:\s*\{[^{}]*"trace_id"|"traceId"\s*:'
)
_HEAD: Final = 1 << 16
# Work beside the calls of an agent, which a run has no event for.
_NO_PLACE: Final = frozenset(
    ["embeddings", "embedding", "retrieval", "retriever", "rerank", "reranker", "guardrail", "evaluator"]
)


def is_span_file(path: Path) -> bool:
    """Tell whether a file begins as those that hold spans; damage is found when it is read."""
    try:
        with regular_file(path, MAX_BYTES) as file:
            head = file.read(_HEAD)
        if head[:2] == b"\x1f\x8b":
            head = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, _HEAD)
    except (OSError, zlib.error):
        return False
    return _SIGNS.search(head) is not None


def looks_like(document: Document) -> bool:
    """Tell whether a document holds spans."""
    return _holds_spans(record(document, 0) if document.by_line else document.data)


def _holds_spans(value: Any) -> bool:
    if isinstance(value, Mapping):
        context = value.get("context")
        return is_container(value) or "traceId" in value or (isinstance(context, Mapping) and "trace_id" in context)
    if isinstance(value, list | tuple) and value:
        return _holds_spans(parsed(value[0]))
    return hasattr(value, "get_span_context")


def read(document: Document, format: str | None = None) -> Iterator[Callable[[], Run]]:
    """Yield a reader for each run of a document."""
    data = document.data
    if document.by_line:
        data = [record(document, place) for place in range(len(data))]
    yield from _runs(records_of(data), ())


def runs_from_spans(spans_or_path: Any, *, logs: Iterable[Any] | str | PathLike[str] = ()) -> tuple[Run, ...]:
    """Read the spans of anybody's agents.

    Parameters
    ----------
    spans_or_path : path-like, str, mapping or iterable
        A file (OTLP JSON, the SDK's JSON, a document or a line each, plain or gzipped), its text or its parsed content, or
        spans: objects of the SDK, or what their ``to_json`` returns.
    logs : iterable or path-like
        Log records that belong to them, in the same forms, where they are not in the file.

    Returns
    -------
    tuple of Run
        One for each conversation id, else for each trace that holds a model or tool call; without secrets.

    Raises
    ------
    NoeticError
        ``invalid_run_file``, with ``path`` and ``index``, for what is damaged, cut off, too large or no span.

    References
    ----------
    .. [1] docs/behaviour/interop.md, "Spans".

    Examples
    --------
    >>> span = {"name": "chat m", "context": {"trace_id": "0x1", "span_id": "0x1"}, "attributes": {
    ...     "gen_ai.operation.name": "chat", "gen_ai.request.model": "m",
    ...     "gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]',
    ...     "gen_ai.output.messages": '[{"role": "assistant", "parts": [{"type": "text", "content": "Hello."}]}]'}}
    >>> runs_from_spans([span])[0].turns[0].text
    'Hello.'
    """
    return tuple([read() for read in run_readers(spans_or_path, logs=logs)])


def run_readers(
    source: Any, *, logs: Iterable[Any] | str | PathLike[str] = (), max_bytes: int = MAX_BYTES
) -> Iterator[Callable[[], Run]]:
    """Yield a reader for each run of a source."""
    yield from _runs(read_records(source, max_bytes=max_bytes), read_records(logs, max_bytes=max_bytes) if logs else ())


def _runs(given: Iterable[tuple[str, Any]], logs: Iterable[tuple[str, Any]]) -> Iterator[Callable[[], Run]]:
    spans: list[Span] = []
    records: list[LogRecord] = []
    for kind, value in counted(given, "spans"):
        if kind == "log":
            found = log_record(value)
            if found is not None:
                records.append(found)
            continue
        span = span_record(value, len(spans))
        if span is None:
            raise NoeticError(
                "invalid_run_file",
                f"Record {len(spans)} is no span.",
                hint="A span has a context with its ids (SDK), or spanId and traceId (OTLP).",
                index=len(spans),
            )
        spans.append(span)
    for _, value in logs:
        found = log_record(value)
        if found is not None:
            records.append(found)
    whole, unmapped = joined(spans, records)
    for conversation in conversations(whole):
        yield partial(_run, conversation, unmapped)


def _run(conversation: Conversation, unmapped: list[dict[str, Any]]) -> Run:
    name = conversation.name
    run_id = f"otel-{name or conversation.spans[0].trace_id}"
    places = {f"span {span.place}" for span in conversation.spans}
    strange = [entry for entry in unmapped if entry["place"] in places]
    own = [span for span in conversation.spans if is_own(span)]
    if own:
        return run_of_own(own, run_id=run_id, unmapped=strange)
    for span in conversation.spans:
        operation = span.text("gen_ai.operation.name", "openinference.span.kind", "llm.request.type")
        if operation is not None and operation.lower() in _NO_PLACE:
            strange.append({"place": f"span {span.place}", "what": "no place in a run", "value": span.name[:200]})
    root = executions(conversation.spans)
    return run_of_execution(root, run_id=run_id, thread_id=name or "t1", unmapped=strange)
