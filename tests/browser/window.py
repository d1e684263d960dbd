"""The page of a front end, in which the notebooks of tests are shown one after another.

The toolbar of a notebook shows "idle" before the kernel is connected, and cells run then are lost: `Window` asks the
session instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import nbformat
from nbformat.sign import NotebookNotary
from playwright.sync_api import Browser, Locator, Page, ViewportSize
from playwright.sync_api import Error as PlaywrightError

from tests.browser.lab import Kernel, Lab, wait_for

VIEWPORT: Final[ViewportSize] = {"width": 1800, "height": 1100}
ALLOWED_PROBLEMS: Final = re.compile(r"favicon|ResizeObserver loop")
# Reported two seconds after a view was closed while loading; in a shared page, possibly for the previous notebook. A
# view that could not be created is missing from the page, which fails its test.
LATE_PROBLEMS: Final = re.compile(r"^\[anywidget\] Failed to initialize model\.$")
# Reported when a kernel ends that had just started to create a subshell for a view.
NO_ANSWER: Final = re.compile("Canceled future for create_subshell_request")
READY: Final = """path => {
    const widget = window.jupyterapp?.shell.currentWidget;
    const session = widget?.sessionContext;
    const kernel = session?.session?.kernel;
    return Boolean(widget?.context?.isReady && widget.context.path === path && session.isReady
        && kernel?.connectionStatus === "connected" && kernel.status === "idle");
}"""

LIVE: Final = ".noetic-nb:not(.noetic-nb-static)"
"""A view drawn by its script, as opposed to its static form."""

# Replaces the cells of the notebook, and returns whether the page shows them in time.
FILL: Final = """async ([cells, patience]) => {
    const {content} = window.jupyterapp.shell.currentWidget, shared = content.model.sharedModel;
    shared.transact(() => {
        shared.deleteCellRange(0, shared.cells.length);
        shared.insertCells(0, cells.map(source => ({cell_type: "code", source, metadata: {}})));
    });
    shared.clearUndoHistory();
    content.activeCellIndex = 0;
    content.mode = "command";
    const shown = () => {
        const found = [...document.querySelectorAll(".jp-CodeCell")];
        return found.length === cells.length
            && found.every(cell => cell.querySelector(".jp-InputPrompt")?.textContent.trim() === "[ ]:");
    };
    const until = performance.now() + patience;
    while (!shown() && performance.now() < until) await new Promise(done => setTimeout(done, 5));
    return shown();
}"""
# Removes the cells and asks the kernel to forget their results. A slow answer means that the kernel hangs.
CLEAR: Final = """async ([code, patience]) => {
    const {content, sessionContext} = window.jupyterapp.shell.currentWidget, shared = content.model.sharedModel;
    shared.deleteCellRange(0, shared.cells.length);
    const kernel = sessionContext.session?.kernel;
    if (kernel?.connectionStatus !== "connected") return false;
    const answer = kernel.requestExecute({code, silent: true, store_history: false}).done.then(({content}) => content.status);
    if (await Promise.race([answer, new Promise(done => setTimeout(done, patience))]) !== "ok") return false;
    await import("data:text/javascript,export default " + Math.random());
    return document.querySelector(".jp-Dialog, .noetic-nb, .jp-OutputArea-child") === null;
}"""
# In the kernel: removes views and names of the previous test. Its imports stay.
FORGET: Final = """
import ipywidgets
ipywidgets.Widget.close_all()
get_ipython().run_line_magic("reset", "-f")
__import__("gc").collect()
"""
FILL_MS: Final = 90_000
PATIENCE_MS: Final = 20_000

# Ends the kernel before its notebook. A view that is still loading would report errors about its scripts.
LEAVE: Final = """async path => {
    for (const widget of [...window.jupyterapp.shell.widgets("main")])
        if (widget.context?.path === path) { await widget.context.sessionContext.shutdown(); widget.dispose(); }
    await import("data:text/javascript,export default " + Math.random());
    return document.querySelector(".jp-Notebook, .jp-Dialog, .noetic-nb") === null;
}"""

# Runs all cells, and returns how many ended and their errors. A dialog would block the command. Then waits until views
# are drawn: until then, a one-off query would find their static forms.
RUN_ALL: Final = r"""async ([patience, patienceWithViews]) => {
    const cells = [...document.querySelectorAll(".jp-CodeCell")], until = performance.now() + patience;
    const ended = () => cells.filter(cell => /\[\d+\]/.test(cell.querySelector(".jp-InputPrompt").textContent)).length;
    const wait = ms => new Promise(done => setTimeout(done, ms));
    await Promise.race([window.jupyterapp.commands.execute("notebook:run-all-cells"), wait(patience)]);
    const errors = "[data-mime-type='application/vnd.jupyter.stderr'], .jp-RenderedError";
    while (ended() < cells.length && !document.querySelector(errors) && performance.now() < until) await wait(5);
    // An output without a type is that of a widget. For a moment neither its view nor the static form beside it is there.
    const isLate = output => {
        const form = output.closest(".jp-OutputArea").querySelector(".noetic-nb-static");
        return form ? form.checkVisibility() : output.checkVisibility() && output.firstElementChild === null;
    };
    const late = () => [...document.querySelectorAll(".jp-OutputArea-output:not([data-mime-type])")].some(isLate);
    const last = performance.now() + patienceWithViews;
    while (late() && performance.now() < last) await wait(5);
    return [ended(), cells.length, [...document.querySelectorAll(errors)].map(error => error.innerText)];
}"""
RUN_ALL_MS: Final = 120_000
# For the message of a test whose cells do not end.
STATE: Final = """() => JSON.stringify([
    window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status,
    [...document.querySelectorAll(".jp-InputPrompt, .jp-Dialog")].map(shown => shown.textContent),
])"""

# Applies a theme that the page has used before, and returns whether it could.
WEAR: Final = """light => {
    const worn = window.wornThemes?.[light];
    if (!worn) return false;
    for (const link of document.querySelectorAll("link[href*='/api/themes/']")) link.sheet.disabled = link.href !== worn.href;
    Object.assign(document.body.dataset, worn.data);
    const ground = getComputedStyle(document.body).getPropertyValue("--jp-layout-color0");
    if (ground !== worn.ground) throw new Error(`the ground is ${ground} and not ${worn.ground}`);
    return true;
}"""
# Keeps the style sheet and attributes of JupyterLab's current theme, for use after a change of theme.
KEEP: Final = """async light => {
    const copy = document.querySelector("link[href*='/api/themes/']:not(.kept)").cloneNode();
    copy.className = "kept";
    const loaded = new Promise((done, failed) => { copy.onload = done; copy.onerror = failed; });
    document.head.append(copy);
    await loaded;
    const names = Object.entries(document.body.dataset).filter(([name]) => name.startsWith("jpTheme"));
    const ground = getComputedStyle(document.body).getPropertyValue("--jp-layout-color0");
    (window.wornThemes ??= {})[light] = {href: copy.href, data: Object.fromEntries(names), ground};
}"""


class Window:
    """A page of the front end for many notebooks in succession, because starting it takes longer than most tests.

    A notebook that need not be alone takes over the file and kernel of the previous one, both emptied: names, views and
    outputs of a test are not visible to the next. Errors of the page are recorded by the current notebook. A page that
    cannot be cleaned is not used again.
    """

    MOST: Final = 100
    """Most notebooks in one page, to limit the front end's memory leaks."""

    def __init__(self, lab: Lab, browser: Browser) -> None:
        self.lab = lab
        # Share the cache of loaded files between pages.
        lab.context = lab.context or browser.new_context(viewport=VIEWPORT)
        self.page: Page = lab.context.new_page()
        self.notebook: LabNotebook | None = None
        self.shared: LabNotebook | None = None
        self.listening = False
        self.shown = 0
        # Only observed, because interception would disable the page's cache; other hosts have no address (FLAGS in conftest.py).
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
        """Show the cells of a notebook: replacing those of the last one if the kernel is shared, otherwise opened as a file."""
        self.notebook = notebook
        self.shown += 1
        if self.page.viewport_size != VIEWPORT:
            self.page.set_viewport_size(VIEWPORT)
        if self.shared is not None and not notebook.is_alone:
            notebook.shares_page, notebook.path = True, self.shared.path
            notebook.client, self.shared.client = self.shared.client, None
            self.listening = True
            assert self.page.evaluate(FILL, [notebook.cells, FILL_MS]), "the page does not show the cells"
            return
        if self.shared is not None and not self._end(self.shared):
            raise AssertionError("the page of the last notebook did not come clean")
        self.shared = None
        notebook.write()
        if notebook.saved is not None:
            self.page.goto("about:blank")
        self._open(notebook)

    def _open(self, notebook: LabNotebook) -> None:
        """Open a file and wait until its kernel is connected."""
        name = notebook.path.name
        used = self.page.evaluate("() => Boolean(window.jupyterapp)")
        notebook.shares_page = bool(used)
        # Until the next notebook is open, errors in a used page belong to the previous one, which is gone.
        self.listening = not used
        if used:
            self.page.evaluate(
                "path => window.jupyterapp.commands.execute('docmanager:open', {path}).then(() => null)", name
            )
        else:
            self.page.goto(f"{self.lab.url}/{self.lab.page}/{name}?token={self.lab.token}&reset", timeout=90_000)
        self.page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=90_000)
        self.page.wait_for_function(READY, arg=name, timeout=90_000)
        self.listening = True

    def leave(self) -> bool:
        """Remove the notebook; returns whether the page can be used for another."""
        notebook, self.notebook = self.notebook, None
        if notebook is None or notebook.wrong() or notebook.dialogs or self.shown >= self.MOST:
            return False
        if notebook.tolerated not in (None, LATE_PROBLEMS, NO_ANSWER):  # late errors would reach the next notebook
            return False
        try:
            if not notebook.is_alone and self.page.evaluate(CLEAR, [FORGET, PATIENCE_MS]):
                self.shared = notebook
                return True
            self.shared = None
            return self._end(notebook)
        except PlaywrightError:
            return False

    def _end(self, notebook: LabNotebook) -> bool:
        """Close a notebook with its kernel."""
        notebook.hang_up()
        ended = bool(self.page.evaluate(LEAVE, notebook.path.name))
        self._end_sessions()
        return ended

    def _end_sessions(self) -> None:
        for session in self.lab.api("/api/sessions"):
            self.lab.api(f"/api/sessions/{session['id']}", method="DELETE")

    def close(self) -> None:
        if self.shared is not None:
            self.shared.hang_up()
        self.page.close()
        self._end_sessions()


