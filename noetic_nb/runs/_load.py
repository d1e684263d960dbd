"""Reads run files within a memory limit; `Run.load` makes runs of their parts."""

from __future__ import annotations

import errno
import gzip
import io
import os
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple, NoReturn

from noetic_nb._core.atomic_write import regular_file
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import ItemsAppended, RunEvent
from noetic_nb.items import thaw
from noetic_nb.items._item_checks import problem_of
from noetic_nb.redact import safe_logger
from noetic_nb.runs._events.event_json import SCHEMA, SCHEMA_VERSION, WireError, from_wire, parse_event, parse_json
from noetic_nb.runs._save import is_unfinished, member_ends

# A thousand turns take about 20 MB; a gigabyte of zeros takes 1 MB on disk.
MAX_BYTES: Final = 512 * 2**20
"""Most bytes a file may unpack to, unless `load_run` is given another limit."""
UNFINISHED: Final = "unfinished"  # meta key of the note that the file may lack turns
_WHY_UNFINISHED: Final = (
    "The process that saved this run ended before it could finish the file. The turns that were under way are missing. "
    "nn.recover(run_file, storage) adds those that are in storage."
)
_LOG: Final = safe_logger("noetic_nb.runs")
MAX_LINE_BYTES: Final = 64 * 2**20
"""Most bytes of one line; the largest known tool outputs are below 1 MB."""


# A billion turns of a thousand events; and a limit on the events that one part may announce.
_MOST: Final = 10**12
_MOST_IN_PART: Final = 10**7


_NOT_OURS: Final = "Pass a file that Run.save wrote; other recordings are read by nn.import_run(path)."


class _File:
    """A file being read; tracks the line for error messages and the remaining memory allowance."""

    def __init__(self, path: str | os.PathLike[str], max_bytes: int, max_line_bytes: int) -> None:
        self.path, self.max_bytes, self.max_line_bytes = str(path), max_bytes, max_line_bytes
        self.line: int | None = None
        self.ends: list[int] = []
        self.is_cut = False

    def fail(self, what: str, hint: str, cause: BaseException | None = None) -> NoReturn:
        place = "" if self.line is None else f" at line {self.line}"
        raise NoeticError(
            "invalid_run_file",
            f"{self.path!r} cannot be read{place}: {what}",
            hint=hint,
            path=self.path,
            line=self.line,
        ) from cause

    def lines(self, packed: gzip.GzipFile) -> Iterator[bytes]:
        total = 0
        while True:
            # One extra byte tells a line that is too long from one that just fits.
            line = packed.readline(min(self.max_line_bytes, self.max_bytes - total) + 1)
            if not line:
                return
            self.line = 1 if self.line is None else self.line + 1
            total += len(line)
            if total > self.max_bytes:
                self.fail(
                    f"it unpacks to more than {self.max_bytes:,} bytes.", "Pass a larger max_bytes if you trust it."
                )
            if len(line) > self.max_line_bytes:
                self.fail(
                    f"the line is longer than {self.max_line_bytes:,} bytes.",
                    "Pass a larger max_line_bytes if you trust it.",
                )
            yield line

    def unpacked(self) -> Iterator[bytes]:
        try:
            with regular_file(self.path, self.max_bytes) as raw, gzip.GzipFile(fileobj=raw) as packed:
                yield from self.lines(packed)
        except FileNotFoundError as error:
            self.fail("there is no such file.", "Check the path.", error)
        except EOFError as error:
            if not self._is_unfinished():
                self.fail("it ends too early.", "It is truncated; copy or download it again.", error)
        except gzip.BadGzipFile as error:
            if not self._is_unfinished():
                self.fail(f"it is not a gzip file, or it is damaged ({error}).", _NOT_OURS, error)
        except zlib.error as error:
            self.fail(f"its compressed data is damaged ({error}).", "Copy or download it again.", error)
        except OSError as error:
            hint = "Pass a larger max_bytes if you trust it."
            is_large = error.errno == errno.EFBIG
            self.fail(f"{error.strerror or error}.", hint if is_large else "Check the path and its permissions.", error)

    def _is_unfinished(self) -> bool:
        """Tell whether only the last part is incomplete, as after the kill of a process that was saving."""
        self.ends, self.is_cut = member_ends(self.path)
        return bool(self.ends) and self.is_cut

    def data(self, value: Any) -> Any:
        """Return free data of a header, rejecting data nested deeper than Python code can handle."""
        try:
            return thaw(from_wire(value))
        except RecursionError as error:
            self.fail("its JSON is nested too deep.", "Run.save never writes this; do not trust the file.", error)

    def parsed(self, line: bytes) -> Any:
        try:
            return parse_json(line)
        except RecursionError as error:
            self.fail("its JSON is nested too deep.", "Run.save never writes this; do not trust the file.", error)
        except UnicodeDecodeError as error:
            self.fail(f"it is not UTF-8 ({error}).", "The file is damaged or was edited; get it again.", error)
        except ValueError as error:
            self.fail(f"it is not JSON ({error}).", "The file is damaged or was edited; get it again.", error)


