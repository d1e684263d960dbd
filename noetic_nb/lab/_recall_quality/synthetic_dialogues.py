"""Dialogues made from a seed: facts that are told once, changed, disputed, and others like them that nobody asks for."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import Item, assistant_message, function_call, function_call_output, input_message
from noetic_nb.lab._dialogues import Dialogue, Evidence, Question
from noetic_nb.lab._recall_quality.dialogue_text import LANGUAGES, Language, Subject

# Of each dialogue: sessions, people, facts of each sort that are asked for, and small talk between them.
SESSIONS: Final = 3
PEOPLE: Final = 4
SORTS: Final = {"told": 3, "changed": 2, "disputed": 1, "looked up": 1}
DISTRACTORS: Final = 4
SMALL_TALK: Final = 9
ID_LENGTH: Final = 36
_DIGITS: Final = "23456789"
_LETTERS: Final = "BCDFGHKLMNPRSTVWXZ"


def made_dialogues(count: int = 50, *, seed: int = 0, languages: Sequence[str] = ("en", "de")) -> tuple[Dialogue, ...]:
    """Make dialogues between a person and an assistant about other people, the same ones for the same seed; languages take turns.

    Each has three sessions and four people. ``kind`` of a question is ``told`` (once), ``changed`` (the newest value counts),
    ``disputed`` (both values count) or ``looked up`` (in the long result of a tool). Things of the same kind are told of other
    people, and nobody asks for them. Raises `NoeticConfigError` ``INVALID_COUNT`` or ``UNKNOWN_LANGUAGE``.
    """
    if type(count) is not int or count < 1:
        raise NoeticConfigError("INVALID_COUNT", "At least one dialogue is made.", given=count, hint="Use 50.")
    if isinstance(languages, str) or not languages or not set(languages) <= set(LANGUAGES):
        hint = f"Such as languages={list(LANGUAGES)}."
        raise NoeticConfigError(
            "UNKNOWN_LANGUAGE", "Languages are a list of known ones, at least one.", given=languages, hint=hint
        )
    return tuple([_made(at, languages[at % len(languages)], random.Random(f"{seed} {at}")) for at in range(count)])


class _Maker:
    """One dialogue in the making: the sentences of each session, in any order within it."""

    def __init__(self, name: str, language: Language, rng: random.Random) -> None:
        self.name, self.language, self.rng = name, language, rng
        self.said: list[list[tuple[Item, ...]]] = [[] for _ in range(SESSIONS)]
        self.questions: list[Question] = []
        self._used: set[str] = set()
        self._number = 0

    def value(self, subject: Subject) -> str:
        """Return a value that stands nowhere else in the dialogue."""
        while True:
            found = self._value(subject)
            if found not in self._used:
                self._used.add(found)
                return found

    def _value(self, subject: Subject) -> str:
        rng = self.rng
        if subject.kind == "word":
            return rng.choice(subject.words)
        if subject.kind == "amount":
            return f"{rng.randint(201, 989)} €"
        if subject.kind == "day":
            month = rng.choice(self.language.months)
            return self.language.day.format(day=rng.randint(1, 28), month=month)
        return f"{''.join(rng.choices(_LETTERS, k=2))}-{''.join(rng.choices(_DIGITS, k=4))}"

    def _id(self) -> str:
        self._number += 1
        # As long as a random id: ids count as tokens.
        return f"{self.name}:{self._number:0{ID_LENGTH - 1 - len(self.name)}}"

    def say(self, session: int, text: str, *, anywhere: bool = False) -> str:
        """Add a sentence and an answer to it; returns the id of the item. `anywhere`: between earlier sentences."""
        item_id = self._id()
        answer = assistant_message(self.rng.choice(self.language.answers), item_id=self._id())
        place = self.rng.randint(0, len(self.said[session])) if anywhere else len(self.said[session])
        self.said[session].insert(place, (input_message(text, item_id=item_id), answer))
        return item_id

    def look_up(self, session: int, who: str, told: str) -> str:
        """Have a tool asked whose long result says something."""
        asked = input_message(self.language.lookup.format(who=who), item_id=self._id())
        call_id, item_id = self._id(), self._id()
        # From 100 to 199: an amount is more, and none may stand in two items.
        page = self.language.looked_up.format(page=100 + self.rng.randint(100, 999) % 100)
        half = page.find(". ", len(page) // 2) + 2
        call = function_call("look_up", f'{{"name": "{who}"}}', call_id, item_id=self._id())
        output = function_call_output(call_id, f"{page[:half]}{told} {page[half:]}", item_id=item_id)
        answer = assistant_message(self.rng.choice(self.language.answers), item_id=self._id())
        self.said[session].append((asked, call, output, answer))
        return item_id


def _made(at: int, code: str, rng: random.Random) -> Dialogue:
    language = LANGUAGES[code]
    maker = _Maker(f"{code}-{at}", language, rng)
    people = rng.sample(language.people, PEOPLE)
    places = [(who, subject) for who in people for subject in language.subjects]
    rng.shuffle(places)
    for sort, count in SORTS.items():
        for _ in range(count):
            who, subject = places.pop()
            _plant(maker, sort, who, subject)
    for _ in range(DISTRACTORS):
        who, subject = places.pop()
        maker.say(rng.randrange(SESSIONS), subject.told.format(who=who, value=maker.value(subject)), anywhere=True)
    for place in range(SMALL_TALK):
        maker.say(place % SESSIONS, rng.choice(language.small_talk), anywhere=True)
    sessions = [tuple([item for exchange in said for item in exchange]) for said in maker.said]
    return Dialogue(maker.name, tuple(sessions), tuple(maker.questions))


def _plant(maker: _Maker, sort: str, who: str, subject: Subject) -> None:
    rng = maker.rng
    outdated: tuple[Evidence, ...] = ()
    value = maker.value(subject)
    first = rng.randrange(SESSIONS)
    told = subject.told.format(who=who, value=value)
    if sort == "told":
        evidence = [Evidence(maker.say(first, told), value)]
    elif sort == "looked up":
        evidence = [Evidence(maker.look_up(first, who, told), value)]
    else:
        # Small talk stands between what is told and what is told later of the same thing.
        later = rng.randrange(first, SESSIONS)
        before = maker.say(first, told)
        maker.say(first, rng.choice(maker.language.small_talk))
        other = maker.value(subject)
        form = subject.changed if sort == "changed" else subject.disputed
        after = maker.say(later, form.format(who=who, value=other))
        evidence = [Evidence(before, value), Evidence(after, other)]
        if sort == "changed":
            outdated, evidence = (evidence[0],), evidence[1:]
    maker.questions.append(Question(subject.asked.format(who=who), tuple(evidence), sort, outdated))
