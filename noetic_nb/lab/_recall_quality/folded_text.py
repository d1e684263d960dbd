"""Texts as words that compare: without case, diacritics and punctuation."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cached_property
from typing import Final

_WORD: Final = re.compile(r"[^\W_]+")
# Scripts that put no blanks between words: each of their letters stands alone, so that a part of a clause is found.
_UNBROKEN: Final = re.compile(
    "([\u0e00-\u0e7f\u1000-\u109f\u1780-\u17ff\u2e80-\u303f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])"
)
# Letters that are no letter with a mark, as Unicode sees it, and that people leave the mark out of all the same.
_PLAIN: Final = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th", "ð": "d"})
# How German writes its umlauts where there are none.
_SPELT_OUT: Final = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"})
_UMLAUT: Final = re.compile("[äöüÄÖÜ]")


def folded(text: str) -> str:
    """Return the words of a text: no case, no diacritics, one blank between two."""
    if text.isascii():
        return " ".join(_WORD.findall(text.lower()))
    whole = unicodedata.normalize("NFKD", text).casefold().translate(_PLAIN)
    whole = "".join([letter for letter in whole if unicodedata.category(letter) != "Mn"])
    # Marks that compose letters of a script, such as the syllables of Korean, are put together again.
    return " ".join(_WORD.findall(_UNBROKEN.sub(r" \1 ", unicodedata.normalize("NFC", whole))))


def spellings(text: str) -> tuple[str, ...]:
    """Return the folded forms of a text: as it is, and with German umlauts written out."""
    plain = folded(text)
    if text.isascii() or not _UMLAUT.search(unicodedata.normalize("NFC", text)):
        return (plain,)
    return plain, folded(unicodedata.normalize("NFC", text).translate(_SPELT_OUT))


class FoldedTexts:
    """Some texts, and whether words stand in one of them."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(texts)

    @cached_property
    def _streams(self) -> str:
        # A line break keeps the words of two texts apart.
        return "\n".join([f" {form} " for text in self.texts for form in spellings(text)])

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(self._streams.split())

    @cached_property
    def _squeezed(self) -> str:
        return self._streams.replace(" ", "")

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The words of each sentence, each once."""
        found = [folded(part) for text in self.texts for part in re.split(r"[.!?。！？\n]+", text)]
        return tuple(dict.fromkeys([words for words in found if words]))

    def has(self, text: str) -> bool:
        """Tell whether a text stands in one of these, word for word."""
        # Most of what is looked for is not there, which one look at its first word tells.
        return any(
            form and form.partition(" ")[0] in self.words and f" {form} " in self._streams for form in spellings(text)
        )

    def has_squeezed(self, text: str) -> bool:
        """Tell the same where blanks and hyphens do not count, as in an id."""
        squeezed = folded(text).replace(" ", "")
        return len(squeezed) > 4 and squeezed in self._squeezed
