"""Commands about runs: ``import``, ``export``, ``report`` and ``view``, and ``grade`` for a class.

Texts of a run appear on pages and in file names: neither may run a script or point elsewhere.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from noetic_nb._core.atomic_write import write_whole
from noetic_nb._core.long_work import Interrupted
from noetic_nb.cli._command import FINDINGS, FINE, INTERRUPTED, Command, Output, add_sources, runs_of
from noetic_nb.errors import NoeticConfigError
from noetic_nb.markup import escape, html_page

if TYPE_CHECKING:
    from noetic_nb.runs import Run


def _add_grade(parser: ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="a folder with one notebook for each submission")


def _run_grade(given: Namespace, output: Output) -> int:
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
    "Run the notebooks of a class again and check their answers. This runs their code: use a container for untrusted work.",
    "handed-in",
    "0: every notebook ran; 1: one could not be read or run to its end.",
    _add_grade,
    _run_grade,
)


_IMPORT_COLUMNS = ("run_id", "turns", "model_calls", "tool_calls", "outcome", "model", "source", "unmapped")


def _import_arguments(parser: ArgumentParser) -> None:
    add_sources(parser)
    parser.add_argument("-o", "--output", type=Path, help="a folder; each run becomes a .jsonl.gz file in it")


def run_facts(run: Run) -> dict[str, Any]:
    from noetic_nb.runs._events.selected import model_calls, tool_calls

    meta = run.meta
    return {
        "run_id": run.run_id,
        "turns": len(run.turns),
        "model_calls": len(model_calls(run)),
        "tool_calls": len(tool_calls(run)),
        "outcome": meta.get("outcome"),
        "model": meta.get("model"),
        "source": meta.get("source"),
        "unmapped": len(meta.get("unmapped") or ()),
    }


def outcome_word(outcome: Any) -> Any:
    """Return a label as a word; None for an unknown one, and any other value unchanged."""
    return {True: "good", False: "failed"}[outcome] if isinstance(outcome, bool) else outcome


def file_names(runs: list[Run], suffix: str) -> list[str]:
    """Return a file name for each run: its index distinguishes equal ids, and of the id only plain characters are kept."""
    width = len(str(len(runs) - 1))
    kept = ["".join([each if each.isascii() and each.isalnum() else "-" for each in run.run_id])[:60] for run in runs]
    return [f"{at:0{width}}-{name}{suffix}" for at, name in enumerate(kept)]


def made_folder(path: Path) -> None:
    """Create the folder of an output; raises `NoeticConfigError` ``CANNOT_WRITE``."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"The folder cannot be made: {error.strerror or error}."
        raise NoeticConfigError("CANNOT_WRITE", what, given=str(path), hint="Name another one.") from error


def _run_import(given: Namespace, output: Output) -> int:
    runs, unread = runs_of(given, output, keeps=True)
    facts = [run_facts(run) for run in runs]
    saved: list[str] = []
    if given.output is not None:
        made_folder(given.output)
        names = file_names(runs, ".jsonl.gz")
        saved = [str(run.save(given.output / name)) for run, name in zip(runs, names, strict=True)]
    shown = [{**row, "outcome": outcome_word(row["outcome"])} for row in facts]
    output.table(_IMPORT_COLUMNS, [[row[name] for name in _IMPORT_COLUMNS] for row in shown])
    if saved:
        output.text(f"{len(saved)} runs saved in {given.output}")
    output.answer({"runs": facts, "unread": unread, "saved": saved})
    return FINDINGS if unread else FINE


IMPORT = Command(
    "import",
    "Read recordings of any agent, list them, and keep them as run files.",
    "--data airline",
    "0: everything was read; 1: some records could not be read.",
    _import_arguments,
    _run_import,
)


_EXPORT_FORMATS: Final = ("atif", "openai", "openai-responses", "anthropic")


def _export_arguments(parser: ArgumentParser) -> None:
    add_sources(parser, format="--source-format")
    parser.add_argument("--format", choices=_EXPORT_FORMATS, default="atif", help="the format to write (atif)")
    parser.add_argument("-o", "--output", type=Path, help="a folder; each thread of a run becomes a .json file in it")


def _exported(run: Run, thread_id: str, format: str) -> Any:
    return run.to_atif(thread_id) if format == "atif" else run.to_messages(format, thread_id=thread_id)


def _run_export(given: Namespace, output: Output) -> int:
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
    "0: everything was written; 1: some records could not be read.",
    _export_arguments,
    _run_export,
)


_REPORT_FACTS: Final = _IMPORT_COLUMNS[1:]
# The colours of a view without a surrounding theme.
_SHEET: Final = """
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 1080px; padding: 16px; font: 15px/1.5 system-ui, sans-serif; color: #1f2328; background: #fff; }
h1 { font-size: 22px; } h2 { font-size: 18px; border-top: 1px solid #8888; padding-top: 12px; }
h1, h2 { overflow-wrap: anywhere; } table.runs :is(td, th) { white-space: nowrap; }
.facts { overflow-x: auto; } table.runs { border-collapse: collapse; font-size: 13px; }
table.runs :is(td, th) { padding: 3px 10px 3px 0; text-align: left; border-bottom: 1px solid #8886; }
table.runs .number { text-align: right; font-variant-numeric: tabular-nums; }
a { color: #0072B2; } section { margin: 0 0 20px; }
@media (prefers-color-scheme: dark) { body { color: #e8e8e8; background: #121212; } a { color: #56B4E9; } }
"""


