"""The part of a response that a condition is about, for readers of a rejection.

A condition only says that it holds. Which text it found is looked for afterwards, in what its tests of ``response.text``
name, and only where it decided something.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from noetic_nb.memory.steering_decision import MAX_MATCHED, MAX_PARTS
from noetic_nb.steering.predicates.cel_names import cel_tokens

__all__ = ["matched_text"]

_Find: TypeAlias = Callable[[str], str | None]

_TEXT: Final = ["response", ".", "text", "."]
# Longer answers are not looked through: each step of the search is an evaluation.
MAX_SEARCHED: Final = 200_000


def matched_text(condition: str, compile_cel: Callable[[str], Any]) -> Callable[[str], tuple[str, ...]] | None:
    """Return a function that finds the text that a condition tests for in a response; None where it tests no text.

    Examples
    --------
    >>> find = matched_text("response.text.contains('refund') || response.text.startsWith('No')", compile_cel=None)
    >>> find("We refund everything.")
    ('refund',)
    """
    finders = tuple(_finders(condition, compile_cel))
    if not finders:
        return None

    def find(text: str) -> tuple[str, ...]:
        if len(text) > MAX_SEARCHED:
            return ()
        found = [part for finder in finders if (part := finder(text))]
        return tuple(dict.fromkeys([part[:MAX_MATCHED] for part in found]))[:MAX_PARTS]

    return find


def _finders(condition: str, compile_cel: Callable[[str], Any]) -> Iterator[_Find]:
    tokens = [(kind, value) for kind, value, _ in cel_tokens(condition)]
    for at in range(len(tokens) - 7):
        if [value for _, value in tokens[at : at + 4]] != _TEXT or tokens[at + 5][1] != "(":
            continue
        (_, name), (kind, literal), (_, closed) = tokens[at + 4], tokens[at + 6], tokens[at + 7]
        if kind != "string" or closed != ")":
            continue
        if name == "matches":
            yield _expression(compile_cel(f"text.matches({literal})"))
        elif name in ("contains", "startsWith", "endsWith") and (wanted := _plain(literal)):
            test = {"contains": str.__contains__, "startsWith": str.startswith, "endsWith": str.endswith}[name]
            yield lambda text, test=test, wanted=wanted: wanted if test(text, wanted) else None  # type: ignore[misc]


def _plain(literal: str) -> str | None:
    """Return the text of a CEL literal; None for bytes, and for escapes that Python reads in another way."""
    try:
        value = ast.literal_eval(literal)
    except (SyntaxError, ValueError):
        return None
    return value if isinstance(value, str) else None


def _expression(program: Any) -> _Find:
    """Find the first match of a regular expression with the library that evaluates it, which never takes long.

    A beginning of the text that holds a match still holds it when it grows, so the end of the first match is found by
    halving; then its start. What depends on its surroundings (the end of a line or a word) may end late or not be found at all.
    """

    def holds(text: str) -> bool:
        return program.execute({"text": text}) is True

    def find(text: str) -> str | None:
        if not holds(text):
            return None
        end = _first(0, len(text), lambda stop: holds(text[:stop]))
        start = end - _first(0, end, lambda size: holds(text[end - size : end]))
        return _words_at(text, start, end) if holds(text[start:end]) else None

    return find


def _words_at(text: str, start: int, end: int) -> str:
    """Return a part of a text with the rest of the words at its ends: the match that was found is the shortest."""
    low, high = max(0, start - MAX_MATCHED), min(len(text), end + MAX_MATCHED)
    while start > low and text[start - 1].isalnum() and text[start].isalnum():
        start -= 1
    while 0 < end < high and text[end].isalnum() and text[end - 1].isalnum():
        end += 1
    return text[start:end]


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the smallest number that holds, where all above it do."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
