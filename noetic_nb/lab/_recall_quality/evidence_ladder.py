"""The rungs of evidence in a request: the message, its value, the value with its owner, and all that an answer needs.

A statement is a sentence or a part of a line between separators, together with the heading above it. It assigns a value
to an owner if it contains the value, a name of the owner, a word of the attribute, and no other person's name. A list
of words is not a statement, whichever words it contains.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from math import fsum, nan
from typing import Final

from noetic_nb.lab._dialogues import Dialogue, Evidence, Question
from noetic_nb.lab._recall_quality.word_senses import folded, spellings

RUNGS: Final = ("verbatim", "value", "owned", "answerable")
"""From the easiest to satisfy by accident to the hardest."""
# A date or an amount may contain a full stop; only one followed by white space ends a sentence.
_ENDS: Final = re.compile(r"[.!?;](?=\s|$)|[。！？|•{}]|\s-\s")


@lru_cache(maxsize=200_000)
def _forms(line: str) -> tuple[str, ...]:
    return tuple(f" {form} " for form in spellings(line) if form)


@lru_cache(maxsize=100_000)
def _statements(line: str) -> tuple[str, ...]:
    return tuple(f" {words} " for part in _ENDS.split(line) if (words := folded(part)))


def _lines(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield lines, each with the heading above it."""
    for text in texts:
        heading = ""
        for line in text.splitlines():
            bare = line.strip()
            if not bare or bare.startswith("#") or bare.endswith(":"):
                heading = bare
            yield line, "" if heading == bare else heading


class SentTexts:
    """All texts of a request, in order."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._lines = [(line, heading) for line, heading in _lines(texts) if line.strip()]
        self._stream = "\n".join(
            [form for line in dict.fromkeys(line for line, _ in self._lines) for form in _forms(line)]
        )

    def has(self, text: str) -> bool:
        """Tell whether these texts contain each line of a text verbatim."""
        wanted = [forms for line in text.splitlines() if (forms := _forms(line))]
        return bool(wanted) and all(any(form in self._stream for form in forms) for forms in wanted)

    def place_of(self, part: Evidence, others: frozenset[str], wrong: frozenset[str]) -> int:
        """Return the place of the last statement that assigns a value to its owner and none of the `others`, or -1."""
        values = _forms(part.value or "")
        if not any(form in self._stream for form in values):
            return -1
        owners, words = _folded_all(part.owner), _folded_all(part.attribute)
        found = -1
        for place, (line, heading) in enumerate(self._lines):
            if not any(value in form for form in _forms(line) for value in values):
                continue
            above = f" {folded(heading)} "
            for statement in _statements(line):
                if not any(value in statement for value in values) or not _any_of(words, statement + above):
                    continue
                # A person named in the statement is the owner; otherwise the heading names the owner.
                named = statement if _any_of(owners | others, statement) else above
                if _any_of(owners, named):
                    found = found if _any_of(others, named) else place
                elif _any_of(wrong, named):
                    return -1
        return found


def _folded_all(names: Iterable[str]) -> frozenset[str]:
    return frozenset(f" {form} " for name in names if (form := folded(name)))


def _any_of(words: frozenset[str], text: str) -> bool:
    return any(word in text for word in words)


class Ladder:
    """The rungs that the questions of one dialogue reach."""

    def __init__(self, dialogue: Dialogue, text_of: Callable[[str], str]) -> None:
        self._text_of = text_of
        parts = [part for one in dialogue.questions for part in (*one.evidence, *one.outdated, *one.needs)]
        self._known = {(part.owner, part.value) for part in parts if part.owner}
        self._owners = {owner for owner, _ in self._known}
        self._others_of: dict[Evidence, tuple[frozenset[str], frozenset[str]]] = {}

    def scores(self, question: Question, sent: SentTexts) -> dict[str, float]:
        """Return the share of the evidence that was sent, by rung; NaN if the evidence is not marked."""
        parts = question.evidence
        if not parts:
            return dict.fromkeys(RUNGS, nan)
        found = {
            "verbatim": _share([None if part.item is None else sent.has(self._text_of(part.item)) for part in parts]),
            "value": _share([None if part.value is None else sent.has(part.value) for part in parts]),
        }
        if not all(part.value and part.owner and part.attribute for part in parts):
            return {**found, "owned": nan, "answerable": nan}
        places = [self.place(part, sent) for part in parts]
        needed = all(self.place(part, sent) >= 0 for part in question.needs)
        stale = max([self.place(part, sent) for part in question.outdated], default=-1)
        # A newer value that comes after the older one is recognisable as newer.
        found["owned"] = _share([place >= 0 for place in places])
        found["answerable"] = float(needed and min(places) >= 0 and min(places) > stale)
        return found

    def stale(self, question: Question, sent: SentTexts) -> float:
        """Return the share of outdated facts that was sent as well; NaN if none is marked."""
        return _share(
            [
                sent.has(part.value if part.value is not None else self._text_of(part.item or ""))
                for part in question.outdated
            ]
        )

    def place(self, part: Evidence, sent: SentTexts) -> int:
        """Return the last place where a value is assigned to its owner, or -1."""
        others, wrong = self._others(part)
        return sent.place_of(part, others, wrong)

    def _others(self, part: Evidence) -> tuple[frozenset[str], frozenset[str]]:
        if part not in self._others_of:
            others = {owner for owner in self._owners if not set(owner) & set(part.owner)}
            having = {name for owner, value in self._known if value == part.value for name in owner}
            names = {name for owner in others for name in owner}
            self._others_of[part] = _folded_all(names), _folded_all(names - having)
        return self._others_of[part]


def _share(found: Sequence[bool | None]) -> float:
    known = [one for one in found if one is not None]
    return fsum(known) / len(known) if known and len(known) == len(found) else nan
