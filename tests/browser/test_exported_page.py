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
from tests.browser.looks import MARKS

VIEWS = ("TokenAllocation", "RegulatorTrends", "Ledger")


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


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (420, False)])
def test_exported_pictures_need_neither_scripts_nor_network(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quiet_page: Callable[..., Any],
    shot: Callable[..., Any],
    width: int,
    dark: bool,
) -> None:
    cells = ["from noetic_nb.widgets import *\nfrom tests.widgets import scenes\nrun = scenes.demo_run()"]
    path = export(tmp_path, [*cells, *(f"{view}(run)" for view in VIEWS)], monkeypatch)

    page = quiet_page(path, width=width, dark=dark)

    shot(page, f"exported-{width}")
    for at in range(len(VIEWS)):
        picture = page.locator(".noetic-nb-static").nth(at)
        expect(picture).to_be_visible()
        box = picture.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width
        assert picture.locator("table").first.is_visible()
    areas = [
        mark.bounding_box() for mark in page.locator(".noetic-nb-static >> nth=0 >> .nn-bar >> nth=0 >> .nn-mark").all()
    ]
    assert len(areas) >= 8
    assert all(box is not None and box["width"] * box["height"] > 0 for box in areas)
    assert MARKS  # the same marks that the live view is checked for


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
