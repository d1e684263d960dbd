"""The timeline in JupyterLab: nested, side by side, zoomed by keys, buttons and drag, filtered, and linked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.appearance import assert_contained, assert_marks_have_area, assert_readable, at_width

Open = Callable[..., Any]
SCENES = "from noetic_nb.widgets import *\nfrom tests.widgets import scenes, timeline_scenes\nrun = {scene}"
LIVE = ".noetic-nb:not(.noetic-nb-static)"


def opened_on(notebook: Open, scene: str, *shows: str) -> tuple[Any, Any]:
    opened = notebook(SCENES.format(scene=scene), *(shows or ("view = RunTimeline(run)\nview",)))
    opened.run_all()
    root = opened.page.locator(LIVE).first
    root.wait_for()
    return opened, root


PICTURES = {
    "branches": "timeline_scenes.branches_run()",
    "failed": "timeline_scenes.out_of_time_run()",
    "imported": "timeline_scenes.untimed_run()",
    "many": "timeline_scenes.ten_thousand_spans()",
    "hostile": "scenes.hostile_run()",
    "empty": "__import__('noetic_nb').Run()",
}


@pytest.mark.parametrize("scene", PICTURES)
def test_the_timeline_is_readable_in_both_themes_and_at_every_width(notebook: Open, shot: Open, scene: str) -> None:
    opened, root = opened_on(notebook, PICTURES[scene])
    if scene in ("branches", "failed"):
        root.get_by_role("button", name="Next problem").click()
        root.locator(".nn-tl-about").wait_for()

    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        opened.theme(theme)
        for width in (1400, 420):
            at_width(root, width)
            opened.page.wait_for_timeout(400) if scene != "empty" else None
            shot(root, f"timeline-{scene}-{theme.split()[-1].lower()}-{width}")
            assert_readable(root)
            assert_contained(root)
    if scene != "empty":
        assert_marks_have_area(root, at_least=3)
    assert root.locator("script, img, b, iframe, [onload], [onerror]").count() == 0
