"""Replacing a Python rule by its text: the last good version stays until the new text works."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.steering import RuleBook

LIMIT = 100


@pytest.fixture
def rules() -> RuleBook:
    book = RuleBook()

    @book.rule(on="before_tool_call", tools=["pay"])
    def small(call: Any) -> Any:
        return nn.deny("Too much.") if call.tool_args["amount"] > LIMIT else None

    return book


def call(amount: Any) -> Any:
    return SimpleNamespace(tool_name="pay", tool_args={"amount": amount})


def test_a_text_replaces_the_rule_and_keeps_its_place_and_tools(rules: RuleBook) -> None:
    text = "def small(call):\n    return guide('Ask.') if call.tool_args['amount'] > LIMIT else None\n"

    new = rules.replace_source("small", text)

    assert rules["small"] is new
    assert (new.tools, new.source) == (("pay",), text)
    assert new.predicate is not None
    assert new.predicate(call(LIMIT + 1)).guidance == "Ask."


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("def small(call):\n    return deny('x'", 2),
        ("def small(call):\nreturn 1", 2),
        ("x = 1\ny = 1 / 0\ndef small(call):\n    pass", 2),
        ("import not_a_module\ndef small(call):\n    pass", 1),
        ("x = 1", None),
        ("def a(c): pass\ndef b(c): pass", None),
        ("", None),
        ("\x00", None),
        ("(" * 5_000, 1),
    ],
)
def test_a_text_that_does_not_compile_leaves_the_rule_and_says_where(rules: RuleBook, text: str, line: Any) -> None:
    before = rules["small"]

    with pytest.raises(NoeticConfigError) as caught:
        rules.replace_source("small", text)

    assert (caught.value.code, caught.value.rule_id) == ("RULE_DOES_NOT_COMPILE", "small")
    if line is not None:
        assert caught.value.line == line
    assert (rules["small"], rules.version) == (before, 1)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("    return call.tool_args['amout']", 2),
        ("    x = 1\n    return x / 0", 3),
        ("    return 'no'", None),
        ("    return True", None),
        ("    return {'action': 'perhaps'}", None),
    ],
)
def test_a_text_that_fails_on_a_recorded_call_leaves_the_rule(rules: RuleBook, body: str, line: int | None) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        rules.replace_source("small", f"def small(call):\n{body}\n", samples=[call(5)])

    assert (caught.value.code, caught.value.line) == ("RULE_FAILS_ON_SAMPLE", line)
    assert rules.version == 1


def test_an_unknown_rule_cannot_be_replaced(rules: RuleBook) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        rules.replace_source("other", "def other(call): pass")

    assert caught.value.code == "UNKNOWN_RULE"


def test_a_condition_is_not_replaced_by_python(rules: RuleBook) -> None:
    rules.when("tool.args.amount > 3", id="cel")

    with pytest.raises(NoeticConfigError, match="not a Python rule"):
        rules.replace_source("cel", "def cel(call): pass")


def test_the_line_of_a_failure_is_shown_in_tracebacks(rules: RuleBook) -> None:
    import traceback

    new = rules.replace_source("small", "def small(call):\n    return call.nothing_of_the_kind\n")

    try:
        assert new.predicate is not None
        new.predicate(call(1))
    except AttributeError as exc:
        shown = "".join(traceback.format_exception(exc))
    assert "call.nothing_of_the_kind" in shown


def test_the_texts_of_old_drafts_are_not_kept(rules: RuleBook) -> None:
    import linecache

    for number in range(400):
        rules.draft("small", f"def small(call):\n    return {number}\n")

    assert sum(name.startswith("<rule small") for name in linecache.cache) <= 256
    assert rules.version == 1
