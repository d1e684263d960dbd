"""A real browser for tests: skipped if none is installed, unless NOETIC_NB_REQUIRE_BROWSER=1 is set.

NOETIC_NB_SHOTS names a folder for screenshots; without it none are taken.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.matrix import IS_WHOLE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.browser.lab import Lab
    from tests.browser.window import LabNotebook

HERE: Final = Path(__file__).parent
# The height of JupyterLab's bars around a notebook.
MARGIN_PX: Final = 400
FLAGS: Final = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    # A page that requests another host must fail, instead of depending on a network.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
NO_CHROMIUM: Final = (
    "no Chromium found; apt-get install chromium-headless-shell or chromium, or set CHROMIUM to its path"
)
NEEDED: Final = ("playwright", "jupyterlab", "notebook", "jupyter_client", "nbformat", "nbconvert", "ipykernel")


def chromium_path() -> str | None:
    """Return the browser to use: $CHROMIUM, or one of Debian's names; the headless shell draws the same pages faster."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


def missing() -> str | None:
    """Return why browser tests cannot run, or None."""
    packages = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if packages:
        return f"not installed: {', '.join(packages)}; pip install 'noetic_nb[lab,test]'"
    if chromium_path() is None:
        return NO_CHROMIUM
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = missing()
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        item.add_marker(pytest.mark.browser)
        if "looks" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.matrix)
        if reason is not None and os.environ.get("NOETIC_NB_REQUIRE_BROWSER") != "1":
            item.add_marker(pytest.mark.skip(reason=f"browser tests: {reason}"))


# The browser only exists for this folder: its driver runs an event loop in this thread, which async tests cannot share.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    reason = missing()
    if reason is not None:
        pytest.fail(f"NOETIC_NB_REQUIRE_BROWSER=1, but {reason}")
    from playwright.sync_api import expect, sync_playwright

    # Time limit for reaching a state, in ms: on a busy machine, 5 s do not indicate a fault.
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium_path(), headless=True, args=FLAGS)
        yield started
        started.close()
    # The driver leaves its event loop marked as running in this thread, where async tests follow.
    asyncio._set_running_loop(None)


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Lab]:
    from tests.browser.lab import Lab

    server = Lab(tmp_path_factory.mktemp("lab"))
    yield server
    server.close()


@pytest.fixture
def notebook(lab: Lab, browser: Browser, request: pytest.FixtureRequest) -> Iterator[Callable[..., LabNotebook]]:
    """Show one notebook with the given cells. Fails the test if the page requested another host or reported an error.

    The kernel, emptied, and the file are those of the previous test. ``is_alone=True`` requests new ones, for tests
    that restart a kernel, save a file or load a page; ``saved`` is a complete notebook, for tests of opening one.
    """
    from tests.browser.window import LabNotebook, Window

    opened: list[LabNotebook] = []
    failed_before = request.session.testsfailed

    def open_notebook(*cells: str, is_alone: bool = False, saved: Any = None) -> LabNotebook:
        assert not opened, "one notebook in a test: what is looked for on the page must not be that of another"
        lab.window = lab.window or Window(lab, browser)
        name = re.sub(r"\W+", "_", request.node.name)
        opened.append(LabNotebook(lab.window, name, cells, is_alone=is_alone, saved=saved))
        return opened[-1].open()

    yield open_notebook
    for each in opened:
        each.close(is_suspect=request.session.testsfailed > failed_before)
    for each in opened:
        assert each.foreign == [], "the page called another host"
        assert each.wrong() == []
        assert each.dialogs == []


@pytest.fixture(scope="module")
def quiet_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open a file with JavaScript and the network disabled: once per module, then at the requested width."""
    foreign: list[str] = []
    context = browser.new_context(java_script_enabled=False, offline=True)
    pages: dict[Path, Page] = {}

    def open_file(path: Path, *, width: int = 1000) -> Page:
        page = pages.get(path)
        if page is None:
            page = pages[path] = context.new_page()
            page.on(
                "request",
                lambda request: None if request.url.startswith(("file:", "data:")) else foreign.append(request.url),
            )
        page.set_viewport_size({"width": width, "height": 1000})
        if page.url != path.as_uri():
            page.goto(path.as_uri())
        return page

    yield open_file
    context.close()
    # The export's own template references a library on a CDN; without scripts, nothing may be fetched at all.
    assert foreign == [], "the page called another host"


@pytest.fixture
def shot() -> Callable[..., None]:
    """Save a screenshot of a page or a visible element."""
    from playwright.sync_api import expect

    folder = os.environ.get("NOETIC_NB_SHOTS")

    def save(target: Any, name: str, **options: Any) -> None:
        if hasattr(target, "bounding_box"):  # an element: waits again if the page replaces it
            expect(target).to_be_visible()
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            page = getattr(target, "page", target)
            size, box = page.viewport_size, target.bounding_box() if target is not page else None
            if size and box and box["height"] + MARGIN_PX > size["height"]:
                # A notebook scrolls inside its page: a taller element cannot be scrolled into view as a whole.
                page.set_viewport_size({**size, "height": int(box["height"]) + MARGIN_PX})
            target.screenshot(path=Path(folder) / f"{name}.png", **options)
            if size:
                page.set_viewport_size(size)

    return save


@pytest.fixture
def looks(shot: Callable[..., None]) -> Callable[..., None]:
    """Check a view at the first width, and both themes at the last; all combinations in `make fuzz` and for screenshots."""
    from tests.browser.appearance import assert_contained, assert_readable, at_width

    is_each = IS_WHOLE or "NOETIC_NB_SHOTS" in os.environ

    def check(
        opened: LabNotebook,
        root: Any,
        name: str,
        *,
        widths: Sequence[int] = (1400, 420),
        also: Callable[[], None] = lambda: None,
    ) -> None:
        for number, theme in enumerate(opened.themes()):
            for width in widths if is_each else [*widths[:1], widths[-1]] if number == 0 else widths[-1:]:
                at_width(root, width)
                shot(root, f"{name}-{theme}-{width}")
                assert_readable(root)
                assert_contained(root)
                also()

    return check


@pytest.fixture
def cells_of() -> Callable[[str, Sequence[str]], list[str]]:
    """Return the cells of a notebook that imports the views and a scene, then shows something."""

    def cells(scene: str, shows: Sequence[str]) -> list[str]:
        return [
            f"from noetic_nb.widgets import *\nfrom tests.widgets import scenes\nrun = scenes.{scene}()",
            *shows,
        ]

    return cells
