"""The calls of recorded runs at which rules are evaluated: tool calls before they ran, model calls with their response.

The before is taken as it was: what a rule would have prevented still stands in the history of later calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ModelCalled, ToolCalled, TurnStarted, Where
from noetic_nb.items import freeze
from noetic_nb.memory import ExecutionContext, PastCall
from noetic_nb.memory.params import AfterModelCallParams, BeforeToolCallParams
from noetic_nb.models.client import ModelResponse, Usage
from noetic_nb.runs import Run
from noetic_nb.steering.rules.rule import Point

__all__ = ["RecordedCall", "calls_of"]

# Calls that never reached the rules: nobody knows the tool, or the arguments did not fit it.
_NOT_EVALUATED: Final = frozenset({"unknown", "invalid_args"})
# What rules read of a layer's state is empty: the recorded ledger is that of the rules in force then.
_STATE: Final = {"ledger": (), "pendingAsync": ()}


@dataclass(frozen=True, slots=True)
class _RecordedClock:
    """The clock as it stood at a recorded call."""

    t_ms: float

    def now_ms(self) -> float:
        """Milliseconds of the run's clock."""
        return self.t_ms

    def monotonic_ms(self) -> float:
        """Return the same: no time passes."""
        return self.t_ms


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """Where in its run a call stands, and the parameters a rule gets."""

    run_id: str
    seq: int
    t_ms: float
    where: Where
    point: Point
    params: BeforeToolCallParams | AfterModelCallParams


@dataclass(slots=True)
class _Execution:
    """What one execution had done so far."""

    resource_id: str | None
    calls: list[PastCall] = field(default_factory=list)
    usage: Usage = field(default_factory=lambda: Usage(0, 0))
    cost: float = 0.0
    step: int = 0


def calls_of(runs: Run | Iterable[Run]) -> tuple[RecordedCall, ...]:
    """Return every call of some runs (recorded, loaded, still growing) at which rules are evaluated, in order.

    Raises `NoeticConfigError` ``INVALID_RUN`` for what is no run.

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> found = calls_of(datasets.airline(1))
    >>> found[0].point, found[-1].run_id
    ('after_model_call', 'airline-3')
    """
    found: list[RecordedCall] = []
    for run in [runs] if isinstance(runs, Run) else runs:
        if not isinstance(run, Run):
            raise NoeticConfigError(
                "INVALID_RUN",
                "Rules are tried on runs.",
                given=run,
                hint="Use nn.record(harness) or nn.load_run(path).",
            )
        found += _of_run(run)
    return tuple(found)


def _of_run(run: Run) -> Iterator[RecordedCall]:
    executions: dict[tuple[str, str], _Execution] = {}
    resources: dict[tuple[str, int], str | None] = {}
    # A copy: a run may grow while it is read.
    for seq, event in enumerate(tuple(run.events)):
        if isinstance(event, TurnStarted):
            resources[event.where.thread_id, event.where.turn] = event.resource_id
        if not isinstance(event, ToolCalled | ModelCalled):
            continue
        where = event.where
        key = (where.thread_id, where.execution_id)
        before = executions.get(key)
        if before is None:
            before = executions[key] = _Execution(resources.get((where.thread_id, where.turn)))
        if isinstance(event, ToolCalled):
            if event.status not in _NOT_EVALUATED:
                yield RecordedCall(run.run_id, seq, event.t_ms, where, "before_tool_call", _call(event, before))
            before.calls.append(PastCall(event.name, event.args or {}, event.call_id, event.status, event.output))
            continue
        # Before the response is judged: live, its own cost is counted as well.
        before.usage = before.usage + Usage(event.input_tokens, event.output_tokens, event.cached_tokens)
        before.cost += event.cost
        before.step = event.step
        if event.purpose == "agent" and event.status == "ok":
            yield RecordedCall(run.run_id, seq, event.t_ms, where, "after_model_call", _response(event, before))


def _context(where: Where, t_ms: float, before: _Execution) -> ExecutionContext:
    return ExecutionContext(
        execution_id=where.execution_id,
        thread_id=where.thread_id,
        resource_id=before.resource_id,
        depth=where.depth,
        step_number=before.step,
        token_usage=before.usage,
        cost=before.cost,
        turn=where.turn,
        clock=_RecordedClock(t_ms),
    )


def _call(event: ToolCalled, before: _Execution) -> BeforeToolCallParams:
    args: Any = freeze({}) if event.args is None else event.args
    ctx = _context(event.where, event.t_ms, before)
    return BeforeToolCallParams(event.name, args, ctx, _STATE, event.call_id, tuple(before.calls), event.where.depth)


def _response(event: ModelCalled, before: _Execution) -> AfterModelCallParams:
    usage = Usage(event.input_tokens, event.output_tokens, event.cached_tokens)
    ctx = _context(event.where, event.t_ms, before)
    return AfterModelCallParams(ModelResponse(event.items, usage, event.cost), ctx, _STATE, tuple(before.calls))
