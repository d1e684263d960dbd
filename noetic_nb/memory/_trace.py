"""The trace of a hook: attributes, and events in the order in which they happened.

Both belong to the call of the hook that runs; outside of one, and without a sink, they go nowhere and cost nothing.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from noetic_nb.redact import redact_text

# A hook may fail at every step of a long run: the innermost frames and the end of the text are what people read.
MAX_FRAMES: Final = 12
MAX_STACK_CHARS: Final = 4_000

TraceValue: TypeAlias = str | int | float | bool


# A list, as one is made for each call, and most stay empty.
@dataclass(frozen=True, slots=True)
class Compacted:
    """A part of the context that a layer replaced; the fields are those of `events.ContextCompacted`."""

    items_removed: int
    tokens_before: int
    tokens_after: int
    text: str = ""
    """The text in its place."""
    replaced: tuple[tuple[int, int], ...] = ()


HookNotes: TypeAlias = list[tuple[str, TraceValue] | Mapping[str, Any] | Compacted]
"""Notes of one call of a hook, in order: an attribute as a pair of its key and its value, an event as a mapping."""


# A context variable, because stores run at the same time and each hook must find its own.
CURRENT_NOTES: Final[ContextVar[HookNotes | None]] = ContextVar("noetic_nb_hook_notes", default=None)


class Trace:
    """The trace of the hook that runs now: ``ctx.trace``. Outside of a hook it goes nowhere."""

    __slots__ = ()

    def set_attribute(self, key: str, value: TraceValue) -> None:
        """Note a fact about this call; the last value of a key stays. Only text, numbers and booleans (`TypeError`)."""
        _check(key, value)
        notes = CURRENT_NOTES.get()
        if notes is not None:
            notes.append((key, value))

    def add_event(self, name: str, attributes: Mapping[str, TraceValue] | None = None) -> None:
        """Note that something happened. Raises `TypeError` for an attribute that is not text, a number or a boolean."""
        given = dict(attributes or {})
        for key, value in given.items():
            _check(key, value)
        notes = CURRENT_NOTES.get()
        if notes is not None:
            notes.append({"name": name, "attributes": given})


TRACE: Final = Trace()


def _check(key: str, value: object) -> None:
    if not isinstance(value, str | int | float | bool):
        raise TypeError(f"A trace holds text, numbers and booleans, not {type(value).__name__} under {key!r}.")


def compacted(note: Compacted) -> None:
    """Note that the layer whose hook runs has replaced a part of the context."""
    notes = CURRENT_NOTES.get()
    if notes is not None:
        notes.append(note)


def noted(notes: HookNotes) -> tuple[dict[str, TraceValue] | None, tuple[Mapping[str, Any], ...]]:
    """Return the attributes among some notes, None where there are none, and the events."""
    attributes = dict([note for note in notes if isinstance(note, tuple)])
    return attributes or None, tuple([note for note in notes if isinstance(note, Mapping)])


def error_facts(error: BaseException) -> tuple[str, str, str]:
    """Return the type of an error, its message and where it was raised, without secrets."""
    stack = "".join(traceback.format_exception(error, limit=-MAX_FRAMES))
    # Cut twice: a secret that the first cut halves is not found any more, and falls to the second.
    stack = redact_text(stack[-2 * MAX_STACK_CHARS :])[-MAX_STACK_CHARS:]
    return type(error).__name__, redact_text(str(error)), stack
