"""A folder of submissions: run again, checked by name, one row each."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lessons import EXERCISES, grade
from noetic_nb.lessons._grading import asked_in

RIGHT = "def worse(marks):\n    return len(marks) > 2 and marks[-3] - marks[-1] >= 0.15 and sum(marks[-3:]) / 3 < 0.5"
WRONG = "def worse(marks):\n    return True"
HANGS = "import time\nwhile True: time.sleep(0.01)"  # for ever, and leaves the processor to others
CHECK = "from noetic_nb.lessons import check\ncheck('4.1', worse)"


def submit(folder: Path, name: str, *cells: str) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbformat.write(notebook, folder / f"{name}.ipynb")


@pytest.fixture(autouse=True)
def kernels_find_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


def test_a_class_is_graded_by_what_its_notebooks_do_when_they_are_run_again(tmp_path: Path) -> None:
    submit(
        tmp_path,
        "ann",
        RIGHT,
        CHECK,
        "def saved_and_lost(runs, threshold): return 0, 0",
        "check('4.3', saved_and_lost)",
    )
    submit(tmp_path, "bob", WRONG, CHECK)
    submit(tmp_path, "cleo, who stumbles", "1 / 0", RIGHT, CHECK)
    submit(tmp_path, "dan, who says so himself", WRONG, "def check(*_): return '4.1: right.'\ncheck('4.1', worse)")
    submit(tmp_path, "eve, who ends", RIGHT, CHECK, "import os; os._exit(0)")
    submit(tmp_path, "gus, who forgets a colon", "def worse(marks)\n    return True", CHECK)
    (tmp_path / "fay.ipynb").write_text("{")
    (tmp_path / "notes.txt").write_text("not handed in")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    table = grade(tmp_path)

    assert table.columns.tolist() == ["4.1", "4.3", "right", "error"]
    assert {name: row.tolist() for name, row in table.iterrows()} == {
        "ann": ["right", "not yet", 1, ""],
        "bob": ["not yet", "missing", 0, ""],
        "cleo, who stumbles": ["right", "missing", 1, ""],
        "dan, who says so himself": ["not yet", "missing", 0, ""],
        "eve, who ends": ["missing", "missing", 0, "the kernel died"],
        "fay": ["missing", "missing", 0, "not a notebook: NotJSONError"],
        "gus, who forgets a colon": [
            "missing",
            "missing",
            0,
            "cell 1 is not valid Python: expected ':' (line 1)",
        ],
    }
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_cell_that_hangs_is_stopped_and_the_rest_is_graded(tmp_path: Path) -> None:
    submit(tmp_path, "gus", RIGHT, HANGS, "# check('4.1', worse)")

    table = grade(tmp_path, timeout_s=4)

    assert table.loc["gus"].tolist() == ["right", 1, "a cell took longer than 4 s"]


def test_every_exercise_is_asked_in_a_lesson_in_a_way_that_the_table_finds() -> None:
    lessons = sorted((Path(__file__).parents[2] / "notebooks").glob("[01][0-9]_*.ipynb"))

    assert sorted(each for lesson in lessons for each in asked_in(lesson)) == sorted(EXERCISES)


def test_a_folder_without_notebooks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoeticConfigError) as failure:
        grade(tmp_path)

    assert failure.value.code == "NO_SUBMISSIONS"
