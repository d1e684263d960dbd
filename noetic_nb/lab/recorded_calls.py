"""The moments of recorded runs at which rules are asked: every call that was checked, every response of the agent.

The past is taken as it was: what a rule would have prevented still stands in the history of later calls.
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

__all__ = ["Moment", "moments"]

# Calls that never reached the rules: nobody knows the tool, or the arguments did not fit it.
_NOT_ASKED: Final = frozenset({"unknown", "invalid_args"})
_STATE: Final = {"ledger": (), "pendingAsync": ()}


@dataclass(frozen=True, slots=True)
class _At:
    """The clock as it stood at a recorded moment."""

    t_ms: float

    def now_ms(self) -> float:
        """Milliseconds of the run's clock."""
        return self.t_ms

    def monotonic_ms(self) -> float:
        """Return the same: no time passes."""
        return self.t_ms


@dataclass(frozen=True, slots=True)
class Moment:
    """Where it was, and what a rule is given."""

    run_id: str
    seq: int
    t_ms: float
    where: Where
    point: Point
    params: BeforeToolCallParams | AfterModelCallParams


@dataclass(slots=True)
class _Past:
    """What one execution had done so far."""

    resource_id: str | None
    calls: list[PastCall] = field(default_factory=list)
    usage: Usage = field(default_factory=lambda: Usage(0, 0))
    cost: float = 0.0
    step: int = 0


def moments(runs: Run | Iterable[Run]) -> tuple[Moment, ...]:
    """Return every moment of some runs at which rules are asked, in order.

    Parameters
    ----------
    runs : Run or iterable of Run
        Recorded, loaded, or still growing.

    Raises
    ------
    NoeticConfigError
        ``INVALID_RUN`` for what is no run.

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> found = moments(datasets.airline(1))
    >>> found[0].point, found[-1].run_id
    ('after_model_call', 'airline-3')
    """
    found: list[Moment] = []
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


def _of_run(run: Run) -> Iterator[Moment]:
    pasts: dict[tuple[str, str], _Past] = {}
    resources: dict[tuple[str, int], str | None] = {}
    for seq, event in enumerate(tuple(run.events)):
        if isinstance(event, TurnStarted):
            resources[event.where.thread_id, event.where.turn] = event.resource_id
        if not isinstance(event, ToolCalled | ModelCalled):
            continue
        where = event.where
        key = (where.thread_id, where.execution_id)
        past = pasts.get(key)
        if past is None:
            past = pasts[key] = _Past(resources.get((where.thread_id, where.turn)))
        if isinstance(event, ToolCalled):
            if event.status not in _NOT_ASKED:
                yield Moment(run.run_id, seq, event.t_ms, where, "before_tool_call", _call(event, past))
            past.calls.append(PastCall(event.name, event.args or {}, event.call_id, event.status, event.output))
            continue
        past.usage = past.usage + Usage(event.input_tokens, event.output_tokens, event.cached_tokens)
        past.cost += event.cost
        past.step = event.step
        if event.purpose == "agent" and event.status == "ok":
            yield Moment(run.run_id, seq, event.t_ms, where, "after_model_call", _response(event, past))


def _context(where: Where, t_ms: float, past: _Past) -> ExecutionContext:
    return ExecutionContext(
        execution_id=where.execution_id,
        thread_id=where.thread_id,
        resource_id=past.resource_id,
        depth=where.depth,
        step_number=past.step,
        token_usage=past.usage,
        cost=past.cost,
        turn=where.turn,
        clock=_At(t_ms),
    )


def _call(event: ToolCalled, past: _Past) -> BeforeToolCallParams:
    args: Any = freeze({}) if event.args is None else event.args
    ctx = _context(event.where, event.t_ms, past)
    return BeforeToolCallParams(event.name, args, ctx, _STATE, event.call_id, tuple(past.calls), event.where.depth)


def _response(event: ModelCalled, past: _Past) -> AfterModelCallParams:
    usage = Usage(event.input_tokens, event.output_tokens, event.cached_tokens)
    ctx = _context(event.where, event.t_ms, past)
    return AfterModelCallParams(ModelResponse(event.items, usage, event.cost), ctx, _STATE, tuple(past.calls))
