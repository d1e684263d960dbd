"""Records that are written as text when somebody reads them, which with a store in memory most often nobody does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from noetic_nb.items import Item, dump_item
from noetic_nb.items._json_text import plain_text


class RecordHead(Protocol):
    """The fields of a record beside its items: texts and numbers that never change."""

    def dump(self, items: list[Any]) -> dict[str, Any]:
        """Return the record as it is stored."""


class LateText:
    """A record for a store that keeps JSON text."""

    __slots__ = ("_head", "_items")

    lasts: Final = True
    """Read by `InMemoryStorage`: it may be kept as it is, as items are frozen and the head is nobody else's."""

    def __init__(self, head: RecordHead, items: Sequence[Item]) -> None:
        self._head = head
        self._items = items

    def json_text(self) -> str:
        """Return it as text."""
        return plain_text(self._head.dump([dump_item(item) for item in self._items]))
