"""Every notebook says the same each time: as it is kept, from top to bottom, and in another legal order."""

from __future__ import annotations

import random
from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter

from notebooks.build import is_static_form, masked
from tests.kernels.forked import fresh
from tests.matrix import IS_WHOLE, matrix
from tests.notebooks.legal_order import before, shuffled
from tests.notebooks.shown import ROOT, first_run, run, shown

NOTEBOOKS = sorted([*(ROOT / "notebooks").glob("*.ipynb"), *(ROOT / "docs").rglob("*.ipynb")])
LESSONS = [path for path in NOTEBOOKS if (ROOT / "notebooks" / "sources" / f"{path.stem}.py").exists()]
SEED = 3


def code(path: Path) -> list[str]:
    return [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def kept(path: Path) -> dict[int, list[tuple[str, str]]]:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    return {number: shown(cell) for number, cell in enumerate(cells)}


def test_pages_of_the_documentation_are_among_them() -> None:
    assert {"replays", "00_tour"} <= {path.stem for path in NOTEBOOKS}


def without_static_forms(shows: dict[int, list[tuple[str, str]]]) -> dict[int, list[tuple[str, str]]]:
    return {
        number: [(kind, text) for kind, text in pairs if kind != "text/html" or not is_static_form(text)]
        for number, pairs in shows.items()
    }


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_shows_what_is_kept(path: Path) -> None:
    # Kept is what was shown when the notebook was made, of views their text.
    assert without_static_forms(first_run(path)) == kept(path)


@pytest.mark.timeout(900)
@matrix("path", NOTEBOOKS, keep=2, start=15, ids=lambda path: path.stem)
def test_a_notebook_shows_the_same_in_another_order(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")  # what hangs on the number of processors shows
    with fresh():  # what hangs on the order of a set shows
        elsewhere = run(path, shuffled(code(path), SEED))

    assert elsewhere == first_run(path)


@pytest.mark.skipif(not IS_WHOLE, reason="the tour twice in one kernel: make fuzz, .ci/run")
@matrix("seed", range(1, 9), keep=1)
def test_the_cells_of_the_tour_show_the_same_again_in_any_order_after_a_run_of_all(seed: int) -> None:
    path = ROOT / "notebooks" / "00_tour.ipynb"
    cells = list(range(len(code(path))))
    again = random.Random(seed).sample(cells, len(cells))

    assert run(path, [*cells, *again]) == first_run(path)


@pytest.mark.parametrize("path", LESSONS, ids=[path.stem for path in LESSONS])
def test_the_cells_of_a_lesson_may_run_in_another_order(path: Path) -> None:
    sources = code(path)

    assert shuffled(sources, SEED) != list(range(len(sources)))
    assert all(needs < set(range(number)) for number, needs in enumerate(before(sources)) if number > 4)


@pytest.mark.parametrize(
    ("cells", "needs"),
    [
        (["a = 1", "b = 2", "a + b"], [set(), set(), {0, 1}]),
        (["a = 1", "print(a)", "a = 2", "print(a)"], [set(), {0}, {0, 1}, {2}]),
        (["h = make()", "await h.execute()", "view(h)", "await h.execute()"], [set(), {0}, {0, 1}, {0, 1, 2}]),
        (["r = Book()\nh = make(r)", "@r.rule\ndef f(): ...", "view(h)"], [set(), {0}, {0, 1}]),
        (["import nn", "nn.use()", "nn.use()"], [set(), {0}, {0}]),
        (["async def f(): ...", "await f()", "await f()"], [set(), {0}, {0}]),
        (["d = {}", "d['x'] = 1", "d['x']"], [set(), {0}, {0, 1}]),
    ],
    ids=["names", "bound anew", "awaited methods", "decorators", "modules", "functions", "items"],
)
def test_which_cells_must_come_before(cells: list[str], needs: list[set[int]]) -> None:
    assert before(cells) == needs


def test_the_mask_hides_addresses_and_names_of_outputs_only() -> None:
    text = "<f at 0x7f0bc8604f40> id=nn-b5f7e1e193f545589fd7bb8cc0fb6ee4 cost 0x12 118/151 item_36b2212d10240e36"

    assert masked(text) == "<f at ***> id=*** cost 0x12 118/151 item_36b2212d10240e36"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_every_picture_that_is_kept_is_described(path: Path) -> None:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    pictures = [output for cell in cells for output in cell.outputs if "image/png" in output.get("data", {})]

    assert [picture for picture in pictures if not picture.metadata.get("image/png", {}).get("alt")] == []
    if pictures:  # the template for JupyterLab leaves descriptions out; what was just run has HTML of its own
        page, _ = HTMLExporter(template_name="classic").from_filename(str(path))
        assert "No description has been provided for this image" not in page
