"""In JupyterLab: the display of cells that end with an object of the library, in both themes, wide and narrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.appearance import assert_each_readable_and_contained
from tests.unit.card_gallery import gallery

Open = Callable[..., Any]
MADE = """
from tests.unit.card_gallery import gallery
things = gallery()
"""


@pytest.mark.parametrize("names", [tuple(gallery())], ids=["all"])
def test_a_cell_shows_each_as_a_card_that_can_be_read(names: tuple[str, ...], notebook: Open, shot: Open) -> None:
    opened = notebook(MADE, f"display(*[things[name] for name in {names!r}])")
    opened.run_all()
    page = opened.page
    card = page.locator(".nn-card")
    count = card.count()
    assert count >= len(names) - 4  # some are text only
    assert page.locator(".nn-card .MathJax, .nn-card mjx-container").count() == 0
    expect(card.filter(has_text="It was $5 and $6.").first).to_be_visible()

    for theme in opened.themes():
        for width in (1400, 420):
            page.set_viewport_size({"width": width, "height": 8_000})
            expect(card).to_have_count(count)
            assert_each_readable_and_contained(card)
            card.first.scroll_into_view_if_needed()
            shot(page, f"cards-{theme}-{width}")
