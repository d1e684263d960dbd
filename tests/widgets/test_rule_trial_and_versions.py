"""Parts beside the fields of the rule editor: trials of a draft, versions and their differences, saving, and code."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ModelCalled, SteeringDecided, ToolCalled, Where
from noetic_nb.lab import datasets, evaluate
from noetic_nb.runs import Run
from noetic_nb.runs._cause import places_of_decisions
from noetic_nb.steering import RuleBook, SteeringRule, deny, load_rules
from noetic_nb.steering._rules.file_schema import rule_data
from noetic_nb.widgets import RuleEditor
from noetic_nb.widgets._rules.draft import book_code, rule_at, text_diff, version_rows
from noetic_nb.widgets._rules.draft_trial import place_of
from tests.widgets.rows import words


def paid(amount: int, **meta: Any) -> Run:
    call = ToolCalled(Where("t", "e", 1), 0.0, "pay", "c1", {"amount": amount}, "ok", 1.0, "ok")
    return Run(events=[call], meta={"source": "test", **meta})


def attacks() -> list[Run]:
    """Return ten successful attacks with large amounts, ten good runs with small ones, and four in between."""
    return [
        *(paid(100 + n, attack=True, attack_succeeded=True, outcome=False) for n in range(10)),
        *(paid(n, attack=False, outcome=True) for n in range(10)),
        *(paid(50, attack=False, outcome=False) for _ in range(3)),
        paid(1),
    ]


def limit(amount: int = 1_000) -> RuleBook:
    rules = RuleBook()
    rules.when(f"tool.args.amount > {amount}", id="large", tools="pay")
    return rules


def lines(editor: RuleEditor) -> dict[str, tuple[int, int, int]]:
    assert editor.trial is not None
    return {line["name"]: (line["before"][0], line["after"][0], line["after"][1]) for line in editor.trial["lines"]}


def test_a_trial_is_split_by_how_the_runs_went() -> None:
    with RuleEditor(limit(), runs=attacks()) as editor:
        editor.write(text="tool.args.amount > 40")
        assert lines(editor) == {
            "caught": (0, 10, 10), "failed": (0, 3, 3), "blocked": (0, 0, 10), "false_rejections": (0, 0, 10),
            "unlabelled": (0, 0, 1),
        }  # fmt: skip

        editor.write(text="tool.args.amount > 7")
        assert lines(editor)["blocked"] == (0, 2, 10)
        shown = words(editor.trial["parts"])  # type: ignore[index]
        assert "Good runs stopped2/10 · 20.0 %2 more, worse · in force 0/10 · 0.0 %" in shown
        assert lines(editor)["false_rejections"] == (0, 2, 10)


def test_a_page_sees_how_the_rules_in_force_do_before_anything_is_edited() -> None:
    rules = limit(105)
    with RuleEditor(rules, runs=attacks()) as editor:
        assert editor.trial is not None
        assert editor.trial["of"] == "nothing"

        editor._answer({"do": "try_in_force"})
        assert editor.trial["title"] == "The rules in force on 24 recorded calls of 24 runs"
        assert lines(editor)["caught"] == (4, 4, 10)
        assert editor.trial["counts"] == [["newly_denied", "denied", 4]]
        assert [row["verdict"] for row in editor.trial["rows"]] == ["deny"] * 4

        editor.write(text="tool.args.amount > 102")
        edited = editor.trial
        editor._answer({"do": "try_in_force"})
        assert edited["title"].startswith("Tried on")
        assert editor.trial is edited, "the draft that someone writes stays"
        editor.choose("large")
        assert editor.trial["of"] == "rules"


def test_there_is_something_to_undo_after_a_change_and_nothing_before() -> None:
    rules = limit()
    with RuleEditor(RuleBook()) as new, RuleEditor(rules) as editor:
        assert not new.snapshot["can_undo"]
        while editor.undo():
            pass
        assert editor.snapshot["can_undo"] is rules.can_undo is False
        rules.disable("large") if "large" in rules else rules.at_most(3, "pay", id="few")
        assert editor.snapshot["can_undo"] is rules.can_undo is True


def test_what_is_in_force_is_compared_with_the_draft() -> None:
    rules = limit(105)
    with RuleEditor(rules, runs=attacks()) as editor:
        editor.write(text="tool.args.amount > 102")
        assert lines(editor)["caught"] == (4, 7, 10)

        assert editor.apply()
        editor.write(text="tool.args.amount > 50")
        assert lines(editor)["caught"] == (7, 10, 10)


@pytest.mark.parametrize("text", ["tool.name == 'transfer_to_human_agents'", "size(tool.args) > 2"])
def test_counts_rates_and_intervals_are_those_of_evaluate(text: str) -> None:
    runs = datasets.airline(20)
    rules = RuleBook()
    rules.when("false", id="r")
    with RuleEditor(rules, runs=runs) as editor:
        editor.write(text=text)
        assert editor.trial is not None
        shown = {line["name"]: line["after"] for line in editor.trial["lines"]}

    found = evaluate([SteeringRule(id="r", applies_to="before_tool_call", when=text)], runs)
    assert shown["failed"] == list(found.failed)
    assert shown["blocked"] == list(found.blocked)
    assert shown["false_rejections"] == list(found.false_rejections)
    assert not any(math.isnan(number) for counts in shown.values() for number in counts)
    json.dumps(editor.snapshot, allow_nan=False)


def test_runs_without_labels_show_the_decisions_that_differ_only() -> None:
    with RuleEditor(limit(), runs=[paid(5), paid(500)]) as editor:
        editor.write(text="tool.args.amount > 100")

        assert editor.trial is not None
        assert editor.trial["lines"] == []
        assert [row["verdict"] for row in editor.trial["rows"]] == ["allow → deny"]


def test_a_label_may_be_a_function_of_a_run() -> None:
    with RuleEditor(
        limit(), runs=[paid(5), paid(500)], outcome=lambda run: run.events[0].args["amount"] < 10
    ) as editor:
        editor.write(text="tool.args.amount > 100")

        assert lines(editor) == {"failed": (0, 1, 1), "blocked": (0, 0, 1), "false_rejections": (0, 0, 1)}


def test_a_rule_that_is_off_is_tried_as_if_it_were_on() -> None:
    rules = limit()
    rules.disable("large")
    with RuleEditor(rules, runs=attacks()) as editor:
        editor.write(text="tool.args.amount > 40")

        assert lines(editor)["caught"] == (0, 10, 10)


def test_a_run_that_grows_is_read_again() -> None:
    run = paid(5)
    with RuleEditor(limit(), run=run) as editor:
        editor.write(text="tool.args.amount > 100")
        assert editor.trial is not None
        assert editor.trial["title"] == "Tried on 1 recorded call of 1 run"
        run.append(ToolCalled(Where("t", "e", 2), 0.0, "pay", "c2", {"amount": 500}, "ok", 1.0, "ok"))
        editor.write(text="tool.args.amount > 101")

        assert editor.trial["title"] == "Tried on 2 recorded calls of 1 run"
        assert len(editor.trial["rows"]) == 1


def test_a_response_says_the_decision_that_followed_it() -> None:
    where = Where("t1", "e1", 1)
    answer = ModelCalled(where, 0.0, 0, "m", "agent", 1.0, "ok")
    decided = SteeringDecided(where, 0.0, "steering", "after_model_call", None, None, "deny", "No.", ("r",), 0.1)
    run = Run(events=[answer, decided, answer, decided])

    found = [place_of(run, seq, places_of_decisions(run.events))["decision"] for seq in (0, 2)]

    assert found == [1, 3]


def test_a_decision_that_differs_says_where_other_views_find_it() -> None:
    first, second = Where("t1", "e1", 1), Where("t1", "e2", 2)
    args = {"amount": 500}
    run = Run(
        events=[
            ModelCalled(first, 0.0, 0, "m", "agent", 1.0, "ok"),
            ModelCalled(second, 0.0, 0, "m", "judge", 1.0, "ok"),
            ModelCalled(second, 0.0, 0, "m", "agent", 1.0, "ok"),
            SteeringDecided(second, 0.0, "steering", "before_tool_call", "pay", args, "allow", None, (), 0.1),
            ToolCalled(second, 0.0, "pay", "c", args, "ok", 1.0, "ok"),
        ]
    )

    found = place_of(run, 4, places_of_decisions(run.events))
    assert found == {"thread_id": "t1", "turn": 2, "call": 1, "item": None, "decision": 3}
    with RuleEditor(limit(), run=run) as editor:
        editor.write(text="tool.args.amount > 100")
        assert editor.trial is not None
        assert [row["place"]["decision"] for row in editor.trial["rows"]] == [3]
        editor.selection.select(**editor.trial["rows"][0]["place"])
        assert editor.selection.call == 1


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("true &&\n tool.nme == 'x'", {"field": "text", "line": 2, "column": 7}),
        ("true && (\n  3", {"field": "text", "line": 2, "column": 4}),
    ],
)
def test_an_error_in_a_condition_has_its_line_and_column(text: str, place: dict[str, Any]) -> None:
    with RuleEditor(limit()) as editor:
        editor.write(text=text)
        assert not editor.apply()

        notice = editor.snapshot["notice"]
        assert {name: notice[name] for name in place} == place
        assert notice["text"].splitlines()[-1] == f"     | {' ' * (place['column'] - 1)}^"


def test_an_error_in_the_guidance_marks_no_line_of_the_condition() -> None:
    with RuleEditor(limit()) as editor:
        editor.write(guidance="{tool.arg.x}")

        assert not editor.apply()
        assert "its guidance names" in editor.notice.text
        assert editor.notice.line is None


def test_each_version_can_be_compared_and_restored() -> None:
    rules = limit()
    rules.when("tool.args.amount > 5", id="large", tools="pay")
    rules.disable("large")
    with RuleEditor(rules) as editor:
        assert [row["version"] for row in editor.snapshot["versions"]["rows"]] == [3, 2, 1]
        assert editor.snapshot["versions"]["head"] == "Versions: 3 versions of large"
        assert [row["html"].count(">Restore<") for row in editor.snapshot["versions"]["rows"]] == [0, 1, 1]
        found = editor.reading.answer({"do": "compare", "rule_id": "large", "version": 1})
        changed = [[mark, text.strip()] for mark, text in found["lines"] if mark != " "]
        assert ["-", '"when": "tool.args.amount > 1000",'] in changed
        assert ["+", '"when": "tool.args.amount > 5",'] in changed
        assert ["+", '"enabled": false'] in changed

        editor.restore(1)

        assert (rules["large"].when, rules["large"].enabled) == ("tool.args.amount > 1000", True)
        assert editor.values["text"] == "tool.args.amount > 1000"
        assert (rules.version, rules.changes[-1].change) == (4, "replace")


def test_a_rule_that_the_book_began_with_has_a_version_of_its_own() -> None:
    rules = RuleBook([{"id": "r", "applies_to": "before_tool_call", "when": "true"}])
    assert version_rows(rules, "r") == []
    rules.disable("r")

    assert [row["version"] for row in version_rows(rules, "r")] == [1, 0]
    assert rule_at(rules, "r", 0).enabled
    with pytest.raises(NoeticConfigError) as caught:
        rule_at(rules, "other", 0)
    assert caught.value.code == "UNKNOWN_VERSION"


def test_a_rule_that_was_removed_can_be_brought_back() -> None:
    rules = RuleBook([*limit(), {"id": "other", "applies_to": "before_tool_call", "when": "true"}])
    with RuleEditor(rules) as editor:
        editor.remove()
        removed = [row for row in editor.snapshot["versions"]["rows"] if "Bring back" in row["html"]]
        assert [(row["rule_id"], row["version"]) for row in removed] == [("large", 1)]
        assert editor.snapshot["versions"]["head"].endswith(" of other, 1 removed rule")

        editor.restore(1, "large")

        assert [rule.id for rule in rules] == ["other", "large"]
        assert "Bring back" not in str(editor.snapshot["versions"]["rows"])


def test_a_diff_shows_what_is_dangerous_and_no_credential() -> None:
    [old, new] = text_diff("sk-" + "a1B2" * 12, "<b>\u202e</b>")

    assert "a1B2a1B2" not in old[1]
    assert new == ["+", "<b>[U+202E]</b>"]


def everything() -> RuleBook:
    rules = limit()
    rules.at_most(3, ["a", "b"], id="few", action="ask", guidance="Slow down.")
    rules.never("send", after=["read", "list"], id="never")
    rules.only("pay", after="confirm", id="only")
    rules.only_from_user("send", "to", "cc", trust=["contacts.email"], id="user")
    rules.judge(
        "Is it 'kind'?", id="kind", on=["before_tool_call", "after_model_call"], model="m", when="history.size() > 1"
    )
    rules.when("response.text == ''", id="named", name="No silence", isolate=True, action="guide", guidance='Say "it".')
    rules.put(rules["few"].model_copy(update={"id": "called", "name": "Few"}))
    rules.disable("never")
    return rules


def test_the_code_of_a_book_makes_the_same_book() -> None:
    rules = everything()
    names: dict[str, Any] = {}
    exec(book_code(rules), names)

    assert [rule_data(rule) for rule in names["rules"]] == [rule_data(rule) for rule in rules]


@pytest.mark.parametrize(
    "source",
    [
        "def quiet(call):\n    return deny('Quiet.')",
        "@rules.rule(\n    on='before_tool_call',\n)\n@other\ndef quiet(call):\n    return deny('Quiet.')\n",
        "import math\nLIMIT = math.pi\n\nasync def quiet(call):\n    return deny('Quiet.')",
    ],
)
def test_the_code_of_a_function_is_its_text_under_a_new_decorator(source: str) -> None:
    rule = SteeringRule(
        id="be quiet",
        applies_to="before_tool_call",
        tools=("a",),
        history=True,
        predicate=lambda c: None,
        source=source,
    )
    names: dict[str, Any] = {}
    exec(book_code([rule]), names)

    found = names["rules"]["be quiet"]
    assert (found.tools, found.history, found.applies_to, found.form) == (("a",), True, ("before_tool_call",), "python")
    assert found.predicate.__name__ == "quiet"


def test_a_function_whose_text_is_not_known_is_a_comment() -> None:
    rules = RuleBook([{"id": "x\n1 / 0", "applies_to": "before_tool_call", "predicate": lambda call: deny("No.")}])
    code = RuleEditor(rules).code()

    exec(code, {})
    assert "whose text is not known" in code


def test_rules_are_saved_and_what_was_written_is_said(tmp_path: Path) -> None:
    rules, path = limit(), tmp_path / "rules.yaml"
    rules.put({"id": "quiet", "applies_to": "before_tool_call", "predicate": lambda call: None})
    with RuleEditor(rules) as editor:
        assert editor.save(path)
        assert f"Wrote 2 rules ({path.stat().st_size} bytes) to {path.resolve()}." in editor.notice.text
        assert "by name only" in editor.notice.text
        assert "quiet" in editor.notice.text
        assert editor.snapshot["file"] == str(path.resolve())

    assert [rule.id for rule in load_rules(path, functions={"quiet": lambda call: None})] == ["large", "quiet"]


def test_a_file_that_is_not_the_books_own_is_replaced_only_when_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text("mine")
    rules = limit()
    with RuleEditor(rules) as editor:
        assert not editor.save(path)
        assert (path.read_text(), editor.notice.mood) == ("mine", "bad")
        assert "FILE_EXISTS" in editor.notice.text
        assert editor.reading.answer({"do": "save", "path": str(path), "overwrite": False}) == {"exists": True}

        assert editor.save(path, overwrite=True)
        # The book owns the file until it is changed elsewhere.
        assert editor.save(path)
        path.write_text(path.read_text() + "\n")
        assert not editor.save(path)

    loaded = load_rules(path)
    with RuleEditor(loaded) as editor:
        assert editor.snapshot["file"] == str(path.resolve())
        assert editor.save(path)


@pytest.mark.parametrize("name", ["", "rules.txt", "no/such/folder/rules.json", "."])
def test_a_path_that_cannot_be_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with RuleEditor(limit()) as editor:
        assert not editor.save(name)
        assert editor.notice.text.startswith("Not written.")
    assert list(tmp_path.iterdir()) == []
