"""Comparison of layers by sent evidence: the numbers equal those of a harness, and are reproducible."""

from __future__ import annotations

import asyncio
import math
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb import lab
from noetic_nb.items import assistant_message, input_message, item_text
from noetic_nb.lab._dialogues import Dialogue, Evidence, Question
from noetic_nb.lab._recall_quality.dialogue_runner import Player, shared_tokens
from noetic_nb.layers import (
    entity_memory,
    episodic_memory,
    history_window,
    observational_memory,
    semantic_recall,
    static_content,
)
from noetic_nb.runs._requests.recorded_requests import recorded_request
from noetic_nb.testing import FakeClock
from noetic_nb.tokens import estimate_tokens

COLUMNS = [
    "layers", "budget", "rung", "recall", "low", "high", "questions", "tokens", "cost_fresh", "cost_cached", "ms",
    "own_calls", "own_tokens", "own_cost", "own_ms",
]  # fmt: skip


def valued(table: Any) -> Any:
    """Return the rows of one rung."""
    return table[table.rung == "value"].reset_index(drop=True)


def all_told(text: str) -> dict[str, list[str]]:
    return {word.strip(".,'?s"): [text] for word in text.split() if word[0].isupper() and len(word) > 3}


SETS: dict[str, Any] = {
    "plain": [],
    "window": history_window(4),
    "semantic": semantic_recall(),
    "observations": lambda: observational_memory(buffer_threshold=100),
    "entities": entity_memory(all_told),
    "both": [semantic_recall(), history_window(6), episodic_memory()],
}


def test_the_same_table_twice_to_the_byte() -> None:
    first, again = [lab.memory_bench(SETS, lab.made_dialogues(3, seed=3), budgets=[300, 900], seed=3) for _ in range(2)]

    assert first.columns.tolist() == COLUMNS
    assert first.to_csv() == again.to_csv()
    assert first.attrs == again.attrs
    assert len(first) == 4 * 2 * len(SETS)
    assert first.ms.isna().all()


def test_another_seed_makes_other_dialogues() -> None:
    assert lab.made_dialogues(3, seed=1) == lab.made_dialogues(3, seed=1) != lab.made_dialogues(3, seed=2)
    assert lab.made_dialogues(5, seed=1)[:3] == lab.made_dialogues(3, seed=1)


def test_everything_is_sent_where_there_is_room_and_one_session() -> None:
    whole = [
        Dialogue(one.name, (tuple([item for session in one.sessions for item in session]),), one.questions)
        for one in lab.made_dialogues(4)
    ]

    table = lab.memory_bench({"plain": []}, whole, budgets=[100_000])

    assert table.recall.tolist() == [1.0] * 4
    assert table.attrs["outdated"] == {"plain": {100_000: 1.0}}
    # Four dialogues are weak evidence, even if all agree.
    assert 0.2 < table.low[0] < 0.5
    assert table.high[0] == 1.0


def test_a_layer_that_tells_everything_reaches_all_of_it_and_costs_it() -> None:
    one = lab.made_dialogues(1)[0]
    text = "\n".join([item_text(item) for session in one.sessions for item in session])
    sets = {"told": static_content(lambda: text, budget={"min": 0, "max": 50_000}), "plain": []}

    table = valued(lab.memory_bench(sets, [one], budgets=[100_000])).set_index("layers")

    assert table.recall["told"] == 1.0
    assert table.attrs["outdated"]["told"][100_000] == 1.0
    newer = "\n".join([evidence.value or "" for question in one.questions for evidence in question.evidence])
    told = static_content(lambda: newer, budget={"min": 0, "max": 50_000})
    window = lab.memory_bench({"newer": [history_window(2), told]}, [one], budgets=[100_000])
    assert (valued(window).recall[0], window.attrs["outdated"]["newer"][100_000]) == (1.0, 0.0)
    assert table.recall["plain"] < 1.0
    assert table.cost_fresh["told"] > table.cost_fresh["plain"]
    assert math.isnan(table.low["told"])  # one dialogue has no interval


def test_the_interval_of_a_recall_stays_a_share() -> None:
    table = lab.memory_bench({"plain": []}, lab.made_dialogues(6), budgets=[250])

    assert 0 <= table.low[0] <= table.recall[0] < table.high[0] <= 1


