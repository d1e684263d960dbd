"""In a real kernel: running a cell repeatedly leaves one view, and a closed view leaves its picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.browser.lab import wait_for
from tests.browser.window import LATE_PROBLEMS, LIVE
from tests.matrix import matrix, several

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


@matrix("made", ["TokenAllocation(run)", "RegulatorTrends(run)", "Ledger(run)", "RuleEditor(rules, run=run)"], keep=1)
def test_many_runs_of_a_cell_leave_the_comms_and_observers_of_one(notebook: Open, cells_of: Open, made: str) -> None:
    opened = notebook(*cells_of("demo_run", [COUNTS]))
    # The kernel closes these views faster than a busy page can load them; the page's report is not a fault.
    opened.tolerated = LATE_PROBLEMS
    opened.run_all()
    cell = f"view = {made}\ndisplay(view)"
    opened.kernel.run(cell)
    after_one = opened.kernel.value("counts()")

    for _ in range(several(15, 50)):
        opened.kernel.run(cell)

    assert opened.kernel.value("counts()") == after_one
    opened.kernel.run("view.close()")
    assert opened.kernel.value("counts()[2:]") == "(0, 0)"


RUN_AGAIN = """async (times) => {
  const {content} = window.jupyterapp.shell.currentWidget;
  for (let n = 0; n < times; n++) {
    content.activeCellIndex = content.widgets.length - 1;
    await window.jupyterapp.commands.execute("notebook:run-cell");
    const shown = () => document.querySelector(".noetic-nb:not(.noetic-nb-static) .nn-title");
    while (!shown()) await new Promise((done) => setTimeout(done, 5));
  }
}"""


@matrix("made", ["RuleEditor(rules, run=run)", "Ledger(run)", "Workbench(run)"], keep=1)
def test_runs_of_a_cell_in_the_page_leave_no_nodes_behind(notebook: Open, cells_of: Open, made: str) -> None:
    opened = notebook(*cells_of("demo_run", [COUNTS, f"view = {made}\nview"]))
    opened.tolerated = LATE_PROBLEMS
    opened.run_all()
    page = opened.page.context.new_cdp_session(opened.page)
    page.send("Performance.enable")

    def nodes() -> int:
        page.send("HeapProfiler.collectGarbage")
        return next(each["value"] for each in page.send("Performance.getMetrics")["metrics"] if each["name"] == "Nodes")

    opened.page.evaluate(RUN_AGAIN, 3)
    of_one = opened.page.locator(f"{LIVE} *").count()
    before = nodes()
    opened.page.evaluate(RUN_AGAIN, several(10, 20))

    # The number of nodes varies slightly; ten leaked views, or parts of them, would be more than five.
    wait_for(lambda: nodes() < before + 5 * of_one, f"hardly more nodes than before, {before}; a view has {of_one}")


def test_a_closed_view_leaves_its_static_picture(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("demo_run", ["shown = TokenAllocation(run)\nshown"]))
    opened.run_all()
    live = opened.page.locator(LIVE)
    expect(live).to_have_count(1)

    opened.kernel.run("shown.close()")

    expect(opened.page.locator(".noetic-nb-static .nn-sub")).to_contain_text("Turn 6, call 1")
    expect(live).to_have_count(0)
