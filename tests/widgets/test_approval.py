"""The approval form: whether answered, cancelled, withdrawn or refused, it leaves only its answer on the page."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from types import SimpleNamespace
from typing import Any

import ipywidgets
import pytest

import noetic_nb as nn
from noetic_nb.steering import RuleBook
from noetic_nb.widgets import Approval
from noetic_nb.widgets._approval import REFUSED, REPLACED, WITHDRAWN
from noetic_nb.widgets.base import _display as cells
from noetic_nb.widgets.base._page_thread import PAGES
from tests.widgets.test_outputs import WIDGET, Output, Page


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    made = Page()

    def show(thing: Any, **options: Any) -> Output | None:
        if hasattr(thing, "_ipython_display_"):
            thing._ipython_display_()
            return None
        return made.show(thing, **options)

    module = SimpleNamespace(get_ipython=lambda: made.shell, display=SimpleNamespace(display=show))
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", module.display)
    monkeypatch.setattr(cells, "_open", {})
    made.run_cell("cell-1", "request-1")
    return made


async def asked(approval: Approval, count: int = 1, **args: Any) -> list[asyncio.Task[Any]]:
    tasks = [asyncio.ensure_future(approval(f"pay_{n}", {"n": n, **args}, question=f"Pay {n}?")) for n in range(count)]
    await asyncio.sleep(0)
    assert len(approval.questions) == count
    return tasks


async def test_an_answered_question_leaves_what_was_asked_and_answered_in_an_output_of_its_own(page: Page) -> None:
    approval = Approval()
    (task,) = await asked(approval, api_key="sk-abcdefghijklmnopqrstuvwx")
    live, static = page.outputs
    assert list(live.bundles[0]) == [WIDGET]
    assert "Not answered yet." in static.bundles[-1]["text/html"]

    approval.questions[0].take("once")

    assert await task is True
    assert live.bundles[-1] == {}
    html, text = static.bundles[-1]["text/html"], static.bundles[-1]["text/plain"]
    for shown in (html, text):
        assert "Pay 0?" in shown
        assert "Allowed once." in shown
        assert "sk-abcdef" not in shown
        assert "[redacted]" in shown
    assert "Answered" in html


@pytest.mark.parametrize("way", ["cancelled", "denied", "rerun", "failed"])
async def test_however_a_question_ends_its_comms_are_returned(
    page: Page, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    before = len(ipywidgets.widgets.widget._instances)
    approval = Approval()
    if way == "failed":

        def fail(*shown: Any, **options: Any) -> None:
            raise OSError("no page")

        monkeypatch.setattr(sys.modules["IPython.display"], "display", fail)
        with pytest.raises(OSError, match="no page"):
            await approval("pay", {})
    else:
        (task,) = await asked(approval)
        (question,) = approval.questions
        if way == "cancelled":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert WITHDRAWN in question.to_text()
        elif way == "denied":
            question.take("deny", "Too much.")
            assert await task == "Too much."
        else:
            page.run_cell("cell-1", "request-2")
            cells.enter_cell(question)
            assert await task == REPLACED

    assert approval.questions == ()
    assert len(ipywidgets.widgets.widget._instances) == before


@pytest.mark.usefixtures("little_to_collect")
async def test_two_hundred_questions_at_once_leave_nothing_behind(page: Page) -> None:
    approval = Approval()
    tasks = await asked(approval)
    approval.questions[0].take("deny")
    assert await tasks[0] == REFUSED
    assert PAGES.wait()  # starts the page thread
    comms, threads, pending = (
        len(ipywidgets.widgets.widget._instances),
        threading.active_count(),
        len(asyncio.all_tasks()),
    )
    tasks = await asked(approval, 200)
    questions = approval.questions

    for number, question in enumerate(questions[::-1]):
        if number % 4 == 0:
            tasks[199 - number].cancel()
        else:
            answer = ("once", "always", "deny")[number % 4 - 1]
            threading.Thread(target=question.take, args=(answer,)).start()
    answers = (await asyncio.gather(*tasks, return_exceptions=True))[::-1]

    kinds = [asyncio.CancelledError, True, True, REFUSED]
    assert all(
        isinstance(answer, asyncio.CancelledError) if number % 4 == 0 else answer == kinds[number % 4]
        for number, answer in enumerate(answers)
    )
    assert len(approval.always) == 50
    assert approval.questions == ()
    assert len(ipywidgets.widgets.widget._instances) == comms
    assert len(asyncio.all_tasks()) == pending
    assert threading.active_count() <= threads
    assert all(not cell.shown for cell in cells._open.values())
    del questions, question, tasks
    gc.collect()
    assert not [cell for cell in cells._open.values() if len(cell.opened)]


@pytest.mark.parametrize("word", ["once", "always"])
async def test_a_reason_is_never_read_as_a_yes(page: Page, word: str) -> None:
    approval = Approval()
    (task,) = await asked(approval)

    approval.questions[0].take("deny", word)

    assert await task == REFUSED
    assert approval.always == frozenset()


async def test_a_reason_comes_with_the_answer_of_a_page(page: Page) -> None:
    approval = Approval()
    (task,) = await asked(approval)
    (question,) = approval.questions

    def message(widget: Any, data: dict[str, Any]) -> None:
        widget._handle_msg({"content": {"data": data}, "buffers": []})

    for content in (
        "deny",
        {"answer": "once"},
        {"answer": "deny", "reason": "Too much."},
    ):  # what says nothing is no answer
        message(question, {"method": "custom", "content": content})

    assert await task == "Too much."


async def test_hostile_text_is_text_in_the_form_that_stays(page: Page) -> None:
    approval = Approval()
    task = asyncio.ensure_future(
        approval("<img src=x onerror=alert(1)>", {"</style>": "<b>"}, question="<script>x</script>")
    )
    await asyncio.sleep(0)
    approval.questions[0].take("deny", "<iframe>")
    await task

    html = page.outputs[1].bundles[-1]["text/html"]
    for piece in ("<img", "<b>", "<script", "<iframe"):
        assert piece not in html


async def test_a_turn_with_many_questions_runs_on_when_they_are_answered(page: Page) -> None:
    rules = RuleBook()
    rules.when("true", id="ask", on="before_tool_call", action="ask", guidance="Pay {tool.args.amount}?")

    @nn.tool
    async def pay(amount: int) -> str:
        """Pay someone."""
        return f"paid {amount}"

    approval = Approval()
    config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[pay]), memory=[nn.steering(rules)])
    replies = [nn.CallTool("pay", amount=1), nn.CallTool("pay", amount=2), "Done."]
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(replies), approve=approval)
    turn = asyncio.ensure_future(harness.execute("Pay"))
    answered: Any = None
    for answer in ("once", "deny"):
        while not approval.questions or approval.questions[0] is answered:
            await asyncio.sleep(0)
        answered = approval.questions[0]
        answered.take(answer)

    assert (await turn).text == "Done."
    answers = [output.bundles[-1]["text/plain"].splitlines()[-1] for output in page.outputs[1::2]]
    assert [answer.split(" (")[0] for answer in answers] == ["Allowed once.", f"Denied: {REFUSED}"]


async def test_the_form_shows_the_rule_its_reason_and_who_wrote_each_argument(page: Page) -> None:
    rules = RuleBook()
    rules.when('tool.name == "pay"', id="large", action="ask", guidance="Pay {tool.args.amount}?")

    @nn.tool
    def pay(amount: int, to: str, note: str) -> str:
        """Pay someone."""
        return "paid"

    @nn.tool
    def contact(name: str) -> dict[str, str]:
        """Find someone."""
        return {"iban": "DE111"}

    approval = Approval()
    config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[pay, contact]), memory=[nn.steering(rules)])
    calls = [
        nn.CallTool("contact", name="Ann"),
        nn.CallTool("pay", amount=50, to="DE111", note="thanks a lot"),
        "Done.",
    ]
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(calls), approve=approval)
    why = [
        "Asked by the rule large.",
        "amount: written by the user.",
        "to: written by the tool contact, its iban.",
        "note: written by the model itself: nobody wrote it before.",
    ]
    turn = asyncio.ensure_future(harness.execute("Pay 50 to Ann"))
    async with asyncio.timeout(30):
        while not approval.questions:
            await asyncio.sleep(0)
        question = approval.questions[0]
        assert question.words == {"asked": "Pay 50?", "call": question.call, "why": tuple(why)}
        question.take("once")
        await turn
    form = page.outputs[1].bundles[-1]
    assert all(line in form["text/plain"] and line in form["text/html"] for line in why)


async def test_an_approver_gets_what_it_takes_by_name() -> None:
    got: list[Any] = []

    def named(name: str, args: Any, rules: Any, origins: Any) -> bool:
        got.append((rules, {key: str(origin) for key, origin in origins.items()}))
        return True

    def any_name(name: str, args: Any, **beside: Any) -> bool:
        got.append(beside)
        return True

    def plain(name: str, args: Any) -> bool:
        return True

    rules = RuleBook()
    rules.when('tool.name == "pay"', id="large", action="ask", guidance="Pay?")
    for approve in (named, any_name, plain):
        config = nn.AgentConfig(
            name="desk", step=nn.react(model="m", tools=[nn.tool(lambda to: "paid", name="pay", description="Pay.")]),
            memory=[nn.steering(rules)],
        )  # fmt: skip
        model = nn.ScriptedModel([nn.CallTool("pay", to="Ann"), "Done."])
        reply = await nn.AgentHarness(config, model=model, approve=approve).execute("Pay Ann")
        assert [item.output for item in reply.items if item["type"] == "function_call_output"] == ["paid"]

    assert got == [(("large",), {"to": "user"}), {"question": "Pay?"}]
