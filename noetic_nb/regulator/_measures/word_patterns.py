r"""Lexical triggers as regular expressions that agree with the original's about where a word ends.

Python's ``\w`` differs from the original's word characters (combining marks count there), so a text is first folded: the
characters in dispute are replaced by stand-ins of the class they have there. Folded text is for matching only.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

from noetic_nb.regulator._measures.word_lists import code_points, load_data

__all__ = ["any_of", "emoji", "folded", "lexicon"]

_WORD_STAND_IN: Final = "ħ"
_OTHER_STAND_IN: Final = "¤"
# Python folds dotted and dotless i to "i" when ignoring case; the original's simple case folding does not.
_NOT_REALLY_I: Final = "İı"
_NOT_REALLY_SPACE: Final = "\x1c\x1d\x1e\x1f"


@cache
def _stand_ins() -> dict[int, str]:
    marks = load_data("word_marks.json")
    table = {ord(char): _WORD_STAND_IN for char in code_points(marks["only_uts18"])}
    table |= {ord(char): _OTHER_STAND_IN for char in code_points(marks["only_python"])}
    table |= {ord(char): _WORD_STAND_IN for char in _NOT_REALLY_I}
    return table | {ord(char): _OTHER_STAND_IN for char in _NOT_REALLY_SPACE}


def folded(text: str) -> str:
    r"""Return a text of the same length whose characters are of the class that the original gives them.

    Examples
    --------
    >>> folded("plain"), folded("m²")
    ('plain', 'm¤')
    """
    if text.isascii() and not any(mark in text for mark in _NOT_REALLY_SPACE):
        return text
    return text.translate(_stand_ins())


@cache
def lexicon() -> dict[str, Any]:
    """Return the trigger lists; read once, when session values are first needed."""
    return load_data("path1_lexicon.json")


@cache
def emoji() -> frozenset[str]:
    """Return the characters with the Unicode property Emoji; digits, ``#`` and ``*`` are among them."""
    return code_points(load_data("emoji.json")["ranges"])


def any_of(entries: list[str], *, whole: bool) -> str:
    r"""Return a pattern for any of the entries at a word start, and at a word end too when `whole`.

    An entry that ends in a mark, such as ``help!``, is at a word end only if a word character follows: that is what a word
    boundary means after a character that is not part of a word.

    Examples
    --------
    >>> bool(re.search(any_of(["fail"], whole=False), "it failed")), bool(re.search(any_of(["fail"], whole=True), "it failed"))
    (True, False)
    """
    body = "|".join(re.escape(entry) for entry in sorted(entries, key=len, reverse=True))
    return rf"\b(?:{body})\b" if whole else rf"\b(?:{body})"
