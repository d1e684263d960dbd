"""In JupyterLab: pages select and send requests, and every view that shares a selection follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

Open = Callable[..., Any]

PROBE = '''
from noetic_nb.errors import NoeticConfigError
from noetic_nb.runs import Run
from noetic_nb.widgets import Selection
from noetic_nb.widgets.base._assets import _text, style
from noetic_nb.widgets.base._feed import Reading
from noetic_nb.widgets.base._run_view import RunView

class Squares(Reading):
    """Answers with the square of a number."""
    def __init__(self):
        self.snapshot = {}
    def take(self, event, place):
        return None
    def answer(self, request):
        if request["number"] < 0:
            raise NoeticConfigError("TOO_SMALL", "Numbers begin at 0.", given=request["number"], hint="Ask for more.")
        return request["number"] ** 2
    def to_html(self):
        return "<p>static</p>"
    def to_text(self):
        return "text"

class Probe(RunView):
    """Two buttons, and what came of them."""
    _css = style("base/approval")
    _esm = _text("base/common.js") + r"""
export default () => {
  const store = storeOf(() => true);
  const render = ({ model, el }) => {
    const root = el.appendChild(make("div", { class: "noetic-nb probe" }));
    const turn = root.appendChild(make("p", { class: "turn" }));
    const answers = root.appendChild(make("p", { class: "answers" }));
    const on = root.appendChild(make("button", {}, "on"));
    const ask = root.appendChild(make("button", {}, "ask"));
    const wrong = root.appendChild(make("button", {}, "wrong"));
    on.addEventListener("click", () => store.select(model, { turn: (store.selection.turn ?? 0) + 1 }));
    const said = (text) => setText(answers, `${answers.textContent} ${text}`);
    ask.addEventListener("click", async () => {
      for (const number of [2, 3]) said(await store.get(model, { number }));
    });
    wrong.addEventListener("click", () => store.get(model, { number: -1 }).catch((error) => said(error.message)));
    const draw = () => setText(turn, `turn ${store.selection.turn}`);
    return store.show({ model, root, draw });
  };
  return { initialize: store.initialize, render };
};
"""
    def __init__(self, selection):
        super().__init__(Run(), Squares(), selection=selection)
'''
CELLS = (
    PROBE,
    "chosen = Selection()\nfirst = Probe(chosen)\nfirst",
    "second = Probe(chosen)\nsecond",
    "lone = Probe(None)\nlone",
)


def test_a_choice_in_one_page_is_seen_in_all_that_share_it_and_in_the_kernel(notebook: Open) -> None:
    opened = notebook(*CELLS)
    opened.run_all()
    views = opened.page.locator(".probe")
    turns = opened.page.locator(".probe .turn")
    expect(turns).to_have_text(["turn null", "turn null", "turn null"])

    for _ in range(5):
        views.nth(0).get_by_text("on", exact=True).click()

    expect(turns).to_have_text(["turn 5", "turn 5", "turn null"])
    opened.kernel.says("chosen.turn, first.snapshot['selection']['turn'], lone.selection.turn", "(5, 5, None)")

    opened.kernel.run("chosen.select(turn=40, call=1)")

    expect(turns).to_have_text(["turn 40", "turn 40", "turn null"])


def test_a_page_asks_its_kernel_and_shows_the_answer_or_what_is_wrong(notebook: Open) -> None:
    opened = notebook(*CELLS[:2])
    opened.run_all()
    view = opened.page.locator(".probe")

    view.get_by_text("ask", exact=True).click()
    expect(view.locator(".answers")).to_have_text(" 4 9")

    view.get_by_text("wrong", exact=True).click()
    expect(view.locator(".answers")).to_contain_text("[TOO_SMALL] Numbers begin at 0.")
