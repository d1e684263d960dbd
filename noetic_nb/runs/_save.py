"""Runs to files: one ``.jsonl.gz``, a header and then one event a line.

Secrets are replaced on the way out, so a loaded run equals what was saved, not what was live.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from noetic_nb._core.atomic_write import whole_file
from noetic_nb.errors import NoeticError
from noetic_nb.events import RunEvent
from noetic_nb.redact import Redaction, redact_text
from noetic_nb.runs._events.event_json import SCHEMA, SCHEMA_VERSION, dump_event, parse_event, parse_json, to_wire


def json_line(data: Any, *, sort_keys: bool = False) -> bytes:
    """Return JSON data as one line of a file."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys)
    return text.encode() + b"\n"


def header_line(rule: Redaction, run_id: str, meta: Mapping[str, Any], events: int, **more: Any) -> bytes:
    """Return the first line of a run file, which announces how many events follow it.

    Raises `NoeticError` ``invalid_run_file`` where meta is no JSON data.
    """
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
        raise NoeticError(
            "invalid_run_file", f"The run's meta is not JSON data: {error}", hint="Keep text, numbers, lists and dicts."
        ) from error


def event_line(rule: Redaction, event: RunEvent, seq: int) -> bytes:
    """Return an event as a line of a run file.

    Raises `NoeticError` ``invalid_run_file`` where it could not be read back.
    """
    try:
        line = json_line(rule.data(dump_event(event)))
        # Read back at once: a file that cannot be loaded would be found out when the run is long gone.
        parse_event(parse_json(line))
    except (AttributeError, TypeError, ValueError) as error:
        raise NoeticError(
            "invalid_run_file",
            f"Event {seq} ({event.kind}) has a field of the wrong type: {error}",
            hint="Build events with the types their fields are annotated with.",
            seq=seq,
        ) from error
    return line


def _lines(
    run_id: str, meta: Mapping[str, Any], events: Sequence[RunEvent], more: Mapping[str, Any]
) -> Iterator[bytes]:
    # One rule for the whole file: a decision may hold the words of a secret whose text went by before.
    rule = Redaction()
    yield header_line(rule, run_id, meta, len(events), **more)
    for seq, event in enumerate(events):
        yield event_line(rule, event, seq)


def save_events(
    path: str | os.PathLike[str], *, run_id: str, meta: Mapping[str, Any], events: Sequence[RunEvent], **more: Any
) -> Path:
    """Write a run to one file, which must not change meanwhile; it is complete or it is not there.

    `more` are further fields of the header. An existing file is replaced at the end. The same run gives the same bytes with
    one version of zlib: no time and no name is stored.
    """
    target = Path(path)
    try:
        with whole_file(target) as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
            for line in _lines(run_id, meta, events, more):
                packed.write(line)
    except OSError as error:
        raise NoeticError(
            "storage_failed",
            f"The run could not be saved: {error.strerror or error}.",
            given=str(path),
            hint="Check that the folder exists, is writable and has space.",
            path=str(path),
        ) from error
    return target
