"""Commands about rules: ``lint``, ``backtest`` and ``evaluate``, and ``check`` for files of any kind."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
import warnings
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from noetic_nb._core.atomic_write import regular_file
from noetic_nb.cli._command import FINDINGS, FINE, Command, Output, add_on_unknown, add_sources, noted_targets, runs_of
from noetic_nb.errors import NoeticConfigError, NoeticError

if TYPE_CHECKING:
    from noetic_nb.lab._statistics.intervals import Count
    from noetic_nb.runs import Run

_HINT: Final = "For example: --agent my_agent:make, where make() returns an AgentHarness or a RuleBook."
# Rows of `compare` about an agent's actions; the other rows are counts that follow from them.
_DONE: Final = ("tool call", "tool result", "reply", "outcome")


@dataclass(slots=True)
class Checked:
    """The result for one run: why it got worse, and its differences."""

    run_id: str
    path: str
    worse: list[str] = field(default_factory=list)
    differences: list[dict[str, Any]] = field(default_factory=list)


def named_object(name: str) -> Any:
    """Return the object at ``module:name``, also from the working directory. Raises `NoeticConfigError` ``INVALID_AGENT``."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise NoeticConfigError("INVALID_AGENT", "Write it as module:name.", given=name, hint=_HINT)
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise NoeticConfigError("INVALID_AGENT", f"It cannot be imported: {error}.", given=name, hint=_HINT) from error
    return found


def _made(make: Any, run: Run) -> Any:
    return make(run) if inspect.signature(make).parameters else make()


def checked_runs(name: str, *, agent: str | None, rules: str | None, outcome: str | None) -> Iterator[Checked]:
    """Yield the result of each run of the newest version of a set."""
    from noetic_nb.interop import Failed
    from noetic_nb.interop._collection.member_files import set_members
    from noetic_nb.runtime import AgentHarness
    from noetic_nb.steering import RuleBook, load_rules

    make = load_rules(rules) if rules is not None else named_object(str(agent))
    grade = None if outcome is None else named_object(outcome)
    for row, run in set_members(name):
        checked = Checked(str(row.get("run_id")), row["path"])
        if isinstance(run, Failed):
            checked.worse.append(str(run.error))
        else:
            made = make if isinstance(make, RuleBook) or not callable(make) else _made(make, run)
            if isinstance(made, RuleBook):
                _judge(checked, run, row.get("outcome"), made)
            elif isinstance(made, AgentHarness):
                _repeat(checked, run, row.get("outcome"), made, grade)
            else:
                raise NoeticConfigError("INVALID_AGENT", "It is neither an agent nor rules.", given=made, hint=_HINT)
        yield checked


def _judge(checked: Checked, run: Run, outcome: object, rules: Any) -> None:
    """Compare the rules' decisions with the outcome: a good run must pass, a failed one must be stopped as before."""
    from noetic_nb.lab import backtest
    from noetic_nb.runs._events.selected import decisions
    from noetic_nb.steering._evaluation.rule_reading import UnknownTarget

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownTarget)  # a single run does not use all tools
        table = backtest((), run, candidate=rules, on_unknown="warn")
    for line in table[table["change"] != "unchanged"].to_dict("records"):
        why = f"{line['hook']} {line['tool_name'] or ''}: {', '.join(line['rules_after'])}"
        checked.differences.append({"turn": int(line["turn"]), "what": str(line["change"]), "recorded": "", "now": why})
    is_denied = any(line["what"] == "newly_denied" for line in checked.differences)
    was_denied = any(event.action == "deny" for _, event in decisions(run))
    if is_denied and outcome is not False and not was_denied:
        checked.worse.append("the rules deny a call of a run that did not fail")
    if was_denied and outcome is False and not is_denied:
        checked.worse.append("the rules no longer deny a call of a failed run")
    checked.worse += [f"a rule failed: {error}" for error in sorted({str(each) for each in table["error"] if each})]


