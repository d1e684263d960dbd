"""What a notebook shows, as text and html, after one mask."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import nbformat
from nbclient import NotebookClient

ROOT: Final = Path(__file__).parents[2]
MASK: Final = re.compile(r"0x[0-9a-f]{6,16}|\bnn-(?:live-)?[0-9a-f]{32}\b")
"""The one thing in which two runs may differ: addresses of objects, and the names by which views tell their outputs apart."""


def masked(text: str) -> str:
    return MASK.sub("***", text)


def run(path: Path, order: Sequence[int] | None = None) -> dict[int, list[tuple[str, str]]]:
    """Run the code cells of a notebook in a fresh kernel; return what each shows, by its number among them."""
    notebook: Any = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    notebook.cells = [cells[number] for number in (order or range(len(cells)))]
    client = NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        store_widget_state=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        client.execute()
    except RuntimeError as exc:
        # A port that was free when it was chosen may be taken by a page or another kernel before this one has it.
        if "Kernel didn't respond" not in str(exc):
            raise
        client.execute()
    return {number: shown(cell) for number, cell in zip(order or range(len(cells)), notebook.cells, strict=True)}


@cache
def first_run(path: Path) -> dict[int, list[tuple[str, str]]]:
    """Run a notebook from top to bottom, once for all tests that ask what it shows; they share a worker (tests/conftest.py)."""
    return run(path)


def shown(cell: Any) -> list[tuple[str, str]]:
    """Return what a cell shows, as pairs of a type and a text; pictures and live views are left aside."""
    found: list[tuple[str, str]] = []
    for output in cell.outputs:
        if output.output_type == "stream":
            # In how many pieces a text arrives is no matter.
            begun = found.pop()[1] if found and found[-1][0] == output.name else ""
            found.append((str(output.name), begun + masked(output.text)))
        for kind, text in sorted(output.get("data", {}).items()):
            if kind.startswith("text/"):
                found.append((kind, masked(text)))
    return found
