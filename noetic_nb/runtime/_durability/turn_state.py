"""The state that all executions of a turn share while they are recorded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from noetic_nb.runtime._context.execution_recorder import BegunCall
from noetic_nb.runtime._durability.step_record import StepRecord
from noetic_nb.runtime._durability.thread_writer import ThreadWriter
from noetic_nb.storage import StorageAdapter

__all__ = ["TurnState"]

E = TypeVar("E")
"""The record of an execution."""


@dataclass(slots=True, eq=False, repr=False)
class TurnState(ABC, Generic[E]):
    """The state that all executions of a turn share while they are recorded.

    An execution that is held open has no step to resume: what it adds to the log is written after each of its steps, and
    nothing else is.

    Attributes
    ----------
    sequence : int
        How many ends of steps have been given a number. Numbers of writes that failed are not used again, so that no
        record seems to know of what came later.
    first : int
        Where the turn begins in the log.
    is_turn, is_open, is_over : bool
        Whether it is a turn; whether storage names it; whether it has ended.
    replays : bool
        Whether a process that has ended recorded ends of steps.
    written, child_keys : list of str
        All keys of ends of steps, and of children, that there may be.
    children : dict of StepRecord to E
        The child executions, by where they began.
    loops : dict of StepRecord to list of float
        What had been spent when each loop that is under way began: tokens, dollars, milliseconds of the turn.
    begun : list of BegunCall
        Calls that were begun and whose end is not written.
    again : set of StepRecord
        Steps that have ended and will be run again.
    problem : Exception or None
        Why what it did is not in storage: None until it has ended, but for layers whose states could not be written.
    raises : bool
        Whether that is an error.
    root : E
        The record of the turn's own execution.
    """

    storage: StorageAdapter
    execution_id: str
    writer: ThreadWriter
    max_entry_bytes: int
    max_entries: int
    sequence: int = 0
    first: int = 0
    is_turn: bool = False
    is_open: bool = False
    is_over: bool = False
    replays: bool = False
    written: list[str] = field(default_factory=list, init=False)
    child_keys: list[str] = field(default_factory=list, init=False)
    next_child: int = 0
    begun: list[BegunCall] = field(default_factory=list, init=False)
    next_call: int = 0
    children: dict[StepRecord, E] = field(default_factory=dict, init=False)
    loops: dict[StepRecord, list[float]] = field(default_factory=dict, init=False)
    again: set[StepRecord] = field(default_factory=set, init=False)
    problem: Exception | None = None
    raises: bool = True
    root: E = field(init=False)

    @abstractmethod
    async def begin(self, first: int) -> None:
        """Write that the items of the turn, from `first` on, have been logged."""

    @abstractmethod
    async def end(self) -> None:
        """Write the items that the turn logged, and forget its progress."""

    @abstractmethod
    def close(self) -> None:
        """Release the record: it is no longer read."""
