"""``noetic-nb grade``: a table of a class."""

from __future__ import annotations

import warnings
from argparse import ArgumentParser, Namespace

from noetic_nb._core.long_work import Interrupted
from noetic_nb.cli._command import FINDINGS, FINE, INTERRUPTED, Command, Output


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="with one notebook for each submission")


def _run(given: Namespace, output: Output) -> int:
    from noetic_nb.lessons import grade

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Interrupted)
        table = grade(given.folder)
    stopped = table.attrs["stopped"]
    if stopped:
        output.note(f"noetic-nb grade: {stopped}")
    table = table.reset_index()
    output.table(list(table.columns), table.to_numpy().tolist())
    output.answer({"submissions": table.to_dict("records")})
    return INTERRUPTED if stopped else FINDINGS if table.error.any() else FINE


GRADE = Command(
    "grade",
    "Run the notebooks of a class again and check their answers. Runs their code: use a container for the work of strangers.",
    "handed-in",
    "0: every notebook ran; 1: one could not be read or run to its end.",
    _add_arguments,
    _run,
)
