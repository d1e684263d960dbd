"""Word lists and letters for topics and triggers, as data that can be replaced.

"Letter" here means Unicode Alphabetic or a number, which is wider than `str.isalnum`: without the extra code points a
Hindi word that ends in a vowel sign would lose its last character.

Triggers are matched in folded text, which is for nothing else: characters that Python and the original class differently, such
as combining marks, are replaced by stand-ins of the class that they have there.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

_DATA: Final = Path(__file__).parent / "data"


def load_data(name: str) -> dict[str, Any]:
    """Return one of the data files beside this module."""
    loaded: dict[str, Any] = json.loads((_DATA / name).read_text(encoding="utf-8"))
    return loaded


def code_points(ranges: list[list[int]]) -> frozenset[str]:
    """Return the characters of inclusive ranges."""
    return frozenset(chr(code) for first, last in ranges for code in range(first, last + 1))


_EXTRA_LETTERS: Final = code_points(load_data("extra_alnum.json")["ranges"])


def is_letter(char: str) -> bool:
    """Say whether one character is a letter or a number; marks of Indian scripts are letters."""
    return char.isalnum() or char in _EXTRA_LETTERS


def trimmed(token: str) -> str:
    """Return a token without the characters at both ends that are neither letter nor number."""
    first, last = 0, len(token)
    while first < last and not is_letter(token[first]):
        first += 1
    while last > first and not is_letter(token[last - 1]):
        last -= 1
    return token[first:last]


@dataclass(frozen=True, slots=True)
class WordLists:
    """Which words never are topics, and which short ones are.

    Parameters
    ----------
    stop_words : frozenset of str
        Lower-case words to drop.
    short_terms : frozenset of str
        Lower-case words kept although they have fewer than three bytes.
    drop_numbers : bool
        Drop tokens made of digits only, so that an id in a prompt does not change its topics.

    Examples
    --------
    >>> RELEASE_WORDS.is_topic("refactor"), RELEASE_WORDS.is_topic("the"), RELEASE_WORDS.is_topic("ai")
    (True, False, True)
    """

    stop_words: frozenset[str]
    short_terms: frozenset[str] = frozenset()
    drop_numbers: bool = False

    def is_topic(self, token: str) -> bool:
        """Say whether a trimmed, lower-case token is kept."""
        if token in self.stop_words or (self.drop_numbers and token.isdecimal()):
            return False
        # The three are bytes, not characters: "né" and a single CJK character are topics.
        return len(token) >= 3 or len(token.encode("utf-8", "surrogatepass")) >= 3 or token in self.short_terms


_TOPIC_WORDS: Final = load_data("topic_words.json")

RELEASE_WORDS: Final = WordLists(
    stop_words=frozenset(_TOPIC_WORDS["stop_words"]), short_terms=frozenset(_TOPIC_WORDS["short_tech_terms"])
)
"""The lists of release 0.4.1: 106 English stop words and 19 technical terms."""


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
    """Return a text of the same length whose characters are of the class that the original gives them."""
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
    """Return a pattern for any of the entries at a word start, and at a word end too when `whole`.

    Behind a mark, as in ``help!``, a word ends only where a word character follows: such is a word boundary.
    """
    body = "|".join(re.escape(entry) for entry in sorted(entries, key=len, reverse=True))
    return rf"\b(?:{body})\b" if whole else rf"\b(?:{body})"
