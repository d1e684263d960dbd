"""The sentences of made dialogues, in English and German. `{who}` is a person, `{value}` the subject of a fact."""

from __future__ import annotations

from typing import Final, NamedTuple


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
