"""Dialogues with planted facts in several styles; the last styles are held out, so the rules were not fitted on them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

FIRST = [
    "Anna",
    "Tomás",
    "Zoë",
    "Ngozi",
    "Priya",
    "Olga",
    "Bernd",
    "Aisha",
    "Lucía",
    "Finn",
    "Mette",
    "Jürgen",
    "Chloé",
    "Mateus",
    "Ines",
]
LAST = [
    "Müller",
    "Okafor",
    "Baker",
    "Iyer",
    "Petrova",
    "O'Neill",
    "Sørensen",
    "García",
    "Novák",
    "Weiß",
    "Ferreira",
    "Lindqvist",
]
PLACES = ["Lisbon", "Köln", "Bergen", "Osaka", "Nairobi", "Graz", "Porto", "Malmö", "Quito", "Tallinn"]
THINGS = ["blue tent", "long lens", "red bicycle", "oak table", "green kettle", "old atlas"]
FILLERS = (
    "Thanks, that helps a lot.",
    "Could you wait a moment please?",
    "Sure, no problem at all.",
    "That sounds good to me.",
    "Please go ahead when you are ready.",
    "I am looking at it now, one second.",
    "Great, it is much clearer now.",
)


@dataclass
class Dialogue:
    """The user's texts, turn by turn; `planted` has the turn (from 1), the kind and the text of each fact."""

    turns: list[str] = field(default_factory=list)
    planted: list[tuple[int, str, str]] = field(default_factory=list)

    def say(self, text: str, **facts: str) -> None:
        self.turns.append(text.format(**facts))
        self.planted += [(len(self.turns), kind.rstrip("0123456789"), value) for kind, value in facts.items()]


def _code(rng: random.Random) -> str:
    letters = "".join(rng.choices("ABCDEFGHKLMNPRSTUVWX", k=rng.randint(1, 3)))
    return f"{letters}{rng.choice(['', '-', '_'])}{rng.randint(10, 99999)}" + rng.choice(["", "-B", "/7"])


def _amount(rng: random.Random, style: str) -> str:
    whole, cents = rng.randint(1_000, 99_999), rng.randint(1, 99)
    if style == "en":
        return rng.choice([f"${whole:,}.{cents:02}", f"{whole:,}", f"{whole}.{cents:02}", f"£{whole:,}"])
    grouped = f"{whole:,}".replace(",", rng.choice([".", "\u202f"]))
    return f"{grouped},{cents:02} €"


def desk(rng: random.Random) -> Dialogue:
    """A service desk in English: the style that the rules were written for."""
    made = Dialogue()
    name = f"{rng.choice(FIRST)} {rng.choice(LAST)}"
    made.say("Hello, my name is {name} and my order is {id}.", name=name, id=_code(rng))
    made.say(
        "It cost {number} and was due on {date}.", number=_amount(rng, "en"), date=f"{rng.randint(1, 28)} March 2026"
    )
    made.say('The label says "{quote}", and I live in {name}.', quote=rng.choice(THINGS), name=rng.choice(PLACES))
    made.say("{decision}", decision=f"We decided to return the {rng.choice(THINGS)}.")
    return made


def chat(rng: random.Random) -> Dialogue:
    """Informal English, with lists and asides."""
    made = Dialogue()
    one, two = rng.sample(FIRST, 2)
    made.say("so {name1} called and said hi, and {name2} is coming too!", name1=one, name2=two)
    made.say("btw - wifi password is '{quote}', room {number}", quote="tulip heron", number=str(rng.randint(100, 999)))
    made.say(
        "meet at {time} near {name} station?", time=rng.choice(["6:45 pm", "18:45", "7am"]), name=rng.choice(PLACES)
    )
    made.say("ok, agreed on the plan. {decision}", decision=f"Let's go with the {rng.choice(THINGS)}.")
    made.say("mail me at {id} or ring {id2}", id=f"{one.lower()}{rng.randint(1, 99)}@example.org", id2="+49 30 1234567")
    return made


def german(rng: random.Random) -> Dialogue:
    made = Dialogue()
    made.say(
        "Guten Tag, ich heiße {name} und meine Kundennummer ist {id}.",
        name=f"{rng.choice(FIRST)} {rng.choice(LAST)}",
        id=_code(rng),
    )
    made.say(
        "Die Rechnung über {number} kam am {date}.",
        number=_amount(rng, "de"),
        date=rng.choice(["12. März 2026", "03.04.2026", "5. Dezember"]),
    )
    made.say("Meine Schwester {name} wohnt in {name2}.", name=rng.choice(FIRST), name2=rng.choice(PLACES))
    made.say("{decision} Danke.", decision=f"Wir haben beschlossen, den Vertrag {_code(rng)} zu kündigen.")
    made.say("Auf dem Schild steht „{quote}“, Termin um {time}.", quote="Bitte klingeln", time="14.30 Uhr")
    return made


def other_scripts(rng: random.Random) -> Dialogue:
    """Held out: languages and scripts with and without capital letters."""
    made = Dialogue()
    made.say(
        "Bonjour, je suis {name}, dossier {id}, montant {number}.",
        name="Hélène Lefèvre",
        id=_code(rng),
        number="1 200,50 €",
    )
    made.say(
        "Me llamo {name} y vivo en {name2} desde el {date}.",
        name="Íñigo Sáenz",
        name2="Cádiz",
        date="3 de mayo de 2021",
    )
    made.say(
        "Меня зовут {name}, заказ {id}, сумма {number}.",
        name="Мария Белова",
        id=_code(rng),
        number=str(rng.randint(1000, 9999)),
    )
    made.say("我叫{name}，订单号是{id}，{date}到货。", name="王小明", id=_code(rng), date="2026年3月12日")
    made.say("田中さんの予約番号は{id}です。「{quote}」と書いてあります。", id=_code(rng), quote="立入禁止")
    made.say("اسمي {name} والمبلغ {number} ريال", name="أحمد علي", number="١٢٥٠")
    made.say("Ονομάζομαι {name} και μένω στην {name2}.", name="Ελένη Παππά", name2="Πάτρα")
    made.say("我们决定买{quote}。", quote="《红楼梦》")
    return made


def report(rng: random.Random) -> Dialogue:
    """Held out: notes, lists and data, as pasted by users."""
    made = Dialogue()
    name = f"{rng.choice(FIRST)} {rng.choice(LAST)}"
    made.say(
        "Summary:\n- contact: {name}\n- site: {name2}\n- ref {id}\n- budget {number}",
        name=name,
        name2=rng.choice(PLACES),
        id=_code(rng),
        number=_amount(rng, "en"),
    )
    made.say(
        '{{"customer": "{name}", "total": {number}, "due": "{date}"}}',
        name=name[::1],
        number="4815.16",
        date="2026-07-09",
    )
    made.say(
        "Dr. {name} approved it at {time}; see https://example.org/{id}",
        name=rng.choice(LAST),
        time="09:15",
        id="case/7731",
    )
    made.say("FYI the board {decision}", decision="rejected the offer from the second supplier.")
    made.say(
        "My manager, {name}, flies {id} to {name2} on {date}.",
        name=rng.choice(FIRST),
        id="LH438",
        name2=rng.choice(PLACES),
        date="Tuesday",
    )
    made.say("{name}'s new number is {id}.", name=rng.choice(FIRST), id="555-0142")
    return made


FITTED = (desk, chat, german)
HELD_OUT = (other_scripts, report)


def with_fillers(made: Dialogue, rng: random.Random, count: int) -> list[str]:
    """Return the turns followed by small talk."""
    return [*made.turns, *[rng.choice(FILLERS) for _ in range(count)]]
