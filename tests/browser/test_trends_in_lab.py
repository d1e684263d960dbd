"""The regulator's trends in JupyterLab: drawn, followed, and readable in both themes and at every width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.browser.appearance import assert_contained, assert_marks_have_area
from tests.browser.lab import wait_for
from tests.browser.window import LIVE
from tests.matrix import matrix

Open = Callable[..., Any]


@matrix("scene", ["demo_run", "watched_run", "one_turn_run", "long_run", "hostile_run", "Run"], keep=1, start=3)
def test_trends_are_readable_in_both_themes_and_at_every_width(
    notebook: Open, cells_of: Open, looks: Open, scene: str
) -> None:
    opened = notebook(*cells_of(scene, ["RegulatorTrends(run)"]))
    opened.run_all()
    root = opened.view
    root.wait_for()

    least = 0 if scene == "Run" else 4
    looks(opened, root, f"trends-{scene}", also=lambda: assert_marks_have_area(root, at_least=least))
    assert root.locator("script, img, b, iframe, [onload], [onerror]").count() == 0


def test_trends_follow_a_live_run_to_its_break(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("Run", ["RegulatorTrends(run)"]))
    opened.run_all()
    root = opened.view
    expect(root.locator(".nn-empty")).to_be_visible()

    opened.kernel.run("for e in scenes.demo_run().events: run.append(e)")

    expect(root.locator(".nn-sub")).to_contain_text("2,220 of 2,000 output tokens")
    expect(root.locator(".nn-list li")).to_have_count(2)
    expect(root.locator(".nn-list")).to_contain_text("Turn 6, circuit break: cost cap, turn stopped")


def test_another_thread_can_be_chosen(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("two_threads_run", ["shown = RegulatorTrends(run)\nshown"]))
    opened.run_all()
    root = opened.view
    expect(root.locator(".nn-sub")).to_contain_text("thread t2")

    root.get_by_role("combobox").select_option(label="t1")

    expect(root.locator(".nn-sub")).to_contain_text("thread t1")


WATCHED = (
    "from noetic_nb.widgets import *\nfrom tests.widgets import scenes\n"
    "run = scenes.watched_run()\nview = RegulatorTrends(run)"
)


def grip(root: Any, name: str) -> Any:
    return root.locator(".nn-grip").and_(root.get_by_role("slider", name=name))


def decided(opened: Any, thresholds: str) -> int:
    """Return the turn in which these thresholds would break first, according to the kernel; 0 for none."""
    opened.kernel.run(f"found = view.what_if({thresholds}); stops = found[found['stops']]")
    return int(opened.kernel.value("int(stops.iloc[0]['turn']) if len(stops) else 0"))


def test_a_threshold_dragged_by_mouse_is_decided_again_by_the_real_regulator(notebook: Open, shot: Open) -> None:
    opened = notebook(WATCHED, "view")
    opened.run_all()
    root = opened.view
    poor = grip(root, "quality decline: poor mean")
    expect(poor).to_have_attribute("aria-valuenow", "0.5")
    box = poor.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    opened.page.mouse.move(x, y)
    opened.page.mouse.down()
    for step in range(1, 9):
        opened.page.mouse.move(x, y + 2 * step)
    opened.page.mouse.up()

    now = float(poor.get_attribute("aria-valuenow"))
    assert 0.3 < now < 0.45
    first = decided(opened, f"{{'quality_decline': {{'poor_mean': {now}}}}}")
    was = decided(opened, "{}")
    assert first > was > 0
    expect(root.locator(".nn-outcome")).to_contain_text(
        f"Would break at turn {first} (quality decline) instead of turn {was} (quality decline)."
    )
    expect(root.locator(".nn-would")).not_to_have_count(0)
    shot(root, "trends-dragged")

    root.get_by_role("button", name="As recorded").click()

    expect(poor).to_have_attribute("aria-valuenow", "0.5")
    expect(root.locator(".nn-would")).to_have_count(0)
    expect(root.locator(".nn-outcome")).to_be_hidden()


def test_a_threshold_is_moved_by_keys_and_says_its_value(notebook: Open) -> None:
    opened = notebook(WATCHED, "view")
    opened.run_all()
    root = opened.view
    loop = grip(root, "tool loop: threshold")
    loop.focus()

    for _ in range(3):
        loop.press("ArrowDown")

    expect(loop).to_have_attribute("aria-valuenow", "2")
    expect(loop).to_have_attribute("aria-valuetext", "2, recorded 5")
    first = decided(opened, "{'tool_loop': {'threshold': 2}}")
    expect(root.locator(".nn-outcome")).to_contain_text(f"Would break at turn {first} (tool loop)")

    loop.press("Home")
    expect(loop).to_have_attribute("aria-valuenow", loop.get_attribute("aria-valuemin"))
    loop.press("Escape")
    expect(loop).to_have_attribute("aria-valuetext", "5, as recorded")
    expect(root.locator(".nn-outcome")).to_be_hidden()

    root.get_by_text("Thresholds", exact=True).press("Enter")
    least = root.locator(".nn-numbers").get_by_role("slider", name="quality decline: least fall")
    least.fill("60")  # the 60th stop: 0.6
    expect(least).to_have_attribute("aria-valuenow", "0.6")
    expect(root.locator(".nn-outcome")).to_contain_text("Would not break")


def test_a_dragged_threshold_says_what_it_stops_on_a_bank(notebook: Open, looks: Open) -> None:
    opened = notebook(
        "from noetic_nb import Regulator\nfrom noetic_nb.lab import datasets\nfrom noetic_nb.widgets import *\n"
        "view = RegulatorTrends(datasets.airline_run(26), regulator=Regulator.for_user('ann'), bank=datasets.airline())",
        "view",
    )
    opened.run_all()
    root = opened.view
    loop = grip(root, "tool loop: threshold")
    for _ in range(3):
        loop.press("ArrowUp")

    expect(loop).to_have_attribute("aria-valuenow", "8")
    expect(root.locator(".nn-bank")).to_have_text(
        "Of the 20 runs of the bank it would stop 1 of 10 failed ones (10 %, 95 % interval 1 to 49 %) "
        "and 1 of 10 good ones (10 %, 95 % interval 1 to 48 %)."
    )
    looks(opened, root, "trends-bank")

    loop.press("Escape")
    expect(root.locator(".nn-outcome")).to_be_hidden()


def test_a_turn_is_read_by_keys_chosen_and_marked_in_every_view(notebook: Open) -> None:
    opened = notebook(
        f"{WATCHED}\nchoice = Selection()\none, two = (RegulatorTrends(run, selection=choice) for _ in range(2))",
        "one",
        "two",
    )
    opened.run_all()
    live = opened.page.locator(LIVE)
    first, second = live.nth(0), live.nth(1)
    turns = first.get_by_role("slider", name="Turn", exact=True)
    turns.focus()
    turns.press("Home")
    for _ in range(3):
        turns.press("ArrowRight")
    expect(first.locator(".nn-readout")).to_contain_text("Turn 4")
    expect(turns).to_have_attribute("aria-valuenow", "4")

    turns.press("Enter")

    expect(second.locator(".nn-chosen")).to_have_attribute("data-turn", "4")
    opened.kernel.says("choice", "Selection(thread_id='t1', turn=4)")
    opened.kernel.run("choice.select(turn=9)")
    expect(first.locator(".nn-chosen")).to_have_attribute("data-turn", "9")


def test_ten_thousand_turns_share_columns_whose_turns_can_be_listed(notebook: Open, shot: Open) -> None:
    opened = notebook(WATCHED.replace("watched_run()", "long_run(10_000)"), "view")
    opened.run_all()
    root = opened.view
    root.wait_for()
    expect(root.locator(".nn-note")).to_contain_text("Each column is 64 turns")
    assert_contained(root)
    shot(root, "trends-10000")

    turns = root.get_by_role("slider", name="Turn", exact=True)
    turns.focus()
    turns.press("Home")
    turns.press("Enter")

    inside = root.get_by_role("region", name="Turns of a column")
    expect(inside.locator("tbody tr")).to_have_count(64)
    inside.get_by_role("button", name="7", exact=True).click()
    expect(root.locator(".nn-chosen")).to_have_attribute("data-turn", "7")


def test_a_run_that_nobody_watched_draws_no_threshold_until_a_regulator_is_passed(notebook: Open) -> None:
    opened = notebook(
        "from noetic_nb import Regulator\nfrom noetic_nb.lab import datasets\nfrom noetic_nb.widgets import *\n"
        "run = datasets.airline_run(26)",
        "RegulatorTrends(run)",
        "RegulatorTrends(run, regulator=Regulator.for_user('airline'))",
    )
    opened.run_all()
    live = opened.page.locator(LIVE)
    bare, given = live.nth(0), live.nth(1)
    expect(bare.locator(".nn-note").last).to_contain_text("No regulator watched this run")
    expect(bare.locator(".nn-rule")).to_have_count(0)
    assert bare.locator(".nn-grip:visible").count() == 0

    loop = grip(given, "tool loop: threshold")
    loop.press("ArrowDown")

    expect(given.locator(".nn-outcome")).to_contain_text("Would break at turn")


def test_a_part_of_a_long_thread_is_looked_at_alone(notebook: Open, shot: Open) -> None:
    opened = notebook(WATCHED.replace("watched_run()", "watched_run(400)"), "view")
    opened.run_all()
    root = opened.view
    root.locator(".nn-strip").scroll_into_view_if_needed()
    strip = root.locator(".nn-strip").bounding_box()
    y = strip["y"] + 5

    opened.page.mouse.move(strip["x"] + 0.05 * strip["width"], y)
    opened.page.mouse.down()
    for share in (0.08, 0.12):
        opened.page.mouse.move(strip["x"] + share * strip["width"], y)
    opened.page.mouse.up()

    expect(root.get_by_label("First turn")).not_to_have_value("1")
    first = int(root.get_by_label("First turn").input_value())
    last = int(root.get_by_label("Last turn").input_value())
    assert 1 < first < last < 60
    turns = root.get_by_role("slider", name="Turn", exact=True)
    expect(turns).to_have_attribute("aria-valuemin", str(first))
    expect(turns).to_have_attribute("aria-valuemax", str(last))
    expect(root.locator(".nn-lines .nn-quality-dot")).to_have_count(1)  # there is room for dots again
    shot(root, "trends-part")
    root.get_by_role("button", name="All", exact=True).click()
    expect(turns).to_have_attribute("aria-valuemax", "400")


def test_a_cap_dragged_below_its_curve_says_what_is_missing_and_its_value(notebook: Open, shot: Open) -> None:
    opened = notebook(WATCHED, "view")
    opened.run_all()
    root = opened.view
    cap = grip(root, "cost cap: cap on output tokens")
    cap.focus()
    for _ in range(4):
        cap.press("PageDown")

    said = lambda: cap.get_attribute("aria-valuetext").split(", recorded")[0]  # noqa: E731
    wait_for(lambda: cap.locator(".nn-grip-value").inner_text() == said(), "the value is printed beside its grip")
    expect(root.locator(".nn-lines .nn-half")).to_have_count(1)
    root.get_by_role("slider", name="Turn", exact=True).press("Home")
    for _ in range(30):
        root.get_by_role("slider", name="Turn", exact=True).press("ArrowRight")
    expect(root.locator(".nn-readout")).to_contain_text("missing: mean quality below 0.5")
    shot(root, "trends-cap")
