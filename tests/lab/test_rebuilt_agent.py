"""The agent of a loaded run is rebuilt from its file, as far as a file can contain it."""

from __future__ import annotations

import asyncio
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import RequestPrepared, ToolCalled
from noetic_nb.items import thaw
from noetic_nb.lab import fork, replay
from noetic_nb.lab._replaying.recorded_parts import offered_tools
from noetic_nb.layers import regulation, working_memory
from noetic_nb.memory import MemoryHooks, MemoryLayer
from noetic_nb.regulator import CallBudget, Regulator
from noetic_nb.runs import Run, load_run


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Place(BaseModel):
    street: str
    number: int = 1


@nn.tool
def book(
    day: date,
    size: Size = Size.SMALL,
    count: Annotated[int, Field(ge=1, le=9)] = 2,
    where: Place | None = None,
    tags: list[str] = [],  # noqa: B006
    prices: dict[str, float] = {},  # noqa: B006
) -> str:
    """Book a room."""
    return f"booked {count} {size.value} on {day:%d %B}"


@nn.tool(needs_approval=True)
def pay(amount: float) -> str:
    """Pay."""
    return f"paid {amount:g}"


def steps(*replies: Any) -> nn.ScriptedModel:
    return nn.ScriptedModel(list(replies))


async def lived(path: Path, *memory: Any, replies: tuple[Any, ...], tools: tuple[Any, ...] = (book, pay)) -> Run:
    config = nn.AgentConfig(
        name="desk", step=nn.react(model="scripted", instructions="Work."), memory=memory, tools=tools
    )
    harness = nn.AgentHarness(config, model=steps(*replies), approve=lambda name, args: args["amount"] < 50)
    run = nn.record(harness)
    for message in ("Book me a room.", "And pay."):
        await harness.execute(message)
    run.stop_recording()
    return load_run(run.save(path / "run.jsonl.gz", bundle=True))


REPLIES = (
    nn.CallTool("book", day="2026-05-01", where={"street": "High Street"}, count="3"),
    nn.CallTool("book", day="in May", size="huge", count=12, nothing=1),
    "Booked.",
    nn.CallTool("pay", amount=20),
    nn.CallTool("pay", amount=90),
    "Paid 20.",
)


def rule_book() -> nn.RuleBook:
    rules = nn.RuleBook()
    rules.when("tool.args.count > 5", id="many", tools="book")
    rules.at_most(3, "book", id="often", action="guide")
    return rules


async def test_what_a_file_holds_whole_is_lived_again_on_its_tape(tmp_path: Path) -> None:
    loose = Regulator.for_user("ann").with_predicates(CallBudget(total=9, per_tool={}))
    run = await lived(
        tmp_path, rule_book(), regulation(loose), nn.static_content("Be kind."), working_memory(), replies=REPLIES
    )
    assert [event.status for event in run.select(ToolCalled)] == ["ok", "invalid_args", "ok", "denied"]

    again = await asyncio.to_thread(lambda: replay(run, mode="closed"))

    assert (again.meta["replay"]["diverged"], again.meta["replay"]["stopped"]) == ({}, None)
    assert not nn.compare(run, again).differences
    tight = Regulator.for_user("ann").with_predicates(CallBudget(total=1, per_tool={}))
    stopped = await asyncio.to_thread(lambda: replay(run, mode="closed", regulator=tight))
    assert [turn.outcome for turn in stopped.turns] == ["success", "aborted"]


async def test_a_fork_of_a_loaded_run_goes_on_from_the_call(tmp_path: Path) -> None:
    run = await lived(tmp_path, rule_book(), replies=REPLIES)
    new = await asyncio.to_thread(lambda: fork(run, at=2, model=steps("Nothing was booked.")))
    assert [turn.text for turn in new.turns] == ["Nothing was booked."]
    assert [event.status for event in new.select(ToolCalled)] == ["ok", "invalid_args"]


async def test_a_tool_is_what_the_model_was_shown_of_it(tmp_path: Path) -> None:
    run = await lived(tmp_path, replies=REPLIES)
    for shown, tool in offered_tools(run).items():
        made = {"book": book, "pay": pay}[shown]
        assert (tool.spec, tool.tokens, tool.needs_approval) == (made.spec, made.tokens, made.needs_approval)
    (event,) = run.select(RequestPrepared)[:1]
    assert thaw(event.tools[0].parameters) == book.spec.parameters


async def test_what_is_code_is_named(tmp_path: Path) -> None:
    rules = rule_book()

    @rules.rule(on="before_tool_call")
    def polite(call: Any) -> None:
        return None

    own = MemoryLayer(id="own", slot=5, scope="thread", hooks=MemoryHooks(recall=lambda p: "Note."))
    run = await lived(tmp_path, rules, own, nn.static_content("Be kind."), replies=REPLIES)

    with pytest.raises(NoeticConfigError) as caught:
        replay(run, mode="closed")

    assert caught.value.code == "NO_AGENT"
    assert caught.value.facts["missing"] == ("fn:polite", "layer:own")
    assert "function 'polite', layer 'own'" in str(caught.value)
    assert "run.made_with(config)" in str(caught.value)
    with pytest.raises(NoeticConfigError, match="layer 'own'") as caught:
        replay(run, mode="closed", rules=rule_book())
    assert caught.value.facts["missing"] == ("layer:own",)
    # Replacements are enough.
    again = await asyncio.to_thread(
        lambda: replay(run, mode="closed", rules=rule_book(), layers=["static-content", own])
    )
    assert again.meta["replay"]["diverged"] == {}
    assert nn.compare(run, again).to_frame().query("what == 'reply'").a.tolist() == ["Booked.", "Paid 20."]


async def test_a_tool_that_was_never_offered_has_to_be_given(tmp_path: Path) -> None:
    config = nn.AgentConfig(name="desk", step=nn.step.tool("pay", pay, args={"amount": 3}))
    harness = nn.AgentHarness(config, model=steps(), approve=lambda name, args: True)
    run = nn.record(harness)
    await harness.execute("Pay.")
    run.stop_recording()
    loaded = load_run(run.save(tmp_path / "run.jsonl.gz", bundle=True))
    with pytest.raises(NoeticConfigError, match="tool 'pay'"):
        replay(loaded, mode="closed")
    again = await asyncio.to_thread(lambda: replay(loaded, mode="closed", tools=[pay]))
    assert not nn.compare(run, again).differences


async def test_a_file_without_a_bundle_says_how_to_get_one(tmp_path: Path) -> None:
    run = await lived(tmp_path, replies=REPLIES)
    bare = load_run(run.save(tmp_path / "bare.jsonl.gz"))
    with pytest.raises(NoeticConfigError, match="bundle=True") as caught:
        replay(bare, mode="closed")
    assert caught.value.code == "NO_AGENT"


async def test_rules_that_were_edited_are_those_of_the_end(tmp_path: Path) -> None:
    rules = rule_book()
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), memory=[rules], tools=[book])
    harness = nn.AgentHarness(config, model=steps(nn.CallTool("book", day="2026-05-01", count=8), "No.", "Hm."))
    run = nn.record(harness)
    await harness.execute("Book.")
    rules.disable("many")
    await harness.execute("Well?")
    run.stop_recording()
    loaded = load_run(run.save(tmp_path / "run.jsonl.gz", bundle=True))

    again = await asyncio.to_thread(lambda: replay(loaded, mode="closed"))

    assert again.meta["replay"]["kept"][0]["why"] == "the rules are those of the end of the run"
    assert "'book' was not called so" in again.meta["replay"]["stopped"]
