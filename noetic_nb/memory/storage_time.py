"""How long turns have waited for storage: states that are loaded and written, and checkpoints."""

from __future__ import annotations

from typing import TypeAlias

__all__ = ["StorageTime"]

_Turn: TypeAlias = tuple[str, int]
"""A thread and the number of its turn: that of the children of an execution, too."""


class StorageTime:
    """Milliseconds by turn, kept until the turn is over.

    Examples
    --------
    >>> spent = StorageTime()
    >>> spent.add(("t1", 1), 2.5)
    >>> spent.add(("t1", 1), 0.5)
    >>> spent.take(("t1", 1)), spent.take(("t1", 1))
    (3.0, 0.0)
    """

    __slots__ = ("_spent",)

    def __init__(self) -> None:
        self._spent: dict[_Turn, float] = {}

    def add(self, turn: _Turn, ms: float) -> None:
        """Count some time."""
        self._spent[turn] = self._spent.get(turn, 0.0) + ms

    def take(self, turn: _Turn) -> float:
        """Return what was counted of a turn, and forget it."""
        return self._spent.pop(turn, 0.0)
