"""The sources of `import_run` as data: objects, JSON text and files, plain or gzipped; and unread values."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from noetic_nb._core.atomic_write import regular_file
from noetic_nb.errors import NoeticError
from noetic_nb.items._json_text import parsed_json
from noetic_nb.items._messages.message import shown
from noetic_nb.runs._labels import FILE as CODEBOOK
from noetic_nb.runs._labels import SUFFIX as LABELS
from noetic_nb.runs._load import MAX_BYTES, MAX_LINE_BYTES, read_gzip

FACTS: Final = (
    "turns", "model calls", "tool calls", "tokens", "cached", "written", "reasoning", "costs", "errors", "times", "labels",
    "children", "compactions", "system prompt", "tool definitions", "any size",
)  # fmt: skip
"""Tokens are input and output tokens; cached, cache-written and reasoning tokens each have their own column."""
EVERYTHING: Final = frozenset(FACTS)

NOTHING: Final[tuple[Any, ...]] = (None, "", [], {}, ())
WRONG: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The exceptions that reading a malformed record can raise."""
_DEEPEST: Final = 40
_MOST_VALUES: Final = 100  # per key: every line of a long log may have it, and this many values show its meaning


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a format: `read`, kept with all that is `inside`, or `passed` over, each with the reason."""

    read: frozenset[str]
    inside: frozenset[str] = frozenset()
    passed: Mapping[str, str] = field(default_factory=dict)

    def unread(self, value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        """Yield the path and value of each unknown key; paths leave out list positions."""
        return self._unread(value, path, 0)

    def _unread(self, value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if key in self.inside or key in self.passed or inner in NOTHING:
                    continue
                below = f"{path}.{key}" if path else str(key)
                if key not in self.read or depth > _DEEPEST:
                    yield below, inner
                elif isinstance(inner, Mapping | list | tuple):
                    yield from self._unread(inner, below, depth + 1)
        elif isinstance(value, list | tuple) and depth <= _DEEPEST:
            is_of_records = any(isinstance(each, Mapping) for each in value)
            for each in value:
                if isinstance(each, Mapping | list | tuple):
                    yield from self._unread(each, path, depth + 1)
                elif is_of_records and each not in NOTHING:
                    yield f"{path}[]", each


class Unread:
    """The unread values of a log, by their paths."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, dict[str, Any]]] = {}
        self._count: dict[str, int] = {}

    def look(self, place: str, value: Any, known: Keys, path: str = "") -> None:
        """Collect the unread values of a record."""
        for below, inner in known.unread(value, path):
            _, values = self._found.setdefault(below, (f"{place}.{below}" if place else below, {}))
            self._count[below] = self._count.get(below, 0) + 1
            if len(values) < _MOST_VALUES:
                values.setdefault(repr(inner)[:200], inner)

    def notes(self) -> Iterator[dict[str, Any]]:
        """Yield a note for each path: where it first occurred, and its value or values."""
        for path, (place, values) in self._found.items():
            held = list(values.values())
            what = "no place in a run" if self._count[path] == 1 else f"no place in a run, {self._count[path]} times"
            yield {"place": place, "what": what, "value": shown(held[0] if len(held) == 1 else held)}


RUN_SET: Final = ".runset.json"  # the ending of files that list the runs of a set
_GZIP: Final = b"\x1f\x8b"
ZIP: Final = b"PK\x03\x04"
_NOT_BLANK: Final = re.compile(rb"\S")
_TABLES: Final = frozenset({".csv", ".tsv", ".xlsx", ".xls", ".parquet", ".feather"})
# Columns that tell the conversations of a table apart.
_CONVERSATIONS: Final = ("conversation_id", "thread_id", "session_id")
_LONGEST_PATH: Final = 4_096  # no path is longer; JSON text nearly always is, or begins with a bracket


@dataclass(frozen=True, slots=True)
class Document:
    """One source, `by_line` or whole: its JSON, or the given object; None for a file that is not JSON."""

    data: Any
    path: Path | None = None
    by_line: bool = False

    @property
    def is_large(self) -> bool:
        """Whether its records stay in the file until they are needed."""
        return self.by_line and not isinstance(self.data, list)

    @property
    def name(self) -> str:
        """The name of the source for messages."""
        return "The source" if self.path is None else repr(str(self.path))


def refused(document: Document, what: str, *, index: int | None = None, hint: str = "") -> NoeticError:
    """Return the error for an unreadable source; `index` is the position of the record."""
    at = (
        ""
        if index is None
        else f" at {'line' if document.by_line else 'record'} {index + 1 if document.by_line else index}"
    )
    path = None if document.path is None else str(document.path)
    return NoeticError(
        "invalid_run_file",
        f"{document.name} cannot be read{at}: {what}",
        hint=hint,
        path=path,
        line=index + 1 if document.by_line and index is not None else None,
        index=index,
    )


