"""Data of a record that is frozen when it is first read, and states that are made then: most is looked at later, or never."""

from __future__ import annotations

import threading
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from noetic_nb.items.frozen import thaw
from noetic_nb.items.kept_data import frozen_data

__all__ = ["LateState", "Later", "as_late", "frozen_when_read", "held_by", "made_state", "written_state"]

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


class LateState:
    """What a state is made of, none of which changes; `LayerStateStore` makes it for whoever gets it.

    A state of a class with a method ``as_late()``, which returns a `LateState` or None, is kept as that as long as nobody but
    the history of changes and a run want a copy of it.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # each kind has its own

        def size(self, size_of: Callable[[Any], int]) -> int:
            """Return about how many bytes it takes, given what measures data."""

        def made(self) -> Any:
            """Return the state as its layer has it, another one each time."""

        def as_written(self) -> Any:
            """Return the state as it was written, also where its layer has gone on since; another one each time."""


def as_late(state: Any) -> LateState | None:
    """Return the late form of a state, None where it has none.

    Examples
    --------
    >>> as_late("as it is")
    """
    if isinstance(state, LateState):
        return state
    own = getattr(type(state), "as_late", None)
    late: LateState | None = None if own is None else own(state)
    return late


def made_state(state: Any) -> Any:
    """Return a state as its layer has it, made now if it is late.

    Examples
    --------
    >>> made_state("as it is")
    'as it is'
    """
    return state.made() if isinstance(state, LateState) else state


def written_state(kept: Any) -> Any:
    """Return what was kept of a state when it was written, made now if it is late.

    Examples
    --------
    >>> written_state("as it is")
    'as it is'
    """
    return kept.as_written() if isinstance(kept, LateState) else kept
