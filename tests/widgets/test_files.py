"""Exports of a view: its table as CSV and the view as one page, by method or by button."""

from __future__ import annotations

import base64
import csv
import io
from pathlib import Path
from typing import Any

import pytest

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ToolCalled, Where
from noetic_nb.runs import Run
from noetic_nb.widgets import RunTimeline, Workbench
from tests.matrix import matrix
from tests.widgets.scenes import demo_run
from tests.widgets.views import VIEWS


@pytest.mark.parametrize("make", VIEWS)
def test_a_view_is_taken_as_a_table_and_as_one_page(make: Any, tmp_path: Path) -> None:
    table, whole = tmp_path / "table.csv", tmp_path / "view.html"
    with make(demo_run()) as view:
        frame, text, page = view.to_frame(), view.to_csv(table), view.to_page(whole)
        inside, head = view.to_html(), view.to_text().splitlines()[0]

        rows = list(csv.reader(io.StringIO(text)))
        assert list(frame.index) == list(range(len(frame)))
        assert rows[0] == list(frame.columns)
        assert len(rows) - 1 == len(frame)
        assert table.read_text() == text
        assert whole.read_text() == page
        assert page.startswith("<!doctype html>")
        assert inside in page
        assert f"<title>{head[:20].split('<')[0]}" in page
        assert "default-src 'none'" in page


@matrix("make", VIEWS, keep=5)
def test_a_page_is_told_which_files_it_can_save_and_gets_them(make: Any) -> None:
    with make(demo_run()) as view:
        assert {"csv", "html"} <= set(view.snapshot["files"])
        for kind in view.snapshot["files"]:
            file = view._answer({"what": "file", "kind": kind})["data"]
            assert file["name"].endswith(f".{kind}")
            assert base64.b64decode(file["base64"])
        assert (
            base64.b64decode(view._answer({"what": "file", "kind": "csv"})["data"]["base64"]).decode() == view.to_csv()
        )


def test_a_panel_of_a_workbench_has_its_own_files() -> None:
    with Workbench(demo_run()) as bench:
        assert bench.timeline.to_csv() != bench.to_csv()
        assert bench._answer({"what": "file", "kind": "csv"})["data"]["name"] == "workbench.csv"


def test_no_secret_is_in_a_table_that_is_taken_away() -> None:
    args = {"password": "hunter22", "note": "Bearer abcdefghijklmnop1234"}
    run = Run(events=[ToolCalled(Where("t1", "e1", 1), 4.0, "pay", "c1", args, "sk-abcdefghijklmnopqrstuv", 4.0, "ok")])
    with RunTimeline(run) as view:
        view.to_frame = lambda: run.to_frame("tools")

        text = view.to_csv()

    assert "hunter22" not in text
    assert "sk-abcdef" not in text
    assert "[redacted]" in text


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with RunTimeline(demo_run()) as view, pytest.raises(NoeticConfigError) as caught:
        view.to_csv(tmp_path / "missing" / "table.csv")

    assert caught.value.code == "CANNOT_WRITE"
