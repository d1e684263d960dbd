"""Free data inside events (arguments, states, decisions), made safe to keep: frozen, and JSON through and through.

Freezing never fails. An event is evidence of what happened, so a value that JSON cannot hold is kept as a description of
itself instead of being refused: ``{"$unserializable": "set", "text": "{1}"}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetic_nb.items._frozen import MAX_DEPTH, FrozenDict, thaw

# A description is for reading, not for rebuilding the value.
_MOST_TEXT: Final = 500
# Sums and tables are made with floats: what they cannot hold would fail there, far from where it came from.
MOST_BITS: Final = 1023


def _described(value: object, why: str) -> FrozenDict:
    try:
        text = repr(value)[:_MOST_TEXT]
    except Exception as error:  # a repr of the user's own may do anything
        text = f"repr failed: {type(error).__name__}"
    return FrozenDict({"$unserializable": why, "text": text})


def frozen_data(value: Any, *, depth: int = 0) -> Any:
    """Return data as frozen mappings, tuples and scalars; a value that is not JSON data becomes a description of itself.

    Infinite numbers and NaN are kept; keys that are not text become their text. `depth` is how deep it lies in other data.
    """
    kind = type(value)
    if kind is int and value.bit_length() > MOST_BITS:
        return _described(value, f"a number of {value.bit_length()} bits")
    if value is None or kind in (str, int, bool, float):
        return value
    if depth >= MAX_DEPTH:
        return FrozenDict({"$unserializable": kind.__name__, "text": f"nested more than {MAX_DEPTH} deep"})
    if isinstance(value, Mapping):
        frozen = {str(key): frozen_data(inner, depth=depth + 1) for key, inner in value.items()}
        # The same object where nothing changes: most data is frozen already, and a run is long.
        same = isinstance(value, FrozenDict) and all(frozen[key] is value[key] for key in frozen)
        return value if same else FrozenDict(frozen)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):  # a record: its names are worth keeping
        return frozen_data(value._asdict(), depth=depth)
    if isinstance(value, list | tuple):
        items = tuple([frozen_data(inner, depth=depth + 1) for inner in value])
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
    """Return a mapping as `frozen_data` has it, in plain dicts and lists of its own."""
    plain: dict[str, Any] = thaw(frozen_data(value))
    return plain
