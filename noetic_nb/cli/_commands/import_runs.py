"""``noetic-nb import``: read runs of any format, list them, and keep them as files of ours."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noetic_nb.cli._command import FINDINGS, FINE, Command, Output
from noetic_nb.cli._run_arguments import add_sources, runs_of
from noetic_nb.errors import NoeticConfigError

if TYPE_CHECKING:
    from noetic_nb.runs import Run

_COLUMNS = ("run_id", "turns", "model_calls", "tool_calls", "outcome", "model", "source", "unmapped")


def _add_arguments(parser: ArgumentParser) -> None:
    add_sources(parser)
    parser.add_argument("-o", "--output", type=Path, help="a folder; each run becomes a .jsonl.gz file in it")


def run_facts(run: Run) -> dict[str, Any]:
    """Return the facts about one run for a list of runs."""
    from noetic_nb.events import ModelCalled, ToolCalled

    meta = run.meta
    return {
        "run_id": run.run_id,
        "turns": len(run.turns),
        "model_calls": len(run.select(ModelCalled)),
        "tool_calls": len(run.select(ToolCalled)),
        "outcome": meta.get("outcome"),
        "model": meta.get("model"),
        "source": meta.get("source"),
        "unmapped": len(meta.get("unmapped") or ()),
    }


def outcome_word(outcome: Any) -> Any:
    """Return a label in a word; None for one that is not known, and any other value as it is."""
    return {True: "good", False: "failed"}[outcome] if isinstance(outcome, bool) else outcome


def file_names(runs: list[Run], suffix: str) -> list[str]:
    """Return a name for each run: its place keeps equal ids apart, and its id is data, so only plain characters stay."""
    width = len(str(len(runs) - 1))
    kept = ["".join([each if each.isascii() and each.isalnum() else "-" for each in run.run_id])[:60] for run in runs]
    return [f"{at:0{width}}-{name}{suffix}" for at, name in enumerate(kept)]


def made_folder(path: Path) -> None:
    """Make the folder of an output; raises `NoeticConfigError` ``CANNOT_WRITE``."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NoeticConfigError(
            "CANNOT_WRITE",
            f"The folder cannot be made: {error.strerror or error}.",
            given=str(path),
            hint="Name another one.",
        ) from error


def _run(given: Namespace, output: Output) -> int:
    runs, unread = runs_of(given, output, keeps=True)
    facts = [run_facts(run) for run in runs]
    saved: list[str] = []
    if given.output is not None:
        made_folder(given.output)
        names = file_names(runs, ".jsonl.gz")
        saved = [str(run.save(given.output / name)) for run, name in zip(runs, names, strict=True)]
    shown = [{**row, "outcome": outcome_word(row["outcome"])} for row in facts]
    output.table(_COLUMNS, [[row[name] for name in _COLUMNS] for row in shown])
    if saved:
        output.text(f"{len(saved)} runs saved in {given.output}")
    output.answer({"runs": facts, "unread": unread, "saved": saved})
    return FINDINGS if unread else FINE


IMPORT = Command(
    "import",
    "Read recordings of any agent, list them, and keep them as run files.",
    "--data airline",
    "0: all was read; 1: some records could not be read.",
    _add_arguments,
    _run,
)
