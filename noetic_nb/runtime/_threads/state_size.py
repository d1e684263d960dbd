"""How much memory the states of layers take that are remembered."""

from __future__ import annotations

from itertools import islice
from sys import getsizeof
from typing import Any, Final

__all__ = ["size_of"]

# What is looked at of one state: the size of a larger one is that of its first values, so many times as there are more.
_MOST_VALUES: Final = 10_000
_CONTAINERS: Final = (dict, list, tuple)
_TEXTS: Final = frozenset({str})
_SMALL: Final = frozenset({int, float, bool, type(None)})
# Bytes of a text beside its characters where these take one each, and of most numbers.
_TEXT: Final = getsizeof("")
_NUMBER: Final = getsizeof(1)


def size_of(state: Any) -> int:
    """Estimate the bytes that a state takes: of mappings, lists and tuples with all they hold, of other objects by themselves.

    What is there twice counts once. Of a state of more than 10 000 values the rest is taken to be like these. A class with
    a method ``bytes_held(size_of)`` says it itself.

    Examples
    --------
    >>> size_of({"text": "x" * 1_000}) > 1_000
    True
    """
    own = None if type(state) is dict else getattr(type(state), "bytes_held", None)
    if own is not None:
        found: int = own(state, size_of)
        return found
    seen: set[int] = set()
    waiting: list[Any] = [state]
    size = large = looked_at = left_out = 0
    while waiting and looked_at < _MOST_VALUES:
        value = waiting.pop()
        if id(value) in seen:
            continue
        looked_at += 1
        if not isinstance(value, _CONTAINERS):
            size += getsizeof(value)
            continue
        seen.add(id(value))
        is_large = len(value) > _MOST_VALUES
        if is_large:  # by itself: what is left out is like the values in it, not like it
            large += getsizeof(value)
        else:
            size += getsizeof(value)
        for inside in (value, value.values()) if isinstance(value, dict) else (value,):
            if is_large:
                left_out += len(inside) - _MOST_VALUES
            elif _TEXTS.issuperset(map(type, inside)) and all(map(str.isascii, inside)):
                # As the keys of nearly all states, and most lists in them: without a step of this loop for each.
                size += _TEXT * len(inside) + sum(map(len, inside))
                looked_at += len(inside)
                continue
            for inner in islice(inside, _MOST_VALUES) if is_large else inside:
                kind = type(inner)
                if kind is str:
                    # To ask for the size of a text costs several times as much as for its length, which says it as well.
                    size += _TEXT + len(inner) if inner.isascii() else getsizeof(inner)
                elif kind in _SMALL:
                    size += _NUMBER
                else:
                    waiting.append(inner)
                    continue
                looked_at += 1
    return large + size * (looked_at + len(waiting) + left_out) // looked_at
