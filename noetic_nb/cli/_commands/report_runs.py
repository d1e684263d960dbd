"""``noetic-nb report``: every view of some runs as one HTML file that needs no script and no network."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from noetic_nb._core.atomic_write import write_whole
from noetic_nb.cli._command import FINDINGS, FINE, Command, Output
from noetic_nb.cli._commands.import_runs import outcome_word, run_facts
from noetic_nb.cli._run_arguments import add_sources, runs_of
from noetic_nb.markup import escape, html_page

if TYPE_CHECKING:
    from noetic_nb.runs import Run

_FACTS: Final = ("turns", "model_calls", "tool_calls", "outcome", "model", "source", "unmapped")
# The colours are those of a view without a theme around it.
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
        raise ArgumentTypeError(f"{text!r} is no number of runs: a whole number from 1")
    return int(text)


def _add_arguments(parser: ArgumentParser) -> None:
    add_sources(parser)
    parser.add_argument("-o", "--output", type=Path, default=Path("report.html"), help="the file (report.html)")
    parser.add_argument("--run", dest="only", metavar="RUN", help="only this run: its id, or its place from 0")
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
    cells = [f"<td{' class=number' if isinstance(facts[key], int) else ''}>{_word(facts[key])}</td>" for key in _FACTS]
    return f"<tr><td>{first}</td>{''.join(cells)}</tr>"


def _section(at: int, run: Run, heading: str) -> str:
    from noetic_nb.widgets import Workbench

    with Workbench(run) as bench:
        return f'<article id="run-{at}">{heading}<section>{bench.to_html()}</section></article>'


def page(runs: list[Run], most: int) -> str:
    """Return the report as HTML: a table of all runs, and every view of the first ones."""
    shown = runs[:most]
    head = "".join([f"<th scope=col>{escape(name.replace('_', ' '))}</th>" for name in ("run", *_FACTS)])
    rows = "".join([_row(at, run, at < most) for at, run in enumerate(runs)])
    left = len(runs) - len(shown)
    note = f"<p>The views of the first {len(shown)} are shown; {left} more are listed.</p>" if left else ""
    title = runs[0].run_id if len(runs) == 1 else f"{len(runs)} runs"
    # The only run has its name at the head of the page.
    headings = [f"<h2>{escape(run.run_id)}</h2>" for run in shown] if len(runs) > 1 else [""]
    sections = [_section(at, run, heading) for at, (run, heading) in enumerate(zip(shown, headings, strict=True))]
    table = f'<table class="runs"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    body = f'<h1>{escape(title)}</h1>{note}<div class="facts">{table}</div>{"".join(sections)}'
    return html_page(title, body, _SHEET)


def _run(given: Namespace, output: Output) -> int:
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
    "0: the file is written; 1: it is, but some records could not be read.",
    _add_arguments,
    _run,
)
