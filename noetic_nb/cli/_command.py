"""The record of a command, where it writes, and the exit codes that all of them share."""

from __future__ import annotations

import json
import math
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TextIO

from noetic_nb.errors import printable
from noetic_nb.redact import redact

FINE: Final = 0
"""Nothing was found, and every limit is kept."""
FINDINGS: Final = 1
"""Something was found: a finding, a change, a limit that is not kept, a record that cannot be read."""
BAD_INPUT: Final = 2
"""The command could not be carried out: wrong arguments, files that are missing or damaged."""
INTERRUPTED: Final = 130
"""It was interrupted; what a shell reports then: 128 and the number of the signal."""


# A cell of a table in a terminal of 80 to 120 columns.
_CELL: Final = 40


class Output:
    """The streams of one command, the standard ones by default; as JSON its answer is one document with stable keys."""

    def __init__(self, *, as_json: bool, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.as_json = as_json
        self._out = sys.stdout if out is None else out
        self._err = sys.stderr if err is None else err

    def answer(self, document: Mapping[str, Any]) -> None:
        """Write the answer as JSON, where that was asked for; unknown numbers are null, and secrets are replaced."""
        if self.as_json:
            _write(self._out, json.dumps(_plain(redact(document)), indent=2, allow_nan=False))

    def text(self, *lines: str) -> None:
        """Write lines of text, where no JSON was asked for."""
        if not self.as_json:
            for line in lines:
                _write(self._out, line)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write rows as a table, where no JSON was asked for; numbers stand to the right, and an unknown value is a dash."""
        if self.as_json:
            return
        rows = list(rows)
        cells = [list(columns), *[[_cell(value) for value in row] for row in rows]]
        widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
        right = [
            all(row[at] is None or isinstance(row[at], int | float) for row in rows) and bool(rows)
            for at in range(len(columns))
        ]
        for line in cells:
            padded = [
                cell.rjust(width) if is_right else cell.ljust(width)
                for cell, width, is_right in zip(line, widths, right, strict=True)
            ]
            _write(self._out, "  ".join(padded).rstrip())

    def note(self, text: str) -> None:
        """Say something to a person, on the standard error."""
        _write(self._err, text)


def _write(stream: TextIO, line: str) -> None:
    # Names and texts of sources stand in it: none of them may steer the terminal.
    line = printable(line).replace("\r", " ")
    try:
        stream.write(f"{line}\n")
    except UnicodeEncodeError:  # a terminal that does not have every character
        encoding = stream.encoding or "ascii"
        stream.write(f"{line}\n".encode(encoding, "backslashreplace").decode(encoding))


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"
    from noetic_nb.runs._plain_text import plain_line  # which comes with all of a run, and help needs none

    return plain_line(value, _CELL)


def _plain(value: Any) -> Any:
    """Return JSON data: a value that is no number becomes null, since JSON has no NaN or infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its name, and a sentence for the list of commands.

    `example` has arguments that work anywhere, without a file; `codes` says when it exits with 0 and when with 1. `run`
    returns the exit code; heavy packages are imported in it and nowhere else.
    """

    name: str
    summary: str
    example: str
    codes: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace, Output], int]
