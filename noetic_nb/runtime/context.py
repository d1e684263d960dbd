"""One execution while it runs: whose it is, what it has spent, what has been said, and whether it was told to stop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from noetic_nb.errors import NoeticError
from noetic_nb.events import Where
from noetic_nb.items import Item, ItemLog
from noetic_nb.memory import PastCall, RecallEntry
from noetic_nb.models.base import NO_USAGE, ModelResponse, Usage

__all__ = ["Context", "LastStep"]


@dataclass(frozen=True, slots=True)
class LastStep:
    """The last llm step: how many tools its last model call asked for, what was spent, what was answered."""

    tool_calls: int
    usage: Usage
    cost: float
    items: tuple[Item, ...]


class Context:
    """The state of an execution. Made by the harness.

    Attributes
    ----------
    id, thread_id, resource_id : str
        Whose execution it is.
    depth : int
        0 for a root execution.
    step_count : int
        Steps dispatched on this context.
    tokens : Usage
        Tokens spent, judges and layers included.
    cost : float
        US dollars spent.
    state : dict
        Free to use.
    item_log : ItemLog
        The conversation.
    last_step : LastStep or None
        The last llm step.
    """

    __slots__ = (
        "abort_reason",
        "aborted",
        "calls",
        "cost",
        "depth",
        "id",
        "item_log",
        "last_step",
        "locks",
        "model_calls",
        "parent",
        "query",
        "recalled",
        "resource_id",
        "started_ms",
        "state",
        "step_count",
        "thread_id",
        "tokens",
        "tool_calls",
        "turn",
        "where",
    )

    def __init__(
        self,
        *,
        id: str,
        thread_id: str,
        resource_id: str | None,
        log: ItemLog,
        turn: int,
        started_ms: float,
        parent: Context | None = None,
        state: dict[str, Any] | None = None,
    ) -> None:
        self.id = id
        self.thread_id = thread_id
        self.resource_id = resource_id
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.item_log = log
        self.turn = turn
        self.started_ms = started_ms
        self.state: dict[str, Any] = {} if state is None else state
        self.step_count = 0
        self.tokens = NO_USAGE
        self.cost = 0.0
        self.last_step: LastStep | None = None
        self.calls: list[PastCall] = []
        self.query = ""
        self.recalled: tuple[RecallEntry, ...] = ()
        self.model_calls = 0
        self.tool_calls = 0
        self.locks: dict[str, asyncio.Lock] = {}
        self.aborted = False
        self.abort_reason: str | None = None
        self.where = Where(thread_id, id, turn, self.depth)

    def charge(self, response: ModelResponse) -> None:
        """Add what a model call cost, whether or not its answer will stand."""
        self.tokens = self.tokens + response.usage
        if response.cost:
            self.cost += response.cost
        self.model_calls += 1

    def abort(self, reason: str = "the execution was aborted") -> None:
        """Tell the execution to stop at its next boundary; the first reason stays."""
        if not self.aborted:
            self.aborted = True
            self.abort_reason = reason

    def check_abort(self) -> None:
        """Raise where the execution was told to stop.

        Raises
        ------
        NoeticError
            ``cancelled``.
        """
        if self.aborted:
            raise NoeticError(
                "cancelled", f"The execution was cancelled: {self.abort_reason}", reason=self.abort_reason
            )

    def __repr__(self) -> str:
        return f"Context({self.id!r}, thread {self.thread_id!r}, {self.step_count} steps, {self.tokens.total_tokens} tokens)"
