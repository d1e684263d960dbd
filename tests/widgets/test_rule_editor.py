"""The rule editor: applies valid rules, otherwise keeps the last good rule, and never loses text being typed."""

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
from noetic_nb.widgets._rules.debounced import LIMIT_S, LiveTrial, TooLong, in_time
from noetic_nb.widgets.base._page_thread import PAGES
from tests.widgets.rows import cells
from tests.widgets.scenes import HOSTILE
from tests.widgets.views import watching

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


def page_asks(editor: RuleEditor, request: dict[str, Any]) -> None:
    """Deliver a page's request as the kernel does, and wait for the answer."""
    content = {"type": "get", "id": "1", "request": request}
    editor.comm.handle_msg({"content": {"data": {"method": "custom", "content": content}}, "buffers": []})
    assert PAGES.wait()


def recorded(**args: Any) -> Run:
    return Run(events=[ToolCalled(Where("t", "e", 1), 0.0, "look", "c1", args, "ok", 1.0, "ok")])


def test_list_shows_order_id_place_and_state() -> None:
    rules = book()
    rules.disable("short")

    with RuleEditor(rules) as editor:
        rows = [
            (row["label"], row["form"], row["where"], row["enabled"], row["version"]) for row in editor.snapshot["rows"]
        ]
        lines = editor.to_text().splitlines()[1:]

    assert rows == [
        ("only_a", "Python", "before tool call: look", True, 1),
        ("short", "Python", "after model call", False, 3),
    ]
    assert lines == ["1. only_a · before tool call: look", "2. short (off) · after model call"]


def test_apply_replaces_the_rule_for_the_next_evaluation() -> None:
    rules = book()
    with RuleEditor(rules, run=recorded(order="B")) as editor:
        editor.write(text=GOOD)
        assert editor.apply()

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
        editor.write(text=text)

        assert editor.apply() is False

        assert rules["only_a"] is before
        assert editor.values["text"] == text
        assert editor.notice.mood == "bad"
        assert expected in editor.notice.text
        assert f"{line:>4} | {text.splitlines()[line - 1]}" in editor.notice.text


def test_undo_takes_the_last_change_back_and_shows_the_old_text() -> None:
    rules = book()
    old = rules["only_a"].source
    with RuleEditor(rules) as editor:
        editor.write(text=GOOD)
        editor.apply()
        editor.undo()

        assert rules["only_a"].source == editor.values["text"] == old


def test_enabled_switches_the_rule_and_follows_it() -> None:
    rules = book()
    with RuleEditor(rules) as editor:
        page_asks(editor, {"do": "switch", "rule_id": "only_a", "on": False})
        assert not rules["only_a"].enabled

        rules.enable("only_a")
        assert editor.snapshot["rows"][0]["enabled"] is True


def test_what_is_being_written_survives_changes_made_elsewhere() -> None:
    rules = book()
    with RuleEditor(rules) as editor:
        editor.write(text="def only_a(call): ...  # half")
        rules.disable("short")
        assert editor.values["text"].endswith("# half")

        rules.replace_source("only_a", GOOD)

        assert editor.values["text"].endswith("# half")
        assert "changed elsewhere" in editor.notice.text


def test_a_change_made_elsewhere_is_shown() -> None:
    rules = book()
    with RuleEditor(rules) as editor:
        rules.replace_source("only_a", GOOD)
        assert editor.values["text"] == GOOD

        rules.remove("only_a")
        assert editor.chosen == "short"


def airline_book() -> RuleBook:
    rules = RuleBook()
    rules.when("tool.args.total_baggages > 5", id="bags", tools="book_reservation", guidance="Fewer bags.")
    rules.judge("Is it fair?", id="fair", tools="cancel_reservation", model="judge")
    rules.at_most(3, "think", id="think")
    return rules


def choose(editor: RuleEditor, rule_id: str) -> None:
    editor.choose(rule_id)


def test_a_condition_has_action_and_guidance_beside_its_text() -> None:
    rules = airline_book()
    with RuleEditor(rules) as editor:
        assert (editor.values["text"], editor.values["guidance"]) == ("tool.args.total_baggages > 5", "Fewer bags.")
        editor.write(text="tool.args.total_baggages > 2")
        editor.write(action="ask")
        editor.write(guidance="So many, {tool.args.total_baggages}?")

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
        editor.write(text="Is it kind?")
        editor.write(mode="async")
        editor.write(condition="history.size() > 1")
        assert editor.apply()

    judge = rules["fair"].llm_eval
    assert judge is not None
    assert (judge.prompt, judge.mode, judge.model) == ("Is it kind?", "async", "judge")
    assert rules["fair"].when == "history.size() > 1"


