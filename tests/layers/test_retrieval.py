"""Layers that find things again: history window, episodes, semantic recall, procedures, dates, the embedder."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.errors import NoeticError
from noetic_nb.items import ItemLog, assistant_message, function_call, function_call_output, input_message, parse_item
from noetic_nb.layers import (
    HashingEmbedder,
    episodic_memory,
    history_window,
    procedural_memory,
    semantic_recall,
    temporal_memory,
)
from noetic_nb.layers._helpers.embedding import cosine
from noetic_nb.layers._window import window_of
from noetic_nb.storage import InMemoryStorage
from tests.items.strategies import CONVERSATIONS
from tests.layers.layer_driver import Conversation

# -- history window ---------------------------------------------------------------------------------------------------


def test_a_window_over_alternating_messages_is_the_last_ones() -> None:
    talk = [input_message("a"), assistant_message("b"), input_message("c"), assistant_message("d")]

    assert window_of(talk, 2) == talk[2:]


def test_a_window_grows_to_a_whole_exchange_but_not_beyond_four_times_and_keeps_the_system_message() -> None:
    pairs = [
        half for n in range(10) for half in (function_call("t", "{}", f"c{n}"), function_call_output(f"c{n}", "ok"))
    ]
    talk = [input_message("be kind", "system"), input_message("hi"), assistant_message("hello"), *pairs]

    assert window_of(talk, 3) == [talk[0], *pairs[-12:]]


@given(CONVERSATIONS, st.integers(2, 8))
def test_a_window_is_bounded_in_order_and_tears_no_pair(items: list[dict[str, Any]], max_items: int) -> None:
    from noetic_nb.items._build import unresolved_positions

    log = [parse_item(item) for item in items]

    kept = window_of(log, max_items)

    assert len(kept) <= max(len(log) if len(log) <= max_items else 0, 4 * max_items + 1)
    if len(log) > max_items:
        assert unresolved_positions(kept) == set()
    positions = [next(p for p, item in enumerate(log) if item is one) for one in kept]
    assert positions == sorted(positions)


async def test_the_window_changes_what_is_sent_and_never_the_log() -> None:
    talk = Conversation(history_window(2))
    log = ItemLog([input_message(str(n)) for n in range(10)])

    shown = await talk.stack.project_history(talk.context(), log.items)

    assert (len(shown), len(log)) == (8, 10)


# -- episodes ---------------------------------------------------------------------------------------------------------


async def test_past_executions_are_told_in_the_order_in_which_they_happened() -> None:
    talk = Conversation(episodic_memory())
    await talk.turn("Where is order A17?", "It is packed.")
    await talk.begin("Cancel order B2.")
    await talk.end("I cannot do that.", outcome="failure")

    lines = (await talk.begin("Hello")).splitlines()

    assert lines[0] == "<past_experiences>"
    assert lines[1].startswith("[2023-11-14T22:13:20Z] Asked: Where is order A17? Answered: It is packed.")
    assert lines[2].endswith("Asked: Cancel order B2. Answered: I cannot do that. (failure)")


async def test_only_the_newest_episodes_are_kept_and_shown_where_there_is_little_room() -> None:
    talk = Conversation(episodic_memory(lambda items: f"episode {talk.turns}", max_episodes=3))
    for _ in range(6):
        await talk.turn("hello", "hi")
    await talk.begin()

    assert [e["summary"] for e in talk.state("episodic-memory")["episodes"]] == ["episode 4", "episode 5", "episode 6"]
    shown = await talk.shown(budget=25)
    assert "episode 6" in shown
    assert "episode 4" not in shown


async def test_episodes_are_found_by_what_they_are_about() -> None:
    talk = Conversation(episodic_memory(retrieval="similarity"))
    await talk.turn("My dog Rex has a birthday.", "Congratulations to Rex.")
    for n in range(5):
        await talk.turn(f"Tell me about invoice number {n}.", "It is paid.")
    await talk.begin()

    assert "Rex" in await talk.shown("When is the birthday of my dog?", budget=50)
    assert "Rex" not in await talk.shown("Which invoice is open?", budget=50)


async def test_a_model_can_summarise_and_its_failure_is_a_diagnostic() -> None:
    async def call_model(request: Any) -> Any:
        assert "A17" in str(request.items[0])
        return {
            "items": [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "A17 was packed."}],
                }
            ]
        }

    good = Conversation(episodic_memory(model="small"), call_model=call_model)
    await good.turn("Where is order A17?", "Packed.")
    bad = Conversation(episodic_memory(model="small"))
    await bad.turn("Where is order A17?", "Packed.")

    assert "A17 was packed." in await good.begin()
    assert bad.stack.told == [("episodic-memory", "on_complete")]


# -- semantic recall --------------------------------------------------------------------------------------------------


async def test_what_was_said_long_ago_is_brought_back_by_a_question_about_it() -> None:
    talk = Conversation(semantic_recall(top_k=2))
    await talk.turn("My locker number is 4711.", "Noted.")
    for n in range(20):
        await talk.turn(f"Let us talk about topic {n}.", f"Topic {n} is interesting.")

    shown = await talk.begin("What is my locker number?")

    assert shown == "<semantic_recall>\nuser: My locker number is 4711.\n</semantic_recall>"


async def test_recent_messages_are_not_repeated() -> None:
    talk = Conversation(semantic_recall(skip_recent=4))
    await talk.turn("My locker number is 4711.", "Noted.")

    assert await talk.begin("What is my locker number?") == ""


async def test_neighbours_of_a_hit_come_along() -> None:
    talk = Conversation(semantic_recall(top_k=1, neighbours=1, skip_recent=0))
    await talk.turn("What is the code of the door?", "The digits are 12 and 34.")
    for n in range(4):
        await talk.turn(f"Something else {n}", "Yes.")

    assert "12 and 34" in await talk.begin("the code of the door")


async def test_what_is_remembered_survives_and_is_the_persons_own() -> None:
    storage = InMemoryStorage()
    talk = Conversation(semantic_recall(), storage=storage)
    await talk.turn("My locker number is 4711.", "Noted.")

    later = Conversation(semantic_recall(), storage=storage, thread_id="t2")
    other = Conversation(semantic_recall(), storage=storage, thread_id="t3", resource_id="bob")

    assert "4711" in await later.begin("Which locker number?")
    assert await other.begin("Which locker number?") == ""
    assert later.data("semantic-recall", "count") == 2
    assert "user: My locker number is 4711." in await later.call("semantic-recall", "search", query="locker")


async def test_the_oldest_remarks_go_when_there_are_too_many() -> None:
    storage = InMemoryStorage()
    talk = Conversation(semantic_recall(max_entries=4), storage=storage)
    for n in range(5):
        await talk.turn(f"remark {n}", f"answer {n}")

    keys = await storage.list("layers/semantic-recall/ann/said/")
    assert [int(key.rsplit("/", 1)[1][:10]) for key in keys] == [6, 7, 8, 9]


async def test_what_two_processes_say_at_once_is_all_remembered_and_seen_by_both() -> None:
    storage = InMemoryStorage()
    here, there = (Conversation(semantic_recall(), storage=storage, thread_id=thread) for thread in ("t1", "t2"))
    await here.begin("My locker number is 4711.")
    await there.begin("The door code is 1234.")
    await here.end("ok")
    await there.end("ok")

    for talk in (here, there):
        await talk.begin()
        assert talk.data("semantic-recall", "count") == 4
        assert "4711" in await talk.shown("Which locker number?") + " ".join(
            await talk.call("semantic-recall", "search", query="locker number")
        )
        assert any("1234" in said for said in await talk.call("semantic-recall", "search", query="door code"))


async def test_one_layer_over_two_stores_keeps_them_apart() -> None:
    shared = semantic_recall()
    one, two = (
        Conversation(shared, storage=InMemoryStorage()),
        Conversation(shared, storage=InMemoryStorage(), thread_id="t2"),
    )
    await one.turn("My locker number is 4711.")
    await two.begin("hello")

    assert two.data("semantic-recall", "count") == 0


async def test_nothing_is_indexed_twice() -> None:
    talk = Conversation(semantic_recall())
    await talk.begin("one remark")
    response = {"items": [assistant_message("one answer", item_id="a1")], "usage": {}}
    for _ in range(3):
        await talk.stack.store(talk.context(), response=response, log=talk.log)

    assert talk.data("semantic-recall", "count") == 2


def live_pair(embedder: Any = None, storage: Any = None) -> tuple[Conversation, Conversation]:
    """Return two executions on one thread, of one layer."""
    layer, store = semantic_recall(embedder), InMemoryStorage() if storage is None else storage
    one, two = Conversation(layer, storage=store), Conversation(layer, storage=store)
    two.turns = 1  # so that their executions have ids of their own
    return one, two


async def test_two_live_executions_index_a_message_once() -> None:
    class Service(HashingEmbedder):
        async def embed(self, texts: Any) -> Any:
            await asyncio.sleep(0)
            return super().embed(texts)

    one, two = live_pair(Service())
    await one.begin()
    await two.begin()
    response = {"items": [assistant_message("one answer", item_id="a1")], "usage": {}}
    await asyncio.gather(*(talk.stack.store(talk.context(), response=response, log=()) for talk in (one, two)))

    assert one.data("semantic-recall", "count") == two.data("semantic-recall", "count") == 1


async def test_an_execution_that_begins_while_another_writes_loses_nothing_of_it() -> None:
    may_write = asyncio.Event()

    class Slow(InMemoryStorage):
        async def set(self, key: str, value: Any) -> None:
            if "said/" in key:
                await may_write.wait()
            await super().set(key, value)

    one, two = live_pair(storage=Slow())
    await one.begin()
    response = {"items": [assistant_message("one answer", item_id="a1")], "usage": {}}
    storing = asyncio.create_task(one.stack.store(one.context(), response=response, log=()))
    await asyncio.sleep(0)
    shown = await two.begin("which answer?")
    may_write.set()
    await storing

    assert "one answer" in shown
    assert two.data("semantic-recall", "count") == 1


async def test_a_damaged_remark_is_reported_by_its_key() -> None:
    key = "layers/semantic-recall/ann/said/0000000000"

    with pytest.raises(NoeticError, match=r"said/0000000000.*damaged"):
        await Conversation(semantic_recall(), storage=InMemoryStorage({key: {"text": "half"}})).begin()


class Broken:
    async def embed(self, texts: Any) -> Any:
        await asyncio.sleep(0)  # so that what it returns is known only when it is used
        return [[1.0]] * (len(texts) + 1)


async def test_an_embedder_that_answers_nonsense_is_a_diagnostic() -> None:
    talk = Conversation(semantic_recall(Broken()))
    await talk.begin("one")

    await talk.end("two")

    assert talk.stack.told == [("semantic-recall", "store")]


# -- embedder ---------------------------------------------------------------------------------------------------------


@given(st.text(max_size=60), st.text(max_size=60))
def test_vectors_have_length_one_or_nothing_and_cosines_stay_in_range(one: str, two: str) -> None:
    a, b = HashingEmbedder(32).embed([one, two])

    assert sum(x * x for x in a) == pytest.approx(1) or not any(a)
    assert -1.000001 <= cosine(a, b) <= 1.000001
    assert cosine(a, b) == pytest.approx(cosine(b, a))
    assert a == HashingEmbedder(32).embed([one])[0]


def test_vectors_are_the_same_in_every_process() -> None:
    code = "from noetic_nb.layers._helpers.embedding import HashingEmbedder as H; print(H(64).embed(['order A17 was packed'])[0])"

    there = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}
    )

    assert there.stdout.strip() == str(HashingEmbedder(64).embed(["order A17 was packed"])[0])


# -- procedures -------------------------------------------------------------------------------------------------------


async def test_a_procedure_is_shown_when_its_kind_of_task_comes_up() -> None:
    talk = Conversation(procedural_memory())
    await talk.begin()
    await talk.call("procedural-memory", "learn", name="refund", when="refund an order", steps=["check", "pay back"])
    await talk.call("procedural-memory", "learn", name="greet", when="somebody says hello", steps=["smile"])

    shown = await talk.shown("Please refund my order A17.")

    assert "refund (when: refund an order)\n  1. check\n  2. pay back" in shown
    assert "smile" not in shown


async def test_procedures_are_replaced_refused_and_forgotten_in_words() -> None:
    talk = Conversation(procedural_memory(max_procedures=2))
    await talk.begin()
    learn = {"when": "x", "steps": ["a"]}
    for name in ("one", "two", "one", "three"):
        await talk.call("procedural-memory", "learn", name=name, **learn)

    assert list(talk.data("procedural-memory", "procedures")) == ["one", "three"]
    assert "at least one step" in await talk.call("procedural-memory", "learn", name="n", when="x", steps=[" "])
    assert "split it" in await talk.call("procedural-memory", "learn", name="n", when="x", steps=["a"] * 31)
    assert "Known: one, three" in await talk.call("procedural-memory", "unlearn", name="two")
    assert await talk.call("procedural-memory", "unlearn", name="one") == "one is forgotten."


async def test_a_procedure_is_forgotten_whatever_the_blanks_in_its_name() -> None:
    talk = Conversation(procedural_memory())
    await talk.begin()
    await talk.call("procedural-memory", "learn", name="pay  back", when="x", steps=["a"])

    assert await talk.call("procedural-memory", "unlearn", name=" pay  back ") == "pay back is forgotten."
    assert talk.data("procedural-memory", "procedures") == {}


# -- dates ------------------------------------------------------------------------------------------------------------


def noon() -> datetime:
    return datetime(2026, 3, 1, 12, 5)


async def test_the_time_is_told_in_words_a_model_can_reckon_with() -> None:
    talk = Conversation(temporal_memory(now=noon))

    lines = (await talk.begin()).splitlines()

    assert lines[:2] == ["<current_datetime>", "Now: 2026/03/01 (Sun) 12:05"]
    assert lines[-1] == "</current_datetime>"


async def test_the_time_is_the_executions_own() -> None:
    talk = Conversation(temporal_memory())
    expected = datetime.fromtimestamp(talk.clock.now_ms() / 1000)

    assert f"Now: {expected:%Y/%m/%d}" in await talk.begin()


async def test_facts_are_gathered_and_shown_newest_first_within_the_rest_of_the_budget() -> None:
    def extract(texts: Any, now: datetime) -> dict[str, list[str]]:
        return {"2026-02-01": ["moved to Rome", "moved to Rome"], "2026-02-27": ["has a new dog"]}

    talk = Conversation(temporal_memory(now=noon, extract=extract, inject_ledger=True, buffer_threshold=2))
    await talk.turn("I moved to Rome and have a dog.", "")

    shown = await talk.begin()

    assert shown.endswith(
        "<remembered_facts>\n- [2026-02-27] has a new dog\n- [2026-02-01] moved to Rome\n</remembered_facts>"
    )
    assert await talk.call("temporal", "search_memory", query="dog") == ["- [2026-02-27] has a new dog"]


async def test_without_an_extractor_nothing_is_gathered() -> None:
    talk = Conversation(temporal_memory())
    for _ in range(5):
        await talk.turn("word " * 500, "word " * 500)
    await talk.begin()

    assert talk.state("temporal")["buffer"] == []


async def test_an_extractor_that_always_fails_is_reported_and_the_buffer_stays_small() -> None:
    def extract(texts: Any, now: datetime) -> Any:
        return "nonsense"

    talk = Conversation(temporal_memory(extract=extract, buffer_threshold=10))
    for _ in range(40):
        await talk.turn("word " * 10, "")
    await talk.begin()

    assert talk.state("temporal")["bufferTokens"] <= 60
    assert set(talk.stack.told) == {("temporal", "on_item_append")}


async def test_only_the_newest_facts_are_kept() -> None:
    days = iter(range(1, 30))

    def extract(texts: Any, now: datetime) -> dict[str, list[str]]:
        return {f"2026-01-{next(days):02}": ["something happened"]}

    talk = Conversation(temporal_memory(extract=extract, buffer_threshold=1, max_facts=3))
    for _ in range(6):
        await talk.turn("hello", "")
    await talk.begin()

    assert sorted(talk.state("temporal")["facts"]) == ["2026-01-04", "2026-01-05", "2026-01-06"]


async def test_a_searcher_of_ones_own_is_asked() -> None:
    async def search(query: str, facts: Any) -> dict[str, list[str]]:
        return {"2026-01-01": [f"asked for {query}"]}

    talk = Conversation(temporal_memory(search=search))
    await talk.begin()

    assert await talk.call("temporal", "search_memory", query="tea") == ["- [2026-01-01] asked for tea"]
