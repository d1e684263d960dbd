"""Tests of the site that needs no server: only in the environment that `make lite` sets up, where it was built before."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

from tests.browser.conftest import NO_CHROMIUM, chromium_path

if find_spec("jupyterlite_core") is None:
    collect_ignore_glob = ["test_*.py"]

ROOT: Final = Path(__file__).parents[2]
SITE: Final = ROOT / "build/lite"
WAIT_MS: Final = 300_000
"""Until a page that says nothing is given up, milliseconds."""

FLAGS: Final = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]
CONTENTS: Final = "/api/contents/all.json"


class _Site(SimpleHTTPRequestHandler):
    """Serves the files as they are, and beside them notebooks that a test has written."""

    written: dict[str, bytes]

    def __init__(self, *args: Any, written: dict[str, bytes], **kwargs: Any) -> None:
        self.written = written
        super().__init__(*args, **kwargs)

    def do_GET(self) -> None:
        found = self.written.get(self.path.partition("?")[0])
        if found is None:
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        self.wfile.write(found)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Site:
    """The site, served on this machine."""

    def __init__(self) -> None:
        self._written: dict[str, bytes] = {}
        handler = partial(_Site, directory=str(SITE), written=self._written)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def write(self, name: str, cells: list[str]) -> None:
        """Put a notebook beside those of the site."""
        sample = json.loads(next(SITE.glob("files/*.ipynb")).read_text())
        code = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
        made = {**sample, "cells": [{**code, "id": f"c{at}", "source": cell} for at, cell in enumerate(cells)]}
        listing = json.loads(SITE.joinpath(CONTENTS[1:]).read_text())
        entry = next(each for each in listing["content"] if each["path"].endswith(".ipynb"))
        listing["content"].append({**entry, "name": name, "path": name})
        self._written[f"/files/{name}"] = json.dumps(made).encode()
        self._written[CONTENTS] = json.dumps(listing).encode()


class Notebook:
    """One notebook of the site, in a page that reaches nothing else."""

    def __init__(self, page: Any, url: str, name: str) -> None:
        self.page = page
        page.goto(f"{url}/notebooks/index.html?path={name}")
        self.cells = page.locator(".jp-Notebook .jp-CodeCell")
        self.cells.first.wait_for(timeout=WAIT_MS)

    def run_all(self) -> None:
        """Run every cell, and wait until the last that is run has ended."""
        from playwright.sync_api import expect

        ready = self.page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]")
        begun = self.page.locator(".jp-CodeCell .jp-InputPrompt", has_text=re.compile(r"\[[*\d]+\]"))
        for _ in range(WAIT_MS // 3_000):
            # The page says "idle" for a moment before it asks for a kernel, and forgets what it is told then.
            expect(ready.first).to_be_attached(timeout=WAIT_MS)
            self.page.get_by_role("menuitem", name="Run", exact=True).click()
            self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
            try:
                begun.first.wait_for(state="attached", timeout=3_000)
                break
            except Exception as error:
                if type(error).__name__ != "TimeoutError":
                    raise
        waiting = self.page.locator(".jp-CodeCell .jp-InputPrompt", has_text="[*]")
        expect(waiting).to_have_count(0, timeout=WAIT_MS)

    def outputs(self) -> list[list[str]]:
        """Return the texts that each cell shows."""
        script = "cells => cells.map(c => [...c.querySelectorAll('.jp-OutputArea-output')].map(o => o.textContent))"
        found: list[list[str]] = self.cells.evaluate_all(script)
        return found

    def prompts(self) -> list[str]:
        """Return the prompts of the cells; a cell that is folded away has none."""
        found: list[str] = self.page.locator(".jp-CodeCell .jp-InputPrompt").all_text_contents()
        return [prompt for prompt in found if prompt]

    def errors(self) -> list[str]:
        """Return the tracebacks that are shown."""
        found = self.page.locator('.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.stderr"]')
        texts: list[str] = found.all_text_contents()
        return texts


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    if not SITE.joinpath("index.html").is_file():
        pytest.fail(f"There is no site in {SITE}: run `make lite`.")
    served = Site()
    yield served
    served.server.shutdown()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = chromium_path()
    if path is None:
        (pytest.fail if os.environ.get("NOETIC_NB_REQUIRE_BROWSER") == "1" else pytest.skip)(NO_CHROMIUM)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def opened(site: Site, browser: Any, tmp_path: Path) -> Iterator[Callable[..., Notebook]]:
    """Open a notebook by its deep link; the test fails if the page asks another host for anything."""
    context = browser.new_context(viewport={"width": 1000, "height": 1400})
    foreign: list[str] = []

    def only_here(route: Any) -> None:
        if route.request.url.startswith(site.url):
            route.continue_()
        else:
            foreign.append(route.request.url)
            route.abort()

    context.route("**/*", only_here)
    context.set_default_timeout(WAIT_MS)
    pages: list[Notebook] = []

    def open_one(name: str, cells: list[str] | None = None) -> Notebook:
        if cells is not None:
            site.write(name, cells)
        pages.append(Notebook(context.new_page(), site.url, name))
        return pages[-1]

    yield open_one
    folder = Path(os.environ.get("NOETIC_NB_SHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    for number, each in enumerate(pages):
        each.page.screenshot(path=folder / f"lite_{number}.png")
    context.close()
    assert foreign == [], "the page called another host"