def sentences() -> RuleBook:
    rules = RuleBook()
    rules.at_most(3, "think", id="few")
    rules.never("send", after=["read", "list"], id="never")
    rules.only("pay", after="confirm", id="only", action="ask")
    rules.only_from_user("send", "to", trust=["contacts.email"], id="user", guidance="Ask first.")
    return rules


@pytest.mark.parametrize(
    ("rule_id", "values", "changed", "fields"),
    [
        ("few", {"tools": "think", "count": "3"}, {"count": "5", "tools": "think, plan"}, {"count": 5}),
        ("never", {"tools": "send", "others": "read, list"}, {"others": "read"}, {"others": ("read",)}),
        ("only", {"others": "confirm", "action": "ask"}, {"others": "confirm,  sign"}, {"others": ("confirm", "sign")}),
        ("user", {"args": "to", "trust": "contacts.email"}, {"args": "", "trust": "system"}, {"trust": ("system",)}),
    ],
)
def test_a_sentence_has_a_field_for_each_of_its_gaps(
    rule_id: str, values: dict[str, str], changed: dict[str, str], fields: dict[str, Any]
) -> None:
    rules = sentences()
    before = rules[rule_id]
    with RuleEditor(rules) as editor:
        editor.choose(rule_id)
        assert values.items() <= editor.values.items()
        assert editor.apply()
        assert rules[rule_id] == before  # nothing was changed, so nothing is

        editor.write(**changed)
        assert editor.apply()

    after = rules[rule_id]
    assert after.sequence is not None
    assert before.sequence is not None
    assert after.sequence == before.sequence.model_copy(
        update={**fields, **({"args": ()} if changed.get("args") == "" else {})}
    )
    assert (after.action, after.guidance, after.form) == (before.action, before.guidance, "sequence")


@pytest.mark.parametrize("count", ["", "three", "-1", "1.5"])
def test_a_number_that_is_none_is_not_applied_and_says_so(count: str) -> None:
    rules = sentences()
    with RuleEditor(rules) as editor:
        editor.write(count=count)

        assert not editor.apply()
        assert "whole number" in editor.notice.text
    sequence = rules["few"].sequence
    assert sequence is not None
    assert sequence.count == 3


def test_a_field_that_a_form_does_not_have_is_refused() -> None:
    with RuleEditor(sentences()) as editor, pytest.raises(NoeticConfigError) as caught:
        editor.write(text="tool.name")

    assert caught.value.code == "INVALID_FIELD"


@pytest.mark.parametrize(
    ("rule_id", "text", "line"),
    [("bags", "true &&\ntool.arg.x > 1", 2), ("only_a", "def only_a(call):\n    return (", 2)],
)
def test_the_line_that_fails_is_marked_until_the_text_changes(rule_id: str, text: str, line: int) -> None:
    rules = RuleBook([*book(), *airline_book()])
    with RuleEditor(rules) as editor:
        choose(editor, rule_id)
        editor.write(text=text)
        assert editor.apply() is False
        assert editor.notice.line == line
        assert editor.notice.mood == "bad"

        editor.write(text=text + " ")
        assert (editor.notice.line, editor.notice.text) == (None, "")


def test_a_draft_is_tried_on_the_recorded_runs_while_it_is_written() -> None:
    rules = airline_book()
    with RuleEditor(rules, run=datasets.airline()) as editor:
        assert editor.trial is not None
        editor.write(text="tool.args.total_baggages > 1")

        shown = editor.trial
        assert shown["title"].startswith("Tried on ")
        counts = {change: number for change, _, number in shown["counts"]}
        table = backtest(
            rules, datasets.airline(), candidate=SteeringRule(**changed(rules["bags"], when=editor.values["text"]))
        )
        assert counts == {change: number for change, number in table.attrs["summary"].items() if number}
        assert counts["newly_denied"] == len(shown["rows"]) > 0
        assert shown["rows"][0]["why"] == "Fewer bags."
        assert "fair" in shown["note"]
        assert rules.version == 3

        editor.write(text="tool.arg")
        assert "does not compile" in editor.trial["note"]
        assert editor.notice.line == 1


def changed(rule: SteeringRule, **fields: Any) -> dict[str, Any]:
    return {name: getattr(rule, name) for name in type(rule).model_fields} | fields


