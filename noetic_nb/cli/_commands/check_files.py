"""``noetic-nb check``: whether files of runs, rules and configurations can be used."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from typing import Any

from noetic_nb._core.atomic_write import regular_file
from noetic_nb.cli._command import FINDINGS, FINE, Command, Output
from noetic_nb.errors import NoeticConfigError, NoeticError


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a rule file, a configuration as JSON, or recorded runs"
    )
    parser.add_argument("--strict", action="store_true", help="warnings count, too")


def _finding(path: str, kind: str, level: str, text: str) -> dict[str, str]:
    return {"path": path, "kind": kind, "level": level, "text": text}


def _data(path: str) -> Any:
    """Return a file as JSON data, None where it is none."""
    try:
        with regular_file(path) as file:
            return json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return None


def _of_rules(path: str) -> list[dict[str, str]]:
    from noetic_nb.lab import lint
    from noetic_nb.steering import load_rules

    try:
        return [_finding(path, "rules", "warning", str(each)) for each in lint(load_rules(path))]
    except NoeticConfigError as error:
        if error.code != "UNBOUND_RULE":
            raise
        # A Python rule needs its program, which a check does not run.
        return [_finding(path, "rules", "warning", str(error))]


def _of_config(path: str, data: Any) -> list[dict[str, str]]:
    from noetic_nb.models import ScriptedModel
    from noetic_nb.runtime import AgentHarness, load_config

    harness = AgentHarness(load_config(data), model=ScriptedModel([]))
    return [_finding(path, "config", each.level, str(each)) for each in harness.check()]


def _of_runs(path: str) -> list[dict[str, str]]:
    from noetic_nb.interop import Failed, import_runs

    found = list(import_runs(path))
    if not found:
        return [_finding(path, "runs", "error", "There is no run in it.")]
    return [_finding(path, "runs", "error", str(each.error)) for each in found if isinstance(each, Failed)]


def _check(path: str) -> list[dict[str, str]]:
    try:
        if path.lower().endswith((".yaml", ".yml")):
            return _of_rules(path)
        data = _data(path)
        if isinstance(data, dict) and "rules" in data and "version" in data:
            return _of_rules(path)
        if isinstance(data, dict) and "name" in data and "step" in data:
            return _of_config(path, data)
        return _of_runs(path)
    except (NoeticConfigError, NoeticError) as error:
        return [_finding(path, "file", "error", str(error))]


def _run(given: Namespace, output: Output) -> int:
    found = {path: _check(path) for path in given.files}
    for path, findings in found.items():
        output.text(*[f"{path}: {each['level']}: {each['text']}" for each in findings] or [f"{path}: fine"])
    every = [each for findings in found.values() for each in findings]
    output.answer({"files": list(found), "findings": every})
    counting = ("error", "warning") if given.strict else ("error",)
    return FINDINGS if any(each["level"] in counting for each in every) else FINE


CHECK = Command(
    "check",
    "Say whether files of runs, rules and configurations can be used.",
    "rules.yaml",
    "0: all can be used; 1: one cannot, or with --strict there are warnings.",
    _add_arguments,
    _run,
)
