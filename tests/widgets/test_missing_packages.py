"""In the browser, a missing package is reported in a sentence, and later cells do not use stale values."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from noetic_nb.widgets.base._missing_packages import NEEDS, GoOnWithout


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("pandas", "cel"):
        monkeypatch.setitem(sys.modules, name, None)
    made = InteractiveShell()
    GoOnWithout(made).install()
    yield made
    made.history_manager.end_session()


def run(shell: Any, cell: str, capsys: pytest.CaptureFixture[str]) -> str:
    shell.run_cell(cell, store_history=True)
    return capsys.readouterr().out


def test_a_missing_package_is_a_sentence(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    said = run(shell, "import pandas as pd", capsys)

    assert said == (
        "Tables need pandas, which a page in the browser cannot carry. The next cells go on; `make lab` runs this one too.\n"
    )


def test_what_a_cell_could_not_make_is_missed_by_name(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run(shell, "import noetic_nb as nn\nkept = 1", capsys)
    said = run(shell, "book = nn.RuleBook()\nbook.when('tool.args.n > 5', id='five')", capsys)
    assert said.startswith("Conditions in CEL need the package common-expression-language.")

    assert run(shell, "size = len(book)", capsys).startswith("`book` was not made here. Conditions in CEL")
    assert run(shell, "size", capsys).startswith("`size` was not made here. Conditions in CEL")
    assert run(shell, "kept, nn.deny", capsys) != ""
    assert run(shell, "book = 3\nbook", capsys).endswith("3\n")


@pytest.mark.parametrize("cell", ["1 / 0", "never_made", "import my_own_code"])
def test_every_other_error_is_shown_as_ever(shell: Any, capsys: pytest.CaptureFixture[str], cell: str) -> None:
    for _ in range(2):  # the check stays active
        assert "Traceback" in run(shell, cell, capsys)
    assert "Tables need pandas" in run(shell, "import pandas", capsys)


def test_each_sentence_names_a_package_once() -> None:
    assert all(len(words.split(" need")) == 2 for words in NEEDS.values())
