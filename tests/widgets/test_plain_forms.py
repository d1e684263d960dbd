"""The static form where style sheets and pictures are dropped, as in e-mail, feed readers and some notebook viewers."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from noetic_nb.events import (
    ContextCompacted,
    ItemsAppended,
    LayerStateChanged,
    ModelCalled,
    RequestPrepared,
    TurnCompleted,
    TurnStarted,
    ViewAssembled,
    Where,
)
from noetic_nb.items import Item, input_message
from noetic_nb.runs import Run
from noetic_nb.widgets import RunTimeline, Transcript, Workbench
from tests.widgets.scenes import decisions, demo_run
from tests.widgets.timeline_scenes import branches_run
from tests.widgets.transcript_scenes import desk_run
from tests.widgets.views import VIEWS

BLOCKS = {
    "div", "p", "table", "thead", "tbody", "tr", "th", "td", "ul", "ol", "li", "dl", "dt", "dd", "details", "summary", "br",
    "h1", "h2", "h3", "h4", "pre", "figure", "section", "svg",
}  # fmt: skip
WITHIN_WORDS = {"mark", "ins", "del", "b", "i", "em", "strong", "code", "a", "wbr"}


class Words(HTMLParser):
    """Finds words that run together when tags are dropped, and tables without a header."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.joined: list[str] = []
        self.headless = 0
        self._before, self._is_apart, self._heads = "", True, [0]
        self._is_hidden = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_hidden = self._is_hidden or tag == "style"
        self._is_apart = self._is_apart or tag in BLOCKS
        self._is_joined = self._is_joined and tag in WITHIN_WORDS
        if tag == "table":
            self._heads.append(0)
        self._heads[-1] += tag == "th"

    def handle_endtag(self, tag: str) -> None:
        self._is_hidden = self._is_hidden and tag != "style"
        self._is_apart = self._is_apart or tag in BLOCKS
        self._is_joined = self._is_joined and tag in WITHIN_WORDS
        if tag == "table":
            self.headless += not self._heads.pop()

    _is_joined = False

    def handle_data(self, data: str) -> None:
        if self._is_hidden or not data:
            return
        starts_apart = self._is_apart or self._is_joined or data[0].isspace() or self._before[-1:].isspace()
        if not starts_apart:
            self.joined.append(f"{self._before[-20:]}|{data[:20]}")
        self._before, self._is_apart, self._is_joined = data, False, True


@pytest.mark.parametrize("make", VIEWS)
@pytest.mark.parametrize("run", [demo_run, branches_run, desk_run], ids=lambda run: run.__name__)
def test_words_stand_apart_and_tables_have_heads_without_a_style_sheet(make: Any, run: Any) -> None:
    recorded = run()
    for event in decisions():
        recorded.append(event)
    with make(recorded) as view:
        found = Words(view.to_html())

    assert 'role="heading" aria-level="3"><strong>' in view.to_html()
    assert found.joined == []
    assert found.headless == 0


def one_of_each() -> Run:
    """Return one turn with one call of one token, one write, and one item that the recording lacks."""
    where = Where("t1", "e1", 1)
    return Run(
        events=[
            TurnStarted(where, 0.0, "u1", 0, 1, "Hi"),
            ItemsAppended(where, 0.0, 1, (input_message("Hi"),), "user"),
            RequestPrepared(where, 0.0, "step", "m", "Go", (), {}, None, "truncate", None, (), "m"),
            ViewAssembled(where, 0.0, 0, (1, 2), (), (), (), 100, 1, 1, 1, 1, 1, 1, 1, 0),
            ModelCalled(where, 1.0, 0, "m", "agent", 1.0, "ok", (), 1, 1),
            LayerStateChanged(where, 1.0, "notes", "store", {"n": 1}),
            TurnCompleted(where, 2.0, "u1", "success", 2.0, "Hello", 1, 1, 0.5, 1, 0),
        ]
    )


ONE = re.compile(r"(?<![\d,.])1 (more |output )?(calls|items|layers|rows|spans|tokens|turns|writes)\b|first 1 item")


@pytest.mark.parametrize("make", [make for make in VIEWS if make.__name__ != "_compare"])
def test_one_thing_is_named_in_the_singular(make: Any) -> None:
    with make(one_of_each()) as view:
        for form in (view.to_text(), view.to_html()):
            assert (found := ONE.search(form)) is None or form[found.start() - 20 : found.end() + 20] == ""


def test_an_item_of_a_file_with_another_form_does_not_stop_a_view() -> None:
    run = one_of_each()
    item = Item(type="reasoning", summary="in short")
    run.append(ContextCompacted(Where("t1", "e1", 1), 3.0, "notes", items=(item,)))
    with Transcript(run) as view:
        assert "in short" in view.to_text()


def test_the_picture_of_a_view_stands_in_it_for_pages_that_keep_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><text>"a" &lt; b</text></svg>'
    with (
        RunTimeline(demo_run()) as view,
        Workbench(demo_run(), panels=["timeline"]) as bench,
        Transcript(Run()) as other,
    ):
        without = other.to_html()
        monkeypatch.setattr(RunTimeline, "to_svg", lambda self: svg)

        pages = view.to_html(), bench.to_html()

    for page in pages:
        [source] = re.findall(r'<img alt="Run timeline[^"]*" src="data:image/svg\+xml;base64,([^"]+)">', page)
        assert base64.b64decode(source).decode() == svg
        assert ".nn-plain { display: none; }" in page
    assert "<img" not in without
