"""A notebook exported to HTML and opened without JavaScript and without a network still shows every picture."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.appearance import assert_contained, assert_readable
from tests.browser.lab import ROOT
from tests.matrix import matrix
from tests.widgets.views import RUN_VIEWS

VIEWS = [*(f"{view.__name__}(run)" for view in RUN_VIEWS), "RuleEditor(rules)"]
LEAST_MARKS = {"TokenAllocation(run)": 16, "RegulatorTrends(run)": 19}
FIGURES = ("plots.trends(run)", "plots.allocation(run)")
AREAS = """marks => marks.map(mark => { const box = mark.getBoundingClientRect(), style = getComputedStyle(mark);
  const line = style.stroke === "none" ? 0 : parseFloat(style.strokeWidth);
  return (box.width + line) * (box.height + line); })"""
NO_PICTURE = re.compile(r"model not found|Error displaying|<\w+ object at")
SET_UP = """
from noetic_nb import plots
from noetic_nb.steering import RuleBook, deny
from noetic_nb.widgets import *
from tests.widgets import scenes
run = scenes.demo_run()
rules = RuleBook()

@rules.rule(on="before_tool_call", tools=["pay"])
def never(call):
    return deny("<b>Never</b>")
"""


# Does the work of `jupyter nbconvert` for each line of arguments, and answers with an empty line, because the imports
# take longer than a conversion. Skips an optional text format whose import takes a second.
CONVERTER = """
import json, os, sys
sys.modules["rfc3987_syntax"] = None
from nbconvert.nbconvertapp import NbConvertApp
for line in sys.stdin:
    folder, arguments = json.loads(line)
    os.chdir(folder)
    os.environ["IPYTHONDIR"] = os.path.join(folder, "ipython")
    NbConvertApp.launch_instance(arguments)
    NbConvertApp.clear_instance()
    print(flush=True)
"""


class Converter:
    """A process that converts notebooks."""

    def __init__(self, log: Path) -> None:
        self.log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", CONVERTER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                text=True,
            )

    def convert(self, folder: Path, *options: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([str(folder), options]) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "\n", self.log.read_text()

    def export(self, folder: Path, cells: list[str], *options: str) -> Path:
        """Execute a notebook and export it like a user, including widget state."""
        write(folder, cells)
        self.convert(folder, "--execute", "--to", "html", *options, "exported.ipynb")
        return folder / "exported.html"


@pytest.fixture(scope="module")
def converter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Converter]:
    started = Converter(tmp_path_factory.mktemp("converter") / "log")
    yield started
    with started.process:  # waits, and closes its pipes
        started.process.terminate()


def write(folder: Path, cells: list[str]) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, folder / "exported.ipynb")


@pytest.fixture(scope="module")
def pictures(converter: Converter, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that exports all views and figures, once for each set of options."""

    @cache
    def exported(*options: str) -> Path:
        return converter.export(tmp_path_factory.mktemp("exported"), [SET_UP, *VIEWS, *FIGURES], *options)

    return exported


