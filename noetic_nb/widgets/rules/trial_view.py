"""The diff beside an editor: what the draft would change of everything recorded, tried again after each pause in typing.

A Python draft is run for this. One that does more than decide (writes a file, asks the network) is not run until someone
asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab.rule_backtest import Trials
from noetic_nb.lab.rule_lint_text import read_rule
from noetic_nb.runs.plain_text import TEXT_LENGTH, plain
from noetic_nb.steering import RuleBook, SteeringRule
from noetic_nb.widgets.rules.debounced import LiveTrial
from noetic_nb.widgets.rules.draft import Draft, rule_of
from noetic_nb.widgets.rules.rule_diff import RuleDiff

__all__ = ["RuleTrial"]


class RuleTrial:
    """Tries drafts of one rule book on some runs.

    Parameters
    ----------
    rulebook : RuleBook
        The rules in force.
    runs : sequence of Run
        What was recorded; may still grow.
    failed : callable
        ``failed(error)`` for a draft that does not compile.
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
            self.diff.say(
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
        """Return the recorded calls, read again where a run has grown."""
        sizes = tuple([len(run.events) for run in self._runs])
        if self._trials is None or self._trials[0] != sizes:
            self._trials = (sizes, Trials(self._runs))
        return self._trials[1]

    def _report(self, table: Any, error: Exception | None) -> None:
        if error is None:
            self.diff.show(table)
        elif isinstance(error, NoeticConfigError):
            self.diff.say("Not tried", "It does not compile yet.")
            self._failed(error)
        else:
            self.diff.say("Not tried", plain(f"{type(error).__name__}: {error}", TEXT_LENGTH))


def _acts(rule: SteeringRule, text: str) -> list[str]:
    """Return what a text does beside deciding, at its top level too."""
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
