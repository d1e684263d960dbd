"""What a cell shows of everything that people end one with: short, escaped, without secrets, and never an error."""

from __future__ import annotations

import asyncio
import copy
import enum
import inspect
import io
import json
import pickle
import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final

import pytest
from IPython.core.formatters import DisplayFormatter
from rich.console import Console
from rich.text import Text

import noetic_nb as nn
from noetic_nb._core.cards import Card, Table, card_html, card_line, card_of, card_text, on_classes, with_card
from noetic_nb.events import ItemsAppended, Where
from noetic_nb.items import input_message
from noetic_nb.steps._records import LoopStep
from tests.matrix import matrix
from tests.redaction.shapes import SHAPES, made
from tests.unit.card_gallery import QUESTION, gallery
from tests.widgets.hostile_texts import HOSTILE_TEXTS, LONG

NAMES: Final = tuple(gallery())
MARKED: Final = "[bold]where[/bold] is order A17?"
# Records that are data: whoever prints one wants all of it. A cell that ends with one shows its card.
DATA: Final = frozenset({"items", "item", "started", "appended", "model call", "tool call", "decision"})
# Of other packages' floors, or tables as text.
TEXT_ONLY: Final = frozenset({"model", "regulator", "storage", "embedder"})
TABLES: Final = frozenset({"comparison", "paired", "evaluation", "calibration", "suggestions"})

