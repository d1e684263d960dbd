"""The parameters that rules get at calls that have been made, from the events of a recording or of an agent that is watched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any, Final

from noetic_nb.events import ModelCalled, ToolCalled, TurnStarted, Where
from noetic_nb.items import freeze
from noetic_nb.items._origin_index import Provenance
from noetic_nb.memory import ExecutionContext, PastCall
from noetic_nb.memory._steering_decision import ALLOW
from noetic_nb.memory.params import AfterModelCallParams, BeforeToolCallParams
from noetic_nb.models._client import ModelResponse, Usage

# What rules read of a layer's state is empty: the recorded ledger is that of the rules in force then.
_STATE: Final = {"ledger": (), "pendingAsync": ()}
_NO_ARGS: Final = freeze({})


@dataclass(frozen=True, slots=True)
class _Clock:
    """The clock as it stood at a call."""

    t_ms: float

    def now_ms(self) -> float:
        """Milliseconds of the run's clock."""
        return self.t_ms

    def monotonic_ms(self) -> float:
        """Return the same: no time passes."""
        return self.t_ms


@dataclass(slots=True)
class _Execution:
    """The calls of one execution so far."""

    resource_id: str | None
    usage: Usage = field(default_factory=lambda: Usage(0, 0))
    cost: float = 0.0
    step: int = 0


class CallParams:
    """Reads calls in their order; `is_priced` where what has no price counts as free, as in a harness."""

    def __init__(self, *, is_priced: bool) -> None:
        self._is_priced = is_priced
        self._executions: dict[tuple[str, str], _Execution] = {}
        self._resources: dict[tuple[str, int], str | None] = {}

    def begin(self, event: TurnStarted) -> None:
        """Note on whose behalf a turn runs."""
        self._resources[event.where.thread_id, event.where.turn] = event.resource_id

    def forget(self, where: Where) -> None:
        """Drop an execution that has ended."""
        self._executions.pop((where.thread_id, where.execution_id), None)

    def _execution(self, where: Where) -> _Execution:
        key = where.thread_id, where.execution_id
        found = self._executions.get(key)
        if found is None:
            found = self._executions[key] = _Execution(self._resources.get((where.thread_id, where.turn)))
        return found

    def _context(self, where: Where, t_ms: float) -> ExecutionContext:
        known = self._execution(where)
        return ExecutionContext(
            execution_id=where.execution_id,
            thread_id=where.thread_id,
            resource_id=known.resource_id,
            depth=where.depth,
            step_number=known.step,
            token_usage=known.usage,
            cost=known.cost,
            turn=where.turn,
            clock=_Clock(t_ms),
        )

    def of_tool(
        self, event: ToolCalled, history: tuple[PastCall, ...], provenance: Callable[[], Provenance]
    ) -> BeforeToolCallParams:
        """Return the parameters of a call of a tool, whose arguments are frozen, with the calls before it."""
        args: Mapping[str, Any] = _NO_ARGS if event.args is None else event.args
        ctx, depth = self._context(event.where, event.t_ms), event.where.depth
        return BeforeToolCallParams(
            event.name, args, ctx, _STATE, event.call_id, history, depth, ALLOW, event.raw_args, provenance, None
        )

    def count(self, event: ModelCalled) -> None:
        """Count a call of a model, before its response is judged: live, its own cost is counted as well."""
        known = self._execution(event.where)
        known.usage = known.usage + Usage(*event.counts)
        if event.cost is not None:
            known.cost = event.cost + (0.0 if isnan(known.cost) else known.cost)
        elif event.status == "ok" and not known.cost and not self._is_priced:
            # Not a number: a rule that compares it with a limit holds neither way, and does not fail.
            known.cost = nan
        known.step = event.step

    def of_response(self, event: ModelCalled, history: tuple[PastCall, ...]) -> AfterModelCallParams:
        """Return the parameters of a response, with the calls before it."""
        usage = Usage(*event.counts)
        response = ModelResponse(event.items, usage, event.cost, finish_reason=event.finish_reason)
        return AfterModelCallParams(response, self._context(event.where, event.t_ms), _STATE, history)
