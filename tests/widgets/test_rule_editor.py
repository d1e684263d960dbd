"""The rule editor: applies what holds up, keeps the last good rule otherwise, and never loses what is being written."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import ipywidgets
import pytest

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import SteeringDecided, ToolCalled, Where
from noetic_nb.lab import backtest, datasets
from noetic_nb.runs import Run
from noetic_nb.steering import RuleBook, SteeringRule, deny
from noetic_nb.widgets import RuleEditor
from noetic_nb.widgets.base.page_thread import PAGES
from noetic_nb.widgets.rules.debounced import LiveTrial, TooLong
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

    assert labels == ["1. only_a · before tool call: look", "2. short (off) · after model call"]


def test_apply_replaces_the_rule_for_the_next_evaluation() -> None:
    rules = book()
    with RuleEditor(rules, run=recorded(order="B")) as editor:
        editor.source.value = GOOD
        editor.apply_button.click()

        assert rules["only_a"].source == GOOD
        assert editor.notice.mood == "good"
        assert "tried on 1 recorded call." in editor.notice.text


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("def only_a(call):\n    return deny('x'", 2, "never closed"),
        ("def only_a(call):\n    x = 1\n    return call.tool_args['typo']", 3, "KeyError"),
    ],
)
def test_a_text_that_does_not_hold_up_shows_its_line_and_keeps_the_last_good_rule(
    text: str, line: int, expected: str
) -> None:
    rules = book()
    before = rules["only_a"]
    with RuleEditor(rules, run=recorded(order="A")) as editor:
        editor.source.value = text

        assert editor.apply() is False

        assert rules["only_a"] is before
        assert editor.source.value == text
        assert editor.notice.mood == "bad"
        assert expected in editor.notice.text
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


def airline_book() -> RuleBook:
    rules = RuleBook()
    rules.when("tool.args.total_baggages > 5", id="bags", tools="book_reservation", guidance="Fewer bags.")
    rules.judge("Is it fair?", id="fair", tools="cancel_reservation", model="judge")
    rules.at_most(3, "think", id="think")
    return rules


def choose(editor: RuleEditor, rule_id: str) -> None:
    editor.rules.value = rule_id


def test_a_condition_has_action_and_guidance_beside_its_text() -> None:
    rules = airline_book()
    with RuleEditor(rules) as editor:
        assert (editor.source.value, editor.fields.guidance.value) == ("tool.args.total_baggages > 5", "Fewer bags.")
        editor.source.value = "tool.args.total_baggages > 2"
        editor.fields.action.value = "ask"
        editor.fields.guidance.value = "So many, {tool.args.total_baggages}?"

        assert editor.apply() is True

    found = rules["bags"]
    assert (found.when, found.action, found.guidance, found.tools) == (
        "tool.args.total_baggages > 2",
        "ask",
        "So many, {tool.args.total_baggages}?",
        ("book_reservation",),
    )


def test_a_judge_has_mode_model_and_condition_beside_its_prompt() -> None:
    rules = airline_book()
    with RuleEditor(rules) as editor:
        choose(editor, "fair")
        editor.source.value = "Is it kind?"
        editor.fields.mode.value = "async"
        editor.fields.condition.value = "history.size() > 1"
        editor.apply_button.click()

    judge = rules["fair"].llm_eval
    assert judge is not None
    assert (judge.prompt, judge.mode, judge.model) == ("Is it kind?", "async", "judge")
    assert rules["fair"].when == "history.size() > 1"


def test_a_sentence_is_shown_in_words_and_its_action_can_be_changed() -> None:
    rules = airline_book()
    with RuleEditor(rules) as editor:
        choose(editor, "think")
        assert (editor.source.value, editor.source.disabled) == ("think may be called at most 3 times.", True)
        editor.fields.action.value = "guide"
        editor.apply()

    assert rules["think"].action == "guide"


@pytest.mark.parametrize(
    ("rule_id", "text", "line"),
    [("bags", "true &&\ntool.arg.x > 1", 2), ("only_a", "def only_a(call):\n    return (", 2)],
)
def test_the_line_that_fails_is_marked_until_the_text_changes(rule_id: str, text: str, line: int) -> None:
    rules = RuleBook([*book(), *airline_book()])
    with RuleEditor(rules) as editor:
        choose(editor, rule_id)
        editor.source.value = text
        assert editor.apply() is False
        assert editor.source.error_line == line
        assert editor.notice.mood == "bad"

        editor.source.value = text + " "
        assert (editor.source.error_line, editor.notice.text) == (0, "")


def test_a_draft_is_tried_on_the_recorded_runs_while_it_is_written() -> None:
    rules = airline_book()
    with RuleEditor(rules, run=datasets.airline()) as editor:
        assert editor.diff is not None
        editor.source.value = "tool.args.total_baggages > 1"

        shown = editor.diff.snapshot
        assert shown["title"].startswith("Tried on ")
        counts = {change: number for change, _, number in shown["counts"]}
        table = backtest(
            rules, datasets.airline(), candidate=SteeringRule(**changed(rules["bags"], when=editor.source.value))
        )
        assert counts == {change: number for change, number in table.attrs["summary"].items() if number}
        assert counts["newly_denied"] == len(shown["rows"]) > 0
        assert "Fewer bags." in shown["rows"][0]
        assert "fair" in shown["note"]
        assert rules.version == 3

        editor.source.value = "tool.arg"
        assert "does not compile" in editor.diff.snapshot["note"]
        assert editor.source.error_line == 1


def changed(rule: SteeringRule, **fields: Any) -> dict[str, Any]:
    return {name: getattr(rule, name) for name in type(rule).model_fields} | fields


def test_a_python_draft_is_tried_without_being_applied() -> None:
    rules = book()
    with RuleEditor(rules, run=recorded(order="A")) as editor:
        assert editor.diff is not None
        editor.source.value = GOOD

        assert editor.diff.snapshot["counts"] == [["newly_allowed", "newly allowed", 1]]
        assert rules["only_a"].source != GOOD


@pytest.mark.parametrize(
    "text",
    [
        "def only_a(call):\n    open('/tmp/never_written', 'w')",
        "import os\nos.remove('/tmp/never')\ndef only_a(call):\n    pass",
        "print('x')\ndef only_a(call):\n    pass",
    ],
)
def test_a_draft_that_acts_is_not_run_while_it_is_written(text: str, tmp_path: Any) -> None:
    with RuleEditor(book(), run=recorded(order="A")) as editor:
        assert editor.diff is not None
        editor.source.value = text

        assert "more than decide" in editor.diff.snapshot["note"]


def test_rules_are_moved_removed_added_and_the_history_tells() -> None:
    rules = book()
    with RuleEditor(rules) as editor:
        choose(editor, "short")
        editor.up_button.click()
        editor.up_button.click()
        assert [rule.id for rule in rules] == ["short", "only_a"]
        editor.down_button.click()
        editor.remove_button.click()
        assert [rule.id for rule in rules] == ["only_a"]
        editor.new_form.value = "Condition (CEL)"

        assert [(rule.id, rule.form, rule.enabled) for rule in rules][1:] == [("rule_1", "cel", False)]
        assert editor.rules.value == "rule_1"
        assert editor.history.options[:3] == (
            "version 6 · add rule_1",
            "version 5 · remove short",
            "version 4 · move short",
        )


@pytest.mark.parametrize("form", ["Python", "Condition (CEL)", "Judge"])
def test_a_new_rule_can_be_edited_and_applied(form: str) -> None:
    rules = RuleBook()
    with RuleEditor(rules) as editor:
        editor.add("fresh", form)
        editor.source.value = editor.source.value.replace("...", "pay").replace("asked", "wanted")

        assert editor.apply() is True
        editor.enabled.value = True
    assert rules["fresh"].enabled


def test_hits_are_counted_as_they_come() -> None:
    rules = book()
    run = recorded(order="A")
    with RuleEditor(rules, run=run) as editor:
        where = Where("t", "e", 1)
        for action in ("deny", "deny", "guide", "allow"):
            names = () if action == "allow" else ("only_a",)
            run.append(
                SteeringDecided(where, 0.0, "steering", "before_tool_call", "look", {}, action, None, names, 0.1)
            )

        assert "only_a · 2 denied, 1 guided ·" in editor.rules.options[0][0]
        assert "2 denied, 1 guided" in editor.to_html()
    assert not run._listeners


def test_what_is_typed_for_one_rule_is_never_taken_for_another() -> None:
    rules = RuleBook([*book(), *airline_book()])
    with RuleEditor(rules) as editor:
        typed = {
            "type": "text",
            "text": "def only_a(call): return deny('late')",
            "generation": editor.source.shown["generation"],
        }
        choose(editor, "short")
        editor.source._handle_custom_msg(typed, [])

        assert editor.source.value == "def short(r): ..."


def test_applying_from_the_keyboard_applies_what_stands_on_the_page() -> None:
    rules = book()
    with RuleEditor(rules) as editor:
        content = {"type": "apply", "text": GOOD, "generation": editor.source.shown["generation"]}
        editor.source._handle_custom_msg(content, [])

    assert rules["only_a"].source == GOOD


async def test_only_the_newest_work_is_done_and_reported() -> None:
    results: list[Any] = []
    done = asyncio.Event()

    def report(result: Any, error: Any) -> None:
        results.append((result, error))
        done.set()

    trial: LiveTrial[int] = LiveTrial(report, pause_s=0)
    for number in range(20):
        trial.later(lambda stop, number=number: number)
    await asyncio.wait_for(done.wait(), 10)

    assert results == [(19, None)]


async def test_what_a_page_types_is_tried_after_a_pause_too_although_its_thread_has_no_loop() -> None:
    results: list[Any] = []
    done = asyncio.Event()

    def report(result: Any, error: Any) -> None:
        results.append(result)
        done.set()

    trial: LiveTrial[int] = LiveTrial(report, pause_s=0)
    for number in range(5):
        PAGES.do(trial.later, lambda stop, number=number: number)
    await asyncio.to_thread(PAGES.wait)
    await asyncio.wait_for(done.wait(), 10)

    assert results == [4]


async def test_work_that_never_ends_is_given_up_and_its_thread_ends() -> None:
    results: list[Any] = []
    done = asyncio.Event()
    ended = threading.Event()

    def forever(stop: Any) -> None:
        try:
            while True:
                try:
                    sum(range(100))
                except Exception:  # a rule that swallows whatever it can
                    continue
        finally:
            ended.set()

    def report(result: Any, error: Any) -> None:
        results.append(error)
        done.set()

    trial: LiveTrial[None] = LiveTrial(report, pause_s=0, limit_s=0.05)
    trial.later(forever)
    await asyncio.wait_for(done.wait(), 10)

    assert isinstance(results[0], TooLong)
    assert await asyncio.to_thread(ended.wait, 10)


async def test_cancelled_work_reports_nothing() -> None:
    results: list[Any] = []
    begun = threading.Event()

    def work(stop: Any) -> None:
        begun.set()
        while not stop():
            pass

    trial: LiveTrial[None] = LiveTrial(lambda result, error: results.append(result), pause_s=0, limit_s=60)
    trial.later(work)
    await asyncio.to_thread(begun.wait, 10)
    trial.cancel()
    await asyncio.to_thread(lambda: [t.join(10) for t in threading.enumerate() if t.name == "noetic_nb trial"])

    assert results == []
    assert not [t for t in threading.enumerate() if t.name == "noetic_nb trial"]


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


def test_a_rule_that_loops_for_ever_is_not_applied_and_the_kernel_goes_on() -> None:
    for text in ("while True: pass\ndef only_a(call): ...", "def only_a(call):\n    while True: pass"):
        rules = book()
        before = rules["only_a"]
        with RuleEditor(rules, run=recorded(order="B")) as editor:
            editor.source.value = text

            assert editor.apply() is False
            assert rules["only_a"] == before
            assert (editor.notice.mood, "2 seconds" in editor.notice.text) == ("bad", True)


@pytest.mark.parametrize("action", ["deny", "ask"])
def test_a_condition_that_fails_on_recorded_calls_is_not_applied(action: str) -> None:
    rules = RuleBook()
    rules.when("tool.name == 'look'", id="c", action="deny")
    with RuleEditor(rules, run=recorded(order="B")) as editor:
        editor.source.value = "tool.args.amount > 100"
        editor.fields.action.value = action

        assert editor.apply() is False
        assert rules["c"].when == "tool.name == 'look'"
        assert "failed" in editor.notice.text


@pytest.mark.parametrize(
    "text", ["async def only_a(call):\n    return 3", "def only_a(call):\n    raise StopIteration"]
)
def test_what_fails_in_any_way_on_a_recorded_call_is_not_applied(text: str) -> None:
    rules = book()
    with RuleEditor(rules, run=recorded(order="B")) as editor:
        editor.source.value = text

        assert editor.apply() is False
        assert rules["only_a"].source == book()["only_a"].source


def test_a_rule_about_responses_is_tried_on_recorded_responses() -> None:
    rules = book()
    run = next(iter(datasets.airline(1)))
    with RuleEditor(rules, run=run) as editor:
        editor.rules.value = "short"
        editor.source.value = "def short(params):\n    return params.response.texts"

        assert editor.apply() is False
        assert "AttributeError" in editor.notice.text
