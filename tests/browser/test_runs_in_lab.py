"""The table of a collection in JupyterLab: search, pages, sorting, keys, and a workbench below it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.browser.appearance import at_width

Open = Callable[..., Any]

SET_UP = """
from noetic_nb.widgets import *
import noetic_nb as nn
def talk(at):
    said = [{"role": "user", "content": f"<b>order</b> {at}"}, {"role": "assistant", "content": f"About <img src=x> {at}."}]
    run = nn.Run.from_messages(said, meta={"task_id": 1000 + at, "outcome": at % 3 > 0})
    run.label("note", "<script>alert(1)</script>", by="ann")
    return run
runs = nn.open_runs([*nn.lab.datasets.airline()[:8], *[talk(at) for at in range(100)]])
"""


def test_runs_are_searched_filtered_paged_sorted_selected_and_opened(notebook: Open, shot: Open, looks: Open) -> None:
    opened = notebook(SET_UP, "shown = Runs(runs)\nshown")
    opened.run_all()
    root, press = opened.view, opened.page.keyboard.press
    rows, status = root.locator(".nn-runs > tbody > tr"), root.get_by_role("status").first
    expect(status).to_have_text("108 runs")
    expect(rows).to_have_count(50)
    looks(opened, root, "runs")
    at_width(root, 1200)
    assert root.locator("script, img, b, iframe, [onload], [onerror]").count() == 0

    root.get_by_role("button", name="Next page").click()
    expect(rows.first).to_contain_text("<b>order</b> 42")
    rows.first.focus()
    press("PageDown")
    expect(root.get_by_text("rows 101 to 108 of 108")).to_be_visible()
    for order in ("ascending", "descending"):
        root.get_by_role("button", name="Task").click()
        expect(root.get_by_role("columnheader", name="Task")).to_have_attribute("aria-sort", order)
    expect(rows.first).to_contain_text("order</b> 99")

    search = root.get_by_role("searchbox", name="Search the texts of all runs")
    search.fill("order 7")
    expect(status).to_have_text("1 of 108 runs")
    search.fill("")
    expect(status).to_have_text("108 runs")
    where = root.get_by_role("searchbox", name="Where")
    where.fill("outcom == false")
    where.press("Enter")
    expect(root.get_by_role("alert").first).to_contain_text("Did you mean 'outcome'?")
    expect(status).to_have_text("108 runs")
    where.fill("outcome == false && labels.note != null")
    where.press("Enter")
    expect(status).to_have_text("34 of 108 runs")
    expect(root.get_by_role("alert").first).to_be_hidden()

    rows.nth(0).focus()
    press(" ")
    press("ArrowDown")
    press("ArrowDown")
    rows.nth(1).get_by_role("checkbox").click()
    expect(status).to_have_text("34 of 108 runs, 2 selected")
    opened.kernel.says("[run.meta['task_id'] for run in shown.selected]", "[1096, 1099]")
    assert not root.locator(".nn-runs-bench .noetic-nb").count()

    rows.nth(2).focus()
    press("Enter")
    bench = root.locator(".nn-runs-bench > * .noetic-nb").first
    expect(bench).to_contain_text("Workbench")
    expect(bench).to_contain_text("About <img src=x> 93.")
    shot(root, "runs-workbench")
    rows.nth(3).locator("th").click()
    expect(bench).to_contain_text("About <img src=x> 90.")
    expect(root.locator(".nn-runs-bench > *")).to_have_count(1)
    opened.kernel.says("shown.bench.run.meta['task_id']", "1090")
    root.get_by_role("button", name="Close run").click()
    expect(root.locator(".nn-runs-bench > *")).to_have_count(0)
    opened.kernel.run("_ = shown.open_run(8)")
    expect(bench).to_contain_text("About <img src=x> 0.")


LABELLED = """
from noetic_nb.widgets import *
import noetic_nb as nn
book = {"verdict": {"values": ["right", "wrong"], "of": "run"}}
made = [nn.Run.from_messages([{"role": "user", "content": f"order {at}"}], meta={"codebook": book}) for at in range(5)]
"""


def test_digits_label_runs_and_go_on_to_the_next_row(notebook: Open) -> None:
    opened = notebook(LABELLED, "shown = Runs(made, by='ann')\nshown")
    opened.run_all()
    rows, press = opened.view.locator(".nn-runs > tbody > tr"), opened.page.keyboard.press
    expect(rows).to_have_count(5)

    rows.first.focus()
    for key in "1219":
        press(key)

    expect(rows.nth(2)).to_contain_text("verdict: right")
    expect(rows.nth(1)).to_contain_text("verdict: wrong")
    expect(rows.nth(3)).to_be_focused()
    opened.kernel.says("[list(run.labels.value) for run in made]", "[['right'], ['wrong'], ['right'], [], []]")
    rows.nth(1).focus()
    press("0")
    expect(rows.nth(1)).not_to_contain_text("verdict")
