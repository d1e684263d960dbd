"""Files and objects that hold spans, read one span at a time: nothing but one piece of a file is in memory at once."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from noetic_nb.errors import NoeticError
from noetic_nb.runs.load import MAX_BYTES
from noetic_nb.whole_files import regular_file

__all__ = ["is_container", "read_records", "records_of"]

# Large enough that a span that is cut by the end of a piece, and read twice, is one of thousands.
_PIECE: Final = 1 << 20
_LONGEST_RECORD: Final = 64 * 2**20
# Longer than any escape or literal that the end of a piece may cut in two.
_NEAR_END: Final = 64
_GZIP: Final = b"\x1f\x8b"
_BLANK: Final = " \t\r\n"
# Containers around spans and log records, by the names of the SDK's JSON, OTLP's JSON and protobuf's.
_AROUND: Final = frozenset(
    [
        "resourceSpans",
        "resource_spans",
        "scopeSpans",
        "scope_spans",
        "instrumentationLibrarySpans",
        "resourceLogs",
        "resource_logs",
        "scopeLogs",
        "scope_logs",
    ]
)
_SPANS: Final = "spans"
_LOGS: Final = frozenset(["logs", "logRecords", "log_records"])
_CONTAINERS: Final = _AROUND | _LOGS | {_SPANS}
_DEEPEST: Final = 16
# A span of a trace may stand anywhere in a file, so that no run of it is known to be complete before its end.
_TOO_LARGE: Final = (
    "Split it so that each trace stays whole, and read the folder of its parts with nn.import_runs: "
    'docs/behaviour/interop.md, "Large files of spans".'
)


def read_records(source: Any, *, max_bytes: int = MAX_BYTES) -> Iterator[tuple[str, Any]]:
    """Yield ``("span", value)`` and ``("log", value)`` of a path, JSON text, a document or an iterable of spans.

    Only text that is given here may name a file: what stands in a file or a document is data (`records_of`).

    Raises
    ------
    NoeticError
        ``invalid_run_file``, with the place, for what is damaged, cut off or too large.
    """
    if isinstance(source, os.PathLike) or (isinstance(source, str) and not _is_json(source)):
        yield from _file(Path(source), max_bytes)
    else:
        yield from records_of(source, max_bytes=max_bytes)


def records_of(data: Any, *, max_bytes: int = MAX_BYTES) -> Iterator[tuple[str, Any]]:
    """Yield the records of JSON text, a document or an iterable of spans, as `read_records` does; no file is opened."""
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
    if isinstance(value, str) and _is_json(value):  # what `to_json` of a span returns
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
    if "spanId" in value or "context" in value:  # a span, which nearly all of them are
        return False
    return not _CONTAINERS.isdisjoint(value)


class _Text:
    """JSON text that is read piece by piece: one document, several behind each other, or one a line.

    Containers are walked through; what they hold is parsed whole, one span at a time.
    """

    def __init__(self, file: Any, name: str, path: str | None, max_bytes: int) -> None:
        self.file, self.name, self.path, self.max_bytes = file, name, path, max_bytes
        self.buffer = ""
        self.at = self.total = self.count = 0
        self.ended = False
        self.decode = json.JSONDecoder().raw_decode

    def fail(self, what: str, cause: BaseException | None = None, hint: str = "") -> NoReturn:
        raise NoeticError(
            "invalid_run_file",
            f"{self.name} cannot be read at record {self.count}: {what}",
            hint=hint,
            path=self.path,
            index=self.count,
        ) from cause

    def more(self) -> bool:
        """Read another piece; False at the end."""
        if self.ended:
            return False
        held = len(self.buffer) - self.at
        if held >= _LONGEST_RECORD:
            self.fail(f"a record is longer than {_LONGEST_RECORD:,} characters")
        # As much again as is held: a long record is not read over and over in small pieces.
        piece = self.file.read(max(_PIECE, held))
        if not piece:
            self.ended = True
            return False
        self.total += len(piece)
        if self.total > self.max_bytes:
            self.fail(f"it holds more than {self.max_bytes:,} characters", hint=_TOO_LARGE)
        self.buffer, self.at = self.buffer[self.at :] + piece, 0
        return True

    def peek(self) -> str:
        """Return the next character that is not blank, "" at the end."""
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
                # A fault far from the end of the piece is none of the cut: more text does not mend it.
                is_cut = len(self.buffer) - error.pos < _NEAR_END or error.msg.startswith("Unterminated")
                if is_cut and self.more():
                    continue
                self.fail(f"it is cut off or no JSON ({error.msg})", error)
            # A number that touches the end of a piece may go on in the next.
            if end == len(self.buffer) and not isinstance(found, dict | list | str) and self.more():
                continue
            self.at = end
            return found

    def records(self) -> Iterator[tuple[str, Any]]:
        while self.peek():
            yield from self.walk(_SPANS, 0)

    def walk(self, key: str, depth: int) -> Iterator[tuple[str, Any]]:
        """Yield the records of the value that comes next, which is called `key`."""
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
            # Parsed whole where it is a span; an element of a list of documents is a container again.
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
