"""A notebook exported to HTML and opened without JavaScript and without a network still shows every picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from playwright.sync_api import expect

from tests.browser.lab import ROOT
from tests.widgets.views import RUN_VIEWS

VIEWS = [*(f"{view.__name__}(run)" for view in RUN_VIEWS), "RuleEditor(rules)"]
LEAST_MARKS = {"TokenAllocation(run)": 16, "RegulatorTrends(run)": 19}
FIGURES = ("plots.quality_and_cost(run)", "plots.allocation(run)")
SET_UP = """
from noetic_nb import plots
from noetic_nb.steering import RuleBook, deny
from noetic_nb.widgets import *
from tests.widgets import scenes
run = scenes.demo_run()
rules = RuleBook()

@rules.rule(on="before_tool_call", tools=["pay"])
def never(call):
    return deny("<b>Never</b>")
"""


def export(folder: Path, cells: list[str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Execute a notebook without storing widget state, as `make demo` does, and export it."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, kernel_name="python3", store_widget_state=False).execute()
    html, _ = HTMLExporter(template_name="lab").from_notebook_node(notebook)
    path = folder / "exported.html"
    path.write_text(html, encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [1400, 420])
def test_exported_pictures_need_neither_scripts_nor_network(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quiet_page: Callable[..., Any],
    shot: Callable[..., Any],
    width: int,
) -> None:
    path = export(tmp_path, [SET_UP, *VIEWS, *FIGURES], monkeypatch)

    page = quiet_page(path, width=width)

    page.screenshot(path=shot(page, f"exported-{width}"), full_page=True)
    expect(page.locator(".noetic-nb-static")).to_have_count(len(VIEWS))
    for at in range(len(VIEWS)):
        picture = page.locator(".noetic-nb-static").nth(at)
        expect(picture).to_be_visible()
        box = picture.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width
        assert picture.locator("table").first.is_visible()
    for shown, least in LEAST_MARKS.items():
        picture = page.locator(".noetic-nb-static").nth(VIEWS.index(shown))
        areas = [mark.bounding_box() for mark in picture.locator(".nn-mark").all()]
        assert len(areas) >= least
        assert all(box is not None and box["width"] * box["height"] > 0 for box in areas)
    figures = page.locator(".jp-RenderedImage img")
    expect(figures).to_have_count(len(FIGURES))
    assert page.locator(".noetic-nb-static script").count() == 0


def test_a_view_shown_before_the_run_is_exported_as_it_was_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet_page: Callable[..., Any]
) -> None:
    cells = [
        "from noetic_nb.runs import Run\nfrom noetic_nb.widgets import *\nfrom tests.widgets import scenes\nrun = Run()",
        "TokenAllocation(run)",
        "for n in (1, 2, 3):\n    for event in scenes.turn(n): run.append(event)",
    ]

    page = quiet_page(export(tmp_path, cells, monkeypatch))

    expect(page.locator(".noetic-nb-static .nn-sub")).to_contain_text("Turn 3, call 1")


def test_a_long_live_run_updates_its_output_once_a_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [
        "from noetic_nb.runs import Run\nfrom noetic_nb.widgets import *\nfrom tests.widgets import scenes\nrun = Run()",
        "shown = TokenAllocation(run)\nshown",
        "updates = []\nshown._handle.update = lambda *a, **k: updates.append(a)\n"
        "for n in range(1, 300):\n    for event in scenes.turn(n): run.append(event)",
        "print('updates:', len(updates))",
    ]

    assert "updates: 1\n" in export(tmp_path, cells, monkeypatch).read_text(encoding="utf-8")
