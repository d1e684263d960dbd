"""Facts in the record of a decision: the failed rules with reasons, and the part of a response that it is about."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.events import SteeringDecided
from noetic_nb.runs import Run
from noetic_nb.runs._events.event_json import dump_event, parse_event
from noetic_nb.steering import RuleBook, deny, guide, most_restrictive


async def decisions_of(rules: RuleBook, replies: list[Any], **options: Any) -> list[SteeringDecided]:
    @nn.tool
    async def pay(amount: int) -> str:
        """Pay someone."""
        return f"paid {amount}"

    memory = [nn.steering(rules, **options)]
    config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[pay]), memory=memory)
    harness = nn.AgentHarness(config, model=nn.ScriptedModel({"m": replies, "j": ["Well ..."] * 9}))
    run = nn.record(harness)
    with contextlib.suppress(nn.NoeticError):  # a rejected response
        await harness.execute("Pay")
    point = "before_tool_call" if isinstance(replies[0], nn.CallTool) else "after_model_call"
    return [event for event in run.events if isinstance(event, SteeringDecided) and event.hook == point]


CALL = [nn.CallTool("pay", amount=500), "Paid."]


async def test_a_judge_that_gives_no_verdict_is_named_although_the_call_passes() -> None:
    rules = RuleBook()
    rules.judge("Is it fair?", id="fair", on="before_tool_call", model="j")

    (entry,) = await decisions_of(rules, CALL)

    assert (entry.action, entry.outcome, entry.faults) == ("allow", "unparseable", (("fair", "unparseable"),))


@pytest.mark.parametrize("policy", ["allow", "deny"])
async def test_a_rule_that_raises_is_named_with_its_error(policy: str) -> None:
    rules = RuleBook()

    @rules.rule(on="before_tool_call")
    def limit(call: Any) -> Any:
        return call.tool_args["limit"]

    entry = (await decisions_of(rules, CALL, on_error=policy))[0]

    assert (entry.action, entry.outcome) == (policy, "error")
    assert entry.faults == (("limit", "KeyError: 'limit'"),)


async def test_an_error_about_a_response_does_not_quote_it() -> None:
    rules = RuleBook()

    @rules.rule(on="after_model_call")
    def quoting(params: Any) -> Any:
        raise ValueError(params.text)

    entry = (await decisions_of(rules, ["The secret answer."]))[0]

    assert entry.faults == (("quoting", "ValueError"),)


async def test_a_condition_on_a_response_says_what_it_found() -> None:
    rules = RuleBook()
    rules.when(
        'response.text.contains("promise") || response.text.matches("(?i)guarant")',
        id="no_promises",
        on="after_model_call",
        guidance="Promise nothing.",
    )

    (entry,) = await decisions_of(rules, ["We promise: the refund is Guaranteed."])

    assert entry.matched == ("promise", "Guaranteed")
    assert entry.guidance == "Promise nothing."


async def test_a_condition_that_misses_a_text_finds_nothing() -> None:
    rules = RuleBook()
    rules.when('!response.text.contains("sorry")', id="polite", on="after_model_call")

    (entry,) = await decisions_of(rules, ["No."])

    assert (entry.action, entry.matched) == ("deny", ())


async def test_a_rule_in_python_says_what_it_found() -> None:
    rules = RuleBook()

    @rules.rule(on="after_model_call")
    def no_promises(params: Any) -> Any:
        return deny("Promise nothing.", matched=params.text[3:10])

    (entry,) = await decisions_of(rules, ["We promise everything."])

    assert entry.matched == ("promise",)


def test_what_several_rules_found_is_kept_once_and_cut() -> None:
    both = most_restrictive([guide("a", matched=["one", "two"]), guide("b", matched=["two", "x" * 1_000])])

    assert both.matched == ("one", "two", "x" * 200)
    assert deny(matched="").matched == ()


async def test_the_facts_are_saved_and_old_records_load_without_them() -> None:
    rules = RuleBook()
    rules.when('response.text.contains("promise")', id="r", on="after_model_call")
    (entry,) = await decisions_of(rules, ["We promise."])
    data = dump_event(entry)

    assert parse_event(data) == entry
    old = {key: value for key, value in data.items() if key not in ("faults", "matched")}
    loaded = parse_event(old)
    assert isinstance(loaded, SteeringDecided)
    assert (loaded.faults, loaded.matched) == ((), ())
    run = Run(events=[entry])
    assert run.to_frame("ledger")["matched"].tolist() == [("promise",)]


@pytest.mark.timeout(30)
async def test_a_long_response_does_not_make_the_search_slow() -> None:
    rules = RuleBook()
    rules.when('response.text.matches("(a+)+b")', id="slow", on="after_model_call")

    (entry,) = await decisions_of(rules, ["a" * 100_000 + "b"])

    assert entry.matched == ("a" * 200,)
