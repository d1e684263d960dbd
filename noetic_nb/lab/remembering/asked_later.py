"""Whether a later message asks for a fact, by the words around it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from noetic_nb.lab.remembering.fact_words import NOT_NAMES
from noetic_nb.lab.remembering.facts import Fact
from noetic_nb.lab.remembering.folded_text import FoldedTexts, folded

__all__ = ["Question", "first_asked", "questions_of"]

# Of the words of a question that say something, this share stands in the sentence of the fact.
SHARE: Final = 0.5
# "ordered" asks for an "order": words are compared by so many letters, in scripts with blanks.
STEM: Final = 5

_ASKS: Final = re.compile(
    r"[?？؟;՞]|\b(?:remind|tell me|recall|remember|repeat|what|which|who|when|where|how|"
    r"erinner\w*|nenn\w*|sag mir|wie|was|wer|wann|wo|welche[nrs]?|wiederhol\w*|rappelle|recuérdame|напомни\w*)\b",
    re.IGNORECASE,
)
# What a question of this form asks for; all others ask for anything.
_WANTED: Final = (
    (
        re.compile(r"\b(?:when|what (?:time|date|day)|wann|um wie ?viel uhr|quand|cuándo|когда)\b", re.IGNORECASE),
        {"date", "time"},
    ),
    (re.compile(r"\b(?:who|whose|wer|wen|wem|wessen|qui|quién|кто)\b", re.IGNORECASE), {"name", "quote", "id"}),
    (re.compile(r"\b(?:how (?:much|many)|wie ?viele?|combien|cuánt\w+|сколько)\b", re.IGNORECASE), {"number"}),
)
_EMPTY: Final = frozenset(folded(word) for word in NOT_NAMES) - {"order", "place", "name"} | frozenset(
    [
        "number",
        "called",
        "tell",
        "remind",
        "exactly",
        "please",
        "said",
        "mention",
        "mentioned",
        "again",
        "gesagt",
        "bitte",
        "genau",
        "nochmal",
        "noch",
        "mal",
        "heißt",
        "quel",
        "quelle",
        "quels",
        "quelles",
        "cuál",
        "cuáles",
        "qual",
        "quale",
        "quali",
        "welcher",
        "welches",
        "welchen",
        "welchem",
        "какои",
        "какая",
        "какое",
        "какие",
        "каков",
        "моеи",
        "мою",
        "моего",
    ]
)


class Question(NamedTuple):
    """The text of a user in one turn."""

    turn: int
    texts: FoldedTexts
    words: frozenset[str]
    asks: bool
    wanted: frozenset[str]
    """Kinds of facts that it asks for; empty for all."""


def questions_of(turns: Iterable[tuple[int, str]]) -> tuple[Question, ...]:
    """Return the texts of turns in a form that can be compared with facts."""
    found = []
    for turn, text in turns:
        wanted = {kind for form, kinds in _WANTED if form.search(text) for kind in kinds}
        found.append(
            Question(turn, FoldedTexts([text]), _stems(text), _ASKS.search(text) is not None, frozenset(wanted))
        )
    return tuple(found)


def first_asked(fact: Fact, questions: Sequence[Question]) -> int | None:
    """Return the first turn that asks for a fact, or names it; None where none does.

    References
    ----------
    .. [1] docs/behaviour/lab.md, "What was lost".

    Examples
    --------
    >>> from noetic_nb.lab.remembering.facts import facts_of
    >>> [[name, order]] = facts_of(["Lena's order is A17-B."])
    >>> asked = questions_of([(3, "Thank you."), (4, "What was Lena's order number?")])
    >>> first_asked(order, asked), first_asked(order, asked[:1])
    (4, None)
    """
    around: frozenset[str] | None = None
    for question in questions:
        if fact.kind != "decision" and question.texts.has(fact.text):
            return question.turn
        if not question.asks or not question.words or (question.wanted and fact.kind not in question.wanted):
            continue
        if around is None:
            around = _stems(fact.sentence)
        shared = len(question.words & around)
        if shared >= max(SHARE * len(question.words), min(2, len(question.words))):
            return question.turn
    return None


def _stems(text: str) -> frozenset[str]:
    words = [word for word in folded(text).split() if word not in _EMPTY]
    return frozenset([word[:STEM] for word in words if len(word) > 1 or not word.isascii()])
