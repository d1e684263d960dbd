"""The workbench in JupyterLab: a selection in one panel appears in all, threads can be chosen, a narrow page has one column."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from playwright.sync_api import expect

from tests.browser.appearance import at_width
from tests.browser.test_workbench_in_lab import AGENT, AIRLINE, bench_of, panel, says

Open = Callable[..., Any]

THREADS = """
from noetic_nb.runs import Run
from noetic_nb.widgets import *
from tests.widgets.scenes import turn
run = Run(events=[*turn(1, thread="ann"), *turn(1, thread="bob"), *turn(2, thread="bob")])
"""


def test_a_thread_is_chosen_on_the_page_and_all_panels_follow(notebook: Open, shot: Open) -> None:
    opened = notebook(THREADS, "bench = Workbench(run, panels=['transcript', 'allocation', 'trends'])\nbench")
    root = bench_of(opened)
    thread = root.locator(".nn-threads select")
    turns = root.locator(".nn-turns > li")
    expect(thread.locator("option")).to_have_text(["all 2", "ann", "bob"])
    expect(turns).to_have_count(3)
    expect(panel(root, "allocation").locator(".nn-sub")).to_contain_text("thread bob")

    thread.select_option(label="ann")

    expect(turns).to_have_count(1)
    expect(panel(root, "allocation").locator(".nn-sub")).to_contain_text("Turn 1, call 1 · thread ann")
    expect(panel(root, "transcript").locator(".nn-sub").first).to_contain_text("thread ann")
    says(opened, "bench.thread_id, sorted(bench._fetched)", "('ann', ['allocation', 'transcript', 'trends'])")
    shot(root, "workbench-thread")

    # A turn of another thread is not shown; a new thread is offered, and the choice stays.
    opened.kernel.run("for e in [*turn(2, thread='ann'), *turn(1, thread='eve')]: run.append(e)")
    expect(thread.locator("option")).to_have_text(["all 3", "ann", "bob", "eve"])
    expect(turns).to_have_count(2)
    expect(thread).to_have_value("0")

    opened.kernel.run("bench.thread_id = None")
    expect(turns).to_have_count(5)
    expect(thread).to_have_value("-1")


def test_a_choice_in_one_panel_is_shown_in_the_others_and_in_the_conversation(notebook: Open, cells_of: Open) -> None:
    opened = notebook(
        *cells_of("demo_run", ["bench = Workbench(run, panels=['transcript', 'allocation', 'timeline'])\nbench"])
    )
    root = bench_of(opened)
    turns = root.locator(".nn-turns button.nn-turn")
    slider = panel(root, "allocation").get_by_role("slider", name="Model call")
    expect(slider).to_have_attribute("aria-valuenow", "9")

    slider.focus()
    opened.page.keyboard.press("Home")

    expect(panel(root, "transcript").locator(".nn-sub").first).to_contain_text("Turn 1, call 1")
    expect(turns.nth(0)).to_have_attribute("aria-pressed", "true")

    turns.nth(3).click()

    expect(turns.nth(3)).to_have_attribute("aria-pressed", "true")
    expect(turns.nth(0)).to_have_attribute("aria-pressed", "false")
    expect(panel(root, "transcript").locator(".nn-sub").first).to_contain_text("Turn 4")
    expect(panel(root, "allocation").locator(".nn-sub").first).to_contain_text("Turn 4")
    says(opened, "bench.selection.turn", "4")


def test_why_is_closed_and_a_size_is_reset(notebook: Open) -> None:
    opened = notebook(AIRLINE, "bench = Workbench(run, rules=rules, panels=['ledger'])\nbench")
    root = bench_of(opened)
    why = root.get_by_role("region", name="Why", exact=True)
    panel(root, "ledger").locator(".nn-ledger > tbody > tr", has_text="deny").first.click()
    expect(why).to_contain_text("Why deny")

    why.get_by_role("button", name="Close why").click()

    expect(why).to_be_hidden()
    says(opened, "bench.selection.decision", "None")

    grip = panel(root, "ledger").get_by_role("button", name="Resize Ledger")
    grip.focus()
    opened.page.keyboard.press("ArrowDown")
    says(opened, "bench.sizes", "{'ledger': [12, 360]}")
    grip.dblclick()
    says(opened, "bench.sizes", "{'ledger': [12, 320]}")


def test_a_narrow_page_is_one_column_with_the_conversation_on_top(notebook: Open, cells_of: Open) -> None:
    names = ("ledger", "transcript", "allocation", "trends")
    opened = notebook(*cells_of("demo_run", [f"bench = Workbench(run, panels={names})\nbench"]))
    root = bench_of(opened)
    for name in names:
        expect(panel(root, name).locator(".nn-panel-view > .noetic-nb")).to_be_visible()

    at_width(root, 420)

    boxes = [
        root.locator(".nn-talk").bounding_box(),
        *[each.bounding_box() for each in root.locator(".nn-panel").all()],
    ]
    assert len(boxes) == 5
    assert len({(round(box["x"]), round(box["width"])) for box in boxes}) == 1
    assert all(above["y"] + above["height"] <= below["y"] for above, below in pairwise(boxes))


def test_a_question_is_answered_with_no_and_a_reason_and_a_reply_is_graded_down(notebook: Open) -> None:
    memory = "[nn.steering(rules), nn.regulation(nn.Regulator.for_user('ann'))]"
    opened = notebook(AGENT.replace("MEMORY", memory), "bench = Workbench(harness, panels=['ledger'])\nbench")
    root = bench_of(opened)
    box = root.get_by_role("textbox", name="Message")
    box.fill("Pay 7.")
    box.press("Enter")
    question = root.locator(".nn-question")
    expect(question).to_be_visible()

    reason = question.get_by_role("textbox", name="Why not?")
    reason.fill("Not before Friday.")
    reason.press("Enter")

    expect(question).to_have_count(0)
    expect(root.locator(".nn-turns > li").first).to_contain_text("Paid 7.")
    called = (
        "[(e.status, 'Not before Friday.' in e.output) for e in bench.run.events if type(e).__name__ == 'ToolCalled']"
    )
    says(opened, called, "[('denied', True)]")

    root.get_by_role("button", name="Poor reply").click()
    expect(root.locator(".nn-bench-notice")).to_have_text("Grade 0 given to the regulator.")
    expect(root.locator(".nn-turns > li").first).to_contain_text("grade 0.00")

    fix, words = root.get_by_role("button", name="Correct …"), root.get_by_role("textbox", name="What was wrong")
    fix.click()
    expect(words).to_be_focused()
    words.press("Escape")
    expect(words).to_be_hidden()
    expect(fix).to_have_attribute("aria-expanded", "false")


DRAFTED = """
import noetic_nb as nn
from noetic_nb.lab import datasets
from noetic_nb.widgets import *
run, bank = datasets.airline_run(26), datasets.airline()[:6]
"""


def test_a_rule_is_drafted_by_keys_against_a_call_that_no_rule_denied(notebook: Open, shot: Open) -> None:
    opened = notebook(DRAFTED, "bench = Workbench(run, bank=bank, panels=['transcript'])\nbench")
    root = bench_of(opened)
    keys, why = opened.page.keyboard, root.get_by_role("region", name="Why", exact=True)
    rules = root.get_by_role("button", name="Rules", exact=True)
    expect(rules).to_be_disabled()
    transcript = panel(root, "transcript")
    transcript.get_by_role("slider", name="Model call").focus()
    keys.press("Home")
    keys.press("ArrowRight")
    call = transcript.locator("ol[aria-label='Outcome of the call'] > li", has_text="get_user_details").first
    expect(call).to_be_visible()

    call.focus()
    keys.press("Enter")
    expect(why).to_contain_text("Why call: get_user_details")
    expect(why).to_contain_text("Whether a rule looked at this call is not recorded.")
    shot(root, "workbench-call-why")
    why.get_by_role("button", name="Draft a rule").focus()
    keys.press("Enter")

    editor = panel(root, "rules")
    expect(editor.locator(".nn-fields :is(textarea, input):focus")).to_be_in_viewport()
    expect(editor.locator(".nn-notice")).to_contain_text("not enabled yet")
    # The score on the bank is there before the first key.
    expect(editor).to_contain_text("Good runs stopped", timeout=30_000)
    says(opened, "[rule.enabled for rule in bench.rules.rulebook]", "[False]")
    expect(rules).to_be_enabled()
    shot(root, "workbench-call-drafted")
    editor.get_by_role("checkbox").first.focus()
    keys.press("Space")
    says(opened, "[rule.enabled for rule in bench.rules.rulebook]", "[True]")
