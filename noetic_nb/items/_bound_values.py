"""Copies the Python values that a tool is about to receive, so that nobody can change them after they were judged."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, TypeVar
from uuid import UUID

from pydantic import BaseModel

from noetic_nb.errors import ItemValidationError
from noetic_nb.items._frozen import MAX_DEPTH, FrozenDict

T = TypeVar("T")

_FIXED: Final = frozenset(
    {str, int, float, bool, type(None), bytes, complex, Decimal, date, datetime, time, timedelta, UUID}
)
_SEQUENCES: Final = frozenset({list, tuple, set, frozenset, deque})


def copied(value: T) -> T:
    """Return a deep copy of containers, models and dataclasses in a value; other objects are shared."""
    return value if type(value) in _FIXED else _copy(value, {}, 0)


def _copy(value: Any, memo: dict[int, Any], depth: int) -> Any:
    kind = type(value)
    if kind in _FIXED:
        return value
    if id(value) in memo:
        return memo[id(value)]
    if depth >= MAX_DEPTH:
        raise ItemValidationError(f"Arguments are nested more than {MAX_DEPTH} deep.", hint="Are they cyclic?")
    depth += 1
    if kind is FrozenDict:
        return FrozenDict({key: _copy(inner, memo, depth) for key, inner in value.items()})
    if isinstance(value, dict):
        mapping = memo[id(value)] = {} if kind is dict else _shallow(value)
        for key, inner in value.items():
            dict.__setitem__(mapping, key, inner if type(inner) in _FIXED else _copy(inner, memo, depth))
        return mapping
    if isinstance(value, list):
        sequence = memo[id(value)] = [] if kind is list else _shallow(value)
        list.__setitem__(sequence, slice(None), [_copy(inner, memo, depth) for inner in value])
        return sequence
    if isinstance(value, tuple):
        return tuple.__new__(kind, [_copy(inner, memo, depth) for inner in value])
    if kind is deque:
        return deque([_copy(inner, memo, depth) for inner in value], value.maxlen)
    if kind is set or kind is frozenset:
        return kind([_copy(inner, memo, depth) for inner in value])
    if isinstance(value, set | frozenset | deque | bytearray):
        return _shallow(value)
    if isinstance(value, BaseModel):
        model = memo[id(value)] = BaseModel.__copy__(value)
        for part in (model.__dict__, model.__pydantic_extra__, model.__pydantic_private__):
            for name, inner in (part or {}).items():
                if type(inner) not in _FIXED:
                    part[name] = _copy(inner, memo, depth)  # type: ignore[index]
        return model
    if _is_record(value):
        record = memo[id(value)] = object.__new__(kind)
        for name, inner in _attributes(value):
            object.__setattr__(record, name, _copy(inner, memo, depth))
        return record
    return value


def _shallow(value: Any) -> Any:
    import copy  # rarely needed for arguments

    return copy.copy(value)


def _is_record(value: Any) -> bool:
    """Tell whether a value is a plain dataclass, which can be copied without calling its code."""
    new: Any = type(value).__new__
    return is_dataclass(value) and new is object.__new__


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a dataclass: its fields, in slots or not, and other attributes that were set."""
    own = getattr(value, "__dict__", {})
    yield from own.items()
    for field in fields(value):
        if field.name not in own and hasattr(value, field.name):
            yield field.name, getattr(value, field.name)


def may_change(value: Any) -> bool:
    """Tell whether `copied` shared an object that other code may change."""
    waiting, seen = [value], set[int]()
    while waiting:
        one = waiting.pop()
        kind = type(one)
        if kind in _FIXED or id(one) in seen:
            continue
        seen.add(id(one))
        if kind is dict or kind is FrozenDict:
            waiting += one.values()
        elif kind in _SEQUENCES or isinstance(one, tuple):
            waiting += one
        elif isinstance(one, BaseModel):
            for part in (one.__dict__, one.__pydantic_extra__, one.__pydantic_private__):
                waiting += (part or {}).values()
        elif _is_record(one):
            waiting += [inner for _, inner in _attributes(one)]
        elif kind is not bytearray:
            return True
    return False