def _repeat(checked: Checked, run: Run, outcome: object, harness: Any, grade: Callable[[Run], Any] | None) -> None:
    """Send the user's messages to an agent, and compare its actions."""
    import noetic_nb as nn

    again = nn.record(harness)
    error = _said(run, harness)
    for turn, what, recorded, now in nn.compare(run, again).differences:
        if what in _DONE:
            checked.differences.append({"turn": turn, "what": what, "recorded": _text(recorded), "now": _text(now)})
    before, after = ([each.outcome for each in one.turns].count("success") for one in (run, again))
    if error is not None:
        checked.worse.append(f"a turn failed: {error}")
    elif after < before:
        checked.worse.append(f"{after} of {before} turns succeed")
    elif grade is not None and outcome is not False and grade(again) is False:
        checked.worse.append("its outcome is bad")
    elif grade is None and outcome is not False and _calls(run) != _calls(again):
        checked.worse.append("it calls other tools, or with other arguments")


def _said(run: Run, harness: Any) -> str | None:
    """Run the turns of a run; returns the error of the first that fails, after which its thread stops."""
    import noetic_nb as nn

    failure = None
    over: set[str] = set()
    for turn in run.turns:
        if turn.where.depth == 0 and turn.where.thread_id not in over:
            try:
                nn.run_sync(harness.execute(turn.query, thread_id=turn.where.thread_id))
            except Exception as error:  # any exception of the agent is its result
                failure = failure or f"{type(error).__name__}: {error}"
                over.add(turn.where.thread_id)
    return failure


def _calls(run: Run) -> list[tuple[str, Any]]:
    return [(call.name, call.args) for turn in run.turns for call in turn.tool_calls]


def _text(value: Any) -> str:
    from noetic_nb.runs._plain_text import plain_line

    return "" if value is None else plain_line(value, 200)


def _lint_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("rules", metavar="RULES", help="a rule file, .yaml or .json")
    add_sources(parser)
    parser.add_argument(
        "--tools", metavar="FILE", help="JSON: the tools of the agent, as {name: JSON Schema} or [name]"
    )


def _lint_tools(path: str | None) -> Any:
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
    raise NoeticConfigError("INVALID_TOOLS", "Tools must be a mapping or a list of names.", given=path, hint=hint)


def _run_lint(given: Namespace, output: Output) -> int:
    from noetic_nb.lab import lint
    from noetic_nb.lab._rule_lint import NOTES
    from noetic_nb.steering import load_rules

    rules = load_rules(given.rules)
    runs, unread = runs_of(given, output) if given.sources or given.data else ([], [])
    found = lint(rules, runs, tools=_lint_tools(given.tools))
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
    # Parts that no rule reads may be intended: they fail no pipeline.
    return FINDINGS if unread or any(each.code not in NOTES for each in found) else FINE


LINT = Command(
    "lint",
    "Check a rule file for rules that never fire, misspelt names, overlapping rules, and arguments that no rule reads.",
    "rules.yaml --data airline",
    "0: no findings, except overlaps and arguments that no rule reads; 1: there are other findings.",
    _lint_arguments,
    _run_lint,
)


_BACKTEST_COLUMNS = ("run_id", "turn", "seq", "hook", "tool_name", "before", "after", "change", "guidance", "error")
_MOST_LINES = 50


def _backtest_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("rules", metavar="RULES", help="the candidate: a rule file, .yaml or .json")
    add_sources(parser)
    add_on_unknown(parser)
    parser.add_argument("--against", metavar="RULES", help="the rules in force; none by default")
    parser.add_argument(
        "--max-changes", type=int, default=0, metavar="N", help="the largest number of decisions that may change (0)"
    )


