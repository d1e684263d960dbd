"""Damaged records in storage: detected when read, and reported as one kind of error.

Storage is a file that people copy, edit and restore. So every number is checked before it is used as a counter, and
errors from parsing unknown JSON by hand never reach the user unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError, NoeticError

# Beyond this, JSON numbers are not exact in every program; no counter here gets as far.
MAX_COUNT: Final = 2**53
# Every error from reading arbitrary values: 10^400 is not a float, and lists may be nested without limit.
_RAISED: Final = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, NoeticError)


def unreadable(what: str, given: str, why: object, hint: str) -> NoeticConfigError:
    reason = f"{type(why).__name__}: {why}" if isinstance(why, BaseException) else str(why)
    return NoeticConfigError(
        "CHECKPOINT_SCHEMA_MISMATCH", f"{what} cannot be read: {reason}", given=given, hint=f"It was damaged, or {hint}"
    )


@contextmanager
def noticing(what: str, given: str, hint: str) -> Iterator[None]:
    """Turn any reading error into ``CHECKPOINT_SCHEMA_MISMATCH``; if the store cannot be read at all, its error is kept."""
    try:
        yield
    except NoeticConfigError as exc:
        if exc.code == "CHECKPOINT_SCHEMA_MISMATCH":
            raise
        raise unreadable(what, given, exc, hint) from exc
    except _RAISED as exc:
        if not is_damage(exc):
            raise
        raise unreadable(what, given, exc, hint) from exc


def is_damage(error: Exception) -> bool:
    """Tell whether a record was read and is invalid; if storage could not be read, its content is unknown."""
    # A store sets `key` when it could read the record but found invalid JSON.
    is_unread = isinstance(error, NoeticError) and error.kind == "storage_failed" and "key" not in error.facts
    return isinstance(error, _RAISED) and not is_unread


def count(value: Any, name: str, least: int = 0) -> int:
    """Return a whole number; raises `ValueError` for any other value or an absurdly large number."""
    if type(value) is not int or not least <= value <= MAX_COUNT:
        raise ValueError(f"{name!r} is not a whole number from {least} to 2**53")
    return value


def amount(value: Any, name: str) -> float:
    """Return a finite, non-negative number; raises `ValueError` for any other value."""
    if type(value) not in (int, float) or not 0 <= value <= MAX_COUNT or not math.isfinite(value):
        raise ValueError(f"{name!r} is not a number from 0 to 2**53")
    return float(value)


def mapping(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a JSON object; raises `TypeError` for any other value."""
    value = data[name]
    if not isinstance(value, Mapping):
        raise TypeError(f"{name!r} is not an object")
    return dict(value)


def text_or_none(data: Mapping[str, Any], name: str) -> str | None:
    """Return a text or None; raises `TypeError` for any other value."""
    value = data[name]
    if not isinstance(value, str | None):
        raise TypeError(f"{name!r} is not text")
    return value