@pytest.fixture(scope="module")
def looks(converter: Converter, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that exports all views and a closed one: executed once, exported once for each set of options."""
    folder = tmp_path_factory.mktemp("looks")
    cells = [SET_UP, *VIEWS, f"closed = {VIEWS[0]}\nclosed", "closed.close()"]

    @cache
    def executed() -> None:
        write(folder, cells)
        converter.convert(folder, "--execute", "--to", "notebook", "--output", "executed", "exported.ipynb")

    @cache
    def exported(*options: str) -> Path:
        executed()
        name = "-".join(("look", *options)).replace("--", "")
        converter.convert(folder, "--to", "html", *options, "--output", name, "executed.ipynb")
        return folder / f"{name}.html"

    return exported


@pytest.fixture(scope="module")
def page_with_scripts(browser: Any) -> Iterator[Any]:
    """A page with scripts enabled, to read colours, and without network access, so widgets cannot be loaded."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    context.route("**/*", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort())
    yield context.new_page()
    context.close()


@matrix("options", [(), ("--ExecutePreprocessor.store_widget_state=False",)], keep=1)
@pytest.mark.parametrize("width", [1400, 420])
def test_exported_pictures_need_neither_scripts_nor_network(
    pictures: Callable[..., Path],
    quiet_page: Callable[..., Any],
    shot: Callable[..., Any],
    width: int,
    options: tuple[str, ...],
) -> None:
    page = quiet_page(pictures(*options), width=width)

    shot(page, f"exported-{width}", full_page=True)
    expect(page.locator(".noetic-nb-static")).to_have_count(len(VIEWS))
    for at in range(len(VIEWS)):
        picture = page.locator(".noetic-nb-static").nth(at)
        expect(picture).to_be_visible()
        box = picture.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width
        # The workbench shows the pictures of its panels, stacked.
        assert box["height"] < (8_000 if VIEWS[at].startswith("Workbench") else 2_000), (
            "a picture that outgrew its page"
        )
        assert picture.locator("table, ol, ul").first.is_visible()
        assert_contained(picture)
    for shown, least in LEAST_MARKS.items():
        picture = page.locator(".noetic-nb-static").nth(VIEWS.index(shown))
        areas = picture.locator(".nn-mark").evaluate_all(AREAS)
        assert len(areas) >= least
        assert all(area > 0 for area in areas)
    figures = page.locator(".jp-RenderedImage img")
    expect(figures).to_have_count(len(FIGURES))
    assert page.locator(".noetic-nb-static script").count() == 0
    assert NO_PICTURE.search(page.locator("main").inner_text()) is None


@matrix(
    ("options", "scheme", "ground"),
    [
        (("--theme", "dark"), "light", "rgb(17, 17, 17)"),
        (("--theme", "light"), "dark", "rgb(255, 255, 255)"),
        (("--template", "basic"), "dark", "rgb(18, 18, 18)"),
        (("--template", "basic"), "light", "rgb(255, 255, 255)"),
    ],
    keep=2,
)
def test_an_export_is_readable_in_both_themes_also_without_scripts(
    looks: Callable[..., Path],
    page_with_scripts: Any,
    shot: Callable[..., Any],
    options: tuple[str, ...],
    scheme: Any,
    ground: str,
) -> None:
    path, page = looks(*options), page_with_scripts
    page.emulate_media(color_scheme=scheme)
    if page.url != path.as_uri():
        page.goto(path.as_uri())

    shot(page, f"exported-{'-'.join(options)}-{scheme}", full_page=True)
    for at in range(len(VIEWS) + 1):
        picture = page.locator(".noetic-nb-static").nth(at)
        expect(picture).to_be_visible()
        assert picture.evaluate("el => getComputedStyle(el).backgroundColor") == ground
        assert_readable(picture)


def test_a_view_shown_before_the_run_is_exported_as_it_was_at_the_end(
    converter: Converter, tmp_path: Path, quiet_page: Callable[..., Any]
) -> None:
    cells = [
        "from noetic_nb.runs import Run\nfrom noetic_nb.widgets import *\nfrom tests.widgets import scenes\nrun = Run()",
        "TokenAllocation(run)",
        "for n in (1, 2, 3):\n    for event in scenes.turn(n): run.append(event)",
    ]

    page = quiet_page(converter.export(tmp_path, cells))

    expect(page.locator(".noetic-nb-static .nn-sub")).to_contain_text("Turn 3, call 1")


def test_a_long_live_run_updates_its_output_once_a_cell(converter: Converter, tmp_path: Path) -> None:
    cells = [
        "from noetic_nb.runs import Run\nfrom noetic_nb.widgets import *\nfrom tests.widgets import scenes\nrun = Run()",
        "shown = TokenAllocation(run)\nshown",
        "updates = []\nshown._places[0].static.update = lambda *a, **k: updates.append(a)\n"
        "for n in range(1, 300):\n    for event in scenes.turn(n): run.append(event)",
        "print('updates:', len(updates))",
    ]

    assert "updates: 1\n" in converter.export(tmp_path, cells).read_text(encoding="utf-8")


def test_what_is_printed_is_not_cut_and_has_no_scrollbars(
    converter: Converter, tmp_path: Path, page_with_scripts: Any
) -> None:
    long = "print('" + "word " * 40 + "x' * 1)  # " + "y" * 200
    page = page_with_scripts
    page.goto(converter.export(tmp_path, [SET_UP, long, *VIEWS, *FIGURES]).as_uri())
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 at 96 dots per inch

    cut = page.locator("main :is(pre, .nn-scroll, .nn-tall)").evaluate_all(
        "all => all.filter(one => one.offsetParent && (one.scrollWidth > one.clientWidth + 1 || "
        "(getComputedStyle(one).overflowY !== 'visible' && one.scrollHeight > one.clientHeight + 1)))"
        ".map(one => [one.className, one.scrollWidth, one.clientWidth, one.innerText.slice(0, 60)])"
    )
    assert cut == []
    pictures = page.locator(".noetic-nb-figure img")
    assert [pictures.nth(at).evaluate("el => getComputedStyle(el).content") for at in range(2)] == ["normal"] * 2
    page.emulate_media(media="screen", color_scheme="dark")


@pytest.mark.parametrize(("options", "is_dark"), [((), False), (("--theme", "dark"), True)])
def test_a_figure_follows_the_theme_of_the_page(
    pictures: Callable[..., Path], page_with_scripts: Any, options: tuple[str, ...], is_dark: bool
) -> None:
    page = page_with_scripts
    page.goto(pictures(*options).as_uri())
    assert "No description has been provided" not in pictures(*options).read_text(encoding="utf-8")
    for scheme in ("light", "dark"):  # Jupyter's theme has priority over the preference of the machine
        page.emulate_media(media="screen", color_scheme=scheme)
        shown = page.locator(".noetic-nb-figure img").first.evaluate("el => getComputedStyle(el).content")
        assert shown.startswith("url(") == is_dark
