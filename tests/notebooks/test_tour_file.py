"""The tour as a file: short, without stored outputs, and the same conversation each time."""

from __future__ import annotations

from pathlib import Path

import nbformat

TOUR = Path(__file__).parents[2] / "notebooks" / "00_tour.ipynb"


def test_the_tour_is_short_and_stores_no_output() -> None:
    notebook = nbformat.read(TOUR, as_version=4)

    assert len(notebook.cells) <= 25
    assert not [cell for cell in notebook.cells if cell.get("outputs")]
    assert "widgets" not in notebook.metadata


def test_every_code_cell_of_the_tour_follows_prose_or_another_cell_of_its_section() -> None:
    cells = nbformat.read(TOUR, as_version=4).cells
    runs = "".join("c" if cell.cell_type == "code" else "m" for cell in cells)

    assert runs.startswith("m")
    assert runs.endswith("m")
    assert "cccc" not in runs, "prose says what to expect before a cell"