def test_a_python_draft_is_tried_without_being_applied() -> None:
    rules = book()
    with RuleEditor(rules, run=recorded(order="A")) as editor:
        assert editor.trial is not None
        editor.write(text=GOOD)

        assert editor.trial["counts"] == [["newly_allowed", "newly allowed", 1]]
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
        assert editor.trial is not None
        editor.write(text=text)

        assert "more than decide" in editor.trial["note"]


def test_rules_are_moved_removed_and_added_in_the_page() -> None:
    rules = book()
    with RuleEditor(rules) as editor:
        page_asks(editor, {"do": "choose", "rule_id": "short"})
        for _ in range(2):
            page_asks(editor, {"do": "move", "rule_id": "short", "by": -1})
        assert [rule.id for rule in rules] == ["short", "only_a"]
        page_asks(editor, {"do": "remove", "rule_id": "short"})
        assert ([rule.id for rule in rules], editor.chosen) == (["only_a"], "only_a")
        assert editor.snapshot["notice"]["undo"] is True
        page_asks(editor, {"do": "undo"})
        assert ([rule.id for rule in rules], editor.chosen) == (["short", "only_a"], "short")
        page_asks(editor, {"do": "add", "rule_id": "", "form": "cel"})

        assert [(rule.id, rule.form, rule.enabled) for rule in rules][2:] == [("rule_1", "cel", False)]
        assert editor.chosen == "rule_1"


@pytest.mark.reads_later
def test_what_is_said_of_a_removed_rule_comes_after_the_next_one_is_shown() -> None:
    with RuleEditor(book()) as editor:
        page_asks(editor, {"do": "choose", "rule_id": "short"})
        page_asks(editor, {"do": "remove", "rule_id": "short"})
        assert len(editor.to_frame()) == 1  # brings the table up to date

        assert (editor.chosen, editor.notice.text) == ("only_a", "Removed short.")
        assert editor.snapshot["notice"]["undo"] is True


@pytest.mark.parametrize("form", ["python", "cel", "judge", "at_most", "never_after", "only_after", "only_from_user"])
def test_a_new_rule_can_be_edited_and_applied(form: str) -> None:
    rules = RuleBook()
    with RuleEditor(rules, run=recorded(order="A")) as editor:
        editor.add("fresh", form)
        if "text" in editor.values:
            editor.write(text=editor.values["text"].replace("...", "pay").replace("asked", "wanted"))
        else:
            assert editor.values["tools"] == "look"  # the tool in the run
            editor.write(tools="pay")

        assert editor.apply() is True
        assert not rules["fresh"].enabled
        page_asks(editor, {"do": "switch", "rule_id": "fresh", "on": True})
    assert rules["fresh"].enabled


def test_a_form_or_a_name_that_cannot_be_is_refused() -> None:
    with RuleEditor(book()) as editor:
        for name, form, code in (("x", "sql", "INVALID_FORM"), ("short", "cel", "DUPLICATE_RULE_ID")):
            with pytest.raises(NoeticConfigError) as caught:
                editor.add(name, form)
            assert caught.value.code == code


def decided(turn: int, action: str = "deny", rule: str = "only_a") -> SteeringDecided:
    names = () if action == "allow" else (rule,)
    where = Where("t", "e", turn)
    return SteeringDecided(where, 0.0, "steering", "before_tool_call", "look", {}, action, None, names, 0.1)  # type: ignore[arg-type]


def test_hits_are_counted_by_turn_as_they_come(sent: list[dict[str, Any]]) -> None:
    rules = book()
    run = recorded(order="A")
    with RuleEditor(rules, run=run) as editor:
        sent.clear()
        for turn, action in ((1, "deny"), (3, "deny"), (3, "guide"), (3, "allow")):
            run.append(decided(turn, action))

        row = editor.snapshot["rows"][0]
        assert (row["words"], row["most"]) == ("2 denied, 1 guided", "2 denied, 1 guided; most in turn 3, 2")
        assert row["spark"] == "M0.1,1v-0.5h0.8V1ZM2.1,1v-1h0.8V1Z"
        assert [(at, cells(row)["Hits"]) for message in sent for at, row in message["rows"]] == [
            (0, "1 denied"),
            (0, "2 denied"),
            (0, "2 denied, 1 guided"),
        ]
        assert row["spark"] in row["html"]
        assert row["spark"] in editor.to_html()
        assert "2 denied, 1 guided" in editor.to_html()
        assert editor.to_frame().hits.tolist() == [3, 0]
    assert not watching(run)


def test_a_long_run_has_as_many_bars_as_fit() -> None:
    run = Run(events=[decided(turn) for turn in range(1, 1_001)])
    with RuleEditor(book(), run=run) as editor:
        row = editor.snapshot["rows"][0]

        assert row["spark"].count("M") == 32
        assert 'viewBox="0 0 32 1"' in row["html"]
        assert row["most"] == "1000 denied; most in turns 1 to 32, 32"


