"""Lessons: paired with their sources, short, told in the same way; their answers are right in the teacher's edition."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from noetic_nb.lessons import EXERCISES
from notebooks import build
from tests.matrix import matrix
from tests.notebooks.shown import ROOT

SOURCES = sorted((ROOT / "notebooks" / "sources").glob("[01][0-9]_*.py"))[1:]  # the tour is told in another way
each_lesson = pytest.mark.parametrize("source", SOURCES, ids=[source.stem for source in SOURCES])


@pytest.fixture(autouse=True)
def kernels_find_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def kept(source: Path) -> Any:
    return nbformat.read(ROOT / "notebooks" / f"{source.stem}.ipynb", as_version=4)


def number_of(source: Path) -> str:
    return source.stem.split("_")[0].lstrip("0")


@each_lesson
def test_the_copy_for_students_is_the_one_that_its_source_makes(source: Path) -> None:
    made, on_disk = build.for_students(build.read(source)), kept(source)

    assert [(cell.id, cell.cell_type, cell.metadata, cell.source) for cell in on_disk.cells] == [
        (cell.id, cell.cell_type, cell.metadata, cell.source) for cell in made.cells
    ]
    assert on_disk.metadata == made.metadata
    assert not [cell for cell in on_disk.cells if build.tags(cell) & build.TEACHER_ONLY]


@each_lesson
def test_a_lesson_is_kept_with_what_it_shows_and_without_live_views(source: Path) -> None:
    on_disk = kept(source)
    cells = [cell for cell in on_disk.cells if cell.cell_type == "code"]

    assert "widgets" not in on_disk.metadata
    assert build.WIDGET_MIME not in nbformat.writes(on_disk)
    assert not [output for cell in cells for output in cell.outputs if output.output_type == "error"]
    assert sum(bool(cell.outputs) for cell in cells) >= 8


@each_lesson
def test_a_lesson_is_told_like_the_others(source: Path) -> None:
    cells = kept(source).cells
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    kinds = "".join("c" if cell.cell_type == "code" else "m" for cell in cells)
    first, last = cells[0].source, cells[-1].source

    assert len(cells) <= 40
    assert re.match(rf"# {source.stem[:2]} · ", first)
    assert "**By the end you can**" in first
    assert re.search(r"\*\*\d+ minutes\.\*\*", first)
    assert "## What this does not show" in last
    assert "**Next.**" in last
    assert prose.count("**Predict.**") >= 3
    assert "ccc" not in re.sub("^mc", "", kinds).replace("mcccm", "")
    checks = [cell for cell in cells if "check" in build.tags(cell)]
    exercises = [cell for cell in cells if "exercise" in build.tags(cell)]
    assert 2 <= len(checks) <= 4
    asked = [re.fullmatch(r'check\("([\d.]+)", (\w+)\)', cell.source) for cell in checks]
    assert [(each[1], each[2]) for each in asked if each] == [
        (exercise.id, exercise.answer)
        for exercise in EXERCISES.values()
        if exercise.id.split(".")[0] == number_of(source)
    ]
    assert len(exercises) == len(checks)


def globals_of(source: str) -> set[str]:
    """Return the names that a cell leaves in its notebook, and not those inside of its functions."""
    found, waiting = set[str](), list[ast.AST](ast.parse(source).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
        elif not isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            waiting += ast.iter_child_nodes(node)
    return found


@each_lesson
def test_no_lesson_uses_the_name_of_an_answer_to_another(source: Path) -> None:
    # A class is graded by name: what bears one would be taken for an answer.
    bound = {name for cell in kept(source).cells if cell.cell_type == "code" for name in globals_of(cell.source)}
    others = {exercise.answer for exercise in EXERCISES.values() if exercise.id.split(".")[0] != number_of(source)}

    assert not bound & others


@matrix("source", SOURCES, keep=1, start=4, ids=lambda source: source.stem)
def test_in_the_teachers_edition_every_answer_is_right(source: Path) -> None:
    notebook = build.run(build.for_teachers(build.read(source)))
    verdicts = [cell.outputs[0].data["text/plain"] for cell in notebook.cells if "check" in build.tags(cell)]

    assert verdicts
    assert all(verdict.endswith(": right.") for verdict in verdicts), verdicts
    assert any("notes" in build.tags(cell) for cell in notebook.cells)


def test_slides_are_one_page_without_script_or_network_and_every_cell_is_on_one() -> None:
    notebook = kept(SOURCES[0])
    firsts, page = build.first_of_slides(notebook), build.slides(notebook)
    _, *each = page.split('<section class="slide">')
    on_slides = [re.findall(r'id="cell-id=([\w-]+)"', slide.split("</section>")[0]) for slide in each]

    assert [cells[0] for cells in on_slides] == firsts
    assert [cell for cells in on_slides for cell in cells] == [cell.id for cell in notebook.cells]
    assert page.count("</section>") == len(firsts)
    assert "<script" not in page
    assert not re.findall(r"""(?:src|href)=["']https?://""", page)


def test_what_answers_a_prediction_is_on_another_slide() -> None:
    notebook = kept(SOURCES[0])
    firsts = build.first_of_slides(notebook)

    asked = [number for number, cell in enumerate(notebook.cells) if "**Predict.**" in cell.source]
    assert all(notebook.cells[number + 1].id in firsts for number in asked)


def test_a_lesson_that_shows_the_same_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sources").mkdir()
    source = tmp_path / "sources" / "09_small.py"
    source.write_text(
        "# %%\nimport random\nfrom IPython.display import Image, display\nprint(object())\nprint('b', flush=True)\n"
        "display(Image(random.randbytes(8), format='png', embed=True))\n'text'\n"
    )
    monkeypatch.setattr(build, "HERE", tmp_path)
    monkeypatch.setattr(build, "SOURCES", tmp_path / "sources")
    written: list[bytes] = []
    for arguments, change in ((), ""), ((), ""), (("--again",), ""), ((), "1 + 1\n"):
        with source.open("a") as file:
            file.write(change)
        monkeypatch.setattr("sys.argv", ["build.py", *arguments])
        assert build.main() == 0
        written.append((tmp_path / "09_small.ipynb").read_bytes())

    first, same, again, changed = written
    assert first == same
    assert again != same, "another picture"
    assert b"1 + 1" in changed
    cell = nbformat.reads(first.decode(), as_version=4).cells[0]
    assert [output.output_type for output in cell.outputs] == ["stream", "display_data", "execute_result"]
