"""A rule edited on the page decides differently in the kernel; an invalid rule changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.browser.appearance import assert_contained, assert_readable, at_width
from tests.browser.lab import wait_for
from tests.matrix import matrix, several

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


def test_a_rule_edited_in_the_page_decides_in_the_kernel(notebook: Open, looks: Open) -> None:
    opened = notebook(RULES, "RuleEditor(rules)")
    opened.run_all()
    editor = opened.page.locator(".nn-editor").first
    text = editor.locator("textarea")
    wait_for(lambda: "only_orders_of_a" in text.input_value(), "the text of the first rule")
    opened.kernel.says("ask('B2')", "'deny'")

    text.fill(text.input_value().replace('startswith("A")', 'startswith(("A", "B"))'))
    editor.get_by_role("button", name="Apply", exact=True).click()

    expect(editor.locator(".nn-notice")).to_contain_text("Applied as version 3")
    opened.kernel.says("(ask('B2'), ask('C3'))", "(None, 'deny')")

    text.fill("def only_orders_of_a(call):\n    return deny('unfinished'")
    editor.get_by_role("button", name="Apply", exact=True).click()
    expect(editor.locator(".nn-notice")).to_contain_text("2 |     return deny('unfinished'")
    expect(editor.locator(".nn-gutter [data-bad]")).to_have_text("2")
    expect(editor.locator(".nn-paper mark")).to_have_text("(")
    opened.kernel.says("(ask('B2'), ask('C3'))", "(None, 'deny')")

    looks(opened, editor, "editor")

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


def test_a_rule_of_each_form_is_edited_tried_applied_and_obeyed(notebook: Open, shot: Open, looks: Open) -> None:
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

    # Before any edit: the effect of the rules in force.
    expect(diff).to_contain_text("The rules in force on")
    expect(diff).to_contain_text("1 denied")
    expect(editor.get_by_role("button", name="Undo last change")).to_be_enabled()
    shot(editor, "editor-in-force-1400")

    # Python: the effect of the edit is shown before it is applied, and nothing has changed until then.
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
    expect(editor.locator(".nn-gutter [data-bad]")).to_have_text("2")
    text.fill("tool.args.amount > 20")
    expect(diff).to_contain_text("newly denied")
    editor.get_by_label("Action").select_option("guide")
    expect(diff).to_contain_text("newly guided")
    editor.get_by_role("button", name="Apply", exact=True).click()
    expect(notice).to_contain_text("Applied as version 5")
    assert "50 is too much." in kernel.value("nn.run_sync(paid(50))")

    # Judge: not called while typing, as the diff says.
    editor.get_by_role("button", name="fair").click()
    wait_for(lambda: text.input_value() == "Is it fair?", "the prompt")
    text.fill("Is it generous?")
    expect(diff).to_contain_text("Judges were not asked: fair")
    editor.get_by_role("button", name="Apply", exact=True).click()
    expect(notice).to_contain_text("Applied as version 6")
    assert "not fair" in kernel.value("nn.run_sync(paid(5))")

    looks(opened, editor, "editor-whole")


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
    page.keyboard.press("Enter")  # keeps and increases the indentation
    page.keyboard.type("return deny('Keys.')")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert text.input_value() == "def only_orders_of_a(call):\n    return deny('Keys.')\n        "
    page.keyboard.press("Control+Enter")
    expect(editor.locator(".nn-notice")).to_contain_text("Applied as version 3")
    opened.kernel.says("ask('A1')", "'deny'")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")

    assert not text.evaluate("node => node === document.activeElement")
    expect(editor.locator(".nn-gutter div")).to_have_count(3)


SET_COMMS = """async mode => {
    const plugins = window.jupyterapp._pluginRegistry ?? window.jupyterapp.pluginRegistry;
    const token = [...plugins._services.keys()].find(key => key.name === "@jupyterlab/coreutils:ISettingRegistry");
    const settings = await window.jupyterapp.resolveRequiredService(token);
    await settings.set("@jupyterlab/apputils-extension:kernels-settings", "commsOverSubshells", mode);
    return window.jupyterapp.serviceManager.kernels ? true : false;
}"""

# The change arrives while the cell runs, also from a page that names no subshell. The cell's messages from the editor come
# from the main shell, like those of a running agent's views.
BUSY = """
import time
from pathlib import Path
other = rules["<img src=x onerror=alert(1)>"]
(rules.disable if other.enabled else rules.enable)(other.id)
version, until = rules.version, time.monotonic() + 60
Path(f"COMMS {version} begun").touch()
while time.monotonic() < until and rules.version == version:
    time.sleep(0.001)
