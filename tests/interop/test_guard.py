"""Rules in front of foreign tools: the same object back, and the same ledger and history as in our harness."""

from __future__ import annotations

import asyncio
import json
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import RegulatorDecided, RegulatorSaw, RuleChanged
from noetic_nb.regulator import CallBudget
from noetic_nb.steering._rulebook.rulebook import unused_books
from tests.interop.guard_tools import (
    DONE,
    FORMS,
    LangChainTool,
    PydanticAITool,
    Session,
    called,
    decided,
    function_tool,
    pay,
)
from tests.matrix import matrix


@pytest.fixture(autouse=True)
def nothing_done() -> Any:
    DONE.clear()
    with nn.guard_session("t1"):
        yield


def small() -> nn.RuleBook:
    book = nn.RuleBook()

    @book.rule(on="before_tool_call")
    def not_over_100(call: Any) -> Any:
        return nn.deny("Ask a person.") if call.tool_args["amount"] > 100 else None

    return book


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_judged_once_runs_where_it_may_and_is_recorded(form: str) -> None:
    make, call = FORMS[form]
    guarded = nn.guard(make(), small(), on_deny="raise")

    value = call(guarded, 7)
    with pytest.raises(NoeticError) as caught:
        call(guarded, 700)

    assert DONE == [7]
    assert "paid 7 to bank" in str(value)
    assert (caught.value.kind, caught.value.facts["guidance"]) == ("steering_denied", "Ask a person.")
    first, second = called(guarded)
    # Defaults are filled in if the tool has a signature or a schema.
    beside = {} if form in ("MCP", "function that returns an awaitable") else {"to": "bank"}
    assert (first.status, dict(first.args or {}), first.output) == ("ok", {"amount": 7, **beside}, "paid 7 to bank")
    assert (second.status, dict(second.args or {})) == ("denied", {"amount": 700, **beside})
    assert [event.action for event in decided(guarded)] == ["allow", "deny"]
    assert decided(guarded)[1].rule_ids == ("not_over_100",)


@pytest.mark.parametrize("form", FORMS)
def test_a_denial_can_be_the_text_that_the_model_reads(form: str) -> None:
    make, call = FORMS[form]
    guarded = nn.guard(make(), small(), on_deny="return")

    error = json.loads(call(guarded, 700))["error"]

    assert DONE == []
    assert error == {
        "kind": "steering_denied",
        "action": "deny",
        "guidance": "Ask a person.",
        "ruleId": "not_over_100",
    }


FRAMEWORK_FORMS = [form for form in FORMS if form.startswith(("LangChain", "pydantic-ai", "OpenAI", "MCP"))]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("refused_by", ["rule", "regulator"])
def test_by_default_functions_raise_and_tools_of_frameworks_return(form: str, refused_by: str) -> None:
    make, call = FORMS[form]
    regulator = nn.Regulator.for_user("ann").with_predicates(CallBudget(total=1)) if refused_by == "regulator" else None
    guarded = nn.guard(make(), small(), regulator=regulator)
    call(guarded, 1)

    if form in FRAMEWORK_FORMS:
        assert "steering_denied" in str(call(guarded, 700))
    else:
        with pytest.raises(NoeticError) as caught:
            call(guarded, 700)
        assert caught.value.kind == "steering_denied"
    assert DONE == [1]


def test_by_default_arguments_that_do_not_fit_are_answered_in_the_same_way() -> None:
    answers = [
        nn.run_sync(nn.guard(function_tool(), []).on_invoke_tool(None, "{")),
        nn.guard(LangChainTool(pay), []).func(amount=1, who="Ann"),
        nn.guard(PydanticAITool(pay), []).function(who="Ann"),
        nn.run_sync(nn.guard(Session().call_tool, [])("pay", [1])),
    ]

    assert [answer[:7] for answer in answers] == ["Error: "] * 4
    with pytest.raises(NoeticError):
        nn.guard(pay, [])(who="Ann")
    assert DONE == []


