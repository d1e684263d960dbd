"""The token allocation in JupyterLab: drawn, navigated, followed, and readable in both themes and at every width."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.appearance import assert_marks_have_area
from tests.browser.lab import wait_for
from tests.browser.window import LIVE
from tests.matrix import matrix

Open = Callable[..., Any]


@matrix("scene", ["demo_run", "many_layers_run", "hostile_run", "Run", "long_run", "planned_run"], keep=2)
def test_allocation_is_readable_in_both_themes_and_at_every_width(
    notebook: Open, cells_of: Open, looks: Open, scene: str
) -> None:
    opened = notebook(*cells_of(scene, ["TokenAllocation(run)"]))
    opened.run_all()
    root = opened.view
    root.wait_for()
    if scene == "demo_run":
        root.get_by_text("Left out").click()
        root.get_by_text("Table", exact=True).click()
    if scene == "planned_run":
        root.get_by_role("button", name="History").first.click()
        root.get_by_text("What if").click()
        root.get_by_label("Total").fill("1300")
        expect(root.locator(".nn-returned .nn-change")).to_contain_text("would be sent again")

    def has_marks() -> None:
        if scene != "Run":
            assert_marks_have_area(root, at_least=10)
            calls, plot = (root.locator(f".{name}").first.bounding_box() for name in ("nn-hits", "nn-plotbox"))
            assert calls["x"] == pytest.approx(plot["x"], abs=1)  # hover positions match the drawn marks
            assert calls["width"] == pytest.approx(plot["width"], abs=1)

    looks(opened, root, f"allocation-{scene}", widths=(1400, 900, 420), also=has_marks)


def test_allocation_moves_through_calls_by_keyboard_and_the_kernel_knows(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("demo_run", ["shown = TokenAllocation(run)\nshown"]))
    opened.run_all()
    root = opened.view
    expect(root.locator(".nn-sub")).to_contain_text("Turn 6, call 1")

    root.get_by_role("slider").focus()
    for _ in range(2):
        opened.page.keyboard.press("ArrowLeft")
    expect(root.locator(".nn-sub")).to_contain_text("Turn 5, call 1")
    wait_for(lambda: opened.kernel.value("(shown.position, shown.follow)") == "(6, False)", "the kernel follows")

    root.get_by_role("button", name="Previous call").press("Enter")
    expect(root.locator(".nn-sub")).to_contain_text("Turn 4, call 1")
    root.get_by_label("Follow latest").press("Space")
    expect(root.locator(".nn-sub")).to_contain_text("Turn 6, call 1")


def test_allocation_follows_a_live_run_and_patches_what_is_there(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("Run", ["shown = TokenAllocation(run)\nshown"]))
    opened.run_all()
    root = opened.view
    expect(root.locator(".nn-empty")).to_be_visible()

    # Without a bill: the unexplained part appears and disappears with it.
    opened.kernel.run("from msgspec.structs import replace\nfrom noetic_nb.events import ModelCalled")
    opened.kernel.run(
        "def unbilled(events):\n    for e in events: run.append(replace(e, input_tokens=0) if type(e) is ModelCalled else e)"
    )
    opened.kernel.run("unbilled(scenes.turn(1))")
    expect(root.locator(".nn-sub")).to_contain_text("Turn 1, call 1")
    root.evaluate("el => { for (const node of el.querySelectorAll('*')) node.dataset.kept = '1'; }")
    before = root.locator("[data-kept]").count()
    opened.kernel.run("for n in range(2, 6): unbilled(scenes.turn(n, history=900 + 50 * n))")

    expect(root.locator(".nn-sub")).to_contain_text("Turn 5, call 1")
    assert root.locator("[data-kept]").count() == before  # nothing was replaced, so nothing flickers


def test_a_call_shows_what_it_was_billed_at_once_it_has_ended(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("Run", ["shown = TokenAllocation(run)\nshown"]))
    opened.run_all()
    root = opened.page.locator(LIVE)
    opened.kernel.run("from msgspec.structs import replace\nsplit, view, called, *rest = scenes.turn(1)")
    opened.kernel.run("run.append(split)\nrun.append(view)")
    expect(root.locator(".nn-sub")).to_contain_text("Turn 1, call 1")
    legend = root.locator(".nn-legend")
    expect(legend).to_contain_text("History")
    expect(legend).not_to_contain_text("Unexplained")
    root.locator(".nn-legend").evaluate("el => { el.dataset.kept = '1'; }")

    opened.kernel.run("run.append(replace(called, input_tokens=5_000))")

    expect(legend).to_contain_text("Unexplained")
    expect(root).to_contain_text("Billed 5,000 input tokens, 1,050 of them unexplained (21 %).")
    expect(root.locator('.nn-box[data-kind="unexplained"]')).to_have_count(1)
    expect(root.locator(".nn-sub")).to_contain_text("Turn 1, call 1")
    expect(root.locator("[data-kept]")).to_have_count(1)  # patched, not redrawn


# A reloaded page looks for a widget for two seconds only, which is too short on a busy machine.
GIVEN_UP = re.compile("widget model not found")


def load_again(opened: Any, shown: Any, texts: list[str]) -> None:
    """Reload the page until it shows these texts; retry if it has given up on widgets."""
    for _ in range(5):
        before = len(opened.problems)
        opened.page.reload()
        wait_for(
            lambda: shown.all_inner_texts() == texts or any(map(GIVEN_UP.search, opened.problems[before:])),  # noqa: B023
            "the page has its widgets, or has given them up",
            seconds=60,
        )
        if shown.all_inner_texts() == texts:
            return
        opened.tolerated = GIVEN_UP
    raise AssertionError("the page gives its widgets up each time")


def test_a_view_that_is_shown_again_or_loaded_late_is_complete(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("Run", ["shown = TokenAllocation(run)\nshown", "shown"]), is_alone=True)
    opened.run_all()
    opened.kernel.run("for n in range(1, 4):\n    for e in scenes.turn(n): run.append(e)")
    places = opened.page.locator(".noetic-nb .nn-bar-controls .nn-number")
    expect(places).to_have_text(["3 of 3", "3 of 3"])

    opened.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    load_again(opened, places, ["3 of 3", "3 of 3"])
    opened.kernel.run("for e in scenes.turn(4): run.append(e)")

    expect(places).to_have_text(["4 of 4", "4 of 4"])


def test_hostile_names_stay_text(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("hostile_run", ["TokenAllocation(run)"]))
    opened.run_all()
    root = opened.view
    root.get_by_text("Table", exact=True).click()

    expect(root.locator(".nn-legend")).to_contain_text("<script>alert(1)</script>")
    assert root.locator("script, img, b, iframe, [onload], [onerror]").count() == 0
    assert opened.dialogs == []


def test_the_saved_notebook_keeps_the_picture_of_the_last_turn(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("Run", ["TokenAllocation(run)"]), is_alone=True)
    opened.run_all()
    root = opened.view
    expect(root.locator(".nn-empty")).to_be_visible()
    opened.kernel.run("for n in range(1, 4):\n    for e in scenes.turn(n): run.append(e)")

    def saved() -> str:
        opened.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
        return opened.path.read_text(encoding="utf-8")

    # Wait for the page first: saving repeatedly would overload a slow server.
    expect(opened.page.locator(".noetic-nb-static .nn-sub")).to_contain_text("Turn 3, call 1")
    wait_for(lambda: "Turn 3, call 1" in saved(), "the file holds the static form of the last turn")


def test_a_change_of_the_static_form_redraws_nothing_that_is_live(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("demo_run", ["shown = TokenAllocation(run)\nshown"]))
    opened.run_all()
    root = opened.page.locator(LIVE)
    root.get_by_role("slider").focus()
    root.evaluate("el => { el.dataset.kept = '1'; }")

    opened.kernel.run("for e in scenes.turn(7): run.append(e)\nshown.publish_static()")

    expect(opened.page.locator(".noetic-nb-static .nn-sub")).to_contain_text("Turn 7")
    expect(root.locator(".nn-sub")).to_contain_text("Turn 7")
    expect(opened.page.locator("[data-kept]")).to_have_count(1)
    expect(root.get_by_role("slider")).to_be_focused()


def test_a_click_the_arrow_keys_and_a_brush_move_through_the_calls(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("long_run", ["shown = TokenAllocation(run)\nshown"]))
    opened.run_all()
    root = opened.view
    calls = root.get_by_role("slider", name="Model call")
    lines = root.locator(".nn-lines").first

    def expect_columns(count: int) -> None:
        expect(lines).to_have_attribute("viewBox", f"0 0 {count} 190")

    expect_columns(400)
    box = calls.bounding_box()
    assert box is not None

    opened.page.mouse.click(box["x"] + box["width"] * 0.5 + 1, box["y"] + 30)
    expect(root.locator(".nn-sub")).to_contain_text("Turn 201, call 1")
    wait_for(
        lambda: opened.kernel.value("(shown.selection.call, shown.position)") == "(200, 200)", "the kernel follows"
    )

    opened.page.keyboard.press("ArrowRight")
    expect(root.locator(".nn-sub")).to_contain_text("Turn 202, call 1")
    opened.page.keyboard.press("Home")
    expect(root.locator(".nn-sub")).to_contain_text("Turn 1, call 1")
    expect(calls).to_have_attribute("data-readout", re.compile("^Call 1, turn 1: "))

    opened.page.mouse.move(box["x"] + box["width"] * 0.25 + 1, box["y"] + 30)
    expect(root.locator(".nn-readout")).to_contain_text("Call 101, turn 101: ")
    brush = root.locator(".nn-strip").bounding_box()
    assert brush is not None
    opened.page.mouse.move(brush["x"] + brush["width"] * 0.25 + 1, brush["y"] + 5)
    opened.page.mouse.down()
    opened.page.mouse.move(brush["x"] + brush["width"] * 0.3 + 1, brush["y"] + 5, steps=4)
    opened.page.mouse.up()
    expect_columns(21)
    root.get_by_role("button", name="All", exact=True).click()
    expect_columns(400)

    root.get_by_label("First call").fill("398")
    root.get_by_label("First call").press("Tab")
    expect_columns(3)


def test_a_run_of_others_has_the_picture_and_its_calls_are_chosen(notebook: Open, cells_of: Open, looks: Open) -> None:
    imported = "from noetic_nb.lab import datasets\nrun = datasets.airline_run(26)"
    opened = notebook(*cells_of("Run", [imported, "shown = TokenAllocation(run)\nshown"]))
    opened.run_all()
    root = opened.view
    expect(root).to_contain_text("parts estimated from the texts")
    expect(root.locator(".nn-note", has_text="no plans")).to_be_visible()
    expect(root.locator(".nn-empty")).to_have_count(0)
    expect(root.locator(".nn-call")).to_be_hidden()

    root.get_by_role("slider", name="Model call").focus()
    opened.page.keyboard.press("Home")
    opened.page.keyboard.press("ArrowRight")

    expect(root.locator(".nn-sub")).to_contain_text("Call 2, turn ")
    wait_for(lambda: opened.kernel.value("shown.selection.call") == "1", "the kernel follows")
    opened.page.keyboard.press("Enter")
    expect(root.locator(".nn-part-items")).to_contain_text("Airline Agent Policy")
    root.locator(".nn-part-items").get_by_role("button", name=re.compile("Show all")).click()
    expect(root.locator(".nn-part-items")).to_contain_text("Show less")
    opened.kernel.run("shown.selection.select(call=3)")
    expect(root.locator(".nn-sub")).to_contain_text("Call 4, turn ")
    looks(opened, root, "allocation-imported", widths=(1400, 900, 420))


def test_a_part_shows_its_items_and_an_item_is_chosen(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("planned_run", ["shown = TokenAllocation(run)\nshown"]))
    opened.run_all()
    root = opened.view

    root.locator('.nn-box[data-kind="history"]').first.click()

    items = root.locator(".nn-part-items")
    expect(items.locator(".nn-change")).to_have_text("History: 8 items, 492 tokens, 3 not sent")
    expect(items).to_contain_text("over the budget")
    wait_for(lambda: opened.kernel.value("(shown.selection.call, shown.selection.thread_id)") == "(5, 'ann')", "chosen")
    items.locator(".nn-t-item", has_text="Question 6").click()
    wait_for(lambda: opened.kernel.value("shown.selection.item") == "10", "the item is chosen")
    expect(items.locator("[aria-current]")).to_contain_text("Question 6")

    opened.kernel.run("shown.selection.select(call=1)")
    expect(root.locator(".nn-sub")).to_contain_text("Turn 2, call 1")
    expect(items.locator(".nn-change")).to_contain_text("History: 3 items")  # for the shown call


def test_a_band_is_opened_by_a_click_and_by_keys(notebook: Open, cells_of: Open, looks: Open) -> None:
    opened = notebook(*cells_of("planned_run", ["shown = TokenAllocation(run)\nshown"]))
    opened.run_all()
    root = opened.view
    calls = root.get_by_role("slider", name="Model call")
    head = root.locator(".nn-part-items .nn-change")
    box = calls.bounding_box()
    assert box is not None

    calls.click(position={"x": box["width"] * 2.5 / 6, "y": 23 + 180})  # the bottom of the third column
    expect(head).to_have_text("system: 1 item, 18 tokens")
    expect(root.locator(".nn-part-items")).to_contain_text("You sell flights.")
    expect(root.locator(".nn-sub")).to_contain_text("Turn 3, call 1")
    looks(opened, root, "allocation-band")

    calls.focus()
    opened.page.keyboard.press("ArrowUp")
    expect(head).to_contain_text("notes: ")
    expect(root.get_by_role("button", name="notes", exact=True)).to_have_attribute("aria-pressed", "true")
    opened.page.keyboard.press("ArrowRight")
    expect(root.locator(".nn-sub")).to_contain_text("Turn 4, call 1")
    expect(head).to_contain_text("notes: ")
    opened.page.keyboard.press("Escape")
    expect(head).to_be_hidden()
    opened.page.keyboard.press("Enter")
    expect(head).to_contain_text("assistant: 3 items")  # the largest band
    opened.page.keyboard.press("Enter")
    expect(head).to_be_hidden()

    root.get_by_role("button", name="user", exact=True).press("Enter")
    expect(head).to_contain_text("user: 4 items")


def test_a_slider_plans_the_call_again_and_reset_shows_it_as_it_was(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("planned_run", ["shown = TokenAllocation(run)\nshown"]))
    opened.run_all()
    root = opened.view
    was = root.locator(".nn-legend").inner_text()
    root.get_by_text("What if").click()

    notes = root.get_by_label("notes, most")
    notes.fill("200")

    expect(root.locator(".nn-returned")).to_contain_text("She would rather not change planes")
    expect(root.locator(".nn-call .nn-axis text").first).to_have_text("Would be sent")
    wanted = opened.kernel.value("str(int(shown.what_if(-1, budgets={'notes': (20, 200)}).layers[0].used))")
    expect(root.locator('.nn-legend [data-part="0"]')).to_contain_text(f"{wanted[1:-1]} of 200")
    notes.focus()
    opened.page.keyboard.press("ArrowLeft")
    expect(root.locator('.nn-legend [data-part="0"]')).to_contain_text("of 199")

    root.get_by_role("button", name="Reset").click()
    expect(root.locator(".nn-call .nn-axis text").first).to_have_text("Sent")
    wait_for(lambda: root.locator(".nn-legend").inner_text() == was, "the legend is as it was")


def test_a_run_without_plans_says_why_there_are_no_sliders(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("demo_run", ["TokenAllocation(run)"]))
    opened.run_all()
    root = opened.view

    root.get_by_text("What if").click()

    expect(root.locator(".nn-what-if .nn-fault")).to_contain_text("NOT_RECORDED")


def test_ribbons_of_a_band_are_pointed_at_and_chosen(notebook: Open, cells_of: Open, looks: Open) -> None:
    opened = notebook(*cells_of("planned_run", ["run = scenes.planned_run(14)", "shown = TokenAllocation(run)\nshown"]))
    opened.run_all()
    root = opened.view
    ribbons = root.locator('.nn-box[data-kind="life"]')
    expect(ribbons).to_have_count(0)

    root.get_by_role("button", name="user", exact=True).press("Enter")
    expect(ribbons).to_have_count(14)
    expect(root).to_contain_text("items of user: sent, known (pale), and why they left")
    ribbons.first.hover()
    expect(root.locator(".nn-readout")).to_contain_text("item 0, user: Question 1")
    expect(root.locator(".nn-readout")).to_contain_text(
        "known from call 1 · sent with calls 1 to 4 · missing from call 5 "
    )
    looks(opened, root, "allocation-ribbons", widths=(1400, 900, 420))

    ribbons.nth(2).click()
    wait_for(lambda: opened.kernel.value("shown.selection.item") == "4", "the item is chosen")
    expect(ribbons.nth(2)).to_have_attribute("aria-pressed", "true")
    opened.page.keyboard.press("Escape")

    # An item selected elsewhere, such as a lost fact, has its ribbon without an open band.
    root.get_by_role("button", name="user", exact=True).press("Enter")
    expect(ribbons).to_have_count(1)
    opened.kernel.run("shown.point(8)")
    expect(root.locator(".nn-box[aria-pressed='true']")).to_have_attribute("aria-label", re.compile("^item 8, "))


def test_the_budget_and_a_layer_are_dragged_and_what_was_recorded_stays(
    notebook: Open, cells_of: Open, looks: Open
) -> None:
    opened = notebook(*cells_of("planned_run", ["run = scenes.planned_run(14)", "shown = TokenAllocation(run)\nshown"]))
    opened.run_all()
    root = opened.view
    outcome, would = root.locator(".nn-outcome"), root.locator(".nn-lines .nn-was")
    band = root.locator(".nn-lines .nn-band-5")  # the topmost, of the assistant
    budget = root.get_by_role("slider", name="Budget")
    expect(budget).to_have_attribute("aria-valuetext", "900 tokens, as recorded")
    expect(outcome).to_be_hidden()
    recorded = band.get_attribute("d")

    grip = budget.bounding_box()
    assert grip is not None
    opened.page.mouse.move(grip["x"] + 9, grip["y"] + 9)
    opened.page.mouse.down()
    opened.page.mouse.move(grip["x"] + 9, grip["y"] + 50, steps=5)
    opened.page.mouse.up()
    expect(outcome).to_contain_text("would be left out in 1")
    expect(outcome).to_contain_text("Known up to call ")
    expect(would).to_have_count(1)
    assert band.get_attribute("d") != recorded

    opened.page.keyboard.press("Escape")
    expect(outcome).to_be_hidden()
    expect(band).to_have_attribute("d", recorded or "")
    for _ in range(3):
        opened.page.keyboard.press("PageUp")
    expect(outcome).to_contain_text("would come back in 10 calls")
    expect(outcome).to_contain_text("Known up to call 5 (turn 5)")
    total = int((budget.get_attribute("aria-valuenow") or "").partition(".")[0])
    was, would_be = (opened.kernel.value(f"shown.what_if(-1, total={each}).total_tokens") for each in (900, total))
    ends = "el => [...el.getAttribute('d').matchAll(/M([\\d.]+),([\\d.]+)/g)].map(([, x, y]) => [Number(x), 184 - Number(y)])"

    def is_drawn() -> bool:
        # Heights in pixels: the last step as recorded, before the budget, and the top of the last band.
        ghost, top = would.evaluate(ends)[-2][1], max([height for x, height in band.evaluate(ends) if x == 13])
        return bool(top / ghost == pytest.approx(int(would_be) / int(was), abs=0.01))

    wait_for(is_drawn, "the picture shows the last of the three budgets, each of which is drawn")
    looks(opened, root, "allocation-dragged")
    root.get_by_role("button", name="As recorded").click()
    expect(outcome).to_be_hidden()

    root.get_by_role("button", name="notes", exact=True).press("Enter")
    notes = root.get_by_role("slider", name="notes, most")
    expect(notes).to_have_attribute("aria-valuetext", "60 tokens, as recorded")
    notes.press("End")
    expect(outcome).to_contain_text("would come back in 14 calls")
    expect(outcome).to_contain_text("Known up to call 1 (turn 1)")