def documents(source: Any) -> Iterator[Path | Document]:
    """Yield the parts of a source: the files of a folder, or the source itself; files are not opened yet."""
    path = _as_path(source)
    if path is None:
        if isinstance(source, str | bytes | bytearray):
            yield _parsed(bytes(source) if not isinstance(source, str) else source.encode(), None)
        else:
            yield document_of(source)
    elif path.is_dir():
        # A folder that is deleted meanwhile, such as a draft's, has no files.
        names = (Path(folder, name) for folder, _, names in os.walk(path) for name in names if not _is_beside(name))
        found = sorted(each for each in names if each.is_file())
        if not found:
            raise refused(Document(None, path), "there is no file in it")
        yield from found
    else:
        yield path


def _is_beside(name: str) -> bool:
    """Tell whether a file in a folder describes runs instead of holding them."""
    return name.startswith(".") or name.endswith((LABELS, RUN_SET)) or name == CODEBOOK


def document_of(source: Any) -> Document:
    return Document(as_rows(_as_data(source)))


def _as_data(source: Any) -> Any:
    """Return a trajectory object as data, a list of them as a list of data, and any other value unchanged."""
    if isinstance(source, list | tuple) and source and hasattr(source[0], "schema_version"):
        return [_as_data(each) for each in source]
    if hasattr(source, "schema_version") and callable(getattr(source, "model_dump", None)):
        return source.model_dump(mode="json", exclude_none=True)
    return source


def is_folder(source: Any) -> bool:
    path = _as_path(source)
    return path is not None and path.is_dir()


def _as_path(source: Any) -> Path | None:
    if isinstance(source, os.PathLike):
        return Path(source)
    if not isinstance(source, str) or len(source) > _LONGEST_PATH or source.lstrip()[:1] in ("", "{", "["):
        return None
    return Path(source)


def read_document(path: Path, max_bytes: int = MAX_BYTES) -> Document:
    """Read a file; raises `NoeticError` ``invalid_run_file`` if it is missing, too large, damaged or not JSON."""
    content = read_bytes(path, max_bytes)
    return Document(None, path) if content.startswith(ZIP) else _parsed(content, path)


