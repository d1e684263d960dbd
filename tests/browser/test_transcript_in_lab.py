"""The transcript in JupyterLab: moved through, folded, compared, linked, and readable in both themes and at every width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.appearance import assert_contained, assert_readable, at_width

Open = Callable[..., Any]


def cells(scene: str, *shows: str) -> list[str]:
    names = "from noetic_nb.widgets import *\nfrom tests.widgets import transcript_scenes, scenes"
    return [f"{names}\nrun = transcript_scenes.{scene}", *shows]


@pytest.mark.parametrize("scene", ["desk_run()", "hostile_transcript()", "imported_run()", "large_request()", "Run()"])
def test_transcript_is_readable_in_both_themes_and_at_every_width(notebook: Open, shot: Open, scene: str) -> None:
    opened = notebook(*cells(scene, "Transcript(run)"))
    opened.run_all()
    root = opened.page.locator(".noetic-nb").first
    root.wait_for()
    name = scene.partition("(")[0]
    if name != "Run":
        expect(root.locator(".nn-items > li").first).to_be_visible()
    if name == "desk_run":
        root.get_by_label("Compare with", exact=True).select_option("previous")
        expect(root.locator(".nn-difference")).to_contain_text("added")

    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        opened.theme(theme)
        for width in (1400, 420):
            at_width(root, width)
            shot(root, f"transcript-{name}-{theme.split()[-1].lower()}-{width}")
            assert_readable(root)
            assert_contained(root)
