"""Facts that others take the place of, and facts that fade."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.errors import NoeticConfigError
from noetic_nb.layers import entity_memory
from noetic_nb.layers._entity import strength
from noetic_nb.memory import MemoryLayer
from noetic_nb.storage import InMemoryStorage
from tests.layers.layer_driver import Conversation

ID = "entity-memory"
DAY = 86_400_000


async def talking(layer: MemoryLayer, **options: Any) -> Conversation:
    talk = Conversation(layer, **options)
    await talk.begin()
    return talk


async def tell(talk: Conversation, fact: str, about: str | None = None, name: str = "Ann") -> None:
    await talk.call(ID, "remember", name=name, fact=fact, about=about)


async def test_of_two_facts_about_the_same_the_newer_one_holds_and_the_older_is_kept_aside() -> None:
    talk = await talking(entity_memory())
    await tell(talk, "lives in Rome", "city")
    await tell(talk, "likes tea", "drink")
    await tell(talk, "has a cat")
    talk.clock.advance(DAY)
    await tell(talk, "lives in Oslo", " City ")

    assert talk.data(ID, "entities") == {"Ann": ("likes tea", "has a cat", "lives in Oslo")}
    assert talk.data(ID, "superseded") == {
        "Ann": ({"fact": "lives in Rome", "until": talk.clock.now_ms(), "by": "lives in Oslo"},)
    }
    assert "Rome" not in await talk.shown("Where does Ann live?")


async def test_a_fact_that_holds_again_takes_its_place_back() -> None:
    talk = await talking(entity_memory())
    for city in ("Rome", "Oslo", "Rome"):
        await tell(talk, f"lives in {city}", "city")

    assert talk.data(ID, "entities") == {"Ann": ("lives in Rome",)}
    assert [past["fact"] for past in talk.data(ID, "superseded")["Ann"]] == ["lives in Rome", "lives in Oslo"]


async def test_facts_about_the_same_of_two_people_both_hold() -> None:
    talk = await talking(entity_memory())
    await tell(talk, "lives in Rome", "city")
    await tell(talk, "lives in Oslo", "city", name="Bob")

    assert talk.data(ID, "entities") == {"Ann": ("lives in Rome",), "Bob": ("lives in Oslo",)}


async def test_a_function_can_tell_what_contradicts_and_an_extractor_what_it_is_about() -> None:
    async def contradicts(old: str, new: str) -> bool:
        return new == f"no longer {old}"

    def extract(text: str) -> dict[str, Any]:
        return {"Ann": [("city", "lives in Rome"), "likes tea"] if "tea" in text else ["no longer likes tea"]}

    talk = Conversation(entity_memory(extract, contradicts=contradicts))
    await talk.begin("I like tea, here in Rome.")
    await talk.end("A coffee, then?")
    await talk.begin()

    assert talk.data(ID, "entities") == {"Ann": ("lives in Rome", "no longer likes tea")}
    assert [past["fact"] for past in talk.data(ID, "superseded")["Ann"]] == ["likes tea"]


async def test_a_function_that_fails_changes_nothing_and_is_said() -> None:
    def contradicts(old: str, new: str) -> bool:
        raise ValueError("cannot tell")

    talk = Conversation(entity_memory(lambda text: {"Ann": [text]}, contradicts=contradicts))
    await talk.begin("likes tea")
    await talk.end("likes coffee")
    await talk.begin()

    assert talk.stack.told == [(ID, "store")]
    assert talk.data(ID, "entities") == {"Ann": ("likes tea",)}


@pytest.mark.parametrize(
    "given", [{"Ann": [("city",)]}, {"Ann": [("city", 7)]}, {"Ann": "tea"}, {"Ann": [None]}, {7: ["a"]}]
)
async def test_facts_in_another_form_are_said(given: Any) -> None:
    talk = Conversation(entity_memory(lambda text: given))

    await talk.begin("hello")

    assert talk.stack.told == [(ID, "on_item_append")]
    assert "Facts are lists of texts, or of pairs" in str(talk.stack.notes[0][2])


async def test_a_fact_fades_by_the_clock_and_is_kept() -> None:
    talk = await talking(entity_memory(half_life_days=10))
    await tell(talk, "has a cold")
    talk.clock.advance(29 * DAY)
    await tell(talk, "likes tea")

    assert "has a cold" in await talk.shown()
    talk.clock.advance(2 * DAY)
    assert "has a cold" not in await talk.shown("Ann")
    assert "likes tea" in await talk.shown("Ann")
    assert talk.data(ID, "entities") == {"Ann": ("has a cold", "likes tea")}
    await tell(talk, "has a cold")
    assert "has a cold" in await talk.shown()


async def test_what_was_told_often_is_shown_before_what_was_told_once_and_later() -> None:
    talk = await talking(entity_memory(half_life_days=30))
    for _ in range(3):
        await tell(talk, "likes tea")
        talk.clock.advance(DAY)
    await tell(talk, "saw a film")

    assert (await talk.shown()).splitlines()[1:3] == ["- Ann: likes tea", "- Ann: saw a film"]
    plain = await talking(entity_memory())
    await tell(plain, "likes tea")
    await tell(plain, "saw a film")
    assert (await plain.shown()).splitlines()[1] == "- Ann: saw a film"


async def test_facts_of_before_times_were_kept_count_from_when_the_entity_was_seen_last() -> None:
    storage = InMemoryStorage()
    before = await talking(entity_memory(), storage=storage)
    await tell(before, "likes tea")
    assert before.state(ID) == {"entities": {"Ann": {"facts": ["likes tea"], "seen": before.clock.now_ms()}}}
    await before.end("Noted.")

    after = Conversation(entity_memory(half_life_days=10), storage=storage)
    after.clock.advance(29 * DAY)
    assert "likes tea" in await after.begin("Ann")
    await tell(after, "likes cats")
    assert after.state(ID)["entities"]["Ann"]["told"]["likes tea"] == [before.clock.now_ms() - 60_000]
    after.clock.advance(2 * DAY)
    assert "likes tea" not in await after.shown("Ann")


TELLINGS = st.lists(
    st.tuples(st.sampled_from(["Ann", "ann", "Bob"]), st.sampled_from("abcdef"), st.sampled_from([None, "x", "y"])),
    max_size=25,
)


@given(TELLINGS)
def test_nothing_that_was_told_is_lost_and_one_fact_holds_about_each_thing(
    tellings: list[tuple[str, str, str | None]],
) -> None:
    async def run() -> None:
        talk = await talking(entity_memory(half_life_days=1, max_facts=100))
        for name, fact, about in tellings:
            await tell(talk, fact, about, name)
            talk.clock.advance(1_000)
        now, past = talk.data(ID, "entities"), talk.data(ID, "superseded")
        for name in {name.casefold() for name, _, _ in tellings}:
            key = next(known for known in now if known.casefold() == name)
            told = {fact for who, fact, _ in tellings if who.casefold() == name}
            assert set(now[key]) | {one["fact"] for one in past.get(key, ())} == told
            entity = talk.state(ID)["entities"][key]
            abouts = [entity["about"][fact] for fact in now[key] if fact in entity.get("about", {})]
            assert len(abouts) == len(set(abouts))
            assert set(entity["told"]) == set(now[key])
            assert all(1 <= len(times) <= 10 for times in entity["told"].values())

    asyncio.run(run())


@given(st.lists(st.floats(0, 1e13), min_size=1, max_size=10), st.floats(0.01, 1e4), st.floats(0, 1e13))
def test_a_fact_counts_half_as_much_after_a_half_life(times: list[float], days: float, later: float) -> None:
    now = max(times) + later

    here, then = strength(times, now, days), strength(times, now + days * DAY, days)

    assert 0 <= here <= len(times)
    # A moment of 1e13 ms is known to 0.002 ms, of a half-life of 864 s at the least.
    assert then == pytest.approx(here / 2, rel=1e-8, abs=1e-12)
    assert strength(times, min(times) - 1, days) == len(times)


BAD_OPTIONS: list[dict[str, Any]] = [
    {"half_life_days": 0},
    {"half_life_days": float("nan")},
    {"half_life_days": True},
    {"contradicts": len},
    {"contradicts": "x"},
]


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=str)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        entity_memory(**options)

    assert caught.value.code == "INVALID_LAYER_OPTION"
