"""Word lists and letters for topic extraction, as data that can be replaced.

"Letter" here means Unicode Alphabetic or a number, which is wider than `str.isalnum`: without the extra code points a
Hindi word that ends in a vowel sign would lose its last character.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["RELEASE_WORDS", "WordLists", "is_letter", "trimmed"]

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
    """Say whether one character is a letter or a number.

    Examples
    --------
    >>> is_letter("é"), is_letter("ि"), is_letter("-")
    (True, True, False)
    """
    return char.isalnum() or char in _EXTRA_LETTERS


def trimmed(token: str) -> str:
    """Return a token without the characters at both ends that are neither letter nor number.

    Examples
    --------
    >>> trimmed('--"foo-bar"--')
    'foo-bar'
    """
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
