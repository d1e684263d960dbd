"""Comparison of words: without case, diacritics and punctuation, by stems and by shared senses.

"Foods" matches "peanuts", "based" matches "lives".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Final

from noetic_nb.lab._recall_quality.word_lists import WORDS
from noetic_nb.layers._helpers.embedding import root_of

_WORD: Final = re.compile(r"[^\W_]+")
# Scripts without spaces between words: each letter is a word, so that parts of a clause are found.
_UNBROKEN: Final = re.compile(
    "([\u0e00-\u0e7f\u1000-\u109f\u1780-\u17ff\u2e80-\u303f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])"
)
# Letters that Unicode does not decompose into a letter and a mark, but that are often written without the mark.
_PLAIN: Final = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th", "ð": "d"})
# The German spelling of umlauts without the marks.
_SPELT_OUT: Final = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"})
_UMLAUT: Final = re.compile("[äöüÄÖÜ]")


def folded(text: str) -> str:
    """Return the words of a text without case and diacritics, separated by single spaces."""
    if text.isascii():
        return " ".join(_WORD.findall(text.lower()))
    whole = unicodedata.normalize("NFKD", text).casefold().translate(_PLAIN)
    whole = "".join([letter for letter in whole if unicodedata.category(letter) != "Mn"])
    # Composes the letters of scripts such as Korean again.
    return " ".join(_WORD.findall(_UNBROKEN.sub(r" \1 ", unicodedata.normalize("NFC", whole))))


def spellings(text: str) -> tuple[str, ...]:
    """Return the folded forms of a text: as it is, and with German umlauts written out."""
    plain = folded(text)
    if text.isascii() or not _UMLAUT.search(unicodedata.normalize("NFC", text)):
        return (plain,)
    return plain, folded(unicodedata.normalize("NFC", text).translate(_SPELT_OUT))


class FoldedTexts:
    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(texts)

    @cached_property
    def _streams(self) -> str:
        # The line break keeps the words of two texts apart.
        return "\n".join([f" {form} " for text in self.texts for form in spellings(text)])

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(self._streams.split())

    @cached_property
    def _squeezed(self) -> str:
        return self._streams.replace(" ", "")

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        found = [folded(part) for text in self.texts for part in re.split(r"[.!?。！？\n]+", text)]
        return tuple(dict.fromkeys([words for words in found if words]))

    def has(self, text: str) -> bool:
        # Most words do not occur, which the first word shows quickly.
        return any(
            form and form.partition(" ")[0] in self.words and f" {form} " in self._streams for form in spellings(text)
        )

    def has_squeezed(self, text: str) -> bool:
        """Tell whether a text occurs, ignoring spaces and hyphens, as in an id."""
        squeezed = folded(text).replace(" ", "")
        return len(squeezed) > 4 and squeezed in self._squeezed


# "ordered" matches "order": in scripts with spaces, words are compared by their first letters.
STEM: Final = 5

_EMPTY: Final = frozenset(map(folded, WORDS["not_names"])) - WORDS["saying"] | WORDS["empty"]

_PHRASES: Final = tuple(
    (re.compile(rf"\b(?:{form})\b"), f" {word} ")
    for form, word in (
        (
            r"(?:g[ai]ve|giving|given) up|no longer|not any ?more|any ?more|any longer|stop(?:ped)?|cut out",
            "quit avoid",
        ),
        (
            r"(?:leave|leaves|left) out|stay away from|keep away from|do without|watch out for|can ?not (?:stand|bear|have|eat)|"
            r"can ?t (?:stand|bear|have|eat)|don ?t (?:eat|drink|like)|not (?:eat|drink|like)|never (?:eat|drink|call|use)",
            "avoid",
        ),
        (r"turn(?:ed)? down|rule[ds]? out|say no to|said no to", "reject"),
        (r"settled? (?:on|for)|go(?:ing)? with|went (?:with|for)|opt(?:ed)? for|agreed? (?:on|to|that)", "choose"),
        (r"get into|get in|let myself in|log (?:in|on)(?:to)?|sign in|log (?:me|us) in", "login"),
        (r"call home|calls home|come from|grew up", "live"),
        (r"in charge of|responsible for|take care of|takes care of|look(?:s|ing)? after", "responsible"),
        (r"look(?:s|ing)? forward to|fond of|keen on|a fan of|into|would rather|d rather|am liebsten", "like"),
        (r"for a living", "job"),
        (r"takes? place|took place", "meeting"),
        (r"(?:get|got) married|tied the knot", "wedding"),
        (r"how (?:much|expensive)", "price"),
        (r"how (?:old)", "age"),
        (r"what time|by when|since when|how soon", "when"),
    )
)
# Words between two separators share a sense.
_SENSES_TEXT: Final = Path(__file__).with_name("data").joinpath("senses.txt").read_text(encoding="utf-8")


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return a folded word without its English endings, cut to the letters that are compared."""
    return root_of(word)[:STEM]


@cache
def _senses() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for number, line in enumerate(_SENSES_TEXT.split("|")):
        for word in line.split():
            found.setdefault(root_of(word).removesuffix("e"), set()).add(f"={number}")
    return {word: frozenset(names) for word, names in found.items()}


@lru_cache(maxsize=20_000)
def _senses_of(word: str) -> frozenset[str]:
    return _senses().get(root_of(word).removesuffix("e"), frozenset()) | {stem(word)}


def _telling(words: Iterable[str]) -> list[str]:
    return [word for word in words if word not in _EMPTY and (len(word) > 1 or not word.isascii())]


def telling_words(text: str) -> tuple[frozenset[str], ...]:
    """Return the content words of a text, each as its stem and senses, without repeats."""
    plain = folded(text)
    for form, word in _PHRASES:
        plain = form.sub(word, plain)
    return tuple(dict.fromkeys(map(_senses_of, _telling(plain.split()))))


def stems(words: Iterable[str]) -> frozenset[str]:
    return frozenset(map(stem, _telling(words)))


# Beginnings of words that negate: a sentence that negates may state something avoided, feared or ended.
_DENIES: Final = re.compile(
    r"\b(?:no|not|t|never|nor|none|without|cannot|cant|wont|longer|anymore|free|against|bad|trouble|kein\w*|nicht|nie|niemals|ohne|"
    r"(?:avoid|allerg|intoleran|hat(?=e)|dislik|detest|loath|despis|stop|quit|afraid|scar|terrif|fear|phobi|refus|exclud|omit|forbid|ban(?=\b|n)|"
    r"uncomfort|suffer|sensitiv|gave|give|cut|ended|former|used|meid|verzicht|hass|ungern|unvertrag)\w*)\b"
)
_LIGHT: Final = frozenset(map(stem, WORDS["light"]))
_IMPLIED: Final = {
    "vegetarian": "meat",
    "vegan": "meat dairy",
    "teetotal": "alcohol",
    "sober": "alcohol",
    "coeliac": "gluten",
    "celiac": "gluten",
}


def denies(words: str) -> bool:
    """Tell whether folded words negate something."""
    return _DENIES.search(words) is not None or not _IMPLIED.keys().isdisjoint(words.split())


def core(said: str) -> frozenset[str]:
    """Return the stems that identify a like or state: its subject, without words of liking or negation."""
    words = folded(said)
    found = stems(_DENIES.sub(" ", words).split())
    return found - _LIGHT or found or stems(words.split())


def sentence_stems(words: str) -> frozenset[str]:
    """Return the stems of a sentence's folded words, and of the words they imply."""
    return stems([*words.split(), *[more for word in words.split() for more in _IMPLIED.get(word, "").split()]])