class LabNotebook:
    """A notebook open in JupyterLab; records errors of the page and requests to other hosts.

    A saved notebook is trusted, and opened in a reloaded page, as on the next day.
    """

    def __init__(
        self, window: Window, name: str, cells: Sequence[str], *, is_alone: bool = False, saved: Any = None
    ) -> None:
        self.window, self.lab, self.page = window, window.lab, window.page
        self.cells = [cell.strip() for cell in cells]
        self.is_alone = is_alone or saved is not None
        self.saved = saved
        self.foreign: list[str] = []
        self.problems: list[str] = []
        self.tolerated: re.Pattern[str] | None = None
        self.dialogs: list[str] = []
        self.shares_page = False
        self.client: Kernel | None = None
        self.path = self.lab.root / f"{name}.ipynb"

    def write(self) -> None:
        """Write the file."""
        notebook = self.saved
        if notebook is None:
            notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in self.cells])
            notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        else:
            notary = NotebookNotary(data_dir=str(self.lab.root / "data"))
            notary.sign(notebook)
            notary.store.close()
        nbformat.write(notebook, self.path)

    def open(self) -> LabNotebook:
        """Show the cells, and wait until their kernel is connected."""
        self.window.show(self)
        return self

    def wrong(self) -> list[str]:
        """Return the errors of the page, except tolerated ones."""
        allowed = [ALLOWED_PROBLEMS, self.tolerated, LATE_PROBLEMS if self.shares_page else None]
        return [problem for problem in self.problems if not any(each and each.search(problem) for each in allowed)]

    def command(self, name: str, **arguments: Any) -> None:
        """Start a command of JupyterLab without awaiting it, because a dialog would block the test."""
        self.page.evaluate("([name, args]) => { window.jupyterapp.commands.execute(name, args); }", [name, arguments])

    def run_all(self) -> None:
        """Run all cells, and wait until each has ended and its views are drawn; a failing cell fails the test."""
        ended, cells, errors = self.page.evaluate(RUN_ALL, [RUN_ALL_MS, PATIENCE_MS])
        assert not errors, errors[0]
        assert ended == cells, f"{ended} of {cells} cells have run. {self.page.evaluate(STATE)}\n{self.lab.stacks()}"

    @property
    def view(self) -> Locator:
        """The first live view; until it is drawn, its static form is in its place."""
        return self.page.locator(LIVE).first

    @property
    def kernel(self) -> Kernel:
        """A second client of the kernel."""
        if self.client is None:
            path = self.path.name
            sessions = wait_for(
                lambda: [s for s in self.lab.api("/api/sessions") if s["path"] == path], f"a session of {path}"
            )
            self.client = Kernel(self.lab, sessions[0]["kernel"]["id"])
        return self.client

    def settle(self) -> None:
        """Wait until the page has received the kernel's messages: a returning selection shows its row."""
        self.page.evaluate(
            "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
            ".requestExecute({code: '', silent: true, store_history: false}).done.then(() => null)"
        )

    def knows_subshells(self) -> None:
        """Wait until the page knows the subshells of its widgets: until then all its messages share one."""
        self.page.wait_for_function(
            "() => [...window.jupyterapp.shell.currentWidget.sessionContext.session.kernel._comms.values()]"
            ".every(comm => comm.subshellId)"
        )

    def themes(self) -> Iterator[str]:
        """Switch to both themes, starting with the current one, and yield their names: ``"light"`` and ``"dark"``."""
        is_light = self.page.evaluate("() => document.body.dataset.jpThemeLight === 'true'")
        for name in ("light", "dark") if is_light else ("dark", "light"):
            self.theme(name)
            yield name

    def theme(self, name: str) -> None:
        """Switch to ``"light"`` or ``"dark"``: once per page as JupyterLab does, then to the same sheets without its splash."""
        light = "true" if name == "light" else "false"
        if self.page.evaluate(WEAR, light):
            return
        if self.page.evaluate("() => document.body.dataset.jpThemeLight") != light:
            self.command("apputils:change-theme", theme=f"JupyterLab {name.title()}")
        self.page.wait_for_selector(f"body[data-jp-theme-light='{light}']", state="attached", timeout=30_000)
        self.page.wait_for_selector("#jupyterlab-splash", state="detached", timeout=30_000)
        # The style sheet of a theme arrives after the attribute.
        self.page.wait_for_function(
            "dark => { const c = getComputedStyle(document.body).getPropertyValue('--jp-layout-color0').trim();"
            " return c !== '' && (c === 'white' || c === '#fff' || c === '#ffffff') !== dark; }",
            arg=light == "false",
        )
        self.page.evaluate(KEEP, light)

    def close(self, *, is_suspect: bool = False) -> None:
        """Leave the page open for the next notebook if it is clean.

        After a failed test the page is not queried: it may be busy for ever, and queries have no time limit.
        """
        if is_suspect or not self.window.leave():
            self.window.close()
            self.lab.window = None
        if self.window.shared is not self:
            self.hang_up()

    def hang_up(self) -> None:
        """Release the kernel for others."""
        if self.client is not None:
            self.client.close()
            self.client = None
