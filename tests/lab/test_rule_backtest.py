"""Backtests: the hypothetical decisions of rules agree with their decisions in the recorded run."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import SteeringDecided
from noetic_nb.lab import backtest, datasets
from noetic_nb.lab._rule_backtest import CHANGES, Trials
from noetic_nb.models import CassetteModel
from noetic_nb.steering import RuleBook, SteeringRule
from noetic_nb.testing import FakeClock, SeededIds, drive_loop


@nn.tool
async def pay(amount: int) -> str:
    """Pay someone."""
    return f"paid {amount}"


@nn.tool
async def search(query: str) -> str:
    """Look for something."""
    return "found"


def recorded(rules: RuleBook, script: list[Any], *, model: Any = None) -> nn.Run:
    config = nn.AgentConfig(
        name="desk", step=nn.react(model="scripted", tools=[pay, search]), memory=[nn.steering(rules)]
    )
    clock = FakeClock()
    harness = nn.AgentHarness(config, model=model or nn.ScriptedModel(script), clock=clock, ids=SeededIds())
    run = nn.record(harness)

    async def talk() -> None:
        for text in ("One", "Two"):
            await harness.execute(text, thread_id="t1", resource_id="alice")

    drive_loop(talk())
    return run


SCRIPT: list[Any] = [
    nn.CallTool("search", query="a"),
    nn.CallTool("pay", amount=50),
    nn.CallTool("pay", amount=500),
    nn.CallTool("nothing"),
    "Paid.",
    nn.CallTool("pay", amount=5),
    nn.CallTool("pay", amount="x"),
    "A secret.",
    "Fine.",
]


def book() -> RuleBook:
    rules = RuleBook()
    rules.when("tool.args.amount > 100", id="large", tools="pay", guidance="{tool.args.amount} is too much.")
    rules.only("pay", after="search")
    rules.when("response.text.contains('secret')", id="secret", action="guide", guidance="No secrets.")
    return rules


def test_the_rules_that_ran_decide_on_the_recorded_run_as_they_did_then() -> None:
    rules = book()
    run = recorded(rules, SCRIPT)

    table = backtest(rules, run)

    live = run.select(SteeringDecided)
    # A call is decided before its tool runs, a response after the model: the order of events is the same.
    assert list(zip(table.hook, table.after, table.guidance, table.rules_after, strict=True)) == [
        (event.hook, event.action, event.guidance, event.rule_ids) for event in live
    ]
    assert set(table.after) == {"allow", "deny", "guide"}


def test_rows_lead_to_the_turn_and_the_event() -> None:
    run = recorded(book(), SCRIPT)

    table = backtest(book(), run)

    for row in table.itertuples():
        event: Any = run.events[row.seq]
        assert (event.where.turn, event.where.thread_id, event.t_ms) == (row.turn, row.thread_id, row.t_ms)
        if row.tool_name is not None:
            assert (event.name, dict(event.args)) == (row.tool_name, row.args)
    assert run.turns[table.turn.max() - 1].query == "Two"


def test_a_candidate_takes_the_place_of_the_rule_with_its_id() -> None:
    rules = book()
    run = recorded(RuleBook(), SCRIPT)
    tighter = {"id": "large", "applies_to": "before_tool_call", "tools": "pay", "when": "tool.args.amount > 10"}

    table = backtest(rules, run, candidate=tighter)

    assert table[table.change != "unchanged"][["change", "args"]].values.tolist() == [["newly_denied", {"amount": 50}]]
    assert table.attrs["summary"]["newly_denied"] == 1
    assert rules.version == 3


@pytest.mark.parametrize(
    ("candidate", "change"),
    [
        ([], "newly_allowed"),
        (nn.SteeringRule(id="large", applies_to="before_tool_call", predicate=lambda call: None), "newly_allowed"),
        (nn.SteeringRule(id="large", applies_to="before_tool_call", predicate=lambda call: nn.guide("x")), "guided"),
        (nn.SteeringRule(id="large", applies_to="before_tool_call", predicate=lambda call: nn.ask("x")), "asked"),
        (nn.SteeringRule(id="large", applies_to="before_tool_call", predicate=lambda call: 1 / 0), "errored"),
    ],
)
def test_every_way_in_which_a_verdict_may_differ(candidate: Any, change: str) -> None:
    rules = RuleBook()
    rules.when("tool.args.amount > 100", id="large", tools="pay")
    run = recorded(RuleBook(), SCRIPT)

    table = backtest(rules, run, candidate=candidate)

    changed = table[(table.before == "deny")]
    assert changed.change.tolist() == [change]


def test_a_function_is_tried_in_place_of_the_rule_with_its_name() -> None:
    rules = RuleBook()

    @rules.rule(on="before_tool_call", tools=["pay"])
    def small(call: Any) -> Any:
        return nn.deny() if call.tool_args["amount"] > 100 else None

    run = recorded(RuleBook(), SCRIPT)

    def edited(call: Any) -> Any:
        return nn.deny() if call.tool_args["amount"] > 10 else None

    edited.__name__ = "small"

    assert backtest(rules, run, candidate=edited).attrs["summary"]["newly_denied"] == 1
    edited.__name__ = "other"
    with pytest.raises(NoeticConfigError) as caught:
        backtest(rules, run, candidate=edited)
    assert caught.value.code == "UNKNOWN_RULE"


def test_rules_that_wait_are_evaluated_too_with_a_loop_running_or_not() -> None:
    async def slow(call: Any) -> Any:
        await asyncio.sleep(0)
        return nn.deny()

    rules = [
        SteeringRule(id="slow", applies_to="before_tool_call", tools="pay", predicate=slow),
        SteeringRule(id="apart", applies_to="before_tool_call", when="tool.name == 'search'", isolate=True),
    ]
    run = recorded(RuleBook(), SCRIPT)

    async def inside() -> Any:
        return backtest(rules, run)

    outside = backtest(rules, run)

    assert outside.attrs["summary"]["newly_denied"] == 4
    assert asyncio.run(inside()).after.tolist() == outside.after.tolist()


def test_a_plain_function_that_answers_something_to_await_is_awaited() -> None:
    async def slow() -> Any:
        await asyncio.sleep(0)
        return nn.deny()

    rules = [SteeringRule(id="slow", applies_to="before_tool_call", predicate=lambda call: slow())]

    assert set(backtest(rules, recorded(RuleBook(), SCRIPT)).after) == {"deny", "allow"}


def test_judges_are_skipped_and_named() -> None:
    rules = book()
    rules.judge("Fair?", id="fair", tools="pay", model="judge")

    table = backtest(rules, recorded(RuleBook(), SCRIPT))

    assert table.attrs["skipped"] == ["fair"]
    assert table[table.tool_name == "pay"].skipped.tolist() == [("fair",)] * 3
    assert not table[table.tool_name != "pay"].skipped.any()


def test_judges_answer_from_a_cassette_and_only_what_it_holds(tmp_path: Any) -> None:
    rules = RuleBook()
    rules.judge("Fair?", id="fair", tools="pay", model="judge")

    def verdict(request: Any) -> str:
        return "DENY: unfair" if "500" in request.items[0].content[0].text else "ALLOW"

    run = recorded(RuleBook(), SCRIPT)
    tape = tmp_path / "judge.jsonl"
    source = nn.ScriptedModel({"judge": verdict})
    first = backtest(rules, run, judge=CassetteModel(tape, source, mode="record"))

    again = backtest(rules, run, judge=CassetteModel(tape, mode="replay"))
    rules.judge("Kind?", id="fair", tools="pay", model="judge")
    unknown = backtest(rules, run, judge=CassetteModel(tape, mode="replay"))

    assert first.attrs["summary"]["newly_denied"] == again.attrs["summary"]["newly_denied"] == 1
    assert (again.attrs["skipped"], unknown.attrs["skipped"]) == ([], ["fair"])
    assert unknown.attrs["summary"]["newly_denied"] == 0


@pytest.mark.parametrize("fault", [ValueError("down"), NoeticError("llm_failed", "down")])
def test_a_judge_that_fails_is_an_errored_row_and_not_a_skipped_one(fault: Exception) -> None:
    rules = RuleBook()
    rules.judge("Fair?", id="fair", tools="pay", model="judge")

    table = backtest(rules, recorded(RuleBook(), SCRIPT), judge=nn.ScriptedModel({"judge": lambda request: fault}))

    assert table[table.tool_name == "pay"].change.tolist() == ["errored"] * 3
    assert table.attrs["skipped"] == []


def test_a_condition_in_front_of_a_skipped_judge_decides_nothing_by_itself() -> None:
    rules = RuleBook()
    rules.judge("Fair?", id="fair", tools="pay", model="judge", when="true")

    table = backtest(rules, recorded(RuleBook(), SCRIPT))

    assert set(table.after) == {"allow"}
    assert table.attrs["skipped"] == ["fair"]


def test_nothing_recorded_is_an_empty_table_with_every_column() -> None:
    table = backtest(book(), nn.Run("empty"))

    assert len(table) == 0
    assert {"change", "turn", "tool_name"} <= set(table.columns)
    assert set(table.attrs["summary"]) == set(CHANGES)


@pytest.mark.parametrize("runs", [[3], ["run"]])
def test_what_is_no_run_is_refused(runs: Any) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        backtest([], runs)

    assert caught.value.code == "INVALID_RUN"


@pytest.mark.parametrize("rules", [3, "deny", [3], {"id": "x"}])
def test_what_are_no_rules_is_refused(rules: Any) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        backtest(rules, [])

    assert caught.value.code == "INVALID_RULE"


@pytest.mark.filterwarnings("ignore::noetic_nb.steering._evaluation.rule_reading.UnknownTarget")
def test_a_rule_book_compared_with_itself_changes_nothing() -> None:
    rules = book()

    table = backtest(rules, datasets.airline(5), candidate=rules, on_unknown="warn")

    assert set(table.change) == {"unchanged"}


@cache
def tools_called() -> tuple[list[nn.Run], list[str]]:
    runs = datasets.airline(6)
    return runs, [name for run in runs for name in run.to_frame("tools").tool_name]


@pytest.mark.filterwarnings("ignore::noetic_nb.steering._evaluation.rule_reading.UnknownTarget")
@given(st.lists(st.sampled_from(["calculate", "think", "get_user_details", "book_reservation"]), unique=True))
def test_the_counts_are_those_of_the_recorded_calls(tools: list[str]) -> None:
    runs, called = tools_called()
    rules = [SteeringRule(id=name, applies_to="before_tool_call", tools=name, when="true") for name in tools]

    table = backtest(rules, runs, on_unknown="warn")

    assert table.attrs["summary"]["newly_denied"] == sum(name in tools for name in called)
    assert sum(table.attrs["summary"].values()) == len(table)


def test_work_that_is_no_longer_wanted_ends_between_two_calls() -> None:
    asked: list[int] = []

    def count(call: Any) -> None:
        asked.append(1)

    trials = Trials(datasets.airline(3))
    rule = SteeringRule(id="count", applies_to=("before_tool_call", "after_model_call"), predicate=count)

    with pytest.raises(asyncio.CancelledError):
        trials.results([rule], stop=lambda: len(asked) == 3)

    assert len(asked) == 3


def test_rules_see_the_recorded_context() -> None:
    seen: list[Any] = []

    def look(call: Any) -> None:
        seen.append((call.ctx.thread_id, call.ctx.resource_id, call.ctx.turn, [past.name for past in call.history]))

    rule = SteeringRule(id="look", applies_to="before_tool_call", predicate=look)

    backtest([rule], recorded(RuleBook(), SCRIPT))

    assert seen[2] == ("t1", "alice", 1, ["search", "pay"])
    assert seen[-1] == ("t1", "alice", 2, [])
