"""The transcript in JupyterLab: navigated, folded, compared, linked, and readable in both themes and at every width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.browser.lab import wait_for
from tests.matrix import matrix

Open = Callable[..., Any]


def cells(scene: str, *shows: str) -> list[str]:
    names = "from noetic_nb.widgets import *\nfrom tests.widgets import transcript_scenes, scenes"
    return [f"{names}\nrun = transcript_scenes.{scene}", *shows]


@matrix("scene", ["desk_run()", "imported_run()", "hostile_transcript()", "Run()", "large_request()"], keep=1)
def test_transcript_is_readable_in_both_themes_and_at_every_width(notebook: Open, looks: Open, scene: str) -> None:
    opened = notebook(*cells(scene, "Transcript(run)"))
    opened.run_all()
    root = opened.view
    root.wait_for()
    name = scene.partition("(")[0]
    if name != "Run":
        expect(root.locator(".nn-t-items > li").first).to_be_visible()
    if name == "desk_run":
        root.get_by_label("Compare with", exact=True).select_option("previous")
        expect(root.locator(".nn-t-difference")).to_contain_text("added")

    looks(opened, root, f"transcript-{name}")


def test_calls_are_moved_through_by_keyboard_and_the_kernel_knows(notebook: Open, shot: Open) -> None:
    opened = notebook(*cells("desk_run()", "shown = Transcript(run)\nshown"))
    opened.run_all()
    root = opened.view
    sub = root.locator(".nn-sub").first
    expect(sub).to_contain_text("Turn 4, call 1")

    root.get_by_role("slider").focus()
    for _ in range(2):
        opened.page.keyboard.press("ArrowLeft")
    expect(sub).to_contain_text("Turn 3, call 1")
    expect(root.locator(".nn-t-lines").last).to_contain_text("denied by only_small_refunds")
    wait_for(lambda: opened.kernel.value("(shown.position, shown.follow)") == "(4, False)", "the kernel follows")
    root.locator(".nn-t-lines").last.scroll_into_view_if_needed()
    shot(opened.page, "transcript-answer")
    assert "Turn 3, call 1" in opened.kernel.value("shown.to_text()")

    root.get_by_role("button", name="Previous call").press("Enter")
    expect(sub).to_contain_text("Turn 2, call 2")
    root.get_by_label("Follow latest").press("Space")
    expect(sub).to_contain_text("Turn 4, call 1")


def test_a_text_is_opened_with_enter_and_rows_are_reached_with_arrows(notebook: Open) -> None:
    opened = notebook(*cells("desk_run()", "shown = Transcript(run)\nshown"))
    opened.run_all()
    root = opened.view
    tools = root.locator(".nn-t-item").nth(1)
    expect(tools).to_contain_text("lookup(order_id): Find one order.")
    expect(tools).not_to_contain_text('"properties"')

    root.locator(".nn-t-item").first.focus()
    opened.page.keyboard.press("ArrowDown")
    expect(tools).to_be_focused()
    opened.page.keyboard.press("Enter")

    expect(tools).to_contain_text('"properties"')
    assert root.locator(".nn-t-items > li[tabindex='0']").count() == 1
    opened.page.keyboard.press("Enter")
    expect(tools).not_to_contain_text('"properties"')
    opened.page.keyboard.press("End")
    expect(root.locator(".nn-t-items > li").last).to_be_focused()


def test_two_requests_are_compared_in_words_and_signs(notebook: Open) -> None:
    opened = notebook(*cells("desk_run()", "shown = Transcript(run)\nshown"))
    opened.run_all()
    root = opened.view

    root.get_by_label("Compare with", exact=True).select_option("previous")
    expect(root.locator(".nn-t-difference")).to_have_text(
        " + 2 added, − 1 removed, ≠ 1 changed against Turn 3, call 2 · thread t1"
    )
    added = root.locator(".nn-t-item[data-change='added']")
    expect(added).to_contain_text(["+ added", "+ added"])
    expect(root.locator(".nn-t-item[data-change='changed']")).to_contain_text("has written 3 times")
    root.get_by_label("Changes only").uncheck()
    expect(root.locator(".nn-t-fold")).to_have_count(0)

    root.get_by_label("Compare with", exact=True).select_option("call")
    root.get_by_label("Number of the call").fill("2")
    root.get_by_label("Number of the call").press("Tab")
    expect(root.locator(".nn-t-difference")).to_contain_text("against Turn 1, call 2")
    wait_for(lambda: opened.kernel.value("shown.compare_with") == "1", "the kernel knows")


def test_what_was_not_sent_stands_in_its_place_with_what_would_have_admitted_it(notebook: Open) -> None:
    opened = notebook(*cells("desk_run()", "shown = Transcript(run)\nshown"))
    opened.run_all()
    rows = opened.page.locator(".noetic-nb .nn-t-item")

    expect(rows.nth(5)).to_contain_text("A maximum of 109 tokens for profile would have admitted it.")
    expect(rows.nth(6)).to_contain_text("a maximum of 194 tokens for profile")
    history = rows.nth(9)
    expect(history).to_contain_text("Not sent: over the budget. A total of 979 tokens would have admitted it.")
    expect(history).to_contain_text("Where is order A17?")


def test_a_selection_elsewhere_is_shown_here_and_the_other_way_round(notebook: Open) -> None:
    linked = "chosen = Selection()\nbars = TokenAllocation(run, selection=chosen)\nbars"
    opened = notebook(*cells("desk_run()", linked, "shown = Transcript(run, selection=chosen)\nshown"))
    opened.run_all()
    root = opened.page.locator(".nn-transcript")
    sub = root.locator(".nn-sub").first
    expect(sub).to_contain_text("Turn 4, call 1")

    opened.kernel.run("chosen.select(thread_id='t1', turn=2, call=3, item=5)")
    expect(sub).to_contain_text("Turn 2, call 2")
    marked = root.locator("[aria-current='true']")
    expect(marked).to_have_count(1)
    expect(marked).to_contain_text("Do not promise a date.")
    expect(marked).to_be_in_viewport()
    opened.kernel.says("(shown.position, shown.follow)", "(3, False)")

    root.locator(".nn-t-item", has_text="Will it be here by Friday?").click()
    wait_for(lambda: opened.kernel.value("(chosen.call, chosen.item)") == "(3, 4)", "the kernel knows the item")
    expect(marked).to_contain_text("Will it be here by Friday?")

    # From a segment of the allocation to the item.
    bars = opened.view
    opened.kernel.run("heard = []\nforget = chosen.observe(heard.append)")
    bars.locator('.nn-box[data-kind="history"]').first.click()
    bars.locator(".nn-part-items .nn-t-item", has_text="Where is order A17").click()
    expect(marked).to_contain_text("Where is order A17? I have waited")
    # A segment selects its first item itself; this must arrive before the kernel's next selection.
    wait_for(lambda: opened.kernel.value("len(heard)") == "2", "the kernel knows of the segment and of the item")

    # A decision also selects its call.
    seq = "next(at for at, e in enumerate(run.events) if e.kind == 'steering_decided' and e.action == 'deny')"
    opened.kernel.run(f"chosen.select(decision={seq})")
    expect(sub).to_contain_text("Turn 3, call 1")
    expect(marked).to_contain_text("denied by only_small_refunds")


def test_an_item_far_down_is_scrolled_to_and_pages_are_turned(notebook: Open) -> None:
    opened = notebook(*cells("large_request()", "shown = Transcript(run)\nshown"))
    opened.run_all()
    root = opened.page.locator(".nn-transcript")
    expect(root.locator(".nn-t-pager .nn-number")).to_have_text("1 to 100 of 1,003")

    opened.kernel.run("shown.selection.select(call=0, item=777)")
    expect(root.locator(".nn-t-pager .nn-number")).to_have_text("701 to 800 of 1,003")
    expect(root.locator("[aria-current='true']")).to_contain_text("Answer 777.")
    expect(root.locator("[aria-current='true']")).to_be_in_viewport()

    root.get_by_role("button", name="Last items").click()
    expect(root.locator(".nn-t-item").nth(-2)).to_contain_text("Answer 999.")


def test_the_newest_call_is_followed_and_nothing_flickers(notebook: Open) -> None:
    opened = notebook(*cells("Run()", "shown = Transcript(run)\nshown", "more = transcript_scenes.desk_run().events"))
    opened.run_all()
    root = opened.page.locator(".nn-transcript")
    expect(root.locator(".nn-empty")).to_be_visible()
    root.hover()
    half = "next(at for at, e in enumerate(more) if e.kind == 'turn_completed')"

    opened.kernel.run(f"half = {half}\nfor e in more[:half]: run.append(e)")
    sub = root.locator(".nn-sub").first
    expect(sub).to_contain_text("Turn 1, call 2")
    root.evaluate("el => { for (const node of el.querySelectorAll('.nn-t-item')) node.setAttribute('kept', '1'); }")
    kept = root.locator("[kept]").count()
    opened.kernel.run("for e in more[half:]: run.append(e)")

    expect(sub).to_contain_text("Turn 4, call 1")
    expect(root.locator(".nn-t-lines").last).to_contain_text("The voucher is on its way")
    assert root.locator("[kept]").count() == kept


def test_hostile_texts_stay_text(notebook: Open) -> None:
    opened = notebook(*cells("hostile_transcript()", "Transcript(run)"))
    opened.run_all()
    root = opened.page.locator(".nn-transcript")
    expect(root.locator(".nn-t-items")).to_contain_text("<script>alert(1)</script>")
    expect(root.locator(".nn-t-lines").last).to_contain_text("constructor")

    assert root.locator("script, img, b, iframe, [onload], [onerror]").count() == 0
    assert opened.dialogs == []


def test_ten_thousand_calls_open_at_once(notebook: Open) -> None:
    opened = notebook(*cells("many_calls()", "shown = Transcript(run)\nshown"))
    opened.run_all()
    root = opened.page.locator(".nn-transcript")
    expect(root.locator(".nn-bar-controls .nn-number").first).to_have_text("10,000 of 10,000")
    expect(root.locator(".nn-t-items")).to_contain_text("19,988 items not sent: outside the window")

    assert int(opened.kernel.value("len(__import__('json').dumps(shown.snapshot))")) < 1_000_000
