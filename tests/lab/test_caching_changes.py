"""The effect of caching on a rearranged run, compared with runs that were really arranged so."""

from __future__ import annotations

import asyncio
from typing import Any

import pandas
import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab import what_if_cached
from noetic_nb.layers import history_window
from noetic_nb.memory import MemoryHooks, MemoryLayer
from noetic_nb.models.prompt_caching import CacheRules
from noetic_nb.runs import Run, load_run
from noetic_nb.testing import FakeClock, SeededIds


def layer(name: str, says: Any, *, slot: int, placement: Any = None) -> MemoryLayer:
    hooks = MemoryHooks(recall=lambda p: says(p.ctx.turn))
    return MemoryLayer(id=name, slot=slot, scope="thread", placement=placement, hooks=hooks)


def facts(turn: int) -> str:
    return "Lyon is where parcels are packed. " * 20


def clock(turn: int) -> str:
    return f"Turn {turn} has begun. " * 8


def run_of(*layers: MemoryLayer, order: str = "slot", turns: int = 9) -> Run:
    def answer(request: Any) -> Any:
        return "Done." if request.items[-1]["type"] == "function_call_output" else nn.CallTool("look", at=1)

    @nn.tool
    def look(at: int) -> str:
        """Look."""
        return "a blue cup"

    step = nn.react(model="simulated-gpt-4o", instructions="Be brief. " * 40, tools=[look])
    config = nn.AgentConfig(name="desk", step=step, memory=layers, projection={"order": order})
    harness = nn.AgentHarness(
        config, model=nn.ScriptedModel(answer, ids=SeededIds(9)), clock=FakeClock(), ids=SeededIds(1)
    )
    run = nn.record(harness)

    async def talk() -> None:
        for turn in range(turns):
            await harness.execute(f"Where is order {turn}?")

    asyncio.run(talk())
    return run


def numbers(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return the columns that depend only on the requests, not on the run that contains them."""
    grouped = table.groupby(["call", "part"])[["tokens", "shared", "cached"]].sum()
    return grouped.sort_index()


def test_nothing_changed_is_the_table_of_the_run() -> None:
    run = run_of(layer("clock", clock, slot=1), layer("facts", facts, slot=2))

    pandas.testing.assert_frame_equal(what_if_cached(run), run.caching())


def test_layers_put_last_are_as_a_run_of_the_cache_order_has_them() -> None:
    run = run_of(layer("clock", clock, slot=1), layer("facts", facts, slot=2))
    there = run_of(layer("clock", clock, slot=1, placement="suffix"), layer("facts", facts, slot=2), order="cache")

    pandas.testing.assert_frame_equal(numbers(what_if_cached(run, last=["clock"])), numbers(there.caching()))
    pandas.testing.assert_frame_equal(what_if_cached(run, last="changing"), what_if_cached(run, last=["clock"]))
    assert what_if_cached(run, last=["clock"]).cached.sum() > 1.4 * run.caching().cached.sum()


def test_layers_put_back_from_the_end_are_as_a_run_of_the_slot_order_has_them() -> None:
    late = layer("clock", clock, slot=1, placement="suffix")
    there = run_of(late, layer("facts", facts, slot=2), order="cache")
    run = run_of(late, layer("facts", facts, slot=2))

    found = what_if_cached(there, order=["clock"])

    pandas.testing.assert_frame_equal(numbers(found), numbers(run.caching()))


def test_layers_in_another_order_are_as_a_run_with_other_slots_has_them() -> None:
    run = run_of(layer("clock", clock, slot=1), layer("facts", facts, slot=2))
    there = run_of(layer("clock", clock, slot=2), layer("facts", facts, slot=1))

    pandas.testing.assert_frame_equal(numbers(what_if_cached(run, order=["facts"])), numbers(there.caching()))


def test_a_frozen_layer_is_as_one_that_changes_less_often() -> None:
    run = run_of(layer("clock", clock, slot=1))
    there = run_of(layer("clock", lambda turn: clock((turn - 1) // 3 * 3 + 1), slot=1))

    pandas.testing.assert_frame_equal(numbers(what_if_cached(run, freeze={"clock": 3})), numbers(there.caching()))
    assert numbers(what_if_cached(run, freeze={"clock": 1})).equals(numbers(run.caching()))


def test_a_loaded_run_says_the_same(tmp_path: Any) -> None:
    run = run_of(layer("clock", clock, slot=1, placement="suffix"), order="cache")
    run.save(tmp_path / "run.jsonl")
    back = load_run(tmp_path / "run.jsonl")

    pandas.testing.assert_frame_equal(back.caching(), run.caching())
    pandas.testing.assert_frame_equal(
        what_if_cached(back, freeze={"clock": 2}), what_if_cached(run, freeze={"clock": 2})
    )


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"order": ["clok"]}, "UNKNOWN_LAYER_REFERENCE"),
        ({"order": "clock"}, "INVALID_OPTION"),
        ({"last": "clock"}, "INVALID_OPTION"),
        ({"last": [1]}, "INVALID_OPTION"),
        ({"freeze": {"clock": 0}}, "INVALID_OPTION"),
        ({"freeze": ["clock"]}, "INVALID_OPTION"),
        ({"rules": "scripted"}, "INVALID_CACHE_RULES"),
        ({"price": (1.0,)}, "INVALID_PRICE"),
        ({"price": lambda usage: 1.0}, "INVALID_PRICE"),
        ({"price": lambda model, usage: "free"}, "INVALID_PRICE"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], code: str) -> None:
    run = run_of(layer("clock", clock, slot=1), turns=1)

    with pytest.raises(NoeticConfigError) as raised:
        what_if_cached(run, **options)

    assert raised.value.code == code


def test_a_window_sends_fewer_tokens_and_costs_more_than_plain_history() -> None:
    words = "the parcel from Lyon was sent by train and came late so that Ann wrote to the desk " * 2

    def paid(*layers: MemoryLayer) -> tuple[int, float, float]:
        config = nn.AgentConfig(name="desk", step=nn.react(model="simulated-toy"), memory=layers)
        answers = nn.ScriptedModel([f"{turn} answers: {words}" for turn in range(16)])
        harness = nn.AgentHarness(config, model=answers)
        run = nn.record(harness)
        for turn in range(16):
            nn.run_sync(harness.execute(f"{turn} asks: {words}"))
        table = run.caching(rules=CacheRules("toy", ".*", 0, 1, 1e9, 0.1))
        return table.tokens.sum(), table.shared.sum() / table.tokens.sum(), table.paid.sum()

    (plain_sent, plain_kept, plain_paid), (sent, kept, cost) = paid(), paid(history_window(6))

    # For a conversation of 16 equal turns, (1 + 3 + ... + 29) / (1 + 3 + ... + 31) was sent with the previous call.
    assert plain_kept == pytest.approx(225 / 256, abs=0.01)
    assert kept < 0.05
    assert sent < 0.4 * plain_sent
    assert cost > 1.4 * plain_paid
