"""Keyword search: which texts share rare words with a query, by BM25.

Words are compared as they are written, without case. Scripts without blanks between words, such as Chinese, are compared by
pairs of characters.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import KeysView
from typing import Final

from noetic_nb.layers._helpers.embedding import COMMON

__all__ = ["KeywordIndex", "words_of"]

# How soon a word that is repeated stops to count more, and how much a long text is held against it: within the ranges that
# Robertson and Zaragoza (2009) call reasonably good, 1.2 to 2 and 0.5 to 0.8, with little repetition in short messages.
K1: Final = 1.2
B: Final = 0.75

# Kana, Han and Hangul.
_UNSPACED: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f"
_WORDS: Final = re.compile(rf"[{_UNSPACED}]+|[^\W{_UNSPACED}]+")
_IS_UNSPACED: Final = re.compile(f"[{_UNSPACED}]")


def words_of(text: str) -> list[str]:
    """Return the words of a text that say something, pairs of characters where words are not set apart.

    Examples
    --------
    >>> words_of("The order A17 is packed."), words_of("東京タワー")
    (['order', 'a17', 'packed'], ['東京', '京タ', 'タワ', 'ワー'])
    """
    found: list[str] = []
    for word in _WORDS.findall(text.casefold()):
        if _IS_UNSPACED.match(word):
            found += [word[n : n + 2] for n in range(max(1, len(word) - 1))]
        elif word not in COMMON:
            found.append(word)
    return found


class KeywordIndex:
    """Texts by key, searched by BM25; a look takes as long as the query's words have texts.

    References
    ----------
    .. [1] Robertson, S. and Zaragoza, H. (2009). The Probabilistic Relevance Framework: BM25 and Beyond. Foundations and
       Trends in Information Retrieval 3 (4), 333-389, section 3.

    Examples
    --------
    >>> index = KeywordIndex()
    >>> index.add("a", "The order A17 is packed.")
    >>> index.add("b", "The order B2 is late.")
    >>> list(index.scores("Where is A17?")), len(index)
    (['a'], 2)
    """

    def __init__(self) -> None:
        self._places: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._words: dict[str, list[str]] = {}
        self._total = 0

    def __len__(self) -> int:
        return len(self._words)

    @property
    def keys(self) -> KeysView[str]:
        """The keys of the texts."""
        return self._words.keys()

    def add(self, key: str, text: str) -> None:
        """Add a text, or replace the one with this key."""
        self.remove(key)
        words = self._words[key] = words_of(text)
        self._total += len(words)
        for word, count in Counter(words).items():
            self._places[word][key] = count

    def remove(self, key: str) -> None:
        """Forget a text, where there is one with this key."""
        words = self._words.pop(key, [])
        self._total -= len(words)
        for word in set(words):
            places = self._places[word]
            del places[key]
            if not places:
                del self._places[word]

    def scores(self, query: str) -> dict[str, float]:
        """Return the scores of the texts that share a word with a query, all above 0.

        The weight of a word is ``ln(1 + (N - n + 0.5) / (n + 0.5))`` for n of N texts: the 1 keeps it above 0 for a word that
        most texts have.
        """
        found: defaultdict[str, float] = defaultdict(float)
        size = len(self._words)
        mean = self._total / size if size else 0.0
        for word in dict.fromkeys(words_of(query)):
            places = self._places.get(word, {})
            weight = math.log(1 + (size - len(places) + 0.5) / (len(places) + 0.5))
            for key, count in places.items():
                length = 1 - B + B * len(self._words[key]) / mean
                found[key] += weight * count * (K1 + 1) / (count + K1 * length)
        return dict(found)
