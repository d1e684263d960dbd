"""A memory outside of the library behind a layer: what it is given, what it is asked, what a failure leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb import lab
from noetic_nb.errors import NoeticConfigError
from noetic_nb.layers import external_memory
from noetic_nb.layers._helpers.embedding import words_of
from noetic_nb.storage import InMemoryStorage
from noetic_nb.testing import FakeClock
from tests.layers.layer_driver import Conversation


class Notes:
    """A store that keeps every message as a note."""

    def __init__(self) -> None:
        self.added: list[tuple[list[Mapping[str, str]], str, datetime]] = []
        self.notes: dict[str, Any] = {}
        self.spent: list[nn.Usage] = []
        self.is_down = False

    def add(self, messages: Sequence[Mapping[str, str]], *, session: str, when: datetime) -> None:
        if self.is_down:
            raise ConnectionError("no route")
        self.added.append((list(messages), session, when))
        self.spent.append(nn.Usage(100, 20, None))
        for message in messages:
            self.notes[str(len(self.notes))] = {"text": message["content"], "id": str(len(self.notes))}

    def search(self, query: str, *, limit: int) -> list[Any]:
        wanted = set(words_of(query))
        return [note for note in self.notes.values() if wanted & set(words_of(note["text"]))][:limit]

    def update(self, id: str, text: str) -> None:
        self.notes[id] = {**self.notes[id], "text": text}

    async def delete(self, id: str) -> None:
        del self.notes[id]


async def test_each_turn_is_added_with_its_session_and_time_and_found_in_another_session() -> None:
    store, storage = Notes(), InMemoryStorage()
    first = Conversation(external_memory(store), storage=storage)
    await first.turn("My cat is grey.", "Noted.")
    await first.turn("It rains.", "Take a coat.")

    later = Conversation(external_memory(store), storage=storage, thread_id="t2")

    assert await later.begin("Which colour is the cat?") == "<external_memory>\n- My cat is grey.\n</external_memory>"
    assert [added[0] for added in store.added] == [
        [{"role": "user", "content": "My cat is grey."}, {"role": "assistant", "content": "Noted."}],
        [{"role": "user", "content": "It rains."}, {"role": "assistant", "content": "Take a coat."}],
    ]
    assert {added[1] for added in store.added} == {"t1"}
    assert (store.added[1][2] - store.added[0][2]).total_seconds() == 60
    assert store.added[0][2].tzinfo is not None
    assert await later.call("external", "search", query="cat") == ["[0] My cat is grey."]


async def test_what_a_store_fails_to_take_in_is_kept_and_tried_again() -> None:
    store, storage = Notes(), InMemoryStorage()
    store.is_down = True
    talk = Conversation(external_memory(store), storage=storage)
    await talk.turn("My cat is grey.", "Noted.")
    assert talk.stack.told == [("external", "on_complete")]
    store.is_down = False

    again = Conversation(external_memory(store), storage=storage, thread_id="t2")
    await again.turn("It rains.", "Take a coat.")

    assert [(added[0][0]["content"], added[1]) for added in store.added] == [
        ("My cat is grey.", "t1"),
        ("It rains.", "t2"),
    ]


async def test_a_function_keeps_people_apart() -> None:
    stores: dict[str, Notes] = {}
    layer = external_memory(lambda resource: stores.setdefault(resource, Notes()))
    await Conversation(layer, resource_id="ann").turn("My cat is grey.", "Noted.")

    assert await Conversation(layer, resource_id="bob").begin("Which cat?") == ""
    assert "grey" in await Conversation(layer, resource_id="ann", thread_id="t2").begin("Which cat?")
    assert sorted(stores) == ["ann", "bob"]


async def test_records_show_their_origin_and_can_be_corrected() -> None:
    store = Notes()
    store.notes = {"7": {"text": "The cat is red.", "id": "7", "origin": "tool read_page"}, "8": "A cat."}
    store.search = lambda query, *, limit: list(store.notes.values())  # type: ignore[method-assign]
    talk = Conversation(external_memory(store))

    assert "- The cat is red. (from tool read_page)\n- A cat." in await talk.begin("cat?")
    await talk.call("external", "update", id="7", text="The cat is grey.")
    await talk.call("external", "delete", id="8")
    assert await talk.call("external", "search", query="cat") == ["[7] The cat is grey."]


async def test_a_budget_holds_the_first_memories() -> None:
    store = Notes()
    store.notes = {str(n): {"text": f"Cat number {n} is grey.", "id": str(n)} for n in range(50)}
    talk = Conversation(external_memory(store, limit=30))
    await talk.begin()

    assert (await talk.shown("cat", 10_000)).count("\n") == 31
    assert 2 < (await talk.shown("cat", 60)).count("\n") < 12


@pytest.mark.parametrize("answer", [None, "cat", [3], [{"memory": "cat"}]], ids=repr)
async def test_what_is_no_list_of_memories_is_said(answer: Any) -> None:
    store = Notes()
    store.search = lambda query, *, limit: answer  # type: ignore[method-assign]
    talk = Conversation(external_memory(store))

    assert await talk.begin("cat?") == ""
    assert [(layer, hook) for layer, hook, _ in talk.stack.notes] == [("external", "recall")]


class Reads:
    def search(self, query: str, *, limit: int) -> list[str]:
        return []


@pytest.mark.parametrize("store", [3, "notes", lambda: 3, Reads()], ids=["number", "text", "no-resource", "no-add"])
def test_what_is_no_store_is_refused(store: Any) -> None:
    with pytest.raises(NoeticConfigError, match="INVALID_LAYER_OPTION"):
        external_memory(store)


def test_the_bench_counts_what_a_store_spends_of_its_own() -> None:
    clock = FakeClock()

    class Slow(Notes):
        def search(self, query: str, *, limit: int) -> list[Any]:
            clock.advance(5.0)
            return super().search(query, limit=limit)

    [one] = lab.made_dialogues(1)
    turns = sum(item.get("role") == "user" for session in one.sessions for item in session)
    sets: dict[str, Any] = {"notes": lambda: external_memory(Slow()), "plain": []}

    table = lab.memory_bench(sets, [one], budgets=[4_000], clock=clock, price=2.0).set_index(["layers", "rung"])

    notes, plain = table.loc[("notes", "owned")], table.loc[("plain", "owned")]
    assert (notes.own_calls, notes.own_tokens, notes.own_cost) == (turns, 120 * turns, 2.0 * 120 * turns / 1e6)
    requests = turns + 1 + len(one.questions)  # a call of a tool takes two
    assert notes.own_ms == 5.0 * requests
    assert (plain.own_calls, plain.own_tokens, plain.own_cost, plain.own_ms) == (0, 0, 0, 0)
    assert notes.recall > plain.recall
