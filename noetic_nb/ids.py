"""The only source of ids. They are injected, so that a lesson, a test or a replay gets the same names each time."""

from __future__ import annotations

import os
from typing import Final, Protocol

__all__ = ["SYSTEM_IDS", "Ids", "SystemIds"]


class Ids(Protocol):
    """Makes unique names."""

    def new(self, kind: str) -> str:
        """Return a new id for a kind of object, such as ``"item"``, ``"execution"`` or ``"turn"``."""


# Drawn in batches, because a system call per id is expensive; a forked process must not reuse its parent's batch.
_BATCH: Final = 256
_POOL: Final[list[str]] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_POOL.clear)


def _drawn() -> str:
    """Return 64 random bits as hexadecimal digits, from the current batch."""
    drawn = os.urandom(8 * _BATCH).hex(" ", 8).split()
    first = drawn.pop()
    _POOL.extend(drawn)
    return first


class SystemIds:
    """Random ids: the kind and 64 random bits.

    With 64 bits, the probability of a collision among a billion ids of one kind is about 1 in 37 (birthday bound), and
    negligible among the thousands of one laboratory; a UUID costs ten times as much and is less readable.

    Examples
    --------
    >>> SystemIds().new("item")
    'item_...'
    """

    __slots__ = ()

    def new(self, kind: str) -> str:
        """Return a new random id."""
        try:
            return f"{kind}_{_POOL.pop()}"
        except IndexError:
            return f"{kind}_{_drawn()}"


SYSTEM_IDS: Final = SystemIds()
