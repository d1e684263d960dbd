"""Tool calls and their outcomes, for this turn and (bounded) for the task; a result belongs to the oldest open call."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple, TypeVar

from noetic_nb.regulator.events import ToolCall, ToolResult

T = TypeVar("T")

_MOST_REMEMBERED: Final = 512
"""Calls and outcomes kept across turns (ours); those of the current turn are all kept, as in the original."""


class Outcome(NamedTuple):
    """How one tool call ended, and in which topic cluster."""

    tool_name: str
    args_json: str | None
    success: bool
    error_summary: str | None
    cluster: str


class ToolHistory:
    """Tool calls and results of one task."""

    __slots__ = (
        "_unanswered", "calls", "duration_ms", "failures", "outcomes", "task_calls", "task_counts", "task_outcomes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.task_calls: deque[ToolCall] = deque(maxlen=_MOST_REMEMBERED)
        self.task_outcomes: deque[Outcome] = deque(maxlen=_MOST_REMEMBERED)
        # Separate from the calls, of which only the newest are kept: a budget counts all of them.
        self.task_counts: dict[str, int] = {}
        self.start_turn()

    def start_turn(self) -> None:
        """Start a new turn with new lists, because readers keep the old ones."""
        self.calls: list[ToolCall] = []
        self.outcomes: list[Outcome] = []
        self.duration_ms = 0
        self.failures = 0
        self._unanswered: dict[str, deque[str | None]] = {}

    def add_call(self, call: ToolCall) -> None:
        self.calls.append(call)
        self.task_calls.append(call)
        self.task_counts[call.tool_name] = self.task_counts.get(call.tool_name, 0) + 1
        self._unanswered.setdefault(call.tool_name, deque()).append(call.args_json)

    def add_result(self, result: ToolResult, cluster: str) -> None:
        unanswered = self._unanswered.get(result.tool_name)
        # Count a result even without a call: logs and spans may lack the call.
        args = unanswered.popleft() if unanswered else None
        outcome = Outcome(result.tool_name, args, result.success, result.error_summary, cluster)
        self.outcomes.append(outcome)
        self.task_outcomes.append(outcome)
        self.duration_ms += result.duration_ms  # type: ignore[assignment]  # whole already, see `events.plain`
        self.failures += not result.success

    def counts_by_name(self) -> dict[str, int]:
        """Return how often each tool was called in this turn."""
        return dict(Counter([call.tool_name for call in self.calls]))


def trailing_cycles(records: Sequence[T], period: int, key: Callable[[T], Hashable] = lambda record: record) -> int:
    """Return how often a cycle of exactly this period repeats at the end of a sequence.

    Counts whole repetitions, at least 1 unless there are fewer than `period` records or they are all equal: a constant
    series only has period 1, so that one loop is not reported under several periods. Records with equal `key` values are
    equal; they are read from the end, only as far as the cycle extends.
    """
    size = len(records)
    if size < period:
        return 0
    # Newest first, and only as far as the cycle extends: records may be hundreds long and this runs at every decision.
    cycle = [key(records[-1 - place]) for place in range(period)]
    if period > 1 and len(set(cycle)) == 1:
        return 0
    same = period
    while same < size and key(records[-1 - same]) == cycle[same % period]:
        same += 1
    return same // period
