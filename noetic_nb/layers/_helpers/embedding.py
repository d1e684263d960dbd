"""Turn texts into vectors whose angle measures their similarity.

`HashingEmbedder` needs no model or network and gives the same vectors on every machine. It compares words and word
stems, not meaning: "car" and "automobile" are unrelated to it. Pass your own embedder if that matters.

`KeywordIndex` finds texts that share rare words with a query, by BM25. Words are compared as written, ignoring case;
scripts without spaces between words, such as Chinese, by pairs of characters.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, KeysView, Sequence
from typing import Final, Protocol, TypeAlias

from noetic_nb.errors import NoeticConfigError

# Saturation for repeated words, and the penalty for long texts: within the ranges that Robertson and Zaragoza (2009)
# call reasonably good, 1.2 to 2 and 0.5 to 0.8; short messages repeat few words.
K1: Final = 1.2
B: Final = 0.75

_UNSPACED: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f"
_WORDS: Final = re.compile(rf"[{_UNSPACED}]+|[^\W{_UNSPACED}]+")
_IS_UNSPACED: Final = re.compile(f"[{_UNSPACED}]")


def words_of(text: str) -> list[str]:
    """Return the content words of a text, or pairs of characters in scripts without spaces."""
    found: list[str] = []
    for word in _WORDS.findall(text.casefold()):
        if _IS_UNSPACED.match(word):
            found += [word[n : n + 2] for n in range(max(1, len(word) - 1))]
        elif word not in COMMON:
            found.append(word)
    return found


def root_of(word: str) -> str:
    """Return a word in lower case without its English endings: "packed" and "packing" have one root."""
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
    """Texts by key, searched by BM25 [1]_; a search takes time proportional to the texts that contain the query's words.

    With `roots`, words are compared without their English endings.

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
        # The length penalties of all texts; they depend on the mean length, so every change invalidates all.
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
        # "live" and "living" differ by one more letter.
        return [root_of(word).removesuffix("e") for word in words_of(text)] if self._roots else words_of(text)

    def remove(self, key: str) -> None:
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

        The weight of a word is ``ln(1 + (N - n + 0.5) / (n + 0.5))`` for n of N texts: the 1 keeps it above 0 for a
        word in most texts.
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
# Words too common to be informative; the hundred most frequent of English prose, limited to function words.
_COMMON_TEXT: Final = """
    a about after all also am an and any are as at be because been but by can could did do does for from get had has have he
    her him his how i if in into is it its just like may me more my no not now of on one only or other our out over she should
    so some than that the their them then there these they this to up us was we were what when where which who why will with
    would you your"""
COMMON: Final = frozenset(_COMMON_TEXT.split())
# Pieces of words weigh less than the word itself: they match inflections ("packed", "packing").
PIECE_WEIGHT: Final = 0.35
PIECE_LENGTH: Final = 4


EmbedTexts: TypeAlias = Callable[[Sequence[str]], Sequence[Vector] | Awaitable[Sequence[Vector]]]
"""An embedder as a plain function, sync or async."""


class Embedder(Protocol):
    """Makes vectors of equal length; equal texts have equal vectors. May be async."""

    def embed(self, texts: Sequence[str]) -> Sequence[Vector] | Awaitable[Sequence[Vector]]:
        """Return one vector per text."""
        ...


class HashingEmbedder:
    """Vectors from hashed words and pieces of words, of length 1 (0 for a text without words).

    Parameters
    ----------
    dimensions : int
        Length of the vectors; fewer dimensions mean more accidental neighbours.

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
            weight = 1.0 + math.log(count)  # ten occurrences are not ten times as important
            weights[word] += weight
            if len(word) > PIECE_LENGTH:
                weights["^" + word[:PIECE_LENGTH]] += PIECE_WEIGHT * weight
        vector = [0.0] * self.dimensions
        for feature, weight in weights.items():
            # A checksum, because `hash` differs between processes.
            code = zlib.crc32(feature.encode("utf-8", "surrogatepass"))
            # The sign comes from another bit, so that words with colliding hashes cancel out rather than add up.
            vector[code % self.dimensions] += weight if code & 0x8000_0000 else -weight
        size = math.sqrt(sum(x * x for x in vector))
        return [x / size for x in vector] if size else vector

    def __repr__(self) -> str:
        return f"HashingEmbedder({self.dimensions})"


def cosine(one: Vector, two: Vector) -> float:
    """Return the cosine of the angle of two vectors, 0 if one is zero; raises `ValueError` if their lengths differ."""
    dot = sum([a * b for a, b in zip(one, two, strict=True)])
    sizes = math.sqrt(sum([a * a for a in one]) * sum([b * b for b in two]))
    return dot / sizes if sizes else 0.0
