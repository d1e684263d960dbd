"""The regulator's trends in JupyterLab: drawn, followed, and readable in both themes and at every width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.appearance import assert_contained, assert_marks_have_area, assert_readable, at_width

Open = Callable[..., Any]


@pytest.mark.parametrize("scene", ["demo_run", "long_run", "hostile_run", "Run"])
def test_trends_are_readable_in_both_themes_and_at_every_width(
    notebook: Open, cells_of: Open, shot: Open, scene: str
) -> None:
    opened = notebook(*cells_of(scene, ["RegulatorTrends(run)"]))
    opened.run_all()
    root = opened.page.locator(".noetic-nb").first
    root.wait_for()

    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        opened.theme(theme)
        for width in (1400, 420):
            at_width(root, width)
            shot(root, f"trends-{scene}-{theme.split()[-1].lower()}-{width}")
            assert_readable(root)
            assert_contained(root)
            if scene != "Run":
                assert_marks_have_area(root, at_least=4)
    assert root.locator("script, img, b, iframe, [onload], [onerror]").count() == 0


def test_trends_follow_a_live_run_to_its_break(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("Run", ["RegulatorTrends(run)"]))
    opened.run_all()
    root = opened.page.locator(".noetic-nb").first
    expect(root.locator(".nn-empty")).to_be_visible()

    opened.kernel.run("for e in scenes.demo_run().events: run.append(e)")

    expect(root.locator(".nn-sub")).to_contain_text("2,220 of 2,000 output tokens")
    expect(root.locator(".nn-list li")).to_have_count(2)
    expect(root.locator(".nn-list")).to_contain_text("Turn 6, circuit break: cost cap, turn stopped")


def test_another_thread_can_be_chosen(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("two_threads_run", ["shown = RegulatorTrends(run)\nshown"]))
    opened.run_all()
    root = opened.page.locator(".noetic-nb").first
    expect(root.locator(".nn-sub")).to_contain_text("thread t2")

    root.get_by_role("combobox").select_option(label="t1")

    expect(root.locator(".nn-sub")).to_contain_text("thread t1")
