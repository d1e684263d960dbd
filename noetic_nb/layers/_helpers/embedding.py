"""Turn texts into vectors whose angle says how much they have in common.

`HashingEmbedder` needs no model and no network and gives the same vectors on every machine. It sees shared words and word
stems, not meaning: "car" and "automobile" are strangers to it. Pass an embedder of your own where that matters.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeAlias

from noetic_nb.errors import NoeticConfigError

__all__ = ["EmbedTexts", "Embedder", "HashingEmbedder", "Vector", "cosine"]

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
            raise NoeticConfigError(
                "INVALID_LAYER_OPTION", "A vector has at least one dimension.", given=dimensions, hint="Use 256."
            )
        self.dimensions = dimensions

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text."""
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        weights: defaultdict[str, float] = defaultdict(float)
        words = Counter(word for word in _WORD.findall(text.casefold()) if word not in COMMON)
        for word, count in words.items():
            # A word that occurs ten times is not ten times as important.
            weight = 1.0 + math.log(count)
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
    """Return the cosine of the angle between two vectors, 0 where one of them is nothing.

    Raises `ValueError` if their lengths differ.

    Examples
    --------
    >>> cosine([1.0, 0.0], [1.0, 1.0])
    0.707...
    """
    dot = sum([a * b for a, b in zip(one, two, strict=True)])
    sizes = math.sqrt(sum([a * a for a in one]) * sum([b * b for b in two]))
    return dot / sizes if sizes else 0.0