def read_gzip(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a gzip file; raises ``invalid_run_file`` if it is missing, damaged or too large."""
    file = _File(path, max_bytes, max_bytes)
    found = io.BytesIO()
    for line in file.unpacked():
        found.write(line)
    return found.getvalue()


def _head_of(file: _File, header: Any) -> tuple[str, dict[str, Any], dict[str, Any] | None, int]:
    """Parse the first line: the run's name, its meta, its bundle, and the number of events."""
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        file.fail(f"its first line is not the header of a run ({header!r:.80}).", _NOT_OURS)
    version = header.get("version")
    # `type`, not isinstance: `True` is an int, but not a version.
    if type(version) is not int or version < 1:
        file.fail(f"its version is {version!r:.40}, not a whole number.", _NOT_OURS)
    if version > SCHEMA_VERSION:
        file.fail(
            f"it has version {version}, and this library reads up to {SCHEMA_VERSION}.", "Upgrade noetic_nb to read it."
        )
    run_id, meta, count = header.get("run_id"), header.get("meta"), header.get("events")
    for name, value, kind in (("run_id", run_id, str), ("meta", meta, dict), ("events", count, int)):
        if type(value) is not kind:
            file.fail(f"its header has no valid `{name}` ({value!r:.80}).", _NOT_OURS)
    bundle = header.get("bundle")
    if bundle is not None and type(bundle) is not dict:
        file.fail(f"its header has no valid `bundle` ({bundle!r:.80}).", _NOT_OURS)
    # The checks above guarantee these types.
    return str(run_id), file.data(meta), None if bundle is None else file.data(bundle), int(count)  # type: ignore[arg-type]


class Part(NamedTuple):
    """A part appended to a run file as the run grows: its turn, and the numbers of its events."""

    turn: int
    numbers: list[int]


@dataclass(slots=True)
class RunFile:
    """A parsed run file: the parts of the run, and the position where a recorder continues."""

    run_id: str
    meta: dict[str, Any]
    bundle: dict[str, Any] | None
    events: list[RunEvent]
    numbers: list[int]  # one for each event
    parts: list[Part]  # in file order; a change of meta is a part without events
    ends: list[int]
    """Where the members of the file end, up to the last whole part; empty unless each part is a member of its own."""


def read_run(
    path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES, max_line_bytes: int = MAX_LINE_BYTES
) -> RunFile:
    """Read a run file; see `noetic_nb.load_run`."""
    given: object = path  # callers may pass any object
    if not isinstance(given, str | os.PathLike):
        hint = "Pass its path; a harness is followed by nn.record(harness)."
        raise NoeticConfigError("INVALID_OPTION", "load_run reads a file.", given=given, hint=hint)
    file = _File(path, max_bytes, max_line_bytes)
    lines = file.unpacked()
    first = next(lines, None)
    if first is None:
        file.fail("it is empty.", _NOT_OURS)
    run_id, meta, bundle, count = _head_of(file, file.parsed(first))
    found: list[tuple[int, RunEvent]] = []
    parts: list[Part] = []
    metas: list[tuple[int, Any]] = []
    waiting: deque[int] = deque()
    for line in lines:
        data = file.parsed(line)
        part = _part_of(file, data) if not waiting and len(found) >= count else None
        if part is not None:
            parts.append(part)
            waiting.extend(part.numbers)
            if "meta" in data:
                metas.append((len(parts), data["meta"]))
            continue
        try:
            found.append((waiting.popleft() if waiting else len(found), parse_event(data)))
        except WireError as error:
            file.fail(f"{error}.", "The file was edited, or a newer noetic_nb wrote it.", error)
        except RecursionError as error:
            file.fail("its JSON is nested too deep.", "Run.save never writes this; do not trust the file.", error)
    if file.is_cut:
        # The process ended within the last part. Each part is a gzip member of its own.
        del parts[len(file.ends) - 1 :]
        del found[count + sum([len(part.numbers) for part in parts]) :]
    announced = count + sum([len(part.numbers) for part in parts])
    if len(found) != announced:
        file.fail(
            f"it holds {len(found)} events, but its header announces {announced}.", "Lines are missing or were added."
        )
    for place, later in metas:
        if place <= len(parts):
            meta = file.data(later)
    # Turns that ran concurrently are stored one after the other; sort by event number to restore the order.
    found.sort(key=itemgetter(0))
    unmapped = list(meta.get("unmapped") or ())
    for _, event in found:
        if isinstance(event, ItemsAppended):
            # Older versions logged items that are rejected today; keep them unchanged.
            for at, item in enumerate(event.items, event.start):
                if (problem := problem_of(item)) is not None:
                    unmapped.append({"place": f"item {at}", "what": problem, "thread_id": event.where.thread_id})
    if len(unmapped) > len(meta.get("unmapped") or ()):
        meta = {**meta, "unmapped": [note for at, note in enumerate(unmapped) if note not in unmapped[:at]]}
    if not file.ends and count == 0:
        file.ends, _ = member_ends(path)
    aligned = count == 0 and len(file.ends) == len(parts) + 1
    events, numbers = [event for _, event in found], [number for number, _ in found]
    return RunFile(run_id, meta, bundle, events, numbers, parts, file.ends if aligned else [])


def note_unfinished(path: str | os.PathLike[str], meta: dict[str, Any]) -> None:
    """Say in the meta and in the log that turns may be missing, if the process that saved the file was killed."""
    if is_unfinished(path):
        meta[UNFINISHED] = _WHY_UNFINISHED
        _LOG.warning("%r: %s", os.fspath(path), _WHY_UNFINISHED)


def _part_of(file: _File, data: Any) -> Part | None:
    """Parse the first line of a part; None if the line does not start a part."""
    if not isinstance(data, dict) or "kind" in data:
        return None
    if data.keys() == {"meta"} and isinstance(data["meta"], dict):
        return Part(-1, [])
    ranges = data["batch"].get("at") if data.keys() == {"batch"} and isinstance(data["batch"], dict) else None
    turn = data["batch"].get("turn") if isinstance(ranges, list) else None
    if type(turn) is not int or not isinstance(ranges, list):
        return None
    numbers: list[int] = []
    for each in ranges:
        if not (isinstance(each, list) and len(each) == 2 and all(type(n) is int and 0 <= n < _MOST for n in each)):
            file.fail("its list of events is damaged.", "The file was edited; get it again.")
        if len(numbers) + each[1] > _MOST_IN_PART:
            file.fail("one of its parts announces too many events.", "The file was edited; get it again.")
        numbers.extend(range(each[0], each[0] + each[1]))
    return Part(turn, numbers)