def _most(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"{text!r} is not a number of runs: pass a whole number of at least 1")
    return int(text)


def _report_arguments(parser: ArgumentParser) -> None:
    add_sources(parser)
    parser.add_argument("-o", "--output", type=Path, default=Path("report.html"), help="the file (report.html)")
    parser.add_argument("--run", dest="only", metavar="RUN", help="only this run: its id, or its position from 0")
    parser.add_argument("--most", type=_most, default=10, metavar="N", help="show the views of this many runs (10)")


def _word(value: Any) -> str:
    if value is None:
        return "&ndash;"
    return f"{value:,}" if isinstance(value, int) else escape(value)


def _row(at: int, run: Run, shown: bool) -> str:
    facts = run_facts(run)
    facts["outcome"] = outcome_word(facts["outcome"])
    name = escape(run.run_id)
    first = f'<a href="#run-{at}">{name}</a>' if shown else name
    cells = [
        f"<td{' class=number' if isinstance(facts[key], int) else ''}>{_word(facts[key])}</td>" for key in _REPORT_FACTS
    ]
    return f"<tr><td>{first}</td>{''.join(cells)}</tr>"


def _section(at: int, run: Run, heading: str) -> str:
    from noetic_nb.widgets import Workbench

    with Workbench(run) as bench:
        return f'<article id="run-{at}">{heading}<section>{bench.to_html()}</section></article>'


def page(runs: list[Run], most: int) -> str:
    """Return the report as HTML: a table of all runs, and every view of the first ones."""
    shown = runs[:most]
    head = "".join([f"<th scope=col>{escape(name.replace('_', ' '))}</th>" for name in ("run", *_REPORT_FACTS)])
    rows = "".join([_row(at, run, at < most) for at, run in enumerate(runs)])
    left = len(runs) - len(shown)
    note = f"<p>The views of the first {len(shown)} are shown; {left} more are listed.</p>" if left else ""
    title = runs[0].run_id if len(runs) == 1 else f"{len(runs)} runs"
    # A single run has its name in the page heading.
    headings = [f"<h2>{escape(run.run_id)}</h2>" for run in shown] if len(runs) > 1 else [""]
    sections = [_section(at, run, heading) for at, (run, heading) in enumerate(zip(shown, headings, strict=True))]
    table = f'<table class="runs"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    body = f'<h1>{escape(title)}</h1>{note}<div class="facts">{table}</div>{"".join(sections)}'
    return html_page(title, body, _SHEET)


def _run_report(given: Namespace, output: Output) -> int:
    runs, unread = runs_of(given, output, only=given.only)
    write_whole(given.output, page(runs, given.most))
    shown = min(len(runs), given.most)
    output.text(f"{given.output}: {shown} of {len(runs)} runs with their views")
    output.answer({"path": str(given.output), "runs": len(runs), "shown": shown, "unread": unread})
    return FINDINGS if unread else FINE


REPORT = Command(
    "report",
    "Write every view of some runs as one HTML file that needs no network.",
    "--data airline --run 0",
    "0: the file was written; 1: it was written, but some records could not be read.",
    _report_arguments,
    _run_report,
)


def _view_arguments(parser: ArgumentParser) -> None:
    add_sources(parser)
    parser.add_argument("--run", dest="only", metavar="RUN", help="the run to open: its id, or its position from 0")
    parser.add_argument("-o", "--output", type=Path, default=Path("run.ipynb"), help="the notebook (run.ipynb)")
    parser.add_argument("--no-open", action="store_true", help="only write the notebook and the run beside it")


def notebook(run_file: str) -> dict[str, Any]:
    """Return a notebook as JSON data that shows the run in a file beside it."""
    cells = [
        f"import noetic_nb as nn\nfrom noetic_nb.widgets import Workbench\n\nrun = nn.load_run({run_file!r})\nrun",
        "bench = Workbench(run)\nbench",
    ]
    return {
        "cells": [
            {
                "cell_type": "code",
                "execution_count": None,
                "id": f"cell-{at}",
                "metadata": {},
                "outputs": [],
                "source": text,
            }
            for at, text in enumerate(cells)
        ],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _run_view(given: Namespace, output: Output) -> int:
    if not given.no_open and find_spec("jupyterlab") is None:
        hint = "pip install 'noetic_nb[lab]', or --no-open to write the notebook only."
        raise NoeticConfigError("MISSING_PACKAGE", "JupyterLab is not installed.", hint=hint)
    (run,), _ = runs_of(given, output, only=given.only, one=True)
    run_file = given.output.with_suffix(".jsonl.gz")
    if given.output.exists():
        hint = "Choose another name with --output."
        raise NoeticConfigError("FILE_EXISTS", "The notebook exists already.", given=str(given.output), hint=hint)
    run.save(run_file)
    write_whole(given.output, json.dumps(notebook(run_file.name), indent=1) + "\n")
    output.text(f"{given.output}: shows {run_file.name}; run its cells")
    output.answer({"notebook": str(given.output), "run": str(run_file)})
    # JupyterLab reports its own problems, and ends when the user ends it.
    return FINE if given.no_open else subprocess.call([sys.executable, "-m", "jupyterlab", str(given.output)])


VIEW = Command(
    "view",
    "Open the workbench of a run in JupyterLab.",
    "--data airline --run 0 --no-open",
    "0: the notebook was written; otherwise the exit code of JupyterLab.",
    _view_arguments,
    _run_view,
)
