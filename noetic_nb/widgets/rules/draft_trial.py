"""Drafts tried on what was recorded: the diff beside an editor, and the calls that a new version must stand before it counts.

A draft is tried again after each pause in typing. A Python draft is run for this; one that does more than decide (writes a
file, uses the network) is not run until someone presses Try.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab.recorded_calls import RecordedCall, calls_of
from noetic_nb.lab.rule_backtest import Trials
from noetic_nb.lab.rule_lint_text import read_rule
from noetic_nb.lab.rule_trial import try_rules
from noetic_nb.runs import Run
from noetic_nb.runs.plain_text import TEXT_LENGTH, plain
from noetic_nb.steering import RuleBook, SteeringRule
from noetic_nb.steering.evaluation.evaluate import Policy
from noetic_nb.steering.evaluation.rule_snapshot import RuleSnapshot
from noetic_nb.steering.predicates.python_source import check_on_samples
from noetic_nb.widgets.rules.debounced import LiveTrial
from noetic_nb.widgets.rules.draft import Draft, rule_of
from noetic_nb.widgets.rules.rule_diff import RuleDiff

__all__ = ["DraftTrial", "check_draft", "sample_calls"]

# Someone waits who presses Apply: enough calls to meet a bad case, few enough to be done at once.
MOST_CALLS: Final = 200


class DraftTrial:
    """Tries drafts of one rule book on some runs, which may still grow.

    ``failed(error)`` is called for a draft that does not compile.
    """

    def __init__(self, rulebook: RuleBook, runs: Sequence[Any], failed: Callable[[NoeticConfigError], None]) -> None:
        self.diff = RuleDiff()
        self._rulebook = rulebook
        self._runs = runs
        self._failed = failed
        self._live: LiveTrial[Any] = LiveTrial(self._report)
        self._trials: tuple[tuple[int, ...], Trials] | None = None

    def try_later(self, rule: SteeringRule, draft: Draft, *, even_if_impure: bool = False) -> None:
        """Try a draft after a pause, in place of what was to be tried before."""
        # Compiling a Python text runs what stands beside its function, so text that acts is stopped before that.
        acts = [] if draft.form != "python" or even_if_impure else _acts(rule, draft.text)
        if acts:
            self._live.cancel()
            self.diff.show_text(
                "Not tried while you type", f"It does more than decide: {plain(acts[0], TEXT_LENGTH)}. Press Try."
            )
            return

        def work(stop: Callable[[], bool]) -> Any:
            candidate = rule_of(self._rulebook, rule, draft)
            return self._ready().diff(self._rulebook.snapshot, candidate, stop=stop)

        self._live.later(work)

    def cancel(self) -> None:
        """Give up what is being tried."""
        self._live.cancel()

    def _ready(self) -> Trials:
        """Return the recorded decisions, read again where a run has grown."""
        # Reading is the slow part of a trial; typing does not change what was recorded.
        sizes = tuple([len(run.events) for run in self._runs])
        if self._trials is None or self._trials[0] != sizes:
            self._trials = (sizes, Trials(self._runs))
        return self._trials[1]

    def _report(self, table: Any, error: Exception | None) -> None:
        if error is None:
            self.diff.show(table)
        elif isinstance(error, NoeticConfigError):
            self.diff.show_text("Not tried", "It does not compile yet.")
            self._failed(error)
        else:
            self.diff.show_text("Not tried", plain(f"{type(error).__name__}: {error}", TEXT_LENGTH))


def _acts(rule: SteeringRule, text: str) -> list[str]:
    """Return what a text does beside deciding; its top level counts, because compiling runs it."""
    import ast

    found = read_rule(rule.model_copy(update={"source": text, "predicate": rule.predicate or print})).impure
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    calls = [node for node in body if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if any(isinstance(part, ast.Call) for node in calls for part in ast.walk(node)):
        found = [*found, "it calls something beside its function"]
    return found


def sample_calls(runs: Sequence[Run], rule: SteeringRule) -> tuple[RecordedCall, ...]:
    """Return the newest recorded calls and responses that a rule applies to, oldest first, at most 200.

    Examples
    --------
    >>> from noetic_nb.events import ToolCalled, Where
    >>> where = Where("t1", "e1", 1)
    >>> run = Run(events=[ToolCalled(where, 0.0, name, "c", {"n": 1}, "", 1.0, "ok") for name in ("pay", "look")])
    >>> rule = SteeringRule(id="r", applies_to="before_tool_call", tools=("pay",), predicate=lambda call: None)
    >>> [(call.params.tool_name, dict(call.params.tool_args)) for call in sample_calls([run], rule)]
    [('pay', {'n': 1})]
    """
    alone = _alone(rule)
    found = [call for call in calls_of(runs) if alone.applicable(call.point, getattr(call.params, "tool_name", None))]
    return tuple(found[-MOST_CALLS:])


def check_draft(rule: SteeringRule, calls: Sequence[RecordedCall]) -> None:
    """Evaluate a rule on recorded calls, whatever its form; its judge, if it has one, is not consulted.

    Raises
    ------
    NoeticConfigError
        ``RULE_FAILS_ON_SAMPLE`` with the `line` of a Python rule that failed, where it is known.
    """
    check_on_samples(rule, [call.params for call in calls])
    for call, result in zip(calls, try_rules(_alone(rule), calls, policy=Policy()), strict=True):
        if result.error is not None:
            raise NoeticConfigError(
                "RULE_FAILS_ON_SAMPLE",
                f"Rule {rule.id!r} was not replaced: on a recorded call it failed with {result.error}",
                given=getattr(call.params, "tool_name", "a response"),
                hint="Correct the text; the last good version stays in force.",
                rule_id=rule.id,
                line=None,
            )


def _alone(rule: SteeringRule) -> RuleSnapshot:
    # Tried even if it is not enabled yet: it may be a moment later.
    return RuleSnapshot(0, (rule.model_copy(update={"enabled": True}),))
