"""The record of a command, its input runs, its output, and the exit codes that all commands share."""

from __future__ import annotations

import json
import math
import sys
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO

from noetic_nb._core.long_work import Interrupted
from noetic_nb.errors import NoeticConfigError, printable
from noetic_nb.redact import redact

if TYPE_CHECKING:
    from noetic_nb.runs import Run


FINE: Final = 0
"""Nothing was found, and every limit is met."""
FINDINGS: Final = 1
"""Something was found: a finding, a change, an exceeded limit, an unreadable record."""
BAD_INPUT: Final = 2
"""The command could not run: wrong arguments, or missing or damaged files."""
INTERRUPTED: Final = 130
"""It was interrupted: 128 plus the number of the signal, as a shell reports."""


# Width of a table cell, for terminals of 80 to 120 columns.
_CELL: Final = 40


@dataclass(frozen=True, slots=True)
class Output:
    """The standard streams of one command; with JSON, its answer is one document with stable keys."""

    as_json: bool

    def answer(self, document: Mapping[str, Any]) -> None:
        """Write the answer if JSON was requested; unknown numbers are null, and secrets are replaced."""
        if self.as_json:
            _write(sys.stdout, json.dumps(_plain(redact(document)), indent=2, allow_nan=False))

    def text(self, *lines: str) -> None:
        """Write lines of text, unless JSON was requested."""
        if not self.as_json:
            for line in lines:
                _write(sys.stdout, line)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write rows as a table, unless JSON was requested; numbers are right-aligned, and an unknown value is a dash."""
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
            _write(sys.stdout, "  ".join(padded).rstrip())

    def note(self, text: str) -> None:
        """Say something to a person, on the standard error."""
        _write(sys.stderr, text)


def _write(stream: TextIO, line: str) -> None:
    # It contains names and texts of sources, which must not control the terminal.
    line = printable(line).replace("\r", " ")
    try:
        stream.write(f"{line}\n")
    except UnicodeEncodeError:  # a terminal without some of the characters
        encoding = stream.encoding or "ascii"
        stream.write(f"{line}\n".encode(encoding, "backslashreplace").decode(encoding))


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"
    from noetic_nb.runs._plain_text import plain_line  # imports the code of runs, which help does not need

    return plain_line(value, _CELL)


def _plain(value: Any) -> Any:
    """Return JSON data: a value that is not a number becomes null, since JSON has no NaN or infinity."""
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

    `example` has arguments that work anywhere, without a file; `codes` explains the exit codes 0 and 1. `run` returns
    the exit code; heavy packages are imported only inside it.
    """

    name: str
    summary: str
    example: str
    codes: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace, Output], int]


DATA_SETS: Final = ("airline", "retail", "telecom", "agentdojo:banking", "agentdojo:workspace")
_STANDARD_INPUT: Final = "-"


def add_sources(parser: ArgumentParser, *, format: str = "--format") -> None:
    parser.add_argument(
        "sources", nargs="*", metavar="SOURCE", help="a file or folder of runs; - is the standard input"
    )
    parser.add_argument("--data", action="append", default=[], choices=DATA_SETS, help="a packaged data set")
    parser.add_argument(format, dest="source_format", help="the format of the sources; recognised by default")


def add_on_unknown(parser: ArgumentParser) -> None:
    """Add the option for rules that name a tool or an argument missing from every run."""
    parser.add_argument(
        "--on-unknown",
        choices=("error", "warn"),
        default="warn",
        help="refuse, or only report, a rule with a tool or argument that no run has (warn)",
    )


@contextmanager
def noted_targets(output: Output) -> Iterator[None]:
    """Write warnings about such rules as notes."""
    from noetic_nb.steering._evaluation.rule_reading import UnknownTarget

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnknownTarget)
        yield
    for warning in caught:
        if isinstance(warning.message, UnknownTarget):
            output.note(str(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def runs_of(
    given: Namespace, output: Output, *, only: str | None = None, one: bool = False, keeps: bool = False
) -> tuple[list[Run], list[dict[str, str | None]]]:
    """Return the named runs, and the unreadable records, each with its path and error.

    `only` is the id of one of the runs, or its index, negative from the end; `one` requires exactly one run; `keeps`
    defines whether an interrupt keeps the runs read so far. Raises `NoeticConfigError` ``NO_RUNS``, ``UNKNOWN_RUN``,
    ``SEVERAL_RUNS`` or ``UNKNOWN_FORMAT``.
    """
    from noetic_nb.interop import Failed, import_runs
    from noetic_nb.lab import datasets

    runs: list[Run] = []
    failed: list[dict[str, str | None]] = []
    for source in given.sources:
        content = sys.stdin.buffer.read() if source == _STANDARD_INPUT else source
        try:
            for found in import_runs(content, format=given.source_format):
                if isinstance(found, Failed):
                    failed.append({"path": found.path or source, "error": str(found.error)})
                    output.note(f"not read: {found.error}")
                else:
                    runs.append(found)
        except Interrupted as cut:
            if not keeps:
                raise
            failed.append({"path": source, "error": str(cut)})
            output.note(f"not read: {cut}")
            break
    else:
        for name in given.data:
            kind, _, suite = name.partition(":")
            runs += datasets.agentdojo(suite) if suite else getattr(datasets, kind)()
    if not runs:
        hint = "Name a file or folder, - for the standard input, or --data airline."
        what = (
            "No run was named."
            if not (given.sources or failed)
            else "None of the sources holds a run that can be read."
        )
        raise NoeticConfigError("NO_RUNS", what, given=list(given.sources), hint=hint)
    if only is not None:
        runs = [_named(runs, only)]
    elif one and len(runs) > 1:
        hint = "Pick one: --run 0 is the first, --run ID the one of that id."
        raise NoeticConfigError("SEVERAL_RUNS", f"The sources hold {len(runs)} runs.", hint=hint)
    return runs, failed


def _named(runs: list[Run], name: str) -> Run:
    for run in runs:
        if run.run_id == name:
            return run
    if name.removeprefix("-").isdecimal() and -len(runs) <= int(name) < len(runs):
        return runs[int(name)]
    hint = f"There are {len(runs)}, counted from 0."
    raise NoeticConfigError("UNKNOWN_RUN", "There is no such run.", given=name, hint=hint)
