"""Hostile text on a live page: all views with every text as every name; nothing runs, connects elsewhere or breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.appearance import assert_contained, at_width
from tests.matrix import sampled

Open = Callable[..., Any]

RUN = """
from noetic_nb.runs import Run
from noetic_nb.steering import RuleBook
from noetic_nb.widgets import *
from tests.widgets.hostile_texts import HOSTILE_TEXTS, hostile_run
run = Run("hostile")
for text in HOSTILE_TEXTS.values():
    for event in hostile_run(text).events:
        run.append(event)
rules = RuleBook([{"id": f"{n} {name}", "name": text[:200], "applies_to": ["before_tool_call"], "when": "false", "guidance": "-"}
                  for n, (name, text) in enumerate(HOSTILE_TEXTS.items())])
"""

ELEMENTS = (
    "script, img:not([src^='data:image/svg+xml;base64,']), b, i, h1, iframe, object, embed, form, meta, link, base, math, "
    "[onload], [onerror], [onclick], [srcdoc]"
)


@pytest.mark.matrix
def test_hostile_text_is_text_on_a_live_page(notebook: Open, shot: Open) -> None:
    shows = ["TokenAllocation(run)", "RegulatorTrends(run)", "Ledger(run)", "RuleEditor(rules, run=run)"]
    opened = notebook(RUN, *shows)
    opened.run_all()
    page = opened.page
    ledger = page.get_by_role("group", name="Ledger")
    expect(ledger).to_be_visible()

    for name in sampled(["__proto__", "constructor", "toString", "<script>alert(1)</script>"], keep=2):
        chip = ledger.locator(".nn-chip").filter(has_text=name).first
        chip.click()
        expect(chip).to_have_attribute("aria-pressed", "true")
        row = ledger.locator(".nn-ledger > tbody > tr:not(.nn-fold)").first
        expect(row).to_contain_text(name)
        row.click()
        expect(ledger.locator(".nn-detail-head")).to_contain_text(name)
        chip.click()
    ledger.get_by_role("searchbox").fill("</style><script>")
    expect(ledger.get_by_role("status").first).to_contain_text(" of ")

    for root in page.locator(".noetic-nb, .nn-editor").all():
        assert root.locator(ELEMENTS).count() == 0
    faults = [text for text in page.locator(".nn-fault").all_inner_texts() if text.strip()]
    assert faults == []
    assert page.evaluate("() => [({}).polluted, document.title.includes('evil'), window.name]") == [None, False, ""]
    for width in (1400, 420):
        at_width(ledger, width)
        assert_contained(ledger)
        shot(ledger, f"ledger-all-hostile-{width}")
