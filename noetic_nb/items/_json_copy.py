"""Free data inside events (arguments, states, decisions), made safe to keep: frozen, and JSON through and through.

Freezing never fails. An event is evidence of what happened, so a value that JSON cannot hold is kept as a description of
itself instead of being refused: ``{"$unserializable": "set", "text": "{1}"}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetic_nb.items._frozen import MAX_DEPTH, FrozenDict, thaw

__all__ = ["MOST_BITS", "frozen_data", "plain_data"]

# A description is for reading, not for rebuilding the value.
_MOST_TEXT: Final = 500
# Sums and tables are made with floats: what they cannot hold would fail there, far from where it came from.
MOST_BITS: Final = 1023

# What is kept as it is: most of all data, and quick to see.
_SETTLED: Final = frozenset({str, bool, float, type(None)})
_TEXT: Final = frozenset({str})


def _described(value: object, why: str) -> FrozenDict:
    try:
        text = repr(value)[:_MOST_TEXT]
    except Exception as error:  # a repr of the user's own may do anything
        text = f"repr failed: {type(error).__name__}"
    return FrozenDict({"$unserializable": why, "text": text})


def frozen_data(value: Any, *, depth: int = 0) -> Any:
    """Return data as frozen mappings, tuples and scalars; a value that is not JSON data becomes a description of itself.

    Infinite numbers and NaN are kept; keys that are not text become their text. `depth` is how deep it lies inside
    other data.

    Examples
    --------
    >>> frozen_data({"ids": [1, 2], "seen": {3}})
    {'ids': (1, 2), 'seen': {'$unserializable': 'set', 'text': '{3}'}}
    """
    kind = type(value)
    if kind is FrozenDict and _SETTLED.issuperset(map(type, value.values())) and _TEXT.issuperset(map(type, value)):
        return value  # as arguments are that were frozen before
    if kind is int and value.bit_length() > MOST_BITS:
        return _described(value, f"a number of {value.bit_length()} bits")
    if value is None or kind in (str, int, bool, float):
        return value
    if depth >= MAX_DEPTH:
        return FrozenDict({"$unserializable": kind.__name__, "text": f"nested more than {MAX_DEPTH} deep"})
    # Lists first, as what a type is registered as takes longer to see.
    is_list = kind is list or kind is tuple
    if kind is dict or (not is_list and isinstance(value, Mapping)):
        settled = {
            key if type(key) is str else str(key): v if type(v) in _SETTLED else frozen_data(v, depth=depth + 1)
            for key, v in value.items()
        }
        if isinstance(value, FrozenDict) and all(settled[key] is value[key] for key in settled):
            return value
        return FrozenDict(settled)
    if not is_list and isinstance(value, tuple) and hasattr(value, "_asdict"):  # a record: its names are worth keeping
        return frozen_data(value._asdict(), depth=depth)
    if is_list and _SETTLED.issuperset(map(type, value)):
        return tuple(value)  # itself, where it is a tuple
    if is_list or isinstance(value, list | tuple):
        items = tuple([v if type(v) in _SETTLED else frozen_data(v, depth=depth + 1) for v in value])
        # The same object where nothing changes: most data is frozen already, and a run is long.
        same = kind is tuple and all(new is old for new, old in zip(items, value, strict=True))
        return value if same else items
    if isinstance(value, str):  # a subclass, such as a string enumeration
        return str.__str__(value)
    if isinstance(value, int):
        return frozen_data(int(value), depth=depth)
    if isinstance(value, float):
        return float(value)
    return _described(value, kind.__name__)


def plain_data(value: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a mapping as `frozen_data` has it, in plain dicts and lists of its own.

    Examples
    --------
    >>> plain_data({1: [2], "seen": (None,)})
    {'1': [2], 'seen': [None]}
    """
    return {
        key if type(key) is str else str(key): v if type(v) in _SETTLED else thaw(frozen_data(v, depth=1))
        for key, v in value.items()
    }
