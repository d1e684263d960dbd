"""The workbench in JupyterLab: panels in one widget, linked, chosen and resized; a chat; questions; why something was denied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.appearance import assert_contained, assert_readable, at_width

Open = Callable[..., Any]

AIRLINE = """
import noetic_nb as nn
from noetic_nb.lab import datasets, replay, replay_regulator
from noetic_nb.regulator import Regulator
from noetic_nb.widgets import *
rules = nn.RuleBook()
rules.when('tool.name == "update_reservation_flights"', id="no_changes", guidance="Do not change flights.")
run = replay(replay_regulator(datasets.airline_run(26), Regulator.for_user("ann"), stop=False), rules=rules)
"""


@pytest.mark.parametrize("scene", ["demo_run", "hostile_run", "Run"])
def test_workbench_is_readable_in_both_themes_and_at_every_width(
    notebook: Open, cells_of: Open, shot: Open, scene: str
) -> None:
    opened = notebook(*cells_of(scene, ["bench = Workbench(run)\nbench"]))
    opened.run_all()
    root = opened.page.locator(".nn-workbench").first
    root.wait_for()

    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        opened.theme(theme)
        for width in (1400, 420):
            at_width(root, width)
            shot(root, f"workbench-{scene}-{theme.split()[-1].lower()}-{width}")
            assert_readable(root)
            assert_contained(root)
    assert root.locator("script, img, b, iframe, [onload], [onerror]").count() == 0
