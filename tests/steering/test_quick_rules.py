"""Rules evaluated directly in the hook give the same result as the evaluation of all rules one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.memory import PastCall
from noetic_nb.memory.params import BeforeToolCallParams
from noetic_nb.steering import SteeringRule, deny, guide
from noetic_nb.steering._evaluation.evaluate import Evaluation, Policy, evaluate
from noetic_nb.steering._rulebook.rulebook import RuleBook
from noetic_nb.testing import drive_loop
from tests.steering.steering_helpers import Bench

ARGS: dict[str, Any] = {"amount": 40, "to": "Ann"}
HISTORY = (PastCall("search", {"query": "Ann"}, "c1", "ok", "found"),)


def fails(call: Any) -> None:
    raise ValueError("no")


KINDS: dict[str, dict[str, Any]] = {
    "no opinion": {"predicate": lambda call: None},
    "takes its time": {"predicate": lambda call: call.ctx.clock.advance(3)},
    "guides": {"predicate": lambda call: guide("Ask first.")},
    "denies": {"predicate": lambda call: deny("Never.")},
    "raises": {"predicate": fails},
    "answers nonsense": {"predicate": lambda call: 7},
    "not met": {"when": "tool.args.amount > 100", "action": "deny"},
    "met": {"when": "tool.args.amount < 100 && size(history) == 1", "action": "guide", "guidance": "Less."},
    "no boolean": {"when": "tool.args.amount", "action": "deny"},
    "cannot be evaluated": {"when": "tool.args.missing > 1", "action": "deny"},
    "not met, so no judge": {
        "when": "tool.args.amount > 100",
        "llm_eval": {"mode": "sync", "prompt": "Fair?", "model": "judge"},
    },
    "comes too early": {"sequence": {"kind": "only_after", "others": ["look_up"]}, "tools": "pay"},
    "comes after": {"sequence": {"kind": "only_after", "others": ["search"]}, "tools": "pay"},
}


def rules_of(kinds: list[str]) -> list[SteeringRule]:
    return [SteeringRule(id=f"r{at}", applies_to="before_tool_call", **KINDS[kind]) for at, kind in enumerate(kinds)]


async def one_by_one(rules: list[SteeringRule], policy: Policy, bench: Bench) -> Evaluation:
    async def judged(*given: Any) -> None:
        raise AssertionError("no judge is to be asked")

    params = BeforeToolCallParams("pay", ARGS, bench.ctx, None, "", HISTORY)
    snapshot = RuleBook(rules).snapshot
    return await evaluate(snapshot, "before_tool_call", params, policy, judge_now=judged, judge_later=judged)


@given(
    st.lists(st.sampled_from(sorted(KINDS)), max_size=6),
    st.sampled_from(["deny", "allow"]),
)
def test_the_layer_comes_to_the_same_as_an_evaluation_one_by_one(kinds: list[str], on_error: Any) -> None:
    async def run() -> tuple[Any, Any]:
        rules = rules_of(kinds)
        bench = await Bench(rules, on_error=on_error, judge=[]).start()
        await bench.call("pay", ARGS, HISTORY)
        (event,) = bench.decided
        return event, await one_by_one(rules, Policy(on_error), bench)

    event, expected = drive_loop(run())

    decided = expected.decision
    assert (event.action, event.guidance, event.rule_ids) == (decided.action, decided.guidance, decided.rule_ids)
    assert event.faults == tuple(fault.words("before_tool_call") for fault in expected.faults)
    # All evaluated rules, in order, and none after the one that ended the evaluation.
    assert event.rules_ms == tuple(expected.rules_ms)


@pytest.mark.parametrize("kind", ["met", "guides", "raises", "no boolean"])
def test_rules_before_one_that_has_something_to_say_are_asked_once(kind: str) -> None:
    asked: list[int] = []

    def first(call: Any) -> None:
        asked.append(len(call.history))

    rules = [SteeringRule(id="first", applies_to="before_tool_call", predicate=first), *rules_of(["not met", kind])]

    async def run() -> Bench:
        bench = await Bench(rules).start()
        await bench.call("pay", ARGS, HISTORY)
        return bench

    (event,) = drive_loop(run()).decided
    assert asked == [1]
    assert [rule_id for rule_id, _ in event.rules_ms] == ["first", "r0", "r1"]
    assert event.rule_ids == ("r1",)
