"""Exercises on memory and budgets: which items are sent, and a layer that keeps a fact in few tokens."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any, Final

from noetic_nb.items import item_text
from noetic_nb.lessons._exercise import Exercise
from noetic_nb.memory import ProjectionPolicy
from noetic_nb.models import ScriptedModel
from noetic_nb.runs import record
from noetic_nb.runtime import AgentConfig, AgentHarness
from noetic_nb.steps import react

# Sizes of items, oldest first, and the budget. Sizes differ, because equal ones can hide a wrong rule. Exact fits, an
# old item that fits although a newer one does not, nothing, and all.
_WINDOWS: Final[tuple[tuple[tuple[int, ...], int], ...]] = (
    ((40, 10, 30, 20), 60), ((40, 10, 30, 20), 59), ((5, 50, 10, 10), 30), ((10, 10, 10), 30), ((10, 10, 10), 9),
    ((7, 90, 3), 200), ((), 50), ((12, 12, 12, 12, 12), 37),
)  # fmt: skip

LIMIT: Final = 60
"""The total tokens that the layers of exercise 1.2 may be allocated."""

_TRIPS: Final = ("Oslo", "Lima", "Rome", "Kyoto", "Cairo", "Quito", "Perth", "Delhi", "Tunis")
_SEATS: Final = (
    "window",
    "aisle",
    "middle",
    "front",
    "rear",
    "exit",
    "upper",
    "quiet",
    "corner",
    "bulkhead",
    "lounge",
    "outer",
)
# The seed of the cases of exercise 1.2: seats, the order of the trips, and the time when the seat is named.
_SEED: Final = 12


def sent_positions(sizes: Sequence[int], room: int) -> list[int]:
    """Return the positions that are sent if the oldest items (sizes in tokens) are dropped until the rest fits.

    This is `truncate` of docs/behaviour/memory.md, "Projection".
    """
    first = 0
    while sum(sizes[first:]) > room:
        first += 1
    return list(range(first, len(sizes)))


def _sent(answer: Any) -> str | None:
    for sizes, room in _WINDOWS:
        expected, given = sent_positions(sizes, room), answer(list(sizes), room)
        if not isinstance(given, list | tuple) or list(given) != expected:
            shown = ", ".join(map(str, sizes)) or "no"
            return f"Items of {shown} tokens and room for {room}: {expected} are sent, your answer is {given!r}."
    return None


def _clerk(request: Any) -> str:
    *before, question = request.items
    if "Which seat" not in item_text(question):
        return "Noted."
    found = re.search(r"I always want an? (\w+) seat", " ".join(map(item_text, before)))
    return f"The {found[1]} seat." if found else "I do not know."


def _seat_talks(seed: int) -> list[tuple[str, list[str]]]:
    """Return random conversations: the seat, and the user's messages, in which the seat is not named first."""
    draw, talks = random.Random(seed), []
    for seat in draw.sample(_SEATS, 3):
        texts = [f"My trip to {city} was long and expensive." for city in draw.sample(_TRIPS, len(_TRIPS))]
        article = "an" if seat[0] in "aeiou" else "a"
        texts.insert(draw.randint(1, 2), f"I always want {article} {seat} seat.")
        talks.append((seat, texts))
    return talks


async def _conversation(memory: Any, texts: Sequence[str]) -> tuple[str, float]:
    """Return the last answer, and the largest total allocation of the layers in one call."""
    config = AgentConfig(
        name="clerk",
        step=react(model="scripted"),
        memory=memory,
        projection=ProjectionPolicy(token_budget=500, response_reserve=100, overflow="truncate"),
    )
    harness = AgentHarness(config, model=ScriptedModel(_clerk))
    run = record(harness)
    for text in texts:
        await harness.execute(text)
    reply = await harness.execute("Which seat do I like?")
    views = [view for turn in run.turns for view in turn.views]
    return reply.text, max((sum(layer.allocated for layer in view.layers) for view in views), default=0.0)


async def _keeps(answer: Any) -> str | None:
    for seat, texts in _seat_talks(_SEED):
        text, most = await _conversation(answer(), texts)
        if most > LIMIT:
            return f"The layers were allocated {most:.0f} tokens in one call; {LIMIT} are allowed."
        if seat not in text:
            said = next(each for each in texts if seat in each)
            return f"Among {len(texts) - 1} trips somebody said {said!r}, and at the end the agent says {text!r}"
    return None


MEMORY: Final = (
    Exercise("1.1", "sent", _sent, (
        "The newest items are sent. Start at the end of the list.",
        "Once an item does not fit, everything older is left out too, even what is small enough.",
        "Add up sizes from the newest backwards; stop before the sum exceeds the room. A sum equal to the room still fits.",
    )),
    Exercise("1.2", "layers", _keeps, (
        "Return a list with one layer. It has to read what is said: a text that you write into it knows one passenger only.",
        "nn.semantic_recall stores what is said. Look at how many tokens it *used* in section 3.",
        "Give it budget={'min': 0, 'max': ...}, not more than the limit and not less than what it used.",
    )),
)  # fmt: skip