meanwhile = rules.version > version
"""


@matrix("comms", ["perComm", "perCommTarget", "disabled"], keep=1)
def test_what_stood_in_the_field_when_apply_was_pressed_is_applied_by_a_busy_kernel(notebook: Open, comms: str) -> None:
    opened = notebook(RULES, "RuleEditor(rules)", BUSY.replace("COMMS", comms), is_alone=True)
    opened.page.evaluate(SET_COMMS, "disabled")
    for cell in (0, 1):
        opened.page.locator(".jp-CodeCell").nth(cell).locator(".cm-content").click()
        opened.page.keyboard.press("Control+Enter")
    editor = opened.page.locator(".nn-editor").first
    text = editor.locator("textarea")
    wait_for(lambda: "only_orders_of_a" in text.input_value(), "the text of the first rule")
    editor.get_by_role("button", name="Apply", exact=True).click()
    expect(editor.locator(".nn-notice")).to_contain_text("Applied as version 3")
    opened.page.evaluate(SET_COMMS, comms)
    if comms != "disabled":
        opened.knows_subshells()

    for number in range(several(1, 3)):
        version = int(opened.kernel.value("rules.version")) + 1  # the cell's own
        opened.page.locator(".jp-CodeCell").nth(2).locator(".cm-content").click()
        opened.page.keyboard.press("Control+Enter")
        wait_for((opened.path.parent / f"{comms} {version} begun").exists, "the cell waits")
        text.fill("def only_orders_of_a(call):\n    return deny('too early')")
        text.fill(f"def only_orders_of_a(call):\n    return deny('pressed {number}')")
        editor.get_by_role("button", name="Apply", exact=True).click()
        text.press("End")
        text.press_sequentially("  # typed on")
        later = text.input_value()
        assert "typed on" in later

        expect(editor.locator(".nn-notice")).to_contain_text(f"Applied as version {version + 1}", timeout=20_000)
        source = opened.kernel.value("rules['only_orders_of_a'].source")
        assert f"pressed {number}" in source
        assert "typed on" not in source
        opened.kernel.says("meanwhile", "True")
        assert text.input_value() == later
        # The additional text is a draft like any other.
        editor.get_by_role("button", name="Apply", exact=True).click()
        expect(editor.locator(".nn-notice")).to_contain_text(f"Applied as version {version + 2}")
        assert "typed on" in opened.kernel.value("rules['only_orders_of_a'].source")


STUDY = """
import noetic_nb as nn
from noetic_nb.lab import datasets
from noetic_nb.widgets import RuleEditor, Selection
runs = datasets.agentdojo("banking")
rules = nn.RuleBook()
rules.only_from_user("send_money", "recipient", id="recipient")
rules.at_most(4, "send_money", id="few")
rules.disable("few")
selection = Selection()
"""


def test_a_trial_beside_the_fields_is_split_by_outcome(notebook: Open, shot: Open, looks: Open, tmp_path: Any) -> None:
    opened = notebook(STUDY, "RuleEditor(rules, runs=runs, selection=selection)")
    opened.run_all()
    page, kernel = opened.page, opened.kernel
    editor = page.locator(".nn-editor").first
    trial = editor.locator(".nn-trial")
    expect(editor.locator(".nn-sentence")).to_contain_text("may be called only if")

    # A sentence is edited in its gaps, and tried while typing.
    editor.get_by_label("Arguments").fill("recipient, amount")
    expect(trial).to_contain_text("recorded calls of 507 runs", timeout=30_000)
    expect(trial).to_contain_text("Successful attacks caught")
    expect(trial.locator(".nn-outcome").first).to_contain_text("/151")
    looks(opened, editor, "editor-trial")
    at_width(editor, 1400)

    # A decision that differs is selected in the other views, also by keys.
    trial.locator(".nn-change").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    wait_for(lambda: kernel.value("selection.turn") == "1", "the selection")
    assert kernel.value("selection.thread_id == runs[0].events[0].where.thread_id") in ("True", "False")
    kernel.says("selection.call is not None", "True")

    # Keys of the table: arrows move, Enter chooses, Space switches.
    editor.locator(".nn-pick").first.focus()
    page.keyboard.press("ArrowDown")
    expect(editor.locator(".nn-readout").first).to_contain_text("few: no hits")
    page.keyboard.press("Enter")
    expect(editor.locator(".nn-sentence")).to_contain_text("may be called at most")
    editor.get_by_label("few is evaluated").press("Space")
    wait_for(lambda: kernel.value("rules['few'].enabled") == "True", "the switch")
    editor.get_by_label("How often").fill("0")
    editor.get_by_label("How often").press("Enter")
    expect(editor.locator(".nn-notice")).to_contain_text("Applied as version 5")
    kernel.says("rules['few'].sequence.count", "0")

    # Versions: their differences, and restoring one.
    editor.locator(".nn-versions summary").click()
    editor.locator(".nn-versions li").last.get_by_role("button", name="Compare").click()
    expect(editor.locator(".nn-diff-text [data-kind='+']")).to_contain_text('"at_most": 0')
    shot(editor, "editor-versions-1400")
    editor.locator(".nn-versions li").last.get_by_role("button", name="Restore").click()
    wait_for(lambda: kernel.value("rules['few'].sequence.count") == "4", "the old version")

    # Save and copy.
    editor.locator(".nn-keeping summary").click()
    path = tmp_path / "rules.json"
    path.write_text("mine")
    editor.get_by_label("File to save to").fill(str(path))
    editor.get_by_role("button", name="Save to file").click()
    expect(editor.locator(".nn-notice")).to_contain_text("Not written.")
    assert path.read_text() == "mine"
    editor.get_by_role("button", name="Replace the file").click()
    expect(editor.locator(".nn-notice")).to_contain_text("Wrote 2 rules")
    assert '"at_most": 4' in path.read_text()
    editor.get_by_role("button", name="Copy book as code").click()
    wait_for(lambda: "rules.at_most(4" in editor.get_by_label("Code", exact=True).input_value(), "the code")
    for width in (1400, 420):
        at_width(editor, width)
        shot(editor, f"editor-kept-{width}")
        assert_readable(editor)
        assert_contained(editor)

    # A rule removed by mistake.
    editor.get_by_role("button", name="Remove").click()
    expect(editor.locator(".nn-notice")).to_contain_text("Removed")
    editor.locator(".nn-notice").get_by_role("button", name="Undo").click()
    wait_for(lambda: kernel.value("len(rules)") == "2", "the rule is back")

    # A new rule from the list of forms.
    editor.get_by_label("Name of the new rule").fill("after")
    editor.get_by_label("Form of the new rule").select_option("never_after")
    editor.get_by_role("button", name="Add rule").click()
    expect(editor.locator(".nn-sentence")).to_contain_text("must not be called after")
    kernel.says("(rules['after'].enabled, rules['after'].sequence.kind)", "(False, 'never_after')")