@pytest.mark.parametrize("name", SETS)
def test_requests_are_those_of_a_harness(name: str) -> None:
    """The requests of a session, token by token, compared with those of a harness with the same layers."""
    talk = lab.made_dialogues(1, seed=4)[0]
    said = [item for item in talk.sessions[1] if item["type"] == "message"]
    one = Dialogue("d", (tuple(said),), (Question("Hm?", (Evidence(said[0]["id"]),)),))
    budget = 100_000
    given = SETS[name]
    made = given() if callable(given) and not isinstance(given, nn.MemoryLayer) else given
    layers: list[Any] = [made] if isinstance(made, nn.MemoryLayer) else list(made)
    [played] = asyncio.run(Player(one, layers, [budget], estimate_tokens, None, Counter()).play())

    policy = nn.ProjectionPolicy(token_budget=budget, response_reserve=0, overflow="truncate")
    config = nn.AgentConfig(name="d", step=nn.react(model="scripted"), memory=layers, projection=policy)
    answers = [item_text(item) for item in said if item["role"] == "assistant"]
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(answers))
    run = nn.record(harness)

    async def talk_to() -> None:
        for item in said:
            if item["role"] == "user":
                await harness.execute(item_text(item), thread_id="d/0", resource_id="other")

    asyncio.run(talk_to())
    requests = [recorded_request(run, at) for at in range(len(answers))]
    texts = [[item_text(sent.item) for sent in request.items if sent.item is not None] for request in requests]

    assert played.requests == len(answers) + 1  # including the question
    assert [len(found) for found in texts] == [len(request.items) for request in requests]
    again = asyncio.run(_texts_of(one, layers, budget))
    assert [_without_times(found) for found in again[:-1]] == [_without_times(found) for found in texts]


def _without_times(texts: Sequence[str]) -> list[str]:
    # An episode begins with the time at which it ended.
    return ["\n".join([line.partition("] ")[2] or line for line in text.split("\n")]) for text in texts]


async def _texts_of(one: Dialogue, layers: Sequence[Any], budget: float) -> list[list[str]]:
    found: list[list[str]] = []
    player = Player(one, layers, [budget], estimate_tokens, None, Counter())
    request = player._request

    async def watched(*args: Any) -> Any:
        plans = await request(*args)
        found.append([item_text(item) for item in plans[0].items])
        return plans

    player._request = watched  # type: ignore[method-assign]
    await player.play()
    return found


def test_a_clock_measures() -> None:
    clock = FakeClock()

    def slow(p: Any) -> str:
        clock.advance(7.0)
        return "note"

    layer = nn.MemoryLayer(id="slow", slot=1, scope="thread", hooks=nn.memory.MemoryHooks(recall=slow))
    table = lab.memory_bench({"slow": layer, "plain": []}, lab.made_dialogues(2), budgets=[900], clock=clock)

    assert table.ms.tolist() == [7.0] * 4 + [0.0] * 4


def test_a_cached_prefix_costs_its_share() -> None:
    dialogues = lab.made_dialogues(3)
    at = {
        share: lab.memory_bench({"p": []}, dialogues, budgets=[9_000], cached_share=share) for share in (0.0, 0.5, 1.0)
    }

    fresh = at[0.0].cost_fresh[0]
    assert at[1.0].cost_cached[0] == pytest.approx(fresh)
    assert at[0.5].cost_cached[0] == pytest.approx((fresh + at[0.0].cost_cached[0]) / 2)
    assert 0 < at[0.0].cost_cached[0] < fresh


def test_requests_that_begin_alike_share_what_they_begin_with() -> None:
    items = [input_message("x" * size, item_id=f"i{size}") for size in (40, 80, 120)]
    changed = [items[0], input_message("x" * 60 + "y" * 20), items[2]]
    own = items[0]

    assert shared_tokens(items, items, estimate_tokens) == sum(map(nn.item_tokens, items))
    assert shared_tokens(items[:1], items, estimate_tokens) == nn.item_tokens(own)
    assert shared_tokens(items, changed, estimate_tokens) == nn.item_tokens(own) + 15
    assert shared_tokens([], items, estimate_tokens) == 0
    assert shared_tokens([assistant_message("x" * 40)], items, estimate_tokens) == 0


class _Growing:
    """An embedder whose vectors grow with every call."""

    def __init__(self) -> None:
        self.size = 2

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.size += 1
        return [[1.0] * self.size for _ in texts]


