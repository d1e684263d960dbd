"""Rules evaluated together decide, and are recorded in the ledger, as if each were evaluated alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.memory import ExecutionContext, LayerStack
from noetic_nb.memory._enforcement import CallHistory
from noetic_nb.memory.params import PastCall
from noetic_nb.steering import RuleBook, SteeringRule, steering
from noetic_nb.testing import FakeClock

ANSWERS: dict[str, Any] = {
    "nothing": None,
    "allow": {"action": "allow"},
    "guide": {"action": "guide", "guidance": "other"},
    "deny": {"action": "deny"},
    "nonsense": 3,
}


class _Raises(Exception):
    pass


def rule(place: int, kind: str, seen: list[tuple[int, int]]) -> SteeringRule:
    """Return a rule that records its evaluation and the number of earlier calls."""

    def note(call: Any) -> None:
        seen.append((place, len(call.history)))

    def predicate(call: Any) -> Any:
        note(call)
        if kind == "raises":
            raise _Raises(str(place))
        if kind == "cancelled":
            raise asyncio.CancelledError
        return ANSWERS[kind]

    async def waits(call: Any) -> Any:
        note(call)
        await asyncio.sleep(0)
        return ANSWERS[kind.removeprefix("waits ")]

    facts: dict[str, Any] = {"id": f"r{place}", "applies_to": "before_tool_call"}
    if kind == "condition":
        return SteeringRule(**facts, when="tool.args.n > 5", action="guide")
    return SteeringRule(**facts, predicate=waits if kind.startswith("waits") else predicate)


KINDS = [*ANSWERS, "raises", "cancelled", "waits nothing", "waits guide", "waits deny", "condition"]


async def decided(kinds: list[str], n: int, policy: Any, *, is_followed: bool) -> tuple[Any, ...]:
    seen: list[tuple[int, int]] = []
    problems: list[str] = []
    book = RuleBook([rule(place, kind, seen) for place, kind in enumerate(kinds)])
    stack = LayerStack([steering(book, on_error=policy)], clock=FakeClock())
    stack.state.diagnostic = lambda layer_id, hook, error: problems.append(repr(error))

    class Sink:
        def emit(self, event: Any) -> None:
            """Follow."""

    ctx = ExecutionContext(
        execution_id="e1",
        thread_id="t1",
        clock=FakeClock(),
        sink=Sink() if is_followed else None,
        diagnostic=stack.state.diagnostic,
    )
    await stack.init(ctx)
    calls, decisions = CallHistory(), list[Any]()
    for _ in range(2):
        place = calls.reserve(PastCall("pay", {"n": n}, "c", "pending"))
        history = calls.so_far(place)
        try:
            found = await stack.before_tool_call(ctx, tool_name="pay", tool_args={"n": n}, history=history)
        except Exception as exc:
            decisions.append(repr(exc))
        else:
            decisions.append((found.action, found.guidance, found.rule_ids))
    ledger = stack.state.get("e1", "steering")["ledger"]
    await stack.dispose(ctx)
    return decisions, ledger, seen, problems


@given(st.lists(st.sampled_from(KINDS), max_size=5), st.integers(4, 7), st.sampled_from(["deny", "allow", "raise"]))
def test_who_follows_a_run_changes_nothing_in_it(kinds: list[str], n: int, policy: Any) -> None:
    alone = asyncio.run(decided(kinds, n, policy, is_followed=False))
    followed = asyncio.run(decided(kinds, n, policy, is_followed=True))

    assert alone == followed


@pytest.mark.parametrize("kind", ["raises", "cancelled", "nonsense", "deny"])
async def test_the_rules_behind_one_that_denies_are_not_asked(kind: str) -> None:
    decisions, ledger, seen, _ = await decided(["nothing", "nothing", kind, "nothing"], 1, "deny", is_followed=False)

    assert [place for place, _ in seen] == [0, 1, 2] * 2
    assert {action for action, _, _ in decisions} == {"deny"}
    assert [entry["ruleIds"] for entry in ledger] == [["r2"], ["r2"]]


async def test_an_edit_between_two_calls_is_heeded() -> None:
    seen: list[tuple[int, int]] = []
    book = RuleBook([rule(place, "nothing", seen) for place in range(3)])
    stack, ctx = LayerStack([steering(book)]), ExecutionContext(execution_id="e1", thread_id="t1")
    await stack.init(ctx)
    first = await stack.before_tool_call(ctx, tool_name="pay", tool_args={})
    book.put(rule(1, "deny", seen))
    second = await stack.before_tool_call(ctx, tool_name="pay", tool_args={})
    book.disable("r1")
    third = await stack.before_tool_call(ctx, tool_name="pay", tool_args={})

    assert [str(one.action) for one in (first, second, third)] == ["allow", "deny", "allow"]
    assert [place for place, _ in seen] == [0, 1, 2, 0, 1, 0, 2]
    assert [entry.get("kind") for entry in stack.state.get("e1", "steering")["ledger"]] == [
        "tool_call", "custom", "tool_call", "custom", "tool_call",
    ]  # fmt: skip
