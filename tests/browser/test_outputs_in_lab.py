"""In JupyterLab: the page of a view that is live, closed, without its kernel, saved and reopened."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from playwright.sync_api import expect

from tests.browser.appearance import assert_readable
from tests.browser.lab import ROOT, wait_for
from tests.browser.window import LIVE, NO_ANSWER
from tests.matrix import matrix

Open = Callable[..., Any]
# JupyterLab reports a saved widget without a model, and a kernel ended by the test; the page itself shows neither.
NO_MODEL = re.compile(f"widget model not found|{NO_ANSWER.pattern}")
SHOWN = "TokenAllocation(run)", "Ledger(run)", "RegulatorTrends(run)", "RuleEditor(rules, run=run)"
RULES = "from noetic_nb.steering import RuleBook\nrules = RuleBook()"
# Every visible output: its height, whether it is live, and its text.
OUTPUTS = """() => [...document.querySelectorAll(".jp-OutputArea-child")]
    .map(child => [child.getBoundingClientRect().height, Boolean(child.querySelector("[class*=nn-live-]")), child.innerText])
    .filter(([height]) => height > 0)"""
WRONG = re.compile(r"model not found|Error displaying|Loading widget|<\w+ object at|TokenAllocation\(")


SESSION = "window.jupyterapp.shell.currentWidget.sessionContext"


def outputs(page: Any) -> list[Any]:
    found: list[Any] = page.evaluate(OUTPUTS)
    return found


def assert_shown(opened: Any, *, live: int, static: int) -> None:
    """Wait until the page shows these numbers of live views and static forms, and nothing else."""

    def counted() -> tuple[int, int]:
        found = outputs(opened.page)
        return len([each for each in found if each[1]]), len([each for each in found if not each[1]])

    wait_for(lambda: counted() == (live, static), f"{live} live views and {static} static forms")
    texts = [text for _, _, text in outputs(opened.page)]
    assert [text for text in texts if WRONG.search(text)] == []


def test_a_live_view_hides_its_static_form_and_closing_brings_it_back(notebook: Open, cells_of: Open) -> None:
    cells = [f"view_{n} = {made}\nview_{n}" for n, made in enumerate(SHOWN)]
    opened = notebook(*cells_of("demo_run", [RULES, *cells]))
    opened.run_all()
    assert_shown(opened, live=4, static=0)

    opened.kernel.run("view_0.close(); view_3.close()")
    assert_shown(opened, live=2, static=2)

    opened.kernel.run("view_1.close(); view_2.close()")
    assert_shown(opened, live=0, static=4)
    expect(opened.page.locator(".noetic-nb-static .nn-title").first).to_have_text("Token allocation")


def test_a_kernel_that_is_gone_leaves_the_static_forms(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("demo_run", [RULES, *SHOWN]), is_alone=True)
    opened.run_all()
    assert_shown(opened, live=4, static=0)
    opened.tolerated = NO_ANSWER

    opened.page.evaluate(f"() => {SESSION}.session.kernel.restart().then(() => null)")

    assert_shown(opened, live=0, static=4)


def saved(opened: Any) -> Any:
    """Save the notebook and return the content of the file."""
    opened.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    return nbformat.read(opened.path, as_version=4)


def test_a_notebook_opened_again_shows_the_pictures(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("demo_run", [RULES, *SHOWN[:3], f"closed = {SHOWN[0]}\nclosed"]), is_alone=True)
    opened.run_all()
    opened.kernel.run("closed.close()")
    assert_shown(opened, live=3, static=1)
    wait_for(lambda: [len(cell.outputs) for cell in saved(opened).cells[-4:]] == [2] * 4, "all outputs are in the file")
    assert dict(saved(opened).cells[-1].outputs[0].data) == {}
    kept = saved(opened)
    opened.tolerated = NO_MODEL
    for session in opened.lab.api("/api/sessions"):
        opened.lab.api(f"/api/sessions/{session['id']}", method="DELETE")

    opened.saved = kept
    opened.open()

    assert_shown(opened, live=0, static=4)


def test_a_notebook_with_stored_widgets_opened_again_shows_each_picture_once(
    notebook: Open, cells_of: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cells = [nbformat.v4.new_code_cell(cell) for cell in cells_of("demo_run", [RULES, *SHOWN])]
    executed = nbformat.v4.new_notebook(cells=cells)
    executed.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    NotebookClient(executed, timeout=120).execute()
    assert "widgets" in executed.metadata

    opened = notebook(saved=executed)

    opened.page.wait_for_selector(".jupyter-widgets-disconnected", state="attached")
    assert_shown(opened, live=0, static=4)


PRICES = """
from noetic_nb.events import SteeringDecided, Where
price = "costs $5 and then $6"
for event in scenes.turn(7, layers=(scenes.layer(price, 100, 50),)): run.append(event)
place = Where("t1", "e", 7)
run.append(SteeringDecided(place, 0.0, "steering", "before_tool_call", "pay", {}, "deny", price, ("r",), 0.1))
"""


def test_two_prices_in_a_line_are_no_formula(notebook: Open, cells_of: Open) -> None:
    views = ["one = TokenAllocation(run)\none", "two = Ledger(run)\ntwo"]
    opened = notebook(*cells_of("demo_run", [PRICES, *views, "from IPython.display import HTML\nHTML('a $x$ b')"]))
    opened.run_all()

    opened.page.wait_for_selector("mjx-container", state="attached")  # MathJax is active elsewhere on the page
    for form in (LIVE, ".noetic-nb-static"):
        pictures = opened.page.locator(form)
        expect(pictures).to_have_count(2)
        for at in range(2):
            expect(pictures.nth(at)).to_contain_text("costs $5 and then $6")
        assert opened.page.locator(".noetic-nb mjx-container").count() == 0
        opened.kernel.run("one.close(); two.close()")


@matrix("part", ["draw", "take", "render"], keep=1)
def test_a_fault_in_the_page_is_shown_and_logged_and_is_no_empty_box(notebook: Open, part: str) -> None:
    from tests.browser.test_selection_in_lab import PROBE

    broken = {
        "draw": ("const draw = () =>", "const draw = () => missing.thing;\n    const unused = () =>"),
        "take": ("storeOf(() => true)", "storeOf(() => missing.thing)"),
        "render": ("const turn =", "missing.thing();\n    const turn ="),
    }[part]
    source = PROBE.replace(*broken).replace("render }", "render: store.guard(render) }")
    take = "    def take(self, event, place):\n        return {'type': 'news'}\n    def to_text"
    source = source.replace("    def to_text", take)
    opened = notebook(
        source,
        "import logging\nlines = []\nhandler = logging.Handler()\n"
        "handler.emit = lambda record: lines.append(record.getMessage())\n"
        "logging.getLogger('noetic_nb').handlers[:] = [handler]",
        "shown = Probe(None)\nshown",
    )
    opened.run_all()
    alert = opened.page.get_by_role("alert")
    if part == "take":  # an answer comes after the messages missed while loading, and repairs a fault
        opened.page.get_by_role("button", name="ask").click()
        expect(opened.page.locator(".answers")).to_have_text(" 4 9")
    opened.kernel.run(
        "from noetic_nb.events import QualityGiven, Where\n"
        "shown.run.append(QualityGiven(Where('t', 'e', 1), 0.0, 0.5, 'user'))"
    )

    expect(alert).to_contain_text("This view failed in the page: ReferenceError: missing is not defined")
    assert_readable(opened.page.locator(LIVE))
    wait_for(lambda: "missing is not defined" in opened.kernel.value("lines"), "the kernel's log has it")
    opened.kernel.says("len(lines)", "1")


def test_a_page_saves_the_files_of_a_view_and_of_a_panel(notebook: Open, cells_of: Open, tmp_path: Path) -> None:
    opened = notebook(*cells_of("demo_run", ["bench = Workbench(run, panels=['ledger'])\nbench"]))
    opened.run_all()
    root = opened.view

    for title in ("Workbench: run-1", "Ledger"):
        expect(root.get_by_role("heading", name=title)).to_be_visible()
    for name, kind, code in [("workbench", "HTML", "bench.to_page()"), ("ledger", "CSV", "bench.ledger.to_csv()")]:
        parts = root.get_by_role("group", name="Save as")
        part = parts.last if name == "workbench" else parts.first
        with opened.page.expect_download() as started:
            part.get_by_role("button", name=kind).click()
        started.value.save_as(tmp_path / name)
        assert started.value.suggested_filename == f"{name}.{kind.lower()}"
        opened.kernel.says(f"__import__('pathlib').Path({str(tmp_path / name)!r}).read_text() == {code}", "True")


# Replaces the browser's clipboard by a stub.
CLIPBOARD = "value => Object.defineProperty(navigator, 'clipboard', {value: eval(value), configurable: true})"
NO_PNG = "({write: async () => { throw new Error('no'); }, writeText: async text => { window.copied = text; }})"
REFUSES = NO_PNG.replace("{ window.copied = text; }", "{ throw new Error('no'); }")
READ = """async () => {
    const [item] = await navigator.clipboard.read();
    return [...new Uint8Array(await (await item.getType("image/png")).arrayBuffer())].slice(0, 8);
}"""


def test_a_page_copies_a_picture(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("demo_run", ["shown = TokenAllocation(run)\nshown"]))
    opened.run_all()
    button = opened.view.get_by_role("button", name="Copy picture to the clipboard")
    status = opened.view.get_by_role("group", name="Save as or copy").locator("[aria-live]")
    opened.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    try:
        button.press("Enter")
        expect(status).to_have_text("Copied as PNG.")
        assert bytes(opened.page.evaluate(READ)) == b"\x89PNG\r\n\x1a\n"
        expect(button).to_be_focused()
    finally:
        opened.page.context.clear_permissions()


def test_a_page_that_may_not_copy_a_picture_says_so(notebook: Open, cells_of: Open) -> None:
    opened = notebook(*cells_of("demo_run", ["shown = TokenAllocation(run)\nshown"]))
    opened.run_all()
    button = opened.view.get_by_role("button", name="Copy picture to the clipboard")
    alert = opened.view.get_by_role("alert")
    status = opened.view.get_by_role("group", name="Save as or copy").locator("[aria-live]")
    try:
        for given, sentence in [
            ("undefined", "only over https or on localhost"),
            (REFUSES, "does not allow this page"),
        ]:
            opened.page.evaluate(CLIPBOARD, given)
            button.click()
            expect(alert).to_contain_text(re.compile(f"could not be copied: .*{sentence}.*Save it as PNG instead"))
            expect(status).to_have_text("")

        opened.page.evaluate(CLIPBOARD, NO_PNG)
        button.click()
        expect(status).to_contain_text("as the text of an SVG")
        expect(alert).to_have_count(0)
        assert repr(opened.page.evaluate("window.copied")) == opened.kernel.value("shown.to_svg()")
    finally:
        opened.page.evaluate("() => { delete navigator.clipboard; delete window.copied; }")
