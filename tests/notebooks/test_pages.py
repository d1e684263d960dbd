"""The executed pages of the documentation: they run, and what they show is what the code says today."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbconvert.preprocessors import ExecutePreprocessor

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.ipynb"))


def shown(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """Return the words that each code cell shows; how a table is broken into lines is no matter."""
    return [
        [
            word
            for output in cell.outputs
            if output.get("name") != "stderr"
            for word in str(output.get("text") or output.get("data", {}).get("text/plain", "")).split()
        ]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_page_shows_what_its_code_says(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    executed = nbformat.read(page, as_version=4)
    ExecutePreprocessor(timeout=60, kernel_name="python3").preprocess(
        executed, {"metadata": {"path": str(page.parent)}}
    )

    assert shown(executed) == shown(nbformat.read(page, as_version=4))


def test_the_pages_are_found() -> None:
    assert "replays" in [page.stem for page in PAGES]
