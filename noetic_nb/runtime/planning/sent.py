"""The items of one request: a few in front, then a stretch of the log. Behind a long history nothing is copied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from noetic_nb.items import Item, ItemView, item_tokens

__all__ = ["SentItems"]


class SentItems(Sequence[Item]):
    """A read-only sequence of `head` and `tail`.

    Examples
    --------
    >>> from noetic_nb.items import ItemLog, input_message
    >>> sent = SentItems((input_message("a note", "developer"),), ItemLog([input_message("hi")]).items)
    >>> len(sent), [item.role for item in sent], sent[-1].role
    (2, ['developer', 'user'], 'user')
    """

    __slots__ = ("_head", "_tail")

    def __init__(self, head: tuple[Item, ...], tail: Sequence[Item]) -> None:
        self._head = head
        self._tail = tail

    def __len__(self) -> int:
        return len(self._head) + len(self._tail)

    def __iter__(self) -> Iterator[Item]:
        yield from self._head
        yield from self._tail

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        if isinstance(index, slice):
            return tuple(self)[index]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"Item {index} of {len(self)}.")
        front = len(self._head)
        return self._head[place] if place < front else self._tail[place - front]

    @property
    def tokens(self) -> int:
        """Tokens of all items by the default count; from running sums for what is a view of a log."""
        tail = self._tail
        behind = tail.tokens if isinstance(tail, ItemView) else sum(map(item_tokens, tail))
        return behind + sum(map(item_tokens, self._head))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"SentItems({list(self)!r})"
