"""Turn texts into vectors whose angle says how much they have in common.

`HashingEmbedder` needs no model and no network and gives the same vectors on every machine. It sees shared words and word
stems, not meaning: "car" and "automobile" are strangers to it. Pass an embedder of your own where that matters.

`KeywordIndex` tells which texts share rare words with a query, by BM25. Words are compared as they are written, without case;
scripts without blanks between words, such as Chinese, by pairs of characters.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, KeysView, Sequence
from typing import Final, Protocol, TypeAlias

from noetic_nb.errors import NoeticConfigError

# How soon a word that is repeated stops to count more, and how much a long text is held against it: within the ranges that
# Robertson and Zaragoza (2009) call reasonably good, 1.2 to 2 and 0.5 to 0.8, with little repetition in short messages.
K1: Final = 1.2
B: Final = 0.75

# Kana, Han and Hangul.
_UNSPACED: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f"
_WORDS: Final = re.compile(rf"[{_UNSPACED}]+|[^\W{_UNSPACED}]+")
_IS_UNSPACED: Final = re.compile(f"[{_UNSPACED}]")


def words_of(text: str) -> list[str]:
    """Return the words of a text that say something, pairs of characters where words are not set apart."""
    found: list[str] = []
    for word in _WORDS.findall(text.casefold()):
        if _IS_UNSPACED.match(word):
            found += [word[n : n + 2] for n in range(max(1, len(word) - 1))]
        elif word not in COMMON:
            found.append(word)
    return found


def root_of(word: str) -> str:
    """Return a word in small letters without its English endings: "packed" and "packing" have one root."""
    if not word.isascii() or len(word) < 4:
        return word
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    if word.endswith("ied"):
        return word[:-3] + "y"
    for end in ("ing", "ed"):
        if word.endswith(end) and len(word) - len(end) >= 3 and any(vowel in word[: -len(end)] for vowel in "aeiouy"):
            word = word[: -len(end)]
            return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz" else word
    return word


class KeywordIndex:
    """Texts by key, searched by BM25 [1]_; a look takes as long as the query's words have texts.

    With `roots` words are compared without their English endings.

    References
    ----------
    .. [1] Robertson, S. and Zaragoza, H. (2009). The Probabilistic Relevance Framework: BM25 and Beyond. Foundations and
       Trends in Information Retrieval 3 (4), 333-389, section 3.
    """

    def __init__(self, *, roots: bool = False) -> None:
        self._roots = roots
        self._places: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._words: dict[str, list[str]] = {}
        self._total = 0
        # How much the length of each text is held against it; of all texts, so that a change of one is a change of all.
        self._against: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._words)

    @property
    def keys(self) -> KeysView[str]:
        return self._words.keys()

    def add(self, key: str, text: str) -> None:
        """Add a text, or replace the one with this key."""
        self.remove(key)
        self._against = {}
        words = self._words[key] = self._split(text)
        self._total += len(words)
        for word, count in Counter(words).items():
            self._places[word][key] = count

    def _split(self, text: str) -> list[str]:
        # "live" and "living" differ in one letter more.
        return [root_of(word).removesuffix("e") for word in words_of(text)] if self._roots else words_of(text)

    def remove(self, key: str) -> None:
        """Forget a text, where there is one with this key."""
        self._against = {}
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
        if not self._against and self._total:
            mean = self._total / size
            self._against = {key: K1 * (1 - B + B * len(words) / mean) for key, words in self._words.items()}
        for word in dict.fromkeys(self._split(query)):
            places = self._places.get(word, {})
            weight = math.log(1 + (size - len(places) + 0.5) / (len(places) + 0.5))
            for key, count in places.items():
                found[key] += weight * count * (K1 + 1) / (count + self._against[key])
        return dict(found)


Vector: TypeAlias = Sequence[float]

_WORD: Final = re.compile(r"\w+")
# Words so common that sharing them says nothing; the hundred most frequent of English prose, shortened to function words.
_COMMON_TEXT: Final = """
    a about after all also am an and any are as at be because been but by can could did do does for from get had has have he
    her him his how i if in into is it its just like may me more my no not now of on one only or other our out over she should
    so some than that the their them then there these they this to up us was we were what when where which who why will with
    would you your"""
COMMON: Final = frozenset(_COMMON_TEXT.split())
# Pieces of words weigh less than the word itself: they catch inflection ("packed", "packing").
PIECE_WEIGHT: Final = 0.35
PIECE_LENGTH: Final = 4


EmbedTexts: TypeAlias = Callable[[Sequence[str]], Sequence[Vector] | Awaitable[Sequence[Vector]]]
"""An embedder as a plain function, sync or async."""


class Embedder(Protocol):
    """Makes vectors of equal length; the same text always has the same vector. May be async."""

    def embed(self, texts: Sequence[str]) -> Sequence[Vector] | Awaitable[Sequence[Vector]]:
        """Return one vector per text."""
        ...


class HashingEmbedder:
    """Vectors from hashed words and pieces of words, of length 1 (0 for a text without words).

    Parameters
    ----------
    dimensions : int
        Length of the vectors; fewer means more chance neighbours.

    Examples
    --------
    >>> one, two, three = HashingEmbedder().embed(["order A17 was packed", "is A17 packed?", "nice weather"])
    >>> cosine(one, two) > 0.5 > cosine(one, three)
    True
    """

    def __init__(self, dimensions: int = 256) -> None:
        if not isinstance(dimensions, int) or dimensions < 1:
            what = "A vector needs at least one dimension."
            raise NoeticConfigError("INVALID_LAYER_OPTION", what, given=dimensions, hint="Use 256.")
        self.dimensions = dimensions

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text."""
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        weights: defaultdict[str, float] = defaultdict(float)
        words = Counter(word for word in _WORD.findall(text.casefold()) if word not in COMMON)
        for word, count in words.items():
            weight = 1.0 + math.log(count)  # a word that occurs ten times is not ten times as important
            weights[word] += weight
            if len(word) > PIECE_LENGTH:
                weights["^" + word[:PIECE_LENGTH]] += PIECE_WEIGHT * weight
        vector = [0.0] * self.dimensions
        for feature, weight in weights.items():
            # A checksum, not `hash`: that one differs from process to process.
            code = zlib.crc32(feature.encode("utf-8", "surrogatepass"))
            # The sign is from another bit, so that words which share a place by chance cancel out rather than add up.
            vector[code % self.dimensions] += weight if code & 0x8000_0000 else -weight
        size = math.sqrt(sum(x * x for x in vector))
        return [x / size for x in vector] if size else vector

    def __repr__(self) -> str:
        return f"HashingEmbedder({self.dimensions})"


def cosine(one: Vector, two: Vector) -> float:
    """Return the cosine of the angle between two vectors, 0 where one is nothing; raises `ValueError` if their lengths differ."""
    dot = sum([a * b for a, b in zip(one, two, strict=True)])
    sizes = math.sqrt(sum([a * a for a in one]) * sum([b * b for b in two]))
    return dot / sizes if sizes else 0.0
