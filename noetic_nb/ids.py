"""The only source of identity. Ids are injected, so that a lesson, a test or a replay names things alike each time."""

from __future__ import annotations

import os
from typing import Final, Protocol

__all__ = ["SYSTEM_IDS", "Ids", "SystemIds"]


class Ids(Protocol):
    """Makes names that do not repeat."""

    def new(self, kind: str) -> str:
        """Return a fresh id for a thing of this kind, such as ``"item"``, ``"execution"`` or ``"turn"``."""
        ...


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
        return f"{kind}_{os.urandom(8).hex()}"


SYSTEM_IDS: Final = SystemIds()
