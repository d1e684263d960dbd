"""The tour as a file: short, kept with what it shows, and without an alarm that it does not speak of."""

from __future__ import annotations

from pathlib import Path

import nbformat

from notebooks.build import SOURCES, WIDGET_MIME, read
from tests.notebooks.shown import first_run

TOUR = Path(__file__).parents[2] / "notebooks" / "00_tour.ipynb"
VIEWS = ("Token allocation", "Workbench: run_1_1", "Regulator trends", "Workbench: airline-80-replay")


def test_the_tour_is_short_and_kept_with_what_it_shows_but_no_live_view() -> None:
    notebook = nbformat.read(TOUR, as_version=4)
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    kinds = [kind for output in shown for kind in output.get("data", {})]
    texts = [output["data"].get("text/plain", "") for output in shown if "data" in output]

    assert len(notebook.cells) <= 35
    assert "widgets" not in notebook.metadata
    assert WIDGET_MIME not in kinds
    assert kinds.count("image/png") == 3
    assert [text.split(".")[0] for text in texts if text.startswith(VIEWS)] == [*VIEWS]


def test_the_tour_is_the_one_that_its_source_makes() -> None:
    made, kept = read(SOURCES / "00_tour.py"), nbformat.read(TOUR, as_version=4)

    assert [(cell.id, cell.metadata, cell.source) for cell in kept.cells] == [
        (cell.id, cell.metadata, cell.source) for cell in made.cells
    ]


def test_every_code_cell_of_the_tour_follows_prose_or_another_cell_of_its_section() -> None:
    cells = nbformat.read(TOUR, as_version=4).cells
    runs = "".join("c" if cell.cell_type == "code" else "m" for cell in cells)

    assert runs.startswith("m")
    assert runs.endswith("m")
    assert "cccc" not in runs, "prose says what to expect before a cell"


def test_the_tour_shows_the_alarms_it_speaks_of_and_no_other() -> None:
    texts = [text for cell in first_run(TOUR).values() for kind, text in cell if kind == "text/plain"]

    trends = [text[text.index("Regulator trends") :] for text in texts if "Regulator trends" in text]

    alarms = [[line for line in text.splitlines() if line.startswith("Turn ")] for text in trends]
    assert [[line.split(", turn stopped")[0] for line in lines] for lines in alarms] == [
        ["Turn 4, circuit break: quality decline"],
        ["Turn 4, circuit break: tool loop"],
    ]