def test_one_list_may_hold_both_kinds_and_a_choice_counts_for_both() -> None:
    function, tool = nn.guard([pay, LangChainTool(pay)], small())
    raising = nn.guard([pay, LangChainTool(pay)], small(), on_deny="raise")
    returning = nn.guard([pay, LangChainTool(pay)], small(), on_deny="return")

    assert "Ask a person." in tool.invoke({"amount": 700})
    for call in (function, raising[0], lambda amount: raising[1].invoke({"amount": amount})):
        with pytest.raises(NoeticError):
            call(amount=700)
    assert "Ask a person." in returning[0](amount=700)
    assert "Ask a person." in returning[1].invoke({"amount": 700})


@pytest.mark.parametrize("form", FORMS)
def test_the_same_kind_of_object_comes_back_and_the_first_is_left_alone(form: str) -> None:
    make, call = FORMS[form]
    tool = make()
    guarded = nn.guard(tool, small())

    assert guarded is not tool
    assert isinstance(guarded.run, nn.Run)
    assert callable(guarded) == callable(tool)
    if not callable(tool) or isinstance(tool, nn.Tool):
        assert isinstance(guarded, type(tool))
    call(tool, 700)
    assert DONE == [700]


@pytest.mark.parametrize("form", FORMS)
def test_an_edit_of_the_rules_counts_from_the_next_call_on_and_is_in_the_run(form: str) -> None:
    make, call = FORMS[form]
    book = nn.RuleBook()
    guarded = nn.guard(make(), book, on_deny="return")

    call(guarded, 1)
    book.when("tool.args.amount >= 2", id="late", guidance="No more.")
    text = call(guarded, 2)

    assert DONE == [1]
    assert "No more." in text
    assert [event.rule_id for event in guarded.run.events if isinstance(event, RuleChanged)] == ["late"]


