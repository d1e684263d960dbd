"""Runs from spans: read, joined, grouped by conversation, and converted one by one."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final, NoReturn

from noetic_nb._core.atomic_write import regular_file
from noetic_nb._core.long_work import counted
from noetic_nb._core.names import keys
from noetic_nb.errors import NoeticError
from noetic_nb.interop._formats.sources import Document, record, refused
from noetic_nb.interop._spans import span_tree
from noetic_nb.interop._spans.span_messages import parsed
from noetic_nb.interop._spans.span_record import LogRecord, Span, log_record, span_record
from noetic_nb.interop._spans.span_run import run_of_execution
from noetic_nb.items._messages.message import shown
from noetic_nb.runs import Run
from noetic_nb.runs._load import MAX_BYTES

# Large, so that few spans are cut by the end of a piece and parsed twice.
_PIECE: Final = 1 << 20
_LONGEST_RECORD: Final = 64 * 2**20
# Longer than any escape or literal that the end of a piece may split.
_NEAR_END: Final = 64
_GZIP: Final = b"\x1f\x8b"
_BLANK: Final = " \t\r\n"
# Containers of spans and log records, by their names in the SDK's JSON, OTLP's JSON and protobuf.
_AROUND: Final = keys(
    "resourceSpans resource_spans scopeSpans scope_spans instrumentationLibrarySpans resourceLogs resource_logs"
    " scopeLogs scope_logs"
)
_SPANS: Final = "spans"
_LOGS: Final = frozenset(["logs", "logRecords", "log_records"])
_CONTAINERS: Final = _AROUND | _LOGS | {_SPANS}
_DEEPEST: Final = 16
# A trace's spans may be anywhere in a file, so no run is known to be complete before the end.
_TOO_LARGE: Final = (
    "Split it so that each trace stays whole, and read the folder of its parts with nn.import_runs: "
    'docs/behaviour/interop.md, "Large files of spans".'
)


def read_records(source: Any, *, max_bytes: int = MAX_BYTES) -> Iterator[tuple[str, Any]]:
    """Yield ``("span", value)`` and ``("log", value)`` from a path, JSON text, a document or an iterable of spans.

    Only text given here may name a file; text inside a file or document is data (`records_of`). Raises `NoeticError`
    ``invalid_run_file``, with the position, for a damaged, truncated or too large source. If each document has its own
    lines, a damaged one gives ``("damaged", error)`` and reading goes on.
    """
    if isinstance(source, os.PathLike) or (isinstance(source, str) and not _is_json(source)):
        yield from _file(Path(source), max_bytes)
    else:
        yield from records_of(source, max_bytes=max_bytes)


def records_of(data: Any, *, max_bytes: int = MAX_BYTES) -> Iterator[tuple[str, Any]]:
    """Yield the records of JSON text, a document or an iterable of spans, as `read_records` does, but open no file."""
    if isinstance(data, str | bytes | bytearray):
        text = data if isinstance(data, str) else bytes(data).decode("utf-8", "replace")
        yield from _Text(io.StringIO(text), "The source", None, max_bytes).records()
    else:
        yield from _given(data, _SPANS, 0)


def _is_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[")


def _file(path: Path, max_bytes: int) -> Iterator[tuple[str, Any]]:
    try:
        with regular_file(path, max_bytes) as file:
            is_packed = file.read(2) == _GZIP
            file.seek(0)
            raw: Any = gzip.GzipFile(fileobj=file) if is_packed else file
            with io.TextIOWrapper(raw, encoding="utf-8-sig") as text:
                yield from _Text(text, repr(str(path)), str(path), max_bytes).records()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        what = getattr(error, "strerror", None) or str(error)
        hint = _TOO_LARGE if isinstance(error, OSError) and error.errno == errno.EFBIG else ""
        raise NoeticError(
            "invalid_run_file", f"{str(path)!r} cannot be read: {what}", hint=hint, path=str(path)
        ) from error


def _given(value: Any, kind: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the records of parsed documents and live objects."""
    if depth > _DEEPEST:
        return
    if isinstance(value, str) and _is_json(value):
        yield from records_of(value)
    elif isinstance(value, Mapping) and not is_container(value):
        yield ("log" if kind in _LOGS else "span"), value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if key in _CONTAINERS:
                yield from _given(inner, key, depth + 1)
    elif hasattr(value, "get_span_context"):
        yield "span", value
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray):
        for each in value:
            yield from _given(each, kind, depth + 1)
    else:
        yield ("log" if kind in _LOGS else "span"), value


