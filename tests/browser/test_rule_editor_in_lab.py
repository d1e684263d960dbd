"""A rule is edited in the page and decides differently in the kernel; a rule that does not hold up changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.browser.lab import wait_for
from tests.browser.looks import assert_contained, assert_readable, at_width

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
    editor.get_by_role("button", name="Apply").click()

    expect(editor.locator(".nn-notice")).to_contain_text("Applied as version 3")
    assert opened.kernel.value("(ask('B2'), ask('C3'))") == "(None, 'deny')"

    text.fill("def only_orders_of_a(call):\n    return deny('unfinished'")
    editor.get_by_role("button", name="Apply").click()
    expect(editor.locator(".nn-notice")).to_contain_text("2 |     return deny('unfinished'")
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

    editor.locator("select").select_option(index=1)

    wait_for(lambda: "<script>" in editor.locator("textarea").input_value(), "the text of the second rule")
    assert editor.locator("script, img, [onerror]").count() == 0
