"""Exercises on token costs: the bill of a conversation, cached parts of a request, and an order that keeps the cache."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from noetic_nb.items import item_text
from noetic_nb.lessons._exercise import Exercise
from noetic_nb.memory import MemoryHooks, MemoryLayer
from noetic_nb.models import ScriptedModel
from noetic_nb.runtime import AgentConfig, AgentHarness
from noetic_nb.steps import react

# Different turns, so that a mean cannot replace the sum; an empty answer; one turn; none.
_BILLS: Final[tuple[tuple[int, tuple[tuple[int, int], ...]], ...]] = (
    (100, ((10, 20), (30, 40))),
    (0, ((5, 700), (9, 2), (1, 1))),
    (1_200, ((55, 60),)),
    (7, ((10, 10), (10, 10), (10, 10), (10, 10))),
    (3, ((40, 0), (0, 8), (2, 90), (70, 5))),
    (500, ()),
)


def input_tokens(instructions: int, turns: Sequence[tuple[int, int]]) -> int:
    """Return the input tokens of all calls of a conversation; a turn is (tokens of the question, of the answer)."""
    before = [instructions + sum(map(sum, turns[:number])) for number in range(len(turns))]
    return sum(before) + sum(question for question, _ in turns)


def _bill(answer: Any) -> str | None:
    for instructions, turns in _BILLS:
        expected, given = input_tokens(instructions, turns), answer(instructions, list(turns))
        if given != expected or isinstance(given, bool):
            return (
                f"Instructions of {instructions} tokens and the turns {list(turns)}: the input is {expected} tokens, your "
                f"answer is {given!r}."
            )
    return None


_Parts = tuple[tuple[str, int], ...]
_RULES, _HELLO, _WHERE, _WHEN = ("rules", 1_000), ("hello", 24), ("where", 128), ("when", 200)
# Just long enough and just too short; whole steps and a remainder; a step that does not divide the minimum; the same
# parts elsewhere; other texts of equal size and the same text of another size; a request shorter than the previous one.
_REQUESTS: Final[tuple[tuple[_Parts, _Parts, int, int], ...]] = (
    ((_RULES, _HELLO), (_RULES, _HELLO, _WHERE), 1_024, 128),
    ((_RULES, ("hi", 23)), (_RULES, ("hi", 23), _WHERE), 1_024, 128),
    ((_RULES, _HELLO, _WHERE), (_RULES, _HELLO, _WHERE, _WHEN), 1_024, 128),
    ((_RULES, _HELLO, _WHEN), (_RULES, _HELLO, _WHEN, _WHERE), 1_024, 128),
    ((_RULES, _WHEN, _WHERE), (_RULES, _WHEN, _WHERE), 1_000, 150),
    ((("day 1", 10), _RULES, _WHEN), (("day 2", 10), _RULES, _WHEN, _WHERE), 500, 100),
    ((_RULES, _HELLO, _WHEN), (_RULES, ("howdy", 24), _WHEN), 256, 64),
    ((_RULES, _HELLO, _WHEN), (_RULES, ("hello", 25), _WHEN), 256, 64),
    ((_RULES, _HELLO, _WHERE, _WHEN), (_RULES, _HELLO), 100, 1),
    ((_WHERE, _RULES), (_RULES, _WHERE), 100, 10),
    ((), (_RULES,), 100, 10),
)


def cached_tokens(before: Sequence[tuple[str, int]], now: Sequence[tuple[str, int]], least: int, step: int) -> int:
    """Return the cached tokens of a request, given as parts of (text, tokens), after another request.

    `least` is the shortest prefix that is cached, in tokens, and `step` the increment by which longer ones grow; see
    docs/behaviour/models.md, "Caching of prompts".
    """
    same = 0
    while same < min(len(before), len(now)) and before[same] == now[same]:
        same += 1
    shared = sum(tokens for _, tokens in now[:same])
    return 0 if shared < least else least + (shared - least) // step * step


def _drawn() -> list[tuple[_Parts, _Parts, int, int]]:
    draw, found = random.Random(2), []
    for _ in range(20):
        front = tuple((f"part {number}", draw.randrange(1, 400)) for number in range(draw.randrange(1, 7)))
        cut = draw.randrange(len(front) + 1)
        found.append(
            (front, (*front[:cut], ("new", draw.randrange(1, 400)), *front[cut:]), draw.randrange(50, 900), 90)
        )
    return found


def _cached(answer: Any) -> str | None:
    for before, now, least, step in (*_REQUESTS, *_drawn()):
        expected, given = cached_tokens(before, now, least, step), answer(list(before), list(now), least, step)
        if given != expected or isinstance(given, bool):
            return (
                f"Before: {list(before)}. Now: {list(now)}. From {least} tokens on, in steps of {step}, {expected} are cached; "
                f"your answer is {given!r}."
            )
    return None


_QUESTIONS: Final = (
    "Which gate?", "May I bring a dog, and what does it cost?", "Is there coffee?", "And tea?", "Thanks!",
)  # fmt: skip


# The text of each layer in a turn, and its slot.
_STEADY: Final[dict[str, tuple[Callable[[int], str], int]]] = {
    "house-rules": (lambda turn: "Dogs travel free of charge in the last coach. " * 6, 90),
    "menu": (lambda turn: "Coffee and tea are served from seven to nine. " * 6, 120),
}
_CHANGING: Final[dict[str, tuple[Callable[[int], str], int]]] = {
    "weather": (lambda turn: f"It has {10 + turn} degrees in Oslo.", 80),
    "delay": (lambda turn: f"The train is {turn} minutes late.", 130),
}


def _layer(name: str, says: Callable[[int], str], slot: int) -> MemoryLayer:
    return MemoryLayer(id=name, slot=slot, scope="thread", hooks=MemoryHooks(recall=lambda p: says(p.ctx.turn)))


def _layers(said: dict[str, tuple[Callable[[int], str], int]]) -> list[MemoryLayer]:
    return [_layer(name, *what) for name, what in said.items()]


async def _sent_with(answer: Any, steady: list[MemoryLayer], changing: list[MemoryLayer]) -> tuple[str | None, int]:
    """Return a text missing from a request, and the number of characters that all requests share with their predecessor."""
    says = [(_STEADY | _CHANGING)[layer.id][0] for layer in (*steady, *changing)]
    given = answer(list(steady), list(changing))
    if not isinstance(given, dict) or not set(given) <= {"memory", "projection"}:
        raise TypeError("The answer must be a dictionary, {'memory': [...], 'projection': {...}}.")
    requests: list[_Parts] = [()]
    missing: list[str] = []

    def reply(request: Any) -> str:
        parts = tuple((text, len(text)) for item in request.items if (text := item_text(item)))
        turn = len(requests)
        wanted = [*[say(turn) for say in says], *_QUESTIONS[:turn]]
        missing.extend(text for text in wanted if not any(text.strip() in part for part, _ in parts))
        requests.append(parts)
        return "A short answer. " * turn

    harness = AgentHarness(AgentConfig(name="desk", step=react(model="scripted"), **given), model=ScriptedModel(reply))
    for question in _QUESTIONS:
        await harness.execute(question)
    shared = sum(cached_tokens(*pair, 0, 1) for pair in itertools.pairwise(requests))
    return next(iter(missing), None), shared


def _arranged(steady: list[MemoryLayer], changing: list[MemoryLayer]) -> dict[str, Any]:
    return {"memory": [*steady, *[layer.placed("suffix") for layer in changing]], "projection": {"order": "cache"}}


async def _arrangement(answer: Any) -> str | None:
    steady, changing = _layers(_STEADY), _layers(_CHANGING)
    for some, others in ((steady, changing), (steady[:1], changing[1:]), (steady, [])):
        _, best = await _sent_with(_arranged, some, others)
        missing, given = await _sent_with(answer, some, others)
        layers = f"{len(some)} steady and {len(others)} changing layers"
        if missing:
            return f"With {layers}: a request did not have {missing[:60]!r}."
        if given < best:
            return f"With {layers}, five requests can share {best:,} characters with the one before; yours share {given:,}."
    return None


TOKENS: Final = (
    Exercise("2.1", "billed", _bill, (
        "Each call sends the instructions, all questions and answers before it, and its own question.",
        "Go through the turns and keep what came before in a variable, which begins with the instructions.",
        "Add before + question to the total, and then question + answer to what came before.",
    )),
    Exercise("2.2", "from_cache", _cached, (
        "Compare part by part, text and size, and stop at the first that differs. What is alike behind it does not count.",
        "A beginning of exactly `least` tokens is cached. Steps are counted from `least` on, not from 0.",
        "(shared - least) % step tokens are over, those of the last step that is not whole.",
    )),
    Exercise("2.3", "arranged", _arrangement, (
        "Put the changing layers behind the steady ones. Section 4 moves one layer.",
        "Steady layers stay where they are: behind the conversation they would be sent anew with each call.",
        "It takes both: layer.placed('suffix') for each layer that changes, and a projection of order 'cache'.",
    )),
)  # fmt: skip
