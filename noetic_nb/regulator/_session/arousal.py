"""How agitated a message sounds, and whether it is urgent: word lists and punctuation, no model.

All English, by design of the original; other languages contribute through punctuation and capitals only.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, TypeAlias

from noetic_nb.regulator._measures.word_lists import any_of, emoji, folded, is_letter, lexicon

Valence: TypeAlias = Literal["negative", "neutral", "positive"]

_WHITE_SPACE: Final = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_LEAST_LETTERS: Final = 8
"""Shorter texts do not count as shouting."""


@dataclass(frozen=True, slots=True)
class Impression:
    """The impression of the wording of a message, before the state of the session modulates it.

    `arousal` is 0 for calm to 1. It is urgent by its words or capitals, or routine: a mere acknowledgement.
    `mentions_past` is whether it points back in the conversation.
    """

    arousal: float
    valence: Valence
    is_urgent: bool
    is_routine: bool
    mentions_past: bool


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    lists = lexicon()
    pairs = [
        rf"{any_of(pair['first_words'], whole=True)}.*{any_of(pair['then_stems'], whole=False)}"
        for pair in lists["negative_moderate_pairs"]
    ]
    moderate = [
        any_of(lists["negative_moderate_stems"] + lists["negative_moderate_pressure_stems"], whole=False),
        *pairs,
    ]
    sources = {
        "negative_high": any_of(lists["negative_high_stems"], whole=False),
        "negative_moderate": "|".join(moderate),
        "positive_high": any_of(lists["positive_high_words"], whole=True),
        "positive_moderate": any_of(lists["positive_moderate_words"], whole=True),
        "negated": rf"{any_of(lists['negators'], whole=True)}\s+(?:\w+\s+){{0,2}}{any_of(lists['negated_stems'], whole=False)}",
        "urgent": "|".join([any_of(lists["urgent_stems"], whole=False), any_of(lists["urgent_words"], whole=True)]),
        "routine": rf"(?:{'|'.join(map(re.escape, lists['routine_phrases']))})\.?!?",
    }
    return {name: re.compile(source, re.IGNORECASE) for name, source in sources.items()}


def _is_alphabetic(char: str) -> bool:
    return char.isalpha() or (is_letter(char) and unicodedata.category(char) not in ("Nd", "No"))


def _capital_share(text: str) -> float:
    letters = sum(map(_is_alphabetic, text))
    return sum(map(str.isupper, text)) / letters if letters >= _LEAST_LETTERS else 0.0


def _is_routine(text: str, shape: str) -> bool:
    if len(text.encode("utf-8", "surrogatepass")) <= 20 and _patterns()["routine"].fullmatch(shape):
        return True
    if 1 <= len(text) <= 4 and all(char in emoji() or char in _WHITE_SPACE for char in text):
        return True
    digits = text.removesuffix(".")
    return 1 <= len(digits) <= 2 and digits.isdecimal()


def impression_of(message: str) -> Impression:
    """Return the impression of the wording of a user message: arousal, valence and the flags of the gate.

    docs/behaviour/regulator.md, "Arousal", also fixes the order of the sum.
    """
    shape = folded(message)
    patterns = _patterns()
    shouts = message.count("!")
    arousal = 0.2 if shouts >= 3 else 0.05 * shouts
    capitals = _capital_share(message)
    if capitals >= 0.5:
        arousal += 0.2
    elif capitals >= 0.3:
        arousal += 0.1
    negative = positive = 0.0
    high = patterns["negative_high"].search(shape)
    moderate = patterns["negative_moderate"].search(shape)
    # Negation is looked for once in the whole text and clears both, as in the original.
    if (high or moderate) and not patterns["negated"].search(shape):
        if high:
            arousal += 0.3
            negative += 0.4
        if moderate:
            arousal += 0.15
            negative += 0.2
    if patterns["positive_high"].search(shape):
        arousal += 0.3
        positive += 0.4
    if patterns["positive_moderate"].search(shape):
        arousal += 0.1
        positive += 0.2
    if message.count("?") >= 3:
        arousal += 0.1
    if "..." in message or "!!!" in message:
        arousal += 0.05
    bare = message.strip(_WHITE_SPACE)
    bare_shape = folded(bare)
    lower = message.lower()
    return Impression(
        arousal=min(max(arousal, 0.0), 1.0),
        valence="negative" if negative > positive else "positive" if positive > negative else "neutral",
        is_urgent=_capital_share(bare) >= 0.5 or patterns["urgent"].search(bare_shape) is not None,
        is_routine=_is_routine(bare, bare_shape),
        mentions_past=any(word in lower for word in lexicon()["memory_words"]),
    )
