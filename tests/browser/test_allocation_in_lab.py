"""The token allocation in JupyterLab: drawn, moved through, followed, and readable in both themes and at every width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.appearance import assert_contained, assert_marks_have_area, assert_readable, at_width
from tests.browser.lab import wait_for

Open = Callable[..., Any]


@pytest.mark.parametrize("scene", ["demo_run", "many_layers_run", "hostile_run", "Run"])
def test_allocation_is_readable_in_both_themes_and_at_every_width(
    notebook: Open, cells_of: Open, shot: Open, scene: str
) -> None:
    opened = notebook(*cells_of(scene, ["TokenAllocation(run)"]))
    opened.run_all()
    root = opened.page.locator(".noetic-nb").first
    root.wait_for()
    if scene == "demo_run":
        root.get_by_text("Left out").click()
        root.get_by_text("Table", exact=True).click()

    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        opened.theme(theme)
        for width in (1400, 420):
            at_width(root, width)
            shot(root, f"allocation-{scene}-{theme.split()[-1].lower()}-{width}")
            assert_readable(root)
            assert_contained(root)
            if scene != "Run":
                assert_marks_have_area(root, at_least=10)


def test_allocation_moves_through_calls_by_keyboard_and_the_kernel_knows(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("demo_run", ["shown = TokenAllocation(run)\nshown"]))
    opened.run_all()
    root = opened.page.locator(".noetic-nb").first
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
    root = opened.page.locator(".noetic-nb").first
    expect(root.locator(".nn-empty")).to_be_visible()

    opened.kernel.run("for e in scenes.turn(1): run.append(e)")
    expect(root.locator(".nn-sub")).to_contain_text("Turn 1, call 1")
    root.evaluate("el => { for (const node of el.querySelectorAll('*')) node.dataset.kept = '1'; }")
    before = root.locator("[data-kept]").count()
    opened.kernel.run("for n in range(2, 6):\n    for e in scenes.turn(n, history=900 + 50 * n): run.append(e)")

    expect(root.locator(".nn-sub")).to_contain_text("Turn 5, call 1")
    assert root.locator("[data-kept]").count() == before  # nothing was replaced, so nothing flickers


def test_a_view_that_is_shown_again_or_loaded_late_is_complete(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("Run", ["shown = TokenAllocation(run)\nshown", "shown"]))
    opened.run_all()
    opened.kernel.run("for n in range(1, 4):\n    for e in scenes.turn(n): run.append(e)")
    places = opened.page.locator(".noetic-nb .nn-bar-controls .nn-number")
    expect(places).to_have_text(["3 of 3", "3 of 3"])

    opened.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    opened.page.reload()
    expect(places).to_have_text(["3 of 3", "3 of 3"], timeout=60_000)
    opened.kernel.run("for e in scenes.turn(4): run.append(e)")

    expect(places).to_have_text(["4 of 4", "4 of 4"])


def test_hostile_names_stay_text(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("hostile_run", ["TokenAllocation(run)"]))
    opened.run_all()
    root = opened.page.locator(".noetic-nb").first
    root.get_by_text("Table", exact=True).click()

    expect(root.locator(".nn-legend")).to_contain_text("<script>alert(1)</script>")
    assert root.locator("script, img, b, iframe, [onload], [onerror]").count() == 0
    assert opened.dialogs == []


def test_the_saved_notebook_keeps_the_picture_of_the_last_turn(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("Run", ["TokenAllocation(run)"]))
    opened.run_all()
    root = opened.page.locator(".noetic-nb").first
    expect(root.locator(".nn-empty")).to_be_visible()
    opened.kernel.run("for n in range(1, 4):\n    for e in scenes.turn(n): run.append(e)")

    def saved() -> str:
        opened.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
        return opened.path.read_text(encoding="utf-8")

    wait_for(lambda: "Turn 3, call 1" in saved(), "the file holds the static form of the last turn")


def test_a_change_of_the_static_form_redraws_nothing_that_is_live(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("demo_run", ["shown = TokenAllocation(run)\nshown"]))
    opened.run_all()
    root = opened.page.locator(".noetic-nb:not(.noetic-nb-static)")
    root.get_by_role("slider").focus()
    root.evaluate("el => { el.dataset.kept = '1'; }")

    opened.kernel.run("for e in scenes.turn(7): run.append(e)\nshown.publish_static()")

    expect(opened.page.locator(".noetic-nb-static .nn-sub")).to_contain_text("Turn 7")
    expect(root.locator(".nn-sub")).to_contain_text("Turn 7")
    expect(opened.page.locator("[data-kept]")).to_have_count(1)
    expect(root.get_by_role("slider")).to_be_focused()
