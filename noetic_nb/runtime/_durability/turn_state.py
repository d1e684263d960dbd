"""The state shared by all executions of a turn while they are recorded."""

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
    """The state shared by all executions of a turn while they are recorded; an execution held open has no step to resume."""

    storage: StorageAdapter
    execution_id: str
    writer: ThreadWriter
    max_entry_bytes: int
    max_entries: int
    sequence: int = 0
    """Number of the next step end. Numbers of failed writes are not reused: no record may name a later step's end."""
    first: int = 0
    """Start of the turn in the log."""
    is_turn: bool = False
    is_open: bool = False
    """Whether storage names its execution."""
    is_over: bool = False
    replays: bool = False
    """Whether an earlier process recorded ends of steps."""
    written: list[str] = field(default_factory=list, init=False)
    """All keys that may exist for ends of steps."""
    child_keys: list[str] = field(default_factory=list, init=False)
    """All keys that may exist for children."""
    next_child: int = 0
    begun: list[BegunCall] = field(default_factory=list, init=False)
    """Calls that began and whose end is not written."""
    next_call: int = 0
    children: dict[StepRecord, E] = field(default_factory=dict, init=False)
    """By starting step."""
    loops: dict[StepRecord, list[float | None]] = field(default_factory=dict, init=False)
    """The spending at the start of each running loop: tokens, dollars, milliseconds of the turn."""
    again: set[StepRecord] = field(default_factory=set, init=False)
    """Steps that have ended and will run again."""
    problem: Exception | None = None
    """The reason why its work is not in storage; None until it has ended, except after a failed write of layer states."""
    raises: bool = True
    """Whether the problem is an error rather than a warning."""
    root: E = field(init=False)
    """The record of the turn's own execution."""

    @abstractmethod
    async def begin(self, first: int) -> None:
        """Write that the items of the turn, from `first` on, have been logged."""

    @abstractmethod
    async def end(self) -> None:
        """Write the items that the turn logged, and delete its progress."""

    @abstractmethod
    def close(self) -> None:
        """Release the record, which is no longer read."""
