"""Long calls: counted, shown to a person only, and kept when they are interrupted."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from noetic_nb._core import long_work
from noetic_nb._core.long_work import Interrupted, Work, counted
from noetic_nb.errors import NoeticConfigError


def squares(
    numbers: list[int], work: Work, fail_at: int = 0, error: type[BaseException] = KeyboardInterrupt
) -> list[int]:
    found: list[int] = []
    with work:
        for number in work.each(numbers):
            if number == fail_at:
                raise error
            found.append(number * number)
    return found


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a person look on, and every call take long."""
    monkeypatch.setattr(long_work, "_is_watched", lambda: True)
    monkeypatch.setattr(long_work, "FIRST_AFTER", 0.0)
    monkeypatch.setattr(long_work, "LINE_EVERY", 0.0)


def test_an_interrupt_leaves_what_is_done_and_says_how_much() -> None:
    work = Work("square", "numbers", of=4)
    with pytest.warns(
        Interrupted, match="square was interrupted: its result is that of the first 2 of 4 numbers."
    ) as told:
        found = squares([1, 2, 3, 4], work, fail_at=3)

    assert (found, work.done) == ([1, 4], 2)
    assert work.cut == str(told[0].message)
    assert told[0].filename == __file__
    assert issubclass(Interrupted, RuntimeWarning)


def test_an_interrupt_goes_on_where_nothing_is_done_or_nothing_can_be_kept() -> None:
    with pytest.raises(KeyboardInterrupt):
        squares([1, 2], Work("square", "numbers"), fail_at=1)
    with pytest.raises(KeyboardInterrupt):
        squares([1, 2], Work("square", "numbers", keeps=False), fail_at=2)


def test_errors_are_no_interrupts() -> None:
    with pytest.raises(ZeroDivisionError):
        squares([1, 2], Work("square", "numbers"), fail_at=2, error=ZeroDivisionError)


@pytest.mark.usefixtures("watched")
def test_a_person_sees_a_line_and_the_count_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    squares([1, 2], Work("square", "numbers", of=2))
    squares([1, 2], Work("square", "numbers"))

    lines = capsys.readouterr().err.split("\n")
    assert [[each.strip() for each in line.split("\r") if each] for line in lines] == [
        ["square: 1 of 2 numbers", "square: 2 of 2 numbers", "square: 2 of 2 numbers"],
        ["square: 1 numbers", "square: 2 numbers", "square: 2 numbers"],
        [],
    ]


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("progress", [False, lambda done, of: None])
def test_no_line_where_it_is_off_or_goes_to_a_function(progress: Any, capsys: pytest.CaptureFixture[str]) -> None:
    squares([1, 2], Work("square", "numbers", progress))

    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("allows_input", "is_shown"), [(True, True), (False, False), (None, True)])
def test_a_notebook_shows_it_unless_a_program_runs_it(
    allows_input: bool | None, is_shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = SimpleNamespace() if allows_input is None else SimpleNamespace(_allow_stdin=allows_input)
    ipython = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=kernel))
    monkeypatch.setitem(sys.modules, "IPython", ipython)  # type: ignore[arg-type]
    monkeypatch.setattr(long_work, "FIRST_AFTER", 0.0)
    squares([1, 2], Work("square", "numbers"))

    assert bool(capsys.readouterr().err) == is_shown


def test_outside_of_notebooks_and_terminals_nothing_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(long_work, "FIRST_AFTER", 0.0)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))  # type: ignore[arg-type]
    squares([1, 2], Work("square", "numbers"))

    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("watched")
def test_what_one_thing_is_made_of_is_counted_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    with Work("import_run", "runs") as work, work.within():
        assert list(counted([1, 2], "messages")) == [1, 2]
        assert list(counted(iter("a"), "spans")) == ["a"]
    assert list(counted([1], "messages")) == [1]

    shown = [each.strip() for each in capsys.readouterr().err.split("\r")]
    inside = ["import_run: 1 of 2 messages", "import_run: 2 of 2 messages", "import_run: 1 spans"]
    assert shown == ["", *inside, "import_run: 0 runs"]


@pytest.mark.parametrize("progress", [1, "yes", 0.5])
def test_anything_else_is_an_error(progress: Any) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        Work("square", "numbers", progress)

    assert caught.value.code == "INVALID_PROGRESS"
