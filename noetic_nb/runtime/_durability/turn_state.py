"""The state that all executions of a turn share while they are recorded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from noetic_nb.runtime._context.protocols import BegunCall
from noetic_nb.runtime._durability.step_entry import StepRecord
from noetic_nb.runtime._durability.thread_writer import ThreadWriter
from noetic_nb.storage import StorageAdapter

E = TypeVar("E")
"""The record of an execution."""


@dataclass(slots=True, eq=False, repr=False)
class TurnState(ABC, Generic[E]):
    """The state that all executions of a turn share while they are recorded; one that is held open has no step to resume."""

    storage: StorageAdapter
    execution_id: str
    writer: ThreadWriter
    max_entry_bytes: int
    max_entries: int
    sequence: int = 0
    """Ends of steps with a number. Those of failed writes are not used again: no record is to know of what came later."""
    first: int = 0
    """Where the turn begins in the log."""
    is_turn: bool = False
    is_open: bool = False
    """Whether storage names it."""
    is_over: bool = False
    replays: bool = False
    """Whether a process that has ended recorded ends of steps."""
    written: list[str] = field(default_factory=list, init=False)
    """All keys of ends of steps that there may be."""
    child_keys: list[str] = field(default_factory=list, init=False)
    """All keys of children that there may be."""
    next_child: int = 0
    begun: list[BegunCall] = field(default_factory=list, init=False)
    """Calls that were begun and whose end is not written."""
    next_call: int = 0
    children: dict[StepRecord, E] = field(default_factory=dict, init=False)
    """By where they began."""
    loops: dict[StepRecord, list[float | None]] = field(default_factory=dict, init=False)
    """What had been spent when each loop that is under way began: tokens, dollars, milliseconds of the turn."""
    again: set[StepRecord] = field(default_factory=set, init=False)
    """Steps that have ended and will be run again."""
    problem: Exception | None = None
    """The reason why its work is not in storage: None until it has ended, but for layers whose states could not be written."""
    raises: bool = True
    """Whether that is an error."""
    root: E = field(init=False)
    """The record of the turn's own execution."""

    @abstractmethod
    async def begin(self, first: int) -> None:
        """Write that the items of the turn, from `first` on, have been logged."""

    @abstractmethod
    async def end(self) -> None:
        """Write the items that the turn logged, and forget its progress."""

    @abstractmethod
    def close(self) -> None:
        """Release the record: it is no longer read."""
