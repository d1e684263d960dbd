"""The page of costs: every line that a benchmark knows, and no figure that a run did not write."""

from __future__ import annotations

import argparse
import doctest
import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import page
from benchmarks.collect import BENCHMARKS
from benchmarks.comparing import Lines, parser
from tests.docs.site_modules import ROOT

UNITS = ("", "us", "ms", "s", "B", "KiB", "MiB")
PAGE = ROOT / "docs" / "costs.md"


def known(name: str) -> dict[str, float | None]:
    lines: dict[str, float | None] = importlib.import_module(f"benchmarks.{name}").LINES
    return lines


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split(" | ")]


def found(*lines: dict[str, Any], split: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    one = {"says": "What it says.", "seconds": 1.0}
    return {
        "date": "2026-01-02",
        "seconds": 2,
        "loads": [0.5, 0.25],
        "machine": {"processor": "P", "processors": 2, "memory_gib": 4, "system": "S"},
        "versions": {"noetic_nb": "1", "Python": "3"},
        "benchmarks": {"memory": {**one, "lines": list(lines)}, page.SPLIT: {**one, "lines": list(split)}},
    }


def said(lines: Lines, tmp_path: Path) -> list[dict[str, Any]]:
    lines.end(argparse.Namespace(into=tmp_path / "lines.json", check=False))
    written: list[dict[str, Any]] = json.loads((tmp_path / "lines.json").read_text())
    return written


def test_no_figure_on_the_page_was_changed_by_hand() -> None:
    text, _, signed = PAGE.read_text(encoding="utf-8").rpartition("<!--")

    assert f"<!--{signed}" == page.SIGNED.format(page.digest(text)), "run `make bench`: it writes this page"


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name != page.SPLIT])
def test_the_page_has_every_goal_of_a_benchmark_and_no_other(name: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = [cells(row) for row in text.splitlines() if row.startswith(f"| {BENCHMARKS[name]} |")]
    goals = {what: most for what, most in known(name).items() if most is not None}
    expected = [what.partition(" / ") for what in goals]

    assert len(rows) == len(expected), "run `make bench`: it writes this page"
    for (_, what, *_, goal), (here, slash, there), most in zip(rows, expected, goals.values(), strict=True):
        assert what == here + slash + there or (what.startswith(f"{here} (") and what.endswith(f"){slash}{there}"))
        if goal:
            assert goal.rpartition(" ")[0] in {f"≤\u00a0{page.figure(most, unit)}" for unit in UNITS}


def test_the_page_splits_a_turn_into_all_of_its_parts() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Where a turn goes")[2]
    rows = [cells(row)[:2] for row in text.splitlines() if row.startswith("|")][2:]

    assert [" ".join(row).strip() for row in rows] == list(known(page.SPLIT))


def test_every_module_that_prints_lines_is_run() -> None:
    modules = [path.stem for path in (ROOT / "benchmarks").glob("*.py") if "\nLINES: Final" in path.read_text()]

    assert sorted(modules) == sorted(BENCHMARKS)


def test_a_line_that_is_not_known_is_refused() -> None:
    with pytest.raises(SystemExit, match="'b'"):
        Lines({"a": None}).value("b", 1.0)


def test_a_known_line_that_was_not_measured_is_named(tmp_path: Path) -> None:
    lines = Lines({"a": None, "b": 1})
    lines.value("a", 1.0)

    with pytest.raises(SystemExit, match="not measured: b"):
        said(lines, tmp_path)


def test_lines_are_kept_in_the_order_in_which_they_are_known(tmp_path: Path) -> None:
    lines = Lines({"a / b": 2, "c": 5.0, "d": 1})
    lines.value("c", 7, about="of 9", unit="KiB")
    lines.ratio("a / b", [0.001, 0.003], [0.001, 0.002], unit="ms")
    lines.skip("d", "nobody is there")

    first, second, third = said(lines, tmp_path)
    assert first == {"what": "a / b", "about": "", "goal": 2, "ours": 2.0, "other": 1.5, "unit": "ms", "ratio": 1.25}
    assert second == {"what": "c", "about": "of 9", "goal": 5.0, "ours": 7, "unit": "KiB"}
    assert third == {"what": "d", "about": "nobody is there", "goal": 1}


@pytest.mark.parametrize(("most", "code"), [(2.0, 0), (1.0, 1)])
def test_a_missed_goal_fails_where_that_is_asked(most: float, code: int) -> None:
    lines = Lines({"a": most})
    lines.value("a", 1.5)

    assert lines.end(parser("", rounds=1).parse_args(["--check"])) == code
    assert lines.end(parser("", rounds=1).parse_args([])) == 0


def test_the_page_says_what_a_run_found() -> None:
    written = page.page(
        found(
            {"what": "a / b", "about": "3 of them", "goal": 2, "ours": 2.1, "other": 1.5, "unit": "ms", "ratio": 1.25},
            {"what": "c", "about": "", "goal": 5.0, "ours": 7, "unit": "KiB"},
            {"what": "d / e", "about": "nobody is there", "goal": 1},
            split=({"what": "hook notes", "about": "half", "goal": None, "ours": 12.5, "unit": "us"},),
        )
    )

    text = written.replace("\u00a0", " ")
    assert "| Memory | a (3 of them) / b | 2.10 ms | 1.50 ms | 1.25 | ≤ 2 met |\n" in text
    assert "| Memory | c | 7 KiB |  |  | ≤ 5 KiB **missed** |\n" in text
    assert "| Memory | d (nobody is there) / e |  |  |  |  |\n" in text
    assert "| hook | notes | 12.5 µs | half |\n" in text
    assert "1 of 2 goals were met" in text
    assert "0.2 to 0.5" in text
    body, _, signed = written.rpartition("<!--")
    assert re.search(r"[0-9a-f]{64}", signed)
    assert page.digest(body.replace("2.10", "1.10")) not in signed


def test_figures_have_three_digits_and_the_unit_that_suits_them() -> None:
    assert doctest.testmod(page).failed == 0
    assert doctest.testmod(page).attempted > 0


def test_a_page_is_not_made_of_a_part_of_the_benchmarks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bench.json").write_text(json.dumps(found()))
    monkeypatch.setattr("sys.argv", ["page", str(tmp_path / "bench.json"), str(tmp_path / "costs.md")])

    assert page.main() == 0
    assert "only some" in capsys.readouterr().out
    assert not (tmp_path / "costs.md").exists()