def test_hits_of_a_moment_and_of_several_runs_count() -> None:
    runs = [Run(events=[decided(turn) for turn in (1, 2, 3)]) for _ in range(2)]
    with RuleEditor(book(), runs=runs, until=2) as editor:
        assert editor.to_frame().hits.tolist() == [4, 0]
        runs[1].append(decided(2))
        runs[1].append(decided(3))
        assert editor.to_frame().hits.tolist() == [5, 0]


def test_the_frame_has_one_row_a_rule() -> None:
    with RuleEditor(airline_book()) as editor:
        frame = editor.to_frame()

    assert list(frame.columns) == ["id", "form", "hooks", "enabled", "hits", "version", "text"]
    assert frame.id.tolist() == ["bags", "fair", "think"]
    assert frame.form.tolist() == ["cel", "judge", "sequence"]
    assert frame.version.tolist() == [1, 2, 3]


def test_what_is_typed_for_one_rule_is_never_taken_for_another() -> None:
    rules = RuleBook([*book(), *airline_book()])
    with RuleEditor(rules) as editor:
        generation = editor.snapshot["draft"]["generation"]
        late = {
            "do": "typed",
            "rule_id": "only_a",
            "generation": generation,
            "at": 1.0,
            "values": {"text": "def late(call): ..."},
        }
        editor.choose("short")
        page_asks(editor, late)
        assert editor.values["text"] == "def short(r): ..."

        editor.choose("only_a")
        page_asks(editor, late)
        assert editor.values["text"] == "def only_a(call):\n    return deny('No.')"


def typed_and_applied(editor: RuleEditor, text: str) -> dict[str, Any]:
    draft = editor.snapshot["draft"]
    values = {**draft["values"], "text": text}
    return {"do": "apply", "rule_id": draft["rule_id"], "form": draft["form"], "values": values}


def test_what_stood_on_the_page_when_apply_was_pressed_is_applied() -> None:
    rules = RuleBook([*book(), *airline_book()])
    with RuleEditor(rules) as editor:
        pressed = typed_and_applied(editor, GOOD)
        editor.write(text="def only_a(call): ...  # typed on since")
        page_asks(editor, pressed)
        assert rules["only_a"].source == GOOD

        # Not even a rule that was chosen since may get it.
        rules.replace_source("only_a", "def only_a(call): ...")
        editor.choose("short")
        page_asks(editor, pressed)
        assert (rules["only_a"].source, rules["short"].source) == (GOOD, "def short(r): ...")


def test_what_was_typed_after_apply_stays_on_the_page() -> None:
    rules = book()
    with RuleEditor(rules) as editor:
        draft = editor.snapshot["draft"]
        page_asks(editor, typed_and_applied(editor, GOOD))
        on = {
            "do": "typed",
            "rule_id": "only_a",
            "generation": draft["generation"],
            "at": 1.0,
            "values": {"text": GOOD + "  # on"},
        }
        page_asks(editor, on)

        assert editor.values["text"] == GOOD + "  # on"
        assert rules["only_a"].source == GOOD


def test_text_that_arrives_behind_newer_text_is_dropped() -> None:
    with RuleEditor(book()) as editor:
        draft = editor.snapshot["draft"]
        asks = {"do": "typed", "rule_id": "only_a", "generation": draft["generation"]}
        page_asks(editor, {**asks, "at": 2.0, "values": {"text": "newer"}})
        page_asks(editor, {**asks, "at": 1.0, "values": {"text": "older"}})

        assert editor.values["text"] == "newer"


def test_a_rule_that_is_gone_or_has_another_form_is_not_applied() -> None:
    rules = book()
    with RuleEditor(rules) as editor:
        pressed = typed_and_applied(editor, GOOD)
        rules.put({"id": "only_a", "applies_to": "before_tool_call", "when": "true"})
        page_asks(editor, pressed)
        assert ("another form" in editor.notice.text, rules["only_a"].form) == (True, "cel")

        rules.remove("only_a")
        page_asks(editor, pressed)
        assert "removed meanwhile" in editor.notice.text
        assert "only_a" not in rules


def test_a_change_made_elsewhere_never_waits_for_the_editor() -> None:
    rules = book()
    with RuleEditor(rules) as editor:
        inside, done = threading.Event(), threading.Event()

        def holds() -> None:
            with editor._doing():
                inside.set()
                done.wait(10)

        thread = threading.Thread(target=holds)
        thread.start()
        inside.wait(10)
        rules.disable("short")
        assert editor.snapshot["rows"][1]["enabled"] is True
        done.set()
        thread.join(10)

        assert editor.snapshot["rows"][1]["enabled"] is False


