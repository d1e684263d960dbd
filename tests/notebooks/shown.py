"""What a notebook shows, as text and html, after one mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import nbformat
import pytest
from nbclient import NotebookClient
from nbmake.nb_result import NotebookResult
from nbmake.nb_run import NotebookRun

from notebooks.build import shown

T = TypeVar("T")
ROOT: Final = Path(__file__).parents[2]
TIMEOUT_S: Final = 120
"""Of a cell; as in the options of pytest."""


def run(path: Path, order: Sequence[int]) -> dict[int, list[tuple[str, str]]]:
    """Run the code cells of a notebook in a fresh kernel and in this order; return what each shows, by its number among them."""
    notebook: Any = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    notebook.cells = [cells[number] for number in order]
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT_S,
        kernel_name="python3",
        store_widget_state=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    with_a_kernel(client.execute)
    return {number: shown(cell) for number, cell in zip(order, notebook.cells, strict=True)}


def with_a_kernel(execute: Callable[[], T]) -> T:
    """Run a notebook whose kernel finds the library as it is here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        try:
            return execute()
        except RuntimeError as exc:
            # A port that was free when it was chosen may be taken by a page or another kernel before this one has it.
            if "Kernel didn't respond" not in str(exc):
                raise
            return execute()


class SharedRun(NotebookRun):
    """A run of nbmake, from top to bottom: once for nbmake and for all tests that ask what the notebook shows.

    What shares it shares a worker (tests/conftest.py).
    """

    def execute(self) -> NotebookResult:
        if self.kernel or self.find_import_errors:
            return super().execute()
        return _executed(Path(self.filename), self.default_timeout)


@cache
def _executed(path: Path, timeout_s: int) -> NotebookResult:
    return with_a_kernel(NotebookRun(path, timeout_s).execute)


def first_run(path: Path) -> dict[int, list[tuple[str, str]]]:
    """Return what each code cell of a notebook shows that is run from top to bottom, by its number among them."""
    result = SharedRun(path, TIMEOUT_S).execute()
    assert result.error is None, result.error.trace
    cells = [cell for cell in result.nb.cells if cell.cell_type == "code"]
    return {number: shown(cell) for number, cell in enumerate(cells)}