def is_container(value: Mapping[str, Any]) -> bool:
    """Tell whether a mapping holds spans or log records."""
    if "spanId" in value or "context" in value:  # a span, the most frequent case
        return False
    return not _CONTAINERS.isdisjoint(value)


class _Text:
    """JSON text read in pieces: containers are traversed, and one span at a time is parsed."""

    def __init__(self, file: Any, name: str, path: str | None, max_bytes: int) -> None:
        self.file, self.name, self.path, self.max_bytes = file, name, path, max_bytes
        self.buffer = ""
        self.at = self.total = self.count = 0
        self.ended = self.is_last = False
        self.decode = json.JSONDecoder().raw_decode

    def fail(self, what: str, cause: BaseException | None = None, hint: str = "", is_last: bool = False) -> NoReturn:
        self.is_last = is_last
        raise NoeticError(
            "invalid_run_file",
            f"{self.name} cannot be read at record {self.count}: {what}",
            hint=hint,
            path=self.path,
            index=self.count,
        ) from cause

    def more(self) -> bool:
        """Read another piece; False at the end of the file."""
        if self.ended:
            return False
        held = len(self.buffer) - self.at
        if held >= _LONGEST_RECORD:
            self.fail(f"a record is longer than {_LONGEST_RECORD:,} characters", is_last=True)
        # Read as much again as is held, so that a long record is not parsed repeatedly in small pieces.
        piece = self.file.read(max(_PIECE, held))
        if not piece:
            self.ended = True
            return False
        self.total += len(piece)
        if self.total > self.max_bytes:
            self.fail(f"it contains more than {self.max_bytes:,} characters", hint=_TOO_LARGE, is_last=True)
        self.buffer, self.at = self.buffer[self.at :] + piece, 0
        return True

    def peek(self) -> str:
        """Return the next non-blank character, "" at the end."""
        while True:
            buffer, at = self.buffer, self.at
            while at < len(buffer) and buffer[at] in _BLANK:
                at += 1
            self.at = at
            if at < len(buffer):
                return buffer[at]
            if not self.more():
                return ""

    def expect(self, wanted: str) -> str:
        found = self.peek()
        if not found:
            self.fail("it ends too early")
        if found not in wanted:
            self.fail(f"there is {found!r} where {' or '.join(map(repr, wanted))} belongs")
        self.at += 1
        return found

    def value(self) -> Any:
        if not self.peek():
            self.fail("it ends too early")
        while True:
            try:
                found, end = self.decode(self.buffer, self.at)
            except RecursionError as error:
                self.fail("its JSON is nested too deep", error)
            except json.JSONDecodeError as error:
                # An error far from the end of the piece is not caused by the cut, so reading more would not help.
                is_cut = len(self.buffer) - error.pos < _NEAR_END or error.msg.startswith("Unterminated")
                if is_cut and self.more():
                    continue
                self.fail(f"it is truncated or not JSON ({error.msg})", error)
            # A number at the end of a piece may continue in the next.
            if end == len(self.buffer) and not isinstance(found, dict | list | str) and self.more():
                continue
            self.at = end
            return found

    def records(self) -> Iterator[tuple[str, Any]]:
        documents = 0
        while self.peek():
            try:
                yield from self.walk(_SPANS, 0)
                documents += 1
            except NoeticError as error:
                # A single damaged document is lost as a whole; of several, the next one begins on its own line.
                if self.is_last or not (self.next_document() or documents):
                    raise
                yield "damaged", error

    def next_document(self) -> bool:
        """Go to the next line that begins an object; False at the end of the file."""
        while (found := self.buffer.find("\n{", self.at)) < 0:
            self.at = max(self.at, len(self.buffer) - 1)
            if not self.more():
                self.at = len(self.buffer)
                return False
        self.at = found + 1
        return True

    def walk(self, key: str, depth: int) -> Iterator[tuple[str, Any]]:
        """Yield the records of the next value, which is named `key`."""
        if depth > _DEEPEST:
            self.fail("it is nested too deep")
        opening = self.peek()
        if opening == "[":
            yield from self.array(key, depth)
        elif opening == "{" and (key in _AROUND or depth == 0):
            yield from self.members(key, depth)
        else:
            yield self.record(self.value(), key)

    def array(self, key: str, depth: int) -> Iterator[tuple[str, Any]]:
        self.at += 1
        if self.peek() == "]":
            self.at += 1
            return
        while True:
            # A span is parsed whole; an element of a list of documents is another container.
            if key in _AROUND:
                yield from self.walk(key, depth + 1)
            else:
                found = self.value()
                if isinstance(found, dict) and is_container(found):
                    for record in _given(found, key, depth + 1):
                        self.count += 1
                        yield record
                else:
                    yield self.record(found, key)
            if self.expect(",]") == "]":
                return

    def members(self, outer: str, depth: int) -> Iterator[tuple[str, Any]]:
        self.at += 1
        found: dict[str, Any] = {}
        held = False
        if self.peek() == "}":
            self.at += 1
            return
        while True:
            if self.peek() != '"':
                self.expect('"')
            key = self.value()
            self.expect(":")
            if key in _CONTAINERS:
                held = True
                yield from self.walk(key, depth + 1)
            else:
                inner = self.value()
                # The members of a document may be those of a single span.
                if depth == 0:
                    found[key] = inner
            if self.expect(",}") == "}":
                break
        if not held and depth == 0:
            yield self.record(found, outer)

    def record(self, value: Any, key: str) -> tuple[str, Any]:
        self.count += 1
        return ("log" if key in _LOGS else "span"), value


