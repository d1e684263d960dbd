"""The helpers that parse, weigh and describe rules."""

from __future__ import annotations

import pytest

from noetic_nb.errors import NoeticError
from noetic_nb.steering import RuleBook, SteeringRule, steering
from noetic_nb.steering._evaluation.rule_reading import read_rule
from noetic_nb.steering._execution_states import checked_ledger
from noetic_nb.steering._layer import policy_of, rulebook_of
from noetic_nb.steering._predicates.bindings import weight
from noetic_nb.steering._predicates.cel_names import analyse, cel_tokens
from noetic_nb.steering._predicates.conditions import matched_text
from noetic_nb.steering._predicates.guidance_template import MAX_GUIDANCE, capped
from noetic_nb.steering._predicates.python_source import compile_predicate
from noetic_nb.steering._predicates.sequence_rules import describe_sequence, sequence_rule
from noetic_nb.steering._rulebook.rule_files import dump_yaml, parse_yaml
from noetic_nb.steering._rules.file_schema import rule_text


def test_a_condition_says_its_tools_arguments_and_needs() -> None:
    rule = SteeringRule(id="r", applies_to="before_tool_call", when="tool.name == 'pay' && tool.args.amount > 3")
    found = read_rule(rule)

    assert (found.tools, found.arguments, found.silent) == ({"pay"}, {"amount"}, True)
    assert sorted(analyse("r", "history.exists(h, h.status == 'ok')").needs) == ["history", "history.status"]
    assert list(cel_tokens("a &&\n  b")) == [("ident", "a", (1, 1)), ("mark", "&&", (1, 3)), ("ident", "b", (2, 3))]


def test_a_condition_finds_the_text_it_tests_for() -> None:
    find = matched_text("response.text.contains('refund') || response.text.startsWith('No')", compile_cel=None)  # type: ignore[arg-type]

    assert find is not None
    assert find("We refund everything.") == ("refund",)


def test_a_rule_is_told_in_words_json_and_yaml() -> None:
    rule = sequence_rule("never_after", "send_email", others="read_secrets")

    assert rule.sequence is not None
    assert describe_sequence(rule, rule.sequence) == "send_email must not be called after read_secrets."
    assert rule_text(SteeringRule(id="kind", applies_to="after_model_call", when="true")).startswith(
        '{\n  "id": "kind"'
    )
    assert dump_yaml({"on": ["x"], "when": "a\nb"}) == "on:\n- x\nwhen: |-\n  a\n  b\n"
    assert parse_yaml("on: [no]") == {"on": ["no"]}


def test_values_and_guidance_have_a_size_that_can_be_used() -> None:
    assert weight({"to": ["ann", 3]}) == 205
    assert len(capped("x" * 100_000)) <= MAX_GUIDANCE + 40


def test_a_text_becomes_a_function_with_the_words_of_decisions() -> None:
    assert compile_predicate("short", "def short(call):\n    return deny('No.')", {})(None).guidance == "No."


def test_a_layer_knows_its_book_and_its_policy() -> None:
    book = RuleBook()
    layer = steering(book, on_error="allow")
    policy = policy_of(layer)

    assert rulebook_of(layer) is book
    assert policy is not None
    assert policy.on_error == "allow"


def test_a_damaged_ledger_is_reported_with_its_place() -> None:
    with pytest.raises(NoeticError, match=r"'steering' is damaged: ledger\[0\].timestamp is not a finite number"):
        checked_ledger({"ledger": [{"timestamp": "noon"}]}, "layers/steering/t1/state")
