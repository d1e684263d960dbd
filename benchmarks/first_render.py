"""How long a page takes to show the workbench, beside a tree of 50 ipywidgets, and a kernel to its first widget.

    python -m benchmarks.first_render [--rounds 8]

JupyterLab in headless Chromium. Both sides are cells of one notebook that take turns, over and over: a workbench with its four
panels over a run of 20 turns, and nested boxes of controls, 50 in all. What loads lazily for either (the controls of ipywidgets,
anywidget) is loaded before by a widget of each kind, and one round of both is shown first. A cell begins when it is run and is
over when all of its widgets stand in the page and the next frame is painted; the page's part begins with the first message about
a widget. It stands at the top of the window, so that most of what it shows is in sight. The floor is an anywidget that shows one
word. The processor time is that of the page's main thread in a cell.

`make bench` does without this one: it needs a Chromium, which few machines of servers have.

The first widget is a workbench in the first cell of a fresh kernel, that imports it, on a page that has shown no widget yet.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, sync_playwright

from benchmarks.comparing import Lines, parser
from benchmarks.widgets import SCENES
from tests.browser.conftest import FLAGS, chromium_path
from tests.browser.lab import Lab
from tests.browser.window import LabNotebook, Window

FIRST_ROUNDS: Final = 3
# Outputs of cells before stand above in the same page; a browser lays out again what is below them.
REST_MS: Final = 1_000
SCROLLED_MS: Final = 200
RATIOS: Final = (
    "the workbench in a page, from the start of its cell / a tree of 50 ipywidgets",
    "the workbench in a page, from the first message on / a tree of 50 ipywidgets",
    "the workbench in a page, processor time of the page / a tree of 50 ipywidgets",
)
FLOOR: Final = "an anywidget that shows one word, {}"
BEST: Final = "first widget of a kernel on the page, best"
MEDIAN: Final = "first widget of a kernel on the page, median"
KNOWN: Final[dict[str, float | None]] = {
    RATIOS[0]: 0.5,
    FLOOR.format(RATIOS[0].partition(",")[2].strip()): None,
    RATIOS[1]: 0.5,
    FLOOR.format(RATIOS[1].partition(",")[2].strip()): None,
    RATIOS[2]: None,
    FLOOR.format(RATIOS[2].partition(",")[2].strip()): None,
    BEST: 1_500,
    MEDIAN: 1_500,
}

SET_UP: Final = (
    SCENES
    + """
import ipywidgets

class Word(anywidget.AnyWidget):
    _esm = "export default { render({ el }) { el.classList.add('one-word'); el.textContent = 'word'; } }"

def tree():
    rows = [ipywidgets.HBox([ipywidgets.Label(f"row {n}"), ipywidgets.IntSlider(value=n), ipywidgets.Text(value=str(n)),
                             ipywidgets.Button(description="go")]) for n in range(9)]
    whole = ipywidgets.VBox([*rows, *[ipywidgets.Label(word) for word in ("all", "of", "it", "ends")]])
    return [whole, *rows, *[child for row in rows for child in row.children], *whole.children[9:]]

def close():
    for widget in made:
        for part in (getattr(widget, "layout", None), getattr(widget, "style", None), widget):
            if part is not None:
                part.close()

