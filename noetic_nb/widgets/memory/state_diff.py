"""The differences between two states of a layer: keys and items that were added, removed or changed. Pure data."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

__all__ = ["Change", "state_diff"]

# Lists beyond this product of lengths are compared from both ends only: it is a fifth of a second of work.
_MOST: Final = 250_000
# Deeper data is compared as a whole: the interpreter allows about a thousand calls, and recorded data ends at 200.
_DEEPEST: Final = 100


class Change(NamedTuple):
    """One difference: where, of which kind, and both values; None for the side that has none."""

    path: str
    kind: Literal["added", "removed", "changed"]
    before: Any
    after: Any


def state_diff(before: Any, after: Any) -> list[Change]:
    """Return the differences between two states, in the order of the older one, additions where they stand.

    Keys of mappings belong together by name; items of lists by content, and what lies between two that are the same by its
    order. The place of a list is that in the newer state, of what was removed in the older one.

    Parameters
    ----------
    before, after : JSON data
        The states.

    Returns
    -------
    list of Change
        Empty where they are the same.

    Examples
    --------
    >>> for change in state_diff({"city": "Rome", "days": [1, 2]}, {"city": "Oslo", "days": [1, 5, 2], "pets": 0}):
    ...     print(*change)
    city changed Rome Oslo
    days[1] added None 5
    pets added None 0
    """
    return list(_between("", before, after, 0))


def _between(path: str, before: Any, after: Any, depth: int) -> Iterator[Change]:
    if _same(before, after):
        return
    if depth < _DEEPEST and isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in (*before, *[key for key in after if key not in before]):
            inside = _key(path, key)
            if key not in after:
                yield Change(inside, "removed", before[key], None)
            elif key not in before:
                yield Change(inside, "added", None, after[key])
            else:
                yield from _between(inside, before[key], after[key], depth + 1)
    elif depth < _DEEPEST and _is_list(before) and _is_list(after):
        yield from _items(path, before, after, depth)
    else:
        yield Change(path, "changed", before, after)


def _items(path: str, before: Sequence[Any], after: Sequence[Any], depth: int) -> Iterator[Change]:
    old, new = [_name(item) for item in before], [_name(item) for item in after]
    start, stop, shorter = 0, 0, min(len(old), len(new))
    while start < shorter and old[start] == new[start]:
        start += 1
    while stop < shorter - start and old[-1 - stop] == new[-1 - stop]:
        stop += 1
    left, right = old[start : len(old) - stop], new[start : len(new) - stop]
    if len(left) * len(right) > _MOST:
        codes = [("replace", 0, len(left), 0, len(right))]
    else:
        codes = list(difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes())
    for tag, a, b, c, d in codes:
        if tag == "equal":
            continue
        for at in range(max(b - a, d - c)):
            i, j = start + a + at, start + c + at
            if at >= d - c:
                yield Change(f"{path}[{i}]", "removed", before[i], None)
            elif at >= b - a:
                yield Change(f"{path}[{j}]", "added", None, after[j])
            else:
                yield from _between(f"{path}[{j}]", before[i], after[j], depth + 1)


def _key(path: str, key: Any) -> str:
    if isinstance(key, str) and key.isidentifier():
        return f"{path}.{key}" if path else key
    return f"{path}[{json.dumps(key, ensure_ascii=False, default=str)}]"


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _name(value: Any) -> str:
    """Return a text that two values share where they are the same data."""
    return json.dumps(value, sort_keys=True, default=str) if _is_nested(value) else f"{type(value).__name__} {value!r}"


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping) or _is_list(value)


def _same(before: Any, after: Any) -> bool:
    if _is_nested(before) and _is_nested(after):
        return before is after
    if isinstance(before, float) and isinstance(after, float) and math.isnan(before):
        return math.isnan(after)
    # In Python True is 1; in data it is not.
    return isinstance(before, bool) is isinstance(after, bool) and bool(before == after)