TAGS: Final = frozenset(
    ["div", "style", "p", "strong", "span", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"]
)
CLASSES: Final = re.compile(r"nn-card(-\w+)?|nn-scroll|tex2jax_ignore|mathjax_ignore")
STYLES: Final = frozenset({"text-align:left", "text-align:right"})


class Page(HTMLParser):
    """Reads HTML and refuses all that a card never has; `text` is what a reader sees."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == [], "a tag was not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        self.open.append(tag)
        for name, value in attrs:
            assert name in ("class", "style", "scope")
            if name == "class":
                assert all(CLASSES.fullmatch(each) for each in str(value).split())
            if name == "style":
                assert value in STYLES

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data[:80]}")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(f"a declaration: {decl[:80]}")


CELLS: Final = DisplayFormatter()


def in_cell(value: Any) -> tuple[str, str]:
    """Return what Jupyter would show of a value: its text and its HTML."""
    data, _ = CELLS.format(value, include={"text/plain", "text/html"})
    return data["text/plain"], data.get("text/html", "")


def in_rich(*values: Any) -> str:
    """Return what `rich.print` writes of values; not its colours, which a file does not have."""
    console = Console(file=io.StringIO(), width=200, highlight=False)
    console.print(*values)
    written: str = console.file.getvalue()  # type: ignore[attr-defined]
    return written


@cache
def shown(text: str) -> dict[str, Any]:
    return gallery(text)


# -- everything -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_what_a_cell_shows_is_short(name: str) -> None:
    value = shown(QUESTION)[name]

    text, html = in_cell(value)

    assert len(repr(value)) <= (600 if name not in TABLES else 4_000)
    assert len(text) <= (1_000 if name not in TABLES else 4_000)
    assert max(map(len, text.splitlines())) <= 410
    assert " object at 0x" not in text
    assert (html == "") == (name in TEXT_ONLY)
    assert len(html) < 20_000
    if html:
        assert Page(html).text.strip()
        assert "mathjax_ignore" in html


@pytest.mark.parametrize("name", [name for name in NAMES if name not in DATA])
def test_a_huge_value_is_shown_short(name: str) -> None:
    value = shown(LONG)[name]

    text, html = in_cell(value)

    assert len(repr(value)) <= (1_000 if name not in TABLES else 6_000)
    assert len(text) <= (2_000 if name not in TABLES else 6_000)
    assert len(html) < 30_000


@pytest.mark.parametrize("name", [name for name in NAMES if name not in DATA])
def test_rich_shows_the_same_and_interprets_nothing(name: str) -> None:
    value = shown(MARKED)[name]

    assert in_rich(value) in [in_rich(Text(in_cell(value)[0])), in_rich(Text(repr(value)))]
    assert len(in_rich([value])) <= len(repr(value)) + 200
    assert ("[bold]" in repr(value)) <= ("[bold]" in in_rich(value))


@pytest.mark.parametrize("name", sorted(DATA))
def test_a_huge_record_has_its_whole_repr_and_a_small_card(name: str) -> None:
    value = shown(LONG)[name]

    text, html = in_cell(value)

    assert LONG in repr(value)
    assert len(text) <= 500
    assert len(html) < 30_000


@matrix("text", HOSTILE_TEXTS, keep=12, start=2)
def test_whatever_people_and_models_wrote_is_text(text: str) -> None:
    for name, value in gallery(text).items():
        plain, html = in_cell(value)
        if html:
            page = Page(html)
            assert "cannot be shown" not in page.text, name
        assert "cannot be shown" not in plain, name
        assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", html), name
        if name not in TEXT_ONLY:
            assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", plain), name


@matrix("shape", list(SHAPES), keep=12)
def test_no_secret_is_shown(shape: Any) -> None:
    text, secret = made(shape)
    longest = max(re.findall(r"[A-Za-z0-9]+", secret), key=len)
    for name, value in gallery(text).items():
        plain, html = in_cell(value)
        others = (repr(value), in_rich(value), in_rich([value])) if name not in DATA else ()
        for seen in (plain, html, *others):
            for form in {secret, json.dumps(secret)[1:-1], *([longest] if len(longest) >= 9 else [])}:
                assert form not in seen, name


def public_classes() -> Iterator[tuple[str, type]]:
    rooms = (
        "",
        ".lab",
        ".runtime",
        ".steps",
        ".steering",
        ".memory",
        ".models",
        ".storage",
        ".layers",
        ".runs",
        ".items",
    )
    for room in rooms:
        package = import_module(f"noetic_nb{room}")
        for name in package.__all__:
            found = getattr(package, name)
            if inspect.isclass(found) and not issubclass(found, BaseException | enum.Enum):
                yield f"{room[1:] or 'nn'}-{name}", found


# Never at the end of a cell: protocols, collections of builders, and what only a harness holds.
NOT_SHOWN: Final = frozenset({"step", "until", "LayerStack", "LayerStateStore", "TypedMemory", "Any"})


def test_every_public_class_says_something_of_its_objects() -> None:
    kinds = {name: kind for name, kind in public_classes() if kind.__name__ not in NOT_SHOWN}
    own = {name: kind for name, kind in kinds.items() if not getattr(kind, "_is_protocol", False)}

    assert own
    assert [name for name, kind in own.items() if kind.__repr__ is object.__repr__] == []


# -- nothing else changes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["item", "started", "appended", "decision", "turn", "request", "until", "limits", "run"]
)
def test_a_card_changes_neither_equality_nor_copies(name: str) -> None:
    value = shown(QUESTION)[name]

    assert copy.deepcopy(value) == value
    assert pickle.loads(pickle.dumps(value)) == value
    assert value != gallery("Something else.")[name] or name == "limits"


def test_a_turn_makes_no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(on_classes, "card_of", made.append)
    config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), memory=[nn.working_memory()])
    harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Hello."]))
    run = nn.record(harness)

    asyncio.run(harness.execute("Hi"))

    assert (len(run.turns), made) == (1, [])


# -- what goes wrong --------------------------------------------------------------------------------------------------


class Broken:
    """Nothing about it can be looked at."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__


@with_card
class Failing:
    """Its card cannot be made."""

    def _card(self) -> Card:
        raise LookupError("<b>sk-proj-a1B2a1B2a1B2a1B2a1B2a1B2a1B2</b>")


@with_card
class Odd:
    """Its card is none."""

    def _card(self) -> Any:
        return SimpleNamespace(title=Broken())


def test_a_card_that_fails_says_so_and_raises_nothing() -> None:
    text, html = in_cell(Failing())

    assert text == repr(Failing())
    assert "Failing(cannot be shown: LookupError" in text
    assert "a1B2a1B2" not in text + html
    assert "&lt;b&gt;" in html
    for value in (Odd(), [Odd()]):
        assert "Odd: cannot be shown" in in_cell(value)[0]


def test_values_that_cannot_be_looked_at_are_named() -> None:
    card = Card("Order", facts=[("a", Broken()), ("b", {1: Broken(), (2, 3): 4}), ("c", [Broken()]), ("d", 10**5_000)])

    assert card_line(card) == "Order(a=<Broken>, b=2 entries, c=[<Broken>], d=<int>)"
    assert "&lt;Broken&gt;" in card_html(card)


def test_a_step_inside_itself_is_not_shown_for_ever() -> None:
    inner = nn.step.run("inner", lambda value, ctx: value)
    outer = LoopStep(id="outer", steps=[inner], until=nn.until.max_steps(2))
    object.__setattr__(outer, "steps", (inner, outer))

    assert card_text(card_of(outer)).count("'outer'") == 3
    assert Page(card_html(card_of(outer))).text.count("outer") == 3


def test_a_wide_and_deep_tree_is_cut_and_says_so() -> None:
    leaf = nn.step.run("leaf", lambda value, ctx: value)
    step = leaf
    for level in range(12):
        step = nn.loop(f"level{level}", steps=[step] * 30, until=nn.until.max_steps(2))

    text = card_text(card_of(step))

    assert len(text.splitlines()) < 60
    assert "more" in text
    assert "… 22 more" in repr(step)
    Page(card_html(card_of(step)))


def test_the_value_under_the_name_of_a_secret_is_hidden() -> None:
    card = Card("Client", facts=[("api_key", "hush"), ("options", {"password": "hush"}), ("tokens", 5)])

    for seen in (card_line(card), card_html(card), card_text(card)):
        assert "hush" not in seen
        assert seen.count("[redacted]") == 2


# -- layout -----------------------------------------------------------------------------------------------------------


def test_a_table_reads_no_more_rows_than_it_shows() -> None:
    read: list[int] = []

    def rows() -> Iterator[tuple[int, str]]:
        for n in range(1_000_000):
            read.append(n)
            yield n, "x"

    html = card_html(Card("Log", table=Table(("", "text"), rows(), 1_000_000)))

    assert html.count("<tr>") == 101
    assert len(read) == 101
    assert "the first 100 of 1,000,000 below" in html


def test_numbers_stand_on_the_right_and_are_grouped_in_html_only() -> None:
    card = Card("Usage", facts=[("tokens", 12_000)], table=Table(("n", "what"), [(12_000, "in"), (None, "out")]))

    assert card_line(card) == "Usage(tokens=12000)"
    assert '<td style="text-align:right">12,000</td><td style="text-align:left">in</td>' in card_html(card)


def test_a_list_shows_a_line_for_each() -> None:
    config = shown(QUESTION)["config"]

    assert "\n├ " in in_cell(config)[0]
    assert in_cell([config, config])[0] == f"[{config!r},\n {config!r}]"


def test_settings_read_like_the_call_that_makes_them() -> None:
    policy = nn.ProjectionPolicy(token_budget=8_000, overflow="truncate")
    until = nn.until.any(nn.until.no_tool_calls(), nn.until.max_steps(3))

    assert eval(repr(policy), {"ProjectionPolicy": nn.ProjectionPolicy}) == policy
    assert repr(until) == "until.any(until.no_tool_calls(), until.max_steps(n=3))"


def test_the_text_of_an_event_is_that_of_its_items() -> None:
    event = ItemsAppended(Where("t1", "e1", 1), 0.0, 0, (input_message("What is $5?"),), "user")

    assert "content='What is $5?'" in in_cell(event)[0]