def test_vectors_of_changing_size_are_said() -> None:
    sets = {"growing": lambda: semantic_recall(_Growing(), skip_recent=0), "plain": []}

    with pytest.warns(UserWarning, match="problems, such as 'semantic-recall' of 'growing'"):
        table = lab.memory_bench(sets, lab.made_dialogues(2), budgets=[900])

    assert {(name, layer) for name, layer, *_ in table.attrs["problems"]} == {("growing", "semantic-recall")}
    assert valued(table).recall[0] <= valued(table).recall[1]


def test_layers_without_problems_say_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = lab.memory_bench(SETS, lab.made_dialogues(2), budgets=[200])

    assert table.attrs["problems"] == ()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (((), lab.made_dialogues(1)), "INVALID_LAYERS"),
        (({}, lab.made_dialogues(1)), "INVALID_LAYERS"),
        (("window", lab.made_dialogues(1)), "INVALID_LAYERS"),
        (({"a": [3]}, lab.made_dialogues(1)), "INVALID_LAYERS"),
        (([[], []], lab.made_dialogues(1)), "INVALID_LAYERS"),
        (({"p": []}, []), "NO_DIALOGUES"),
        (({"p": []}, ["hello"]), "INVALID_DIALOGUE"),
        (({"p": []}, lab.made_dialogues(1)[0]), "INVALID_DIALOGUE"),
        (({"p": []}, [Dialogue("d", (), ())]), "INVALID_DIALOGUE"),
        (({"p": []}, [Dialogue("d", ((),), ())]), "INVALID_DIALOGUE"),
        (({"p": []}, [Dialogue("d", ((input_message("x", item_id="i"),),), ())]), "NO_QUESTIONS"),
        (
            ({"p": []}, [Dialogue("d", ((input_message("x", item_id="i"),),), (Question("?", (Evidence("j"),)),))]),
            "INVALID_DIALOGUE",
        ),
        (({"p": []}, [nn.Run()]), "INVALID_DIALOGUE"),
    ],
    ids=[
        "none", "no-sets", "text", "no-layer", "twice", "empty", "no-dialogue", "one", "no-session", "silent", "no-question",
        "no-evidence", "run",
    ],
)  # fmt: skip
def test_bad_input_is_refused(arguments: Any, code: str) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        lab.memory_bench(*arguments, budgets=[100])
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"budgets": []}, "INVALID_BUDGETS"),
        ({"budgets": [0]}, "INVALID_BUDGETS"),
        ({"budgets": [math.nan]}, "INVALID_BUDGETS"),
        ({"budgets": [5, 5]}, "INVALID_BUDGETS"),
        ({"budgets": "5"}, "INVALID_BUDGETS"),
        ({"budgets": [5], "price": -1}, "INVALID_PRICE"),
        ({"budgets": [5], "cached_share": 2}, "INVALID_PRICE"),
    ],
    ids=["none", "zero", "nan", "twice", "text", "price", "share"],
)
def test_bad_numbers_are_refused(options: Any, code: str) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        lab.memory_bench({"p": []}, lab.made_dialogues(1), **options)
    assert caught.value.code == code


def test_two_processes_make_the_table_of_one() -> None:
    sets: dict[str, Any] = {"window": history_window(4), "semantic": lambda: semantic_recall()}

    one, two = [lab.memory_bench(sets, lab.made_dialogues(3), budgets=[400], n_jobs=jobs) for jobs in (1, 2)]

    assert one.equals(two)
    assert repr(one.attrs) == repr(two.attrs)  # also for missing shares


def test_a_tokenizer_counts_a_short_text_once_and_items_in_its_own_way() -> None:
    class Counting:
        name = "counting"

        def __init__(self) -> None:
            self.texts: Counter[str] = Counter()

        def __call__(self, text: str) -> int:
            self.texts[text] += 1
            return len(text) // 3

        def count_item(self, item: Any) -> int:
            return len(item_text(item)) // 3 + 7

    once, dialogues = Counting(), lab.made_dialogues(2)
    table = lab.memory_bench({"s": semantic_recall()}, dialogues, budgets=[400], tokenizer=once)

    assert max(count for text, count in once.texts.items() if len(text) < 2_000) == 1
    players = [Player(one, [semantic_recall()], [400], Counting(), None, Counter()) for one in dialogues]
    played = [asyncio.run(player.play())[0] for player in players]
    assert table.tokens[0] == pytest.approx(
        sum(one.tokens for part in played for one in part.asked) / sum(len(part.asked) for part in played)
    )
