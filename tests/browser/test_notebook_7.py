"""The views in Notebook 7, which shares widgets with JupyterLab but has its own page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.browser.window import LIVE

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.lab import Lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Lab]:
    from tests.browser.lab import Lab

    server = Lab(tmp_path_factory.mktemp("notebook"), "notebook")
    yield server
    server.close()


def test_the_views_of_the_tour_are_live_in_notebook_7(
    notebook: Callable[..., Any], cells_of: Callable[..., list[str]], shot: Callable[..., Any]
) -> None:
    opened = notebook(
        *cells_of("Run", ["TokenAllocation(run)", "RegulatorTrends(run)", "Ledger(run)"]),
        "from noetic_nb import plots\nplots.trends(run)",
    )
    # An error of Notebook itself at start-up: it requests settings of a JupyterLab plug-in that it does not have.
    opened.tolerated = re.compile("reading 'schema'")
    opened.run_all()
    live = opened.page.locator(LIVE)
    expect(live).to_have_count(3)
    assert "Notebook" in opened.page.evaluate("window.jupyterapp.name")

    opened.kernel.run("for event in scenes.demo_run().events: run.append(event)")
    expect(live.filter(has_text="Regulator trends").locator(".nn-sub")).to_contain_text("2,220 of 2,000 output tokens")
    allocation = live.filter(has_text="Token allocation")
    expect(allocation.locator(".nn-sub")).to_contain_text("Turn 6, call 1")
    allocation.get_by_role("slider", name="Model call").focus()
    opened.page.keyboard.press("Home")
    expect(allocation.locator(".nn-sub")).to_contain_text("Turn 1, call 1")
    expect(opened.page.locator(".jp-RenderedImage img")).to_have_count(1)
    shot(opened.page, "notebook-7")
