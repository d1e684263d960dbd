"""A rule is edited in the page and decides differently in the kernel; a rule that does not hold up changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.browser.appearance import assert_contained, assert_readable, at_width
from tests.browser.lab import wait_for

Open = Callable[..., Any]

RULES = """
from types import SimpleNamespace
from noetic_nb.steering import RuleBook, allow, deny, guide
from noetic_nb.widgets import RuleEditor
rules = RuleBook()

@rules.rule(on="before_tool_call", tools=["lookup"])
def only_orders_of_a(call):
    if not call.tool_args["order_id"].startswith("A"):
        return deny("Only orders starting with A may be read.")

@rules.rule("<img src=x onerror=alert(1)>", on="after_model_call")
def polite(response):
    return guide("</textarea><script>alert(2)</script>")

def ask(order_id):
    answer = rules["only_orders_of_a"].predicate(SimpleNamespace(tool_args={"order_id": order_id}))
    return None if answer is None else answer.action.value
"""


def test_a_rule_edited_in_the_page_decides_in_the_kernel(notebook: Open, shot: Open) -> None:
    opened = notebook(RULES, "RuleEditor(rules)")
    opened.run_all()
    editor = opened.page.locator(".nn-editor").first
    text = editor.locator("textarea")
    wait_for(lambda: "only_orders_of_a" in text.input_value(), "the text of the first rule")
    assert opened.kernel.value("ask('B2')") == "'deny'"

    text.fill(text.input_value().replace('startswith("A")', 'startswith(("A", "B"))'))
    editor.get_by_role("button", name="Apply", exact=True).click()

    expect(editor.locator(".nn-notice")).to_contain_text("Applied as version 3")
    assert opened.kernel.value("(ask('B2'), ask('C3'))") == "(None, 'deny')"

    text.fill("def only_orders_of_a(call):\n    return deny('unfinished'")
    editor.get_by_role("button", name="Apply", exact=True).click()
    expect(editor.locator(".nn-notice")).to_contain_text("2 |     return deny('unfinished'")
    expect(editor.locator(".nn-gutter [data-bad]")).to_have_text("2")
    expect(editor.locator(".nn-paper mark")).to_have_text("(")
    assert opened.kernel.value("(ask('B2'), ask('C3'))") == "(None, 'deny')"

    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        opened.theme(theme)
        for width in (1400, 420):
            at_width(editor, width)
            shot(editor, f"editor-{theme.split()[-1].lower()}-{width}")
            assert_readable(editor)
            assert_contained(editor)

    editor.get_by_role("button", name="Undo last change").click()
    wait_for(lambda: opened.kernel.value("ask('B2')") == "'deny'", "the change is taken back")


def test_hostile_rules_stay_text(notebook: Open) -> None:
    opened = notebook(RULES, "RuleEditor(rules)")
    opened.run_all()
    editor = opened.page.locator(".nn-editor").first

    editor.locator(".nn-pick").nth(1).click()

    wait_for(lambda: "<script>" in editor.locator("textarea").first.input_value(), "the text of the second rule")
    assert editor.locator("script, img, [onerror]").count() == 0


AGENT = """
import noetic_nb as nn
from noetic_nb.widgets import RuleEditor

@nn.tool
async def pay(amount: int) -> str:
    "Pay someone."
    return f"paid {amount}"

rules = nn.RuleBook()

@rules.rule(on="before_tool_call", tools=["pay"])
def not_negative(call):
    if call.tool_args["amount"] < 0:
        return nn.deny("No negative amounts.")

rules.when("tool.args.amount > 1000", id="large", tools="pay", guidance="{tool.args.amount} is too much.")
rules.judge("Is it fair?", id="fair", tools="pay", model="judge")

def answer(request):
    last = request.items[-1]
    return "Done." if last["type"] == "function_call_output" else nn.CallTool("pay", amount=int(last.content[0].text))

def verdict(request):
    return "DENY: not fair" if "generous" in request.items[0].content[0].text else "ALLOW"

config = nn.AgentConfig(name="desk", step=nn.react(model="agent", tools=[pay]), memory=[nn.steering(rules)])
model = nn.ScriptedModel({"agent": answer, "judge": verdict})
harness = nn.AgentHarness(config, model=model)
run = nn.record(harness)

