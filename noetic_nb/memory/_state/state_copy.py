"""Copies of layer state, equal to those of `copy.deepcopy` at a fraction of its cost."""

from __future__ import annotations

import copy
from typing import Any, Final, TypeAlias, TypeVar

from noetic_nb.errors import NoeticError
from noetic_nb.items._frozen import FLAT, FrozenDict, frozen_data

T = TypeVar("T")


# Maximum depth of the search for a value that cannot be copied: a longer path would not be readable.
_DEEPEST: Final = 20

# The memo of `copy.deepcopy`: copies by the id of the original.
_Memo: TypeAlias = dict[Any, Any]


def deep_copy(state: T) -> T:
    """Return a deep copy of a state; raises as `copy.deepcopy` does for a value that cannot be copied, such as a lock."""
    made: T = _copied(state, {})
    return made


def can_be_copied(value: Any) -> bool:
    """Tell whether Python can deep-copy a value, which is impossible with a lock or a connection in it."""
    try:
        copy.deepcopy(value)
    except Exception:
        return False
    return True


class StateNotCopied(NoeticError):
    """The state of a layer's `hook` cannot be copied, which storage, history, runs and `store` require."""

    def __init__(self, layer_id: str, hook: str, state: Any, cause: BaseException) -> None:
        try:
            reason = str(cause)
        except Exception:  # an exception class of the user
            reason = ""
        kind, place = _uncopied(state)
        hint = (
            "Keep what is alive, such as locks, files and connections, in a variable outside of the state, or give its "
            "class a method snapshot() or __deepcopy__() that copies it."
        )
        if kind == "coroutine":
            hint = f"An `await` is missing: write `async def` for {hook!r}, and `await` what is called there."
        super().__init__(
            "layer_failed",
            f"The state of layer {layer_id!r} cannot be copied, so its {hook!r} changed nothing and the state from before "
            f"stays: {type(cause).__name__}: {reason}".rstrip(": "),
            given=f"{kind} at state{place}" if place else f"{kind} as the whole state",
            hint=hint,
            layer_id=layer_id,
            hook=hook,
        )
        self.__cause__ = cause


def _uncopied(value: Any, place: str = "", depth: int = 0) -> tuple[str, str]:
    """Return the type and path of the value in a state that cannot be copied."""
    inside: Any = value.items() if type(value) is dict else enumerate(value) if type(value) in (list, tuple) else ()
    for key, inner in inside if depth < _DEEPEST else ():
        try:
            deep_copy(inner)
        except Exception:
            step = f".{key}" if type(key) is str else f"[{key}]" if type(key) is int else "[...]"
            return _uncopied(inner, place + step, depth + 1)
    return type(value).__name__, place


def is_same(state: Any, other: Any) -> bool:
    """Tell whether two states are equal; values that cannot be compared, such as arrays, count as different."""
    try:
        return bool(state == other)
    except Exception:
        return False


def snapshot_of(state: Any) -> Any:
    """Return a copy of a state for all readers, by its ``snapshot()`` if it has one."""
    own = None if type(state) is dict else getattr(type(state), "snapshot", None)
    return _copied(state, {}) if own is None else own(state)


def frozen_state(state: Any) -> Any:
    """Return a state for a run as immutable JSON data; a class with a method ``frozen()`` creates it itself."""
    own = None if type(state) is dict else getattr(type(state), "frozen", None)
    return frozen_data(state) if own is None else own(state)


def _copied(value: Any, memo: _Memo) -> Any:
    kind = type(value)
    if kind in FLAT or kind is FrozenDict:
        return value
    if kind is not dict and kind is not list:
        return copy.deepcopy(value, memo)  # the memo shares objects with the rest
    if id(value) in memo:
        return memo[id(value)]
    # Stored before it is filled: a state may contain itself, or the same list twice.
    made: Any = kind()
    memo[id(value)] = made
    if kind is dict:
        for key, inner in value.items():
            made[key if type(key) in FLAT else _copied(key, memo)] = _copied(inner, memo)
    else:
        made += [inner if type(inner) in FLAT else _copied(inner, memo) for inner in value]
    return made
