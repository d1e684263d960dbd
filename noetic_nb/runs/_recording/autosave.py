"""The file to which a growing run is saved in parts: each finished turn is in it before its reply is returned.

It is a `Run.save` file with appended parts, each a gzip member: ``{"batch": {"turn": 7, "at": [[first, count], ...]}}``
followed by the events with these numbers, all of one turn; or ``{"meta": {...}}``. The cost of saving a turn does not
grow with the run. Dropping turns copies the remaining parts unchanged. A killed process leaves at most one incomplete
part, which readers skip.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from noetic_nb._core.atomic_write import owner_only
from noetic_nb.errors import NoeticError
from noetic_nb.ids import SYSTEM_IDS
from noetic_nb.redact import Redaction, redact_text, safe_logger
from noetic_nb.runs._events.event_json import to_wire
from noetic_nb.runs._recording.retained_turns import KeptTurn
from noetic_nb.runs._save import THE_END, event_line, header_line, json_line, packed

try:
    import fcntl
except ImportError:  # Windows has no fcntl
    fcntl = None  # type: ignore[assignment]

_AUTOSAVE_LOG: Final = safe_logger("noetic_nb.runs")
_CHUNK: Final = 1 << 20


def _packed(lines: Iterable[bytes]) -> bytes:
    return packed(b"".join(lines))


def _ranges(numbers: Iterable[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for number in numbers:
        if found and sum(found[-1]) == number:
            found[-1][1] += 1
        else:
            found.append([number, 1])
    return found


def cannot_save(path: str, error: OSError) -> NoeticError:
    """Return the error for a file to which a run cannot be saved."""
    what = f"The run cannot be saved: {error.strerror or error}."
    hint = "Check that the folder exists, is writable and has space."
    return NoeticError("storage_failed", what, given=path, hint=hint, path=path)


class Autosave:
    """The open file of a run that is saved as it grows; `error` says why the newest events are not in it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.error: str | None = None
        # One redaction while the file is open: a decision may quote a secret from an earlier text.
        self._rule = Redaction()
        self._fd: int | None = None
        self._end = 0
        self._meta: Any = None
        self._queue: list[tuple[KeptTurn | None, bytes]] = []

    # Opening

    def create(self, run_id: str, meta: Mapping[str, Any]) -> None:
        """Start a new file that replaces the existing one."""
        if os.path.exists(self.path):
            self._open()  # fails if another process holds the file
        self._replace(run_id, meta, [])

    def continue_at(self, end: int, meta: Mapping[str, Any]) -> None:
        """Continue a file that was read; incomplete lines behind `end` are removed."""
        self._open()
        try:
            assert self._fd is not None
            os.ftruncate(self._fd, end)
        except OSError as error:
            raise self._failed(error) from error
        self._end, self._meta = end, copy.deepcopy(meta)

    def _open(self) -> None:
        try:
            fd = os.open(self.path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        except OSError as error:
            raise self._failed(error) from error
        if fcntl is not None:
            try:
                # Held until the file is closed or the process ends for any reason.
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(fd)
                what = "Another process saves a run to this file."
                hint = "Stop it, or pass another path."
                raise NoeticError("storage_failed", what, given=self.path, hint=hint, path=self.path) from error
            except OSError:  # the file system has no locks; two writers are detected when the file changes
                pass
        self._fd = fd

    def _failed(self, error: OSError) -> NoeticError:
        return cannot_save(self.path, error)

    # Growing

    def add(self, turn: KeptTurn) -> None:
        """Add the waiting events of a turn; `flush` writes them."""
        numbers, lines = [], []
        for number, event in turn.waiting:
            try:
                lines.append(event_line(self._rule, event, number))
                numbers.append(number)
            except NoeticError as error:
                # One invalid event must not keep the others from being saved.
                _AUTOSAVE_LOG.error("An event is not saved: %s", error)
        turn.waiting.clear()
        if lines:
            self._queue.append(
                (turn, _packed([json_line({"batch": {"turn": turn.serial, "at": _ranges(numbers)}}), *lines]))
            )

    def flush(self, meta: Mapping[str, Any]) -> None:
        """Write the added events, and the run's meta if it changed. Never raises: a failed write is retried next time."""
        try:
            if meta != self._meta:
                line = json_line({"meta": self._rule.data(to_wire(meta))})
                self._queue.append((None, _packed([line])))
                self._meta = copy.deepcopy(meta)
            self._check_own()
            while self._queue:
                turn, part = self._queue[0]
                start = self._end
                self._write(part)
                if turn is not None:
                    turn.members.append((start, self._end))
                del self._queue[0]
            self.error = None
        except (OSError, TypeError, ValueError) as error:
            self._note(getattr(error, "strerror", None) or str(error))

    def _check_own(self) -> None:
        if self._fd is None:
            raise OSError("the file is closed")
        there, own = os.stat(self.path), os.fstat(self._fd)
        if (there.st_ino, there.st_dev, own.st_size) != (own.st_ino, own.st_dev, self._end):
            raise OSError("the file was moved, replaced or changed by another program; record to another path")

    def _write(self, part: bytes) -> None:
        assert self._fd is not None
        os.lseek(self._fd, self._end, os.SEEK_SET)
        rest = memoryview(part)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            os.ftruncate(self._fd, self._end)  # remove an incomplete part before the next one
            raise
        self._end += len(part)

    def _note(self, problem: str) -> None:
        problem = redact_text(problem)
        if problem != self.error:  # once, not at every turn
            _AUTOSAVE_LOG.error("The run is not saved to %r: %s", self.path, problem)
        self.error = problem

    # Dropping

    def drop(self, run_id: str, meta: Mapping[str, Any], doomed: Iterable[KeptTurn], kept: Sequence[KeptTurn]) -> None:
        """Rewrite the file without some turns. Never raises; on failure they stay in the file."""
        gone = set(doomed)
        self._queue = [(turn, part) for turn, part in self._queue if turn not in gone]
        try:
            self._check_own()
            self._replace(run_id, meta, kept)
        except (OSError, NoeticError, TypeError, ValueError) as error:
            self._note(getattr(error, "strerror", None) or str(error))

    def _replace(self, run_id: str, meta: Mapping[str, Any], kept: Sequence[KeptTurn]) -> None:
        """Write a header and unchanged copies of the kept parts to a new file, and replace the old one with it."""
        path = os.path.realpath(self.path)
        folder, name = os.path.split(path)
        draft = os.path.join(folder, f".{name}.{SYSTEM_IDS.new('draft')}")
        parts = sorted((start, end, turn) for turn in kept for start, end in turn.members)
        moved: list[tuple[KeptTurn, int, int]] = []
        try:
            try:
                with open(draft, "xb", opener=owner_only) as raw:
                    raw.write(_packed([header_line(self._rule, run_id, meta, 0)]))
                    for start, end, turn in parts:
                        moved.append((turn, raw.tell(), raw.tell() + end - start))
                        self._copy(raw, start, end)
                    raw.flush()
                    os.fsync(raw.fileno())
                    size = raw.tell()
                self.close()  # Windows cannot replace an open file
                os.replace(draft, path)
            finally:
                if os.path.exists(draft):
                    os.unlink(draft)
        except OSError as error:
            if self._fd is None and parts:
                self._open()
            raise self._failed(error) from error
        self._open()
        self._end, self._meta = size, copy.deepcopy(meta)
        for turn in kept:
            turn.members.clear()
        for turn, start, end in moved:
            turn.members.append((start, end))

    def _copy(self, raw: Any, start: int, end: int) -> None:
        assert self._fd is not None
        os.lseek(self._fd, start, os.SEEK_SET)
        while start < end:
            chunk = os.read(self._fd, min(_CHUNK, end - start))
            if not chunk:
                raise OSError("the file is shorter than what was written to it")
            raw.write(chunk)
            start += len(chunk)

    # Closing

    def is_current(self) -> bool:
        """Tell whether the file is open and nothing else has replaced it or written to it."""
        try:
            self._check_own()
        except OSError:
            return False
        return True

    def finish(self) -> None:
        """Mark the file as complete if nothing is missing, and close it."""
        if self.error is None and not self._queue:
            try:
                self._check_own()
                self._write(THE_END)
            except OSError as error:
                self._note(error.strerror or str(error))
        self.close()

    @property
    def is_open(self) -> bool:
        return self._fd is not None

    def close(self) -> None:
        """Close the file; safe to call again."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "saved" if self.error is None else f"NOT saved: {self.error}"
        return f"<autosave of {redact_text(self.path)!r}: {state}>"
