"""The timeline in JupyterLab: nested, parallel, zoomed by keys, buttons and drag, filtered, and linked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.browser.appearance import assert_contained, assert_marks_have_area, assert_readable, at_width
from tests.matrix import matrix

Open = Callable[..., Any]
SCENES = "from noetic_nb.widgets import *\nfrom tests.widgets import scenes, timeline_scenes\nrun = {scene}"


def opened_on(notebook: Open, scene: str, *shows: str) -> tuple[Any, Any]:
    opened = notebook(SCENES.format(scene=scene), *(shows or ("view = RunTimeline(run)\nview",)))
    opened.run_all()
    root = opened.view
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


@matrix("scene", list(PICTURES), keep=1, start=4)
def test_the_timeline_is_readable_in_both_themes_and_at_every_width(notebook: Open, looks: Open, scene: str) -> None:
    opened, root = opened_on(notebook, PICTURES[scene])
    if scene in ("branches", "failed"):
        root.get_by_role("button", name="Next problem").click()
        root.locator(".nn-tl-about").wait_for()

    looks(opened, root, f"timeline-{scene}")
    if scene != "empty":
        assert_marks_have_area(root, at_least=3)
    assert root.locator("script, img, b, iframe, [onload], [onerror]").count() == 0


def test_a_turn_shows_where_its_time_went(notebook: Open, shot: Open) -> None:
    opened, root = opened_on(notebook, PICTURES["branches"])
    root.locator(".nn-box", has_text="turn 1").first.click()
    parts = root.locator(".nn-tl-parts li")
    expect(parts.first).to_contain_text("%")

    assert root.locator(".nn-tl-time path").count() == parts.count()
    opened.theme("dark")
    for width in (1400, 420):
        at_width(root, width)
        shot(root, f"timeline-time-{width}")
        assert_readable(root)
        assert_contained(root)


def window_of(root: Any) -> list[str]:
    """Return the words in the bars of the picture, row by row."""
    return [text for text in root.locator(".nn-box").all_inner_texts() if text]


def test_a_live_run_grows_in_the_picture(notebook: Open) -> None:
    opened, root = opened_on(notebook, "__import__('noetic_nb').Run()")
    expect(root.locator(".nn-empty")).to_be_visible()

    opened.kernel.run("events = list(timeline_scenes.branches()); [run.append(event) for event in events[:6]]")
    expect(root.get_by_role("button", name="step agent: running")).to_be_visible()
    opened.kernel.run("[run.append(event) for event in events[6:]]")

    expect(root.get_by_role("button", name="step agent: 1.81 s, ok")).to_be_visible()
    expect(root.get_by_role("status")).to_have_text("18 of 20 spans")


def test_keys_move_zoom_and_choose(notebook: Open) -> None:
    opened, root = opened_on(
        notebook,
        "timeline_scenes.branches_run()",
        "selection = Selection()\nRunTimeline(run, selection=selection)",
    )
    root.get_by_role("button", name="turn 1: 2.92 s").focus()
    press = opened.page.keyboard.press
    readout = root.locator(".nn-readout")

    press("ArrowDown")
    expect(readout).to_contain_text("step agent")
    press("ArrowDown")
    press("Home")
    for _ in range(5):
        press("ArrowRight")
    expect(readout).to_have_text("✕ tool refund: 70 ms, error")
    press("Enter")

    expect(root.locator(".nn-tl-about")).to_contain_text("The bank is closed.")
    expect(root.locator("[aria-pressed=true].nn-box")).to_have_count(1)
    opened.kernel.says("selection.call, selection.item, selection.decision", "(0, 1, 11)")

    root.locator("details > summary").last.click()
    rows = root.locator("details tbody > tr")
    rows.first.press("ArrowDown")
    expect(rows.nth(1)).to_be_focused()
    press("Enter")
    expect(root.locator(".nn-tl-about")).to_contain_text("step agent: 1.81 s")
    press("PageDown")  # there is only one page
    rows.filter(has_text="The bank is closed.").first.press(" ")
    expect(root.locator(".nn-tl-about")).to_contain_text("The bank is closed.")

    root.get_by_role("button", name="✕ tool refund: 70 ms, error", exact=True).focus()
    press("+")
    press("+")
    expect(root.get_by_role("button", name="Whole run")).to_be_enabled()
    expect(root.get_by_role("button", name="✕ tool refund: 70 ms, error", exact=True)).to_be_focused()
    press("0")
    expect(root.get_by_role("button", name="Whole run")).to_be_disabled()


HELD = """
import threading
from noetic_nb.widgets.base._page_thread import PAGES
go, selection = threading.Semaphore(0), Selection()
_ = selection.observe(lambda fields: go.acquire(timeout=60))
RunTimeline(run, selection=selection)
"""


def test_a_span_chosen_while_an_earlier_choice_is_on_its_way_stays(notebook: Open) -> None:
    opened, root = opened_on(notebook, "timeline_scenes.branches_run()", HELD)
    about = root.locator(".nn-tl-about")
    root.locator("details > summary").last.click()
    rows = root.locator("details tbody > tr")
    rows.nth(1).press("Enter")
    expect(about).to_contain_text("step agent: 1.81 s")
    rows.filter(has_text="The bank is closed.").first.press(" ")
    opened.page.evaluate(
        "() => { window.frames_ = [requestAnimationFrame]; requestAnimationFrame = (draw) => frames_.push(draw); }"
    )

    opened.kernel.run("go.release()")  # the page hears of the first choice, and of the second span
    opened.kernel.says("selection.call, selection.item, selection.decision", "(0, 1, 11)")
    opened.kernel.run("PAGES.do(go.acquire)")
    opened.page.evaluate("() => { [requestAnimationFrame] = frames_; for (const draw of frames_.slice(1)) draw(); }")
    opened.kernel.run("go.release()")  # the page hears of the second choice
    expect(rows.filter(has_text="The bank is closed.").first).to_have_attribute("aria-selected", "true")
    opened.kernel.run("go.release()")

    for _ in range(2):  # answers, and requests that these cause
        opened.kernel.run("assert PAGES.wait()")
        opened.settle()
    expect(about).to_contain_text("The bank is closed.")
    expect(root.locator("[aria-pressed=true].nn-box")).to_contain_text("refund")


def test_a_part_is_zoomed_by_drag_and_by_buttons(notebook: Open) -> None:
    _opened, root = opened_on(notebook, PICTURES["many"])
    expect(root.get_by_role("status")).to_have_text("8,000 of 10,000 spans")
    many = root.locator(".nn-box[data-tone~=many]")
    assert many.count() > 100
    plot = root.locator(".nn-plotbox").bounding_box()
    mouse = _opened.page.mouse

    mouse.move(plot["x"] + 20, plot["y"] + 25)
    mouse.down()
    mouse.move(plot["x"] + 24, plot["y"] + 25)
    mouse.move(plot["x"] + 28, plot["y"] + 25)
    mouse.up()

    expect(many).to_have_count(0)
    expect(root.get_by_role("button", name="turn 3", exact=False).first).to_be_visible()
    before = window_of(root)
    root.get_by_role("button", name="Later", exact=True).first.click()
    expect(root.get_by_role("button", name="Earlier", exact=True).first).to_be_enabled()
    expect(root.locator(".nn-box").first).not_to_have_text(before[0])
    root.get_by_role("button", name="Whole run").click()
    expect(many.first).to_be_visible()


def test_bars_of_many_open_up_and_ten_thousand_spans_stay_smooth(notebook: Open) -> None:
    opened, root = opened_on(notebook, PICTURES["many"])
    many = root.locator(".nn-box[data-tone~=many]")
    expect(many.first).to_be_visible()
    took = root.evaluate(ZOOMED)
    print(f"zoom in 10 000 spans: {took:.0f} ms to paint")
    opened.kernel.run("from noetic_nb.widgets.base._page_thread import PAGES; assert PAGES.wait()")
    opened.settle()  # the bars of this part are there, and stay where they are

    many.nth(40).click()

    expect(root.get_by_role("button", name="Whole run")).to_be_enabled()
    expect(root.locator(".nn-box[data-wide]").first).to_be_visible()
    assert root.locator(".nn-box").count() < 2_000
    assert opened.problems == []


# From the click to the painted picture.
ZOOMED = """root => new Promise((resolve) => {
  const start = performance.now();
  new MutationObserver((_, seen) => {
    seen.disconnect();
    requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - start)));
  }).observe(root.querySelector('.nn-grid > .nn-axis'), {childList: true, characterData: true, subtree: true, attributes: true});
  root.querySelector('button[title="Zoom in"]').click();
})"""


def test_filters_leave_what_is_wanted(notebook: Open) -> None:
    _opened, root = opened_on(notebook, PICTURES["branches"])
    status, bars = root.get_by_role("status"), root.locator(".nn-box")

    root.get_by_role("button", name="model calls 5").click()
    expect(status).to_have_text("5 of 20 spans")
    expect(bars).to_have_count(5)
    root.get_by_role("button", name="did not go well 3").click()
    expect(bars).to_have_count(1)
    root.get_by_role("button", name="model calls 5").click()
    expect(bars).to_have_count(3)
    root.get_by_role("searchbox").fill("bank")
    expect(bars).to_have_count(1)
    root.get_by_text("Spans as a table").click()
    expect(root.locator("table tbody tr")).to_have_count(1)
    expect(root.locator("table tbody tr")).to_contain_text("refund")


def test_the_order_stands_in_place_of_time(notebook: Open) -> None:
    opened, root = opened_on(notebook, PICTURES["branches"])
    turn = root.get_by_role("button", name="turn 1: 2.92 s")
    root.get_by_label("Hooks").check()
    narrow = root.get_by_role("button", name="hook notes.init", exact=False)
    before = narrow.bounding_box()["width"]

    root.get_by_label("Width").select_option("order")

    expect(root.locator(".nn-grid > .nn-axis text").nth(1)).not_to_contain_text("ms")
    assert narrow.bounding_box()["width"] > 5 * before
    expect(turn).to_be_visible()
    opened.kernel.says("view.scale", "'order'")


def test_a_choice_of_another_view_is_brought_into_the_picture(notebook: Open) -> None:
    opened, root = opened_on(
        notebook,
        PICTURES["many"],
        "selection = Selection()\nview = RunTimeline(run, selection=selection)\nview",
        "Transcript(run, selection=selection)",
    )
    plot = root.locator(".nn-tl-plot")
    plot.wait_for()
    root.locator(".nn-box[data-tone~=many]").nth(3).click()
    expect(root.get_by_role("button", name="Whole run")).to_be_enabled()

    opened.kernel.run("selection.select(thread_id='t1', turn=1500, call=2998)")

    expect(root.locator(".nn-tl-about")).to_contain_text("model fast")
    expect(root.locator(".nn-tl-about")).to_contain_text("Turn: 1500")
    expect(root.locator("[aria-pressed=true].nn-box")).to_have_count(1)

    root.get_by_role("button", name="Next problem").click()

    expect(root.locator(".nn-tl-about")).to_contain_text("tool look: 80 ms, error")
    opened.kernel.says("selection.turn", "1500")
