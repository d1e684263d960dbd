"""Read what a hook returned: None, a mapping with camelCase or snake_case keys, or a record with those attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["UNSET", "field_of"]


class _Unset:
    """The absence of a field, which differs from a field that is None."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"

    def __bool__(self) -> bool:
        return False


UNSET: Final = _Unset()

_CAMEL: Final = {
    "state": "state",
    "items": "items",
    "token_count": "tokenCount",
    "child_state": "childState",
    "parent_state": "parentState",
    "result": "result",
    "decision": "decision",
    "rerender": "rerender",
    "timing": "timing",
    "scope": "scope",
    "stop": "stop",
    "outcome": "outcome",
    "rule_ids": "ruleIds",
}


def field_of(result: Any, name: str, *, hook: str) -> Any:
    """Return a field of a hook's result, or `UNSET` where it has none.

    Raises
    ------
    TypeError
        If the result cannot have fields at all.

    Examples
    --------
    >>> field_of({"tokenCount": 3}, "token_count", hook="recall"), field_of(None, "state", hook="store")
    (3, UNSET)
    """
    if result is None:
        return UNSET
    if type(result) is dict or isinstance(result, Mapping):  # the abstract check costs ten times as much
        wire = _CAMEL[name]
        if wire in result:
            return result[wire]
        return result.get(name, UNSET)
    if isinstance(result, str | bytes | int | float | bool | list | tuple | set) and not hasattr(result, "_fields"):
        raise TypeError(
            f"The hook {hook!r} returned {type(result).__name__} {result!r:.80}; return None, a mapping or a record "
            f"with the fields of this hook."
        )
    return getattr(result, name, UNSET)
