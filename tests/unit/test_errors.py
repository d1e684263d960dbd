"""Errors say what happened, what was given and what to do, and survive being sent elsewhere."""

from __future__ import annotations

import pickle

import pytest

from noetic_nb.errors import ItemValidationError, NoeticConfigError, NoeticError, innermost


def test_a_message_says_what_happened_what_was_given_and_what_to_do() -> None:
    error = NoeticConfigError("UNKNOWN_SCOPE", "There is no such scope", given="galaxy", hint="Use thread")

    assert str(error) == "[UNKNOWN_SCOPE] There is no such scope. Given: 'galaxy'. Use thread."


def test_facts_are_attributes_and_unknown_ones_say_so() -> None:
    error = NoeticError("steering_denied", "Denied", guidance="Ask first", rule_ids=("ask",))

    assert (error.guidance, error.rule_ids) == ("Ask first", ("ask",))
    with pytest.raises(AttributeError, match="no field 'retry_after'"):
        _ = error.retry_after


def test_neither_family_is_a_value_error() -> None:
    assert not issubclass(NoeticError, ValueError)
    assert not issubclass(NoeticConfigError, ValueError)
    assert issubclass(ItemValidationError, ValueError)


def test_a_given_none_is_shown_and_a_missing_one_is_not() -> None:
    assert "Given: None." in str(NoeticError("step_failed", "It failed", given=None))
    assert "Given" not in str(NoeticError("step_failed", "It failed"))


def test_a_long_value_is_shortened_in_the_message_and_kept_on_the_error() -> None:
    error = NoeticError("step_failed", "It failed", given="x" * 10_000)

    assert len(str(error)) < 300
    assert error.given == "x" * 10_000


@pytest.mark.parametrize(
    "error",
    [
        NoeticError("channel_timeout", "Too late", given=3, channel_name="c", timeout=3),
        NoeticConfigError("MISSING_TOOL", "No tool", field="tool"),
        ItemValidationError("No item", given={"a": 1}),
    ],
)
def test_errors_survive_pickling(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))

    assert (type(copy), str(copy), copy.__dict__) == (type(error), str(error), error.__dict__)


def test_innermost_follows_causes_and_chains_and_survives_a_cycle() -> None:
    root = KeyError("order")
    middle = NoeticError("step_failed", "Inner", cause=root)
    outer = RuntimeError("outer")
    outer.__cause__ = middle
    loop = RuntimeError("loop")
    loop.__cause__ = loop

    assert innermost(outer) is root
    assert innermost(loop) is loop


def test_the_plain_form_leaves_out_what_is_not_plain() -> None:
    error = NoeticError("step_failed", "It failed", step_id="a", cause=KeyError("x"))

    assert error.to_dict() == {"kind": "step_failed", "message": "It failed.", "step_id": "a"}
