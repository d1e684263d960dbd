"""A throw-away JupyterLab or Notebook 7 on loopback, a notebook open in it, and a second client that reads the notebook's kernel.

The toolbar of a notebook says "idle" before the kernel is connected, and what is run then is lost: `LabNotebook.open`
asks the session itself.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import nbformat
from jupyter_client import BlockingKernelClient
from playwright.sync_api import Browser, Page, ViewportSize
from playwright.sync_api import Error as PlaywrightError

from tests.kernels.forked import paths_of_fresh

T = TypeVar("T")
ROOT: Final = Path(__file__).resolve().parents[2]
VIEWPORT: Final[ViewportSize] = {"width": 1800, "height": 1100}
SETTINGS: Final = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
    # Cells that are scrolled away must stay in the page, or a test cannot find them.
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}
READY: Final = """path => {
    const widget = window.jupyterapp?.shell.currentWidget;
    const session = widget?.sessionContext;
    const kernel = session?.session?.kernel;
    return Boolean(widget?.context?.isReady && widget.context.path === path && session.isReady
        && kernel?.connectionStatus === "connected" && kernel.status === "idle");
}"""

# Ends the kernel before its notebook. A view that was still being loaded complains after scripts that were asked for earlier.
LEAVE: Final = """async path => {
    for (const widget of [...window.jupyterapp.shell.widgets("main")])
        if (widget.context?.path === path) { await widget.context.sessionContext.shutdown(); widget.dispose(); }
    await import("data:text/javascript,export default " + Math.random());
    return document.querySelector(".jp-Notebook, .jp-Dialog, .noetic-nb") === null;
}"""

FINISHED: Final = r"""() => [...document.querySelectorAll(".jp-CodeCell .jp-InputPrompt")]
    .filter(prompt => /\[\d+\]/.test(prompt.textContent)).length"""


def wait_for(check: Callable[[], T], what: str, *, seconds: float = 30.0) -> T:
    """Return the first true answer of `check`; polls, because the other side is another process."""
    deadline = time.monotonic() + seconds
    while True:
        answer = check()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"Not within {seconds} s: {what}. Last answer: {answer!r}")
        time.sleep(0.05)


# How the front ends are started, where a notebook is, and whether its kernel is a new process, as everyone's is.
FRONT_ENDS: Final = {
    "lab": (
        "doc/tree",
        (
            "--LabApp.extension_manager=readonly",
            "--LabApp.news_url=None",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        ),
        "LabApp",
        False,
    ),
    "notebook": ("notebooks", (), "JupyterNotebookApp", True),
}


class Lab:
    """A server of JupyterLab, or of Notebook 7, in a folder of its own."""

    def __init__(self, root: Path, front_end: str = "lab") -> None:
        self.root = root
        self.page, more, app, self.has_fresh_kernels = FRONT_ENDS[front_end]
        self.token = secrets.token_hex(8)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        settings = root / "app_settings"
        settings.mkdir()
        (settings / "overrides.json").write_text(json.dumps(SETTINGS))
        self.window: Window | None = None
        self._log = (root / "lab.log").open("w")
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "jupyter", front_end, "--no-browser", "--allow-root", "--ip=127.0.0.1",
                f"--port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={self.token}",
                f"--ServerApp.root_dir={root}", f"--{app}.app_settings_dir={settings}", *more,
                f"--{app}.expose_app_in_browser=True",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=self._environment(),
            cwd=root,
        )  # fmt: skip
        wait_for(self._is_up, f"the server of {front_end} answers", seconds=90)

    def _environment(self) -> dict[str, str]:
        own = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTERLAB_SETTINGS_DIR": "user_settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
            "MPLCONFIGDIR": "matplotlib",
        }
        return {
            **os.environ,
            **{name: str(self.root / folder) for name, folder in own.items()},
            **({"JUPYTER_PATH": paths_of_fresh()} if self.has_fresh_kernels else {}),
            "PYTHONPATH": str(ROOT),
            "OPENAI_API_KEY": "",
        }

    def _is_up(self) -> bool:
        if self._process.poll() is not None:
            raise AssertionError(f"The server ended: {(self.root / 'lab.log').read_text()[-2000:]}")
        try:
            self.api("/api/status")
        except (urllib.error.URLError, OSError):
            return False
        return True

    def api(self, path: str, *, method: str = "GET") -> Any:
        request = urllib.request.Request(
            self.url + path, headers={"Authorization": f"token {self.token}"}, method=method
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def close(self) -> None:
        if self.window is not None:
            self.window.close()
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


class Kernel:
    """A second client of a notebook's kernel."""

    def __init__(self, lab: Lab, kernel_id: str) -> None:
        self._client = BlockingKernelClient(connection_file=str(lab.root / "runtime" / f"kernel-{kernel_id}.json"))
        self._client.load_connection_file()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=60)

    def run(self, code: str) -> None:
        """Run statements."""
        self._ask(code, {})

    def value(self, expression: str) -> str:
        """Return the repr of an expression."""
        return str(self._ask("", {"value": expression})["value"])

    def _ask(self, code: str, expressions: dict[str, str]) -> dict[str, str]:
        # Only the shell's reply is read: under a flood of widget messages the other socket may drop some.
        asked = self._client.execute(code, silent=False, store_history=False, user_expressions=expressions)
        while True:
            reply = self._client.get_shell_msg(timeout=60)
            if reply["parent_header"].get("msg_id") == asked:
                break
        content = reply["content"]
        if content["status"] != "ok":
            raise AssertionError(f"The kernel failed: {content.get('ename')}: {content.get('evalue')}")
        answers = {}
        for name, answer in content["user_expressions"].items():
            if answer["status"] != "ok":
                raise AssertionError(f"{expressions[name]} failed in the kernel: {answer['evalue']}")
            answers[name] = answer["data"]["text/plain"]
        return answers

    def close(self) -> None:
        self._client.stop_channels()


