"""Immutable data: deeply frozen mappings and sequences.

A frozen mapping is still a ``dict`` (so ``json`` writes it at full speed), but all mutating methods raise. Freezing
free data in events (arguments, states, decisions) never fails: a value that JSON cannot represent is replaced by a
description, as in ``{"$unserializable": "set", "text": "{1}"}``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NoReturn, Self

from noetic_nb.errors import ItemValidationError

# Deeper data is cyclic or hostile: recorded tool results are nested less than 12 deep.
MAX_DEPTH: Final = 200

KNOWN_FIELDS: Final = frozenset({
    "id", "type", "status", "role", "content", "callId", "name", "arguments", "output", "summary", "serverCallId",
    "text", "annotations", "logprobs", "refusal", "imageUrl", "detail", "fileData", "fileId", "fileUrl", "filename",
})  # fmt: skip
"""Fields of items and content parts that read as None if absent."""


def camel(name: str) -> str:
    """Return the wire name of a snake_case attribute."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


class FrozenDict(dict[str, Any]):
    """An immutable mapping; its keys can be read as snake_case attributes, None for a missing known field."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        wire = camel(name)
        if wire in self:
            return self[wire]
        if wire in KNOWN_FIELDS:
            return None
        raise AttributeError(f"{type(self).__name__} has no field {name!r}; it has {', '.join(map(repr, self))}.")

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError("Items never change. Build a new one, for example with {**item, 'key': value}.")

    __setitem__ = __delitem__ = __setattr__ = __delattr__ = _refuse
    clear = pop = popitem = setdefault = update = __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


MAPPINGS: Final = (dict, Mapping)
"""For `isinstance`: most mappings are dicts, and checking for dict first is faster."""
# Immutable types.
PLAIN: Final = frozenset({str, int, bool, type(None)})
FLAT: Final = PLAIN | {float}  # JSON types without content of their own


def freeze(value: Any, *, _depth: int = 0) -> Any:
    """Return JSON data with mappings and named tuples as `FrozenDict`, and sequences as tuples, recursively.

    Parameters
    ----------
    value : object
        JSON data: mappings with text keys, lists or tuples, text, finite numbers, booleans, None.

    Raises
    ------
    ItemValidationError
        If a value is not JSON data, is not finite, or is nested more than 200 deep (as cyclic data is).
    """
    kind = type(value)
    if kind in PLAIN or isinstance(value, FrozenDict):
        return value
    if kind is float:
        if math.isfinite(value):
            return value
        raise ItemValidationError("An item contains a number that is not finite.", given=value, hint="JSON has no NaN.")
    if _depth >= MAX_DEPTH:
        raise ItemValidationError(f"An item is nested more than {MAX_DEPTH} deep.", hint="Is it cyclic?")
    if isinstance(value, tuple) and hasattr(value, "_asdict"):  # a named tuple: keep its field names
        return freeze(value._asdict(), _depth=_depth)
    if isinstance(value, (list, tuple)):
        return tuple([inner if type(inner) in PLAIN else freeze(inner, _depth=_depth + 1) for inner in value])
    if isinstance(value, MAPPINGS):
        for key in value:
            if not isinstance(key, str):
                raise ItemValidationError("Keys of items are text.", given=key)
        return FrozenDict(
            {key: inner if type(inner) in PLAIN else freeze(inner, _depth=_depth + 1) for key, inner in value.items()}
        )
    if isinstance(value, str):  # a subclass, such as a string enumeration
        return str(value.value) if hasattr(value, "value") else str(value)
    if isinstance(value, int | float):
        return freeze(value.__float__() if isinstance(value, float) else value.__int__(), _depth=_depth)
    raise ItemValidationError(
        f"An item holds a {type(value).__name__}, which is not JSON data.",
        given=value,
        hint="Use text, numbers, booleans, None, lists and dicts.",
    )


def own_copy(value: Any) -> Any:
    """Copy the same data to new mappings and lists; used because ``dict.update(mapping, ...)`` bypasses frozen mappings."""
    kind = type(value)
    if kind is FrozenDict or kind is dict:
        return kind({key: own_copy(inner) for key, inner in value.items()})
    if kind is tuple or kind is list:
        return kind([own_copy(inner) for inner in value])
    return value


def thaw(value: Any) -> Any:
    """Convert frozen data to plain dicts and lists, which can be changed.

    Examples
    --------
    >>> thaw(freeze({"content": [{"text": "a"}]}))
    {'content': [{'text': 'a'}]}
    """
    if type(value) in FLAT:
        return value
    if isinstance(value, MAPPINGS):
        return {key: thaw(inner) for key, inner in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return thaw(value._asdict())
    if isinstance(value, list | tuple):
        return [thaw(inner) for inner in value]
    return value


def frozen_or_none(value: Any) -> Any:
    """Return data as frozen JSON data, or None if it is not JSON data: NaN, or objects from code."""
    try:
        return freeze(value)
    except ItemValidationError:
        return None


_MOST_TEXT: Final = 500  # a description is for reading, not for restoring the value
# Sums and tables use floats; an integer too large for a float would fail there, far from its source.
MOST_BITS: Final = 1023


def _described(value: object, why: str) -> FrozenDict:
    try:
        text = repr(value)[:_MOST_TEXT]
    except Exception as error:  # a custom repr may raise anything
        text = f"repr failed: {type(error).__name__}"
    return FrozenDict({"$unserializable": why, "text": text})


def frozen_data(value: Any, *, depth: int = 0) -> Any:
    """Freeze data as mappings, tuples and scalars, NaN included; a value that is not data becomes its description."""
    kind = type(value)
    if kind is int and value.bit_length() > MOST_BITS:
        return _described(value, f"a number of {value.bit_length()} bits")
    if kind in FLAT:
        return value
    if depth >= MAX_DEPTH:
        return FrozenDict({"$unserializable": kind.__name__, "text": f"nested more than {MAX_DEPTH} deep"})
    if isinstance(value, MAPPINGS):
        frozen = {str(key): frozen_data(inner, depth=depth + 1) for key, inner in value.items()}
        # Return the same object if nothing changes: most data is frozen already, and runs are long.
        same = isinstance(value, FrozenDict) and all(frozen[key] is value[key] for key in frozen)
        return value if same else FrozenDict(frozen)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):  # a named tuple: keep its field names
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
    """Return a mapping as `frozen_data` does, but in new plain dicts and lists."""
    plain: dict[str, Any] = thaw(frozen_data(value))
    return plain
