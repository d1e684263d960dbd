"""``noetic-nb export``: write runs in the format of other tools."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from noetic_nb.cli._command import FINDINGS, FINE, Command, Output
from noetic_nb.cli._commands.import_runs import file_names, made_folder
from noetic_nb.cli._run_arguments import add_sources, runs_of

if TYPE_CHECKING:
    from noetic_nb.runs import Run

_FORMATS: Final = ("atif", "openai", "openai-responses", "anthropic")


def _add_arguments(parser: ArgumentParser) -> None:
    add_sources(parser, format="--source-format")
    parser.add_argument("--format", choices=_FORMATS, default="atif", help="the format to write (atif)")
    parser.add_argument("-o", "--output", type=Path, help="a folder; each thread of a run becomes a .json file in it")


def _exported(run: Run, thread_id: str, format: str) -> Any:
    return run.to_atif(thread_id) if format == "atif" else run.to_messages(format, thread_id=thread_id)


def _run(given: Namespace, output: Output) -> int:
    from noetic_nb._core.atomic_write import write_whole

    runs, unread = runs_of(given, output)
    exported = [(run, thread_id) for run in runs for thread_id in run.threads]
    saved: list[str] = []
    if given.output is not None:
        made_folder(given.output)
        names = file_names([run for run, _ in exported], ".json")
        for name, (run, thread_id) in zip(names, exported, strict=True):
            write_whole(given.output / name, json.dumps(_exported(run, thread_id, given.format), ensure_ascii=False))
            saved.append(str(given.output / name))
        output.text(f"{len(saved)} files written to {given.output}")
    else:
        for run, thread_id in exported:
            output.text(json.dumps(_exported(run, thread_id, given.format), ensure_ascii=True))
    output.answer({"runs": len(runs), "unread": unread, "saved": saved})
    return FINDINGS if unread else FINE


EXPORT = Command(
    "export",
    "Write recordings of any agent in the format of other tools: ATIF, or chat messages.",
    "--data telecom --format atif -o exported",
    "0: all was written; 1: some records could not be read.",
    _add_arguments,
    _run,
)
