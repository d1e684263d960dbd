"""The memory view in JupyterLab: layers and writes are chosen by pointer and keys, and a live state is edited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.browser.appearance import assert_contained, assert_readable
from tests.matrix import matrix

Open = Callable[..., Any]

LONG = """
from noetic_nb.events import LayerStateChanged, Where
from noetic_nb.runs import Run
def wrote(n, **state):
    state = {"n": n // 3, "text": f"Order {n // 3} is packed.", **state}
    return LayerStateChanged(Where("t1", f"e{n}", n), 0.0, "notes", "store", state)
run = Run(events=[wrote(n) for n in range(1, 601)])
selection = Selection()
"""


@matrix("scene", ["memory_run", "Run", "long", "hostile_run"], keep=1)
def test_memory_is_readable_in_both_themes_and_at_every_width(
    notebook: Open, cells_of: Open, looks: Open, scene: str
) -> None:
    cells = cells_of("Run" if scene == "long" else scene, [LONG if scene == "long" else "1", "MemoryView(run)"])
    opened = notebook(*cells)
    opened.run_all()
    root = opened.view
    root.wait_for()
    if scene in ("memory_run", "long"):
        root.locator(".nn-detail-head").wait_for()

    looks(opened, root, f"memory-{scene}")
    assert root.locator("script, img, b, iframe, [onload], [onerror]").count() == 0


def test_the_static_form_shows_the_same_changes(notebook: Open, cells_of: Open, shot: Open) -> None:
    opened = notebook(*cells_of("memory_run", ["shown = MemoryView(run)\nshown", "shown.close()"]))
    opened.run_all()
    static = opened.page.locator(".noetic-nb-static")

    expect(static).to_contain_text("on_return of a child")
    expect(static.locator("ins").first).to_be_visible()
    assert_readable(static)
    assert_contained(static)
    shot(static, "memory-static")


def test_writes_are_paged_compared_and_chosen_by_keys_and_elsewhere(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("Run", [LONG, "MemoryView(run, selection=selection)"]))
    opened.run_all()
    root = opened.view
    rows = root.locator(".nn-writes tbody tr")
    head = root.locator(".nn-detail-head")
    expect(head).to_have_text("After turn 600, store")
    expect(root.get_by_role("status").first).to_have_text("201 changes in 600 writes, the last in turn 600")

    rows.first.focus()
    opened.page.keyboard.press("ArrowDown")
    expect(head).to_have_text("After turn 597, store")
    expect(root.locator(".nn-memory del")).to_have_text(["198", "198"])
    expect(root.locator(".nn-memory ins")).to_have_text(["199", "199"])
    opened.page.keyboard.press("Enter")
    expect(rows.nth(1)).to_have_attribute("aria-selected", "true")
    opened.kernel.says("selection.thread_id, selection.turn", "('t1', 597)")
    opened.settle()

    opened.page.keyboard.press("PageDown")
    expect(root.locator(".nn-pager")).to_contain_text("21 to 40 of 201")
    root.get_by_role("button", name="Newer").click()
    expect(root.locator(".nn-pager")).to_contain_text("1 to 20 of 201")
    root.get_by_label("also writes that changed nothing").check()
    expect(rows.nth(1)).to_contain_text("no change")
    root.get_by_label("also writes that changed nothing").uncheck()
    expect(rows.nth(1)).to_contain_text("~2")

    root.get_by_label("Compared with", exact=True).select_option("other")
    root.get_by_label("Turn to compare with").fill("3")
    expect(root.locator(".nn-memory del").first).to_have_text("1")
    root.get_by_label("Compared with", exact=True).select_option("write")
    expect(root.locator(".nn-memory del").first).to_have_text("199")
    root.get_by_text("The whole state").click()
    expect(root.locator("pre")).to_contain_text('"n": 200')

    opened.kernel.run("selection.select(thread_id='t1', turn=100)")

    expect(head).to_have_text("After turn 99, store")
    expect(root.locator(".nn-focused")).to_contain_text("99")


def test_a_growing_run_is_followed_and_layers_are_chosen(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("Run", [LONG, "run = Run()\nshown = MemoryView(run)\nshown"]))
    opened.run_all()
    root = opened.view
    expect(root.locator(".nn-empty")).to_contain_text("No layer has kept anything yet.")

    opened.kernel.run("run.append(wrote(3)); run.append(wrote(6))")
    expect(root.locator(".nn-detail-head")).to_have_text("After turn 6, store")
    opened.kernel.run(
        "run.append(LayerStateChanged(Where('t1', 'e7', 7), 0.0, 'facts', 'store', ['a']))\n"
        "run.append(LayerStateChanged(Where('t2', 'e1', 1), 0.0, 'facts', 'store', ['b']))"
    )
    bar, facts = (
        root.get_by_role("button", name=f"{name}: 1 change in 1 write") for name in ("notes, turn 3", "facts, turn 7")
    )
    expect(facts).to_be_visible()
    bar.press("Enter")
    expect(root.locator(".nn-detail-head")).to_have_text("After turn 3, store")
    expect(bar).to_have_attribute("aria-pressed", "true")
    bar.press("ArrowDown")
    expect(facts).to_be_focused()
    opened.page.keyboard.press(" ")
    expect(root.locator(".nn-detail-head")).to_have_text("After turn 7, store")
    facts = root.locator(".nn-chips").get_by_role("button", name="facts")
    facts.focus()
    opened.page.keyboard.press("Enter")

    expect(facts).to_have_attribute("aria-pressed", "true")
    expect(root.locator("pre")).to_contain_text('"a"')
    root.get_by_label("Thread", exact=True).select_option("1")
    expect(root.locator("pre")).to_contain_text('"b"')
    opened.kernel.says("shown.position", "2")


def test_a_live_state_is_edited_and_a_turn_gone_back_to(notebook: Open, cells_of: Open, shot: Open) -> None:
    cells = cells_of(
        "Run",
        ["harness = scenes.memory_harness()\nawait scenes.memory_turns(harness, 2)", "MemoryView(harness)"],
    )
    opened = notebook(*cells)
    opened.run_all()
    root = opened.view
    edit = root.get_by_role("button", name="Edit the state now")
    edit.click()
    field = root.get_by_label("The state as JSON")
    expect(field).to_be_focused()
    shot(root, "memory-edit")

    field.fill("{")
    opened.page.keyboard.press("Control+Enter")
    expect(root.get_by_text("INVALID_STATE")).to_be_visible()
    opened.kernel.run("await harness.memory('ann').edit('trip', {'city': 'Paris', 'visits': [], 'travellers': 1})")
    root.get_by_role("button", name="Save").click()
    expect(root.get_by_text("INVALID_STATE")).to_be_visible()
    field.fill('{"city": "Ulm", "visits": [], "travellers": 1}')
    root.get_by_role("button", name="Save").click()
    expect(root.get_by_text("STATE_CHANGED")).to_be_visible()
    field.focus()
    opened.page.keyboard.press("Escape")
    expect(field).to_be_hidden()

    edit.click()
    expect(field).to_have_value('{\n  "city": "Paris",\n  "visits": [],\n  "travellers": 1\n}')
    field.fill('{"city": "Ulm", "visits": [], "travellers": 1}')
    root.get_by_role("button", name="Save").click()

    expect(root.get_by_text("Saved. It takes effect")).to_be_visible()
    expect(root.locator(".nn-writes tbody tr").first).to_contain_text("edited by hand")
    opened.kernel.run("state = await harness.memory('ann').state('trip')")
    opened.kernel.says("state['city']", "'Ulm'")
    root.locator(".nn-writes tbody tr").last.click()
    root.get_by_role("button", name="Go on from the end of turn 1 in a fork").click()
    expect(root.get_by_text("Thread ann@1 goes on from the end of turn 1")).to_be_visible()