class Window:
    """A page of the front end in which notebooks are opened one after another, since its start costs more than most tests.

    What a page does wrong is noted by the notebook that is open. A page that a test loaded anew, or that does not come clean,
    is not used again.
    """

    MOST: Final = 25
    """Notebooks in one page: what the front end forgets to free stays small."""

    def __init__(self, lab: Lab, browser: Browser) -> None:
        self.lab = lab
        self.context = browser.new_context(viewport=VIEWPORT)
        self.page: Page = self.context.new_page()
        self.notebook: LabNotebook | None = None
        self.listening = False
        self.shown = 0
        # Listened to and not held up, which would cost the page its cache; no other host has an address (FLAGS of conftest.py).
        self.page.on("request", lambda request: self._note(request.url))
        self.page.on("websocket", lambda socket: self._note(socket.url))
        self.page.on("pageerror", lambda error: self._complain(str(error)))
        self.page.on("console", lambda said: self._complain(said.text) if said.type == "error" else None)
        self.page.on("dialog", self._dismiss)

    def _is_ours(self, url: str) -> bool:
        return url.startswith((self.lab.url, self.lab.url.replace("http", "ws", 1), "data:", "blob:", "about:"))

    def _note(self, url: str) -> None:
        if not self._is_ours(url) and self.notebook is not None:
            self.notebook.foreign.append(url)

    def _complain(self, problem: str) -> None:
        if self.notebook is not None and self.listening:
            self.notebook.problems.append(problem)

    def _dismiss(self, dialog: Any) -> None:
        if self.notebook is not None:
            self.notebook.dialogs.append(dialog.message)
        dialog.dismiss()

    def show(self, notebook: LabNotebook) -> None:
        """Open a notebook and wait until its kernel is really there."""
        self.notebook = notebook
        self.shown += 1
        name = notebook.path.name
        used = self.page.evaluate("() => Boolean(window.jupyterapp)")
        notebook.shares_page = bool(used)
        # Until the next notebook is there, whatever complains in a used page is of the last one, which is gone.
        self.listening = not used
        if used:
            self.page.set_viewport_size(VIEWPORT)
            self.page.evaluate(
                "path => window.jupyterapp.commands.execute('docmanager:open', {path}).then(() => null)", name
            )
        else:
            self.page.goto(f"{self.lab.url}/{self.lab.page}/{name}?token={self.lab.token}&reset", timeout=90_000)
            self.page.evaluate("() => { window.isFirstLoad = true; }")
        self.page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=90_000)
        self.page.wait_for_function(READY, arg=name, timeout=90_000)
        self.listening = True

    def leave(self) -> bool:
        """Close the notebook with its kernel; returns whether the page is good for another."""
        notebook, self.notebook = self.notebook, None
        if notebook is None or notebook.problems or notebook.dialogs or self.shown >= self.MOST:
            return False
        if notebook.tolerated is not None:  # what it was allowed may still come, and would be the next one's
            return False
        try:
            kept = self.page.evaluate("() => Boolean(window.isFirstLoad && window.jupyterapp)")
            return bool(kept and self.page.evaluate(LEAVE, notebook.path.name))
        except PlaywrightError:
            return False

    def close(self) -> None:
        self.context.close()


