"""The two enforcement points are fail-closed: undecided calls and responses are denied, reported and in the ledger."""

from __future__ import annotations

from typing import Any

import pytest

from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory import SteeringDecision
from noetic_nb.memory._enforcement import FAILED_GUIDANCE
from noetic_nb.memory.params import HookFailure
from noetic_nb.testing import drive_loop
from tests.memory.stacks import CTX, RESPONSE, Watched, boom, hang, layer, returning

POINTS = ["before_tool_call", "after_model_call"]
DENY = SteeringDecision("deny", "No.")
ALLOW = SteeringDecision("allow")


async def ask(stack: Watched, point: str) -> SteeringDecision:
    if point == "before_tool_call":
        return await stack.before_tool_call(CTX, tool_name="pay", tool_args={"sum": 1})
    return await stack.after_model_call(CTX, response=RESPONSE)


def ledger(stack: Watched) -> list[tuple[str, str, str | None]]:
    return [(e.layer_id, e.action, e.outcome) for e in stack.events if e.kind == "steering_decided"]


NONSENSE = [
    "deny",
    7,
    ["deny"],
    {"decision": "deny"},
    {"decision": {"action": "perhaps"}},
    {"decision": {"action": "deny", "guidance": 7}},
    {"action": "perhaps"},
    {"guidance": "no action"},
    {"decision": ALLOW, "stop": "now"},
    True,
]


@pytest.mark.parametrize("value", NONSENSE, ids=repr)
@pytest.mark.parametrize("point", POINTS)
async def test_an_answer_that_is_no_decision_is_a_deny(point: str, value: Any) -> None:
    stack = Watched(layer("rules", enforces=True, **{point: returning(value)}))

    decision = await ask(stack, point)

    assert (decision.action, decision.guidance) == ("deny", FAILED_GUIDANCE)
    assert stack.told == [("rules", point)]
    assert ledger(stack) == [("rules", "deny", "error")]


@pytest.mark.parametrize("point", POINTS)
async def test_defect_1_a_rule_that_raises_denies(point: str) -> None:
    stack = Watched(layer("rules", enforces=True, **{point: boom}))

    assert await ask(stack, point) == SteeringDecision("deny", FAILED_GUIDANCE)
    assert stack.told == [("rules", point)]


@pytest.mark.parametrize("point", POINTS)
def test_defect_1_a_rule_that_hangs_denies(point: str) -> None:
    async def run() -> Watched:
        stack = Watched(layer("rules", enforces=True, timeouts={point: 10}, **{point: hang}))
        assert (await ask(stack, point)).action == "deny"
        return stack

    stack = drive_loop(run())

    assert ledger(stack) == [("rules", "deny", "timeout")]
    assert stack.spans == [("rules", point, "timeout")]


@pytest.mark.parametrize("point", POINTS)
async def test_defect_1_a_layer_that_was_never_initialised_denies(point: str) -> None:
    stack = Watched(layer("rules", enforces=True, init=returning({"state": 1}), **{point: returning(ALLOW)}))

    assert (await ask(stack, point)).action == "deny"
    assert ledger(stack) == [("rules", "deny", "uninitialised")]
    assert stack.told == [("rules", point)]


@pytest.mark.parametrize("point", POINTS)
async def test_defect_1_a_layer_whose_init_failed_denies_even_where_that_only_disables_it(point: str) -> None:
    stack = Watched(layer("rules", enforces=True, init=boom, on_init_error="disable", **{point: returning(ALLOW)}))
    await stack.init(CTX)

    assert (await ask(stack, point)).action == "deny"
    assert ledger(stack) == [("rules", "deny", "disabled")]


@pytest.mark.parametrize("point", POINTS)
async def test_a_disabled_layer_that_does_not_enforce_is_passed_over(point: str) -> None:
    stack = Watched(layer("notes", init=boom, on_init_error="disable", **{point: returning(DENY)}))
    await stack.init(CTX)

    assert (await ask(stack, point)).action == "allow"
    assert ("notes", point, "skipped") in stack.spans