async def test_newer_work_takes_the_place_of_older_work() -> None:
    results: list[Any] = []
    begun, done = threading.Event(), threading.Event()

    def report(result: Any, error: Any) -> None:
        results.append((result, error))
        done.set()

    def old(stop: Any) -> str:
        begun.set()
        while not stop():
            pass
        return "old"

    trial: LiveTrial[str] = LiveTrial(report, pause_s=0)
    trial.later(old)
    await asyncio.to_thread(begun.wait, 10)
    trial.later(lambda stop: "new")
    await asyncio.to_thread(done.wait, 10)

    assert results == [("new", None)]


async def test_a_kernel_that_is_busy_delays_no_trial() -> None:
    done = threading.Event()
    trial: LiveTrial[int] = LiveTrial(lambda result, error: done.set(), pause_s=0)
    trial.later(lambda stop: 1)

    assert done.wait(10)  # blocks the thread of the event loop


async def test_reading_what_was_recorded_is_no_part_of_the_limit() -> None:
    results: list[Any] = []
    done = threading.Event()

    def report(result: Any, error: Any) -> None:
        results.append(result)
        done.set()

    trial: LiveTrial[str] = LiveTrial(report, pause_s=0, limit_s=0)
    trial.later(lambda stop: "in time", first=lambda: 60.0)
    await asyncio.to_thread(done.wait, 10)

    assert results == ["in time"]


async def test_work_that_never_ends_is_given_up_and_its_thread_ends() -> None:
    results: list[Any] = []
    done = threading.Event()
    ended = threading.Event()

    def forever(stop: Any) -> None:
        try:
            while True:
                try:
                    sum(range(100))
                except Exception:  # a rule that swallows every exception
                    continue
        finally:
            ended.set()

    def report(result: Any, error: Any) -> None:
        results.append(error)
        done.set()

    trial: LiveTrial[None] = LiveTrial(report, pause_s=0, limit_s=0.05)
    trial.later(forever)
    await asyncio.to_thread(done.wait, 10)

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
        assert editor.chosen == "first"


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


@pytest.mark.parametrize(
    ("text", "limit_s"),
    [("while True: pass\ndef only_a(call): ...", LIMIT_S), ("def only_a(call):\n    while True: pass", 0.1)],
    ids=["above the rule", "in the rule"],
)
def test_a_rule_that_loops_for_ever_is_not_applied_and_the_kernel_goes_on(
    text: str, limit_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LiveTrial.__init__.__kwdefaults__, "limit_s", 0.1)  # while typing
    monkeypatch.setitem(in_time.__kwdefaults__, "limit_s", limit_s)  # when applied
    rules = book()
    before = rules["only_a"]
    with RuleEditor(rules, run=recorded(order="B")) as editor:
        editor.write(text=text)

        assert editor.apply() is False
        assert rules["only_a"] == before
        assert (editor.notice.mood, f"more than {limit_s:g} seconds" in editor.notice.text) == ("bad", True)


@pytest.mark.parametrize("action", ["deny", "ask"])
def test_a_condition_that_fails_on_recorded_calls_is_not_applied(action: str) -> None:
    rules = RuleBook()
    rules.when("tool.name == 'look'", id="c", action="deny")
    with RuleEditor(rules, run=recorded(order="B")) as editor:
        editor.write(text="tool.args.amount > 100")
        editor.write(action=action)

        assert editor.apply() is False
        assert rules["c"].when == "tool.name == 'look'"
        assert "failed" in editor.notice.text


@pytest.mark.parametrize(
    "text", ["async def only_a(call):\n    return 3", "def only_a(call):\n    raise StopIteration"]
)
def test_what_fails_in_any_way_on_a_recorded_call_is_not_applied(text: str) -> None:
    rules = book()
    with RuleEditor(rules, run=recorded(order="B")) as editor:
        editor.write(text=text)

        assert editor.apply() is False
        assert rules["only_a"].source == book()["only_a"].source


def test_a_rule_about_responses_is_tried_on_recorded_responses() -> None:
    rules = book()
    run = next(iter(datasets.airline(1)))
    with RuleEditor(rules, run=run) as editor:
        editor.choose("short")
        editor.write(text="def short(params):\n    return params.response.texts")

        assert editor.apply() is False
        assert "AttributeError" in editor.notice.text