def _run_backtest(given: Namespace, output: Output) -> int:
    from noetic_nb.lab import backtest
    from noetic_nb.steering import load_rules

    candidate = load_rules(given.rules)
    in_force: Any = () if given.against is None else load_rules(given.against)
    runs, unread = runs_of(given, output)
    with noted_targets(output):
        table = backtest(in_force, runs, candidate=candidate, on_unknown=given.on_unknown)
    summary = {name: int(number) for name, number in table.attrs["summary"].items()}
    changed = table[table["change"] != "unchanged"]
    # A frame has NaN for missing values.
    rows = (
        changed[list(_BACKTEST_COLUMNS)]
        .astype(object)
        .where(changed[list(_BACKTEST_COLUMNS)].notna(), None)
        .values.tolist()
    )
    if rows:
        output.table(_BACKTEST_COLUMNS, rows[:_MOST_LINES])
    if len(rows) > _MOST_LINES:
        output.text(f"... and {len(rows) - _MOST_LINES} more; --json has all of them")
    output.text(
        f"{len(runs)} runs, {len(table)} decisions: " + ", ".join([f"{n} {name}" for name, n in summary.items()])
    )
    skipped = list(table.attrs.get("skipped") or ())
    if skipped:
        output.note(f"not evaluated, because there is no judge: {', '.join(map(str, skipped))}")
    output.answer(
        {
            "runs": len(runs),
            "decisions": len(table),
            "summary": summary,
            "changes": [dict(zip(_BACKTEST_COLUMNS, row, strict=True)) for row in rows],
            "skipped": skipped,
            "unread": unread,
        }
    )
    return FINDINGS if unread or len(rows) > given.max_changes else FINE


BACKTEST = Command(
    "backtest",
    "Show which recorded decisions other rules would have changed.",
    "rules.yaml --data airline",
    "0: no more changes than --max-changes; 1: more.",
    _backtest_arguments,
    _run_backtest,
)


_LINES: Final = ("caught", "failed", "blocked", "false_rejections", "attacked_solved", "attacker_tasks", "unlabelled")


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise ArgumentTypeError(f"{text!r} is not a rate: pass a number from 0 to 1")
    return rate


def _evaluate_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("rules", metavar="RULES", help="a rule file, .yaml or .json")
    add_sources(parser)
    add_on_unknown(parser)
    parser.add_argument(
        "--outcome",
        default="outcome",
        metavar="KEY",
        help="the label, or key of a run's meta, that holds its outcome (outcome)",
    )
    parser.add_argument(
        "--by",
        choices=("task", "run"),
        default="task",
        help="the unit of the intervals: tasks, or single runs (task)",
    )
    parser.add_argument(
        "--min-caught", type=_rate, metavar="RATE", help="lowest share of attacks that must be caught, from 0 to 1"
    )
    parser.add_argument(
        "--max-blocked",
        type=_rate,
        metavar="RATE",
        help="highest share of solved runs that may be stopped, from 0 to 1",
    )
    parser.add_argument(
        "--max-false-rejections",
        type=_rate,
        metavar="RATE",
        help="highest share of successful calls that may be rejected, from 0 to 1",
    )


def _missed(given: Namespace, evaluation: Any) -> list[str]:
    """Return the limits that are not met; an unknown rate meets none."""
    limits = (
        ("caught", given.min_caught, "at least"),
        ("blocked", given.max_blocked, "at most"),
        ("false_rejections", given.max_false_rejections, "at most"),
    )
    missed = []
    for name, limit, words in limits:
        if limit is None:
            continue
        count: Count = getattr(evaluation, name)
        if not count.of:
            missed.append(f"{name} is not known, as there is nothing to count; it should be {words} {limit:g}")
        elif count.rate < limit if words == "at least" else count.rate > limit:
            missed.append(f"{name} is {count.rate:.3g}; it should be {words} {limit:g}")
    return missed


def _run_evaluate(given: Namespace, output: Output) -> int:
    from noetic_nb.lab import evaluate
    from noetic_nb.steering import load_rules

    rules = load_rules(given.rules)
    runs, unread = runs_of(given, output)
    with noted_targets(output):
        evaluation = evaluate(rules, runs, outcome=given.outcome, by=given.by, on_unknown=given.on_unknown)
    missed = _missed(given, evaluation)
    output.text(repr(evaluation), *[f"limit not kept: {text}" for text in missed])
    counts = {name: getattr(evaluation, name) for name in _LINES}
    output.answer(
        {
            "runs": len(runs),
            **{name: each._asdict() for name, each in counts.items()},
            "errors": list(evaluation.errors),
            "skipped": list(evaluation.skipped),
            "stopped": list(evaluation.stopped()),
            "missed": missed,
            "unread": unread,
        }
    )
    return FINDINGS if missed or unread or evaluation.errors else FINE


