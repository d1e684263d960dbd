"""Recorded calls as a rule would have seen them: what a new version of a rule is tried on before it counts."""

from __future__ import annotations

from typing import Any, Final

from noetic_nb.events import ToolCalled
from noetic_nb.memory import ExecutionContext
from noetic_nb.memory.params import BeforeToolCallParams, PastCall
from noetic_nb.steering.rules.rule import SteeringRule

__all__ = ["recorded_calls"]

# Rules run inline when someone presses Apply: enough calls to meet a bad case, few enough to be done at once.
MOST: Final = 200
# These calls were refused before any rule was asked.
NOT_ASKED: Final = frozenset({"unknown", "invalid_args"})


def recorded_calls(run: Any, rule: SteeringRule) -> tuple[BeforeToolCallParams, ...]:
    """Return the newest recorded tool calls that a rule applies to, oldest first.

    Parameters
    ----------
    run : Run
        Where the calls were recorded.
    rule : SteeringRule
        Which tools it is about decides which calls count.

    Returns
    -------
    tuple of BeforeToolCallParams
        At most 200; empty for a rule that is not asked before tool calls.

    Examples
    --------
    >>> from noetic_nb.events import Where
    >>> from noetic_nb.runs import Run
    >>> where = Where("t1", "e1", 1)
    >>> run = Run(events=[ToolCalled(where, 0.0, name, "c", {"n": 1}, "", 1.0, "ok") for name in ("pay", "look")])
    >>> rule = SteeringRule(id="r", applies_to="before_tool_call", tools=("pay",), predicate=lambda call: None)
    >>> [(call.tool_name, dict(call.tool_args)) for call in recorded_calls(run, rule)]
    [('pay', {'n': 1})]
    """
    if "before_tool_call" not in rule.applies_to:
        return ()
    past: dict[str, list[PastCall]] = {}
    found: list[BeforeToolCallParams] = []
    for event in run.events:
        if not isinstance(event, ToolCalled) or event.args is None or event.status in NOT_ASKED:
            continue
        where = event.where
        before = past.setdefault(where.execution_id, [])
        if rule.tools is None or event.name in rule.tools:
            ctx = ExecutionContext(
                execution_id=where.execution_id, thread_id=where.thread_id, depth=where.depth, turn=where.turn
            )
            found.append(
                BeforeToolCallParams(event.name, event.args, ctx, None, event.call_id, tuple(before), where.depth)
            )
        before.append(PastCall(event.name, event.args, event.call_id, event.status, event.output))
    return tuple(found[-MOST:])
