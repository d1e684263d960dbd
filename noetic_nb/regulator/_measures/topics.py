"""The topic words of a text, and the cluster under which corrections are stored.

Release mode keeps the first ten topics *alphabetically*, newer mode the twenty most frequent; the cluster is
alphabetical in both, because snapshots use it as a key. "Letter" means Unicode Alphabetic or a number, which is wider
than `str.isalnum`: otherwise a Hindi word that ends in a vowel sign would lose its last character. Triggers are matched
in folded text, used only for that: characters classified differently by Python and the original, such as combining
marks, are replaced by characters of the original's class.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

_DATA: Final = Path(__file__).parent / "data"


def load_data(name: str) -> dict[str, Any]:
    """Return one of the data files in this folder."""
    loaded: dict[str, Any] = json.loads((_DATA / name).read_text(encoding="utf-8"))
    return loaded


def code_points(ranges: list[list[int]]) -> frozenset[str]:
    """Return the characters of inclusive ranges."""
    return frozenset(chr(code) for first, last in ranges for code in range(first, last + 1))


_EXTRA_LETTERS: Final = code_points(load_data("extra_alnum.json")["ranges"])


def is_letter(char: str) -> bool:
    """Tell whether a character is a letter or a number; marks of Indian scripts count as letters."""
    return char.isalnum() or char in _EXTRA_LETTERS


def trimmed(token: str) -> str:
    """Strip characters that are neither letters nor numbers from both ends of a token."""
    first, last = 0, len(token)
    while first < last and not is_letter(token[first]):
        first += 1
    while last > first and not is_letter(token[last - 1]):
        last -= 1
    return token[first:last]


@dataclass(frozen=True, slots=True)
class WordLists:
    """Words that are never topics, and short words that are.

    Parameters
    ----------
    stop_words : frozenset of str
        Lower-case words to exclude.
    short_terms : frozenset of str
        Lower-case words to keep although they have fewer than three bytes.
    drop_numbers : bool
        Exclude tokens of digits only, so that an id in a prompt does not change its topics.

    Examples
    --------
    >>> RELEASE_WORDS.is_topic("refactor"), RELEASE_WORDS.is_topic("the"), RELEASE_WORDS.is_topic("ai")
    (True, False, True)
    """

    stop_words: frozenset[str]
    short_terms: frozenset[str] = frozenset()
    drop_numbers: bool = False

    def is_topic(self, token: str) -> bool:
        """Tell whether to keep a trimmed, lower-case token."""
        if token in self.stop_words or (self.drop_numbers and token.isdecimal()):
            return False
        # Three bytes, not characters: "né" and a single CJK character are topics.
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
    """Return a text of the same length whose characters have the same class in Python as in the original."""
    if text.isascii() and not any(mark in text for mark in _NOT_REALLY_SPACE):
        return text
    return text.translate(_stand_ins())


@cache
def lexicon() -> dict[str, Any]:
    """Return the trigger lists; loaded when session values are first needed."""
    return load_data("path1_lexicon.json")


@cache
def emoji() -> frozenset[str]:
    """Return the characters with the Unicode property Emoji, which include digits, ``#`` and ``*``."""
    return code_points(load_data("emoji.json")["ranges"])


def any_of(entries: list[str], *, whole: bool) -> str:
    """Return a pattern for any of the entries at a word start, and with `whole` also at a word end."""
    body = "|".join(re.escape(entry) for entry in sorted(entries, key=len, reverse=True))
    return rf"\b(?:{body})\b" if whole else rf"\b(?:{body})"


TopicOrder: TypeAlias = Literal["alphabetical", "ranked"]

TOPIC_LIMIT: Final = 10
TOPIC_KEYWORD_CAP: Final = 20
"""Most topics in a bag of the newer mode."""

_MARKS: Final = ",;:!?.()[]{}/\\"
_SPACED: Final = {ord(mark): " " for mark in _MARKS}
# str.split() also splits at U+001C to U+001F, the original does not; texts with one of them take the slow path.
_SEPARATORS_OF_PYTHON: Final = ("\x1c", "\x1d", "\x1e", "\x1f")
_RUNS: Final = re.compile("[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000" + re.escape(_MARKS) + "]+")


def byte_length(token: str) -> int:
    return len(token) if token.isascii() else len(token.encode("utf-8", "surrogatepass"))


def _pieces(text: str) -> list[str]:
    for mark in _SEPARATORS_OF_PYTHON:
        if mark in text:
            return _RUNS.split(text.lower())
    return text.lower().translate(_SPACED).split()


@dataclass(frozen=True, slots=True)
class Topics:
    """How topics are extracted from a text.

    Parameters
    ----------
    order : {"alphabetical", "ranked"}
        Release mode sorts by code point; newer mode by frequency, then length in bytes, both descending, then code point.
    limit : int
        How many topics to keep.
    words : WordLists
        Words that are never topics, and short ones that are.

    References
    ----------
    .. [1] docs/behaviour/regulator.md, "Topics".

    Examples
    --------
    >>> RELEASE_TOPICS("Debug my async auth, please debug it")
    ('async', 'auth', 'debug', 'please')
    >>> RANKED_TOPICS("Debug my async auth, please debug it")
    ('debug', 'please', 'async', 'auth')
    """

    order: TopicOrder = "alphabetical"
    limit: int = TOPIC_LIMIT
    words: WordLists = RELEASE_WORDS

    def __post_init__(self) -> None:
        if self.order not in ("alphabetical", "ranked"):
            raise ValueError(f"order must be 'alphabetical' or 'ranked'. Given: {self.order!r}.")
        if not isinstance(self.limit, int) or self.limit < 1:
            raise ValueError(f"limit must be at least 1. Given: {self.limit!r}.")

    def __call__(self, text: str) -> tuple[str, ...]:
        if self.order == "ranked":
            counts = Counter(token for token in map(trimmed, _pieces(text)) if self._keeps(token))
            return tuple(sorted(counts, key=lambda token: (-counts[token], -byte_length(token), token))[: self.limit])
        return tuple(sorted(self.distinct(text))[: self.limit])

    def distinct(self, text: str) -> list[str]:
        """Return the distinct topics of a text, unlimited and unordered."""
        # Most words of a reply repeat, so build the set before processing words.
        return [token for token in set(map(trimmed, set(_pieces(text)))) if self._keeps(token)]

    def _keeps(self, token: str) -> bool:
        return bool(token) and self.words.is_topic(token)


def cluster_of(topics: Iterable[str]) -> str:
    """Return the two alphabetically first topics of three bytes or more, as ``"async+auth"``; ``""`` for no cluster."""
    # Sorted whatever the order of the topics: snapshots use clusters as keys.
    long_enough = sorted(topic.lower() for topic in topics if byte_length(topic) >= 3)
    return "+".join(long_enough[:2])


RELEASE_TOPICS: Final = Topics()  # alphabetical, ten
RANKED_TOPICS: Final = Topics(order="ranked", limit=TOPIC_KEYWORD_CAP)
"""Ranked, twenty: the option of the newest original."""
