"""Which words a text is about, and the cluster that corrections are filed under.

Release mode keeps the first ten topics *alphabetically*, newer mode the twenty most frequent; the cluster is alphabetical
in both, because snapshots are keyed by it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from noetic_nb.regulator._measures.word_lists import RELEASE_WORDS, WordLists, trimmed

TopicOrder: TypeAlias = Literal["alphabetical", "ranked"]

TOPIC_LIMIT: Final = 10
TOPIC_KEYWORD_CAP: Final = 20
"""How many topics a bag holds, in release and in newer mode."""

_MARKS: Final = ",;:!?.()[]{}/\\"
_SPACED: Final = {ord(mark): " " for mark in _MARKS}
# str.split() also separates at U+001C to U+001F, the original does not; texts that hold one take the slow way.
_SEPARATORS_OF_PYTHON: Final = ("\x1c", "\x1d", "\x1e", "\x1f")
_RUNS: Final = re.compile("[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000" + re.escape(_MARKS) + "]+")


def byte_length(token: str) -> int:
    """Return the length of a token in UTF-8."""
    return len(token) if token.isascii() else len(token.encode("utf-8", "surrogatepass"))


def _pieces(text: str) -> list[str]:
    for mark in _SEPARATORS_OF_PYTHON:
        if mark in text:
            return _RUNS.split(text.lower())
    return text.lower().translate(_SPACED).split()


@dataclass(frozen=True, slots=True)
class Topics:
    """How topics are taken from a text.

    Parameters
    ----------
    order : {"alphabetical", "ranked"}
        Release mode sorts by code point; newer mode by frequency, then length in bytes, both falling, then code point.
    limit : int
        How many are kept.
    words : WordLists
        What is never, and what is always, a topic.

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
        """Return the topics of a text, in order."""
        if self.order == "ranked":
            counts = Counter(token for token in map(trimmed, _pieces(text)) if self._keeps(token))
            return tuple(sorted(counts, key=lambda token: (-counts[token], -byte_length(token), token))[: self.limit])
        return tuple(sorted(self.distinct(text))[: self.limit])

    def distinct(self, text: str) -> list[str]:
        """Return every topic of a text once, uncut and in no order."""
        # Most words of a reply repeat, so the set comes before the per-word work.
        return [token for token in set(map(trimmed, set(_pieces(text)))) if self._keeps(token)]

    def _keeps(self, token: str) -> bool:
        return bool(token) and self.words.is_topic(token)


def cluster_of(topics: Iterable[str]) -> str:
    """Return the two alphabetically first topics of one message with at least three bytes, such as ``"async+auth"``.

    One topic alone, or ``""``, which means "no cluster" everywhere.
    """
    # Sorted whatever the order of the topics: snapshots are keyed by clusters.
    long_enough = sorted(topic.lower() for topic in topics if byte_length(topic) >= 3)
    return "+".join(long_enough[:2])


RELEASE_TOPICS: Final = Topics()
"""Alphabetical, ten."""
RANKED_TOPICS: Final = Topics(order="ranked", limit=TOPIC_KEYWORD_CAP)
"""Ranked, twenty: the option of the newest original."""