@pytest.mark.parametrize("point", POINTS)
async def test_the_layers_own_policy_goes_before_the_stacks(point: str) -> None:
    lenient = layer("rules", enforces=True, on_steering_error="allow", **{point: boom})
    plain = layer("rules", enforces=True, **{point: boom})
    strict = layer("rules", enforces=True, on_steering_error="raise", **{point: boom})

    assert (await ask(Watched(lenient), point)).action == "allow"
    assert (await ask(Watched(plain, on_steering_error="allow"), point)).action == "allow"
    with pytest.raises(RuntimeError, match="boom"):
        await ask(Watched(strict, on_steering_error="allow"), point)


@pytest.mark.parametrize("policy", ["deny", "allow", "raise"])
@pytest.mark.parametrize("point", POINTS)
async def test_a_wrong_set_up_always_raises(point: str, policy: Any) -> None:
    def missing(p: Any) -> Any:
        raise NoeticConfigError("MISSING_CALL_MODEL", "A judge has no model.")

    stack = Watched(layer("rules", enforces=True, on_steering_error=policy, **{point: missing}))

    with pytest.raises(NoeticConfigError) as caught:
        await ask(stack, point)
    assert caught.value.code == "MISSING_CALL_MODEL"


@pytest.mark.parametrize("point", POINTS)
async def test_the_layer_is_told_of_its_own_failure(point: str) -> None:
    told: list[HookFailure] = []

    def on_hook_failure(p: HookFailure) -> dict[str, Any]:
        told.append(p)
        return {"state": {"failures": 1}}

    stack = Watched(layer("rules", enforces=True, on_hook_failure=on_hook_failure, **{point: boom}))

    await ask(stack, point)

    assert [(f.hook, f.reason, str(f.error), f.decision.action) for f in told] == [(point, "error", "boom", "deny")]
    assert stack.state.get("e1", "rules") == {"failures": 1}


@pytest.mark.parametrize("point", POINTS)
async def test_enforcing_layers_are_asked_before_all_others_and_a_deny_ends_the_round(point: str) -> None:
    seen: list[str] = []

    def answering(id: str, decision: SteeringDecision) -> Any:
        def hook(p: Any) -> SteeringDecision:
            seen.append(id)
            return decision

        return hook

    stack = Watched(
        layer("reminder", 80, **{point: answering("reminder", ALLOW)}),
        layer("rules", 90, enforces=True, **{point: answering("rules", DENY)}),
        layer("late", 10, enforces=True, **{point: answering("late", ALLOW)}),
    )

    assert await ask(stack, point) == DENY
    assert seen == ["late", "rules"]


@pytest.mark.parametrize("point", POINTS)
async def test_later_layers_see_what_was_decided_so_far(point: str) -> None:
    seen: list[Any] = []

    def look(p: Any) -> None:
        seen.append(p.so_far)

    guide = SteeringDecision("guide", "Slower.")
    stack = Watched(layer("a", 1, **{point: returning(guide)}), layer("b", 2, **{point: look}))

    assert await ask(stack, point) == guide
    assert seen == [guide]


@pytest.mark.parametrize("point", POINTS)
async def test_every_decision_of_an_enforcing_layer_is_in_the_ledger(point: str) -> None:
    stack = Watched(
        layer("rules", enforces=True, **{point: returning(None)}),
        layer("quiet", 1, **{point: returning(None)}),
        layer("loud", 2, **{point: returning(SteeringDecision("guide", "x"))}),
    )

    await ask(stack, point)

    assert ledger(stack) == [("rules", "allow", None), ("loud", "guide", None)]


async def test_tool_arguments_cannot_be_changed_by_a_rule_that_is_given_frozen_ones() -> None:
    from noetic_nb.items import freeze

    def meddle(p: Any) -> None:
        p.tool_args["sum"] = 0

    stack = Watched(layer("rules", enforces=True, before_tool_call=meddle))

    decision = await stack.before_tool_call(CTX, tool_name="pay", tool_args=freeze({"sum": 1}))

    assert decision.action == "deny"
