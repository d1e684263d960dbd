"""In a real kernel: running a cell again and again leaves one view, and a closed view leaves its picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.window import LATE_PROBLEMS, LIVE

Open = Callable[..., Any]

COUNTS = """
import ipywidgets
from comm import get_comm_manager
from noetic_nb.steering import RuleBook, SteeringRule
rules = RuleBook([SteeringRule(id="quiet", applies_to="before_tool_call", predicate=lambda call: None)])
def counts():
    live = len(ipywidgets.widgets.widget._instances)
    return len(get_comm_manager().comms), live, len(run._listeners), len(rules._listeners)
"""


@pytest.mark.parametrize(
    "made", ["TokenAllocation(run)", "RegulatorTrends(run)", "Ledger(run)", "RuleEditor(rules, run=run)"]
)
def test_fifty_runs_of_a_cell_leave_the_comms_and_observers_of_one(notebook: Open, cells_of: Open, made: str) -> None:
    opened = notebook(*cells_of("demo_run", [COUNTS]))
    # The kernel closes these views faster than a busy page can load them, and the page says so: no fault of theirs.
    opened.tolerated = LATE_PROBLEMS
    opened.run_all()
    cell = f"view = {made}\ndisplay(view)"
    opened.kernel.run(cell)
    after_one = opened.kernel.value("counts()")

    for _ in range(50):
        opened.kernel.run(cell)

    assert opened.kernel.value("counts()") == after_one
    opened.kernel.run("view.close()")
    assert opened.kernel.value("counts()[2:]") == "(0, 0)"


def test_a_closed_view_leaves_its_static_picture(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("demo_run", ["shown = TokenAllocation(run)\nshown"]))
    opened.run_all()
    live = opened.page.locator(LIVE)
    expect(live).to_have_count(1)

    opened.kernel.run("shown.close()")

    expect(opened.page.locator(".noetic-nb-static .nn-sub")).to_contain_text("Turn 6, call 1")
    expect(live).to_have_count(0)
