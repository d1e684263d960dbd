"""Helpers of hooks: their results, their errors, and the recorded parts of these."""

from __future__ import annotations

from noetic_nb.layers import working_memory
from noetic_nb.memory._enforcement import fault_text, shown_matches
from noetic_nb.memory._execution_context import as_response, error_facts
from noetic_nb.memory._hook_timeout import begun
from noetic_nb.memory._hooks.hook_results import UNSET, field_of, misnamed
from noetic_nb.memory._hooks.recall import places_that_fit, text_that_fits
from noetic_nb.memory._state.state_copy import StateNotCopied, frozen_state, is_same
from noetic_nb.memory._steering_decision import as_decision
from noetic_nb.tokens import estimate_tokens


def test_fields_of_a_result_are_found_and_misspelt_ones_named() -> None:
    assert field_of({"tokenCount": 3}, "token_count", hook="recall") == 3
    assert field_of(None, "state", hook="store") is UNSET
    assert misnamed({"state": 1}, "store", "`store` of layer 'notes'") is None
    assert str(misnamed({"stat": 1}, "store", "`store` of layer 'notes'")) == (
        "`store` of layer 'notes' returned 'stat', which is not read. Did you mean 'state'? Its fields are 'state' and 'stop'."
    )


def test_results_of_clients_and_rules_are_read() -> None:
    assert as_response({"items": [], "usage": {"inputTokens": 3, "outputTokens": 1}}).usage.input_tokens == 3
    assert as_decision({"action": "guide", "guidance": "Use search."}).guidance == "Use search."
    assert begun(2, 10) == 2


def test_as_much_is_shown_as_fits() -> None:
    assert places_that_fit([5, 9, 5], 10) == [0, 2]
    assert text_that_fits("Blue is her colour.", 2, estimate_tokens) == "Blue is "


def test_records_hold_no_secrets() -> None:
    assert shown_matches(["refund", "hunter22"], "No refund. password: hunter22") == ("refund", "[redacted]")
    assert fault_text(KeyError("amount"), "before_tool_call") == "KeyError: 'amount'"
    assert fault_text(ValueError("it said 'x'"), "after_model_call") == "ValueError"
    assert error_facts(ValueError("no key=sk-proj-abcdefghijklmnopqrstuvwx"))[:2] == ("ValueError", "no key=[redacted]")


def test_states_are_compared_and_frozen_and_an_uncopied_one_says_whose_it_is() -> None:
    error = StateNotCopied("notes", "store", {"seen": [compile]}, TypeError("cannot pickle it"))

    assert (error.kind, error.layer_id, error.hook) == ("layer_failed", "notes", "store")
    assert is_same({"n": 1}, {"n": 1.0})
    assert frozen_state({"notes": ["a"]}) == {"notes": ("a",)}


def test_a_layer_knows_how_it_was_made_until_it_is_changed() -> None:
    layer = working_memory(scope="resource", read_only=False)

    assert layer.made_by is not None
    assert (layer.made_by.kind, dict(layer.made_by.options)) == ("working_memory", {"scope": "resource"})
    assert layer.with_hooks(recall=None).made_by is None
