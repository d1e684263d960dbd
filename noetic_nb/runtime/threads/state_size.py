"""How much memory the states of layers take that are remembered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from sys import getsizeof
from typing import Any, Final

__all__ = ["size_of"]

# What is looked at of one state: the size of a larger one is that of its first values, so many times as there are more.
_MOST_VALUES: Final = 10_000


def size_of(state: Any) -> int:
    """Estimate the bytes that a state takes: of mappings, lists and tuples with all they hold, of other objects by themselves.

    What is there twice counts once. Of a state of more than 10 000 values the rest is taken to be like these.

    Examples
    --------
    >>> size_of({"text": "x" * 1_000}) > 1_000
    True
    """
    seen: set[int] = set()
    waiting: list[Any] = [state]
    size = looked_at = 0
    while waiting and looked_at < _MOST_VALUES:
        value = waiting.pop()
        looked_at += 1
        size += getsizeof(value)
        if not isinstance(value, dict | list | tuple) or id(value) in seen:
            continue
        seen.add(id(value))
        inside: Iterable[Any] = (*value, *value.values()) if isinstance(value, Mapping) else value
        waiting.extend(inside)
    return size * (looked_at + len(waiting)) // max(looked_at, 1)
