"""Finished rows of a sweep in a file, line by line, so that an interrupted one goes on where it was."""

from __future__ import annotations

import json
import os
import zlib
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from noetic_nb._core.atomic_write import regular_file
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.lab._sweeping.measured_runs import Measured

__all__ = ["ResumeFile"]

FORM: Final = "noetic_nb sweep 1"


def _content(path: Path) -> bytes:
    try:
        with regular_file(path) as file:
            return file.read()
    except FileNotFoundError:
        return b""


class ResumeFile:
    """A file of finished rows; a line that is not whole does not count, and is written over.

    Parameters
    ----------
    path : str or path
        A new file, or one of the same sweep.
    digest : str
        Of data, space, metrics and version.
    runs : int
        How many runs each row is of.

    Raises
    ------
    NoeticConfigError
        ``OTHER_SWEEP`` where the file belongs to another sweep, or is no file of one.
    NoeticError
        ``storage_failed`` where it cannot be read or written.
    """

    def __init__(self, path: str | PathLike[str], digest: str, runs: int) -> None:
        self.path = Path(path)
        self._runs = runs
        header = {"form": FORM, "digest": digest}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            data = _content(self.path)
            self.rows, whole = self._read(data, header)
            self._file = open(self.path, "r+b" if data else "wb")  # noqa: SIM115
            self._file.seek(whole)
            self._file.truncate()
            if not whole:
                self._write(header)
        except OSError as exc:
            raise self._failed(exc) from exc

    def _failed(self, exc: OSError) -> NoeticError:
        hint = "Give a path that can be written: resume='sweep.jsonl'."
        return NoeticError("storage_failed", f"The file of the sweep: {exc}", given=str(self.path), hint=hint)

    def _read(self, data: bytes, header: dict[str, Any]) -> tuple[dict[int, Measured], int]:
        rows: dict[int, Measured] = {}
        lines = data.splitlines(keepends=True)
        if not lines or (len(lines) == 1 and not data.endswith(b"\n") and _line(header).startswith(data)):
            return rows, 0
        found = _parsed(lines[0])
        if found is None or found.get("form") != FORM or found != header:
            raise NoeticConfigError(
                "OTHER_SWEEP",
                "The file is of another sweep: other runs, values, metrics, seed or version."
                if found is not None and found.get("form") == FORM
                else "This is no file of a sweep.",
                given=str(self.path),
                hint="Give another path, or remove the file.",
            )
        whole = len(lines[0])
        for line in lines[1:]:
            row = _parsed(line)
            if row is None:
                break
            rows[row["place"]] = Measured(row["place"], row["values"], [tuple(one) for one in row["failures"]])
            whole += len(line)
        return rows, whole

    def add(self, row: Measured) -> None:
        """Keep a finished row."""
        try:
            self._write({"place": row.place, "values": row.values, "failures": row.failures})
        except OSError as exc:
            raise self._failed(exc) from exc

    def _write(self, data: dict[str, Any]) -> None:
        self._file.write(_line(data))
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.fsync(self._file.fileno())
        self._file.close()


def _line(data: dict[str, Any]) -> bytes:
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return the content of a line; None for one that was not written to its end."""
    sum_, _, text = line.rstrip(b"\n").partition(b" ")
    try:
        if not line.endswith(b"\n") or int(sum_, 16) != zlib.crc32(text):
            return None
        data: dict[str, Any] = json.loads(text)
    except ValueError:
        return None
    return data
