"""Dialogues generated from a seed, with an adjustable overlap of words between questions and facts."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from noetic_nb._core.arguments import check_seed
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import Item, assistant_message, function_call, function_call_output, input_message, item_tokens
from noetic_nb.lab._checks import check_share
from noetic_nb.lab._dialogues import Dialogue, Evidence, Question


class Subject(NamedTuple):
    """A fact about a person, and ways to state it."""

    kind: str
    """The kind of its values: ``code``, ``amount``, ``day``, or ``word``, with the words."""
    words: tuple[str, ...]
    attribute: tuple[str, ...]
    told: tuple[str, ...]
    changed: tuple[str, ...]
    disputed: tuple[str, ...]
    """Statements in which another person gives another value."""
    near: str
    """A question that shares a word with each statement."""
    far: str
    """A question that shares none."""


# For each subject: values and attribute words; ways to state, change and dispute it; the near and the far question.
_SUBJECTS_TEXT: Final = Path(__file__).with_name("data").joinpath("subjects.txt").read_text(encoding="utf-8")


def _subject(text: str) -> Subject:
    head, told, changed, disputed, near, far = text.splitlines()
    kind, _, attribute = head.partition(" / ")
    name, *words = kind.split()

    def ways(line: str) -> tuple[str, ...]:
        return tuple(line.split(" | "))

    return Subject(name, tuple(words), tuple(attribute.split()), ways(told), ways(changed), ways(disputed), near, far)


SUBJECTS: Final = tuple(_subject(block) for block in _SUBJECTS_TEXT.strip().split("\n\n"))
NAMES: Final = ("Mara", "Joel", "Edith", "Tarek", "Nina", "Oskar", "Wanda", "Pavel", "Greta", "Silas", "Yusuf", "Leona")
ROLES: Final = ("sister", "boss", "uncle", "trainer", "flatmate", "godmother", "colleague", "nephew")
SMALL_TALK: Final = (
    "It has been raining all day and I stayed in with a book and some tea.",
    "I tried that bakery at the corner again, the queue was long but it was worth it.",
    "My train was late once more, so I walked the last part along the canal.",
    "The neighbours are renovating and the noise starts early every morning.",
    "I am thinking about growing tomatoes on the balcony when it gets warmer.",
    "We watched an old film last night and half of us fell asleep before the end.",
    "The bicycle needs new brakes, I keep putting it off from week to week.",
    "There was a concert in the park and we sat on the grass until it got dark.",
)
ANSWERS: Final = (
    "I see. Is there anything else on your mind?",
    "Good to know, I will keep it in mind for later.",
    "That sounds like a full day. Shall we go on?",
    "Noted. Tell me more whenever you like.",
)
MONTHS: Final = ("January", "March", "April", "June", "August", "September", "October", "November")
_PAGE: Final = "Registry, page {page}. " + "No further remarks were entered by the office in this period. " * 12

# Questions of each kind per dialogue.
KINDS: Final = {"told": 3, "changed": 2, "disputed": 1, "looked up": 1, "deleted": 1, "unanswerable": 1}
SESSIONS: Final = 3
PEOPLE: Final = 4
TALK: Final = 9
ID_LENGTH: Final = 36
BEGINS_MS: Final = 1_767_268_800_000.0  # 2026-01-01 12:00 UTC
WEEK_MS: Final = 604_800_000.0
_DIGITS: Final = "23456789"
_LETTERS: Final = "BCDFGHKLMNPRSTVWXZ"


def made_dialogues(
    n: int = 20, *, overlap: float = 1.0, seed: int = 0, kinds: Iterable[str] | None = None
) -> tuple[Dialogue, ...]:
    """Generate dialogues between a user and an assistant about other people.

    The statements are the same for every `overlap`; only the questions change.

    Parameters
    ----------
    n : int
        The number of dialogues; a larger number begins with the same ones.
    overlap : float
        From 0, where no question shares a content word with its statement, to 1, where each names the person and the
        thing as the statement does. Between them, this share of questions names the person, and this share the thing;
        those of a smaller overlap are among those of a larger one.
    seed : int
        The same seed gives the same dialogues.
    kinds : iterable of str, optional
        From ``"told"`` (once), ``"changed"`` (the newest value is right), ``"disputed"`` (both values are right),
        ``"looked up"`` (in a long tool result), ``"deleted"`` ("forget that"), ``"unanswerable"`` (only stated about
        others). All by default.

    Returns
    -------
    tuple of Dialogue
        Each has three sessions, a week apart, and four people. Every requested subject is also stated about another person,
        in one of several ways. A question may say "my sister" instead of the name; the dialogue says who that is.

    Raises
    ------
    NoeticConfigError
        ``INVALID_COUNT``, ``INVALID_OVERLAP``, ``INVALID_SEED`` or ``UNKNOWN_KIND``.

    Examples
    --------
    >>> [one] = made_dialogues(1, kinds=["told"])
    >>> [far] = made_dialogues(1, overlap=0, kinds=["told"])
    >>> one.sessions == far.sessions, one.questions[0].evidence == far.questions[0].evidence
    (True, True)
    >>> one.questions[0].text, far.questions[0].text
    ('Which plate is on the car of Pavel?', 'How do I recognise the vehicle that my boss uses?')
    """
    if type(n) is not int or n < 1:
        raise NoeticConfigError("INVALID_COUNT", "The number of dialogues must be at least 1.", given=n, hint="Use 20.")
    check_share("INVALID_OVERLAP", overlap=overlap)
    check_seed(seed)
    wanted = _kinds(kinds)
    return tuple([_made(at, seed, overlap, wanted) for at in range(n)])


def _kinds(given: Any) -> dict[str, int]:
    if given is None:
        return KINDS
    if (
        isinstance(given, str)
        or not isinstance(given, Iterable)
        or not (names := list(given))
        or not all(isinstance(name, str) and name in KINDS for name in names)
    ):
        hint = f"For example: kinds={list(KINDS)}."
        raise NoeticConfigError("UNKNOWN_KIND", "`kinds` must be a list of known kinds.", given=given, hint=hint)
    return {kind: count for kind, count in KINDS.items() if kind in names}


def with_filler(dialogues: Iterable[Dialogue], tokens: int, *, seed: int = 0) -> tuple[Dialogue, ...]:
    """Return dialogues padded to a total number of tokens by a session of small talk before the last one.

    Questions and evidence are unchanged, as are dialogues that are long enough. Raises `NoeticConfigError`
    ``INVALID_FILLER``.

    Examples
    --------
    >>> [one] = with_filler(made_dialogues(1), 4_000)
    >>> len(one.sessions), one.questions == made_dialogues(1)[0].questions
    (4, True)
    """
    if type(tokens) is not int or tokens < 0:
        raise NoeticConfigError("INVALID_FILLER", "`filler` is a token count.", given=tokens, hint="Use 8_000.")
    check_seed(seed)
    return tuple([_filled(one, tokens, random.Random(f"{seed} {one.name} filler")) for one in dialogues])


def _filled(one: Dialogue, tokens: int, rng: random.Random) -> Dialogue:
    left = tokens - sum([item_tokens(item) for session in one.sessions for item in session])
    talk: list[Item] = []
    while left > 0:
        at = len(talk)
        talk += [
            input_message(rng.choice(SMALL_TALK), item_id=f"{one.name}:talk-{at}"),
            assistant_message(rng.choice(ANSWERS), item_id=f"{one.name}:talk-{at + 1}"),
        ]
        left -= sum([item_tokens(item) for item in talk[at:]])
    if not talk:
        return one
    sessions = (*one.sessions[:-1], tuple(talk), *one.sessions[-1:])
    dates = (*one.dates_ms[:-1], None, *one.dates_ms[-1:]) if one.dates_ms else ()
    return Dialogue(one.name, sessions, one.questions, dates)


class _Maker:
    """A dialogue under construction: the exchanges of each session."""

    def __init__(self, name: str, overlap: float, rng: random.Random, asking: random.Random) -> None:
        self.name, self.overlap, self.rng, self.asking = name, overlap, rng, asking
        self.said: list[list[tuple[Item, ...]]] = [[] for _ in range(SESSIONS)]
        self.questions: list[Question] = []
        self.roles: dict[str, str] = {}
        self.introduced: dict[str, Evidence] = {}
        self._used: set[str] = set()
        self._number = 0

    def value(self, subject: Subject) -> str:
        """Return a value that occurs nowhere else in the dialogue."""
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
            return f"{rng.randint(1, 28)} {rng.choice(MONTHS)}"
        return f"{''.join(rng.choices(_LETTERS, k=2))}-{''.join(rng.choices(_DIGITS, k=4))}"

    def _id(self) -> str:
        self._number += 1
        # As long as a random id, because ids count as tokens.
        return f"{self.name}:{self._number:0{ID_LENGTH - 1 - len(self.name)}}"

    def say(self, session: int, text: str, *, anywhere: bool = False) -> str:
        """Add a sentence and an answer; return the item id. With `anywhere`, insert it between earlier sentences."""
        item_id = self._id()
        answer = assistant_message(self.rng.choice(ANSWERS), item_id=self._id())
        place = self.rng.randint(0, len(self.said[session])) if anywhere else len(self.said[session])
        self.said[session].insert(place, (input_message(text, item_id=item_id), answer))
        return item_id

    def look_up(self, session: int, who: str, told: str) -> str:
        """Add a tool call whose long result states a fact."""
        asked = input_message(f"Could you check what the registry has on {who}?", item_id=self._id())
        call_id, item_id = self._id(), self._id()
        # From 100 to 199: amounts are larger, and no value may occur in two items.
        page = _PAGE.format(page=self.rng.randint(100, 199))
        half = page.find(". ", len(page) // 2) + 2
        call = function_call("look_up", f'{{"name": "{who}"}}', call_id, item_id=self._id())
        output = function_call_output(call_id, f"{page[:half]}{told} {page[half:]}", item_id=item_id)
        answer = assistant_message(self.rng.choice(ANSWERS), item_id=self._id())
        self.said[session].append((asked, call, output, answer))
        return item_id

    def owner(self, who: str) -> tuple[str, ...]:
        return who, f"my {self.roles[who]}", f"your {self.roles[who]}"

    def evidence(self, item: str, value: str, who: str, subject: Subject) -> Evidence:
        return Evidence(item, value, self.owner(who), subject.attribute)

    def ask(
        self,
        kind: str,
        who: str,
        subject: Subject,
        evidence: tuple[Evidence, ...] = (),
        outdated: tuple[Evidence, ...] = (),
    ) -> None:
        """Add a question that shares words with the statements according to the overlap."""
        by_name, by_word = self.asking.random() < self.overlap, self.asking.random() < self.overlap
        form = subject.near if by_word else subject.far
        text = form.format(who=who if by_name else f"my {self.roles[who]}")
        needs = () if by_name or not evidence else (self.introduced[who],)
        self.questions.append(Question(text, evidence, kind, outdated, needs))


def _made(at: int, seed: int, overlap: float, kinds: dict[str, int]) -> Dialogue:
    rng = random.Random(f"{seed} {at}")
    maker = _Maker(f"made-{at}", overlap, rng, random.Random(f"{seed} {at} asked"))
    people = rng.sample(NAMES, PEOPLE)
    for who, role in zip(people, rng.sample(ROLES, PEOPLE), strict=True):
        maker.roles[who] = role
        item = maker.say(0, f"My {role} is called {who}.")
        maker.introduced[who] = Evidence(item, who, (f"my {role}", f"your {role}"), (role,))
    places = [(who, subject) for who in people for subject in SUBJECTS]
    rng.shuffle(places)
    asked: dict[Subject, None] = {}
    for kind, count in kinds.items():
        for _ in range(count):
            who, subject = places.pop()
            _plant(maker, kind, who, subject)
            asked.setdefault(subject)
    for subject in asked:
        # The same subject about another person, for whom it is never requested.
        other = next((who for who, left in places if left is subject), None)
        if other is not None:
            form = rng.choice(subject.told).format(who=other, value=maker.value(subject))
            maker.say(rng.randrange(SESSIONS), form, anywhere=True)
    for place in range(TALK):
        maker.say(place % SESSIONS, rng.choice(SMALL_TALK), anywhere=True)
    sessions = [tuple([item for exchange in said for item in exchange]) for said in maker.said]
    dates = tuple([BEGINS_MS + WEEK_MS * number for number in range(SESSIONS)])
    return Dialogue(maker.name, tuple(sessions), tuple(maker.questions), dates)


def _plant(maker: _Maker, kind: str, who: str, subject: Subject) -> None:
    """State the facts for a question of some kind, and ask it."""
    if kind == "unanswerable":
        maker.ask(kind, who, subject)
        return
    rng = maker.rng
    value, first = maker.value(subject), rng.randrange(SESSIONS)
    told = rng.choice(subject.told).format(who=who, value=value)
    item = maker.look_up(first, who, told) if kind == "looked up" else maker.say(first, told)
    before = maker.evidence(item, value, who, subject)
    if kind in ("told", "looked up"):
        maker.ask(kind, who, subject, (before,))
        return
    # Small talk separates the two statements.
    maker.say(first, rng.choice(SMALL_TALK))
    later = rng.randrange(first, SESSIONS)
    if kind == "deleted":
        maker.say(later, f"Please forget the {subject.attribute[0]} of {who}, nobody should have it.")
        maker.ask(kind, who, subject, outdated=(before,))
        return
    other = maker.value(subject)
    form = rng.choice(getattr(subject, kind)).format(who=who, value=other)
    after = maker.evidence(maker.say(later, form), other, who, subject)
    if kind == "changed":
        maker.ask(kind, who, subject, (after,), (before,))
    else:
        maker.ask(kind, who, subject, (before, after))