@pytest.mark.parametrize("form", FORMS)
def test_a_failure_of_the_tool_is_raised_and_recorded(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, call = FORMS[form]
    guarded = nn.guard(make(), small())

    class Full:
        def append(self, amount: int) -> None:
            raise OSError("disk full")

    monkeypatch.setattr("tests.interop.guard_tools.DONE", Full())
    with pytest.raises(OSError, match="disk full"):
        call(guarded, 1)

    (event,) = called(guarded)
    assert (event.status, event.error, event.error_type) == ("error", "disk full", "OSError")


def test_a_function_keeps_its_name_its_text_and_its_signature() -> None:
    guarded = nn.guard(pay, small())

    assert (guarded.__name__, guarded.__doc__) == ("pay", "Pay someone.")
    assert nn.tool(guarded).spec.parameters == nn.tool(pay).spec.parameters


def test_a_list_gives_a_list_with_one_run_and_one_history() -> None:
    book = nn.RuleBook()
    book.when("history.size() >= 2", id="two", guidance="Enough.")
    tools = nn.guard([pay, LangChainTool(pay), function_tool()], book, on_deny="return")

    assert type(tools) is list
    assert tools[0](amount=1) == "paid 1 to bank"
    assert tools[1].invoke({"amount": 2}) == "paid 2 to bank"
    assert "Enough." in nn.run_sync(tools[2].on_invoke_tool(None, '{"amount": 3}'))
    assert DONE == [1, 2]
    assert [event.name for event in called(tools[0])] == ["pay"] * 3
    assert tools[1].run.events == tools[0].run.events


def test_arguments_are_judged_as_the_tool_gets_them() -> None:
    book, seen = nn.RuleBook(), []

    @book.rule(on="before_tool_call")
    def look(call: Any) -> None:
        seen.append((dict(call.tool_args), call.raw_args))

    nn.guard(pay, book)("7")
    nn.run_sync(nn.guard(function_tool(), book).on_invoke_tool(None, '{"amount": 8}'))

    assert DONE == [7, 8]
    assert seen == [
        ({"amount": 7, "to": "bank"}, {"amount": "7"}),
        ({"amount": 8, "to": "bank"}, {"amount": 8}),
    ]


@pytest.mark.parametrize("text", ['{"amount": "1"}', "{}", "[1]", "{", '{"amount": 1e999}'])
def test_arguments_that_do_not_fit_reach_neither_rules_nor_tool(text: str) -> None:
    book = nn.RuleBook()

    @book.rule(on="before_tool_call")
    def never(call: Any) -> None:
        raise AssertionError

    raising = nn.guard(function_tool(), book, on_deny="raise")
    with pytest.raises(NoeticError) as caught:
        nn.run_sync(raising.on_invoke_tool(None, text))
    returning = nn.guard(function_tool(), book, on_deny="return")

    assert caught.value.kind == "tool_failed"
    assert nn.run_sync(returning.on_invoke_tool(None, text)).startswith("Error: ")
    assert DONE == []
    assert [event.status for event in called(raising) + called(returning)] == ["invalid_args"] * 2


def test_each_rule_has_a_copy_of_the_arguments() -> None:
    book = nn.RuleBook()

    @book.rule(on="before_tool_call")
    def spoil(call: Any) -> None:
        dict.update(call.tool_args, amount=1)

    @book.rule(on="before_tool_call")
    def small(call: Any) -> Any:
        return nn.deny("no") if call.tool_args["amount"] > 100 else None

    for form in ("function", "MCP", "LangChain invoke"):
        make, call = FORMS[form]
        with pytest.raises(NoeticError):
            call(nn.guard(make(), book, on_deny="raise"), 700)
    assert DONE == []


def test_what_has_no_json_form_is_shown_by_its_class() -> None:
    book, seen = nn.RuleBook(), []

    @book.rule(on="before_tool_call")
    def look(call: Any) -> None:
        seen.append(dict(call.tool_args))

    class Frame:
        pass

    def plot(frame: Frame, *rest: int, **more: Any) -> str:
        return "plotted"

    assert nn.guard(plot, book)(Frame(), 1, 2, colour="red") == "plotted"
    assert seen == [{"frame": "<Frame>", "rest": (1, 2), "colour": "red"}]


def test_positional_arguments_missing_ones_and_unknown_ones() -> None:
    guarded = nn.guard(pay, small())

    assert guarded(3, "Ann") == "paid 3 to Ann"
    for args, kwargs in (((), {}), ((1, "a", 2), {}), ((1,), {"amount": 2}), ((1,), {"x": 2})):
        with pytest.raises(NoeticError):
            guarded(*args, **kwargs)
    assert DONE == [3]


# Approval, judges, regulator


@matrix("form,answer", product(FORMS, [True, False, "Too much.", 1, None]), keep=36)
def test_a_question_to_a_person_is_a_no_unless_somebody_says_yes(form: str, answer: Any) -> None:
    make, call = FORMS[form]
    book = nn.RuleBook()
    book.when("tool.args.amount > 1", id="ask", action="ask", guidance="Pay?")
    approvals: list[Any] = []

    async def approve(name: str, args: Any, question: str) -> Any:
        await asyncio.sleep(0)
        approvals.append((args["amount"], question))
        return answer

    nobody = nn.guard(make(), book, on_deny="return")
    somebody = nn.guard(make(), book, approve=approve, on_deny="return")

    assert '"action":"deny"' in call(nobody, 2)
    assert DONE == []
    said = call(somebody, 2)
    assert approvals == [(2, "Pay?")]
    assert ([2] if answer is True else []) == DONE
    assert answer is True or (answer if isinstance(answer, str) else "nobody did") in said
    assert [event.outcome for event in decided(nobody)][-1] == "nobody"


def test_a_tool_of_ours_that_needs_approval_is_not_run_without_one() -> None:
    guarded = nn.guard(nn.tool(pay, needs_approval=True), [], on_deny="return")

    assert "nobody did" in guarded(amount=1)
    assert DONE == []


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("form", FORMS)
def test_judges_are_waited_for_and_a_missing_model_is_an_error_of_the_setup(form: str, mode: str) -> None:
    make, call = FORMS[form]
    rule = {
        "id": "judge",
        "applies_to": ["before_tool_call"],
        "llm_eval": {"mode": mode, "prompt": "May this be?", "model": "judge"},
    }
    model = nn.ScriptedModel({"judge": ["DENY: no", "ALLOW"]})

    guarded = nn.guard(make(), [rule], model={"judge": model}, on_deny="return")
    assert '"ruleId":"judge"' in call(guarded, 1)
    assert DONE == []
    call(guarded, 2)
    assert DONE == [2]
    for missing in (None, {"other": model}):
        with pytest.raises(NoeticConfigError) as caught:
            call(nn.guard(make(), [rule], model=missing, on_error="allow", on_deny="return"), 3)
        assert caught.value.code == "MISSING_CALL_MODEL"
    assert DONE == [2]


@pytest.mark.parametrize("form", FORMS)
def test_a_regulator_stops_the_session_and_is_in_the_run(form: str) -> None:
    make, call = FORMS[form]
    regulator = nn.Regulator.for_user("ann").with_predicates(CallBudget(total=3))
    guarded = nn.guard(make(), None, regulator=regulator, on_deny="return")

    texts = [str(call(guarded, 5)) for _ in range(6)]

    assert len(DONE) == 3
    assert "steering_denied" in texts[-1]
    assert [event for event in guarded.run.events if isinstance(event, RegulatorSaw)]
    broken = [event for event in guarded.run.events if isinstance(event, RegulatorDecided) and event.stops]
    assert len(broken) == 1  # later calls are refused for the same reason, which is not evaluated again
    with nn.guard_session():
        assert "paid" in str(call(guarded, 9))


# Setting up


def test_the_rules_count_as_used() -> None:
    used, unused = small(), small()
    nn.guard(pay, used)

    found = unused_books()
    assert any(book is unused for book in found)
    assert not any(book is used for book in found)


@pytest.mark.parametrize(
    ("tool", "options", "code"),
    [
        (3, {}, "INVALID_TOOL"),
        (SimpleNamespace(name="x"), {}, "INVALID_TOOL"),
        (pay, {"on_deny": "ignore"}, "INVALID_OPTION"),
        (pay, {"on_error": "ignore"}, "INVALID_STEERING"),
        (pay, {"regulator": 3}, "INVALID_REGULATION"),
    ],
)
def test_what_means_nothing_is_refused(tool: Any, options: dict[str, Any], code: str) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        nn.guard(tool, [], **options)

    assert caught.value.code == code


def test_a_run_can_be_given_and_saved(tmp_path: Any) -> None:
    run = nn.Run("mine")
    for tool in (pay, LangChainTool(pay), PydanticAITool(pay)):
        guarded: Any = nn.guard(tool, small(), run=run)
        assert guarded.run.run_id == "mine"
    nn.guard(pay, small(), run=run)(1)
    run.save(tmp_path / "run.jsonl")

    assert nn.load_run(tmp_path / "run.jsonl").events == run.events
    assert len(run.to_frame("tools")) == len(run.to_frame("ledger")) == 1


def test_a_guarded_tool_works_in_our_own_harness() -> None:
    guarded = nn.guard(nn.tool(pay), small(), on_deny="return")
    model = nn.ScriptedModel([nn.CallTool("pay", amount=700), nn.CallTool("pay", amount=7), "Done."])
    harness = nn.AgentHarness(nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[guarded])), model=model)

    assert nn.run_sync(harness.execute("Pay.")).text == "Done."
    assert DONE == [7]


def test_a_result_of_mcp_that_is_an_error_is_recorded_as_one() -> None:
    class Failing(Session):
        async def call_tool(self, name: str, arguments: Any = None) -> Any:
            return SimpleNamespace(content=[SimpleNamespace(type="text", text="no such order")], isError=True)

    guarded = nn.guard(Failing().call_tool, [])
    nn.run_sync(guarded("lookup", arguments={"order": "A17"}))

    (event,) = called(guarded)
    assert (event.name, event.status, event.output) == ("lookup", "error", "no such order")


def test_generators_are_judged_before_they_begin() -> None:
    def count(amount: int) -> Any:
        DONE.append(amount)
        yield 1
        return "end"

    async def acount(amount: int) -> Any:
        DONE.append(amount)
        yield 1

    first, second = nn.guard([count, acount], small(), on_deny="return")

    async def all_of(pieces: Any) -> list[Any]:
        return [piece async for piece in pieces]

    assert "Ask a person." in next(first(700))
    assert "Ask a person." in nn.run_sync(all_of(second(700)))[0]
    assert DONE == []
    assert list(first(1)) == [1] == nn.run_sync(all_of(second(1)))
    assert [event.status for event in called(first)] == ["denied", "denied", "ok", "ok"]