FORMATS: Final = ("otel",)
# Found near the start of span files only.
_SIGNS: Final = re.compile(
    rb'"resource_?(?:Spans|spans|Logs|logs)"\s*:|"spans"\s*:\s*\[\s*\{|"context"\s*:\s*\{[^{}]*"trace_id"|"traceId"\s*:'
)
# Found together with one of these in traces of MLflow and Langfuse.
_OTHER_SIGNS: Final = re.compile(
    rb'"mlflow\.[\w.]+"\s*:|"(?:trace|request)_metadata"\s*:\s*\{|"(?:observations|[pP]arentObservationId)"\s*:'
)
_HEAD: Final = 1 << 16


def is_span_file(path: Path) -> bool:
    """Tell whether a file begins like a file of spans; damage is found when it is read."""
    try:
        with regular_file(path, MAX_BYTES) as file:
            head = file.read(_HEAD)
        if head[:2] == b"\x1f\x8b":
            head = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, _HEAD)
    except (OSError, zlib.error):
        return False
    return _SIGNS.search(head) is not None and _OTHER_SIGNS.search(head) is None


def looks_like(document: Document) -> bool:
    return _holds_spans(record(document, 0) if document.by_line else document.data)


def _holds_spans(value: Any) -> bool:
    if isinstance(value, Mapping):
        context = value.get("context")
        return is_container(value) or "traceId" in value or (isinstance(context, Mapping) and "trace_id" in context)
    if isinstance(value, list | tuple) and value:
        return _holds_spans(parsed(value[0]))
    return hasattr(value, "get_span_context")


def read(document: Document, format: str | None = None) -> Iterator[Callable[[], Run]]:
    if document.is_large:
        raise refused(document, "this file is too large to read its spans run by run", hint=_TOO_LARGE)
    yield from _runs(_records_of_lines(document) if document.by_line else records_of(document.data), ())


def _records_of_lines(document: Document) -> Iterator[tuple[str, Any]]:
    for place in range(len(document.data)):
        try:
            value = record(document, place)
        except NoeticError as error:
            yield "damaged", error
        else:
            yield from records_of(value)


