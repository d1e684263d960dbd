"""When tool calls repeat in circles, or keep failing."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar, Final, Literal, TypeAlias

from noetic_nb.regulator._measures.tool_history import Outcome, trailing_cycles
from noetic_nb.regulator.decisions import CircuitBreak, Decision, RepeatedFailurePattern, RepeatedToolCallLoop
from noetic_nb.regulator.events import ToolCall
from noetic_nb.regulator.predicates.evidence import Evidence
from noetic_nb.regulator.predicates.explanation import Change, Condition, PredicateFinding, finding, require_whole

__all__ = ["LoopKey", "RepeatedFailure", "ToolLoop"]

TOOL_LOOP_THRESHOLD: Final = 5
"""The value of the original."""

LoopKey: TypeAlias = Literal["name", "call", "result"]

_LOOP_SUGGESTION: Final = (
    "{names} was called {count} times in a row without getting anywhere. Change the approach, hand over to the user, or mark "
    "the task unresolved."
)
_FAILURE_SUGGESTION: Final = (
    "Tools failed {count} times in a row on this topic. Check their inputs and availability, or hand over to the user."
)


@dataclass(frozen=True, slots=True)
class ToolLoop:
    """The same call, or the same cycle of calls, is repeated.

    Parameters
    ----------
    threshold : int
        Number of repetitions that count as a loop.
    by : {"name", "call", "result"}
        What must be equal: the tool's name; its name and arguments; or its outcome, which for a failure is the tool and
        its error, and for a success the tool and its arguments.
    period : {1, 2, 3}
        Length of the cycle; 2 finds ping-pong between two tools.
    across_turns : bool
        Use the newest 512 calls of the task instead of only this turn.

    References
    ----------
    .. [1] docs/behaviour/regulator.md, "Tool loops": the default is the original's, the other choices are ours.

    Examples
    --------
    >>> ToolLoop(threshold=3, by="call", period=2).kind
    'tool_loop'
    """

    kind: ClassVar[str] = "tool_loop"
    threshold: int = TOOL_LOOP_THRESHOLD
    by: LoopKey = "name"
    period: int = 1
    across_turns: bool = False

    def __post_init__(self) -> None:
        require_whole("threshold", self.threshold, 2)
        if self.by not in ("name", "call", "result"):
            raise ValueError(f"by must be 'name', 'call' or 'result'. Given: {self.by!r}.")
        require_whole("period", self.period, 1, 3)
        if not isinstance(self.across_turns, bool):
            raise TypeError(f"across_turns must be True or False. Given: {self.across_turns!r}.")

    def _records(self, evidence: Evidence) -> Sequence[ToolCall] | Sequence[Outcome]:
        if self.by == "result":
            return evidence.outcomes(across_turns=self.across_turns)
        return evidence.calls(across_turns=self.across_turns)

    def check(self, evidence: Evidence, /) -> Decision | None:
        """Return a circuit break if the newest calls repeat often enough."""
        records = self._records(evidence)
        count = trailing_cycles(records, self.period, _KEYS[self.by])
        if not count >= self.threshold:
            return None
        # Oldest first, so that a cycle has the order of its calls.
        names = [records[-place].tool_name for place in range(self.period, 0, -1)]
        cycle = " → ".join(map(repr, names))
        return CircuitBreak(RepeatedToolCallLoop(names[-1], count), _LOOP_SUGGESTION.format(names=cycle, count=count))

    def explain(self, evidence: Evidence, /) -> PredicateFinding:
        """Return the finding."""
        count = trailing_cycles(self._records(evidence), self.period, _KEYS[self.by])
        changes = [
            Change("repetitions", count, self.threshold - 1, is_threshold=False),
            Change("threshold", self.threshold, count + 1, is_threshold=True),
        ]
        return finding(
            self.kind, self.check(evidence), [Condition("repetitions", count, ">=", self.threshold)], changes
        )


def _ending(outcome: Outcome) -> Hashable:
    # The output of a success is unknown, so only the same call counts as the same success.
    return (outcome.tool_name, outcome.success, outcome.args_json if outcome.success else outcome.error_summary)


_KEYS: Final[dict[LoopKey, Callable[[Any], Hashable]]] = {
    # `attrgetter` instead of a lambda for speed: called for each record at each check.
    "name": attrgetter("tool_name"),
    "call": attrgetter("tool_name", "args_json"),
    "result": _ending,
}


@dataclass(frozen=True, slots=True)
class RepeatedFailure:
    """Tools keep failing on one topic, whichever tools they are.

    Parameters
    ----------
    threshold : int
        Failures since the last success under the current topic cluster.
    across_turns : bool
        Use the newest 512 results of the task instead of only this turn.

    References
    ----------
    .. [1] docs/behaviour/regulator.md, "Repeated failure": the original defines this reason but never emits it.

    Examples
    --------
    >>> RepeatedFailure(threshold=4).across_turns
    True
    """

    kind: ClassVar[str] = "repeated_failure"
    threshold: int = 3
    across_turns: bool = True

    def __post_init__(self) -> None:
        require_whole("threshold", self.threshold, 1)
        if not isinstance(self.across_turns, bool):
            raise TypeError(f"across_turns must be True or False. Given: {self.across_turns!r}.")

    def _failures(self, evidence: Evidence) -> int:
        cluster = evidence.cluster
        failures = 0
        for outcome in reversed(evidence.outcomes(across_turns=self.across_turns)):
            # Skip it without ending the series: work on another topic proves nothing about this one.
            if outcome.cluster != cluster:
                continue
            if outcome.success:
                break
            failures += 1
        return failures

    def check(self, evidence: Evidence, /) -> Decision | None:
        """Return a circuit break if there were enough failures in a row."""
        count = self._failures(evidence)
        if not count >= self.threshold:
            return None
        return CircuitBreak(RepeatedFailurePattern(evidence.cluster, count), _FAILURE_SUGGESTION.format(count=count))

    def explain(self, evidence: Evidence, /) -> PredicateFinding:
        """Return the finding."""
        count = self._failures(evidence)
        changes = [
            Change("failures", count, self.threshold - 1, is_threshold=False),
            Change("threshold", self.threshold, count + 1, is_threshold=True),
        ]
        return finding(self.kind, self.check(evidence), [Condition("failures", count, ">=", self.threshold)], changes)
