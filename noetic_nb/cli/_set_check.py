"""A set of runs as a test: an agent says the same things again, or rules judge the calls, and what got worse is told."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from noetic_nb.errors import NoeticConfigError

if TYPE_CHECKING:
    from noetic_nb.runs import Run

_HINT: Final = "Such as --agent my_agent:make, where make() returns an AgentHarness or a RuleBook."
# Rows of `compare` that say what an agent did; the others are counts that follow from them.
_DONE: Final = ("tool call", "tool result", "reply", "outcome")


@dataclass(slots=True)
class Checked:
    """The result for one run: why it got worse, and its differences."""

    run_id: str
    path: str
    worse: list[str] = field(default_factory=list)
    differences: list[dict[str, Any]] = field(default_factory=list)


def named_object(name: str) -> Any:
    """Return the object of ``module:name``, from the working directory as well. Raises `NoeticConfigError` ``INVALID_AGENT``."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise NoeticConfigError("INVALID_AGENT", "It is written as module:name.", given=name, hint=_HINT)
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
    """Yield the result of each run of the newest version of a set.

    Raises `NoeticConfigError` ``INVALID_AGENT``, ``INVALID_SET``.
    """
    from noetic_nb.interop import Failed
    from noetic_nb.interop._collection.frozen_sets import set_members
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
                raise NoeticConfigError("INVALID_AGENT", "It makes no agent and no rules.", given=made, hint=_HINT)
        yield checked


def _judge(checked: Checked, run: Run, outcome: object, rules: Any) -> None:
    """Compare the decisions of rules with those of no rules: a good run is to pass, a failed one to be stopped as it was."""
    from noetic_nb.events import SteeringDecided
    from noetic_nb.lab import backtest
    from noetic_nb.steering._evaluation.rule_reading import UnknownTarget

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownTarget)  # one run has not all tools
        table = backtest((), run, candidate=rules, on_unknown="warn")
    for line in table[table["change"] != "unchanged"].to_dict("records"):
        why = f"{line['hook']} {line['tool_name'] or ''}: {', '.join(line['rules_after'])}"
        checked.differences.append({"turn": int(line["turn"]), "what": str(line["change"]), "recorded": "", "now": why})
    is_denied = any(line["what"] == "newly_denied" for line in checked.differences)
    was_denied = any(event.action == "deny" for event in run.select(SteeringDecided))
    if is_denied and outcome is not False and not was_denied:
        checked.worse.append("the rules deny a call of a run that did not fail")
    if was_denied and outcome is False and not is_denied:
        checked.worse.append("the rules let a failed run pass that was denied a call")
    checked.worse += [f"a rule failed: {error}" for error in sorted({str(each) for each in table["error"] if each})]


def _repeat(checked: Checked, run: Run, outcome: object, harness: Any, grade: Callable[[Run], Any] | None) -> None:
    """Say to an agent what the user said, and compare what it does."""
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
    """Run the turns of a run; returns the error of the first that fails, after which its thread goes no further."""
    import noetic_nb as nn

    failure = None
    over: set[str] = set()
    for turn in run.turns:
        if turn.where.depth == 0 and turn.where.thread_id not in over:
            try:
                nn.run_sync(harness.execute(turn.query, thread_id=turn.where.thread_id))
            except Exception as error:  # whatever an agent of others raises is its result
                failure = failure or f"{type(error).__name__}: {error}"
                over.add(turn.where.thread_id)
    return failure


def _calls(run: Run) -> list[tuple[str, Any]]:
    return [(call.name, call.args) for turn in run.turns for call in turn.tool_calls]


def _text(value: Any) -> str:
    from noetic_nb.runs._plain_text import plain_line

    return "" if value is None else plain_line(value, 200)
