"""The facts that a reader declares to read, and the unread parts of a source: keys that no reader knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from noetic_nb.items._messages.message import shown

FACTS: Final = (
    "turns", "model calls", "tool calls", "tokens", "cached", "written", "reasoning", "costs", "errors", "times", "labels",
    "children", "compactions", "system prompt", "tool definitions", "any size",
)  # fmt: skip
"""Tokens are those in and out; cached ones, those written to a cache and those of reasoning have a column each."""
EVERYTHING: Final = frozenset(FACTS)

NOTHING: Final[tuple[Any, ...]] = (None, "", [], {}, ())
WRONG: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What a record raises that is not as its format has it."""
_DEEPEST: Final = 40
# Of a key that every line of a long log has, so many values say what it is.
_MOST_VALUES: Final = 100


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a format, wherever they stand.

    `read` and `inside` are read, but what stands below the keys of `read` is looked at, too, while all that is below those of
    `inside` is kept as it is. `passed` says why the others are left out.
    """

    read: frozenset[str]
    inside: frozenset[str] = frozenset()
    passed: Mapping[str, str] = field(default_factory=dict)

    def unread(self, value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        """Yield the path and the value of each key that is not known; places in lists are left out of a path."""
        return self._unread(value, path, 0)

    def _unread(self, value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if key in self.inside or key in self.passed or inner in NOTHING:
                    continue
                below = f"{path}.{key}" if path else str(key)
                if key not in self.read or depth > _DEEPEST:
                    yield below, inner
                elif isinstance(inner, Mapping | list | tuple):
                    yield from self._unread(inner, below, depth + 1)
        elif isinstance(value, list | tuple) and depth <= _DEEPEST:
            is_of_records = any(isinstance(each, Mapping) for each in value)
            for each in value:
                if isinstance(each, Mapping | list | tuple):
                    yield from self._unread(each, path, depth + 1)
                elif is_of_records and each not in NOTHING:
                    yield f"{path}[]", each


class Unread:
    """The unread values of a log, by their paths."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, dict[str, Any]]] = {}
        self._count: dict[str, int] = {}

    def look(self, place: str, value: Any, known: Keys, path: str = "") -> None:
        """Look at a record at a place."""
        for below, inner in known.unread(value, path):
            _, values = self._found.setdefault(below, (f"{place}.{below}" if place else below, {}))
            self._count[below] = self._count.get(below, 0) + 1
            if len(values) < _MOST_VALUES:
                values.setdefault(repr(inner)[:200], inner)

    def notes(self) -> Iterator[dict[str, Any]]:
        """Yield a note for each path: where it stood first, its value, or its values."""
        for path, (place, values) in self._found.items():
            held = list(values.values())
            what = "no place in a run" if self._count[path] == 1 else f"no place in a run, {self._count[path]} times"
            yield {"place": place, "what": what, "value": shown(held[0] if len(held) == 1 else held)}
