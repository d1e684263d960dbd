"""Facts planted in long conversations: which layer brings them back, at which budget.

After LongMemEval (Wu et al., 2024): facts are dropped in passing in early sessions, many sessions of small talk follow,
then each fact is asked for. A fact counts as recalled when its answer is in what the layers show. Printed as a table.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from noetic_nb.layers import (
    entity_memory,
    episodic_memory,
    hybrid_recall,
    observational_memory,
    procedural_memory,
    semantic_recall,
    working_memory,
)
from noetic_nb.memory import MemoryLayer
from noetic_nb.storage import InMemoryStorage
from tests.layers.layer_driver import Conversation

# (what is said in passing, what is asked much later, what the answer must hold)
FACTS: list[tuple[str, str, str]] = [
    ("By the way, my locker number is 4711.", "What is the number of my locker?", "4711"),
    ("My sister Clara moved to Lisbon in spring.", "Where did my sister Clara move?", "Lisbon"),
    ("I am allergic to peanuts, please keep that in mind.", "Which food am I allergic to?", "peanuts"),
    ("Our cat is called Miso.", "What is our cat called?", "Miso"),
    ("The password hint for the router is 'blue heron'.", "What is the hint for the router password?", "blue heron"),
    ("I parked the car on level 3 of the garage.", "On which garage level did I park the car?", "level 3"),
    ("My dentist appointment is on the 14th of May.", "When is my dentist appointment?", "14th of May"),
    ("Grandma's cake needs 250 grams of hazelnuts.", "How many grams of hazelnuts for grandma's cake?", "250"),
]
SMALL_TALK = [
    "Can you explain how {} works?",
    "Tell me something about {}.",
    "I read an article on {} today.",
    "What do you think of {}?",
]
SUBJECTS = ["tides", "volcanoes", "sailing", "chess", "bread", "glass", "bridges", "bees", "maps", "opera", "trains"]
BUDGETS = (60, 200, 800)


def observer(texts: Any) -> list[str]:
    """Keep what sounds like a fact about the person: the offline stand-in for a model that observes."""
    return [
        text
        for text in texts
        if any(word in f" {text.lower()} " for word in (" my ", " our ", " i am ", "grandma", " i parked "))
    ]


def entities(text: str) -> dict[str, list[str]]:
    """File a fact under the longest word of its sentence that names something."""
    found = observer([text])
    return {max(text.replace(".", "").split(), key=len): found} if found else {}


LAYERS: dict[str, Callable[[], MemoryLayer]] = {
    "semantic recall": lambda: semantic_recall(top_k=5),
    "hybrid recall": lambda: hybrid_recall(top_k=5),
    "observational": lambda: observational_memory(observer, buffer_threshold=50, max_observations=50),
    "entity": lambda: entity_memory(entities),
    "episodic, by similarity": lambda: episodic_memory(retrieval="similarity", max_episodes=200),
    "episodic, by recency": lambda: episodic_memory(retrieval="recency", max_episodes=200),
    "procedural": procedural_memory,
    "working memory": working_memory,
}
# The least that must be recalled, of all facts, at each budget. Layers that nobody writes to recall nothing.
FLOORS: dict[str, tuple[float, float, float]] = {
    "semantic recall": (0.85, 0.85, 0.85),
    "hybrid recall": (0.85, 0.85, 0.85),
    "observational": (0.4, 0.85, 0.85),
    "entity": (0.75, 0.85, 0.85),
    "episodic, by similarity": (0.75, 0.85, 0.85),
    "episodic, by recency": (0.0, 0.0, 0.0),
    "procedural": (0.0, 0.0, 0.0),
    "working memory": (0.0, 0.0, 0.0),
}


async def recalled(make: Callable[[], MemoryLayer], sessions: int = 12, turns: int = 6) -> dict[int, float]:
    """Return the share of facts shown when asked for, by budget."""
    chance = random.Random(7)
    storage = InMemoryStorage()
    for session in range(sessions):
        talk = Conversation(make(), storage=storage, thread_id=f"t{session}")
        talk.clock.advance(session * 86_400_000)
        planted = FACTS[2 * session : 2 * session + 2]
        for n in range(turns):
            subject = chance.choice(SUBJECTS)
            said = (
                planted[n // 2][0]
                if n in (1, 3) and n // 2 < len(planted)
                else chance.choice(SMALL_TALK).format(subject)
            )
            await talk.turn(said, f"Here is something about {subject}, as you like it.")
    found = dict.fromkeys(BUDGETS, 0)
    asking = Conversation(make(), storage=storage, thread_id="asking")
    asking.clock.advance(sessions * 86_400_000)
    await asking.begin()
    for _, question, answer in FACTS:
        for budget in BUDGETS:
            found[budget] += answer in await asking.shown(question, budget)
    return {budget: count / len(FACTS) for budget, count in found.items()}


@pytest.mark.parametrize("name", LAYERS)
async def test_a_planted_fact_is_recalled_within_the_budget(
    name: str, record_property: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    shares = await recalled(LAYERS[name])

    with capsys.disabled():
        cells = "  ".join(f"{budget:>4} tokens {share:4.0%}" for budget, share in shares.items())
        print(f"\nrecall of planted facts | {name:<24} | {cells}")
    assert tuple(shares.values()) == tuple(sorted(shares.values())), "more room never means fewer facts"
    for (budget, share), floor in zip(shares.items(), FLOORS[name], strict=True):
        assert share >= floor, (name, budget)


async def test_no_layer_recalls_the_facts_of_somebody_else() -> None:
    storage = InMemoryStorage()
    for make in (LAYERS["semantic recall"], LAYERS["observational"], LAYERS["entity"], LAYERS["episodic, by recency"]):
        ann = Conversation(make(), storage=storage)
        for said, _, _ in FACTS:
            await ann.turn(said)
        bob = Conversation(make(), storage=storage, resource_id="bob")
        await bob.begin()

        assert [await bob.shown(question) for _, question, _ in FACTS] == [""] * len(FACTS)
