"""Hybrid recall: keywords by BM25, vectors, and the two rankings joined by ranks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.layers import HashingEmbedder, hybrid_recall, semantic_recall
from noetic_nb.layers._helpers.considered import fitting_lines, tagged
from noetic_nb.layers._helpers.embedding import KeywordIndex, words_of
from noetic_nb.layers._hybrid import fused
from noetic_nb.storage import InMemoryStorage
from noetic_nb.tokens import estimate_tokens
from tests.layers.layer_driver import Conversation

WORDS = st.sampled_from(["ant", "bee", "cow", "dog", "東京", "the"])
SENTENCES = st.lists(WORDS, max_size=8).map(" ".join)


def okapi(texts: Sequence[str], query: str) -> list[float]:
    """Return the scores by the definition, without an index."""
    documents = [Counter(words_of(text)) for text in texts]
    mean = sum(document.total() for document in documents) / len(texts)
    scores = []
    for document in documents:
        score = 0.0
        for word in set(words_of(query)) & document.keys():
            holding = sum(word in other for other in documents)
            idf = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
            frequency = document[word]
            score += idf * frequency * 2.2 / (frequency + 1.2 * (0.25 + 0.75 * document.total() / mean))
        scores.append(score)
    return scores


@given(st.lists(SENTENCES, min_size=1, max_size=6), SENTENCES, st.sets(st.integers(0, 5)))
def test_scores_are_those_of_the_definition_whatever_was_there_before(
    texts: list[str], query: str, gone: set[int]
) -> None:
    index = KeywordIndex()
    for n, text in enumerate(texts):
        index.add(str(n), f"other {text}")
        index.add(str(n), text)
    for n in gone:
        index.remove(str(n))
    left = [n for n in range(len(texts)) if n not in gone]

    found = index.scores(query)

    assert index.keys == {str(n) for n in left}
    expected = okapi([texts[n] for n in left], query) if left else []
    assert [found.get(str(n), 0.0) for n in left] == pytest.approx(expected)
    assert all(score > 0 for score in found.values())


@given(st.lists(st.lists(st.integers(0, 6), unique=True), max_size=4))
def test_fused_ranks_are_ordered_by_the_sum_of_reciprocals(rankings: list[list[int]]) -> None:
    def score(one: int) -> float:
        return sum(1 / (60 + ranking.index(one) + 1) for ranking in rankings if one in ranking)

    order = fused(rankings)

    assert sorted(order) == sorted({one for ranking in rankings for one in ranking})
    assert [score(one) for one in order] == sorted(map(score, order), reverse=True)


def test_words_of_scripts_without_blanks_are_pairs() -> None:
    assert words_of("我住在罗马, room 12") == ["我住", "住在", "在罗", "罗马", "room", "12"]
    assert words_of("猫") == ["猫"]


class Topics:
    """Knows what a text is about, and no numbers or names."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        topics = (("car", "automobile", "garage"), ("tea", "coffee", "cup"))
        return [[1e-9, *(float(any(word in text.lower() for word in topic)) for topic in topics)] for text in texts]


async def told(layer: Any) -> Conversation:
    talk = Conversation(layer)
    for said in ("My automobile is red.", "The code is 4711.", "I like a cup of tea.", "It rains a lot."):
        await talk.turn(said, "I see.")
    await talk.begin()
    return talk


async def test_what_one_of_the_two_misses_the_other_finds() -> None:
    hybrid, vectors = (
        await told(hybrid_recall(Topics(), skip_recent=0)),
        await told(semantic_recall(Topics(), skip_recent=0)),
    )

    assert "4711" in await hybrid.shown("What is the code?")
    assert "4711" not in await vectors.shown("What is the code?")
    assert "automobile" in await hybrid.shown("Where is my car?")
    assert "rains" not in await hybrid.shown("Where is my car, and what is the code?")


async def test_what_both_find_comes_first() -> None:
    talk = await told(hybrid_recall(Topics(), skip_recent=0, top_k=1))

    assert await talk.shown("Is 4711 the colour of my red automobile?") == (
        "<hybrid_recall>\nuser: My automobile is red.\n</hybrid_recall>"
    )


async def test_with_an_embedder_that_fails_keywords_still_find_what_is_stored_and_it_is_said() -> None:
    class Service:
        is_down = False

        async def embed(self, texts: Sequence[str]) -> list[list[float]]:
            if self.is_down:
                raise ConnectionError("no route")
            return Topics().embed(texts)

    service = Service()
    talk = await told(hybrid_recall(service, skip_recent=0))
    service.is_down = True

    assert "4711" in await talk.shown("What is the code?")
    assert talk.stack.told == [("hybrid-recall", "recall")]
    error = talk.stack.notes[0][2]
    assert isinstance(error, NoeticError)
    assert error.kind == "tool_failed"
    assert "The embedder failed for 1 texts: ConnectionError: no route" in str(error)


async def test_what_is_forgotten_beyond_the_limit_is_not_found_by_its_words() -> None:
    talk = Conversation(hybrid_recall(skip_recent=0, max_entries=4))
    await talk.turn("The code is 4711.", "Noted.")
    assert "4711" in await talk.begin("Which code?")
    await talk.end("It is known.")
    for n in range(3):
        await talk.turn(f"Number {n}.", f"So it is {n}.")
    await talk.begin()

    assert "4711" not in await talk.shown("4711 code")
    assert talk.data("hybrid-recall", "count") == 4
    assert talk.stack.notes == []