async def paid(amount):
    reply = await harness.execute(str(amount))
    outputs = [item.output for item in reply.items if item["type"] == "function_call_output"]
    return outputs[-1]

for amount in (5, 50, 500, 5000):
    await paid(amount)
"""


def test_a_rule_of_each_form_is_edited_tried_applied_and_obeyed(notebook: Open, shot: Open) -> None:
    opened = notebook(AGENT, "RuleEditor(rules, run=run)")
    opened.run_all()
    page, kernel = opened.page, opened.kernel
    editor = page.locator(".nn-editor").first
    text = editor.locator("textarea").first
    diff = editor.locator(".nn-trial")
    notice = editor.locator(".nn-notice")
    wait_for(lambda: "not_negative" in text.input_value(), "the text of the first rule")
    expect(editor.locator(".nn-rules tbody tr").nth(1)).to_contain_text("large")
    expect(editor.locator(".nn-rules tbody tr").nth(1)).to_contain_text("1 denied")

    # Python: what the edit would change is shown before it is applied, and nothing has changed until then.
    text.fill(text.input_value().replace("< 0", "> 100"))
    expect(diff).to_contain_text("1 newly denied")
    expect(diff).to_contain_text('"amount": 500')
    assert "paid 500" in kernel.value("nn.run_sync(paid(500))")
    shot(editor, "editor-live-diff-1400")
    text.press("Control+Enter")
    expect(notice).to_contain_text("Applied as version 4")
    assert "No negative amounts." in kernel.value("nn.run_sync(paid(500))")

    # CEL: a misspelt name is marked with its line; then a condition with another action.
    editor.get_by_role("button", name="large").click()
    wait_for(lambda: "1000" in text.input_value(), "the condition")
    text.fill("true &&\ntool.args.amont > 20 && tool.nme == 'pay'")
    editor.get_by_role("button", name="Apply", exact=True).click()
    expect(notice).to_contain_text("Did you mean 'name'")
    assert editor.locator(".nn-gutter [data-bad]").inner_text() == "2"
    text.fill("tool.args.amount > 20")
    expect(diff).to_contain_text("newly denied")
    editor.get_by_label("Action").select_option("guide")
    expect(diff).to_contain_text("newly guided")
    editor.get_by_role("button", name="Apply", exact=True).click()
    expect(notice).to_contain_text("Applied as version 5")
    assert "50 is too much." in kernel.value("nn.run_sync(paid(50))")

    # A judge: not asked while one types, which the diff says.
    editor.get_by_role("button", name="fair").click()
    wait_for(lambda: text.input_value() == "Is it fair?", "the prompt")
    text.fill("Is it generous?")
    expect(diff).to_contain_text("Judges were not asked: fair")
    editor.get_by_role("button", name="Apply", exact=True).click()
    expect(notice).to_contain_text("Applied as version 6")
    assert "not fair" in kernel.value("nn.run_sync(paid(5))")

    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        opened.theme(theme)
        for width in (1400, 420):
            at_width(editor, width)
            shot(editor, f"editor-whole-{theme.split()[-1].lower()}-{width}")
            assert_readable(editor)
            assert_contained(editor)


def test_the_editor_is_worked_with_the_keyboard(notebook: Open) -> None:
    opened = notebook(RULES, "RuleEditor(rules)")
    opened.run_all()
    page = opened.page
    editor = page.locator(".nn-editor").first
    text = editor.locator("textarea").first
    wait_for(lambda: "only_orders_of_a" in text.input_value(), "the text of the first rule")

    text.fill("def only_orders_of_a(call):")
    text.focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")  # keeps and deepens the indentation
    page.keyboard.type("return deny('Keys.')")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert text.input_value() == "def only_orders_of_a(call):\n    return deny('Keys.')\n        "
    page.keyboard.press("Control+Enter")
    expect(editor.locator(".nn-notice")).to_contain_text("Applied as version 3")
    assert opened.kernel.value("ask('A1')") == "'deny'"
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")

    assert not text.evaluate("node => node === document.activeElement")
    assert editor.locator(".nn-gutter div").count() == 3
