"""Even if the text of a report becomes part of its page, it runs no script and contacts no server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noetic_nb.cli._commands.of_runs import page
from noetic_nb.lab import datasets
from noetic_nb.runs import Run
from noetic_nb.widgets import Compare, TokenAllocation, Transcript, Workbench
from tests.widgets.scenes import demo_run
from tests.widgets.views import VIEWS

PICTURE = "data:image/gif;base64,R0lGODlhAQABAIAAAP8AAP///yH5BAAAAAAALAAAAAABAAEAAAICRAEAOw=="
HOSTILE = f"""
<script>document.title = "ran"</script><img id="own" src="{PICTURE}" onload="document.title = 'ran'">
<img src="http://127.0.0.1:9/a.png"><link rel="stylesheet" href="http://127.0.0.1:9/a.css">
<iframe src="http://127.0.0.1:9/"></iframe><style>h1 {{ background: url(http://127.0.0.1:9/b.png) }}</style>
"""


def test_a_report_forbids_scripts_and_requests(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page(datasets.airline()[:1], 1).replace("</h1>", f"</h1>{HOSTILE}", 1), encoding="utf-8")
    context, asked = browser.new_context(), []
    context.route("http://**", lambda route: (asked.append(route.request.url), route.abort()))
    shown = context.new_page()

    shown.goto(path.as_uri())

    assert shown.title() != "ran"
    assert asked == []
    assert shown.locator("#own").evaluate("picture => picture.naturalWidth") == 1
    assert shown.locator(".noetic-nb-static").first.evaluate("box => getComputedStyle(box).display") != ""
    assert shown.locator("h1").evaluate("head => getComputedStyle(head).fontFamily") != "serif"
    context.close()


# The first and the last word of a sentence in Hebrew with a name in Latin letters.
FIRST, LAST = "שלום", "רבה"
PLACES = r"""([selector, ...words]) => [...document.querySelectorAll(selector)].flatMap(node => {
  const [first, last] = words.map(word => {
    const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
    for (let text; (text = walker.nextNode());) {
      const at = text.data.indexOf(word);
      if (at < 0) continue;
      const range = document.createRange();
      range.setStart(text, at);
      range.setEnd(text, at + word.length);
      return range.getBoundingClientRect();
    }
  });
  return first && last && first.top === last.top ? [[first.left, last.left]] : [];
})"""


@pytest.mark.parametrize(
    ("view", "selector"),
    [
        (Workbench, ".nn-said"),
        (Workbench, ".nn-reply"),
        (Transcript, ".nn-t-words"),
        (lambda run: Compare(run, Run("other")), ".nn-compared td"),
    ],
    ids=["said", "reply", "transcript", "compare"],
)
def test_right_to_left_texts_are_read_in_their_order(browser: Any, tmp_path: Path, view: Any, selector: str) -> None:
    text = f"{FIRST} A17, תודה {LAST}!"
    run = Run.from_messages([{"role": "user", "content": text}, {"role": "assistant", "content": text}])
    with view(run) as shown:
        shown.to_page(path := tmp_path / "view.html")
    context = browser.new_context()
    opened = context.new_page()
    opened.goto(path.as_uri())

    places = opened.evaluate(PLACES, [selector, FIRST, LAST])

    assert places
    assert all(first > last for first, last in places)
    context.close()


@pytest.mark.parametrize("view", [view for view in VIEWS if view is not Workbench])
def test_the_style_of_a_workbench_changes_no_other_view(browser: Any, tmp_path: Path, view: Any) -> None:
    with view(demo_run()) as shown:
        shown.to_page(path := tmp_path / "view.html")
    context = browser.new_context(bypass_csp=True)
    opened = context.new_page()
    opened.goto(path.as_uri())
    boxes = "() => [...document.querySelectorAll('.noetic-nb *')].map(n => JSON.stringify(n.getBoundingClientRect()))"

    before = opened.evaluate(boxes)
    opened.add_style_tag(content=Workbench._css)

    assert before
    assert opened.evaluate(boxes) == before
    context.close()


def test_the_names_of_parts_are_not_broken_on_a_narrow_page(browser: Any, tmp_path: Path) -> None:
    with TokenAllocation(demo_run()) as shown:
        shown.to_page(path := tmp_path / "view.html")
    context = browser.new_context(viewport={"width": 390, "height": 900})
    opened = context.new_page()
    opened.goto(path.as_uri())

    heights = opened.locator("tbody th", has_text="Unexplained").evaluate_all("cells => cells.map(c => c.offsetHeight)")
    lowest = opened.locator("tbody th").evaluate_all("cells => Math.min(...cells.map(c => c.offsetHeight))")

    assert heights
    assert max(heights) < 1.5 * lowest
    context.close()
