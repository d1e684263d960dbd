"""The rule editor: applies what holds up, keeps the last good rule otherwise, and never loses what is being written."""

from __future__ import annotations

from typing import Any

import ipywidgets
import pytest

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ToolCalled, Where
from noetic_nb.runs import Run
from noetic_nb.steering import RuleBook, SteeringRule, deny
from noetic_nb.widgets import RuleEditor
from tests.widgets.scenes import HOSTILE

GOOD = "def only_a(call):\n    if call.tool_args['order'] != 'A':\n        return deny('Only A.')"


def book() -> RuleBook:
    rules = RuleBook()
    rules.put(
        SteeringRule(
            id="only_a",
            applies_to="before_tool_call",
            tools=("look",),
            predicate=lambda call: deny("No."),
            source="def only_a(call):\n    return deny('No.')",
        )
    )
    rules.put(
        SteeringRule(id="short", applies_to="after_model_call", predicate=lambda r: None, source="def short(r): ...")
    )
    return rules


def recorded(**args: Any) -> Run:
    return Run(events=[ToolCalled(Where("t", "e", 1), 0.0, "look", "c1", args, "ok", 1.0, "ok")])


def test_list_shows_order_id_place_and_state() -> None:
    rules = book()
    rules.disable("short")

    with RuleEditor(rules) as editor:
        labels = [label for label, _ in editor.rules.options]

    assert labels == ["1. only_a · before tool call: look", "2. short · after model call (off)"]


def test_apply_replaces_the_rule_for_the_next_evaluation() -> None:
    rules = book()
    with RuleEditor(rules, run=recorded(order="B")) as editor:
        editor.source.value = GOOD
        editor.apply_button.click()

        assert rules["only_a"].source == GOOD
        assert editor.notice.mood == "good"
        assert "tried on 1 recorded call." in editor.notice.text


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("def only_a(call):\n    return deny('x'", 2, "never closed"),
        ("def only_a(call):\n    x = 1\n    return call.tool_args['typo']", 3, "KeyError"),
    ],
)
def test_a_text_that_does_not_hold_up_shows_its_line_and_keeps_the_last_good_rule(
    text: str, line: int, said: str
) -> None:
    rules = book()
    before = rules["only_a"]
    with RuleEditor(rules, run=recorded(order="A")) as editor:
        editor.source.value = text

        assert editor.apply() is False

        assert rules["only_a"] is before
        assert editor.source.value == text
        assert editor.notice.mood == "bad"
        assert said in editor.notice.text
        assert f"{line:>4} | {text.splitlines()[line - 1]}" in editor.notice.text


def test_undo_takes_the_last_change_back_and_shows_the_old_text() -> None:
    rules = book()
    old = rules["only_a"].source
    with RuleEditor(rules) as editor:
        editor.source.value = GOOD
        editor.apply()
        editor.undo_button.click()

        assert rules["only_a"].source == editor.source.value == old


def test_enabled_switches_the_rule_and_follows_it() -> None:
    rules = book()
    with RuleEditor(rules) as editor:
        editor.enabled.value = False
        assert not rules["only_a"].enabled

        rules.enable("only_a")
        assert editor.enabled.value is True


def test_what_is_being_written_survives_changes_made_elsewhere() -> None:
    rules = book()
    with RuleEditor(rules) as editor:
        editor.source.value = "def only_a(call): ...  # half"
        rules.disable("short")
        assert editor.source.value.endswith("# half")

        rules.replace_source("only_a", GOOD)

        assert editor.source.value.endswith("# half")
        assert "changed elsewhere" in editor.notice.text


def test_a_change_made_elsewhere_is_shown() -> None:
    rules = book()
    with RuleEditor(rules) as editor:
        rules.replace_source("only_a", GOOD)
        assert editor.source.value == GOOD

        rules.remove("only_a")
        assert editor.rules.value == "short"


def test_a_rule_that_is_not_python_is_shown_only() -> None:
    rules = RuleBook([{"id": "cel", "applies_to": ["before_tool_call"], "when": "tool.name == 'pay'"}])
    with RuleEditor(rules) as editor:
        assert editor.apply_button.disabled
        assert "tool.name == 'pay'" in editor.source.value


def test_an_empty_rule_book_says_how_to_begin() -> None:
    rules = RuleBook()
    with RuleEditor(rules) as editor:
        assert editor.apply() is False
        assert "@rules.rule" in editor.notice.text

        rules.put(SteeringRule(id="first", applies_to="before_tool_call", predicate=lambda call: None))
        assert editor.rules.value == "first"


def test_closing_releases_every_widget_and_the_rule_book() -> None:
    rules = book()
    instances = ipywidgets.widgets.widget._instances
    before = set(instances)

    with RuleEditor(rules) as editor:
        assert len(instances) > len(before)
    editor.close()

    assert set(instances) == before
    assert not rules._listeners


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_ids_and_texts_never_become_html(text: str) -> None:
    rules = RuleBook([SteeringRule(id=text, applies_to="before_tool_call", predicate=lambda c: None, source=text)])
    with RuleEditor(rules) as editor:
        html = editor.to_html()

    for piece in ("<script", "<img", "<svg", "<b>"):
        assert piece not in html
    assert html.count("</style>") == 1


def test_anything_but_a_rule_book_is_refused() -> None:
    with pytest.raises(NoeticConfigError) as caught:
        RuleEditor([lambda call: None])  # type: ignore[arg-type]

    assert caught.value.code == "NOT_A_RULE_BOOK"
