"""Approval by people in a notebook, and cells that define rules."""

from __future__ import annotations

import asyncio
from typing import Any

import ipywidgets
import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.steering import RuleBook
from noetic_nb.widgets import Approval
from noetic_nb.widgets._approval import REFUSED, Question
from noetic_nb.widgets._rules.rule_magic import load_ipython_extension, rule_cell


@pytest.fixture(autouse=True)
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("IPython.display.display", lambda *shown, **options: None)


async def open_question(approval: Approval, name: str = "pay", **args: Any) -> tuple[asyncio.Task[Any], Question]:
    task = asyncio.ensure_future(approval(name, args, question="Pay 500?"))
    await asyncio.sleep(0)
    return task, approval.questions[0]


@pytest.mark.parametrize(
    ("given", "reason", "answer"),
    [
        ("once", "", True),
        ("always", "", True),
        ("deny", "", REFUSED),
        ("deny", " Too much. ", "Too much."),
    ],
)
async def test_a_click_answers(given: str, reason: str, answer: Any) -> None:
    approval = Approval()
    task, question = await open_question(approval, amount=500)
    assert question.words["asked"] == "Pay 500?"
    assert '"amount": 500' in question.words["call"]

    question._handle_custom_msg({"answer": given, "reason": reason}, [])

    assert await task == answer
    assert approval.questions == ()


async def test_allowed_for_the_run_is_not_asked_again_until_forgotten() -> None:
    approval = Approval()
    task, question = await open_question(approval)
    question.take("always")
    await task

    assert await approval("pay", {}) is True
    again, _ = await open_question(approval, "send")
    again.cancel()
    approval.forget()
    task, question = await open_question(approval)
    question.take("deny")
    assert await task == REFUSED


async def test_a_question_that_is_given_up_releases_its_widgets() -> None:
    approval = Approval()
    before = set(ipywidgets.widgets.widget._instances)
    task, question = await open_question(approval)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert approval.questions == ()
    assert question.comm is None
    assert set(ipywidgets.widgets.widget._instances) <= before


async def test_a_rule_that_asks_waits_for_the_person() -> None:
    rules = RuleBook()
    rules.when("tool.args.amount > 100", id="large", tools="pay", action="ask", guidance="Pay {tool.args.amount}?")
    paid: list[int] = []

    @nn.tool
    async def pay(amount: int) -> str:
        """Pay someone."""
        paid.append(amount)
        return "paid"

    approval = Approval()
    config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[pay]), memory=[nn.steering(rules)])
    harness = nn.AgentHarness(
        config, model=nn.ScriptedModel([nn.CallTool("pay", amount=500), "Paid."]), approve=approval
    )
    turn = asyncio.ensure_future(harness.execute("Pay"))
    while not approval.questions:
        await asyncio.sleep(0)
    assert paid == []
    assert approval.questions[0].asked == "Pay 500?"

    approval.questions[0].take("once")

    assert (await turn).text == "Paid."
    assert paid == [500]


def test_a_cell_is_a_rule_and_running_it_again_replaces_it() -> None:
    rules = RuleBook()
    names = {"rules": rules, "LIMIT": 3}
    cell = "def small(call):\n    if call.tool_args['n'] > LIMIT:\n        return deny('Too much.')\n"

    rule_cell("rules --tools pay,send --on before_tool_call", cell, names)
    rule_cell("rules --tools pay", cell.replace("Too much", "Less"), names)
    rule_cell("rules large --cel --action ask --guidance 'So much?'", "tool.args.n > 10\n", names)
    rule_cell("rules fair --judge j --mode async --on after_model_call", "Is it fair?", names)

    assert [(rule.id, rule.form) for rule in rules] == [("small", "python"), ("large", "cel"), ("fair", "judge")]
    assert (rules["small"].tools, "Less" in (rules["small"].source or "")) == (("pay",), True)
    assert (rules["large"].action, rules["large"].guidance) == ("ask", "So much?")
    assert rules["fair"].llm_eval is not None
    assert rules["fair"].llm_eval.mode == "async"


@pytest.mark.parametrize(
    ("line", "cell", "code"),
    [
        ("", "def f(call): pass", "INVALID_MAGIC"),
        ("other", "def f(call): pass", "NOT_A_RULE_BOOK"),
        ("rules --when", "def f(call): pass", "INVALID_MAGIC"),
        ("rules --cel", "true", "INVALID_MAGIC"),
        ("rules --on sometimes", "def f(call): pass", "INVALID_MAGIC"),
        ("rules f", "def f(call): return (", "RULE_DOES_NOT_COMPILE"),
        ("rules f --cel", "tool.nme == 1", "RULE_DOES_NOT_COMPILE"),
        ("rules f --cel --judge m", "true", "INVALID_MAGIC"),
    ],
)
def test_a_cell_that_does_not_hold_up_changes_nothing(line: str, cell: str, code: str) -> None:
    rules = RuleBook()

    with pytest.raises(NoeticConfigError) as caught:
        rule_cell(line, cell, {"rules": rules})

    assert (caught.value.code, rules.version) == (code, 0)


def test_the_magic_works_in_a_shell() -> None:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    try:
        shell.user_ns["rules"] = rules = RuleBook()
        load_ipython_extension(shell)

        shell.run_cell_magic("rule", "rules", "def no(call):\n    return deny('No.')\n")

        assert rules["no"].predicate is not None
        assert rules["no"].predicate(None).guidance == "No."
    finally:
        shell.history_manager.end_session() if shell.history_manager else None
        InteractiveShell.clear_instance()
