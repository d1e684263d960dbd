"""A rule asks the user of the notebook while the cell that runs the agent is still running."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.browser.appearance import assert_contained, assert_readable
from tests.browser.lab import wait_for

Open = Callable[..., Any]

AGENT = """
import asyncio
import noetic_nb as nn
from noetic_nb.widgets import Approval

@nn.tool
async def pay(amount: int) -> str:
    "Pay someone."
    return f"paid {amount}"

rules = nn.RuleBook()
rules.when("tool.args.amount > 100", id="large", action="ask", guidance="Pay <b>{tool.args.amount}</b>?")
model = nn.ScriptedModel([nn.CallTool("pay", amount=500), "Paid.", nn.CallTool("pay", amount=900), "Not paid."])
config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[pay]), memory=[nn.steering(rules)])
harness = nn.AgentHarness(config, model=model, approve=Approval())
run = nn.record(harness)
"""


def test_a_person_answers_in_the_page(notebook: Open, shot: Open) -> None:
    opened = notebook(AGENT, "first = asyncio.create_task(harness.execute('Pay'))", "1 + 1")
    opened.run_all()
    question = opened.page.locator(".nn-question").first
    expect(question).to_contain_text("Pay <b>500</b>?")
    assert question.locator("b").count() == 0
    assert_readable(question)
    assert_contained(question)
    shot(question, "approval")

    question.get_by_role("button", name="Allow once").click()

    answer = opened.page.locator(".noetic-nb-static").first
    expect(answer).to_be_visible()
    expect(answer).to_contain_text("Allowed once.")
    expect(opened.page.locator(".nn-question")).to_have_count(0)
    assert_readable(answer)
    assert_contained(answer)
    shot(answer, "approval-answered")
    wait_for(lambda: opened.kernel.value("first.done() and first.result().text") == "'Paid.'", "the turn ends")
    assert "paid 500" in opened.kernel.value("run.to_frame('tools').output.tolist()")


def test_a_person_answers_while_the_cell_waits(notebook: Open) -> None:
    opened = notebook(
        AGENT,
        "reply = await harness.execute('Pay')\nprint(reply.text)",
        "reply = nn.run_sync(harness.execute('Pay more'))\nprint(reply.text)",  # a cell that holds the main shell
    )
    opened.command("notebook:run-all-cells")
    question = opened.page.locator(".nn-question").first
    expect(question).to_contain_text("Pay <b>500</b>?", timeout=60_000)

    question.get_by_placeholder("Why not?").fill("Too much.")
    question.get_by_role("button", name="Deny").click()
    expect(question).to_contain_text("Pay <b>900</b>?")
    question.get_by_placeholder("Why not?").fill("Far too much.")
    question.get_by_role("button", name="Deny").click()

    answer = opened.page.locator(".noetic-nb-static").first
    expect(answer).to_contain_text("Denied: Too much.", timeout=20_000)
    printed = opened.page.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stdout']")
    expect(printed).to_have_text(["Paid.", "Not paid."])
    outputs = opened.kernel.value("run.to_frame('tools').output.tolist()")
    assert "Too much." in outputs
    assert "Far too much." in outputs
