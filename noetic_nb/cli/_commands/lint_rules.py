"""``noetic-nb lint``: look a rule file over."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from typing import Any

from noetic_nb._core.atomic_write import regular_file
from noetic_nb.cli._command import FINDINGS, FINE, Command, Output
from noetic_nb.cli._run_arguments import add_sources, runs_of
from noetic_nb.errors import NoeticConfigError


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("rules", metavar="RULES", help="a rule file, .yaml or .json")
    add_sources(parser)
    parser.add_argument(
        "--tools", metavar="FILE", help="JSON: the tools of the agent, as {name: JSON Schema} or [name]"
    )


def _tools(path: str | None) -> Any:
    if path is None:
        return ()
    try:
        with regular_file(path) as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        what = f"The tools cannot be read: {error}."
        raise NoeticConfigError("INVALID_TOOLS", what, given=path, hint="Write them as {name: JSON Schema}.") from error
    if isinstance(found, dict) or (isinstance(found, list) and all(isinstance(name, str) for name in found)):
        return found
    hint = "Write them as {name: JSON Schema}."
    raise NoeticConfigError("INVALID_TOOLS", "Tools are a mapping or a list of names.", given=path, hint=hint)


def _run(given: Namespace, output: Output) -> int:
    from noetic_nb.lab import lint
    from noetic_nb.steering import load_rules

    rules = load_rules(given.rules)
    runs, unread = runs_of(given, output) if given.sources or given.data else ([], [])
    found = lint(rules, runs, tools=_tools(given.tools))
    output.text(*[str(finding) for finding in found])
    output.text(f"{len(rules)} rules, {len(runs)} runs: {len(found)} findings")
    output.answer(
        {
            "rules": len(rules),
            "runs": len(runs),
            "findings": [{"rule": each.rule_id, "code": each.code, "why": each.why, "fix": each.fix} for each in found],
            "unread": unread,
        }
    )
    return FINDINGS if found or unread else FINE


LINT = Command(
    "lint",
    "Look a rule file over: what never fires, what is misspelt, what two rules make of each other.",
    "rules.yaml --data airline",
    "0: nothing was found; 1: there are findings.",
    _add_arguments,
    _run,
)
