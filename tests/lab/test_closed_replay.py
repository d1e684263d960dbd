"""A recorded run is really run again: on its tape, and with a model from the first difference on."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import (
    ModelCalled,
    QualityGiven,
    RegulatorDecided,
    SteeringDecided,
    ToolCalled,
    ViewAssembled,
)
from noetic_nb.lab import datasets, fork, replay
from noetic_nb.layers import regulation
from noetic_nb.regulator import CallBudget, CostCap, ProceduralWarning, Regulator
from noetic_nb.runs import Run
from noetic_nb.runs._requests.recorded_requests import recorded_request
from noetic_nb.steering import deny
from noetic_nb.testing import FakeClock
from tests.lab.random_agents import random_run
from tests.matrix import matrix

CALLS = (ModelCalled, ToolCalled)
RAN: list[str] = []


@nn.tool
def find(place: int) -> str:
    """Find something."""
    RAN.append(f"find {place}")
    if place == 4:
        raise ValueError("nothing there")
    return f"found {place}"


@nn.tool
def pay(amount: float) -> str:
    """Pay."""
    RAN.append(f"pay {amount:g}")
    return f"paid {amount:g}"


REPLIES = [nn.CallTool("find", place=4), nn.CallTool("pay", amount=60), "Paid.", nn.CallTool("pay", amount=5), "Done."]


async def chat(*memory: Any, replies: list[Any] = REPLIES) -> Run:
    step = nn.react(model="scripted", instructions="Work.", tools=[find, pay])
    config = nn.AgentConfig(name="desk", step=step, memory=memory)
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(replies))
    run = nn.record(harness)
    await harness.execute("pay 60")
    await harness.execute("pay 5")
    run.stop_recording()
    RAN.clear()
    return run


def said(run: Run) -> list[Any]:
    return [(turn.query, turn.text) for turn in run.turns]


def tools_of(run: Run) -> list[tuple[Any, ...]]:
    return [(e.name, dict(e.args or {}), e.status, e.output) for e in run.select(ToolCalled)]


async def closed(run: Run, **changes: Any) -> Run:
    return await asyncio.to_thread(lambda: replay(run, mode="closed", **changes))


async def forked(run: Run, **changes: Any) -> Run:
    return await asyncio.to_thread(lambda: fork(run, **changes))


async def test_with_nothing_changed_the_tape_answers_everything_and_no_tool_runs() -> None:
    run = await chat()
    again = await closed(run)
    facts = again.meta["replay"]
    assert (facts["diverged"], facts["stopped"]) == ({}, None)
    assert said(again) == said(run)
    assert tools_of(again) == tools_of(run)
    assert RAN == []


@matrix("seed", range(24), keep=8)
async def test_a_random_agent_lives_the_same_turns_on_its_tape(seed: int) -> None:
    run = await random_run(seed, edits=False)
    again = await closed(run)
    assert (again.meta["replay"]["diverged"], again.meta["replay"]["stopped"]) == ({}, None)
    assert not nn.compare(run, again).differences


async def test_people_answer_on_the_tape_as_they_did() -> None:
    rules = nn.RuleBook()
    rules.when("tool.args.amount > 3", id="asks", tools="pay", action="ask", guidance="Sure?")
    rules.when('response.text == "Secret."', id="shown", on="after_model_call", action="ask")
    replies = [nn.CallTool("pay", amount=5), nn.CallTool("pay", amount=5), "Secret."]
    answers = iter([False, True, True])
    step = nn.react(model="scripted", tools=[pay])
    config = nn.AgentConfig(name="desk", step=step, memory=[rules])
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(replies), approve=lambda name, args: next(answers))
    run = nn.record(harness)
    await harness.execute("pay 5")
    run.stop_recording()
    RAN.clear()
    assert [call[2] for call in tools_of(run)] == ["denied", "ok"]

    again = await closed(run)

    assert (again.meta["replay"]["diverged"], again.meta["replay"]["stopped"]) == ({}, None)
    assert not nn.compare(run, again).differences
    assert RAN == []


async def test_another_rule_leaves_the_tape_where_the_request_differs() -> None:
    run = await chat()
    rules = nn.RuleBook()
    rules.when("tool.args.amount > 50", id="large", tools="pay", guidance="Too much.")

    stopped = await closed(run, rules=rules)
    assert "call 2 was sent another request" in stopped.meta["replay"]["stopped"]
    assert [e.action for e in stopped.select(SteeringDecided) if e.tool_name == "pay"] == ["deny"]
    assert len(stopped.select(ModelCalled)) == 3  # two from the tape, and an unanswered one

    model = nn.ScriptedModel([nn.CallTool("pay", amount=5), "Paid less.", "All done."])
    again = await closed(run, rules=rules, model=model)
    assert said(again) == [("pay 60", "Paid less."), ("pay 5", "All done.")]
    assert again.meta["replay"]["stopped"] is None
    assert [call[:3] for call in tools_of(again)][-1] == ("pay", {"amount": 5.0}, "ok")  # as recorded
    assert RAN == []


async def test_a_call_that_was_not_recorded_runs_a_given_tool_or_stops() -> None:
    run = await chat()
    rules = nn.RuleBook()
    rules.when("tool.args.amount > 50", id="large", tools="pay")
    replies = [nn.CallTool("pay", amount=7), "Paid less.", "All done."]
    stopped = await closed(run, rules=rules, model=nn.ScriptedModel(replies))
    assert "'pay'" in stopped.meta["replay"]["stopped"]
    assert RAN == []
    again = await closed(run, rules=rules, model=nn.ScriptedModel(replies), tools=[pay])
    assert again.meta["replay"]["stopped"] is None
    assert RAN == ["pay 7"]


def test_a_given_tool_blocks_the_loop_no_more_than_in_a_turn() -> None:
    threads: list[bool] = []

    def note(amount: float) -> str:
        """Pay."""
        threads.append(threading.current_thread() is threading.main_thread())
        return "paid"

    rules = nn.RuleBook()
    rules.when("tool.args.amount > 50", id="large", tools="pay")
    for is_inline in (False, True):
        model = nn.ScriptedModel([nn.CallTool("pay", amount=7), "Paid less.", "All done."])
        tools = [nn.tool(note, name="pay", inline=is_inline)]
        replay(asyncio.run(chat()), mode="closed", rules=rules, model=model, tools=tools)

    assert threads == [False, True]


async def test_a_tighter_regulator_ends_the_turn_and_the_rest_is_lived() -> None:
    run = await chat(regulation(Regulator.for_user("ann")))
    tight = Regulator.for_user("ann").with_predicates(CallBudget(total=1, per_tool={}))
    again = await closed(run, regulator=tight)
    assert again.turns[0].outcome == "aborted"
    assert again.turns[0].stopped is not None
    assert again.meta["replay"]["diverged"]


async def test_a_smaller_budget_is_lived_with() -> None:
    run = await chat()
    again = await closed(
        run, projection={"token_budget": 90, "response_reserve": 10}, model=nn.ScriptedModel(["a", "b"])
    )
    assert again.select(ViewAssembled)[0].total == 90
    assert again.meta["replay"]["diverged"]


def part_by_part(count: int) -> Any:
    """Say it part by part."""
    for part in range(count):
        yield f"part {part}"
    return f"{count} parts"


def number() -> int:
    """Return a number."""
    return "none"  # type: ignore[return-value]


async def test_a_given_tool_may_report_progress_and_its_result_is_checked() -> None:
    run = await chat(replies=["Hello.", "Bye."])
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted", tools=[part_by_part, number]))
    calls = [nn.CallTool("part_by_part", count=2), nn.CallTool("number"), "Done."]
    run.made_with(config)
    again = await closed(run, model=nn.ScriptedModel([*calls, "Bye."]), tools=[part_by_part, number])
    (_, _, *progressing), (_, _, *checked) = tools_of(again)
    assert (progressing, checked[0]) == (["ok", "2 parts"], "invalid_result")


@pytest.mark.parametrize(
    "other",
    [
        {"tools": [find]},
        {"tools": [find, pay, number]},
        {"params": {"temperature": 0.5}},
        {"model": "another"},
        {"output": {"type": "string"}},
        {"instructions": "Rest."},
    ],
)
async def test_a_request_with_other_tools_parameters_or_model_is_another_request(other: dict[str, Any]) -> None:
    own: dict[str, Any] = {"model": "scripted", "instructions": "Work.", "tools": [find, pay]}

    def config(**options: Any) -> nn.AgentConfig:
        return nn.AgentConfig(name="desk", step=nn.step.llm("ask", **{**own, **options}))

    harness = nn.AgentHarness(config(), model=nn.ScriptedModel(["Hello."]))
    run = nn.record(harness)
    await harness.execute("Hi")
    run.stop_recording()
    run.made_with(config())
    assert (await closed(run)).known_until == {}
    run.made_with(config(**other))
    again = await closed(run)
    assert (set(again.known_until), set(again.meta["replay"]["diverged"])) == ({"default"}, {"default"})


async def test_a_turn_that_an_error_ended_ends_so_again() -> None:
    rules = nn.RuleBook()
    rules.when("tool.args.no > 1.0", id="broken", on="before_tool_call", tools=["pay"])
    step = nn.react(model="scripted", tools=[pay])
    config = nn.AgentConfig(name="desk", step=step, memory=[nn.steering(rules, on_error="raise")])
    harness = nn.AgentHarness(config, model=nn.ScriptedModel([nn.CallTool("pay", amount=60), "Hello."]))
    run = nn.record(harness)
    with pytest.raises(Exception, match="no"):
        await harness.execute("pay 60")
    await harness.execute("Hi")
    run.stop_recording()
    again = await closed(run)
    assert [turn.outcome for turn in again.turns] == [turn.outcome for turn in run.turns] == ["failure", "success"]
    assert again.known_until == {}


async def test_answers_take_as_long_as_they_did() -> None:
    limit = CostCap(tokens_out=None, wallclock_ms=4, poor_mean=None)
    regulator = Regulator.for_user("ann").with_predicates(limit)
    config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[find]), memory=[regulation(regulator)])
    calls = [nn.CallTool("find", place=place) for place in (1, 2)]
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(calls), clock=FakeClock(step_ms=3))
    run = nn.record(harness)
    await harness.execute("Hi")
    run.stop_recording()
    again = await closed(run)
    assert again.turns[0].outcome == run.turns[0].outcome == "aborted"
    lasted = [[each.duration_ms for each in run.events if isinstance(each, CALLS)] for run in (run, again)]
    assert lasted[0] == lasted[1] == [3, 3, 3]


async def test_a_replay_is_known_up_to_the_first_of_several_calls_that_were_not_made() -> None:
    both = [nn.CallTool("find", place=9), nn.CallTool("pay", amount=9)]
    rules = nn.RuleBook()
    rules.when("true", id="all", on="before_tool_call")
    run = await chat(nn.steering(rules), replies=[both, "Hello.", "Bye."])
    again = await closed(run, rules=[])
    first = next(seq for seq, event in enumerate(again.events) if isinstance(event, ToolCalled))
    assert again.known_until["default"].seq == first
    assert "'find'" in again.meta["replay"]["stopped"]


@pytest.mark.parametrize("tools", [5, "find", {"find": find}, [None], [5]])
async def test_tools_that_are_none_are_refused(tools: Any) -> None:
    run = await chat()
    with pytest.raises(NoeticConfigError, match="INVALID_TOOL"):
        await closed(run, tools=tools)
    with pytest.raises(NoeticConfigError, match="INVALID_TOOL"):
        await forked(run, at=0, model=nn.ScriptedModel([]), tools=tools)


async def test_a_ledger_keeps_as_many_entries_as_it_did() -> None:
    rules = nn.RuleBook()

    @rules.rule(on="before_tool_call")
    def full(call: Any) -> Any:
        return deny("Full.") if len(call.state["ledger"]) > 1 else None

    run = await chat(nn.steering(rules, scope="thread", max_ledger_entries=1))
    again = await closed(run)
    assert again.known_until == {}
    assert tools_of(again) == tools_of(run)


async def test_the_error_of_a_client_reads_as_it_did() -> None:
    path = nn.step.llm("ask", model="m")
    config = nn.AgentConfig(name="desk", step=nn.fork("both", mode="settle", paths=[path, path], merge="concat"))
    errors = [RuntimeError("down"), NoeticError("llm_failed", "No answer.")]
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(errors))
    run = nn.record(harness)
    await harness.execute("Hi")
    run.stop_recording()
    again = await closed(run)
    assert "RuntimeError: down" in run.turns[0].text
    assert said(again) == said(run)
    assert [call.error for call in again.select(ModelCalled)] == [call.error for call in run.select(ModelCalled)]


async def test_corrections_and_the_spending_of_failed_calls_are_repeated() -> None:
    async def answer(request: Any) -> Any:
        if request.items[-1]["content"][0]["text"] == "Hi":
            raise NoeticError("llm_refused", "No.", usage=nn.Usage(30, 20), cost=0.5)
        return "Hello."

    regulator = Regulator.for_user("ann").with_predicates(ProceduralWarning(min_corrections=1))
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), memory=[regulation(regulator)])
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(answer))
    run = nn.record(harness)
    with pytest.raises(NoeticError):
        await harness.execute("Hi")
    await harness.execute("Summarise the quarterly report")
    await harness.correct("default", "Be brief.")
    await harness.execute("Summarise the quarterly report")
    run.stop_recording()
    again = await closed(run)
    assert again.known_until == {}
    spent = [[(*call.counts, call.cost) for call in each.select(ModelCalled)] for each in (again, run)]
    decided = [[(event.at, event.decision) for event in each.select(RegulatorDecided)] for each in (again, run)]
    assert spent[0] == spent[1]
    assert decided[0] == decided[1]
    assert "correction" in [at for at, _ in decided[1]]


@pytest.mark.parametrize("place", [0, 1, 2, 3, 4, -1])
async def test_a_fork_keeps_what_was_before_and_goes_on_with_the_model(place: int) -> None:
    run = await chat()
    new = await forked(run, at=place, model=nn.ScriptedModel(["Another end."]))
    at = place % 5
    assert len(new.select(ModelCalled)) == at + 1
    assert new.turns[-1].text == "Another end."
    assert [e.items for e in new.select(ModelCalled)[:at]] == [e.items for e in run.select(ModelCalled)[:at]]
    assert new.meta["replay"]["at"] == at
    assert RAN == []


async def test_a_fork_with_another_message() -> None:
    run = await chat()
    new = await forked(run, at=3, edit="pay nothing", model=nn.ScriptedModel(["Nothing paid."]))
    assert said(new) == [("pay 60", "Paid."), ("pay nothing", "Nothing paid.")]


@pytest.mark.parametrize(("turns", "last"), [(0, 1), (1, 2), (2, 3), (9, 3), ("all", 3)])
async def test_a_fork_goes_on_with_what_the_user_wrote_later_where_it_is_asked_to(turns: Any, last: int) -> None:
    step = nn.react(model="scripted", tools=[pay])
    config = nn.AgentConfig(name="desk", step=step)
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["A.", "Other.", "B.", "C."]))
    run = nn.record(harness)
    for message, thread in (("one", "t1"), ("elsewhere", "t2"), ("two", "t1"), ("three", "t1")):
        await harness.execute(message, thread_id=thread)
    await harness.feedback("t1", quality=0.1)
    run.stop_recording()
    new = await forked(run, at=0, edit="won", model=nn.ScriptedModel(["1.", "2.", "3."]), turns=turns)
    assert said(new) == [("won", "1."), ("two", "2."), ("three", "3.")][:last]
    assert not new.select(QualityGiven)
    assert ("turns" in new.meta["replay"]["changed"]) == (turns != 0)


async def test_a_fork_with_other_items_shows_them_from_this_call_on() -> None:
    run = await chat()
    asked: list[list[str]] = []

    def answer(request: Any) -> Any:
        asked.append([nn.items.item_text(item) for item in request.items])
        return nn.CallTool("pay", amount=60) if len(asked) == 1 else "Paid."

    def edit(items: Any) -> Any:
        return [item for item in items if item["type"] == "message"]

    new = await forked(run, at=1, edit=edit, model=nn.ScriptedModel(answer))
    assert asked[0] == ["pay 60"]
    assert asked[1][0] == "pay 60"
    assert len(asked[1]) == 3  # with the call and its result
    sent = recorded_request(new, 1)
    assert [s.item["type"] for s in sent.items if s.item is not None] == ["message"]
    assert sent.can_replan


async def test_a_fork_whose_edit_fails_is_refused() -> None:
    run = await chat()

    async def later(items: Any) -> Any:
        raise KeyError("name")

    edits: list[Any] = [lambda items: 5, lambda items: None, lambda items: "text", lambda items: [5], lambda: (), later]
    for edit in edits:
        with pytest.raises(NoeticConfigError, match="The edit failed") as caught:
            await forked(run, at=1, edit=edit, model=nn.ScriptedModel(["Paid."]))
        assert caught.value.code == "INVALID_EDIT"


async def test_a_fork_with_other_rules_has_them_from_this_call_on() -> None:
    run = await chat()
    rules = nn.RuleBook()
    rules.when("true", id="none")
    new = await forked(run, at=1, rules=rules, model=nn.ScriptedModel([nn.CallTool("pay", amount=60), "No."]))
    assert [(call[0], call[2]) for call in tools_of(new)] == [("find", "error"), ("pay", "denied")]


async def test_layers_and_models_may_be_others() -> None:
    run = await chat(nn.static_content("Be kind."))
    bare = await forked(run, at=0, layers=[], model={"scripted": nn.ScriptedModel(["Hm."])})
    assert not bare.select(ViewAssembled)[0].layer_items
    other = await closed(run, layers=[nn.static_content("Be brief.")], model=nn.ScriptedModel(["a", "b"]))
    assert "brief" in str(other.select(ViewAssembled)[0].layer_items)
    assert said(other) == [("pay 60", "a"), ("pay 5", "b")]


async def test_what_cannot_be_gone_on_with_is_refused() -> None:
    run = await chat()
    airline = datasets.airline_run(26)
    alone = Run("alone", meta=run.meta, events=run.events)
    model = nn.ScriptedModel(["x"])
    for code, call in {
        "OPEN_LOOP_ONLY": lambda: replay(airline, mode="closed", model=model),
        "NO_AGENT": lambda: replay(alone, mode="closed", model=model),
        "UNKNOWN_CALL": lambda: fork(run, at=9, model=model),
        "MODEL_NEEDED": lambda: fork(run, at=0),
        "INVALID_EDIT": lambda: fork(run, at=0, edit=3, model=model),  # type: ignore[arg-type]
        "INVALID_COUNT": lambda: fork(run, at=0, model=model, turns=-1),
        "UNKNOWN_LAYER_REFERENCE": lambda: replay(run, mode="closed", layers=["fact"], model=model),
    }.items():
        with pytest.raises(NoeticConfigError) as caught:
            call()
        assert caught.value.code == code
    with pytest.raises(NoeticConfigError) as caught:
        fork(airline, at=0, model=model)
    assert caught.value.code == "OPEN_LOOP_ONLY"


def words(text: str) -> int:
    return len(text.split())


async def test_a_run_is_counted_again_with_its_own_tokenizer() -> None:
    note = nn.static_content("Be kind. " * 40)
    config = nn.AgentConfig(
        name="desk",
        step=nn.react(model="scripted", tools=[pay]),
        memory=[note],
        projection=nn.ProjectionPolicy(token_budget=160, response_reserve=10),
    )
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(REPLIES[1:]), tokenizer=words)
    run = nn.record(harness)
    await harness.execute("pay 60 " * 20)
    await harness.execute("pay 5")
    run.stop_recording()

    open_loop = await asyncio.to_thread(lambda: replay(run, tokenizer=words))
    assert list(open_loop.events) == list(run.events)
    assert {row["what"] for row in open_loop.meta["replay"]["kept"]} == {"offers"}
    small = await asyncio.to_thread(lambda: replay(run, projection={"token_budget": 90}, tokenizer=words))
    assert small.meta["replay"]["tokens"]["after"] < small.meta["replay"]["tokens"]["before"]
    again = await closed(run, tokenizer=words)
    assert not nn.compare(run, again).differences
    new = await forked(run, at=1, model=nn.ScriptedModel(["Paid."]), tokenizer=words)
    assert new.select(ViewAssembled)[0].layers == run.select(ViewAssembled)[0].layers

    # Uncounted values are never treated as counted.
    for other in (await closed(run), await forked(run, at=1, model=nn.ScriptedModel(["Paid."]))):
        assert [row["what"] for row in other.meta["replay"]["kept"]] == ["tokens"]
    kept = replay(run).meta["replay"]["kept"]
    assert [row["why"] for row in kept if row["what"] == "plans"] == [
        f"the tokenizer '{__name__}.words': pass it as tokenizer="
    ]
    with pytest.raises(NoeticConfigError, match="NOT_RECORDED"):
        replay(run, projection={"token_budget": 90})
    for wrong, code in ((3, "INVALID_TOKENIZER"), ("words", "UNKNOWN_TOKENIZER")):
        with pytest.raises(NoeticConfigError, match=code):
            replay(run, tokenizer=wrong)  # type: ignore[arg-type]


def test_a_run_is_asked_again_with_a_counter_by_its_name() -> None:
    run = datasets.airline(1)[0]
    by_name, by_function = (
        replay(run, tokenizer=counter) for counter in ("o200k_base", nn.tokenizers.get("o200k_base"))
    )
    assert by_name.events == by_function.events
    assert run.caching(tokenizer="o200k_base").equals(run.caching(tokenizer=nn.tokenizers.get("o200k_base")))
