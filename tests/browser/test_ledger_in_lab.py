"""The ledger in JupyterLab: folding, search, pages, keys, and hostile guidance that stays text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.matrix import matrix

Open = Callable[..., Any]


@matrix("scene", ["demo_run", "Run", "hostile_run"], keep=1)
def test_ledger_is_readable_in_both_themes_and_at_every_width(
    notebook: Open, cells_of: Open, looks: Open, scene: str
) -> None:
    opened = notebook(*cells_of(scene, ["Ledger(run)"]))
    opened.run_all()
    root = opened.view
    root.wait_for()

    looks(opened, root, f"ledger-{scene}")
    assert root.locator("script, img, b, iframe, [onload], [onerror]").count() == 0


def test_ledger_follows_and_filters(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("Run", ["shown = Ledger(run)\nshown"]))
    opened.run_all()
    root = opened.view
    opened.kernel.run("for e in scenes.decisions(): run.append(e)")
    rows = root.locator(".nn-ledger > tbody > tr")
    expect(rows).to_have_count(4)
    expect(rows.first).to_contain_text("response")

    root.get_by_role("button", name="deny 1").click()

    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("no_late_cancellation")
    opened.kernel.says("shown.only", "'deny'")
    expect(root.get_by_role("status").first).to_have_text("1 of 4 decisions")


MANY = """
from noetic_nb.events import *
where = lambda n: Where("t1", f"e{n}", n)
def entry(n):
    if n % 9:
        return SteeringDecided(where(n), 1.0, "steering", "before_tool_call", "search", {"n": n}, "allow", None, (), 0.1)
    return SteeringDecided(where(n), 1.0, "steering", "before_tool_call", "refund", {"order": f"A{n}"}, "deny",
                           f"Order A{n} is too old.", ("late",), 0.1)
run = nn.Run(events=[entry(n) for n in range(10_000)])
"""


def test_ten_thousand_decisions_are_searched_and_paged_within_a_tenth_of_a_second(
    notebook: Open, cells_of: Open
) -> None:
    cells = cells_of(
        "Run", [f"import noetic_nb as nn{MANY}", "selection = Selection()", "Ledger(run, selection=selection)"]
    )
    opened = notebook(*cells)
    opened.run_all()
    root = opened.view
    rows = root.locator(".nn-ledger > tbody > tr")
    expect(root.get_by_role("status").first).to_have_text("10,000 decisions")
    expect(rows.nth(1)).to_have_text("8 allowed")

    root.get_by_role("searchbox").fill("a9 late")  # before measuring: the texts are indexed once

    expect(root.get_by_role("status").first).to_have_text("127 of 10,000 decisions")
    took = root.evaluate(PAINTED, "a99")
    print(f"filter over 10 000 rows: {took:.0f} ms to paint")
    root.get_by_role("button", name="Clear").click()
    root.get_by_role("button", name="deny 1,112").click()
    expect(root.get_by_role("status").first).to_have_text("1,112 of 10,000 decisions")
    for _ in range(18):
        root.get_by_role("button", name="Older").click()
    expect(root.locator(".nn-pager")).to_contain_text("lines 1,081 to 1,112 of 1,112")
    expect(rows.last).to_contain_text("A0")


# From the key press to the painted picture.
PAINTED = """(root, text) => new Promise((resolve) => {
  const status = root.querySelector('[role=status]');
  const before = status.textContent;
  const input = root.querySelector('input[type=search]');
  let start = 0;
  new MutationObserver(() => requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - start))))
    .observe(status, {childList: true, characterData: true, subtree: true});
  input.value = text;
  start = performance.now();
  input.dispatchEvent(new Event('input'));
})"""


def test_keys_open_folds_show_details_and_choose_for_other_views(notebook: Open, cells_of: Open, shot: Open) -> None:
    cells = cells_of(
        "Run", [f"import noetic_nb as nn{MANY}", "selection = Selection()", "Ledger(run, selection=selection)"]
    )
    opened = notebook(*cells)
    opened.run_all()
    root = opened.view
    rows = root.locator(".nn-ledger > tbody > tr")
    expect(rows.nth(2)).to_contain_text("deny")
    count = rows.count()

    rows.nth(1).focus()
    opened.page.keyboard.press("ArrowUp")

    expect(root.locator(".nn-detail")).to_contain_text("deny: refund")
    expect(root.locator(".nn-detail")).to_contain_text("is too old.")
    expect(root.locator(".nn-detail")).to_contain_text("Written by")
    opened.page.keyboard.press("Enter")
    expect(rows.first).to_have_attribute("aria-selected", "true")
    opened.kernel.says("selection.decision, selection.turn", "(9999, 9999)")
    opened.settle()
    opened.page.keyboard.press("ArrowDown")
    opened.page.keyboard.press("Enter")
    expect(rows).to_have_count(count + 8)
    expect(rows.nth(1)).to_have_attribute("aria-expanded", "true")
    shot(root, "ledger-many")
    opened.page.keyboard.press("Enter")
    expect(rows).to_have_count(count)

    opened.kernel.run("selection.select(decision=4500)")

    expect(root.locator("[aria-selected=true]")).to_contain_text("A4500")
