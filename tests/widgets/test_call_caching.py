"""Caching in the allocation view: in the picture, the table and the text."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab import what_if_cached
from noetic_nb.memory import MemoryHooks, MemoryLayer
from noetic_nb.runs import Run
from noetic_nb.testing import FakeClock
from noetic_nb.widgets import TokenAllocation


def layer(name: str, says: Any) -> MemoryLayer:
    return MemoryLayer(id=name, slot=1, scope="thread", hooks=MemoryHooks(recall=lambda p: says(p.ctx.turn)))


def run_of(*layers: MemoryLayer, model: str = "simulated-gpt-4o", turns: int = 3) -> Run:
    step = nn.react(model=model, instructions="Be very brief. " * 400)
    harness = nn.AgentHarness(
        nn.AgentConfig(name="desk", step=step, memory=layers),
        model=nn.ScriptedModel(lambda request: "Yes."),
        clock=FakeClock(),
    )
    run = nn.record(harness)

    async def ask() -> None:
        for turn in range(turns):
            await harness.execute(f"And {turn}?")

    asyncio.run(ask())
    return run


@pytest.fixture(scope="module")
def broken() -> Run:
    return run_of(layer("facts", lambda turn: "Lyon."), layer("clock", lambda turn: f"Turn {turn}."))


def test_the_layer_that_broke_the_prefix_is_marked_everywhere(broken: Run) -> None:
    table = broken.caching()
    last = table[table.call == 2]
    with TokenAllocation(broken) as view:
        text, html = view.to_text(), view.to_html()
        (call,) = [call for call in view._allocation.snapshot["calls"] if call["place"] == 2]

    assert "layer clock broke the prefix here" in text
    assert f"{last.shared.sum():,} of {last.tokens.sum():,} tokens" in text
    assert f"by the rules of simulated openai: {last.cached.sum():,.0f}." in text
    marked = [line for line in text.splitlines() if line.strip().endswith("; broke the prefix here")]
    assert [line.split()[0] for line in marked] == ["clock"]
    # Once in the bar, and once in the table beside the tokens of that part.
    assert re.findall(r"<title>([^<]*): [^<]* tokens; broke the prefix here</title>", html) == ["clock"]
    assert re.findall(r"<td>([^<]*) ▼</td>", html) == [f"{last[last.part == 'layer:clock'].shared.sum():,}"]
    assert [bar[0] for bar in call["bars"][0] if len(bar) > 4] == [f"{view._allocation.calls.number('clock')}"]
    assert "layer clock broke the prefix here" in call["caching"]


def test_a_call_that_only_goes_on_has_no_mark() -> None:
    with TokenAllocation(run_of(layer("facts", lambda turn: "Lyon."))) as view:
        text, html = view.to_text(), view.to_html()

    assert ", and goes on." in text
    assert "broke the prefix" not in text
    assert "broke the prefix here" not in html


def test_a_first_call_and_a_model_nothing_is_known_of_say_so() -> None:
    with TokenAllocation(run_of(turns=1, model="home-made")) as view:
        text = view.to_text()

    assert "no call of this model before it in the thread" in text
    assert "No caching estimate: the caching rules of the model (home-made) are unknown." in text


def test_a_layer_that_vanished_broke_the_prefix_without_a_segment(broken: Run) -> None:
    run = run_of(layer("notes", lambda turn: "Lyon." if turn < 3 else None))
    with TokenAllocation(run) as view:
        text = view.to_text()

    assert "layer notes broke the prefix here" in text


def test_what_if_of_the_view_is_that_of_the_lab_for_what_is_shown(broken: Run) -> None:
    with TokenAllocation(broken, turn=3) as view:
        shown = view.what_if_cached(last=["clock"])
        with pytest.raises(NoeticConfigError):
            view.what_if_cached(last=["nobody"])

    whole = what_if_cached(broken, last=["clock"])
    assert shown.equals(whole[whole.turn == 3].reset_index(drop=True))
    assert shown.shared.sum() > broken.caching().query("turn == 3").shared.sum()
