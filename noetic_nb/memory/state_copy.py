"""Copies of layer state: what a layer does to one of them, or to its own, later, does not reach the other.

The result is that of `copy.deepcopy`, which costs several times as much for the data that states are made of.
"""

from __future__ import annotations

import copy
from math import isfinite
from typing import Any, Final, TypeAlias, TypeVar

from noetic_nb.items.frozen import FrozenDict

__all__ = ["Snapshot", "deep_copy"]

T = TypeVar("T")

# In a memo: JSON text would not give back what was copied.
_IS_ODD: Final = "noetic_nb: is odd"
_PLAIN: Final = frozenset({str, int, bool, type(None)})
_UNSET: Final = object()

# Of `copy.deepcopy`: what was copied already, by the id of the original; other keys are ours.
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
    found: T = state if type(state) in _PLAIN else _copied(state, {})
    return found


class Snapshot:
    """A state that is being written, copied once for all who keep it, and only if somebody does.

    A class with a method ``snapshot()`` copies itself: parts that never change in place may be shared then.

    Examples
    --------
    >>> state = {"notes": ["a"]}
    >>> taken = Snapshot(state)
    >>> kept = taken.take()
    >>> state["notes"].append("b")
    >>> kept, taken.take() is kept, taken.is_plain
    ({'notes': ['a']}, True, True)
    """

    __slots__ = ("_kept", "is_plain", "state")

    def __init__(self, state: Any, held: Any = None) -> None:
        self.state = state
        """The state itself, in the hands of its layer."""
        # `held` is the same plain data, just loaded, in which nobody writes.
        self._kept: Any = _UNSET if held is None else held
        self.is_plain = held is not None
        """Whether what was taken is what its JSON text would be read as: mappings with text keys, lists, and what they hold."""

    def is_held(self, data: Any) -> bool:
        """Tell whether these data are what was taken."""
        return self._kept is data

    def take(self) -> Any:
        """Return the state as it was when this was first called; nobody writes into it. Raises what `deep_copy` raises."""
        if self._kept is _UNSET:
            kind = type(self.state)
            if kind is not dict and (own := getattr(kind, "snapshot", None)) is not None:
                self._kept = own(self.state)
            else:
                memo: _Memo = {}
                self._kept = _copied(self.state, memo)
                self.is_plain = _IS_ODD not in memo
        return self._kept


def _copied(value: Any, memo: _Memo) -> Any:
    kind = type(value)
    if kind is dict:
        place = id(value)
        if place in memo:
            memo[_IS_ODD] = True
            return memo[place]
        # Noted before it is filled: a state may hold itself, or the same list twice.
        made = memo[place] = value.copy()
        for key, inner in value.items():
            if type(key) is not str:
                del memo[place]
                memo[_IS_ODD] = True
                return copy.deepcopy(value, memo)
            inner_kind = type(inner)
            if inner_kind in _PLAIN:
                continue
            # Most of what states hold are lists of texts or numbers: no call for these.
            if inner_kind is list and id(inner) not in memo and _PLAIN.issuperset(map(type, inner)):
                made[key] = memo[id(inner)] = inner.copy()
            else:
                made[key] = _copied(inner, memo)
        return made
    if kind is list:
        place = id(value)
        if place in memo:
            memo[_IS_ODD] = True
            return memo[place]
        rows = memo[place] = value.copy()
        for at, inner in enumerate(value):
            if type(inner) in _PLAIN:
                continue
            if type(inner) is not float:
                rows[at] = _copied(inner, memo)
            elif not isfinite(inner):
                memo[_IS_ODD] = True
        return rows
    if kind in _PLAIN:
        return value
    if kind is float:
        if not isfinite(value):
            memo[_IS_ODD] = True
        return value
    memo[_IS_ODD] = True
    # Everything else is told how to be copied; what it shares with the rest is in the memo.
    return value if kind is FrozenDict else copy.deepcopy(value, memo)
