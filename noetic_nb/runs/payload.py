"""Free data inside events (arguments, states, decisions), made safe to keep: frozen, and JSON through and through.

Freezing never fails. An event is evidence of what happened, so a value that JSON cannot hold is kept as a description of
itself instead of being refused: ``{"$unserializable": "set", "text": "{1}"}``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from noetic_nb.items.frozen import FrozenDict, thaw

__all__ = ["from_wire", "frozen_data", "parse_json", "plain_data", "to_wire"]

NON_FINITE: Final = "$float"
_TEXT_OF: Final = {math.inf: "Infinity", -math.inf: "-Infinity"}
_NUMBER_OF: Final = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}

# As deep as items may be nested; deeper data is cyclic or hostile.
MAX_DEPTH: Final = 200
# A description is for reading, not for rebuilding the value.
_MOST_TEXT: Final = 500


# Sums and tables are made with floats: what they cannot hold would fail there, far from where it came from.
_MOST_BITS: Final = 1023


def _whole(text: str) -> int:
    number = int(text)
    if number.bit_length() > _MOST_BITS:
        raise ValueError(f"a number of {len(text)} digits is larger than any number here")
    return number


def _fraction(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):  # Python makes infinity of 1e400, which is not what was written
        raise ValueError(f"{text[:40]} is larger than any number here")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def parse_json(line: bytes) -> Any:
    """Return the data of a line of JSON.

    Raises `ValueError` for what is none, and for a number that no float can hold.

    Examples
    --------
    >>> parse_json(b"[1e400]")
    Traceback (most recent call last):
    ...
    ValueError: 1e400 is larger than any number here
    """
    return json.loads(line, parse_constant=_refuse_constant, parse_float=_fraction, parse_int=_whole)


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
    """Return data as frozen mappings, tuples and scalars; what is not JSON data becomes a description of itself.

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
    if kind is int and value.bit_length() > _MOST_BITS:
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


def to_wire(value: Any) -> Any:
    """Return data as plain JSON data; numbers that JSON lacks are written as ``{"$float": "Infinity"}``.

    Examples
    --------
    >>> to_wire({"cap": float("inf"), "ids": (1, 2)})
    {'cap': {'$float': 'Infinity'}, 'ids': [1, 2]}
    """
    if type(value) is float and not math.isfinite(value):
        return {NON_FINITE: _TEXT_OF.get(value, "NaN")}
    if isinstance(value, Mapping):
        return {key: to_wire(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_wire(inner) for inner in value]
    return value


def from_wire(value: Any) -> Any:
    """Return the frozen data that `to_wire` wrote.

    Examples
    --------
    >>> from_wire({"cap": {"$float": "Infinity"}, "ids": [1, 2]})
    {'cap': inf, 'ids': (1, 2)}
    """
    if isinstance(value, dict):
        if len(value) == 1 and NON_FINITE in value:
            number = value[NON_FINITE]
            if isinstance(number, str) and number in _NUMBER_OF:
                return _NUMBER_OF[number]
        return FrozenDict({key: from_wire(inner) for key, inner in value.items()})
    if isinstance(value, list):
        return tuple([from_wire(inner) for inner in value])
    return value
