"""Data of a record that is frozen when it is first read: most of what a run writes down is looked at later, or never."""

from __future__ import annotations

import threading
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, TypeVar

from noetic_nb.items.frozen import thaw
from noetic_nb.items.kept_data import frozen_data

__all__ = ["Later", "frozen_when_read", "held_by"]

_Record = TypeVar("_Record")
# Two threads that read at once get the same object.
_LOCK: Final = threading.Lock()
_HELD: Final[dict[tuple[type[Any], str], Callable[[Any], Any]]] = {}


class Later:
    """Data that nobody writes into any more, not frozen yet: hand it to a record of `frozen_when_read` in its place."""

    __slots__ = ("data",)

    def __init__(self, data: Any) -> None:
        self.data = data


def frozen_when_read(name: str) -> Callable[[type[_Record]], type[_Record]]:
    """Let a field of a dataclass with slots take a `Later`; whoever reads the field gets its data, frozen once and for all.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @frozen_when_read("state")
    ... @dataclass(frozen=True, slots=True)
    ... class Note:
    ...     state: object
    >>> note = Note(Later({"ids": [1, 2]}))
    >>> note.state, note.state is note.state, Note([1]).state
    ({'ids': (1, 2)}, True, [1])
    """

    def with_property(cls: type[_Record]) -> type[_Record]:
        slot = getattr(cls, name)
        get, put = slot.__get__, slot.__set__

        def read(self: _Record) -> Any:
            value = get(self)
            if type(value) is Later:
                with _LOCK:
                    value = get(self)
                    if type(value) is Later:
                        value = frozen_data(thaw(value.data))
                        put(self, value)
            return value

        setattr(cls, name, property(read, put))
        _HELD[cls, name] = get
        return cls

    return with_property


def held_by(cls: type[Any], name: str) -> Callable[[Any], Any]:
    """Return what gets the value of a field as it is held: a `Later` where nobody has read it."""
    return _HELD.get((cls, name)) or attrgetter(name)
