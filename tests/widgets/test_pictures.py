"""Pictures of views as files: well formed, whole, without scripts, and the same as on the page."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from matplotlib.image import imread

from noetic_nb.errors import NoeticConfigError
from noetic_nb.runs import Run
from noetic_nb.widgets import RegulatorTrends
from tests.widgets.scenes import demo_run, hostile_run, long_run, watched_run

VIEWS: list[Any] = [RegulatorTrends]
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
        assert len({tuple(pixel) for pixel in pixels.reshape(-1, pixels.shape[2])}) > 20


@pytest.mark.parametrize("given", [{"width": 10}, {"width": True}, {"width": 9_999}, {"theme": "blue"}], ids=str)
@pytest.mark.parametrize("view_type", VIEWS)
def test_a_picture_that_cannot_be_is_refused(view_type: Any, given: dict[str, Any]) -> None:
    with view_type(demo_run()) as view, pytest.raises(NoeticConfigError) as caught:
        view.to_png(**given)

    assert caught.value.code in ("INVALID_WIDTH", "INVALID_THEME")
