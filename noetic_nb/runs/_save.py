"""Saves runs to files: one ``.jsonl.gz``, with a header line and then one event per line.

Secrets are replaced on writing, so a loaded run equals the saved data, not the live run. An extra field in each gzip
member's header, which gzip readers ignore, has the member's length and its checksum: it tells a truncated member from a
damaged one.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from noetic_nb._core.atomic_write import as_path, regular_file, whole_file
from noetic_nb.errors import NoeticError
from noetic_nb.events import RunEvent
from noetic_nb.redact import Redaction, redact_text
from noetic_nb.runs._events.event_json import SCHEMA, SCHEMA_VERSION, dump_event, parse_event, parse_json, to_wire

try:
    import fcntl
except ImportError:  # Windows has no fcntl
    fcntl = None  # type: ignore[assignment]

_GZIP: Final = 31  # zlib's wbits value for gzip
_CHUNK: Final = 1 << 14
# Gzip header: deflate, extra field, no time (so equal content gives equal bytes), unknown operating system.
_START: Final = b"\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff"
_FIELD: Final = b"\x0c\x00NB\x08\x00"
_HEADER: Final = len(_START) + len(_FIELD) + 8


def _number(number: int) -> bytes:
    return number.to_bytes(4, "little")


def packed(content: bytes) -> bytes:
    """Return the content as one gzip member."""
    deflater = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflater.compress(content) + deflater.flush()
    length = _number(_HEADER + len(body) + 8)
    rest = _number(zlib.crc32(content)) + _number(len(content) & 0xFFFFFFFF)
    return b"".join([_START, _FIELD, length, _number(zlib.crc32(length)), body, rest])


THE_END: Final = packed(b"")  # an empty member marks the end of a completed file


def is_unfinished(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file with member lengths lacks its end marker and no process is still writing it."""
    with regular_file(path) as raw:
        if not raw.read(_HEADER).startswith(_START + _FIELD):
            return False  # an older version, or not saved as it grew
        raw.seek(max(0, os.fstat(raw.fileno()).st_size - len(THE_END)))
        return raw.read() != THE_END and not _is_held(raw)


def _is_held(file: BinaryIO) -> bool:
    if fcntl is None:
        return False  # type: ignore[unreachable]  # Windows
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # the file system has no locks
        pass
    return False


def member_ends(path: str | os.PathLike[str]) -> tuple[list[int], bool]:
    """Return where each whole non-empty member ends, up to a damaged one, and whether the last one is truncated."""
    ends: list[int] = []
    inflater = None
    rest = head = b""
    says_length = False
    with regular_file(path) as raw:
        while rest or (rest := raw.read(_CHUNK)):
            if inflater is None:
                while len(rest) < _HEADER and (more := raw.read(_CHUNK)):
                    rest += more
                inflater, head = zlib.decompressobj(_GZIP), rest[:_HEADER]
            # Discard the output: a chunk unpacks to 16 MB at most.
            try:
                inflater.decompress(rest)
            except zlib.error:
                return ends, False
            rest = inflater.unused_data
            if inflater.eof:
                says_length = says_length or _FIELD in head
                ends.append(raw.tell() - len(rest))
                inflater = None
        size = raw.tell()
    if ends[1:] and ends[-1] - ends[-2] == len(THE_END) and _ends_with(path, ends[-1]):
        ends.pop()
    if inflater is None:
        return ends, False
    return ends, not says_length or _is_cut(head, size - (ends[-1] if ends else 0))


def _ends_with(path: str | os.PathLike[str], end: int) -> bool:
    with regular_file(path) as raw:
        raw.seek(end - len(THE_END))
        return raw.read(len(THE_END)) == THE_END


def _is_cut(head: bytes, length: int) -> bool:
    """Tell whether an incomplete member is shorter than its header says; the header itself may be damaged."""
    if len(head) < _HEADER:
        return (_START + _FIELD).startswith(head[: len(_START + _FIELD)])
    said, checksum = head[-8:-4], head[-4:]
    return (
        head.startswith(_START + _FIELD)
        and _number(zlib.crc32(said)) == checksum
        and length < int.from_bytes(said, "little")
    )


def json_line(data: Any, *, sort_keys: bool = False) -> bytes:
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys)
    return text.encode() + b"\n"


def header_line(rule: Redaction, run_id: str, meta: Mapping[str, Any], events: int, **more: Any) -> bytes:
    """Return the first line of a run file, with the number of events; raises ``invalid_run_file`` if meta is not JSON."""
    clean = rule.data(to_wire(meta))
    header = {
        "schema": SCHEMA,
        "version": SCHEMA_VERSION,
        "run_id": redact_text(run_id),
        "events": events,
        "meta": clean,
    }
    try:
        return json_line({**header, **{key: rule.data(to_wire(value)) for key, value in more.items()}}, sort_keys=True)
    except (TypeError, ValueError) as error:
        hint = "Keep text, numbers, lists and dicts."
        raise NoeticError("invalid_run_file", f"The run's meta is not JSON data: {error}", hint=hint) from error


def event_line(rule: Redaction, event: RunEvent, seq: int) -> bytes:
    """Return an event as a line of a run file; raises ``invalid_run_file`` if it could not be read back."""
    try:
        line = json_line(rule.data(dump_event(event)))
        # Parse it now: otherwise an unreadable file would be noticed only after the run is gone.
        parse_event(parse_json(line))
    except (AttributeError, TypeError, ValueError) as error:
        what = f"Event {seq} ({event.kind}) has a field of the wrong type: {error}"
        hint = "Build events with the types their fields are annotated with."
        raise NoeticError("invalid_run_file", what, hint=hint, seq=seq) from error
    return line


def _lines(
    run_id: str, meta: Mapping[str, Any], events: Sequence[RunEvent], more: Mapping[str, Any]
) -> Iterator[bytes]:
    # One redaction for the whole file: a decision may quote a secret from an earlier text.
    rule = Redaction()
    yield header_line(rule, run_id, meta, len(events), **more)
    for seq, event in enumerate(events):
        yield event_line(rule, event, seq)


def save_events(
    path: str | os.PathLike[str], *, run_id: str, meta: Mapping[str, Any], events: Sequence[RunEvent], **more: Any
) -> Path:
    """Write a run to one file, atomically and with reproducible bytes; `more` are extra header fields."""
    target = as_path(path)
    try:
        with whole_file(target) as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
            for line in _lines(run_id, meta, events, more):
                packed.write(line)
    except OSError as error:
        what = f"The run could not be saved: {error.strerror or error}."
        hint = "Check that the folder exists, is writable and has space."
        raise NoeticError("storage_failed", what, given=str(path), hint=hint, path=str(path)) from error
    return target
