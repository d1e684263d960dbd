"""Two runs side by side in JupyterLab: differences are found by pointer, keys and filters, and growing runs are followed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.appearance import assert_contained, assert_readable, at_width
from tests.matrix import matrix, several

Open = Callable[..., Any]

TWO = """
from noetic_nb.runs import Run
from tests.widgets.scenes import demo_run, hostile_run, turn
def said(reply, number=1, tokens=100):
    from noetic_nb.events import ToolCalled, TurnCompleted, TurnStarted, Where
    w = Where("t1", f"e{number}", number)
    return [TurnStarted(w, 0.0, f"u{number}", 0, 1, f"Question {number}"),
            ToolCalled(w, 0.0, "find", "c", {"n": number}, f"{reply} is found.", 1.0, "ok"),
            TurnCompleted(w, 1.0, f"u{number}", "success", 5.0, f"It is {reply} that you want.", tokens, 10, 0.01, 1, 1)]
def run_of(turns, differs):
    replies = [(n, "Rome" if n % differs else "Oslo") for n in range(1, turns + 1)]
    return Run(f"run-{differs}", events=[e for n, reply in replies for e in said(reply, n, 100 + n)])
selection = Selection()
"""
SCENES = {
    "two": "Compare(run_of(40, 7), run_of(42, 5))",
    "hostile": "Compare(hostile_run(), demo_run())",
    "empty": "Compare(Run(), Run())",
    "lists": "Compare([run_of(n, 2) for n in range(1, 9)], [run_of(n + n % 3, 3) for n in range(1, 9)], by='run')",
}


@matrix("scene", list(SCENES), keep=1)
def test_a_comparison_is_readable_in_both_themes_and_at_every_width(
    notebook: Open, cells_of: Open, shot: Open, looks: Open, scene: str
) -> None:
    opened = notebook(*cells_of("Run", [TWO, f"shown = {SCENES[scene]}\nshown"]))
    opened.run_all()
    root = opened.view
    root.wait_for()
    if scene in ("two", "hostile"):
        root.locator(".nn-compared tbody tr").first.wait_for()

    looks(opened, root, f"compare-{scene}")
    assert root.locator("script, img, b, iframe, [onload], [onerror]").count() == 0

    opened.kernel.run("shown.close()")
    static = opened.page.locator(".noetic-nb-static")
    static.wait_for()
    assert_readable(static)
    assert_contained(static)
    shot(static, f"compare-{scene}-static")


def test_differences_are_filtered_paged_and_chosen(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("Run", [TWO, "Compare(run_of(60, 2), run_of(60, 61), selection=selection)"]))
    opened.run_all()
    root = opened.view
    rows = root.locator(".nn-compared tbody tr")
    status = root.get_by_role("status").first
    expect(status).to_have_text("30 of 60 pairs of turns differ")
    expect(rows).to_have_count(20)
    expect(rows.first.locator("del")).to_have_text("Oslo")
    expect(rows.first.locator("ins")).to_have_text("Rome")

    root.get_by_label("Part", exact=True).select_option("reply")
    expect(rows).to_have_count(10)
    expect(rows.first).to_contain_text("reply")
    root.get_by_role("button", name="Later").click()
    expect(rows.first.locator("th")).to_have_text("22")
    root.get_by_role("button", name="Earlier").click()
    expect(rows.first.locator("th")).to_have_text("2")
    root.get_by_label("only differences").uncheck()
    expect(rows.first.locator("th")).to_have_text("1")

    rows.first.focus()
    opened.page.keyboard.press("ArrowDown")
    opened.page.keyboard.press("Enter")
    expect(rows.nth(1)).to_have_attribute("aria-selected", "true")
    opened.kernel.says("selection.thread_id, selection.turn", "('t1', 2)")
    opened.settle()
    opened.page.keyboard.press("PageDown")
    expect(rows.first.locator("th")).to_have_text("11")

    opened.kernel.run("selection.select(thread_id='t1', turn=40)")
    expect(rows.first.locator("th")).to_have_text("40")
    expect(rows.first).to_have_attribute("aria-selected", "true")


def test_bars_lead_to_their_turns_by_keys_and_by_pointer(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("Run", [TWO, "Compare(run_of(60, 2), run_of(60, 61))"]))
    opened.run_all()
    root = opened.view
    bars = root.locator(".nn-box")
    expect(bars).to_have_count(60)

    bars.first.focus()
    opened.page.keyboard.press("End")
    expect(root.locator(".nn-readout")).to_have_text("turn 60: 2 differences")
    opened.page.keyboard.press("Enter")
    expect(root.locator(".nn-compared tbody th").first).to_have_text("60")
    bars.nth(9).click()
    expect(root.locator(".nn-compared tbody th").first).to_have_text("10")


def test_both_runs_may_grow(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("Run", [TWO, "a, b = Run('a'), Run('b')\nCompare(a, b)"]))
    opened.run_all()
    # The static form has the same text while the live view is still loading.
    root = opened.view
    expect(root.locator(".nn-empty")).to_contain_text("No turn yet.")

    opened.kernel.run("for e in said('Rome'): a.append(e)")
    expect(root.locator(".nn-compared tbody th").first).to_have_text("1 | —")
    opened.kernel.run("for e in said('Oslo'): b.append(e)")

    expect(root.locator(".nn-compared tbody th").first).to_have_text("1")
    expect(root.locator(".nn-compared ins").first).to_have_text("Oslo")
    expect(root.get_by_role("status").first).to_have_text("1 of 1 pairs of turns differ")


@pytest.mark.matrix
def test_thousands_of_turns_are_looked_at_as_far_as_someone_asks(notebook: Open, cells_of: Open) -> None:
    count = several(3_000, 10_000)
    opened = notebook(*cells_of("Run", [TWO, f"Compare(run_of({count}, 2), run_of({count}, {count + 1}))"]))
    opened.run_all()
    root = opened.view
    status = root.get_by_role("status").first
    expect(status).to_have_text(f"500 of the first 1,000 pairs of turns differ; there are {count:,}", timeout=30_000)

    root.get_by_role("button", name="Look at the rest").click()

    expect(status).to_have_text(f"1,000 of the first 2,000 pairs of turns differ; there are {count:,}", timeout=30_000)


def test_intervals_are_in_sight_on_a_narrow_page(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("Run", [TWO, SCENES["lists"]]))
    opened.run_all()
    root = opened.view
    picture = root.locator(".nn-plotbox").first
    picture.wait_for()

    at_width(root, 420)

    right = "(node) => node.getBoundingClientRect().right"
    assert picture.evaluate(right) <= root.evaluate(right)


def test_intervals_are_read_by_keys(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("Run", [TWO, SCENES["lists"]]))
    opened.run_all()
    root = opened.view
    plots = root.locator(".nn-box")
    plots.first.focus()

    opened.page.keyboard.press("ArrowDown")

    expect(plots.nth(1)).to_be_focused()
    expect(root.locator(".nn-readout")).to_contain_text("pairs")
