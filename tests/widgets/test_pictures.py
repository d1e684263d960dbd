"""Exported pictures of views: well formed, complete, without scripts, and the same as on the page."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.image import imread
from matplotlib.patches import Rectangle
from msgspec.structs import replace

from noetic_nb import plots
from noetic_nb.errors import NoeticConfigError
from noetic_nb.runs import Run
from noetic_nb.widgets import Compare, MemoryView, RegulatorTrends, RunTimeline, TokenAllocation
from tests.widgets.scenes import demo_run, hostile_run, long_run, watched_run
from tests.widgets.timeline_scenes import branches_run


def compared(run: Run) -> Compare:
    return Compare(run, demo_run())


VIEWS: list[Any] = [MemoryView, RegulatorTrends, RunTimeline, TokenAllocation, compared]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("view_type", VIEWS)
@pytest.mark.parametrize("scene", [demo_run, watched_run, long_run, hostile_run, Run])
def test_a_picture_is_a_whole_svg_file_without_scripts(view_type: Any, scene: Any) -> None:
    with view_type(scene()) as view:
        root = ElementTree.fromstring(view.to_svg())

    assert root.tag == f"{SVG}svg"
    assert {node.tag.removeprefix(SVG) for node in root.iter()} <= {
        "svg",
        "g",
        "path",
        "rect",
        "text",
        "title",
        "style",
    }
    assert not [name for node in root.iter() for name in node.attrib if name.lower().startswith("on") or "href" in name]


@pytest.mark.parametrize("view_type", VIEWS)
def test_a_picture_has_the_width_and_the_ground_that_were_asked_for(view_type: Any, tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    with view_type(demo_run()) as view:
        light, dark = view.to_png(path, width=500), view.to_png(width=500, theme="dark")

    assert path.read_bytes() == light
    for picture, ground in ((light, 1.0), (dark, 18 / 255)):
        pixels = imread(io.BytesIO(picture))
        assert pixels.shape[1] == 1_000
        assert pixels[2, -3, :3] == pytest.approx([ground] * 3)
        colours = (255 * pixels.reshape(-1, 4)[::7]).astype(int) @ (256 ** np.arange(4))
        assert len(np.unique(colours)) > 20


def test_bars_without_a_duration_are_visible_on_a_narrow_page() -> None:
    call = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "find", "arguments": "{}"}}]}
    turns = [{"role": "user", "content": "hi"}, call, {"role": "tool", "tool_call_id": "c1", "content": "x"}]
    run = Run.from_messages([*turns, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "Thanks"}])
    events = [replace(event, t_ms=event.t_ms * 60_000) for event in run.events]  # each call is short beside its turn
    with RunTimeline(Run("long", events=events)) as view:
        html = view.to_html()

    bars = [(float(x), float(wide)) for x, wide in re.findall(r'<svg x="([\d.]+)%" width="([\d.]+)%"', html)]
    assert len(bars) >= 4
    for x, wide in bars:
        assert wide >= 0.44  # about two pixels of 420
        assert x + wide <= 100.001


def test_the_bars_of_the_page_the_picture_and_the_figure_are_the_spans_of_the_table() -> None:
    with RunTimeline(branches_run()) as view:
        table = view.to_frame()
        bars = [mark for mark in view.reading.scene().marks if mark.key]
        page = view.snapshot["window"]["scene"]
        drawn = [
            (name, mark[0], page["texts"][mark[1]], mark[5])
            for name, marks in page["marks"].items() for mark in marks if len(mark) == 6
        ]  # fmt: skip
        svg = view.to_svg()

    begin = table["start_ms"].min()
    hooks = table["kind"] == "hook"
    decided = hooks & table["decision"].notna()
    shown = table[~hooks | decided | (table["status"] != "ok")]
    assert 0 < len(shown) < len(table)
    assert {mark.key for mark in bars} == {str(at) for at in shown.index}
    for mark in bars:
        span = table.loc[int(mark.key)]
        is_decision = decided[int(mark.key)]
        assert (mark.series, mark.words) == (("decision", "refund") if is_decision else (span["kind"], span["name"]))
        left, _, right = mark.points
        assert left == pytest.approx(span["start_ms"] - begin, abs=0.1)
        if span["kind"] != "child":  # children in the scene say 1 ms, but are drawn until they end
            assert right - left == pytest.approx(span["duration_ms"], abs=1.5)
        assert mark.text in svg
    assert sorted(drawn) == sorted([(mark.series, list(mark.points), mark.text, mark.key) for mark in bars])

    figure = plots.timeline(branches_run())
    boxes = [patch for patch in figure.patches if isinstance(patch, Rectangle)]
    expected = sorted((mark.points[0], max(mark.points[2] - mark.points[0], 0.004 * 2_918)) for mark in bars)
    assert sorted((box.get_x(), box.get_width()) for box in boxes) == [pytest.approx(each, abs=15) for each in expected]


@pytest.mark.parametrize("given", [{"width": 10}, {"width": True}, {"width": 9_999}, {"theme": "blue"}], ids=str)
@pytest.mark.parametrize("view_type", VIEWS)
def test_a_picture_that_cannot_be_is_refused(view_type: Any, given: dict[str, Any]) -> None:
    with view_type(demo_run()) as view, pytest.raises(NoeticConfigError) as caught:
        view.to_png(**given)

    assert caught.value.code in ("INVALID_WIDTH", "INVALID_THEME")


def test_a_picture_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(NoeticConfigError, match=r"CANNOT_WRITE.*missing"):
        MemoryView(Run()).to_png(tmp_path / "missing" / "a.png")