SMALL = scene(20)
"""
)
CELLS: Final = {
    "label": "made = [ipywidgets.Label('word')]\ndisplay(made[0])",
    "word": "made = [Word()]\ndisplay(made[0])",
    "tree": "made = tree()\ndisplay(made[0])",
    "bench": "made = [Workbench(SMALL)]\ndisplay(made[0])",
    "first": "from noetic_nb import Run\nfrom noetic_nb.widgets import Workbench\nWorkbench(Run())",
}
# What has to stand in the output of a cell: a selector, and how many it finds.
SHOWN: Final[dict[str, dict[str, int]]] = {
    "label": {".widget-label": 1},
    "word": {".one-word": 1},
    "tree": {".widget-slider": 9, ".widget-text input": 9, ".widget-button": 9, ".widget-label": 22},
    "bench": {
        ".nn-panel-view > .noetic-nb": 4,
        ".nn-turn": 20,
        ".nn-t-items > li": 40,
        '.nn-strip > [viewBox^="0 0 40 "] > path': 5,
        ".nn-plot": 5,
    },
    "first": {".nn-panel-view > .noetic-nb": 4},
}
TO_TOP: Final = (
    "(at) => window.jupyterapp.shell.currentWidget.content.widgets[at].node.scrollIntoView({ block: 'start' })"
)
RUN: Final = """([at, shown]) => new Promise((resolve) => {
  const { content, sessionContext } = window.jupyterapp.shell.currentWidget;
  const { kernel } = sessionContext.session;
  const cell = content.widgets[at].node;
  let opened = 0;
  const heard = (_, { direction, msg }) => {
    if (direction === "recv" && msg.header.msg_type === "comm_open") opened ||= performance.now();
  };
  const isShown = () => Object.entries(shown).every(([selector, least]) => cell.querySelectorAll(selector).length >= least);
  const look = () => {
    if (!isShown()) return;
    observer.disconnect();
    kernel.anyMessage.disconnect(heard);
    requestAnimationFrame(() => {
      const painted = new MessageChannel();
      painted.port1.onmessage = () => resolve([performance.now() - begun, performance.now() - opened]);
      painted.port2.postMessage(null);
    });
  };
  const observer = new MutationObserver(look);
  observer.observe(cell, { childList: true, subtree: true, attributes: true });
  kernel.anyMessage.connect(heard);
  content.activeCellIndex = at;
  const begun = performance.now();
  window.jupyterapp.commands.execute("notebook:run-cell");
})"""


@contextmanager
def opened(lab: Lab, browser: Browser, name: str, cells: Sequence[str]) -> Iterator[LabNotebook]:
    """Open a notebook on a page of its own."""
    window = Window(lab, browser)
    notebook = LabNotebook(window, name, cells).open()
    try:
        yield notebook
    finally:
        notebook.close()
        window.close()


def processor(notebook: LabNotebook) -> Callable[[], float]:
    """Return a function that gives the seconds of processor time that the page's main thread has used."""
    tools = notebook.page.context.new_cdp_session(notebook.page)
    tools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy() -> float:
        metrics = tools.send("Performance.getMetrics")["metrics"]
        return next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")

    return busy


def beside(lab: Lab, browser: Browser, rounds: int) -> dict[str, list[list[float]]]:
    """Return, for each kind of cell and each round, the seconds of the whole, of the page's part, and of its processor."""
    order = ["label", "word"]
    for number in range(rounds + 1):
        order += ["tree", "bench", "word"] if number % 2 == 0 else ["bench", "word", "tree"]
    found: dict[str, list[list[float]]] = {kind: [] for kind in CELLS}
    with opened(lab, browser, "beside", [SET_UP, *[CELLS[kind] for kind in order]]) as notebook:
        page = notebook.page
        busy = processor(notebook)
        page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-cell').then(() => null)")
        for at, kind in enumerate(order, 1):
            page.evaluate(TO_TOP, at)
            page.wait_for_timeout(SCROLLED_MS)
            before = busy()
            whole, part = page.evaluate(RUN, [at, SHOWN[kind]])
            found[kind].append([whole / 1e3, part / 1e3, busy() - before])
            page.wait_for_timeout(REST_MS)
            notebook.kernel.run("close()")
            page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-cell-output').then(() => null)")
    # The first of each kind is not counted, of the word the first two.
    return {kind: each[-rounds:] for kind, each in found.items()}


def first(lab: Lab, browser: Browser, number: int) -> float:
    """Return the milliseconds from the start of the first cell of a kernel to its workbench on the page."""
    with opened(lab, browser, f"first_{number}", [CELLS["first"]]) as notebook:
        whole, _ = notebook.page.evaluate(RUN, [0, SHOWN["first"]])
        return float(whole)


def main() -> int:
    """Print how long the page takes."""
    options = parser(__doc__, rounds=8).parse_args()
    lines = Lines(KNOWN)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium_path(), headless=True, args=FLAGS)
        lab = Lab(Path(folder))
        try:
            found = beside(lab, browser, options.rounds)
            firsts = [first(lab, browser, number) for number in range(FIRST_ROUNDS)]
        finally:
            lab.close()
            browser.close()
    for at, what in enumerate(RATIOS):
        tree = [each[at] for each in found["tree"]]
        lines.ratio(what, [each[at] for each in found["bench"]], tree, unit="ms")
        lines.ratio(FLOOR.format(what.partition(",")[2].strip()), [each[at] for each in found["word"]], tree, unit="ms")
    lines.value(BEST, min(firsts))
    lines.value(MEDIAN, statistics.median(firsts))
    return lines.end(options)


if __name__ == "__main__":
    sys.exit(main())
