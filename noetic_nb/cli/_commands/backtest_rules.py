"""``noetic-nb backtest``: the changes that other rules would make to recorded runs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from noetic_nb.cli._command import FINDINGS, FINE, Command, Output
from noetic_nb.cli._run_arguments import add_on_unknown, add_sources, noted_targets, runs_of

_COLUMNS = ("run_id", "turn", "seq", "hook", "tool_name", "before", "after", "change", "guidance", "error")
_MOST_LINES = 50


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("rules", metavar="RULES", help="the candidate: a rule file, .yaml or .json")
    add_sources(parser)
    add_on_unknown(parser)
    parser.add_argument("--against", metavar="RULES", help="the rules in force; none by default")
    parser.add_argument("--max-changes", type=int, default=0, metavar="N", help="how many decisions may change (0)")


def _run(given: Namespace, output: Output) -> int:
    from noetic_nb.lab import backtest
    from noetic_nb.steering import load_rules

    candidate = load_rules(given.rules)
    in_force: Any = () if given.against is None else load_rules(given.against)
    runs, unread = runs_of(given, output)
    with noted_targets(output):
        table = backtest(in_force, runs, candidate=candidate, on_unknown=given.on_unknown)
    summary = {name: int(number) for name, number in table.attrs["summary"].items()}
    changed = table[table["change"] != "unchanged"]
    # A frame has NaN where it has nothing.
    rows = changed[list(_COLUMNS)].astype(object).where(changed[list(_COLUMNS)].notna(), None).values.tolist()
    if rows:
        output.table(_COLUMNS, rows[:_MOST_LINES])
    if len(rows) > _MOST_LINES:
        output.text(f"... and {len(rows) - _MOST_LINES} more; --json has all of them")
    output.text(
        f"{len(runs)} runs, {len(table)} decisions: " + ", ".join([f"{n} {name}" for name, n in summary.items()])
    )
    skipped = list(table.attrs.get("skipped") or ())
    if skipped:
        output.note(f"not evaluated, as there is no judge: {', '.join(map(str, skipped))}")
    output.answer(
        {
            "runs": len(runs),
            "decisions": len(table),
            "summary": summary,
            "changes": [dict(zip(_COLUMNS, row, strict=True)) for row in rows],
            "skipped": skipped,
            "unread": unread,
        }
    )
    return FINDINGS if unread or len(rows) > given.max_changes else FINE


BACKTEST = Command(
    "backtest",
    "Say which recorded decisions other rules would have changed.",
    "rules.yaml --data airline",
    "0: no more changes than --max-changes; 1: more.",
    _add_arguments,
    _run,
)
