"""Conversations with planted facts, and summarisers that keep, rephrase or lose them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import noetic_nb as nn
from noetic_nb.events import ContextCompacted, ItemsAppended, ModelCalled, RunEvent, TurnStarted, Where
from noetic_nb.items import Item, assistant_message, input_message
from tests.lab.planted_facts import FILLERS, FIRST, LAST, PLACES, THINGS
from tests.lab.said_preferences import STATES

_FOLDERS: Final = ("src", "docs", "config", "tests", "app", "data/raw", "lib/core")
_STEMS: Final = ("report", "settings", "orders", "loader", "prices", "notes", "router", "schema")
_ENDS: Final = ("py", "yaml", "csv", "md", "json", "toml", "ts")
_COMMANDS: Final = (
    "pytest -x {path}",
    "npm run build",
    "git push origin release-{n}",
    "docker compose up -d web{n}",
    "pip install -e .[dev{n}]",
    "make docs-{n}",
    "kubectl rollout restart deploy/api-{n}",
    "uv run {path} --seed {n}",
)


class Planted(NamedTuple):
    """A fact, the turn that states it (from 0), and the sentence."""

    kind: str
    text: str
    turn: int
    said: str


class Talk(NamedTuple):
    """The user's texts, turn by turn, and the facts in them."""

    turns: list[str]
    planted: list[Planted]


def talk(rng: random.Random, states: Sequence[tuple[str, str]]) -> Talk:
    """Make a conversation with one fact of each kind, some likes and states, and small talk between them."""
    number = rng.randint(1_100, 98_000)
    path = f"{rng.choice(_FOLDERS)}/{rng.choice(_STEMS)}_{rng.randint(10, 99)}.{rng.choice(_ENDS)}"
    other = f"/srv/{rng.choice(_STEMS)}/{rng.choice(_STEMS)}{rng.randint(10, 99)}.{rng.choice(_ENDS)}"
    command = rng.choice(_COMMANDS).format(path=other, n=rng.randint(100, 999))
    name = f"{rng.choice(FIRST)} {rng.choice(LAST)}"
    thing = f"{rng.choice(THINGS)} for {rng.choice(PLACES)}"
    decision = rng.choice(["We decided to buy the {}.", "We agreed on the {}.", "We ruled out the {}."]).format(thing)
    facts = [
        ("number", f"{number}", f"The whole order came to {number} euros."),
        (
            "path",
            path,
            rng.choice(["The list is in {}.", "Please edit `{}` next.", "I put it into {} for you."]).format(path),
        ),
        (
            "command",
            command,
            rng.choice(["I start it with `{}`.", "Use `{}` to check.", "It runs with\n$ {}"]).format(command),
        ),
        ("name", name, rng.choice(["Ask {} about it.", "It belongs to {}, as you know."]).format(name)),
        ("decision", decision, decision),
        *[("preference", core, said) for said, core in rng.sample(list(states), 3)],
    ]
    rng.shuffle(facts)
    turns: list[str] = []
    planted = []
    for kind, text, said in facts:
        turns += [rng.choice(FILLERS) for _ in range(rng.randint(0, 2))]
        planted.append(Planted(kind, text, len(turns), said))
        turns.append(said)
    return Talk(turns, planted)


# A summariser returns the lines it writes, given the conversation's lines with their positions.
Summariser = Callable[[Sequence[str], random.Random], dict[int, str]]


def verbatim(said: Sequence[str], rng: random.Random) -> dict[int, str]:
    """Keep every line verbatim."""
    return dict(enumerate(said))


def third_person(said: Sequence[str], rng: random.Random) -> dict[int, str]:
    """Keep everything, in the third person."""
    swaps = (
        (r"\bI'm\b", "the user is"),
        (r"\bI've\b", "the user has"),
        (r"\bI'd\b", "the user would"),
        (r"\bI\b", "the user"),
    )
    swaps += ((r"\b[Mm]y\b", "the user's"), (r"\b[Ww]e\b", "they"), (r"\bme\b", "the user"))
    found = {}
    for at, line in enumerate(said):
        for form, word in swaps:
            line = re.sub(form, word, line)
        found[at] = f"- {line}"
    return found


def telegram(said: Sequence[str], rng: random.Random) -> dict[int, str]:
    """Keep everything without small words."""
    small = r"\b(?:the|a|an|is|are|was|I'm|I|my|his|her|our|so|please|and|by the way|it|we|you|for you|with)\b ?"
    return {at: re.sub(small, "", line) for at, line in enumerate(said)}


def forgetful(said: Sequence[str], rng: random.Random) -> dict[int, str]:
    """Keep an arbitrary half of the lines."""
    return {at: line for at, line in enumerate(said) if rng.random() < 0.5}


def polite(said: Sequence[str], rng: random.Random) -> dict[int, str]:
    """Keep nothing."""
    return {}


SUMMARISERS: Final[tuple[Summariser, ...]] = (verbatim, third_person, telegram, forgetful, polite)


class Compacted(NamedTuple):
    """A run with one compaction, and its facts by whether the summary has them."""

    run: nn.Run
    kept: list[Planted]
    gone: list[Planted]


def compacted(
    made: Talk, summarise: Summariser, rng: random.Random, questions: Sequence[str] = ("Thanks, go on please.",)
) -> Compacted:
    """Return the run of another program that compacted a conversation and continued with some questions."""
    kept = summarise(made.turns, rng)
    summary = "\n".join(["Summary of the conversation so far:", *kept.values()])
    events: list[RunEvent] = []
    length = 0

    def say(turn: int, text: str) -> None:
        nonlocal length
        where = Where("t1", f"e{turn}", turn)
        items: list[tuple[str, Item]] = [("user", input_message(text)), ("model", assistant_message("Noted."))]
        events.append(TurnStarted(where, 0.0, f"turn-{turn}", length, length + 1, text))
        events.append(ItemsAppended(where, 0.0, length, (items[0][1],), "user"))
        events.append(ModelCalled(where, 0.0, 0, "m", "agent", 1.0, "ok", (items[1][1],)))
        events.append(ItemsAppended(where, 0.0, length + 1, (items[1][1],), "model"))
        length += 2

    for turn, text in enumerate(made.turns, 1):
        say(turn, text)
    where = Where("t1", f"e{len(made.turns)}", len(made.turns))
    events.append(ContextCompacted(where, 0.0, "writer", None, (input_message(summary),)))
    for turn, text in enumerate(questions, len(made.turns) + 1):
        say(turn, text)
    return Compacted(
        nn.Run(events=events),
        [one for one in made.planted if one.turn in kept],
        [one for one in made.planted if one.turn not in kept],
    )


__all__ = ["STATES", "SUMMARISERS", "Compacted", "Planted", "Talk", "compacted", "talk"]
