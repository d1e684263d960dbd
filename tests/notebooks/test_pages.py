"""The executed pages of the documentation: they run, and what they show is what the code says today."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import nbformat
import pytest

from tests.notebooks.shown import ROOT, first_run, shown

PAGES = sorted((ROOT / "docs").rglob("*.ipynb"))


def words(cells: Iterable[list[tuple[str, str]]]) -> list[list[str]]:
    """Return the words that each code cell shows as text; how a table is broken into lines is no matter."""
    return [
        [word for kind, text in cell if kind in {"stdout", "text/plain"} for word in text.split()] for cell in cells
    ]


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_page_shows_what_its_code_says(page: Path) -> None:
    kept = [cell for cell in nbformat.read(page, as_version=4).cells if cell.cell_type == "code"]

    assert words(first_run(page).values()) == words(shown(cell) for cell in kept)


def test_the_pages_are_found() -> None:
    assert "replays" in [page.stem for page in PAGES]