def read_bytes(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a file, unpacked if it is gzipped; for a ZIP file only the start."""
    try:
        with regular_file(path, max_bytes) as file:
            start = file.read(4)
            content = start
            if start[:2] != _GZIP and start != ZIP:
                # Read its actual size: allocating memory for the largest allowed file is slow.
                content += file.read(os.fstat(file.fileno()).st_size)
    except FileNotFoundError as error:
        hint = "Check the path. A conversation is a list of messages: [{'role': 'user', 'content': 'Hi'}, ...]."
        raise refused(Document(None, path), "No such file", hint=hint) from error
    except OSError as error:
        hint = "The loaders of lab.datasets take a larger max_bytes, if you trust it."
        raise refused(
            Document(None, path), error.strerror or str(error), hint=hint if error.errno == errno.EFBIG else ""
        ) from error
    # By content, not by name, because files are often renamed.
    return read_gzip(path, max_bytes=max_bytes) if start[:2] == _GZIP else content


def _parsed(content: bytes, path: Path | None) -> Document:
    with suppress(ValueError):  # json detects the encoding in the same way, but the lines are examined first
        if not (encoding := json.detect_encoding(content)).startswith("utf-8"):
            content = content.decode(encoding, "surrogatepass").encode("utf-8", "surrogatepass")
    start = _NOT_BLANK.search(content)
    first = b"" if start is None else content[: content.find(b"\n", start.start()) + 1]
    # A complete document on the first line means one per line. Checked first, to avoid parsing the whole in vain.
    if first.rstrip().endswith((b"}", b"]")) and _NOT_BLANK.search(content, len(first)) and _is_json(first):
        return _by_line(content, path)
    try:
        return Document(parsed_json(content), path)
    except (ValueError, RecursionError) as error:
        # The first line of a log may be a damaged one.
        if any(line[:1] == b"{" and _is_json(line) for line in content[:MAX_LINE_BYTES].split(b"\n", 3)[1:3]):
            return _by_line(content, path)
        raise refused(Document(None, path), f"it is not JSON ({error})", hint=_advice(error, content, path)) from error


def _by_line(content: bytes, path: Path | None) -> Document:
    # Splitting at one character is several times faster than `splitlines`.
    lines = content.splitlines() if b"\r" in content else content.split(b"\n")
    return Document([Line(line) for line in lines if line.strip()], path, by_line=True)


def _advice(error: Exception, content: bytes, path: Path | None) -> str:
    """Return the advice for text that is not JSON."""
    if path is not None and path.suffix.lower() in _TABLES:
        return "Read a table with pandas first: nn.import_run(pandas.read_csv(path))."
    if isinstance(error, UnicodeDecodeError):
        return "Save it as UTF-8, or decode it yourself: nn.import_run(path.read_text(encoding='cp1252'))."
    if isinstance(error, RecursionError):
        return "It is nested too deep for a conversation."
    is_at_the_end = getattr(error, "pos", -1) >= len(content.decode(errors="replace").rstrip())
    if is_at_the_end or "Unterminated string" in str(error):
        return "It is truncated: copy or download it again."
    return "Correct the file, or pass the messages as Python data."


def as_rows(source: Any) -> Any:
    """Return a table (a DataFrame or its ``to_dict``) as records without missing values; any other value unchanged."""
    if hasattr(source, "columns") and callable(getattr(source, "to_dicts", None)):
        source = source.to_dicts()
    elif hasattr(source, "columns") and callable(getattr(source, "to_dict", None)):
        source = source.to_dict("records")
    elif isinstance(source, Mapping) and isinstance(source.get("role"), list | tuple):
        names = [name for name, column in source.items() if isinstance(column, list | tuple)]
        source = [dict(zip(names, row, strict=False)) for row in zip(*[source[name] for name in names], strict=False)]
    if not isinstance(source, list) or not source or not all(isinstance(row, Mapping) for row in source):
        return source
    if any(_is_missing(value) for row in source for value in row.values()):
        source = [{key: value for key, value in row.items() if not _is_missing(value)} for row in source]
    name = next((name for name in _CONVERSATIONS if "role" in source[0] and name in source[0]), None)
    talks: dict[str, list[Any]] = {}
    for row in source if name is not None else ():
        talks.setdefault(str(row.get(name)), []).append(row)
    return list(talks.values()) if len(talks) > 1 else source


def _is_missing(value: Any) -> bool:
    """Tell whether a value marks a missing cell of a table: NaN, NaT or NA."""
    if isinstance(value, float):  # includes NumPy's
        return math.isnan(value)
    return type(value).__name__ in ("NAType", "NaTType")


def _is_json(text: bytes) -> bool:
    try:
        parsed_json(text)
    except (ValueError, RecursionError):
        return False
    return True


def first_value(document: Document) -> Any:
    """Return the first record of a document, or the document itself if it is not a list."""
    data = document.data
    return record(document, 0) if document.by_line else data[0] if isinstance(data, list | tuple) and data else data


def first_lines(document: Document, most: int) -> Iterator[Mapping[str, Any]]:
    """Yield the first readable records of a log, from which its format is recognised."""
    for value in document.data[:most] if document.by_line or isinstance(document.data, list | tuple) else ():
        found = value.parsed() if isinstance(value, Line) else value
        if isinstance(found, Mapping):
            yield found


def first_record(path: Path) -> Mapping[str, Any]:
    """Return the first record of a log, or an empty one if there is none; the rest of the file is not read."""
    try:
        with regular_file(path, sys.maxsize) as file:
            found = parsed_json(file.readline(MAX_LINE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, Mapping) else {}


def lines_of(document: Document, note: Callable[..., None]) -> Iterator[Mapping[str, Any]]:
    """Yield the records of a log and note the unreadable ones; raises ``invalid_run_file`` if none is readable."""
    data = document.data if document.by_line or isinstance(document.data, list | tuple) else ()
    first = None
    is_empty = True
    for place in range(len(data)):
        try:
            yield record(document, place)
            is_empty = False
        except NoeticError as error:
            first = first or error
            value = data[place]
            value = value.text.decode("utf-8", "replace") if isinstance(value, Line) else value
            note(
                f"line {place + 1}",
                value,
                f"a line that cannot be read ({error.what.removeprefix(document.name + ' ')})",
            )
    if first is not None and is_empty:
        raise first


class Line:
    """A line of a file, parsed on demand: a bad line does not affect the others, and one is in memory at a time."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = text

    def parsed(self) -> Any:
        """Return the line as data, None if it cannot be read."""
        try:
            return parsed_json(self.text) if len(self.text) <= MAX_LINE_BYTES else None
        except (ValueError, RecursionError):
            return None


def record(document: Document, index: int) -> Mapping[str, Any]:
    """Return one record of a document, parsed; raises `NoeticError` ``invalid_run_file``, with its ``index``."""
    value = document.data[index]
    if isinstance(value, Line):
        if len(value.text) > MAX_LINE_BYTES:
            raise refused(document, f"the line is longer than {MAX_LINE_BYTES:,} bytes", index=index)
        try:
            value = parsed_json(value.text)
        except (ValueError, RecursionError) as error:
            hint = _advice(error, value.text, document.path)
            raise refused(document, f"it is not JSON ({error})", index=index, hint=hint) from error
    if not isinstance(value, Mapping):
        raise refused(document, f"a record must be a mapping, not {type(value).__name__}", index=index)
    return value
