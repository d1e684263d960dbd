"""The runs that a command is given: files, folders, the standard input, packaged data sets."""

from __future__ import annotations

import sys
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from noetic_nb._core.long_work import Interrupted
from noetic_nb.cli._command import Output
from noetic_nb.errors import NoeticConfigError

if TYPE_CHECKING:
    from noetic_nb.runs import Run

DATA_SETS: Final = ("airline", "retail", "telecom", "agentdojo:banking", "agentdojo:workspace")
_STANDARD_INPUT: Final = "-"


def add_sources(parser: ArgumentParser, *, format: str = "--format") -> None:
    """Add the arguments that name runs."""
    parser.add_argument(
        "sources", nargs="*", metavar="SOURCE", help="a file or folder of runs; - is the standard input"
    )
    parser.add_argument("--data", action="append", default=[], choices=DATA_SETS, help="a packaged data set")
    parser.add_argument(format, dest="source_format", help="what the sources are written in; recognised by default")


def add_on_unknown(parser: ArgumentParser) -> None:
    """Add the option for rules that name a tool or an argument that no run has."""
    parser.add_argument(
        "--on-unknown",
        choices=("error", "warn"),
        default="warn",
        help="what a rule means that names a tool or an argument that no run has (warn)",
    )


@contextmanager
def noted_targets(output: Output) -> Iterator[None]:
    """Write warnings about rules that name a tool or an argument that no run has as notes."""
    from noetic_nb.steering._evaluation.rule_targets import UnknownTarget

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnknownTarget)
        yield
    for warning in caught:
        if isinstance(warning.message, UnknownTarget):
            output.note(str(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def runs_of(
    given: Namespace,
    output: Output,
    *,
    only: str | None = None,
    one: bool = False,
    keeps: bool = False,
) -> tuple[list[Run], list[dict[str, str | None]]]:
    """Return the runs that were named, and the records that cannot be read, each with its path and error.

    `only` is the id of one of the runs, or its place from 0, negative from the end; with `one` there must be one run and no
    more; `keeps` is whether an interrupt leaves the runs that were read by then. Raises `NoeticConfigError` ``NO_RUNS``,
    ``UNKNOWN_RUN``, ``SEVERAL_RUNS`` or ``UNKNOWN_FORMAT``.
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
