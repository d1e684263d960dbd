"""Stems of words, and the senses that words share: "foods" asks for "peanuts", "based" for "lives"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from noetic_nb.lab._recall_quality.folded_text import folded
from noetic_nb.lab._recall_quality.word_lists import WORDS
from noetic_nb.layers._helpers.embedding import root_of

# "ordered" asks for an "order": words are compared by so many letters, in scripts with blanks.
STEM: Final = 5

_EMPTY: Final = frozenset(map(folded, WORDS["not_names"])) - WORDS["saying"] | WORDS["empty"]

# Several words that mean one.
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
# Words between two strokes share a sense.
_SENSES_TEXT: Final = Path(__file__).with_name("data").joinpath("senses.txt").read_text(encoding="utf-8")


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return a folded word without its English endings, cut to the letters by which words are compared."""
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
    """Return the words of a text that say something, each as its stem and senses, without repeats."""
    plain = folded(text)
    for form, word in _PHRASES:
        plain = form.sub(word, plain)
    return tuple(dict.fromkeys(map(_senses_of, _telling(plain.split()))))


def stems(words: Iterable[str]) -> frozenset[str]:
    """Return the stems of the words that say something."""
    return frozenset(map(stem, _telling(words)))


# Words that deny, by how they begin: what is avoided, feared or has ended is told by a sentence that denies it.
_DENIES: Final = re.compile(
    r"\b(?:no|not|t|never|nor|none|without|cannot|cant|wont|longer|anymore|free|against|bad|trouble|kein\w*|nicht|nie|niemals|ohne|"
    r"(?:avoid|allerg|intoleran|hat(?=e)|dislik|detest|loath|despis|stop|quit|afraid|scar|terrif|fear|phobi|refus|exclud|omit|forbid|ban(?=\b|n)|"
    r"uncomfort|suffer|sensitiv|gave|give|cut|ended|former|used|meid|verzicht|hass|ungern|unvertrag)\w*)\b"
)
_LIGHT: Final = frozenset(map(stem, WORDS["light"]))
# What a word says without saying it.
_IMPLIED: Final = {
    "vegetarian": "meat",
    "vegan": "meat dairy",
    "teetotal": "alcohol",
    "sober": "alcohol",
    "coeliac": "gluten",
    "celiac": "gluten",
}


def denies(words: str) -> bool:
    """Tell whether folded words deny something."""
    return _DENIES.search(words) is not None or not _IMPLIED.keys().isdisjoint(words.split())


def core(said: str) -> frozenset[str]:
    """Return the stems of a like or state by which it is recognized: its subject, without words that like or deny."""
    words = folded(said)
    found = stems(_DENIES.sub(" ", words).split())
    return found - _LIGHT or found or stems(words.split())


def sentence_stems(words: str) -> frozenset[str]:
    """Return the stems of the folded words of a sentence, and of the words they imply."""
    return stems([*words.split(), *[more for word in words.split() for more in _IMPLIED.get(word, "").split()]])
