"""Dialogues made from a seed: facts that are told once, changed, disputed, and others like them that nobody asks for."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import Item, assistant_message, function_call, function_call_output, input_message
from noetic_nb.lab._dialogues import Dialogue, Evidence, Question


class Subject(NamedTuple):
    """Something that can be known of a person."""

    kind: str
    """Of its value: ``word``, ``code``, ``amount``, ``day``."""
    words: list[str]
    told: str
    changed: str
    disputed: str
    """Somebody else says another value."""
    asked: str


class Language(NamedTuple):
    """All that is said in one language."""

    people: list[str]
    subjects: list[Subject]
    small_talk: list[str]
    answers: list[str]
    months: list[str]
    day: str
    lookup: str
    looked_up: str


def _language(
    people: str, subjects: str, small_talk: str, answers: str, months: str, day: str, lookup: str, looked_up: str
) -> Language:
    lines = iter(subjects.strip().splitlines())
    read = []
    for head in lines:
        kind, *words = head.split()
        read.append(Subject(kind, words, *[next(lines) for _ in range(4)]))
    talk, said = small_talk.strip().splitlines(), answers.strip().splitlines()
    return Language(people.split(), read, talk, said, months.split(), day, lookup, looked_up)


_ENGLISH: Final = _language(
    "Mara Joel Edith Tarek Nina Oskar Wanda Pavel Greta Silas Yusuf Leona",
    """
code
{who}'s locker has the code {value}.
They gave {who} a new locker code, it is {value} now.
The caretaker insists that {who}'s locker opens with {value}.
Which code opens {who}'s locker?
word Lisbon Tartu Bergen Galway Porto Gdansk Verona Ghent Malmo Split
{who} moved to {value} for work.
{who} has left again and lives in {value} these days.
Her brother says that {who} lives in {value}.
Where does {who} live?
amount
We agreed on {value} for {who}'s old piano.
The price of {who}'s piano went to {value} after the inspection.
The dealer wrote {value} for {who}'s piano in his offer.
How much is {who}'s piano?
day
{who} sees the dentist on {value}.
The dentist moved {who} to {value}.
The reminder card says that {who} is due on {value}.
When is {who}'s appointment with the dentist?
word coriander aniseed capers liquorice turmeric fennel olives marzipan celery dill
{who} cannot stand {value} in food.
{who} got used to everything but {value}.
The menu says {who} asked to leave out {value}.
What must not be in a dish for {who}?
code
{who}'s parcel travels under {value}.
{who}'s parcel was sent anew, as {value}.
The carrier lists {who}'s parcel as {value}.
What is the tracking number of {who}'s parcel?
""",
    """
It has been raining all day and I stayed in with a book and some tea.
I tried that bakery at the corner again, the queue was long but it was worth it.
My train was late once more, so I walked the last part along the canal.
The neighbours are renovating and the noise starts early every morning.
I am thinking about growing tomatoes on the balcony when it gets warmer.
We watched an old film last night and half of us fell asleep before the end.
The bicycle needs new brakes, I keep putting it off from week to week.
There was a concert in the park and we sat on the grass until it got dark.
""",
    """
I see. Is there anything else on your mind?
Good to know, I will keep it in mind for later.
That sounds like a full day. Shall we go on?
Noted. Tell me more whenever you like.
""",
    "January February March April May June July August September October November December",
    "{day} {month}",
    "Could you check what the registry has on {who}?",
    "Registry of residents, page {page}. " + "No further remarks were entered by the office in this period. " * 12,
)

_GERMAN: Final = _language(
    "Marlene Jonas Edda Thorben Nele Konrad Wiebke Paul Grete Sören Yasmin Leonie",
    """
code
Der Spind von {who} hat die Nummer {value}.
{who} hat einen neuen Spind bekommen, er hat jetzt die Nummer {value}.
Der Hausmeister behauptet, der Spind von {who} habe die Nummer {value}.
Welche Nummer hat der Spind von {who}?
word Lissabon Passau Bergen Galway Krakau Görlitz Verona Gent Rostock Linz
{who} ist beruflich nach {value} gezogen.
{who} ist wieder umgezogen und wohnt inzwischen in {value}.
Der Bruder sagt, dass {who} in {value} wohnt.
Wo wohnt {who}?
amount
Für das alte Klavier von {who} haben wir uns auf {value} geeinigt.
Nach der Prüfung kostet das Klavier von {who} noch {value}.
Im Angebot des Händlers stehen {value} für das Klavier von {who}.
Was kostet das Klavier von {who}?
day
{who} hat am {value} einen Termin beim Zahnarzt.
Der Zahnarzt hat den Termin von {who} auf den {value} verlegt.
Auf der Karte steht für {who} der {value} als Termin beim Zahnarzt.
Wann hat {who} den Termin beim Zahnarzt?
word Koriander Anis Kapern Lakritz Kurkuma Fenchel Oliven Marzipan Sellerie Dill
{who} mag im Essen keinen Geschmack von {value}.
{who} isst inzwischen alles, nur nichts mit {value}.
In der Bestellung von {who} steht: ohne {value}.
Was darf in einem Gericht für {who} nicht sein?
code
Das Paket von {who} läuft unter {value}.
Das Paket von {who} wurde neu verschickt, jetzt als {value}.
Der Paketdienst führt das Paket von {who} als {value}.
Welche Sendungsnummer hat das Paket von {who}?
""",
    """
Heute hat es den ganzen Tag geregnet, ich bin mit einem Buch und Tee zu Hause geblieben.
Ich war wieder bei dem Bäcker an der Ecke, die Schlange war lang, aber es hat sich gelohnt.
Mein Zug hatte schon wieder Verspätung, das letzte Stück bin ich am Kanal entlang gelaufen.
Die Nachbarn renovieren, und der Lärm fängt jeden Morgen sehr früh an.
Ich überlege, ob ich auf dem Balkon Tomaten ziehe, wenn es wärmer wird.
Gestern haben wir einen alten Film gesehen, die Hälfte von uns ist vor dem Ende eingeschlafen.
Das Fahrrad braucht neue Bremsen, aber ich schiebe es von Woche zu Woche auf.
Im Park war ein Konzert, und wir saßen auf der Wiese, bis es dunkel wurde.
""",
    """
Ich verstehe. Gibt es noch etwas, das dich beschäftigt?
Gut zu wissen, das merke ich mir für später.
Das klingt nach einem vollen Tag. Wollen wir weitermachen?
Notiert. Erzähl gern mehr, wann immer du magst.
""",
    "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "{day}. {month}",
    "Kannst du nachsehen, was im Register zu {who} steht?",
    "Melderegister, Seite {page}. " + "Weitere Vermerke hat das Amt in diesem Zeitraum nicht eingetragen. " * 12,
)

LANGUAGES: Final = {"en": _ENGLISH, "de": _GERMAN}
"""By code of ISO 639."""


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