def runs_from_spans(spans_or_path: Any, *, logs: Iterable[Any] | str | PathLike[str] = ()) -> tuple[Run, ...]:
    """Read the spans of any agent as runs.

    Parameters
    ----------
    spans_or_path : path-like, str, mapping or iterable
        A file (OTLP JSON or the SDK's JSON, one document or one per line, plain or gzipped), its text or parsed
        content, or spans: objects of the SDK, or the results of their ``to_json``.
    logs : iterable or path-like
        Log records of these spans, in the same forms, if they are not in the file.

    Returns
    -------
    tuple of Run
        One per conversation id, or else per trace with a model or tool call; redacted.

    Raises
    ------
    NoeticError
        ``invalid_run_file``, with ``path`` and ``index``, for damaged, truncated, too large or spanless data.

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
    yield from _runs(read_records(source, max_bytes=max_bytes), read_records(logs, max_bytes=max_bytes) if logs else ())


def _runs(given: Iterable[tuple[str, Any]], logs: Iterable[tuple[str, Any]]) -> Iterator[Callable[[], Run]]:
    spans: list[Span] = []
    records: list[LogRecord] = []
    faults: list[tuple[int, NoeticError, Any]] = []
    for place, (kind, value) in enumerate(counted(given, "spans")):
        near = max(len(spans) - 1, 0)
        if kind == "damaged":
            faults.append((near, value, None))
        elif kind == "log":
            found = log_record(value)
            if found is not None:
                records.append(found)
        elif (span := span_record(value, len(spans))) is not None:
            spans.append(span)
        else:
            hint = "A span has a context with its ids (SDK), or spanId and traceId (OTLP)."
            error = NoeticError("invalid_run_file", f"Record {place} is not a span.", hint=hint, index=place)
            faults.append((near, error, value))
    if faults and not spans:
        raise faults[0][1]
    for kind, value in logs:
        if kind == "damaged":
            faults.append((0, value, None))
        elif (found := log_record(value)) is not None:
            records.append(found)
    yield from runs_of(spans, records, notes=[(near, _noted(error, value)) for near, error, value in faults])


def _noted(error: NoeticError, value: Any) -> dict[str, Any]:
    what = "a record that cannot be read"
    return {"place": f"record {error.index}", "what": f"{what} ({error.what})", "value": shown(value)}


def runs_of(
    spans: list[Span],
    records: Iterable[LogRecord] = (),
    *,
    about: Callable[[span_tree.Conversation], Mapping[str, Any]] = lambda _: {"source": "otel"},
    notes: Iterable[tuple[int, dict[str, Any]]] = (),
) -> Iterator[Callable[[], Run]]:
    """Yield a reader for each run of spans; `about` returns its meta, `notes` lists unmapped parts by span."""
    whole, unmapped = span_tree.joined(spans, records)
    by_place: dict[int, list[dict[str, Any]]] = {}
    for place, entry in (*unmapped, *notes):
        by_place.setdefault(place, []).append(entry)
    found = span_tree.conversations(whole)
    placed = {span.place for conversation in found for span in conversation.spans}
    others = [entry for place, entries in by_place.items() if place not in placed for entry in entries]
    for conversation in found:
        strange = [entry for span in conversation.spans for entry in by_place.get(span.place, ())] + others
        others = []  # of spans outside any run: listed once
        yield partial(_run, conversation, strange, about)


def _run(
    conversation: span_tree.Conversation,
    strange: list[dict[str, Any]],
    about: Callable[[span_tree.Conversation], Mapping[str, Any]],
) -> Run:
    name, meta = conversation.name, about(conversation)
    run_id = f"{meta['source']}-{name or conversation.spans[0].trace_id}"
    own = [span for span in conversation.spans if span_tree.is_own(span)]
    if own:
        return span_tree.run_of_own(own, run_id=run_id, unmapped=strange)
    for span in conversation.spans:
        operation = span.text("gen_ai.operation.name", "openinference.span.kind", "llm.request.type")
        if operation is not None and operation.lower() in span_tree.NO_PLACE:
            strange.append({"place": f"span {span.place}", "what": "no place in a run", "value": span.name[:200]})
    root = span_tree.executions(conversation.spans)
    return run_of_execution(root, run_id=run_id, thread_id=name or "t1", meta=meta, unmapped=strange)