EVALUATE = Command(
    "evaluate",
    "Score rules against labelled runs: attacks caught, solved runs stopped, calls rejected without need.",
    "rules.yaml --data agentdojo:banking --max-blocked 0.1",
    "0: every limit is met; 1: one is not, or a rule raised.",
    _evaluate_arguments,
    _run_evaluate,
)


def _check_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a rule file, a configuration as JSON, recorded runs, or a frozen set"
    )
    made = parser.add_mutually_exclusive_group()
    made.add_argument(
        "--agent", metavar="MODULE:NAME", help="a function that makes an agent or rules, to run against a set"
    )
    made.add_argument("--rules", metavar="RULES", help="a rule file to run against a set")
    parser.add_argument(
        "--outcome", metavar="MODULE:NAME", help="a function of a new run that returns True if it went well, else False"
    )
    parser.add_argument("--strict", action="store_true", help="treat warnings as errors")


def _finding(path: str, kind: str, level: str, text: str) -> dict[str, str]:
    return {"path": path, "kind": kind, "level": level, "text": text}


def _data(path: str) -> Any:
    """Return a file as JSON data, or None if it is not JSON."""
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


def _check(path: str) -> list[dict[str, str]]:
    try:
        if path.lower().endswith((".yaml", ".yml")):
            return _of_rules(path)
        data = _data(path)
        if isinstance(data, dict) and "rules" in data and "version" in data:
            return _of_rules(path)
        if isinstance(data, dict) and "name" in data and "step" in data:
            from noetic_nb.models import ScriptedModel
            from noetic_nb.runtime import AgentHarness, load_config

            harness = AgentHarness(load_config(data), model=ScriptedModel([]))
            return [_finding(path, "config", each.level, str(each)) for each in harness.check()]
        from noetic_nb.interop import Failed, import_runs

        found = list(import_runs(path))
        if not found:
            return [_finding(path, "runs", "error", "There is no run in it.")]
        return [_finding(path, "runs", "error", str(each.error)) for each in found if isinstance(each, Failed)]
    except (NoeticConfigError, NoeticError) as error:
        return [_finding(path, "file", "error", str(error))]


def _run_set_check(given: Namespace, output: Output) -> int:
    findings: list[dict[str, Any]] = []
    for name in given.files:
        runs = list(checked_runs(name, agent=given.agent, rules=given.rules, outcome=given.outcome))
        for each in runs:
            for why in each.worse:
                findings.append(
                    {**_finding(name, "set", "error", why), "run": each.run_id, "differences": each.differences}
                )
                output.text(f"{each.path} ({each.run_id}): {why}")
            if each.worse and each.differences:
                output.table(
                    list(each.differences[0]), [list(line.values()) for line in each.differences[:_MOST_LINES]]
                )
        output.text(f"{name}: {len(runs)} runs, {sum(bool(each.worse) for each in runs)} got worse")
    output.answer({"files": list(given.files), "findings": findings})
    return FINDINGS if findings else FINE


def _run_check(given: Namespace, output: Output) -> int:
    if given.agent is not None or given.rules is not None:
        return _run_set_check(given, output)
    found = {path: _check(path) for path in given.files}
    for path, findings in found.items():
        output.text(*[f"{path}: {each['level']}: {each['text']}" for each in findings] or [f"{path}: fine"])
    every = [each for findings in found.values() for each in findings]
    output.answer({"files": list(found), "findings": every})
    counting = ("error", "warning") if given.strict else ("error",)
    return FINDINGS if any(each["level"] in counting for each in every) else FINE


CHECK = Command(
    "check",
    "Check that run, rule and configuration files are valid, or that an agent does as well as in a set of runs.",
    "rules.yaml",
    "0: all files are valid, and no run of a set got worse; 1: otherwise, or with --strict if there are warnings.",
    _check_arguments,
    _run_check,
)
