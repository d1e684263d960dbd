"""Hostile text stays text: as every name, id, key, kind and word, in the static form, the snapshot and the answers of views."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from typing import Any

from noetic_nb.errors import NoeticConfigError
from noetic_nb.items._origins import Origin
from noetic_nb.steering import RuleBook
from noetic_nb.widgets import Ledger, RuleEditor
from noetic_nb.widgets._approval import Question, question_words
from tests.matrix import matrix
from tests.widgets.hostile_texts import HOSTILE_TEXTS, hostile_run
from tests.widgets.scenes import demo_run
from tests.widgets.views import VIEWS

INVISIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
VOID = frozenset({"br", "wbr", "hr", "img", "input", "meta", "link", "line", "rect", "path", "circle"})


class Page(HTMLParser):
    """The structure of a page: elements with attribute names, style sheets, and whether all elements are closed."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: set[tuple[str, str]] = set()
        self.styles: set[str] = set()
        self.sheets: set[str] = set()
        self.open: list[str] = []
        self.problems: list[str] = []
        self.feed(html)
        self.close()

    def updatepos(self, i: int, j: int) -> int:
        return j  # line numbers are not needed

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.parts.add((tag, ""))
        for name, value in attrs:
            self.parts.add((tag, name))
            if name == "style":
                self.styles.add(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.sheets.add(data)

    def handle_comment(self, data: str) -> None:
        self.problems.append(f"<!--{data}")

    def handle_decl(self, decl: str) -> None:
        self.problems.append(f"<!{decl}")

    def unknown_decl(self, data: str) -> None:
        self.problems.append(f"<![{data}")

    def handle_pi(self, data: str) -> None:
        self.problems.append(f"<?{data}")


def editor(text: str) -> RuleEditor | None:
    """Return an editor of rules that use a text everywhere; None if the rule book rejects it."""
    try:
        when = f"response.text == {json.dumps(text)}"
        python = {"id": text, "name": text, "applies_to": ["before_tool_call"], "tools": [text]}
        python |= {"predicate": lambda call: None, "source": f"def r(call):\n    return {text!r}"}
        cel = {"id": f"{text}2", "applies_to": ["after_model_call"], "when": when, "guidance": text}
        rules = RuleBook([python, cel])
    except (NoeticConfigError, ValueError):
        return None
    return RuleEditor(rules, run=hostile_run(text))


def opened(text: str) -> Iterator[Any]:
    run = hostile_run(text)
    for make in VIEWS:
        with make(run) as view:
            yield view
    edited = editor(text)
    if edited is not None:
        with edited:
            yield edited


Known = dict[str, tuple[set[tuple[str, str]], set[str]]]


@cache
def tame() -> Known:
    """Return the elements and style sheets of each kind of view with harmless texts."""
    known: Known = {}
    texts = ("tame", "", "allow", "tame words\n" * 400)
    views = [*[view for text in texts for view in opened(text)], *[make(demo_run()) for make in VIEWS]]
    for view in views:
        page = Page(view.to_html())
        parts, sheets = known.setdefault(type(view).__name__, (set(), set()))
        parts |= page.parts
        sheets |= page.sheets
        view.close()
    return known


def check(view: Any) -> None:
    name = type(view).__name__
    parts, sheets = tame()[name]
    html = view.to_html()
    page = Page(html)
    assert page.problems == [], name
    assert page.open == [], name
    assert page.parts <= parts, (name, page.parts - parts)
    assert page.sheets <= sheets, name
    assert not [style for style in page.styles if re.search(r"url|expression|import|[{}<>\\]", style)], name
    assert not INVISIBLE.search(html), name
    assert not INVISIBLE.search(view.to_text()), name
    assert len(html) < 3_000_000, name
    if hasattr(view, "snapshot"):
        wire(view.snapshot)


def wire(data: Any) -> None:
    """Check that data survives JSON in UTF-8 unchanged."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=False)
    assert json.loads(text.encode("utf-8")) == data
    assert len(text) < 1_000_000
    for html in written(data):
        page = Page(html)
        assert page.problems == []
        assert page.open == []
        assert {tag for tag, _ in page.parts} <= ELEMENTS
        assert {name for _, name in page.parts if not name.startswith("data-")} <= ATTRIBUTES
        assert not [style for style in page.styles if not re.fullmatch(r"--nn-fill:#[0-9A-Fa-f]{6}", style)]
        assert not INVISIBLE.search(html)


# The elements allowed in rows sent as HTML: nothing that loads, runs, or links elsewhere.
ELEMENTS = {
    *("button", "details", "div", "li", "ol", "p", "pre", "summary", "ul"),
    *("del", "input", "ins", "mark", "span", "wbr"),
    *("table", "tbody", "td", "th", "thead", "tr"),
    *("line", "path", "svg"),
}
ATTRIBUTES = {
    *(
        "",
        "aria-disabled",
        "aria-hidden",
        "aria-label",
        "class",
        "colspan",
        "role",
        "scope",
        "style",
        "tabindex",
        "title",
        "type",
    ),
    *(
        "d",
        "fill",
        "height",
        "preserveaspectratio",
        "stroke",
        "stroke-width",
        "viewbox",
        "width",
        "x1",
        "x2",
        "xmlns",
        "y1",
        "y2",
    ),
}


def written(data: Any) -> Iterator[str]:
    """Yield the rows sent to a page as HTML."""
    for name, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        if name == "html":
            yield value
        else:
            yield from written(value)


@matrix("name", list(HOSTILE_TEXTS), keep=16)
def test_hostile_text_stays_text_in_every_view(name: str) -> None:
    for view in opened(HOSTILE_TEXTS[name]):
        check(view)


@matrix("name", list(HOSTILE_TEXTS), keep=12, start=3)
def test_a_ledger_is_searched_and_read_with_hostile_text(name: str) -> None:
    text = HOSTILE_TEXTS[name]
    with Ledger(hostile_run(text)) as view:
        reading = view.reading
        page = reading.answer({"what": "lines"})
        wire(page)
        for kind, pairs in view.snapshot["facets"]:
            for value, count in pairs:
                field = {"chips": [value]} if kind == "chip" else {kind: value}
                # An empty name filters nothing. Request one line only: all of them were checked above.
                assert not value or reading.answer({"what": "lines", "count": 1, **field})["matched"] == count
        wire(reading.answer({"what": "lines", "text": text}))
        for at in range(view.snapshot["total"]):
            wire(reading.answer({"what": "detail", "at": at}))
            wire(reading.answer({"what": "origins", "at": at}))


@matrix("name", list(HOSTILE_TEXTS), keep=24)
async def test_a_question_with_hostile_text_stays_text(name: str) -> None:
    text = HOSTILE_TEXTS[name]
    plain = Question(question_words("tame", {"a": "b"}, "May it?", ["r"], {"a": Origin("tool", "t")}))
    plain.settle("no")
    expected = Page(plain.to_html())
    question = Question(question_words(text, {text: [text]}, text, [text], {text: Origin("tool", text, field=text)}))
    wire({**question.words, "why": list(question.why)})
    question.settle(text or "no")
    await asyncio.wait([question.answer])

    page = Page(question.to_html())

    assert page.problems == []
    assert page.parts == expected.parts
    assert page.sheets == expected.sheets
    assert not INVISIBLE.search(question.to_html() + question.to_text() + str(question.words))


def test_there_are_many_kinds_of_hostile_text() -> None:
    assert len(set(HOSTILE_TEXTS.values())) >= 60
