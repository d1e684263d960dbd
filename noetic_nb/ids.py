"""The only source of identity. Ids are injected, so that a lesson, a test or a replay names things alike each time."""

from __future__ import annotations

import os
from typing import Final, Protocol

__all__ = ["SYSTEM_IDS", "Ids", "SystemIds"]


class Ids(Protocol):
    """Makes names that do not repeat."""

    def new(self, kind: str) -> str:
        """Return a fresh id for a thing of this kind, such as ``"item"``, ``"execution"`` or ``"turn"``."""


# Asking the system for each id costs more than the id; a forked process must not hand out its parent's.
_BATCH: Final = 256
_POOL: Final[list[str]] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_POOL.clear)


def _drawn() -> str:
    """Return 64 random bits as hexadecimal digits, from a fresh batch."""
    drawn = os.urandom(8 * _BATCH).hex(" ", 8).split()
    first = drawn.pop()
    _POOL.extend(drawn)
    return first


class SystemIds:
    """Random ids: the kind and 64 random bits.

    64 bits make a collision among a billion ids of one kind about as likely as 1 in 37 (birthday bound), among the
    thousands of one laboratory negligible; a UUID costs ten times as much and shows less.

    Examples
    --------
    >>> SystemIds().new("item")
    'item_...'
    """

    __slots__ = ()

    def new(self, kind: str) -> str:
        """Return a fresh random id."""
        try:
            return f"{kind}_{_POOL.pop()}"
        except IndexError:
            return f"{kind}_{_drawn()}"


SYSTEM_IDS: Final = SystemIds()