async def test_words_are_found_again_in_the_next_process() -> None:
    storage = InMemoryStorage()
    first = Conversation(hybrid_recall(), storage=storage)
    await first.turn("Locker 4711 is mine.", "Noted.")

    shown = await Conversation(hybrid_recall(), storage=storage, thread_id="t2").begin("Whose is 4711?")

    assert "Locker 4711 is mine." in shown


async def test_what_stands_in_the_history_anyway_is_not_brought_back_by_its_words() -> None:
    talk = Conversation(hybrid_recall(skip_recent=4))
    await talk.turn("The code is 4711.", "Noted.")

    assert await talk.begin("Which code?") == ""
    await talk.end("It is known.")
    await talk.turn("Number 1.", "One.")

    assert "4711" in await talk.begin("Which code?")


async def test_messages_whose_vectors_have_another_size_are_found_by_their_words_and_it_is_said() -> None:
    storage = InMemoryStorage()
    before = Conversation(hybrid_recall(HashingEmbedder(64)), storage=storage)
    await before.turn("Locker 4711 is mine.", "Noted.")

    after = Conversation(hybrid_recall(HashingEmbedder(32)), storage=storage, thread_id="t2")

    assert "Locker 4711 is mine." in await after.begin("Whose is 4711?")
    assert "2 of 2 stored messages are not compared by nearness: their vectors have another length" in str(
        after.stack.notes[0][2]
    )


async def filled(count: int = 40, **options: Any) -> Conversation:
    talk = Conversation(hybrid_recall(False, skip_recent=0, max_entries=100, **options))
    for n in range(count):
        await talk.turn(f"The lamp of room {n} is on.", "Noted, as always.")
    await talk.begin()
    return talk


@pytest.mark.parametrize("budget", [40, 120, 300])
async def test_without_a_limit_recall_fills_its_budget(budget: int) -> None:
    few, many = await filled(), await filled(top_k=None)

    lines = (await many.shown("Which lamp?", budget)).splitlines()

    assert len((await few.shown("Which lamp?", budget)).splitlines()) <= min(12, len(lines))
    longest = max(estimate_tokens(f"user: The lamp of room {n} is on.") for n in range(40))
    assert budget - longest - 2 < estimate_tokens("\n".join(lines)) <= budget
    assert len(await many.call("hybrid-recall", "search", query="lamp")) == 10


async def test_neighbours_fill_the_budget_behind_their_hit() -> None:
    talk = await filled(top_k=None, neighbours=1)

    shown = await talk.shown("Which lamp?", 60)

    assert shown.count("Noted, as always.") >= 2
    assert "Noted" not in await (await filled(top_k=None)).shown("Which lamp?", 60)


@pytest.mark.parametrize(("roots", "found"), [(False, False), (True, True)])
async def test_words_are_compared_without_endings_where_that_is_wanted(roots: bool, found: bool) -> None:
    talk = await told(hybrid_recall(False, skip_recent=0, roots=roots))
    await talk.turn("She was packing parcels.", "I see.")
    await talk.begin()

    assert ("packing" in await talk.shown("Who packed a parcel?")) is found


@pytest.mark.parametrize(("spread", "found"), [(0.0, False), (0.5, True)])
async def test_an_answer_is_found_by_the_words_of_its_question(spread: float, found: bool) -> None:
    talk = Conversation(hybrid_recall(False, skip_recent=0, top_k=3, spread=spread))
    await talk.turn("How is my rabbit called?", "Snowball, of course.")
    await talk.turn("It rains.", "Take a coat.")
    await talk.begin()

    shown = await talk.shown("What name has the rabbit?")

    assert ("Snowball" in shown) is found
    assert "coat" not in shown


async def test_keywords_alone_store_no_vectors_and_work_in_the_next_process() -> None:
    storage = InMemoryStorage()
    first = Conversation(hybrid_recall(False), storage=storage)
    await first.turn("Locker 4711 is mine.", "Noted.")
    kept = [await storage.get(key) for key in await storage.list("") if "/said/" in key]

    assert {tuple(entry["vector"]) for entry in kept} == {(0.0,)}
    again = Conversation(hybrid_recall(False), storage=storage, thread_id="t2")
    assert "Locker 4711 is mine." in await again.begin("Whose is 4711?")
    assert again.stack.notes == []


@pytest.mark.parametrize("options", [{"top_k": 0}, {"spread": 2}, {"spread": "1"}, {"embedder": True}], ids=repr)
def test_bad_options_are_refused(options: Any) -> None:
    with pytest.raises(NoeticConfigError, match="INVALID_LAYER_OPTION"):
        hybrid_recall(**options)


@given(
    st.lists(st.text(alphabet="ab \n", max_size=30), max_size=30),
    st.floats(0, 200),
    st.sampled_from([len, estimate_tokens, lambda text: len(text.split()), lambda text: 3 * len(text) // 7 + 1]),
)
def test_the_lines_that_fit_are_the_longest_head(lines: list[str], budget: float, tokenize: Any) -> None:
    heads = [n for n in range(len(lines) + 1) if tokenize(tagged("t", "\n".join(lines[:n]))) <= budget]

    assert fitting_lines("t", lines, budget, tokenize) == lines[: max(heads, default=0)]