class LabNotebook:
    """A notebook open in JupyterLab; remembers what the page did wrong and whom it called."""

    def __init__(self, window: Window, name: str, cells: Sequence[str]) -> None:
        self.window, self.lab, self.page = window, window.lab, window.page
        self.foreign: list[str] = []
        self.problems: list[str] = []
        self.tolerated: re.Pattern[str] | None = None
        self.dialogs: list[str] = []
        self.shares_page = False
        self._kernel: Kernel | None = None
        self.path = self.lab.root / f"{name}.ipynb"
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell.strip()) for cell in cells])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, self.path)

    def open(self) -> LabNotebook:
        """Open the notebook and wait until its kernel is really there."""
        self.window.show(self)
        return self

    def command(self, name: str, **arguments: Any) -> None:
        """Start a command of JupyterLab; not awaited, since a dialog would hang the test."""
        self.page.evaluate("([name, args]) => { window.jupyterapp.commands.execute(name, args); }", [name, arguments])

    def run_all(self) -> None:
        """Run all cells and wait until each has ended; a cell that fails fails the test."""
        cells = self.page.locator(".jp-CodeCell").count()
        self.command("notebook:run-all-cells")
        wait_for(lambda: self.page.evaluate(FINISHED) == cells, f"all {cells} cells have run", seconds=120)
        errors = self.page.locator("[data-mime-type='application/vnd.jupyter.stderr'], .jp-RenderedError")
        assert errors.count() == 0, errors.first.inner_text()

    @property
    def kernel(self) -> Kernel:
        if self._kernel is None:
            path = self.path.name
            sessions = wait_for(
                lambda: [s for s in self.lab.api("/api/sessions") if s["path"] == path], f"a session of {path}"
            )
            self._kernel = Kernel(self.lab, sessions[0]["kernel"]["id"])
        return self._kernel

    def theme(self, name: str) -> None:
        """Switch to ``"JupyterLab Light"`` or ``"JupyterLab Dark"``."""
        self.command("apputils:change-theme", theme=name)
        light = "true" if name.endswith("Light") else "false"
        self.page.wait_for_selector(f"body[data-jp-theme-light='{light}']", state="attached", timeout=30_000)
        self.page.wait_for_selector("#jupyterlab-splash", state="detached", timeout=30_000)
        # The style sheet of a theme arrives after the attribute.
        self.page.wait_for_function(
            "dark => { const c = getComputedStyle(document.body).getPropertyValue('--jp-layout-color0').trim();"
            " return c !== '' && (c === 'white' || c === '#fff' || c === '#ffffff') !== dark; }",
            arg=light == "false",
        )

    def close(self) -> None:
        """End the kernel; the page stays open for the next notebook if it is as it was."""
        if self._kernel is not None:
            self._kernel.close()
        window = self.window
        if not window.leave():
            window.close()
            self.lab.window = None
        for session in self.lab.api("/api/sessions"):
            if session["path"] == self.path.name:
                self.lab.api(f"/api/sessions/{session['id']}", method="DELETE")
