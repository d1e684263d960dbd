"""Which later turn asks for a fact, in its words or in others.

A question asks for the facts whose sentence shares most of its words, by their stems or their senses, and whose kind fits
its form.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from noetic_nb.lab._recall_quality.facts import Fact
from noetic_nb.lab._recall_quality.folded_text import FoldedTexts, folded
from noetic_nb.lab._recall_quality.word_senses import telling_words

# Of the words of a question that say something, this share stands in the sentence of the fact; a smaller one is enough where
# the form of the question names the kind of the fact.
SHARE: Final = 0.5
SHARE_OF_KIND: Final = 0.3
# A word in more sentences than this tells none of them from the others.
MOST_SENTENCES: Final = 400
# One sentence holds no more facts of a kind than this.
MOST_OF_KIND: Final = 6

_ASKS: Final = re.compile(
    r"[?？؟;՞]|\b(?:remind|tell me|recall|remember|repeat|what|which|who|when|where|how|"
    r"erinner\w*|nenn\w*|sag mir|wie|was|wer|wann|wo|welche[nrs]?|wiederhol\w*|rappelle|recuérdame|напомни\w*)\b",
    re.IGNORECASE,
)


def _forms(text: str) -> list[tuple[re.Pattern[str], set[str]]]:
    rows = [line.split(" <- ") for line in text.strip().splitlines()]
    return [(re.compile(rf"\b(?:{form})\b", re.IGNORECASE), set(kinds.split())) for kinds, form in rows]


# Kinds that a question of a form asks for; all others ask for anything.
_WANTED: Final = _forms(r"""
date time <- when|(?:what|which) (?:time|date|day|month|year)|wann|um wie ?viel uhr|quand|cuándo|когда
name quote id decision preference <- who|whose|whom|wer|wen|wem|wessen|qui|quién|кто
number <- how (?:much|many)|wie ?viele?|combien|cuánt\w+|сколько
""")
# Kinds that it more likely asks for.
_HINTS: Final = _forms(r"""
name path <- where|(?:what|which) (?:city|town|place|country)|wo|wohin|où|dónde|где
path <- (?:which|what) (?:file|folder|directory|path)|where .*(?:file|folder|config\w*|saved?|stored?|copy|kept)
command <- (?:which|what|the) command|do i (?:type|run|call|enter)
command <- how (?:do|can|did|should) (?:i|we|you) (?:run|start|launch|build|deploy|ship|test|install|execute)
decision <- (?:decide|decision|agree|choose|chose|pick|select|settle|conclude|reject|refuse|decline|plan)\w*
decision <- turn(?:ed)? down|rule[ds]? out
preference <- awful|disgust\w*|upset|careful|away from|bother|take my|avoid|like|prefer\w*|favou?rite|love|hate|enjoy|allerg\w+
preference <- afraid|scared|fear|eat|drink|dislike|mind|can(?:no|['’])t|diet\w*|leave out|watch out|habit|hobby|used? to
preference <- gave up|give up|can \w+ (?:have|eat|drink)
name <- name|called|wie hei(?:ß|ss)\w+
number <- price|cost|earn|expensive|cheap|total|budget|salary|rent|old|size|tall|weigh|weight|port|fast|far
id number quote <- number|code|password|id|login|log (?:in|on)|access|nummer
""")
_OWN: Final = re.compile(r"\b(?:i|me|my|mine|we|us|our|ours|ich|mir|mein\w*|wir|unser\w*)\b", re.IGNORECASE)
_WH: Final = re.compile(r"\b(?:what|which|who|whose|when|where|how|wie|was|wer|wann|wo|welche[nrs]?)\b", re.IGNORECASE)


class Question(NamedTuple):
    """The text of a user in one turn."""

    turn: int
    texts: FoldedTexts
    words: tuple[frozenset[str], ...]
    """Its words with their senses; empty where it asks nothing."""
    wanted: frozenset[str]
    """Kinds of facts that it asks for; empty for all."""
    hints: frozenset[str]
    """Kinds that it more likely asks for."""
    own: bool
    """Whether it is about the one who asks."""

    @classmethod
    def of(cls, turn: int, text: str) -> Question:
        """Return a text in a form that can be compared with facts."""
        wanted = {kind for form, kinds in _WANTED if form.search(text) for kind in kinds}
        hints = {kind for form, kinds in _HINTS if form.search(text) for kind in kinds}
        words = telling_words(text) if _ASKS.search(text) else ()
        own = _OWN.search(text) is not None and _WH.search(text) is not None
        return cls(turn, FoldedTexts([text]), words, frozenset(wanted), frozenset(hints), own)


def asked_in(lost: Sequence[Fact], others: Iterable[Fact], turns: Iterable[tuple[int, str]]) -> list[int | None]:
    """Return of each lost fact the first turn that names it or asks for it; None where none does.

    A question that asks for one of the `others`, which are still known, asks for no lost one that fits it less.
    """
    questions = [Question.of(turn, text) for turn, text in turns]
    found = _named_in(lost, questions)
    sentences = _Sentences([*lost, *others])
    for question in questions:
        for at in sentences.asked(question):
            if at < len(lost):
                before = found[at]
                found[at] = question.turn if before is None else min(before, question.turn)
    return found


def _named_in(facts: Sequence[Fact], questions: Sequence[Question]) -> list[int | None]:
    """Return the first turn that has each fact word for word; of whole sentences nobody says so."""
    where: dict[str, list[int]] = {}
    for at, question in enumerate(questions):
        for word in question.texts.words:
            where.setdefault(word, []).append(at)
    found: list[int | None] = []
    for fact in facts:
        words = folded(fact.text).split() if fact.kind not in ("decision", "preference") else []
        places = min((where.get(word, []) for word in words), key=len, default=[])
        found.append(next((questions[at].turn for at in places if questions[at].texts.has(fact.text)), None))
    return found


class _Sentences:
    """The sentences of facts, by the senses of their words."""

    def __init__(self, facts: Sequence[Fact]) -> None:
        self.facts = facts
        members: dict[str, list[int]] = {}
        self._kinds: dict[str, list[int]] = {}
        for at, fact in enumerate(facts):
            members.setdefault(fact.sentence, []).append(at)
            self._kinds.setdefault(fact.kind, []).append(at)
        self._members = list(members.values())
        self._with: dict[str, list[int]] = {}
        for place, sentence in enumerate(members):
            for sense in frozenset().union(*telling_words(sentence)):
                self._with.setdefault(sense, []).append(place)

    def asked(self, question: Question) -> list[int]:
        """Return the facts that a question fits best, none where it fits none well enough.

        A single word of several is enough where no other sentence shares as much, and none where the one who asks has told but
        one fact of the kind.
        """
        shared: Counter[int] = Counter()
        for senses in question.words:
            places = [self._with.get(sense, ()) for sense in senses]
            if sum(map(len, places)) <= MOST_SENTENCES:
                shared.update({place for found in places for place in found})
        count = len(question.words)
        best, fit, is_sure = 0.0, list[int](), False
        least = SHARE_OF_KIND if question.own else SHARE
        for place, words in shared.items():
            for at in self._members[place]:
                kind = self.facts[at].kind
                hinted = kind in question.hints
                if words < (SHARE_OF_KIND if hinted else least) * count or (
                    question.wanted and kind not in question.wanted
                ):
                    continue
                score = words + 0.5 * hinted
                if score > best:
                    best, fit, is_sure = score, [], words >= min(2, count) or hinted
                if score == best:
                    fit.append(at)
        if not fit and question.own:
            # No word is shared: the only fact of the kind that is asked for.
            kinds = question.wanted or question.hints - {"name", "number", "preference"}
            found = [at for kind in sorted(kinds) for at in self._kinds.get(kind, ())[: MOST_OF_KIND + 1]]
            fit = found if len(found) <= MOST_OF_KIND else []
        is_one = len({self.facts[at].sentence for at in fit}) == 1
        return fit if is_sure or is_one else []
