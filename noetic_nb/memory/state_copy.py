"""Copies of layer state: what a layer does to one of them, or to its own, later, does not reach the other.

The result is that of `copy.deepcopy`, which costs five times as much for the data that states are made of.
"""

from __future__ import annotations

import copy
from typing import Any, Final, TypeAlias, TypeVar

from noetic_nb.items.frozen import FLAT, FrozenDict

__all__ = ["SHARES", "deep_copy", "snapshot"]

T = TypeVar("T")

SHARES: Final = "noetic_nb: shares"
"""In the memo of a deep copy: a part of a state that never changes in place may be shared rather than copied."""

# Of `copy.deepcopy`: what was copied already, by the id of the original.
_Memo: TypeAlias = dict[Any, Any]


def deep_copy(state: T) -> T:
    """Return a copy of a state, all the way down.

    Raises whatever `copy.deepcopy` does for something that cannot be copied, such as a lock.

    Examples
    --------
    >>> state = {"notes": [{"text": "a"}]}
    >>> mine = deep_copy(state)
    >>> mine["notes"][0]["text"] = "b"
    >>> state
    {'notes': [{'text': 'a'}]}
    """
    found: T = state if type(state) in FLAT else _copied(state, {})
    return found


def snapshot(state: T) -> T:
    """Return a copy of a state that later changes in place do not reach: one for us, which nobody writes into."""
    found: T = state if type(state) in FLAT else _copied(state, {SHARES: True})  # the keys of a memo are ids
    return found


def _copied(value: Any, memo: _Memo) -> Any:
    kind, key = type(value), id(value)
    if kind is dict or kind is list:
        if key in memo:
            return memo[key]
        # Noted before it is filled: a state may hold itself, or the same list twice.
        made = memo[key] = value.copy()
        for place, inner in value.items() if kind is dict else enumerate(value):
            if type(place) not in FLAT:  # a key that is an object
                del memo[key]
                return copy.deepcopy(value, memo)
            if type(inner) not in FLAT:
                made[place] = _copied(inner, memo)
        return made
    # Everything else is told how to be copied; what it shares with the rest is in the memo.
    return value if kind is FrozenDict else copy.deepcopy(value, memo)
