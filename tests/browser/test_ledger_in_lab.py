"""The ledger in JupyterLab: newest first, filtered by action, and hostile guidance stays text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.appearance import assert_contained, assert_readable, at_width

Open = Callable[..., Any]


@pytest.mark.parametrize("scene", ["demo_run", "hostile_run", "Run"])
def test_ledger_is_readable_in_both_themes_and_at_every_width(
    notebook: Open, cells_of: Open, shot: Open, scene: str
) -> None:
    opened = notebook(*cells_of(scene, ["Ledger(run)"]))
    opened.run_all()
    root = opened.page.locator(".noetic-nb").first
    root.wait_for()

    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        opened.theme(theme)
        for width in (1400, 420):
            at_width(root, width)
            shot(root, f"ledger-{scene}-{theme.split()[-1].lower()}-{width}")
            assert_readable(root)
            assert_contained(root)
    assert root.locator("script, img, b, iframe, [onload], [onerror]").count() == 0


def test_ledger_follows_and_filters(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("Run", ["shown = Ledger(run)\nshown"]))
    opened.run_all()
    root = opened.page.locator(".noetic-nb").first
    opened.kernel.run("for e in scenes.decisions(): run.append(e)")
    rows = root.locator("tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.first).to_contain_text("after model call")

    root.get_by_role("combobox").select_option("deny")

    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("no_late_cancellation")
    assert opened.kernel.value("shown.only") == "'deny'"
