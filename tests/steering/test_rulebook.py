"""The rule book: ordered, versioned, edited while it is read."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.steering import LLMEval, RuleBook, SequenceRule, SteeringRule
from noetic_nb.steering._rules.rule import CelCondition, PythonPredicate
from noetic_nb.testing import drive_loop
from tests.steering.steering_helpers import Bench

JUDGE: Any = {"mode": "sync", "prompt": "Fine?"}


def plain(rule_id: str, **more: Any) -> SteeringRule:
    return SteeringRule(id=rule_id, applies_to="before_tool_call", predicate=lambda call: None, **more)


def ids(book: RuleBook) -> list[str]:
    return [rule.id for rule in book]


def test_running_a_cell_again_replaces_the_rule_in_place() -> None:
    rules = RuleBook([plain("first"), plain("second"), plain("third")])

    @rules.rule(on="before_tool_call")
    def second(call: Any) -> Any:
        return nn.deny("now")

    assert ids(rules) == ["first", "second", "third"]
    assert rules["second"].predicate is second
    assert rules.changes[-1].change == "replace"


def test_a_decorated_function_stays_callable_and_keeps_its_text() -> None:
    rules = RuleBook()

    @rules.rule(on=("before_tool_call", "after_model_call"), tools=["pay"], history=True)
    def no_payments(call: Any) -> Any:
        return nn.deny("No payments.")

    assert no_payments(None).guidance == "No payments."
    assert "def no_payments" in (rules["no_payments"].source or "")
    assert rules["no_payments"].applies_to == ("before_tool_call", "after_model_call")


def test_every_change_raises_the_version_by_one_and_is_kept() -> None:
    rules = RuleBook([plain("a"), plain("b")])

    rules.put(plain("c"))
    rules.move("c", 0)
    rules.disable("a")
    rules.enable("a")
    rules.remove("b")
    rules.undo()

    assert [change.change for change in rules.changes] == ["add", "move", "disable", "enable", "remove", "undo"]
    assert [change.version for change in rules.changes] == [1, 2, 3, 4, 5, 6]
    assert ids(rules) == ["c", "a", "b"]


def test_what_changes_nothing_is_no_change() -> None:
    rules = RuleBook([plain("a"), plain("b")])

    rules.enable("a")
    rules.move("b", 1)

    assert rules.version == 0
    assert rules.undo() is None


def test_undo_restores_rule_and_place() -> None:
    old = plain("b")
    rules = RuleBook([plain("a"), old, plain("c")])
    rules.put(plain("b", name="new"))
    rules.move("b", 0)

    rules.undo()
    rules.undo()

    assert ids(rules) == ["a", "b", "c"]
    assert rules["b"] is old


@pytest.mark.parametrize("place", [2, -3, True, 1.0, None])
def test_a_place_that_is_none_is_refused_and_nothing_moves(place: Any) -> None:
    rules = RuleBook([plain("a"), plain("b")])

    with pytest.raises(NoeticConfigError) as caught:
        rules.move("a", place)

    assert (caught.value.code, ids(rules), rules.version) == ("INVALID_POSITION", ["a", "b"], 0)


@pytest.mark.parametrize("act", ["remove", "enable", "disable", "__getitem__"])
def test_an_unknown_rule_is_an_error_that_names_the_known_ones(act: str) -> None:
    rules = RuleBook([plain("known")])

    with pytest.raises(NoeticConfigError, match="'known'") as caught:
        getattr(rules, act)("other")

    assert caught.value.code == "UNKNOWN_RULE"


def test_two_first_rules_of_one_name_are_refused() -> None:
    with pytest.raises(NoeticConfigError) as caught:
        RuleBook([plain("a"), plain("a")])

    assert caught.value.code == "DUPLICATE_RULE_ID"


def test_a_snapshot_never_changes() -> None:
    rules = RuleBook([plain("a")])
    before = rules.snapshot

    rules.put(plain("b"))
    rules.remove("a")

    assert [rule.id for rule in before] == ["a"]
    assert [rule.id for rule in before.applicable("before_tool_call", "pay")] == ["a"]
    assert ids(rules) == ["b"]


def test_a_rule_that_takes_itself_out_is_evaluated_to_the_end_of_its_evaluation() -> None:
    rules = RuleBook()
    asked: list[str] = []

    @rules.rule(on="before_tool_call")
    def once(call: Any) -> None:
        asked.append("once")
        rules.remove("once")
        rules.remove("later")

    @rules.rule(on="before_tool_call")
    def later(call: Any) -> Any:
        asked.append("later")
        return nn.deny("later")

    async def run() -> list[str]:
        bench = await Bench(rules).start()
        return [(await bench.call()).action.value for _ in range(2)]

    assert drive_loop(run()) == ["deny", "allow"]
    assert asked == ["once", "later"]


def test_a_listener_gets_every_change_until_it_stops() -> None:
    rules = RuleBook()
    heard: list[str] = []
    stop = rules.listen(lambda change: heard.append(change.change))

    rules.put(plain("a"))
    rules.disable("a")
    stop()
    stop()
    rules.enable("a")

    assert heard == ["add", "disable"]


def test_a_listener_that_raises_keeps_nothing_from_changing(caplog: pytest.LogCaptureFixture) -> None:
    rules = RuleBook()
    heard: list[int] = []

    def broken(change: Any) -> None:
        raise RuntimeError("no")

    rules.listen(broken)
    rules.listen(lambda change: heard.append(change.version))

    rules.put(plain("a"))
    rules.put(plain("b"))

    assert (ids(rules), heard) == (["a", "b"], [1, 2])
    assert caplog.text.count("failed and was removed") == 1


def test_edits_from_several_threads_lose_none() -> None:
    rules = RuleBook()

    def add(prefix: str) -> None:
        for number in range(100):
            rules.put(plain(f"{prefix}{number}"))

    threads = [threading.Thread(target=add, args=(prefix,)) for prefix in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (len(rules), rules.version) == (400, 400)


def test_only_rules_about_the_tool_are_evaluated() -> None:
    rules = RuleBook([plain("any"), plain("pay", tools=["pay"]), plain("look", tools=("look", "find"))])

    found = {
        tool: [rule.id for rule in rules.snapshot.applicable("before_tool_call", tool)] for tool in ("pay", "find", "x")
    }

    assert found == {"pay": ["any", "pay"], "find": ["any", "look"], "x": ["any"]}


def test_a_disabled_rule_is_not_evaluated_and_an_enabled_one_is_again() -> None:
    rules = RuleBook([SteeringRule(id="no", applies_to="before_tool_call", predicate=lambda call: nn.deny())])

    async def run() -> list[str]:
        bench = await Bench(rules).start()
        rules.disable("no")
        off = await bench.call()
        rules.enable("no")
        return [off.action.value, (await bench.call()).action.value]

    assert drive_loop(run()) == ["allow", "deny"]


@pytest.mark.parametrize("name", ["pаy", "p\u200bay", "ｐａｙ", "рау"])
def test_a_tool_that_looks_like_another_is_held_to_its_rules(name: str) -> None:
    rules = RuleBook([plain("pay", tools=["pay"])])

    assert [rule.id for rule in rules.snapshot.applicable("before_tool_call", name)] == ["pay"]


def test_a_rule_about_the_name_on_the_wire_is_about_the_tool() -> None:
    rules = RuleBook([plain("plan", tools=["plan_update"]), plain("canonical", tools=["plan/update"])])

    assert len(rules.snapshot.applicable("before_tool_call", "plan/update")) == 2


@given(st.text(min_size=1), st.text(min_size=1))
def test_names_that_differ_in_letters_of_their_own_script_stay_apart(one: str, other: str) -> None:
    rules = RuleBook([plain("r", tools=["天气" + one])])

    assert rules.snapshot.applicable("before_tool_call", "汇率" + other) == ()


@pytest.mark.parametrize(
    ("rule_data", "field"),
    [
        ({"id": ""}, "id"),
        ({"applies_to": []}, "applies_to"),
        ({"applies_to": "sometimes"}, "applies_to"),
        ({"predicat": None}, "predicat"),
        ({"llm_eval": {"mode": "later", "prompt": "?"}}, "llm_eval"),
        ({"predicate": 3}, "predicate"),
        ({"predicate": len, "when": "true"}, "rule"),
        ({"action": "deny"}, "rule"),
        ({"when": "true", "action": "perhaps"}, "action"),
        ({"when": "true", "isolate": "thread"}, "rule"),
        ({"predicate": len, "isolate": "process"}, "rule"),
        ({"sequence": {"kind": "at_most", "count": 1}}, "rule"),
        ({"sequence": {"kind": "at_most"}, "tools": "a"}, "sequence"),
    ],
)
def test_a_rule_that_is_none_is_refused_with_its_field(rule_data: dict[str, Any], field: str) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        SteeringRule(**{"id": "r", "applies_to": "before_tool_call"} | rule_data)

    assert caught.value.code == "INVALID_RULE"
    assert caught.value.field.startswith(field)


@pytest.mark.parametrize(
    ("fields", "form", "decider"),
    [
        ({"predicate": len}, "python", PythonPredicate(len)),
        ({"predicate": len, "llm_eval": JUDGE}, "python", PythonPredicate(len)),
        ({"when": "true", "llmEval": JUDGE}, "cel", CelCondition("true")),
        (
            {"sequence": {"kind": "at_most", "count": 0}, "tools": "a"},
            "sequence",
            SequenceRule(kind="at_most", count=0),
        ),
        ({"llm_eval": JUDGE}, "judge", LLMEval(**JUDGE)),
        ({}, "none", None),
    ],
)
def test_a_rule_has_the_form_of_what_decides_it_first(fields: dict[str, Any], form: str, decider: Any) -> None:
    rule = SteeringRule(id="r", applies_to="before_tool_call", **fields)

    assert (rule.form, rule.decider) == (form, decider)


def test_a_copy_with_another_field_has_another_form() -> None:
    rule = SteeringRule(id="r", applies_to="before_tool_call", when="true")

    assert rule.decider == CelCondition("true")
    assert rule.model_copy(update={"when": None, "predicate": len}).decider == PythonPredicate(len)


def test_a_misspelt_field_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(NoeticConfigError, match="Did you mean 'predicate'"):
        SteeringRule(id="r", applies_to="before_tool_call", predicat=None)


def test_a_book_shows_itself_as_a_table_in_which_everything_is_text() -> None:
    rules = RuleBook([plain("<script>alert(1)</script>", tools=["<img src=x>"])])
    rules.when("tool.name == '<b>'", id="cel", action="ask")
    rules.at_most(3, "search")
    rules.disable("cel")

    html = rules._repr_html_()

    assert "<script" not in html
    assert "<img" not in html
    assert "<b>" not in html
    for text in ("version 3", "search may be called at most 3 times.", "→ ask", "off"):
        assert text in html
    assert "no rules yet" in RuleBook()._repr_html_()


class BookMachine(RuleBasedStateMachine):
    """Any sequence of edits, compared with a model: a list of ids and a stack of lists."""

    def __init__(self) -> None:
        super().__init__()
        self.book = RuleBook()
        self.model: list[tuple[str, bool]] = []
        self.past: list[list[tuple[str, bool]]] = []
        self.version = 0

    def changed(self, now: list[tuple[str, bool]]) -> None:
        self.past.append(self.model)
        self.model, self.version = now, self.version + 1

    @rule(name=st.sampled_from("abcd"))
    def put(self, name: str) -> None:
        self.book.put(plain(name))
        known = [old for old, _ in self.model]
        if name in known:
            self.changed([(old, True if old == name else on) for old, on in self.model])
        else:
            self.changed([*self.model, (name, True)])

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.model:
            name = data.draw(st.sampled_from([old for old, _ in self.model]))
            self.book.remove(name)
            self.changed([pair for pair in self.model if pair[0] != name])

    @rule(data=st.data(), on=st.booleans())
    def switch(self, data: st.DataObject, on: bool) -> None:
        if self.model:
            name, was = data.draw(st.sampled_from(self.model))
            (self.book.enable if on else self.book.disable)(name)
            if was != on:
                self.changed([(old, on if old == name else state) for old, state in self.model])

    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        if self.model:
            pair = data.draw(st.sampled_from(self.model))
            place = data.draw(st.integers(0, len(self.model) - 1))
            self.book.move(pair[0], place)
            rest = [other for other in self.model if other != pair]
            rest.insert(place, pair)
            if rest != self.model:
                self.changed(rest)

    @rule()
    def undo(self) -> None:
        done = self.book.undo()
        assert (done is None) == (not self.past)
        if self.past:
            self.model, self.version = self.past.pop(), self.version + 1

    @invariant()
    def agrees(self) -> None:
        assert [(rule.id, rule.enabled) for rule in self.book] == self.model
        assert self.book.version == self.version == len(self.book.changes)


TestAnySequenceOfEdits = BookMachine.TestCase


@pytest.mark.parametrize(
    "write",
    [
        lambda rules: rules.never("", after="x"),
        lambda rules: rules.never("pay", after=""),
        lambda rules: rules.only("", after="x"),
        lambda rules: rules.at_most(3, ""),
        lambda rules: rules.at_most(True, "search"),
        lambda rules: rules.at_most(-1, "search"),
        lambda rules: rules.when("tool.args.x > 1", id="r", tools=[""]),
    ],
)
def test_a_rule_that_would_guard_nothing_is_refused(write: Any) -> None:
    rules = RuleBook()

    with pytest.raises(NoeticConfigError) as caught:
        write(rules)

    assert caught.value.code == "INVALID_RULE"
    assert len(rules) == 0
