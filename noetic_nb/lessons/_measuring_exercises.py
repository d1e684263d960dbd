"""Exercises on measuring memory: evidence in a request, shared words, and a summary that forgets on request."""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Sequence
from typing import Any, Final

from noetic_nb.lessons._exercise import Exercise

MOST_WORDS: Final = 45
"""The word limit for a summary in exercise 9.3: four facts of seven words need 28."""

_SEED: Final = 9
_NAMES: Final = ("Ann", "Joanna", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hal", "Ida", "Marianne", "Leo")
_THINGS: Final = ("locker code", "seat", "door code", "badge number", "parcel number", "plate")
_TALK: Final = (
    "{who} came for tea and stayed 20 minutes.",
    "It rained all day, 14 degrees at most.",
    "{who} says hello to everybody.",
    "I read 40 pages of a book about trains.",
    "The bus was late, and so was {who}.",
)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def is_told(sent: Sequence[str], owner: str, others: Collection[str], value: str) -> bool:
    """Tell whether a sentence of the sent texts contains the value and its owner, and no other name.

    This is the rung `owned` of docs/behaviour/lab.md, "A bench without a judge", without its attribute words.
    """
    for text in sent:
        for sentence in re.split(r"[.!?;](?=\s|$)", text):
            words = f" {' '.join(_words(sentence))} "
            has = {name for name in (owner, value, *others) if f" {' '.join(_words(name))} " in words}
            if has == {owner, value}:
                return True
    return False


def shared_words(question: str, message: str, stop: Collection[str]) -> float:
    """Return the share of a question's distinct content words that a message contains."""
    asked = set(_words(question)) - set(stop)
    return len(asked & set(_words(message))) / len(asked) if asked else 0.0


def _evidence_cases() -> list[tuple[list[str], str, list[str], str]]:
    draw, cases = random.Random(_SEED), []
    for _ in range(4):
        owner, other, third = draw.sample([name for name in _NAMES if name not in ("Ann", "Joanna")], 3)
        value, wrong = (str(draw.randint(100, 999)) for _ in range(2))
        amount, others = f"{draw.randint(10, 99)}.50", [other, third]
        cases += [
            ([f"It rained. {owner} has locker {value}."], owner, others, value),
            ([f"{owner.upper()}: the code is {value}; keep it."], owner, others, value),
            ([f"{other} came.", f"Is it true that {owner} has {value}?"], owner, others, value),
            ([f"{owner} pays {amount} a month."], owner, others, amount),
            ([f"{owner} has a locker. Its code is {value}."], owner, others, value),
            ([f"{owner} has a locker.", f"The code is {value}."], owner, others, value),
            ([f"{other} has locker {value}. {owner} has none."], owner, others, value),
            ([f"{owner} knows that {other} has locker {value}."], owner, others, value),
            ([f"{owner} {third} {value} {wrong} locker code"], owner, others, value),
            ([f"{owner} has locker {value}7, {owner} had 4{value}."], owner, others, value),
            ([f"{owner} has locker {wrong if wrong != value else '77'}."], owner, others, value),
            ([f"{third} has {value}. In fact, {owner} has {value} as well."], owner, others, value),
        ]
    value = str(draw.randint(100, 999))
    cases += [([f"Joanna has locker {value}."], "Ann", ["Joanna"], value), ([], "Ann", ["Ben"], value)]
    return [*cases, ([f"Joanna has locker {value}."], "Joanna", ["Ann"], value)]


def _evident(answer: Any) -> str | None:
    for sent, owner, others, value in _evidence_cases():
        expected, given = is_told(sent, owner, others, value), answer(list(sent), owner, list(others), value)
        if given is not expected:
            return (
                f"Sent was {sent}. That {value} belongs to {owner} (others: {others}) is {expected}; you say {given!r}."
            )
    return None


_STOP: Final = frozenset(["a", "an", "the", "of", "is", "in", "which", "what", "how", "does", "to", "has", "do", "i"])


def _question_cases() -> list[tuple[str, str]]:
    draw, cases = random.Random(_SEED), []
    for _ in range(6):
        who, other = draw.sample(_NAMES, 2)
        thing, value = draw.choice(_THINGS), draw.randint(100, 999)
        message = f"The {thing} of {who} is {value}, I have {thing}s of {other} too."
        cases += [
            (f"Which {thing} has {who}?", message),
            (f"What is the {thing}, the {thing} of {who.upper()}?", message),
            (f"How does {who} open the cupboard?", message),
            (f"How does {other} get into the cupboard, {other}?", message),
            (f"Where do {who} and {other} live?", f"{who} lives in Oslo. {who} likes it."),
        ]
    return [*cases, ("What is in the cupboard?", "The cupboard is empty."), ("What is it?", ""), ("What is?", "It is.")]


def _overlapping(answer: Any) -> str | None:
    for question, message in _question_cases():
        expected, given = shared_words(question, message, _STOP), answer(question, message, set(_STOP))
        if isinstance(given, bool) or not isinstance(given, int | float) or abs(given - expected) > 1e-9:
            return f"{question!r} and {message!r}: the share is {expected:.3f}, your answer is {given!r}."
    return None


def said_things(seed: int) -> tuple[list[str], dict[tuple[str, str], str], set[str]]:
    """Return a random conversation, its final facts by thing and owner, and the values that no longer hold."""
    draw = random.Random(seed)
    people, things = draw.sample(_NAMES, 4), draw.sample(_THINGS, 3)
    (one, two, three, four), (first, second, third) = people, things
    value = iter(draw.sample(range(1000, 9999), 12))
    said: list[str] = []
    holds: dict[tuple[str, str], str] = {}
    gone: set[str] = set()

    def tell(thing: str, who: str, form: str = "The {} of {} is {}.") -> None:
        gone.update({holds[thing, who]} if (thing, who) in holds else ())
        holds[thing, who] = str(next(value))
        said.append(form.format(thing, who, holds[thing, who]))

    def forget(thing: str, who: str) -> None:
        gone.add(holds.pop((thing, who)))
        said.append(f"Please forget the {thing} of {who}.")

    now = "The {} of {} is now {}."
    for thing, who in ((first, one), (first, two), (second, one), (third, three), (second, four)):
        tell(thing, who)
    tell(first, one, now)
    forget(second, one)
    tell(third, four)
    forget(first, two)
    tell(third, three, now)
    tell(first, two)
    tell(third, three, now)
    forget(second, four)
    said = [line for told in said for line in (draw.choice(_TALK).format(who=draw.choice(people)), told)]
    return said, holds, gone


def _summarised(answer: Any) -> str | None:
    for seed in range(_SEED, _SEED + 3):
        said, holds, gone = said_things(seed)
        given = answer(list(said))
        if not isinstance(given, str):
            return f"A summary is one text; your answer is {given!r:.200}."
        words, people = _words(given), {who for _, who in holds} | set(_NAMES)
        if len(words) > MOST_WORDS:
            return f"Of {len(said)} messages your summary makes {len(words)} words; {MOST_WORDS} are allowed."
        for (thing, who), value in holds.items():
            lines = [line for line in given.splitlines() if thing in line.lower()]
            if not is_told(lines, who, people - {who}, value):
                return f"No line of your summary says the {thing} of {who}, {value}, in one sentence:\n{given}"
        if left := sorted(gone & set(words)):
            told = next(line for line in said if left[0] in line)
            return f"{told!r} was corrected or deleted later, and {left[0]} is still in your summary."
    return None


MEASURING: Final = (
    Exercise("9.1", "is_evident", _evident, (
        "Two sentences that have a part each say nothing of whose it is. Split texts with re.split first.",
        "Compare whole words without case: 10 is not in 104, and Ann is not in Joanna. A full stop inside 12.50 ends nothing.",
        "In one sentence: the owner, the value, and none of the others.",
    )),
    Exercise("9.2", "word_overlap", _overlapping, (
        "Content words are the different words of the question, in lower case, without those in `stop`.",
        "Divide by the number of content words of the question, not of the message. Words end at punctuation.",
        "A question without content words has the overlap 0.",
    )),
    Exercise("9.3", "summary", _summarised, (
        "Keep a dictionary by thing and owner. A regular expression finds both in 'The ... of ... is ...'.",
        "A later value takes the place of the earlier one; 'forget' takes the fact out, and it may be told again.",
        "Write one line for each fact that holds, with the thing, the owner and the value.",
    )),
)  # fmt: skip
